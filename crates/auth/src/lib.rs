//! SPNEGO, NTLMv2 and Kerberos for SMB, both roles: token in, token out. No I/O.
//!
//! A server makes one [`Acceptor`] for each SESSION_SETUP exchange, with an eight-byte challenge of
//! its own, and gives it the client's tokens; a client makes one [`Initiator`]. Time and random
//! bytes are arguments, accounts come from [`Accounts`], keys of Kerberos from a
//! [`kerberos::Service`]. Neither role can be downgraded: NTLMv1 and LM do not exist here, a
//! malformed token never makes a guest, and a challenge is good for one AUTHENTICATE message, right
//! or wrong.
#![no_std]
#![forbid(unsafe_code)]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod acceptor;
pub mod account;
pub mod account_rules;
pub mod der;
pub mod hash;
pub mod initiator;
pub mod kerberos;
mod kerberos_keys;
pub mod limits;
pub mod logon_hours;
pub mod ntlm;
pub mod password_change;
pub mod protection;
pub mod refusal;
pub mod smbpasswd;
pub mod spnego;
pub mod target;
#[cfg(test)]
mod tests;

pub use acceptor::{
    Acceptor, AcceptorConfig, Claim, DomainLogon, DomainQuestion, Done, Guests, Identity, Step,
};
pub use account::{Account, Accounts, Membership, NotChanged};
pub use account_rules::AccountRules;
pub use hash::NtHash;
pub use initiator::{Credentials, Entropy, Initiator, Secret, Target};
pub use kerberos_keys::KerberosKeys;
pub use logon_hours::LogonHours;
pub use protection::{Parts, Protection};
pub use refusal::{AccountFault, Reason, Refusal};
pub use smbpasswd::{AccountFile, SambaRule};
pub use zeroize::Zeroizing;

/// A way to log on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// NTLM with a password.
    Ntlm,
    /// Kerberos with a ticket.
    Kerberos,
}

/// The whole key of an authentication: 16 bytes of NTLM, 16 or 32 of Kerberos.
pub type SessionKey = Zeroizing<alloc::vec::Vec<u8>>;
