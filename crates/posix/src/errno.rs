//! Conversion of the host's error numbers to faults of the store.

use frevo_store::Fault;
use rustix::io::Errno;

use crate::denials;

/// Returns the fault of an error number. An unknown one becomes `Io` with the number, for logs.
pub fn fault_of(errno: Errno) -> Fault {
    match errno {
        Errno::NOENT => Fault::NotFound,
        Errno::NOTDIR => Fault::PathNotDirectory,
        Errno::ISDIR => Fault::IsADirectory,
        Errno::EXIST => Fault::Exists,
        Errno::NOTEMPTY => Fault::NotEmpty,
        Errno::ACCESS | Errno::PERM => {
            denials::note();
            Fault::AccessDenied
        }
        Errno::ROFS => Fault::ReadOnly,
        Errno::NOSPC => Fault::DiskFull,
        Errno::DQUOT => Fault::QuotaExceeded,
        Errno::FBIG => Fault::FileTooLarge,
        Errno::NAMETOOLONG => Fault::NameTooLong,
        Errno::ILSEQ => Fault::NameInvalid,
        Errno::LOOP => Fault::Symlink,
        Errno::MFILE | Errno::NFILE => Fault::TooManyOpen,
        Errno::XDEV => Fault::CrossDevice,
        Errno::MLINK => Fault::TooManyLinks,
        Errno::BUSY | Errno::TXTBSY => Fault::Busy,
        // The kernel is just breaking the lease of a local process, so the same open can succeed
        // later.
        Errno::AGAIN => Fault::Leased,
        Errno::STALE => Fault::Stale,
        // NXIO and NODEV come from special files without a device. NODATA is missing here, because
        // callers handle it where an attribute may be absent.
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY | Errno::NXIO | Errno::NODEV => {
            Fault::NotSupported
        }
        Errno::INVAL | Errno::OVERFLOW | Errno::RANGE | Errno::TOOBIG => Fault::Invalid,
        Errno::NOMEM | Errno::NOBUFS => Fault::NoMemory,
        other => Fault::Io(other.raw_os_error()),
    }
}

/// Returns the fault of a walk under `RESOLVE_BENEATH`, where EXDEV means that a link leads out of
/// the share.
pub(crate) fn walk_fault(errno: Errno) -> Fault {
    match errno {
        Errno::XDEV => Fault::Symlink,
        other => fault_of(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_fault() {
        let table = [
            (libc::ENOENT, Fault::NotFound),
            (libc::ENOTDIR, Fault::PathNotDirectory),
            (libc::EISDIR, Fault::IsADirectory),
            (libc::EEXIST, Fault::Exists),
            (libc::ENOTEMPTY, Fault::NotEmpty),
            (libc::EACCES, Fault::AccessDenied),
            (libc::EPERM, Fault::AccessDenied),
            (libc::EROFS, Fault::ReadOnly),
            (libc::ENOSPC, Fault::DiskFull),
            (libc::EDQUOT, Fault::QuotaExceeded),
            (libc::EFBIG, Fault::FileTooLarge),
            (libc::ENAMETOOLONG, Fault::NameTooLong),
            (libc::EILSEQ, Fault::NameInvalid),
            (libc::ELOOP, Fault::Symlink),
            (libc::EMFILE, Fault::TooManyOpen),
            (libc::ENFILE, Fault::TooManyOpen),
            (libc::EXDEV, Fault::CrossDevice),
            (libc::EMLINK, Fault::TooManyLinks),
            (libc::EBUSY, Fault::Busy),
            (libc::ETXTBSY, Fault::Busy),
            (libc::EWOULDBLOCK, Fault::Leased),
            (libc::ESTALE, Fault::Stale),
            (libc::EOPNOTSUPP, Fault::NotSupported),
            (libc::ENOSYS, Fault::NotSupported),
            (libc::ENOTTY, Fault::NotSupported),
            (libc::ENXIO, Fault::NotSupported),
            (libc::ENODEV, Fault::NotSupported),
            (libc::EINVAL, Fault::Invalid),
            (libc::EOVERFLOW, Fault::Invalid),
            (libc::ERANGE, Fault::Invalid),
            (libc::E2BIG, Fault::Invalid),
            (libc::ENOMEM, Fault::NoMemory),
            (libc::ENOBUFS, Fault::NoMemory),
            (libc::EIO, Fault::Io(libc::EIO)),
            (libc::EUCLEAN, Fault::Io(libc::EUCLEAN)),
        ];
        for (number, fault) in table {
            assert_eq!(fault_of(Errno::from_raw_os_error(number)), fault, "errno {number}");
        }
        let mapped = |n| table.iter().any(|(m, f)| *m == n && !matches!(f, Fault::Io(_)));
        for number in 1..=133 {
            let fault = fault_of(Errno::from_raw_os_error(number));
            assert_eq!(matches!(fault, Fault::Io(_)), !mapped(number), "errno {number}");
        }
        assert_eq!(walk_fault(Errno::XDEV), Fault::Symlink);
        assert_eq!(walk_fault(Errno::NOENT), Fault::NotFound);
    }
}
