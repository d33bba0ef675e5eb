//! NTLMv2 (MS-NLMP): messages, responses, keys. [`crate::acceptor`] and [`crate::initiator`]
//! contain the exchange.

pub mod av_pair;
pub mod bare;
pub mod crypt;
pub mod flags;
pub mod message;
pub mod sealing;

pub use av_pair::{AvFlags, AvId, AvPairs};
pub use flags::Flags;
pub use message::{Authenticate, Challenge, MessageType, Negotiate};
pub use sealing::Sealing;

/// The first bytes of every NTLM message (MS-NLMP 2.2.1.1).
pub const SIGNATURE: [u8; 8] = *b"NTLMSSP\0";

/// True if `token` is a bare NTLM message, not SPNEGO.
pub fn is_ntlm(token: &[u8]) -> bool {
    token.starts_with(&SIGNATURE)
}
