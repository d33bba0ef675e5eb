//! System calls in the form that this crate needs.

use std::ffi::CStr;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::limits::RETRIES;

/// The rules of every walk.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Opens `path` below `dir`, never outside of it.
pub(crate) fn open_beneath(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
    follow: bool,
) -> Result<OwnedFd, Errno> {
    let resolve = if follow { INSIDE } else { INSIDE.union(ResolveFlags::NO_SYMLINKS) };
    let flags = flags | OFlags::CLOEXEC;
    for _ in 0..RETRIES {
        match rustix::fs::openat2(dir, path, flags, mode, resolve) {
            // A rename happened while ".." was resolved. The kernel returns AGAIN, so the call is
            // repeated.
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

const STAT_MASK: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// Returns the state of an open file.
pub(crate) fn stat_fd(fd: BorrowedFd<'_>) -> Result<Statx, Errno> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, STAT_MASK)
}

/// Returns the state of an open file as the file system has it now. The kernel does not answer from what
/// it has cached, as on NFS and FUSE.
pub(crate) fn stat_fd_anew(fd: BorrowedFd<'_>) -> Result<Statx, Errno> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, STAT_MASK)
}

/// Returns the state of an entry; links are not followed.
pub(crate) fn stat_at(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Statx, Errno> {
    rustix::fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, STAT_MASK)
}

/// Returns the state of an entry, like [`stat_at`], without copying the name.
pub(crate) fn stat_entry(dir: BorrowedFd<'_>, name: &CStr) -> Result<Statx, Errno> {
    rustix::fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, STAT_MASK)
}

/// `/proc/self/fd/N`, through which calls reach files opened with O_PATH.
pub(crate) struct ProcPath {
    text: [u8; 32],
}

impl ProcPath {
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Self {
        let mut text = [0; 32];
        // The text has at most 24 characters and the buffer 32, so the last byte stays NUL.
        let _ = write!(&mut text[..31], "/proc/self/fd/{}", fd.as_raw_fd());
        Self { text }
    }

    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.text).unwrap_or(c"")
    }
}

/// Opens the object of an O_PATH descriptor with other flags.
pub(crate) fn reopen(fd: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = ProcPath::of(fd);
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    retry_on_intr(|| rustix::fs::open(path.as_c_str(), flags, Mode::empty()))
}

/// Fills `buffer` with directory records; 0 at the end.
pub(crate) fn read_directory(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
    retry_on_intr(|| {
        // SAFETY: the pointer and the length describe `buffer`, which the kernel
        // fills with at most that many bytes and does not keep.
        let got = unsafe {
            libc::syscall(libc::SYS_getdents64, fd.as_raw_fd(), buffer.as_mut_ptr(), buffer.len())
        };
        usize::try_from(got).map_err(|_| last_errno())
    })
}

/// `getxattrat(2)` and `listxattrat(2)`, Linux 6.13: the same numbers on every
/// architecture.
const SYS_GETXATTRAT: libc::c_long = 464;
const SYS_LISTXATTRAT: libc::c_long = 465;

/// struct xattr_args of linux/xattr.h.
#[repr(C)]
struct XattrArgs {
    value: u64,
    size: u32,
    flags: u32,
}

/// Reads an extended attribute of an entry with one call; links are not followed. ENOSYS before
/// Linux 6.13.
pub(crate) fn getxattr_at(
    dir: BorrowedFd<'_>,
    entry: &CStr,
    name: &CStr,
    value: &mut [u8],
) -> Result<usize, Errno> {
    let args = XattrArgs {
        value: value.as_mut_ptr() as u64,
        size: u32::try_from(value.len()).unwrap_or(u32::MAX),
        flags: 0,
    };
    // SAFETY: both names are NUL-terminated, `args` has the size that is passed
    // and names a buffer of `value.len()` writable bytes; nothing is kept.
    let got = unsafe {
        libc::syscall(
            SYS_GETXATTRAT,
            dir.as_raw_fd(),
            entry.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
            name.as_ptr(),
            &raw const args,
            size_of::<XattrArgs>(),
        )
    };
    usize::try_from(got).map_err(|_| last_errno())
}

/// Reads the names of an entry's extended attributes; links are not followed. ENOSYS before Linux
/// 6.13.
pub(crate) fn listxattr_at(
    dir: BorrowedFd<'_>,
    entry: &CStr,
    list: &mut [u8],
) -> Result<usize, Errno> {
    // SAFETY: the name is NUL-terminated, and the pointer and the length describe
    // `list`, which the kernel fills with at most that many bytes; nothing is kept.
    let got = unsafe {
        libc::syscall(
            SYS_LISTXATTRAT,
            dir.as_raw_fd(),
            entry.as_ptr(),
            libc::AT_SYMLINK_NOFOLLOW,
            list.as_mut_ptr(),
            list.len(),
        )
    };
    usize::try_from(got).map_err(|_| last_errno())
}

/// Checks the effective user's access to the object.
pub(crate) fn may_access(fd: BorrowedFd<'_>, access: rustix::fs::Access) -> bool {
    let path = ProcPath::of(fd);
    rustix::fs::accessat(rustix::fs::CWD, path.as_c_str(), access, AtFlags::EACCESS).is_ok()
}

/// Returns the file system's identity, which the POSIX form of statfs leaves out.
pub(crate) fn fs_id(fd: BorrowedFd<'_>) -> u64 {
    let mut buf = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `buf` is a whole statfs structure that the kernel may fill; all
    // zeros is a valid value of it, so it is initialised even after a failure.
    let raw = unsafe {
        libc::fstatfs(fd.as_raw_fd(), buf.as_mut_ptr());
        buf.assume_init()
    };
    // SAFETY: fsid_t is two C ints without padding; u64 takes any bits.
    unsafe { core::mem::transmute::<libc::fsid_t, u64>(raw.f_fsid) }
}

/// struct fsuuid2 of linux/fs.h.
#[repr(C)]
struct FsUuid {
    length: u8,
    uuid: [u8; 16],
}

/// FS_IOC_GETFSUUID of linux/fs.h, since Linux 6.9.
const GET_FS_UUID: u32 = 0x8011_1500;

/// Returns the UUID of an open file's file system. None where the file system has none of 16 bytes,
/// or the kernel does not tell it.
pub(crate) fn fs_uuid(fd: BorrowedFd<'_>) -> Option<[u8; 16]> {
    let mut buf = FsUuid { length: 0, uuid: [0; 16] };
    // SAFETY: the request fills one fsuuid2, which `buf` is; it outlives the call.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), GET_FS_UUID as _, &raw mut buf) };
    let has_one = done == 0 && usize::from(buf.length) == buf.uuid.len() && buf.uuid != [0; 16];
    has_one.then_some(buf.uuid)
}

/// struct file_clone_range of linux/fs.h.
#[repr(C)]
struct FileCloneRange {
    source: i64,
    source_offset: u64,
    length: u64,
    target_offset: u64,
}

/// Calls `FICLONERANGE`: `target` shares `length` bytes of `source`; a length of zero means up to
/// the end.
pub(crate) fn clone_range(
    target: BorrowedFd<'_>,
    target_offset: u64,
    source: BorrowedFd<'_>,
    source_offset: u64,
    length: u64,
) -> Result<(), Errno> {
    let source = i64::from(source.as_raw_fd());
    let range = FileCloneRange { source, source_offset, length, target_offset };
    retry_on_intr(|| {
        // SAFETY: the request reads one file_clone_range, which `range` is; both
        // descriptors are open for as long as the call takes.
        let done =
            unsafe { libc::ioctl(target.as_raw_fd(), libc::FICLONERANGE as _, &raw const range) };
        if done == 0 { Ok(()) } else { Err(last_errno()) }
    })
}

/// struct fiemap_extent of linux/fiemap.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct FiemapExtent {
    /// Offset of its first byte in the file.
    pub(crate) logical: u64,
    /// Offset of its first byte on the device.
    pub(crate) physical: u64,
    /// Bytes in the file.
    pub(crate) length: u64,
    reserved64: [u64; 2],
    /// FIEMAP_EXTENT_ flags.
    pub(crate) flags: u32,
    reserved: [u32; 3],
}

/// Extents that one FIEMAP returns at most.
pub(crate) const FIEMAP_EXTENTS: usize = 64;

/// struct fiemap of linux/fiemap.h with room for extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [FiemapExtent; FIEMAP_EXTENTS],
}

/// FS_IOC_FIEMAP of linux/fs.h.
const FIEMAP: u32 = 0xC020_660B;

/// Calls FIEMAP: returns the first extents of a file that end behind `start`, at most
/// [`FIEMAP_EXTENTS`].
pub(crate) fn fiemap(fd: BorrowedFd<'_>, start: u64) -> Result<Vec<FiemapExtent>, Errno> {
    let none = FiemapExtent {
        logical: 0,
        physical: 0,
        length: 0,
        reserved64: [0; 2],
        flags: 0,
        reserved: [0; 3],
    };
    let count = FIEMAP_EXTENTS as u32;
    let (length, extents) = (u64::MAX - start, [none; FIEMAP_EXTENTS]);
    let mut map = Fiemap { start, length, flags: 0, mapped: 0, count, reserved: 0, extents };
    retry_on_intr(|| {
        // SAFETY: the request reads and fills one fiemap with `count` extents, which `map` is; it
        // outlives the call.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), FIEMAP as _, &raw mut map) };
        if done == 0 { Ok(()) } else { Err(last_errno()) }
    })?;
    Ok(map.extents.into_iter().take(map.mapped as usize).collect())
}

pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
