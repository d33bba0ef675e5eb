//! Files that the file system stores compressed, as btrfs does: the flag of `chattr +c`.

use std::os::fd::{AsFd, BorrowedFd};

use frevo_store::vfs::VfsResult;
use rustix::fs::{IFlags, OFlags};
use rustix::io::Errno;

use crate::errno::fault_of;
use crate::{extents, sys};

/// File systems that obey the flag, by statfs' f_type. ext4 shows the flag too, and compresses
/// nothing.
const HEEDED: [u64; 3] = [
    0x9123_683E, // btrfs
    0xF2F5_2010, // f2fs, if it was made so
    0xCA45_1A4E, // bcachefs
];

/// True if the file system can compress files.
pub(crate) fn is_kept(root: BorrowedFd<'_>) -> bool {
    let kind = rustix::fs::fstatfs(root).map_or(0, |fs| fs.f_type as u64 & 0xFFFF_FFFF);
    if !HEEDED.contains(&kind) {
        return false;
    }
    let Ok(file) = extents::nameless(root) else { return false };
    change(file.as_fd(), true).is_ok()
        && rustix::fs::ioctl_getflags(&file).is_ok_and(|flags| flags.contains(IFlags::COMPRESSED))
}

/// Sets or clears the flag; see [`frevo_store::vfs::Node::set_compressed`].
pub(crate) fn set(fd: BorrowedFd<'_>, compressed: bool) -> VfsResult<()> {
    // The flags of a file cannot be changed through an O_PATH descriptor, so the file is opened
    // again.
    let file = sys::reopen(fd, OFlags::RDONLY).map_err(fault_of)?;
    change(file.as_fd(), compressed).map_err(fault_of)
}

fn change(fd: BorrowedFd<'_>, compressed: bool) -> Result<(), Errno> {
    let mut flags = rustix::fs::ioctl_getflags(fd)?;
    flags.set(IFlags::COMPRESSED, compressed);
    rustix::fs::ioctl_setflags(fd, flags)
}
