//! Finds out whether files of a file system can have holes and several names.
//!
//! Of most file systems that is known. On others (FUSE, network file systems) it depends on the
//! program or server behind, which is asked by trying.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::{Errno, retry_on_intr};

use crate::{extents, sys};

/// The abilities of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// Files can have holes that are punched.
    pub(crate) holes: bool,
    /// Files can have several names.
    pub(crate) hard_links: bool,
}

impl Abilities {
    const ALL: Self = Self { holes: true, hard_links: true };
    const NONE: Self = Self { holes: false, hard_links: false };
}

/// File systems without holes and without hard links, by statfs' f_type. A file with a longer end is
/// filled with zeros there.
const WITHOUT: [u64; 4] = [
    0x4d44,      // vfat
    0x2011_BAB0, // exfat
    0x4244,      // hfs
    0x9660,      // iso9660
];

/// File systems with both, by statfs' f_type.
const WITH: [u64; 8] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0x0102_1994, // tmpfs
    0xF2F5_2010, // f2fs
    0xCA45_1A4E, // bcachefs
    0x2FC1_2FC1, // zfs
    0x7366_746e, // ntfs3
];

/// True if a file system stores zeros where a file gets a longer end.
pub(crate) fn fills_holes(root: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(root).is_ok_and(|fs| WITHOUT.contains(&(fs.f_type as u64)))
}

/// Returns the abilities of the file system of `root`, which is of this kind.
pub(crate) fn of(root: BorrowedFd<'_>, kind: u64, read_only: bool) -> Abilities {
    let kind = kind & 0xFFFF_FFFF;
    if WITHOUT.contains(&kind) {
        return Abilities::NONE;
    }
    if WITH.contains(&kind) || read_only {
        return Abilities::ALL;
    }
    // If an ability cannot be tested (no file can be made), it counts as present.
    tried(root).unwrap_or(Abilities::ALL)
}

/// Tries both with a file that is removed again.
fn tried(root: BorrowedFd<'_>) -> Result<Abilities, Errno> {
    let before = sys::stat_fd(root)?;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let name = |what: &str| format!(".frevo-{what}-{:x}-{:x}", std::process::id(), now.tv_nsec);
    let (one, other) = (name("file"), name("link"));
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    let (file, is_named) = match extents::nameless(root) {
        Ok(file) => (file, false),
        Err(_) => (rustix::fs::openat(root, one.as_str(), flags, mode)?, true),
    };
    let holes = can_punch(&file);
    let hard_links = if is_named {
        let linked = rustix::fs::linkat(root, one.as_str(), root, other.as_str(), AtFlags::empty());
        let removed = |name: &str| rustix::fs::unlinkat(root, name, AtFlags::empty());
        if linked.is_ok() {
            removed(&other)?;
        }
        removed(&one)?;
        put_back_time(root, &before);
        !matches!(linked, Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS))
    } else {
        // The file system has O_TMPFILE. Files made in this way get their names by hard links, so
        // it has hard links, too.
        true
    };
    Ok(Abilities { holes, hard_links })
}

fn can_punch(file: &OwnedFd) -> bool {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let punched = retry_on_intr(|| rustix::fs::fallocate(file.as_fd(), flags, 0, 4096));
    !matches!(punched, Err(Errno::OPNOTSUPP | Errno::NOSYS))
}

/// Gives a folder the time of modification that it had. It may fail: the time is then the present.
fn put_back_time(root: BorrowedFd<'_>, before: &rustix::fs::Statx) {
    let omitted = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let written =
        Timespec { tv_sec: before.stx_mtime.tv_sec, tv_nsec: before.stx_mtime.tv_nsec.into() };
    let times = Timestamps { last_access: omitted, last_modification: written };
    let path = sys::ProcPath::of(root);
    let _ = rustix::fs::utimensat(rustix::fs::CWD, path.as_c_str(), &times, AtFlags::empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests that trying tells the same as the list, and leaves nothing.
    #[test]
    fn trying_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(folder.path()).unwrap();
        let before = std::fs::metadata(folder.path()).unwrap().modified().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(tried(root.as_fd()), Ok(Abilities::ALL));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(std::fs::metadata(folder.path()).unwrap().modified().unwrap(), before);
        for (kind, read_only, expected) in [
            (0x4d44, false, Abilities::NONE),
            (0x2011_BAB0, true, Abilities::NONE),
            (0xEF53, false, Abilities::ALL),
            (0x6573_5546, true, Abilities::ALL),
        ] {
            assert_eq!(of(root.as_fd(), kind, read_only), expected, "{kind:#x}");
        }
        assert!(!fills_holes(root.as_fd()));
    }
}
