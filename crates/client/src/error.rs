//! What goes wrong, said so that a person knows what to do and a program knows
//! what it was.

use std::fmt;
use std::io;
use std::sync::Arc;

use frevo_wire::{Malformed, Status};

use crate::account;

/// What the library's calls return.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed operation: what was done, to what, and why it failed.
#[derive(Debug, Clone)]
pub struct Error {
    cause: Cause,
    operation: &'static str,
    path: Box<str>,
    /// Who was to be logged on.
    user: Option<Box<str>>,
}

/// Why an operation failed.
#[derive(Debug, Clone)]
pub enum Cause {
    /// The server said no.
    Status(Status),
    /// The server cannot be reached, or not any more.
    Transport(Arc<io::Error>),
    /// The connection ended before the answer, and what became of the request
    /// is not known: it could not be sent again without the risk of it
    /// happening twice.
    Unknown,
    /// The Open did not survive the loss of the connection: somebody else may
    /// have changed the file or holds it now.
    HandleLost,
    /// Name and password (or what else was given) do not suffice, or the
    /// server did not prove that it knows them.
    Logon(Box<frevo_auth::Refusal>),
    /// The server offers less protection than is asked for, or tried to lower
    /// it.
    Security(&'static str),
    /// What answers there is no SMB server, or one of SMB 1 only.
    NotSmb,
    /// What the server sent breaks the protocol.
    Protocol(&'static str),
    /// The call makes no sense: a name that cannot be, a number out of range.
    Usage(&'static str),
    /// Something on this machine: a local file, memory.
    Local(Arc<io::Error>),
}

impl Error {
    /// An error of `operation` on `path`.
    pub fn new(cause: impl Into<Cause>, operation: &'static str, path: impl Into<String>) -> Self {
        let path = path.into().into_boxed_str();
        Self { cause: cause.into(), operation, path, user: None }
    }

    /// The same, of something for which `user` had to be logged on.
    pub(crate) fn of_user(self, user: &str) -> Self {
        Self { user: Some(user.into()), ..self }
    }

    /// Whether the server does not let the user in: the name, the password, or what it says
    /// of the account.
    pub fn is_logon_refused(&self) -> bool {
        match self.cause {
            Cause::Logon(_) => true,
            Cause::Status(status) => account::sentence(status, None).is_some(),
            _ => false,
        }
    }

    /// Why.
    pub const fn cause(&self) -> &Cause {
        &self.cause
    }

    /// The server's status, if it was the server that refused.
    pub const fn status(&self) -> Option<Status> {
        match self.cause {
            Cause::Status(status) => Some(status),
            _ => None,
        }
    }

    /// What was being done.
    pub const fn operation(&self) -> &'static str {
        self.operation
    }

    /// To what, as the caller called it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The nearest kind of the standard library.
    pub fn kind(&self) -> io::ErrorKind {
        use io::ErrorKind as Kind;
        match &self.cause {
            Cause::Status(status) => kind_of(*status),
            Cause::Transport(error) | Cause::Local(error) => error.kind(),
            Cause::Unknown => Kind::ConnectionAborted,
            Cause::HandleLost => Kind::StaleNetworkFileHandle,
            Cause::Logon(_) | Cause::Security(_) => Kind::PermissionDenied,
            Cause::Protocol(_) | Cause::NotSmb => Kind::InvalidData,
            Cause::Usage(_) => Kind::InvalidInput,
        }
    }

    /// Whether the object is not there.
    pub fn is_not_found(&self) -> bool {
        self.kind() == io::ErrorKind::NotFound
    }
}

/// The kind that a program written for local files expects.
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
        Status::FILE_CLOSED => Kind::StaleNetworkFileHandle,
        _ => Kind::Other,
    }
}

/// A sentence for the statuses that people meet.
fn sentence(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::ACCESS_DENIED => "permission denied",
        Status::BAD_NETWORK_NAME => "the server has no share of that name, or you may not use it",
        Status::OBJECT_NAME_NOT_FOUND | Status::NO_SUCH_FILE => "no such file or directory",
        Status::OBJECT_PATH_NOT_FOUND => "a directory on the way does not exist",
        Status::OBJECT_NAME_COLLISION => "it exists already",
        Status::OBJECT_NAME_INVALID => "the server does not accept such a name",
        Status::SHARING_VIOLATION => "another program has it open and does not share it",
        Status::FILE_LOCK_CONFLICT | Status::LOCK_NOT_GRANTED => "another program has locked it",
        Status::DIRECTORY_NOT_EMPTY => "the directory is not empty",
        Status::NOT_A_DIRECTORY => "not a directory",
        Status::FILE_IS_A_DIRECTORY => "it is a directory",
        Status::DELETE_PENDING => "it is being deleted",
        Status::DISK_FULL => "no space left on the server, or in the quota there",
        Status::QUOTA_EXCEEDED => "the quota on the server is used up",
        Status::MEDIA_WRITE_PROTECTED => "the share is read-only",
        Status::NOT_SUPPORTED | Status::INVALID_DEVICE_REQUEST => "the server cannot do that",
        Status::STOPPED_ON_SYMLINK => "a symbolic link on the way leads out of the share",
        Status::PATH_NOT_COVERED => "it lies on another server (DFS)",
        Status::NOT_SAME_DEVICE => "the two names are on different shares",
        Status::CANNOT_DELETE => "it cannot be deleted: it is read-only or in use",
        _ => return None,
    })
}

impl Cause {
    fn say(&self, user: Option<&str>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => match (account::sentence(*status, user), sentence(*status)) {
                (Some(text), _) => write!(f, "{text} ({status})"),
                (None, Some(text)) => write!(f, "{text} ({status})"),
                (None, None) => write!(f, "the server answers {status}"),
            },
            Self::Transport(error) | Self::Local(error) => write!(f, "{error}"),
            Self::Unknown => f.write_str(
                "the connection was lost before the answer came; whether it was done is not known",
            ),
            Self::HandleLost => {
                f.write_str("the file was taken by somebody else while the connection was lost")
            }
            Self::Logon(refusal) => write!(f, "logon: {refusal}"),
            Self::Security(what) => f.write_str(what),
            Self::NotSmb => f.write_str("what answers there is not SMB 2 or 3"),
            Self::Protocol(what) => write!(f, "the server breaks the protocol: {what}"),
            Self::Usage(what) => f.write_str(what),
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

impl From<Malformed> for Cause {
    fn from(malformed: Malformed) -> Self {
        Self::Protocol(malformed.what)
    }
}

impl From<frevo_auth::Refusal> for Cause {
    fn from(refusal: frevo_auth::Refusal) -> Self {
        Self::Logon(Box::new(refusal))
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        Self::Transport(Arc::new(error))
    }
}

/// Puts operation and path to a cause.
pub(crate) trait During<T> {
    /// The error of `operation` on `path`.
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

    /// Each says who and what to do, by its own words.
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
            (Status::ACCOUNT_RESTRICTION, "rules"),
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
