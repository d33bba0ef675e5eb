//! Maps errors of the client library to errno values.

use std::io::ErrorKind;

use frevo_client::{Cause, Error, Status};
use fuser::Errno;

/// The result of an operation of the mount.
pub(crate) type Outcome<T> = Result<T, Errno>;

/// Returns the errno for an error of the client library. An error without an errno of its own is
/// logged and becomes EIO.
pub(crate) fn errno(error: &Error) -> Errno {
    let found = match error.cause() {
        Cause::Status(status) => of_status(*status),
        Cause::Transport(_) | Cause::Unknown => None,
        Cause::HandleLost => Some(Errno::from_i32(libc::ESTALE)),
        Cause::Kerberos(why) if why.is_expired() => Some(Errno::from_i32(libc::EKEYEXPIRED)),
        Cause::Kerberos(why) if why.is_unreachable() => None,
        Cause::Logon(_) | Cause::Kerberos(_) | Cause::Security(_) => Some(Errno::EACCES),
        Cause::Usage(_) => Some(Errno::EINVAL),
        Cause::Local(error) => error.raw_os_error().map(Errno::from_i32),
        Cause::Protocol(_) | Cause::NotSmb | Cause::Limit(_) => None,
        _ => None,
    };
    found.unwrap_or_else(|| {
        tracing::warn!(%error, "input/output error");
        Errno::EIO
    })
}

fn of_status(status: Status) -> Option<Errno> {
    Some(match status {
        Status::OBJECT_NAME_NOT_FOUND
        | Status::OBJECT_PATH_NOT_FOUND
        | Status::NO_SUCH_FILE
        | Status::NOT_FOUND
        | Status::DELETE_PENDING
        // Another client removed the file during the open.
        | Status::FILE_DELETED => Errno::ENOENT,
        Status::OBJECT_PATH_SYNTAX_BAD | Status::OBJECT_NAME_INVALID => Errno::EINVAL,
        Status::ACCESS_DENIED
        | Status::NETWORK_ACCESS_DENIED
        | Status::LOGON_FAILURE
        | Status::ACCOUNT_DISABLED => Errno::EACCES,
        Status::CANNOT_DELETE
        | Status::PRIVILEGE_NOT_HELD
        | Status::INVALID_OWNER
        | Status::INVALID_PRIMARY_GROUP => Errno::EPERM,
        Status::OBJECT_NAME_COLLISION => Errno::EEXIST,
        Status::DIRECTORY_NOT_EMPTY => Errno::ENOTEMPTY,
        Status::NOT_A_DIRECTORY => Errno::ENOTDIR,
        Status::FILE_IS_A_DIRECTORY => Errno::EISDIR,
        Status::SHARING_VIOLATION => Errno::EBUSY,
        Status::FILE_LOCK_CONFLICT | Status::LOCK_NOT_GRANTED => Errno::EAGAIN,
        Status::DISK_FULL => Errno::ENOSPC,
        Status::QUOTA_EXCEEDED => Errno::from_i32(libc::EDQUOT),
        Status::MEDIA_WRITE_PROTECTED => Errno::EROFS,
        Status::NOT_SAME_DEVICE => Errno::EXDEV,
        Status::NOT_SUPPORTED
        | Status::NOT_IMPLEMENTED
        | Status::INVALID_DEVICE_REQUEST
        | Status::INVALID_INFO_CLASS => Errno::EOPNOTSUPP,
        Status::INVALID_PARAMETER => Errno::EINVAL,
        Status::FILE_CLOSED => Errno::EBADF,
        Status::INSUFFICIENT_RESOURCES => Errno::ENOMEM,
        Status::IO_TIMEOUT => Errno::from_i32(libc::ETIMEDOUT),
        Status::STOPPED_ON_SYMLINK => Errno::ELOOP,
        Status::PATH_NOT_COVERED => Errno::from_i32(libc::EREMOTE),
        _ => return kind(status),
    })
}

/// Returns the errno for a status that is not named above, by the library's error kind.
fn kind(status: Status) -> Option<Errno> {
    let kind = Error::new(Cause::Status(status), "", "").kind();
    Some(match kind {
        ErrorKind::NotFound => Errno::ENOENT,
        ErrorKind::PermissionDenied => Errno::EACCES,
        ErrorKind::Interrupted => Errno::EINTR,
        ErrorKind::Unsupported => Errno::EOPNOTSUPP,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_numbers_that_programs_know() {
        let number = |status| i32::from(errno(&Error::new(Cause::Status(status), "open", "x")));
        assert_eq!(number(Status::OBJECT_NAME_NOT_FOUND), libc::ENOENT);
        assert_eq!(number(Status::FILE_DELETED), libc::ENOENT);
        assert_eq!(number(Status::OBJECT_NAME_COLLISION), libc::EEXIST);
        assert_eq!(number(Status::DIRECTORY_NOT_EMPTY), libc::ENOTEMPTY);
        assert_eq!(number(Status::DISK_FULL), libc::ENOSPC);
        assert_eq!(number(Status::LOCK_NOT_GRANTED), libc::EAGAIN);
        assert_eq!(number(Status::UNSUCCESSFUL), libc::EIO);
        let lost = Error::new(Cause::HandleLost, "read", "x");
        assert_eq!(i32::from(errno(&lost)), libc::ESTALE);
    }
}
