//! Kerberos 5 (RFC 4120) as SMB uses it: names, keys, tickets and the files that hold them.

pub(crate) mod accept;
mod asn1;
mod big_endian;
pub mod ccache;
mod change_password;
mod credentials;
mod fault;
#[cfg(any(test, feature = "forge"))]
pub mod forge;
pub(crate) mod gss;
pub(crate) mod initiate;
pub mod kdc;
mod key_check;
mod keys;
pub mod keytab;
mod message;
mod pac;
mod principal;
mod proof;
mod replay;
mod service;
pub(crate) mod wrap;

pub use accept::AcceptorEntropy;
pub use ccache::CredentialsCache;
pub use change_password::{ChangeAnswer, ChangeResult, PasswordChange};
pub use credentials::{ClientSecret, ServiceKey, ServiceTicket, TicketFlags};
pub use fault::{Fault, SealedTicket};
pub use frevo_crypto::{EncryptionType, KerberosKey as Key, KeyUsage};
pub use initiate::InitiatorEntropy;
pub use key_check::{KdcErrorCode, KeyAnswer, KeyQuestion};
pub use keys::ServiceKeys;
pub use keytab::{Keytab, KeytabEntry};
pub(crate) use message::ErrorCode;
pub use pac::{LogonInfo, UserAccountControl};
pub use principal::{NameType, Principal};
pub use replay::{Replay, ReplayTable, Replays};
pub use service::{DomainUser, PacPolicy, Policy, Service};
