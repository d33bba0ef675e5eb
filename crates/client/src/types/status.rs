//! Status codes of the protocol: MS-ERREF 2.3.

use std::fmt;

/// A status code (NTSTATUS) with which a server answers a request, MS-ERREF 2.3.
///
/// Its text is the specification's name without `STATUS_`. The constants are the codes
/// that programs act on; others keep their number, and most of them their name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Status(u32);

macro_rules! named {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        impl Status {
            $($(#[$meta])* pub const $name: Self = Self(frevo_wire::Status::$name.0);)*
        }
    };
}

impl Status {
    /// Returns the status with this number.
    pub const fn from_code(code: u32) -> Self {
        Self(code)
    }

    /// Returns the number of the status, as MS-ERREF 2.3.1 lists it.
    pub const fn code(self) -> u32 {
        self.0
    }

    /// Returns the specification's name without `STATUS_`, if the code has one.
    pub const fn name(self) -> Option<&'static str> {
        frevo_wire::Status(self.0).name()
    }

    /// Returns true if the request failed: the severity is STATUS_SEVERITY_ERROR.
    pub const fn is_error(self) -> bool {
        frevo_wire::Status(self.0).is_error()
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&frevo_wire::Status(self.0), f)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[doc(hidden)]
impl From<frevo_wire::Status> for Status {
    fn from(status: frevo_wire::Status) -> Self {
        Self(status.0)
    }
}

#[doc(hidden)]
impl PartialEq<frevo_wire::Status> for Status {
    fn eq(&self, other: &frevo_wire::Status) -> bool {
        self.0 == other.0
    }
}

named! {
    /// The request was carried out.
    SUCCESS,
    /// The answer comes later.
    PENDING,
    /// The watched directory was removed or its watch closed.
    NOTIFY_CLEANUP,
    /// More changes happened than the server kept.
    NOTIFY_ENUM_DIR,
    /// The answer was cut to the size that was asked for.
    BUFFER_OVERFLOW,
    /// The listing is complete.
    NO_MORE_FILES,
    /// There are no further extended attributes.
    NO_MORE_EAS,
    /// A symbolic link in the path has to be followed by the client.
    STOPPED_ON_SYMLINK,
    /// The request failed for a reason that has no code.
    UNSUCCESSFUL,
    /// The server does not implement the request.
    NOT_IMPLEMENTED,
    /// The server does not know this class of information.
    INVALID_INFO_CLASS,
    /// A parameter is not valid.
    INVALID_PARAMETER,
    /// No file matches the name.
    NO_SUCH_FILE,
    /// The file system cannot carry out the request.
    INVALID_DEVICE_REQUEST,
    /// The offset lies behind the end of the file.
    END_OF_FILE,
    /// The logon needs another round.
    MORE_PROCESSING_REQUIRED,
    /// The user has no right to do this.
    ACCESS_DENIED,
    /// The answer does not fit into the space that was asked for.
    BUFFER_TOO_SMALL,
    /// The name contains characters that the server does not accept.
    OBJECT_NAME_INVALID,
    /// The name does not exist.
    OBJECT_NAME_NOT_FOUND,
    /// The name exists already.
    OBJECT_NAME_COLLISION,
    /// A directory of the path does not exist.
    OBJECT_PATH_NOT_FOUND,
    /// The path is not well-formed.
    OBJECT_PATH_SYNTAX_BAD,
    /// Another open of the file does not allow this use.
    SHARING_VIOLATION,
    /// The file system has no extended attributes.
    EAS_NOT_SUPPORTED,
    /// The file has no extended attributes.
    NO_EAS_ON_FILE,
    /// Another open holds a lock on these bytes.
    FILE_LOCK_CONFLICT,
    /// The lock is held by another open.
    LOCK_NOT_GRANTED,
    /// The file is being deleted.
    DELETE_PENDING,
    /// The privilege for this is missing.
    PRIVILEGE_NOT_HELD,
    /// The server does not know the user.
    NO_SUCH_USER,
    /// The server does not know the domain.
    NO_SUCH_DOMAIN,
    /// The password is wrong.
    WRONG_PASSWORD,
    /// The user name or the password is wrong.
    LOGON_FAILURE,
    /// A rule for the account forbids this logon.
    ACCOUNT_RESTRICTION,
    /// The account may not log on at this time.
    INVALID_LOGON_HOURS,
    /// The account may not log on from this machine.
    INVALID_WORKSTATION,
    /// The password has expired.
    PASSWORD_EXPIRED,
    /// The account is disabled.
    ACCOUNT_DISABLED,
    /// None of the names or SIDs is known.
    NONE_MAPPED,
    /// The range is not locked.
    RANGE_NOT_LOCKED,
    /// There is no space left.
    DISK_FULL,
    /// The server is out of resources.
    INSUFFICIENT_RESOURCES,
    /// The medium is read-only.
    MEDIA_WRITE_PROTECTED,
    /// The owner of a security descriptor is not valid.
    INVALID_OWNER,
    /// The group of a security descriptor is not valid.
    INVALID_PRIMARY_GROUP,
    /// No domain controller can be reached.
    NO_LOGON_SERVERS,
    /// The server did not finish in time.
    IO_TIMEOUT,
    /// The object is a directory.
    FILE_IS_A_DIRECTORY,
    /// The server does not support the request.
    NOT_SUPPORTED,
    /// The share was removed, or the connection to it ended.
    NETWORK_NAME_DELETED,
    /// The network refuses access.
    NETWORK_ACCESS_DENIED,
    /// The server has no share of that name.
    BAD_NETWORK_NAME,
    /// The server accepts no further sessions for now.
    REQUEST_NOT_ACCEPTED,
    /// Sharing is paused on the server.
    SHARING_PAUSED,
    /// The two names are on different volumes.
    NOT_SAME_DEVICE,
    /// The server had an unexpected input or output error.
    UNEXPECTED_IO_ERROR,
    /// The directory is not empty.
    DIRECTORY_NOT_EMPTY,
    /// The object is not a directory.
    NOT_A_DIRECTORY,
    /// The request was cancelled.
    CANCELLED,
    /// The file cannot be deleted: it is read-only or in use.
    CANNOT_DELETE,
    /// The file was deleted.
    FILE_DELETED,
    /// The handle is closed.
    FILE_CLOSED,
    /// The server supports no such level of information.
    INVALID_LEVEL,
    /// The account may not log on over the network.
    LOGON_NOT_GRANTED,
    /// The account may not log on in this way.
    LOGON_TYPE_NOT_GRANTED,
    /// The device had an input or output error.
    IO_DEVICE_ERROR,
    /// The server has ended the session.
    USER_SESSION_DELETED,
    /// The session has expired.
    NETWORK_SESSION_EXPIRED,
    /// The domain's logon service is not running.
    NETLOGON_NOT_STARTED,
    /// The object was not found.
    NOT_FOUND,
    /// The account has expired.
    ACCOUNT_EXPIRED,
    /// The account is locked after too many wrong passwords.
    ACCOUNT_LOCKED_OUT,
    /// The password has to be changed before the first logon.
    PASSWORD_MUST_CHANGE,
    /// The object is not a symbolic link or another reparse point.
    NOT_A_REPARSE_POINT,
    /// The path lies on another server (DFS).
    PATH_NOT_COVERED,
    /// The server is shutting down.
    SHUTDOWN_IN_PROGRESS,
    /// The server is shutting down.
    SERVER_SHUTDOWN_IN_PROGRESS,
    /// The system is shutting down.
    SYSTEM_SHUTDOWN,
    /// The identifier is in use.
    DUPLICATE_OBJECTID,
    /// The quota is used up.
    QUOTA_EXCEEDED,
    /// The server is not available.
    SERVER_UNAVAILABLE,
    /// The file is not available for now.
    FILE_NOT_AVAILABLE,
    /// Another instance of the application has the file open, which is later than this one.
    FILE_FORCED_CLOSED,
    /// The cluster does not let its share be used with this dialect.
    SMB_BAD_CLUSTER_DIALECT,
}
