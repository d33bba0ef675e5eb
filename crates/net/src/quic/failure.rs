//! The reasons why a connection could not be made, or ended.

use std::error::Error;
use std::fmt;
use std::io;

use quinn_proto::{ConnectionError, TransportErrorCode};

use super::access::{Decision, Verdict};

/// The alerts of TLS that mean something to a user: RFC 8446 6.2, RFC 7301 3.2.
mod alert {
    pub(super) const BAD_CERTIFICATE: u64 = 42;
    pub(super) const CERTIFICATE_EXPIRED: u64 = 45;
    pub(super) const CERTIFICATE_UNKNOWN: u64 = 46;
    pub(super) const UNKNOWN_CA: u64 = 48;
    pub(super) const ACCESS_DENIED: u64 = 49;
    pub(super) const CERTIFICATE_REQUIRED: u64 = 116;
    pub(super) const NO_APPLICATION_PROTOCOL: u64 = 120;
}

/// The code of QUIC for an alert of TLS, RFC 9001 4.8.
const CRYPTO_ERROR: u64 = 0x100;

/// The reason why a connection has ended, or never began.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// The connection of QUIC was lost.
    Lost(ConnectionError),
    /// The handshake took too long.
    TooSlow,
    /// The access list, or the check of the certificate, keeps the client out.
    Refused(Decision),
    /// The client does not trust the server, for this reason.
    Untrusted(String),
    /// The peer does not want this end to send or to receive.
    Stopped,
    /// A call of the system, or of the configuration, failed.
    Local(io::ErrorKind, String),
}

/// The error of a client whose certificate keeps it out, for the audit log of a server.
impl Error for Decision {}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { certificate, name, verdict } = self;
        match verdict {
            Verdict::Allowed => write!(f, "certificate {certificate} ({name}) is allowed"),
            Verdict::NotAllowed => {
                write!(f, "certificate {certificate} ({name}) is not below one in `allow`")
            }
            Verdict::Denied(by) => {
                write!(f, "certificate {certificate} ({name}) is denied by {by}")
            }
            Verdict::Untrusted => {
                write!(
                    f,
                    "certificate {certificate} ({name}) is of an unknown authority, is not valid \
                     now, or comes with too long a chain"
                )
            }
        }
    }
}

impl Failure {
    /// True if the peer has ended the connection in the ordinary way.
    pub(super) fn is_end(&self) -> bool {
        match self {
            Self::Lost(ConnectionError::ApplicationClosed(close)) => {
                close.error_code.into_inner() == 0
            }
            // Samba's client ends its connections so.
            Self::Lost(ConnectionError::ConnectionClosed(close)) => {
                close.error_code == TransportErrorCode::NO_ERROR
            }
            _ => false,
        }
    }

    pub(super) fn to_io(&self) -> io::Error {
        match self {
            Self::Refused(decision) => {
                io::Error::new(io::ErrorKind::PermissionDenied, decision.clone())
            }
            Self::TooSlow | Self::Lost(ConnectionError::TimedOut) => io::ErrorKind::TimedOut.into(),
            Self::Untrusted(why) => io::Error::new(io::ErrorKind::PermissionDenied, why.clone()),
            Self::Stopped => io::ErrorKind::BrokenPipe.into(),
            Self::Local(kind, why) => io::Error::new(*kind, why.clone()),
            Self::Lost(lost) => match (told(lost), lost) {
                (Some(text), _) => io::Error::new(io::ErrorKind::PermissionDenied, text),
                (None, ConnectionError::LocallyClosed) => io::ErrorKind::NotConnected.into(),
                (None, ConnectionError::TransportError(_) | ConnectionError::VersionMismatch) => {
                    io::Error::new(io::ErrorKind::InvalidData, lost.to_string())
                }
                (None, ConnectionError::ConnectionClosed(close)) if close.error_code == REFUSED => {
                    io::ErrorKind::ConnectionRefused.into()
                }
                (None, _) => io::ErrorKind::ConnectionReset.into(),
            },
        }
    }
}

/// The code with which a server refuses a connection, RFC 9000 20.1.
const REFUSED: TransportErrorCode = TransportErrorCode::CONNECTION_REFUSED;

/// Returns the sentence for a connection that the peer ends by an alert of TLS. None for another
/// end.
fn told(lost: &ConnectionError) -> Option<&'static str> {
    let ConnectionError::ConnectionClosed(close) = lost else { return None };
    let code = u64::from(close.error_code).checked_sub(CRYPTO_ERROR)?;
    match code {
        alert::CERTIFICATE_REQUIRED => Some(
            "the server wants a certificate of this client: name one with --quic-certificate and \
             --quic-key",
        ),
        alert::ACCESS_DENIED => Some("the server does not let in the certificate of this client"),
        alert::BAD_CERTIFICATE
        | alert::CERTIFICATE_EXPIRED
        | alert::CERTIFICATE_UNKNOWN
        | alert::UNKNOWN_CA => Some("the server does not trust the certificate of this client"),
        alert::NO_APPLICATION_PROTOCOL => Some("the server does not speak SMB at this port"),
        _ => None,
    }
}

impl From<ConnectionError> for Failure {
    fn from(error: ConnectionError) -> Self {
        Self::Lost(error)
    }
}
