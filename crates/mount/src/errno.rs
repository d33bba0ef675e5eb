//! Maps errors of the client library to errno values.

mod statuses;

use frevo_client::{Cause, Error};
use fuser::Errno;

use crate::limits::HOST_PATH_BYTES;

/// The result of an operation of the mount.
pub(crate) type Outcome<T> = Result<T, Errno>;

/// Returns the errno for an error of the client library. An error without an errno of its own is
/// logged and becomes EIO.
pub(crate) fn errno(error: &Error) -> Errno {
    let found = match error.cause() {
        Cause::Status(status) => {
            statuses::of(frevo_wire::Status(status.code())).map(Errno::from_i32)
        }
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

/// Returns the errno for a name at `path` that was not made. smbd does not find a directory whose path
/// on its disk is longer than PATH_MAX, although the kernel has it open.
pub(crate) fn errno_of_new(error: &Error, path: &str) -> Errno {
    let found = errno(error);
    let is_deep = path.len() >= HOST_PATH_BYTES;
    if found == Errno::ENOENT && is_deep { Errno::ENAMETOOLONG } else { found }
}

#[cfg(test)]
mod tests {
    use frevo_client::Status;

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
        assert_eq!(number(Status::from_code(0xC000_0106)), libc::ENAMETOOLONG);
        let lost = Error::new(Cause::HandleLost, "read", "x");
        assert_eq!(i32::from(errno(&lost)), libc::ESTALE);
    }

    #[test]
    fn a_directory_that_a_server_cannot_reach_is_too_deep() {
        let of = |status, len| {
            let error = Error::new(Cause::Status(status), "make directory", "x");
            i32::from(errno_of_new(&error, &"d".repeat(len)))
        };
        let gone = Status::OBJECT_PATH_NOT_FOUND;
        assert_eq!(of(gone, HOST_PATH_BYTES - 1), libc::ENOENT);
        assert_eq!(of(gone, HOST_PATH_BYTES), libc::ENAMETOOLONG);
        assert_eq!(of(Status::ACCESS_DENIED, HOST_PATH_BYTES), libc::EACCES);
    }
}
