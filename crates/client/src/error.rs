//! Errors: a sentence for a person, and a cause for a program.

use std::fmt;
use std::io;
use std::sync::Arc;

use frevo_wire::Malformed;

use crate::Status;
use crate::account;
use crate::kerberos::KerberosError;
use crate::types::{Dialect, ShadowCopyError};

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed operation: the operation, its path, and the cause.
///
/// Its text is a whole sentence for a person. Programs use [`Error::kind`], which gives the
/// same kinds as operations on local files, [`Error::status`] or [`Error::cause`].
#[derive(Debug, Clone)]
pub struct Error {
    cause: Cause,
    operation: &'static str,
    path: Box<str>,
    /// The user that the server was to log on.
    user: Option<Box<str>>,
    /// True when a change was refused in a share that the user may only read.
    in_read_only_share: bool,
}

/// The cause of a failed operation.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Cause {
    /// The server answered with an error.
    Status(Status),
    /// The server cannot be reached, or the connection was lost and not recovered in time.
    Transport(Arc<io::Error>),
    /// The connection was lost before the answer came, and the request may have been
    /// carried out: sending it again could do it twice. While a session has another channel,
    /// Frevo's server tells the outcome there.
    Unknown,
    /// The open file was lost with its connection: another client may have changed it or
    /// locked it since.
    HandleLost,
    /// The logon failed on this side: the server does not prove that it knows the
    /// password, or sends what is not a logon.
    Logon(LogonError),
    /// There is no Kerberos ticket for the server, or the server does not accept it.
    Kerberos(KerberosError),
    /// The server offers less protection than the options demand, or a message was not
    /// protected as it should be.
    Security(&'static str),
    /// The peer is not an SMB server.
    NotSmb,
    /// The server speaks none of the dialects that the options allow: the newest one that it speaks,
    /// or `None` for SMB 1.
    TooOld(Option<Dialect>),
    /// The cluster lets its share be used by no newer dialect than this one, which the options do not
    /// allow.
    ClusterDialect(Dialect),
    /// The server broke the protocol.
    Protocol(&'static str),
    /// A limit of this client was reached: a directory with too many entries.
    Limit(&'static str),
    /// The call is wrong: an impossible name, a number out of range.
    Usage(&'static str),
    /// The server does not make or delete a shadow copy.
    ShadowCopy(ShadowCopyError),
    /// An error of this machine: a local file, memory.
    Local(Arc<io::Error>),
}

/// The reason why this client did not accept a logon. Its text says more.
#[derive(Debug, Clone)]
pub struct LogonError(Arc<frevo_auth::Refusal>);

impl fmt::Display for LogonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&*self.0, f)
    }
}

impl Error {
    /// Returns an error of `operation` on `path`.
    #[doc(hidden)]
    pub fn new(cause: impl Into<Cause>, operation: &'static str, path: impl Into<String>) -> Self {
        let path = path.into().into_boxed_str();
        Self { cause: cause.into(), operation, path, user: None, in_read_only_share: false }
    }

    /// Names the user that had to be logged on for the operation.
    pub(crate) fn of_user(self, user: &str) -> Self {
        Self { user: Some(user.into()), ..self }
    }

    /// Notes that the error is of a change in a share that the user may only read.
    pub(crate) fn in_read_only_share(self) -> Self {
        Self { in_read_only_share: true, ..self }
    }

    /// Returns the error with another operation and path.
    #[doc(hidden)]
    pub fn told_as(self, operation: &'static str, path: impl Into<String>) -> Self {
        Self { operation, path: path.into().into_boxed_str(), ..self }
    }

    /// Returns true if the user was not logged on: a wrong name or password, or an
    /// account that may not log on.
    pub fn is_logon_refused(&self) -> bool {
        match self.cause {
            Cause::Logon(_) | Cause::Kerberos(_) => true,
            Cause::Status(status) => account::sentence(status, None).is_some(),
            _ => false,
        }
    }

    /// Returns the cause, for programs that need more than [`Self::kind`].
    pub const fn cause(&self) -> &Cause {
        &self.cause
    }

    /// Returns the server's status code, if the server answered with an error.
    pub const fn status(&self) -> Option<Status> {
        match self.cause {
            Cause::Status(status) => Some(status),
            _ => None,
        }
    }

    /// Returns the operation in a few words, as in `open` or `set the times of`.
    pub const fn operation(&self) -> &'static str {
        self.operation
    }

    /// Returns the URL of the file, directory or server that the operation was about.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the error kind that the same failure has on a local file.
    pub fn kind(&self) -> io::ErrorKind {
        use io::ErrorKind as Kind;
        match &self.cause {
            Cause::Status(status) => kind_of(*status),
            Cause::Transport(error) | Cause::Local(error) => error.kind(),
            Cause::ShadowCopy(error) => error.kind(),
            Cause::Unknown => Kind::ConnectionAborted,
            Cause::HandleLost => Kind::StaleNetworkFileHandle,
            Cause::Kerberos(error) if error.is_unreachable() => Kind::HostUnreachable,
            Cause::Logon(_) | Cause::Kerberos(_) | Cause::Security(_) => Kind::PermissionDenied,
            Cause::Protocol(_) | Cause::NotSmb => Kind::InvalidData,
            Cause::TooOld(_) | Cause::ClusterDialect(_) => Kind::Unsupported,
            Cause::Limit(_) => Kind::QuotaExceeded,
            Cause::Usage(_) => Kind::InvalidInput,
        }
    }

    /// Returns true if the file, directory or share does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind() == io::ErrorKind::NotFound
    }
}

/// The error kind that programs for local files expect.
fn kind_of(status: Status) -> io::ErrorKind {
    use io::ErrorKind as Kind;
    match status {
        Status::OBJECT_NAME_NOT_FOUND
        | Status::OBJECT_PATH_NOT_FOUND
        | Status::NO_SUCH_FILE
        | Status::BAD_NETWORK_NAME
        | Status::NOT_FOUND => Kind::NotFound,
        Status::ACCESS_DENIED
        | Status::LOGON_FAILURE
        | Status::WRONG_PASSWORD
        | Status::NO_SUCH_USER
        | Status::NO_SUCH_DOMAIN
        | Status::ACCOUNT_LOCKED_OUT
        | Status::PASSWORD_EXPIRED
        | Status::PASSWORD_MUST_CHANGE
        | Status::ACCOUNT_DISABLED
        | Status::ACCOUNT_EXPIRED
        | Status::ACCOUNT_RESTRICTION
        | Status::INVALID_LOGON_HOURS
        | Status::INVALID_WORKSTATION
        | Status::LOGON_TYPE_NOT_GRANTED
        | Status::LOGON_NOT_GRANTED
        | Status::CANNOT_DELETE
        | Status::PRIVILEGE_NOT_HELD => Kind::PermissionDenied,
        Status::OBJECT_NAME_COLLISION => Kind::AlreadyExists,
        Status::DIRECTORY_NOT_EMPTY => Kind::DirectoryNotEmpty,
        Status::NOT_A_DIRECTORY => Kind::NotADirectory,
        Status::FILE_IS_A_DIRECTORY => Kind::IsADirectory,
        Status::SHARING_VIOLATION | Status::DELETE_PENDING => Kind::ResourceBusy,
        Status::FILE_LOCK_CONFLICT | Status::LOCK_NOT_GRANTED => Kind::WouldBlock,
        Status::DISK_FULL => Kind::StorageFull,
        Status::QUOTA_EXCEEDED => Kind::QuotaExceeded,
        Status::MEDIA_WRITE_PROTECTED => Kind::ReadOnlyFilesystem,
        Status::END_OF_FILE => Kind::UnexpectedEof,
        Status::NOT_SUPPORTED | Status::INVALID_DEVICE_REQUEST | Status::INVALID_INFO_CLASS => {
            Kind::Unsupported
        }
        Status::INVALID_PARAMETER | Status::OBJECT_NAME_INVALID => Kind::InvalidInput,
        Status::IO_TIMEOUT => Kind::TimedOut,
        Status::CANCELLED => Kind::Interrupted,
        Status::INSUFFICIENT_RESOURCES => Kind::OutOfMemory,
        Status::NOT_SAME_DEVICE => Kind::CrossesDevices,
        Status::FILE_CLOSED | Status::FILE_FORCED_CLOSED => Kind::StaleNetworkFileHandle,
        _ => Kind::Other,
    }
}

/// A sentence for each status that users meet often.
fn sentence(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::ACCESS_DENIED => "permission denied",
        Status::BAD_NETWORK_NAME => "the server has no share of that name, or you may not use it",
        Status::OBJECT_NAME_NOT_FOUND | Status::NO_SUCH_FILE => "no such file or directory",
        Status::OBJECT_PATH_NOT_FOUND => "a directory of the path does not exist",
        Status::OBJECT_NAME_COLLISION => "the name already exists",
        Status::OBJECT_NAME_INVALID => "the server does not accept such a name",
        Status::SHARING_VIOLATION => "another program has the file open and does not share it",
        Status::FILE_LOCK_CONFLICT | Status::LOCK_NOT_GRANTED => {
            "another program has locked the file"
        }
        Status::DIRECTORY_NOT_EMPTY => "the directory is not empty",
        Status::NOT_A_DIRECTORY => "not a directory",
        Status::FILE_IS_A_DIRECTORY => "it is a directory",
        Status::DELETE_PENDING => "the file is being deleted",
        Status::DISK_FULL => "no space left on the server, or your quota is used up",
        Status::QUOTA_EXCEEDED => "your quota on the server is used up",
        Status::MEDIA_WRITE_PROTECTED => "the share is read-only",
        Status::NOT_SUPPORTED | Status::INVALID_DEVICE_REQUEST => {
            "the server does not support this"
        }
        Status::STOPPED_ON_SYMLINK => {
            "a symbolic link in the path leads out of the share, or in a circle"
        }
        Status::PATH_NOT_COVERED => "the path lies on another server (DFS), which was not found",
        Status::NOT_SAME_DEVICE => "the two names are on different shares",
        Status::FILE_FORCED_CLOSED => "a later instance of the application has the file open",
        Status::CANNOT_DELETE => "the file cannot be deleted: it is read-only or in use",
        _ => return None,
    })
}

impl Cause {
    fn say(&self, user: Option<&str>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => match (account::sentence(*status, user), sentence(*status)) {
                (Some(text), _) => write!(f, "{text} ({status})"),
                (None, Some(text)) => write!(f, "{text} ({status})"),
                (None, None) => write!(f, "the server answered {status}"),
            },
            Self::Transport(error) | Self::Local(error) => write!(f, "{error}"),
            Self::Unknown => f.write_str(
                "the connection was lost before the server answered: it is unknown whether it was \
                 done; check",
            ),
            Self::HandleLost => f.write_str(
                "the connection was lost, and the server did not keep the file open; open it again",
            ),
            Self::Logon(refusal) => write!(f, "logon: {refusal}"),
            Self::Kerberos(error) => write!(f, "{error}"),
            Self::ShadowCopy(error) => write!(f, "{error}"),
            Self::NotSmb => f.write_str("the server does not speak SMB 2 or 3"),
            Self::TooOld(Some(dialect)) => {
                write!(
                    f,
                    "the server speaks no newer dialect than {dialect}, which is not accepted"
                )
            }
            Self::TooOld(None) => f.write_str(
                "the server speaks only SMB 1, which protects nothing and is not supported; update \
                 the server, or switch on SMB 2 or 3 there",
            ),
            Self::ClusterDialect(dialect) => write!(
                f,
                "the cluster lets the share be used by no newer dialect than {dialect}, which is not \
                 accepted; raise the cluster's dialect (frevo cluster raise), or accept this one"
            ),
            Self::Protocol(what) => write!(f, "the server broke the protocol: {what}"),
            Self::Security(what) | Self::Limit(what) | Self::Usage(what) => f.write_str(what),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.say(None, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation)?;
        if !self.path.is_empty() {
            write!(f, " {}", self.path)?;
        }
        f.write_str(": ")?;
        if let Cause::Status(status @ Status::ACCESS_DENIED) = self.cause
            && self.in_read_only_share
        {
            return write!(f, "the share is read-only for this user ({status})");
        }
        self.cause.say(self.user.as_deref(), f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            Cause::Transport(error) | Cause::Local(error) => Some(&**error),
            _ => None,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

impl From<Status> for Cause {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

#[doc(hidden)]
impl From<frevo_wire::Status> for Cause {
    fn from(status: frevo_wire::Status) -> Self {
        Self::Status(status.into())
    }
}

#[doc(hidden)]
impl From<Malformed> for Cause {
    fn from(malformed: Malformed) -> Self {
        Self::Protocol(malformed.what)
    }
}

#[doc(hidden)]
impl From<frevo_auth::Refusal> for Cause {
    fn from(refusal: frevo_auth::Refusal) -> Self {
        Self::Logon(LogonError(Arc::new(refusal)))
    }
}

impl From<KerberosError> for Cause {
    fn from(error: KerberosError) -> Self {
        Self::Kerberos(error)
    }
}

impl From<ShadowCopyError> for Cause {
    fn from(error: ShadowCopyError) -> Self {
        Self::ShadowCopy(error)
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        Self::Transport(Arc::new(error))
    }
}

/// Adds the operation and the path to a cause.
pub(crate) trait During<T> {
    /// Turns the cause into an error of `operation` on `path`.
    fn during(self, operation: &'static str, path: &str) -> Result<T>;
}

impl<T, E: Into<Cause>> During<T> for std::result::Result<T, E> {
    fn during(self, operation: &'static str, path: &str) -> Result<T> {
        self.map_err(|cause| Error::new(cause, operation, path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each text names the user and what helps, in words of its own.
    #[test]
    fn a_refused_logon_names_the_user_and_what_helps() {
        let all = [
            (Status::LOGON_FAILURE, "user name or password of ana"),
            (Status::NO_SUCH_USER, "no user ana"),
            (Status::ACCOUNT_LOCKED_OUT, "locked"),
            (Status::PASSWORD_EXPIRED, "expired"),
            (Status::PASSWORD_MUST_CHANGE, "before the first logon"),
            (Status::ACCOUNT_DISABLED, "disabled"),
            (Status::ACCOUNT_EXPIRED, "extend"),
            (Status::ACCOUNT_RESTRICTION, "a rule for"),
            (Status::INVALID_LOGON_HOURS, "time of day"),
            (Status::INVALID_WORKSTATION, "this machine"),
            (Status::LOGON_TYPE_NOT_GRANTED, "over the network"),
            (Status::NO_LOGON_SERVERS, "domain controller"),
            (Status::NO_SUCH_DOMAIN, "domain of ana"),
        ];
        let mut said = std::collections::BTreeSet::new();
        for (status, words) in all {
            let error = Error::new(status, "connect to", "smb://files").of_user("ana");
            assert!(error.is_logon_refused(), "{status}");
            let text = error.to_string();
            assert!(text.starts_with("connect to smb://files: "), "{text}");
            assert!(text.contains("ana") && text.contains(words), "{text}");
            assert!(text.contains(&status.to_string()), "{text}");
            assert!(said.insert(text));
        }
        let other = Error::new(Status::ACCESS_DENIED, "open", "x").of_user("ana");
        assert!(!other.is_logon_refused());
        assert!(!other.to_string().contains("ana"));
    }
}
