//! Entries of file systems that ignore case, as FAT and exFAT do: two spellings of a name are one entry.

use std::os::fd::AsFd as _;

use frevo_store::vfs::VfsResult;
use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::cache::each_name;
use crate::dir::Dir;
use crate::errno::fault_of;
use crate::limits::NAMES_READ_ON_CORE;
use crate::{fold, patience, sys};

/// True if two spellings are one entry of a directory.
pub(crate) fn is_one_entry(dir: &Dir, one: &[u8], other: &[u8]) -> VfsResult<bool> {
    if one == other || !fold::alike(one, other) {
        return Ok(false);
    }
    // A file system that does not ignore case finds the exact name alone.
    if [one, other].iter().any(|name| sys::stat_at(dir.fd(), name).is_err()) {
        return Ok(false);
    }
    Ok(spellings(dir, one, NAMES_READ_ON_CORE)?.len() == 1)
}

/// Returns the names in a directory that fold as `name`. A core reads `on_core` names.
fn spellings(dir: &Dir, name: &[u8], on_core: usize) -> VfsResult<Vec<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let fd = sys::open_beneath(dir.fd(), b".", flags, Mode::empty(), false).map_err(fault_of)?;
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
    // The entry has changed: nothing is given up from here on.
    if spellings(dir, wanted, usize::MAX)?.iter().any(|name| name == wanted) {
        return Ok(());
    }
    // Linux does nothing for two names of one inode, so the entry gets a third name in between.
    let between = format!(".frevo-case-{:x}", std::process::id());
    let between = between.as_bytes();
    let moved = |from: &[u8], to: &[u8]| match rustix::fs::renameat_with(
        fd,
        from,
        fd,
        to,
        RenameFlags::NOREPLACE,
    ) {
        Err(Errno::INVAL) => rustix::fs::renameat(fd, from, fd, to),
        renamed => renamed,
    };
    moved(stored, between).map_err(fault_of)?;
    let renamed = moved(between, wanted);
    if renamed.is_err() {
        let _ = moved(between, stored);
    }
    renamed.map_err(fault_of)
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
        assert_eq!(spellings(&dir, b"a", 0), Ok(vec![b"A".to_vec()]));
    }
}
