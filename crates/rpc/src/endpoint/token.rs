//! Tokens of an authentication, and the verdicts on them.

use crate::pdu::{Bind, Header, PduKind};
use crate::security::{AuthLevel, AuthType};
use alloc::boxed::Box;
use alloc::vec::Vec;
use frevo_auth::Protection;

/// A token of the client that the carrier judges. [`Endpoint::judge`] takes the verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The security provider.
    pub kind: AuthType,
    /// The level that the client asks for.
    pub level: AuthLevel,
    /// True for the first token of the authentication.
    pub is_first: bool,
    /// The token itself.
    pub token: Vec<u8>,
}

/// The result of a token.
#[derive(Debug)]
pub enum Verdict {
    /// Sends this token and expects another.
    Continue(Vec<u8>),
    /// The client has proved its identity. The token, which may be empty, is the last. Without a
    /// protection, which the client need not ask for, it may only have asked for the level of connect.
    Done(Vec<u8>, Option<Box<Protection>>),
    /// The client is refused.
    Refused,
}

/// The PDU with the token that is judged.
#[derive(Debug)]
pub(super) enum Judged {
    /// bind or alter_context, and the kind of its answer.
    Bind {
        bind: Bind,
        kind: PduKind,
        header: Header,
    },
    Auth3,
}

/// The part of an answer that an authentication adds.
pub(super) struct Signed {
    /// The answer to the client's token; may be empty.
    pub(super) token: Vec<u8>,
}
