//! Why a request does not succeed, sorted by what the peer gets.

use std::fmt;

use frevo_store::Fault;
use frevo_wire::{Malformed, Status};

/// The failure of a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// An error response with this status.
    Status(Status),
    /// An error response with this status and error data, MS-SMB2 2.2.2.
    Data(Status, Vec<u8>),
    /// BAD_NETWORK_NAME with a Share Redirect error context, MS-SMB2 2.2.2.2.2. Only for 3.1.1.
    Redirect(Vec<u8>),
    /// No response: the connection ends.
    Disconnect(Doom),
}

/// Why a connection is ended without a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doom {
    /// A rule of the framing, the transform or the sequence window.
    Protocol(frevo_proto::Disconnect),
    /// Another rule, in a few words for the log.
    Rule(&'static str),
    /// A rule whose breach has its own log line, or needs none: an idle probe.
    Told(&'static str),
    /// A message that crossed the end of its session: nothing that an administrator acts on.
    Late(&'static str),
    /// A limit: newcomers need its place, or memory is full.
    Limit(&'static str),
    /// Its last session was idle for long.
    Idle,
}

/// The end of a connection that uses a share which this server does not serve, or not now. The client
/// finds the owner of the share when it connects again.
pub(crate) const ANOTHER_SERVES: Doom = Doom::Late("another server serves the share, or may do so");

/// The end of a request to a share that is being given away: nothing answers it, and the connection stays until all
/// connections of the share end together. A client that noticed the end of its connection before the
/// addresses have left would find this server there again.
pub(crate) const ENDS_WITH_OTHERS: Doom = Doom::Late("the share is being given to another server");

impl From<frevo_proto::Disconnect> for Doom {
    fn from(why: frevo_proto::Disconnect) -> Self {
        Self::Protocol(why)
    }
}

impl From<Malformed> for Doom {
    fn from(why: Malformed) -> Self {
        Self::Protocol(why.into())
    }
}

impl fmt::Display for Doom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(why) => why.fmt(f),
            Self::Rule(why) | Self::Told(why) | Self::Late(why) | Self::Limit(why) => {
                f.write_str(why)
            }
            Self::Idle => f.write_str("idle"),
        }
    }
}

/// The result of a handler: SUCCESS or another status that carries a body.
pub(crate) type Outcome = Result<Status, Refusal>;

impl Refusal {
    /// The status that goes into the response, if there is one.
    pub(crate) const fn status(&self) -> Option<Status> {
        match self {
            Self::Status(status) | Self::Data(status, _) => Some(*status),
            Self::Redirect(_) => Some(Status::BAD_NETWORK_NAME),
            Self::Disconnect(_) => None,
        }
    }
}

impl From<Doom> for Refusal {
    fn from(why: Doom) -> Self {
        Self::Disconnect(why)
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Status(fault.status())
    }
}

/// MS-SMB2 3.3.5.2.6: a malformed request is INVALID_PARAMETER.
impl From<Malformed> for Refusal {
    fn from(_: Malformed) -> Self {
        Self::Status(Status::INVALID_PARAMETER)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) | Self::Data(status, _) => write!(f, "{status}"),
            Self::Redirect(_) => write!(f, "{}", Status::BAD_NETWORK_NAME),
            Self::Disconnect(why) => write!(f, "disconnected: {why}"),
        }
    }
}
