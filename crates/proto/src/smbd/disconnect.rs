//! Reasons for which an RDMA connection ends.

use core::fmt;

use frevo_wire::{Malformed, Status};

/// The fault of the peer that ends the connection, for the log. The peer sees only the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disconnect {
    /// A message that cannot be parsed.
    Malformed(Malformed),
    /// No version in common.
    Version,
    /// A negotiation response before the request was sent.
    Unexpected,
    /// The peer has refused the negotiation.
    Refused(Status),
    /// A field with a value that MS-SMBD 3.1.5.6 to 3.1.5.8 do not allow.
    Offer(&'static str),
    /// Data outside its message, or not aligned.
    DataPlace,
    /// A message for which the peer had no credit.
    Credits,
    /// Fragments that contradict each other, or more data than was agreed.
    Fragments,
    /// A token that was not lent, or that was invalidated before.
    Token,
    /// The negotiation took too long.
    NegotiationTimeout,
    /// A fragmented message took too long.
    Stalled,
    /// No answer to a keep-alive.
    Silent,
}

impl From<Malformed> for Disconnect {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl fmt::Display for Disconnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::Version => write!(f, "no common version of SMB Direct"),
            Self::Unexpected => write!(f, "an SMB Direct response without a request"),
            Self::Refused(status) => write!(f, "SMB Direct refused with {status}"),
            Self::Offer(field) => write!(f, "{field} has a value that SMB Direct does not allow"),
            Self::DataPlace => write!(f, "data outside its SMB Direct message"),
            Self::Credits => write!(f, "a message without a send credit"),
            Self::Fragments => write!(f, "fragments that do not make a message"),
            Self::Token => write!(f, "it invalidated memory that was not lent to it"),
            Self::NegotiationTimeout => write!(f, "did not negotiate SMB Direct in time"),
            Self::Stalled => write!(f, "a fragmented message made no progress"),
            Self::Silent => write!(f, "no answer to a keep-alive"),
        }
    }
}

impl core::error::Error for Disconnect {}
