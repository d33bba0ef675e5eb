//! Why a file system did not do what it was asked for.

use core::fmt;

use frevo_wire::Status;

/// Why the file system did not do it. [`Fault::status`] is what a peer is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The last component does not exist.
    NotFound,
    /// A component before the last does not exist.
    PathNotFound,
    /// A component before the last is not a directory.
    PathNotDirectory,
    /// A directory was asked for and this is none.
    NotADirectory,
    /// Something else than a directory was asked for and this is one.
    IsADirectory,
    /// It exists already.
    Exists,
    /// A directory that is not empty.
    NotEmpty,
    /// The system's permissions say no.
    AccessDenied,
    /// The file system is mounted read-only.
    ReadOnly,
    /// No space left.
    DiskFull,
    /// The owner's quota is used up.
    QuotaExceeded,
    /// The file would be larger than the file system allows.
    FileTooLarge,
    /// The name is longer than the file system allows.
    NameTooLong,
    /// The name cannot be stored.
    NameInvalid,
    /// A symbolic link that is not followed, or that leaves the share.
    Symlink,
    /// No more open files can be had.
    TooManyOpen,
    /// Source and target are on different file systems.
    CrossDevice,
    /// Too many hard links.
    TooManyLinks,
    /// In use by the host (a running program, a mount point).
    Busy,
    /// A program of the host has a lease on it (`F_SETLEASE`) and has been told to
    /// give it up; it can be had when that has happened.
    Leased,
    /// What the name meant changed under the operation; look it up again.
    Stale,
    /// The file system cannot do that.
    NotSupported,
    /// A number or range makes no sense.
    Invalid,
    /// Out of memory.
    NoMemory,
    /// The medium failed; the host's error number, for people.
    Io(i32),
}

/// What file-system calls return.
pub type VfsResult<T> = Result<T, Fault>;

impl Fault {
    /// The NTSTATUS that a peer is told.
    pub const fn status(self) -> Status {
        match self {
            Self::NotFound => Status::OBJECT_NAME_NOT_FOUND,
            Self::PathNotFound | Self::PathNotDirectory => Status::OBJECT_PATH_NOT_FOUND,
            Self::NotADirectory => Status::NOT_A_DIRECTORY,
            Self::IsADirectory => Status::FILE_IS_A_DIRECTORY,
            Self::Exists => Status::OBJECT_NAME_COLLISION,
            Self::NotEmpty => Status::DIRECTORY_NOT_EMPTY,
            Self::AccessDenied | Self::Symlink => Status::ACCESS_DENIED,
            Self::ReadOnly => Status::MEDIA_WRITE_PROTECTED,
            // Windows: whose quota is used up has no room. QUOTA_EXCEEDED is about
            // memory, and programs do not know what to do with it.
            Self::DiskFull | Self::QuotaExceeded => Status::DISK_FULL,
            Self::FileTooLarge | Self::Invalid => Status::INVALID_PARAMETER,
            Self::NameTooLong | Self::NameInvalid => Status::OBJECT_NAME_INVALID,
            Self::TooManyOpen => Status::TOO_MANY_OPENED_FILES,
            Self::CrossDevice => Status::NOT_SAME_DEVICE,
            Self::TooManyLinks => Status::TOO_MANY_LINKS,
            Self::Busy | Self::Leased => Status::SHARING_VIOLATION,
            Self::Stale => Status::FILE_DELETED,
            Self::NotSupported => Status::NOT_SUPPORTED,
            Self::NoMemory => Status::INSUFFICIENT_RESOURCES,
            Self::Io(_) => Status::UNEXPECTED_IO_ERROR,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(errno) => write!(f, "input/output error (errno {errno})"),
            other => fmt::Debug::fmt(other, f),
        }
    }
}

impl core::error::Error for Fault {}
