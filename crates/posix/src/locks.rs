//! Byte-range locks that other programs on the host see: locks of open file descriptions, fcntl(2)
//! F_OFD_SETLK. Like a client's locks they belong to one opening of a file, and they conflict with
//! locks of processes.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use frevo_store::Fault;
use frevo_store::byte_range::Mode;
use frevo_store::vfs::{HostLock, VfsResult};
use rustix::io::Errno;

use crate::errno::fault_of;

/// Shows a lock, replacing the lock shown for its range before; false if another program holds a
/// conflicting one.
pub(crate) fn show(fd: BorrowedFd<'_>, lock: HostLock) -> VfsResult<bool> {
    // No file has bytes beyond i64::MAX, so no local program can lock them. So the lock counts as
    // granted.
    let Ok(start) = i64::try_from(lock.first) else { return Ok(true) };
    // In fcntl(2) the length zero means "to the end of the file", also after it has grown.
    let len = i64::try_from(lock.last - lock.first).ok().and_then(|len| len.checked_add(1));
    let len = len.filter(|len| start.checked_add(*len).is_some()).unwrap_or(0);
    let kind = match lock.mode {
        None => libc::F_UNLCK,
        Some(Mode::Shared) => libc::F_RDLCK,
        Some(Mode::Exclusive) => libc::F_WRLCK,
    };
    match set(fd, kind, start, len) {
        // An exclusive lock needs a descriptor that can write. A file opened for reading gets a
        // shared lock instead, which keeps local writers out; a file opened only for writing gets
        // none.
        Err(Errno::BADF) if lock.mode == Some(Mode::Exclusive) => {
            granted(set(fd, libc::F_RDLCK, start, len))
        }
        Err(Errno::BADF) => Ok(true),
        other => granted(other),
    }
}

fn granted(set: Result<(), Errno>) -> VfsResult<bool> {
    match set {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(Errno::NOLCK) => Err(Fault::NoMemory),
        // The file system has no locks, so no local program can have a conflicting one.
        Err(Errno::NOTSUP | Errno::NOSYS) => Ok(true),
        Err(errno) => Err(fault_of(errno)),
    }
}

fn set(fd: BorrowedFd<'_>, kind: libc::c_int, start: i64, len: i64) -> Result<(), Errno> {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: len,
        // Locks of open file descriptions (F_OFD_SETLK) require a pid of zero.
        l_pid: 0,
    };
    // SAFETY: the descriptor is open. The call only reads the structure, which outlives the call.
    let done = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if done == 0 {
        return Ok(());
    }
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    Err(Errno::from_raw_os_error(errno))
}
