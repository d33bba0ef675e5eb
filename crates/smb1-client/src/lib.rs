//! Reaches servers that speak only SMB1: old network storage, machine tools, scanners.
//!
//! [`client`] returns a client of `frevo-client` whose dialer connects by SMB1. The other end of each of its
//! connections is a [`bridge`] in this process, which answers requests of SMB 2.1 by asking the server in
//! SMB1. So all that works over SMB 2 and 3 works here too, as far as SMB1 has it: transfers, listings,
//! repetition, recovery of a lost connection.
//!
//! Nothing leads here but a wish of the user, no negotiation and no fallback: SMB1 encrypts nothing, and its
//! signatures are weak.
#![forbid(unsafe_code)]
// The server may be hostile, so no input of it may make this crate panic.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

mod bridge;
mod connection;
mod dial;
pub mod limits;
mod logon;
mod names;
mod stream;

use std::sync::Arc;

use frevo_client::{Client, Credentials, Dialect, Encryption, Options, Referrals, Signing};

pub use frevo_smb1::CodePage;
pub use logon::{Settings, SigningWish};

/// Returns a client that reaches servers by SMB1, as this user. `options` are those of a client otherwise;
/// what SMB1 does not have is switched off. None if the credentials have neither a password nor its hash.
///
/// # Panics
/// Panics if the system has no random numbers.
pub fn client(options: Options, credentials: &Credentials, settings: Settings) -> Option<Client> {
    let credentials = credentials.to_auth()?;
    let ambient = Arc::clone(&options.ambient);
    // No handle outlives its connection, but with the wish for one the client opens a file again after a
    // connection was lost, if it is the same file. The bridge is in this process, so its connections need no protection: the session of its SMB 2.1 is
    // a guest's, which has no keys.
    let options = options
        .oldest(Dialect::Smb210)
        .newest(Dialect::Smb210)
        .encryption(Encryption::AsServerAsks)
        .require_signing(false)
        .sign(Signing::WhenAsked)
        .allow_guest(true)
        .channels(1)
        .posix(false)
        .witness(false)
        .app_instance(None)
        .referrals(Referrals::Never);
    let dial = dial::Smb1Dialer::new(logon::Logon { credentials, settings, ambient });
    Some(Client::with_dialer(options, Arc::new(dial)))
}
