//! Entries of file systems that ignore case, as FAT and exFAT do: two spellings of a name are one entry.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use frevo_store::vfs::VfsResult;
use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::cache::each_name;
use crate::dir::Dir;
use crate::errno::fault_of;
use crate::limits::NAMES_READ_ON_CORE;
use crate::{fold, patience, sys};

/// Names that are tried for an entry that is set aside.
const ATTEMPTS: usize = 16;

/// True if two spellings are one entry of a directory.
pub(crate) fn is_one_entry(dir: &Dir, one: &[u8], other: &[u8]) -> VfsResult<bool> {
    if one == other || !fold::alike(one, other) {
        return Ok(false);
    }
    // In a case-sensitive directory the other spelling does not exist.
    if [one, other].iter().any(|name| sys::stat_at(dir.fd(), name).is_err()) {
        return Ok(false);
    }
    Ok(spellings(dir.fd(), one, NAMES_READ_ON_CORE)?.len() == 1)
}

/// Returns the names in a directory that fold as `name`. A core reads `on_core` names.
pub(crate) fn spellings(
    dir: BorrowedFd<'_>,
    name: &[u8],
    on_core: usize,
) -> VfsResult<Vec<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let fd = sys::open_beneath(dir, b".", flags, Mode::empty(), false).map_err(fault_of)?;
    let (mut found, mut count) = (Vec::new(), 0_usize);
    let read = each_name(fd.as_fd(), |stored| {
        count += 1;
        if count > on_core && patience::is_short() {
            return Err(patience::give_up());
        }
        if fold::alike(stored, name) {
            found.push(stored.to_vec());
        }
        Ok(())
    });
    read.map_err(fault_of)?;
    Ok(found)
}

/// Gives an entry another spelling. MS-FSA 2.1.5.15.12: the link that has the name already is the one
/// that is renamed.
pub(crate) fn rename_case(dir: &Dir, stored: &[u8], wanted: &[u8]) -> VfsResult<()> {
    let fd = dir.fd();
    rustix::fs::renameat(fd, stored, fd, wanted).map_err(fault_of)?;
    // The new name may be there already. Then the rename is complete, and no later error may undo
    // it.
    if spellings(dir.fd(), wanted, usize::MAX)?.iter().any(|name| name == wanted) {
        return Ok(());
    }
    // Linux ignores a rename between two names of one inode, so the entry is renamed to a temporary
    // name first.
    let between = set_aside(dir, stored).map_err(fault_of)?;
    let renamed = rename_free(dir, &between, wanted);
    if renamed.is_err() {
        let _ = rename_free(dir, &between, stored);
    }
    renamed.map_err(fault_of)
}

/// Renames an entry to a name that no entry has, and returns the name. A name that an earlier process
/// has left behind is passed over.
fn set_aside(dir: &Dir, stored: &[u8]) -> Result<Vec<u8>, Errno> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    for _ in 0..ATTEMPTS {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!(".frevo-case-{:x}-{number:x}", std::process::id()).into_bytes();
        match rename_free(dir, stored, &name) {
            Ok(()) => return Ok(name),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::BUSY)
}

/// Renames an entry to a name that is free.
fn rename_free(dir: &Dir, from: &[u8], to: &[u8]) -> Result<(), Errno> {
    let fd = dir.fd();
    match rustix::fs::renameat_with(fd, from, fd, to, RenameFlags::NOREPLACE) {
        // FUSE refuses the rename flags. Without them a file that another program makes at this
        // moment could be replaced.
        Err(Errno::INVAL) => match sys::stat_at(fd, to) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => rustix::fs::renameat(fd, from, fd, to),
            Err(errno) => Err(errno),
        },
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::fs::CWD;

    use super::*;

    /// Tests that two files whose names differ in case are two, and that an entry gets another
    /// spelling.
    #[test]
    fn two_files_are_no_entry() {
        let host = tempfile::tempdir().unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, host.path(), flags, Mode::empty()).unwrap();
        let dir = Dir::Sub(Arc::new(folder));
        std::fs::write(host.path().join("a"), "").unwrap();
        assert_eq!(is_one_entry(&dir, b"a", b"A"), Ok(false), "there is no A");
        std::fs::hard_link(host.path().join("a"), host.path().join("A")).unwrap();
        assert_eq!(is_one_entry(&dir, b"a", b"A"), Ok(false), "two links of one file");
        assert_eq!(is_one_entry(&dir, b"a", b"a"), Ok(false));
        std::fs::remove_file(host.path().join("A")).unwrap();
        rename_case(&dir, b"a", b"A").unwrap();
        assert_eq!(spellings(dir.fd(), b"a", 0), Ok(vec![b"A".to_vec()]));
    }

    /// Tests that entries set aside get names of their own, and that nothing is replaced.
    #[test]
    fn entries_set_aside_have_names_of_their_own() {
        let host = tempfile::tempdir().unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, host.path(), flags, Mode::empty()).unwrap();
        let dir = Dir::Sub(Arc::new(folder));
        for name in ["a", "b", "c"] {
            std::fs::write(host.path().join(name), name).unwrap();
        }
        let a = set_aside(&dir, b"a").unwrap();
        let b = set_aside(&dir, b"b").unwrap();
        assert_ne!(a, b);
        assert_eq!(rename_free(&dir, &a, b"c"), Err(Errno::EXIST));
        assert_eq!(rename_free(&dir, &a, b"a"), Ok(()));
        assert_eq!(std::fs::read(host.path().join("a")).unwrap(), b"a");
        assert_eq!(std::fs::read(host.path().join("c")).unwrap(), b"c");
        // A temporary name that a crash has left behind must not block the next one.
        let number = b.rsplit(|byte| *byte == b'-').next().unwrap();
        let number = u64::from_str_radix(std::str::from_utf8(number).unwrap(), 16).unwrap();
        let next = format!(".frevo-case-{:x}-{:x}", std::process::id(), number + 1);
        std::fs::write(host.path().join(&next), "left behind").unwrap();
        assert_ne!(set_aside(&dir, b"a").unwrap(), next.as_bytes());
        assert_eq!(std::fs::read(host.path().join(&next)).unwrap(), b"left behind");
    }
}
