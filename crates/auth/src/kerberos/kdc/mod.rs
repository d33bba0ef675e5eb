//! The client's side of the exchanges with a KDC: RFC 4120 sections 3.1 and 3.3.
//!
//! [`AsExchange`] gets a ticket-granting ticket for a password or a key, [`TgsExchange`] a ticket for a
//! service with it. Both return [`KdcStep::Ask`] until they have a ticket: the caller sends the message
//! to a KDC of the realm and hands over the reply. Time and random bytes are arguments.

mod as_exchange;
mod fault;
#[cfg(any(test, feature = "forge"))]
pub mod forge;
#[cfg(test)]
mod golden;
mod messages;
#[cfg(test)]
mod tests;
mod tgs_exchange;

pub use as_exchange::AsExchange;
pub use fault::KdcFault;
pub use tgs_exchange::TgsExchange;

use super::message::{ErrorCode, KrbError};
use super::{EncryptionType, Key, Principal, ServiceTicket, TicketFlags};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use frevo_wire::dtyp::FileTime;
use messages::{EncReplyPart, KdcReply};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Seconds for which a ticket is asked; the KDC gives less if its policy says so.
const LIFE: i64 = 86_400;

/// A message for a KDC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The realm whose KDC the message is for.
    pub realm: String,
    /// The message, without the length that goes before it on TCP.
    pub message: Vec<u8>,
}

/// The result of a reply.
#[derive(Debug)]
pub enum KdcStep {
    /// Sends this message and expects a reply.
    Ask(Ask),
    /// The ticket.
    Done(Box<ServiceTicket>),
}

/// Bytes from a cryptographic random source, for one message only.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct KdcEntropy {
    /// The number by which a reply belongs to its request.
    pub nonce: [u8; 4],
    /// The subkey of an authenticator; its type needs the first 16 or 32 bytes.
    pub subkey: [u8; 32],
    /// The confounder of the encrypted part.
    pub confounder: [u8; 16],
}

impl KdcEntropy {
    /// 31 bits: some KDCs read the number as signed.
    const fn nonce(&self) -> u32 {
        u32::from_be_bytes(self.nonce) & 0x7fff_ffff
    }
}

impl fmt::Debug for KdcEntropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KdcEntropy(..)")
    }
}

/// Returns the moment `seconds` after 1970.
fn at(seconds: i64) -> FileTime {
    FileTime::from_unix(seconds, 0)
}

/// Makes the ticket of a reply whose encrypted part is proved to be the KDC's.
fn ticket(
    reply: &KdcReply<'_>,
    part: &EncReplyPart<'_>,
    allowed: &[EncryptionType],
) -> Result<ServiceTicket, KdcFault> {
    let number = part.key.number;
    let etype = EncryptionType::from_number(number).filter(|etype| allowed.contains(etype));
    let etype = etype
        .ok_or_else(|| KdcFault::SessionKey { server: Box::new(part.server.clone()), number })?;
    let session_key =
        Key::new(etype, part.key.bytes).ok_or(KdcFault::Malformed("KDC reply: session key"))?;
    Ok(ServiceTicket {
        client: reply.client.clone(),
        server: part.server.clone(),
        session_key,
        ticket: reply.ticket.to_vec(),
        flags: TicketFlags(part.flags),
        auth_time: at(part.auth_time),
        // RFC 4120 section 5.3: a ticket without a start time is valid from the logon (auth_time)
        // on.
        start_time: at(part.start_time.unwrap_or(part.auth_time)),
        end_time: at(part.end_time),
        renew_till: part.renew_till.map_or(FileTime::ZERO, at),
    })
}

/// Returns the fault of an error about `client` and `server`. It comes without a proof, so it decides
/// nothing but the text.
fn refused(
    error: &KrbError<'_>,
    client: &Principal,
    server: &Principal,
    realm: &str,
    now: FileTime,
) -> KdcFault {
    let (client, server, realm) = (client.clone(), server.clone(), String::from(realm));
    match error.code {
        ErrorCode::CLIENT_UNKNOWN => KdcFault::UnknownClient(Box::new(client)),
        ErrorCode::SERVER_UNKNOWN | ErrorCode::SERVER_NO_MATCH => {
            KdcFault::UnknownService { server: Box::new(server), realm }
        }
        ErrorCode::CLIENT_REVOKED => KdcFault::Revoked(Box::new(client)),
        ErrorCode::KEY_EXPIRED => KdcFault::PasswordExpired(Box::new(client)),
        ErrorCode::PREAUTH_FAILED | ErrorCode::BAD_INTEGRITY => {
            KdcFault::WrongSecret(Box::new(client))
        }
        ErrorCode::NO_ENCRYPTION_TYPE => KdcFault::EncryptionTypes { realm },
        ErrorCode::TICKET_EXPIRED => KdcFault::TicketExpired(Box::new(client)),
        ErrorCode::SKEW | ErrorCode::TICKET_NOT_YET_VALID => {
            let seconds = now.to_unix().0.saturating_sub(error.time.seconds);
            KdcFault::Skew { realm, seconds }
        }
        code => KdcFault::Refused { realm, code: code.0 },
    }
}
