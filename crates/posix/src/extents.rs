//! Shared extents and holes.

use std::os::fd::{BorrowedFd, OwnedFd};

use frevo_store::Fault;
use frevo_store::vfs::{Allocated, DiskExtent, DiskExtents, ExtentCopy, VfsResult};
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use crate::errno::fault_of;
use crate::limits::RESERVED_ON_CORE;
use crate::patience;
use crate::sys;

/// True if files of the file system can share extents. Tests it with two files without names,
/// because XFS can or cannot, depending on how it was made.
pub(crate) fn can_share(root: BorrowedFd<'_>) -> bool {
    let (Ok(one), Ok(other)) = (nameless(root), nameless(root)) else { return false };
    rustix::fs::ioctl_ficlone(&one, &other).is_ok()
}

/// Refuses to take more space than there is. A file system takes all of it before it finds that there
/// is too little, and meanwhile nobody else has any.
pub(crate) fn check_room(fd: BorrowedFd<'_>, more: u64) -> VfsResult<()> {
    if more == 0 {
        return Ok(());
    }
    let free = rustix::fs::fstatvfs(fd).map_err(fault_of)?;
    let has_room = more <= free.f_bavail.saturating_mul(free.f_frsize);
    if has_room { Ok(()) } else { Err(Fault::DiskFull) }
}

/// Reserves space behind the end of a file, so that it has `bytes` in all. MS-FSA 2.1.5.15.1:
/// DISK_FULL where there is no such space.
pub(crate) fn reserve(fd: BorrowedFd<'_>, bytes: u64) -> VfsResult<()> {
    let end = sys::stat_fd(fd).map_err(fault_of)?.stx_size;
    let more = bytes.saturating_sub(end);
    if more == 0 {
        return Ok(());
    }
    check_room(fd, more)?;
    if more > RESERVED_ON_CORE && patience::is_short() {
        return Err(fault_of(patience::give_up()));
    }
    // Space is reserved only after the end of the file, so holes in it stay holes.
    let flags = FallocateFlags::KEEP_SIZE;
    match retry_on_intr(|| rustix::fs::fallocate(fd, flags, end, more)) {
        // If the file system cannot reserve space, the request succeeds nevertheless, because
        // writes work without it.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(Errno::BADF) => Err(Fault::AccessDenied),
        Err(errno) => {
            // Truncating to the present length frees what was reserved before the failure. The
            // length is read again, because data may have been appended meanwhile.
            let end = sys::stat_fd(fd).map_or(end, |stx| stx.stx_size);
            let _ = retry_on_intr(|| rustix::fs::ftruncate(fd, end));
            Err(fault_of(errno))
        }
    }
}

/// Makes a file without a name, which ends with its descriptor.
pub(crate) fn nameless(root: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::openat(root, c".", flags, Mode::RUSR | Mode::WUSR)
}

/// Shares extents; see [`frevo_store::vfs::Node::share_extents`].
pub(crate) fn share(
    root: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    source: BorrowedFd<'_>,
    copy: &ExtentCopy,
) -> VfsResult<()> {
    // For FICLONERANGE the length zero means "to the end", so nothing is copied here.
    if copy.length == 0 {
        return Ok(());
    }
    let previous =
        if copy.is_atomic { Some(PreviousContent::of(root, target, copy)?) } else { None };
    let shared =
        sys::clone_range(target, copy.target_offset, source, copy.source_offset, copy.length);
    shared.map_err(|errno| {
        if let Some(previous) = previous {
            previous.put_back(target, copy);
        }
        match errno {
            Errno::BADF => Fault::AccessDenied,
            errno => fault_of(errno),
        }
    })
}

/// The target's previous content, since the kernel may fail halfway.
struct PreviousContent {
    file: OwnedFd,
    end: u64,
}

impl PreviousContent {
    fn of(root: BorrowedFd<'_>, target: BorrowedFd<'_>, copy: &ExtentCopy) -> VfsResult<Self> {
        let file = nameless(root).map_err(fault_of)?;
        let end = sys::stat_fd(target).map_err(fault_of)?.stx_size;
        let held = end.saturating_sub(copy.target_offset).min(copy.length);
        let previous = Self { file, end };
        if held != 0 {
            // The length zero means "to the end", which need not be aligned to blocks.
            let length = if copy.target_offset + copy.length >= end { 0 } else { held };
            sys::clone_range(previous.fd(), 0, target, copy.target_offset, length)
                .map_err(fault_of)?;
        }
        Ok(previous)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.file)
    }

    fn put_back(&self, target: BorrowedFd<'_>, copy: &ExtentCopy) {
        let back = sys::clone_range(target, copy.target_offset, self.fd(), 0, 0);
        let cut = retry_on_intr(|| rustix::fs::ftruncate(target, self.end));
        // The error of the copy is returned, even if undoing it has failed, too.
        let _ = back.and(cut);
    }
}

/// Makes a range read as zeros; the end of the file stays. Takes no space: holes are zeros already,
/// and stay holes.
pub(crate) fn zero(fd: BorrowedFd<'_>, first: u64, length: u64, punch: bool) -> VfsResult<()> {
    let fault = |errno| if errno == Errno::BADF { Fault::AccessDenied } else { fault_of(errno) };
    let beyond = first.saturating_add(length);
    if punch {
        return zero_by(fd, FallocateFlags::PUNCH_HOLE, first, beyond).map_err(fault);
    }
    let mut at = first;
    while let Some((from, to)) =
        next_data(fd, at).map_err(fault)?.filter(|(from, _)| *from < beyond)
    {
        at = to.min(beyond);
        match zero_by(fd, FallocateFlags::ZERO_RANGE, from, at) {
            // Zeroing is not supported, or would need new space (as on btrfs). Punching a hole
            // gives zeros, too.
            Err(Errno::OPNOTSUPP | Errno::NOSPC | Errno::DQUOT) => {
                zero_by(fd, FallocateFlags::PUNCH_HOLE, from, at).map_err(fault)?;
            }
            other => other.map_err(fault)?,
        }
    }
    Ok(())
}

fn zero_by(fd: BorrowedFd<'_>, how: FallocateFlags, from: u64, to: u64) -> Result<(), Errno> {
    let flags = how | FallocateFlags::KEEP_SIZE;
    retry_on_intr(|| rustix::fs::fallocate(fd, flags, from, to.saturating_sub(from)))
}

/// Returns the ranges with data from `first` to before `beyond`, at most `limit`.
pub(crate) fn allocated(
    fd: BorrowedFd<'_>,
    first: u64,
    beyond: u64,
    limit: usize,
) -> VfsResult<Allocated> {
    let mut found = Allocated::default();
    let mut at = first;
    let next = |at| next_data(fd, at).map_err(fault_of);
    while let Some((from, to)) = next(at)?.filter(|(from, _)| *from < beyond) {
        if found.ranges.len() == limit {
            found.has_more = true;
            break;
        }
        found.ranges.push((from, to.min(beyond)));
        at = to;
    }
    Ok(found)
}

/// FIEMAP_EXTENT_LAST: the file has no further extent.
const LAST: u32 = 0x1;
/// FIEMAP_EXTENT_UNKNOWN, _DELALLOC and _DATA_INLINE: the extent has no place of its own on the volume.
const WITHOUT_PLACE: u32 = 0x2 | 0x4 | 0x200;

/// Returns extents with their places; see [`frevo_store::vfs::Node::extents_on_disk`].
pub(crate) fn on_disk(fd: BorrowedFd<'_>, first: u64, limit: usize) -> VfsResult<DiskExtents> {
    let fault = |errno| match errno {
        Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS => Fault::NotSupported,
        errno => fault_of(errno),
    };
    match map(fd, first, limit) {
        // The map is not to be had through an O_PATH descriptor, so the file is opened again.
        Err(Errno::BADF) => {
            let file = sys::reopen(fd, OFlags::RDONLY).map_err(|errno| match errno {
                // The user may not read it, or somebody else has a lease on it.
                Errno::AGAIN | Errno::ACCESS | Errno::PERM => Fault::NotSupported,
                errno => fault_of(errno),
            })?;
            map(std::os::fd::AsFd::as_fd(&file), first, limit).map_err(fault)
        }
        found => found.map_err(fault),
    }
}

fn map(fd: BorrowedFd<'_>, first: u64, limit: usize) -> Result<DiskExtents, Errno> {
    let mut found = DiskExtents::default();
    let mut at = first;
    loop {
        let some = sys::fiemap(fd, at)?;
        for extent in &some {
            let beyond = extent.logical.saturating_add(extent.length);
            if beyond <= at {
                // The file changed between two calls, or the kernel repeats itself.
                continue;
            }
            if found.extents.len() == limit {
                found.has_more = true;
                return Ok(found);
            }
            let place = (extent.flags & WITHOUT_PLACE == 0).then_some(extent.physical);
            found.extents.push(DiskExtent { first: extent.logical, beyond, place });
            at = beyond;
        }
        let ends = some.last().is_none_or(|last| last.flags & LAST != 0);
        if ends || some.len() < sys::FIEMAP_EXTENTS {
            return Ok(found);
        }
    }
}

/// Returns the next range with data. This moves the descriptor's position, which nothing uses: all
/// other I/O passes its own offset.
fn next_data(fd: BorrowedFd<'_>, at: u64) -> Result<Option<(u64, u64)>, Errno> {
    let from = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
        // No data follows `from`, so the rest of the file is a hole.
        Err(Errno::NXIO) => return Ok(None),
        from => from?,
    };
    match rustix::fs::seek(fd, SeekFrom::Hole(from)) {
        Err(Errno::NXIO) => Ok(None),
        // The file may have changed between the two calls, which can make the range empty.
        to => Ok(to.ok().filter(|to| *to > from).map(|to| (from, to))),
    }
}
