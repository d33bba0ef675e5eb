//! Errors of a file system.

use core::fmt;

use frevo_wire::Status;

/// An error of a file system. [`Fault::status`] is the status for the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The last component does not exist.
    NotFound,
    /// A component before the last does not exist.
    PathNotFound,
    /// A component before the last is not a directory.
    PathNotDirectory,
    /// A directory was asked for, and the object is none.
    NotADirectory,
    /// The object is a directory, and something else was asked for.
    IsADirectory,
    /// The name exists already.
    Exists,
    /// The directory is not empty.
    NotEmpty,
    /// The host's permissions refuse it.
    AccessDenied,
    /// The file system is mounted read-only.
    ReadOnly,
    /// The medium has no space left.
    DiskFull,
    /// The owner's quota is used up.
    QuotaExceeded,
    /// The file would be larger than the file system allows.
    FileTooLarge,
    /// The name is longer than the file system allows.
    NameTooLong,
    /// The name cannot be stored.
    NameInvalid,
    /// The name leads through a symbolic link that is not followed, or that leaves the share.
    Symlink,
    /// The limit of open files is reached.
    TooManyOpen,
    /// Source and target are on different file systems.
    CrossDevice,
    /// The file has too many hard links.
    TooManyLinks,
    /// The host uses the object (a running program, a mount point).
    Busy,
    /// A program of the host has a lease on the file (`F_SETLEASE`) and was told to give it up; the
    /// call succeeds after that.
    Leased,
    /// The name or file changed during the operation; it must be looked up again.
    Stale,
    /// The disk of the folder was unmounted, or another one was mounted for it.
    Dismounted,
    /// Another server may have the share by now, so that nothing was changed. No client is told.
    NotServed,
    /// The name is a link of a DFS namespace, or leads through one: other servers have the files.
    NotCovered,
    /// The name is a link of a DFS namespace that leads nowhere now, or leads through one.
    DfsUnavailable,
    /// The file system does not support it.
    NotSupported,
    /// A number or range is invalid.
    Invalid,
    /// The process has no memory left.
    NoMemory,
    /// The medium failed, with the host's error number for logs.
    Io(i32),
}

/// The result of file-system calls.
pub type VfsResult<T> = Result<T, Fault>;

impl Fault {
    /// Returns the NTSTATUS for the peer.
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
            // As on Windows, an exceeded quota is reported as a full disk, because programs do not
            // know QUOTA_EXCEEDED.
            Self::DiskFull | Self::QuotaExceeded => Status::DISK_FULL,
            Self::FileTooLarge | Self::Invalid => Status::INVALID_PARAMETER,
            Self::NameTooLong | Self::NameInvalid => Status::OBJECT_NAME_INVALID,
            Self::TooManyOpen => Status::TOO_MANY_OPENED_FILES,
            Self::CrossDevice => Status::NOT_SAME_DEVICE,
            Self::TooManyLinks => Status::TOO_MANY_LINKS,
            Self::Busy | Self::Leased => Status::SHARING_VIOLATION,
            Self::Stale => Status::FILE_DELETED,
            Self::Dismounted => Status::VOLUME_DISMOUNTED,
            Self::NotServed => Status::SERVER_UNAVAILABLE,
            Self::NotCovered => Status::PATH_NOT_COVERED,
            Self::DfsUnavailable => Status::DFS_UNAVAILABLE,
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
