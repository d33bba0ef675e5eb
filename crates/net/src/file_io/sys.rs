//! Shared descriptors, and system calls that the libraries do not offer.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use crate::buffer::Buf;

/// An open file whose descriptor has several owners: an `OwnedFd`, or an object that closes its
/// descriptor with its last owner.
pub type FileFd = Arc<dyn AsFd + Send + Sync>;

/// `cachestat(2)` has this number on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

/// Flag of `preadv2` and `pwritev2`, Linux 6.14: pages that the call brings into the page cache
/// leave it when they have been copied or written back. Others stay.
pub(super) const RWF_DONTCACHE: libc::c_int = 0x80;

#[repr(C)]
struct CachestatRange {
    offset: u64,
    len: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Converts an offset; the kernel's offsets are signed.
fn position(offset: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

fn counted(outcome: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(outcome).map_err(|_negative| io::Error::last_os_error())
}

/// Calls `preadv2` with `flags`, or plain `pread` without: appends up to `len` bytes to `buf`,
/// which has room for them.
pub(super) fn read(
    fd: BorrowedFd<'_>,
    offset: u64,
    buf: &mut Buf,
    len: usize,
    flags: libc::c_int,
) -> io::Result<usize> {
    let position = position(offset)?;
    let room = &mut buf.memory_mut()[..len];
    if flags == 0 {
        let count = rustix::io::pread(fd, room, offset)?;
        buf.set_filled(count);
        return Ok(count);
    }
    let slice = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    // SAFETY: `slice` describes `room`, which nothing else uses until the call returns; the
    // descriptor is borrowed until then, too.
    let count = counted(unsafe { libc::preadv2(fd.as_raw_fd(), &slice, 1, position, flags) })?;
    buf.set_filled(count);
    Ok(count)
}

/// Calls `pwritev2` with `flags`, or plain `pwrite` without.
pub(super) fn write(
    fd: BorrowedFd<'_>,
    offset: u64,
    data: &[u8],
    flags: libc::c_int,
) -> io::Result<usize> {
    let position = position(offset)?;
    if flags == 0 {
        return Ok(rustix::io::pwrite(fd, data, offset)?);
    }
    let slice = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    // SAFETY: `slice` describes `data`, which the call only reads; `data` and the descriptor are
    // borrowed until the call returns.
    counted(unsafe { libc::pwritev2(fd.as_raw_fd(), &slice, 1, position, flags) })
}

/// Returns the number of pages of the range in the page cache.
pub(super) fn cached_pages(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<u64> {
    let range = CachestatRange { offset, len };
    let mut found = Cachestat::default();
    // SAFETY: both structures have the kernel's layout and stay valid until the call returns; it
    // writes the second only.
    let outcome = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            fd.as_raw_fd(),
            std::ptr::from_ref(&range),
            std::ptr::from_mut(&mut found),
            0,
        )
    };
    if outcome == 0 { Ok(found.cached) } else { Err(io::Error::last_os_error()) }
}

/// Returns how often this thread has gone to sleep by itself.
pub(super) fn voluntary_switches() -> libc::c_long {
    thread_usage().ru_nvcsw
}

/// Returns what this thread has used of the machine.
pub(crate) fn thread_usage() -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills `usage`, which stays valid until it returns.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: zeros are a valid `rusage`, and so is the filled one.
    unsafe { usage.assume_init() }
}
