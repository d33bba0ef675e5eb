//! Reasons for which the peer's fault ends a Connection.

use core::fmt;
use frevo_wire::Malformed;

/// A violation by the peer that MS-SMB2 answers with the end of the Connection and no message. The
/// variants are for the log; the peer sees only the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disconnect {
    /// The first byte of a frame is not zero (a NetBIOS control packet, TLS,
    /// HTTP or noise).
    FrameType(u8),
    /// A frame longer than this stage of the connection allows.
    FrameTooLong {
        /// Bytes that the prefix announces.
        len: usize,
        /// Bytes that are allowed.
        limit: usize,
    },
    /// A message longer than its command or the negotiated sizes allow.
    MessageTooLong {
        /// Length of the message in bytes.
        len: usize,
        /// Bytes that are allowed.
        limit: usize,
    },
    /// Bytes that cannot be parsed far enough for an answer.
    Malformed(Malformed),
    /// A MessageId outside the sequence window, or one that was used before.
    SequenceNumber {
        /// The first of the sequence numbers.
        message_id: u64,
        /// Number of sequence numbers of the request.
        charge: u16,
    },
    /// A sealed message that violates MS-SMB2 3.3.5.2.1.1, or on a client 3.2.5.1.1.1.
    Sealed(&'static str),
    /// A compressed message on a Connection that has negotiated no compression, MS-SMB2 3.2.5.1.1.2
    /// and 3.3.5.2.1.2.
    Compressed,
    /// A compressed message that violates MS-SMB2 3.1.5.3, 3.3.5.2.1.2 or, on a client, 3.2.5.1.1.2.
    Expansion(&'static str),
}

impl From<Malformed> for Disconnect {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl fmt::Display for Disconnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FrameType(byte) => write!(f, "a frame of type {byte:#04x}"),
            Self::FrameTooLong { len, limit } => {
                write!(f, "a frame of {len} bytes where {limit} are allowed")
            }
            Self::MessageTooLong { len, limit } => {
                write!(f, "a message of {len} bytes where {limit} are allowed")
            }
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::SequenceNumber { message_id, charge } => {
                write!(f, "MessageId {message_id} (charge {charge}) is not in the window")
            }
            Self::Compressed => {
                f.write_str("a compressed message, although compression was not negotiated")
            }
            Self::Expansion(rule) => write!(f, "the compressed message was refused: {rule}"),
            Self::Sealed(rule) => write!(f, "the sealed message was refused: {rule}"),
        }
    }
}

impl core::error::Error for Disconnect {}
