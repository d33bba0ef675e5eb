//! Programs behind FUSE that ignore case, as exfat-fuse: each spelling of a name is an object of its
//! own for the kernel, with another number.
//!
//! Share modes, locks and leases go by that number, so two spellings of a name must lead to one
//! object: names there are looked up in their stored spelling.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use frevo_store::Fault;
use frevo_store::vfs::{Kind, VfsResult};
use rustix::fs::{Mode, OFlags, Statx};
use rustix::io::Errno;

use crate::cache::Seen;
use crate::casing::{finds_other_case, ignores_case};
use crate::dir::Dir;
use crate::errno::fault_of;
use crate::names::DiskPath;
use crate::share::Share;
use crate::{stat, sys, volume};

/// The part of a path that is brought to its stored spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Respelled {
    /// All components.
    Whole,
    /// All but the last one.
    Parent,
}

impl Share {
    /// True if the directory `dir` with this device ignores case.
    pub(crate) fn ignores_case_in(&self, device: u64, dir: BorrowedFd<'_>) -> bool {
        if device == self.home {
            return self.casing.home;
        }
        self.casing.of_mount(device, || ignores_case(dir))
    }

    /// True if the entry `name` of `dir`, whose state is `stx`, may have been found by another
    /// spelling. An entry on another file system than the share's is looked at itself, because it may
    /// be the root of a mount.
    pub(super) fn is_any_spelling(&self, dir: BorrowedFd<'_>, name: &[u8], stx: &Statx) -> bool {
        let device = stat::key_of(stx).device;
        if device == self.home {
            return self.casing.home;
        }
        self.casing.of_mount(device, || {
            let flags = OFlags::PATH | OFlags::NOFOLLOW;
            let entry = sys::open_beneath(dir, name, flags, Mode::empty(), false);
            is_below_one_that_ignores_case(entry.ok()?.as_fd(), stx, dir)
        })
    }

    /// True for the first object, found below `root` at `path`, of a file system that ignores case: the
    /// path has to be looked up again, in its stored spelling.
    pub(crate) fn is_new_spelling(
        &self,
        root: BorrowedFd<'_>,
        path: &[u8],
        object: BorrowedFd<'_>,
        stx: &Statx,
    ) -> bool {
        let device = stat::key_of(stx).device;
        if device == self.home || self.casing.respells() {
            return false;
        }
        self.casing.of_mount(device, || {
            let parent = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            let parent = path.get(..parent).filter(|parent| !parent.is_empty()).unwrap_or(b".");
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let parent = sys::open_beneath(root, parent, flags, Mode::empty(), false);
            is_below_one_that_ignores_case(object, stx, parent.ok()?.as_fd())
        })
    }

    /// Returns the path in its stored spelling, as far as it exists. `folds` is false for a path of a
    /// client that tells names by case.
    pub(crate) fn respelled(
        &self,
        path: DiskPath,
        part: Respelled,
        folds: bool,
    ) -> VfsResult<DiskPath> {
        if !self.casing.respells() || path.is_root() {
            return Ok(path);
        }
        let mut components: Vec<Vec<u8>> =
            path.as_bytes().split(|&byte| byte == b'/').map(<[u8]>::to_vec).collect();
        let count = components.len() - usize::from(part == Respelled::Parent);
        let mut dir = Dir::Root(Arc::clone(&self.root));
        for component in components.iter_mut().take(count) {
            let seen = Seen::of(&sys::stat_fd(dir.fd()).map_err(fault_of)?);
            // Where case is told, the exact name comes first.
            if !self.ignores_case_in(seen.key.device, dir.fd()) {
                match enter(&dir, component) {
                    Ok(next) => {
                        dir = next;
                        continue;
                    }
                    Err(Errno::NOENT) if folds => {}
                    Err(_) => break,
                }
            }
            match self.folded(&dir, seen, component) {
                Ok(Some(stored)) => *component = stored,
                // A core has given up, so that the call is made again.
                Err(fault @ (Fault::Busy | Fault::Leased)) => return Err(fault),
                // The rest of the path is not changed, because the operation that uses the path
                // reports what is wrong with it.
                Ok(None) | Err(_) => break,
            }
            match enter(&dir, component) {
                Ok(next) => dir = next,
                Err(_) => break,
            }
        }
        Ok(DiskPath::of_components(&components))
    }
}

/// Looks at the file system of `object`: by its names, if it is a directory that tells, else by those
/// of its parent, if that is on the same one.
fn is_below_one_that_ignores_case(
    object: BorrowedFd<'_>,
    stx: &Statx,
    parent: BorrowedFd<'_>,
) -> Option<bool> {
    if !volume::is_fuse(object) {
        return Some(false);
    }
    if volume::is_fat_on_fuse(object) {
        return Some(true);
    }
    let is_directory = stat::kind_of(stx) == Kind::Directory;
    let own = is_directory.then(|| finds_other_case(object)).flatten();
    own.or_else(|| {
        let above = sys::stat_fd(parent).ok()?;
        let is_same = stat::key_of(&above).device == stat::key_of(stx).device;
        is_same.then(|| finds_other_case(parent)).flatten()
    })
}

/// Opens the directory `name` in `dir`.
fn enter(dir: &Dir, name: &[u8]) -> Result<Dir, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let fd = sys::open_beneath(dir.fd(), name, flags, Mode::empty(), false)?;
    Ok(Dir::Sub(Arc::new(fd)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    use frevo_store::Name;
    use frevo_store::vfs::{OpenHow, Vfs as _};

    use super::*;
    use crate::{PosixOptions, PosixVfs, patience};

    #[test]
    fn names_get_their_stored_spelling() {
        let host = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(host.path().join("Folder/Below")).unwrap();
        std::fs::write(host.path().join("Folder/Below/File.txt"), "").unwrap();
        let mut vfs = PosixVfs::open_root(host.path(), PosixOptions::default()).unwrap();
        vfs.pretend_to_ignore_case();
        let respelled = |path: &str, part| {
            let path = DiskPath::of_components(
                &path.split('/').map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>(),
            );
            let path = vfs.share().respelled(path, part, true).unwrap();
            String::from_utf8(path.as_bytes().to_vec()).unwrap()
        };
        assert_eq!(respelled("folder/BELOW/file.TXT", Respelled::Whole), "Folder/Below/File.txt");
        assert_eq!(respelled("folder/BELOW/file.TXT", Respelled::Parent), "Folder/Below/file.TXT");
        assert_eq!(respelled("folder/none/file.TXT", Respelled::Whole), "Folder/none/file.TXT");
        assert_eq!(respelled("FOLDER", Respelled::Parent), "FOLDER");
        // The Open's name must have the stored spelling, too.
        let opened = vfs.open(&Name::from_stored("FOLDER\\below".into()), &OpenHow::LOOK).unwrap();
        assert_eq!(opened.name.path(), "Folder\\Below");
        // A rename to another case must store the new spelling.
        let from = Name::from_stored("folder\\below".into());
        let key = opened.stat.key;
        let to = Name::from_stored("folder\\BELOW".into());
        assert_eq!(vfs.rename(&from, key, &to, false).unwrap().path(), "Folder\\BELOW");
        assert!(host.path().join("Folder/BELOW/File.txt").exists());
        let again = vfs.open(&Name::from_stored("FOLDER\\below".into()), &OpenHow::LOOK).unwrap();
        assert_eq!(again.name.path(), "Folder\\BELOW");
    }

    /// Tests that a path is not taken as it is when a core gives up in a large directory.
    #[test]
    fn a_core_that_gives_up_respells_nothing() {
        let host = tempfile::tempdir().unwrap();
        let large = host.path().join("large");
        std::fs::create_dir(&large).unwrap();
        (0..4_000).for_each(|at| std::fs::write(large.join(format!("{at:040}x")), "").unwrap());
        let mut vfs = PosixVfs::open_root(host.path(), PosixOptions::default()).unwrap();
        vfs.pretend_to_ignore_case();
        let name = |last: char| format!("{:040}{last}", 7).into_bytes();
        let respelled = || {
            let path = DiskPath::of_components(&[b"large".to_vec(), name('X')]);
            vfs.share().respelled(path, Respelled::Whole, true)
        };
        let (on_core, gave_up) = patience::short(respelled);
        assert_eq!((on_core.map(|_| ()), gave_up), (Err(Fault::Leased), true));
        let stored = DiskPath::of_components(&[b"large".to_vec(), name('x')]);
        assert_eq!(respelled().unwrap().as_bytes(), stored.as_bytes());
    }

    /// A share whose file system tells names by case, with one below that does not. `/dev/shm` is a
    /// mount of its own on all systems.
    #[test]
    fn a_file_system_below_has_rules_of_its_own() {
        let Ok(host) = tempfile::tempdir_in("/dev/shm") else { return };
        let device = |path: &Path| std::fs::metadata(path).unwrap().dev();
        if device(Path::new("/dev")) == device(host.path()) {
            return;
        }
        std::fs::create_dir(host.path().join("Folder")).unwrap();
        std::fs::write(host.path().join("Folder/File.txt"), "").unwrap();
        let vfs = PosixVfs::open_root(Path::new("/dev"), PosixOptions::default()).unwrap();
        let share = vfs.share();
        let above = format!("shm/{}", host.path().file_name().unwrap().to_str().unwrap());
        let respelled = |path: &str, folds| {
            let path = path.split('/').map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
            let path = DiskPath::of_components(&path);
            let path = share.respelled(path, Respelled::Whole, folds).unwrap();
            String::from_utf8(path.as_bytes().to_vec()).unwrap()
        };
        let asked = format!("{above}/FOLDER/file.TXT");
        assert_eq!(respelled(&asked, true), asked, "nothing there ignores case");
        let stored = format!("{above}/Folder/File.txt");
        let key = stat::key_of(&sys::stat_at(share.root.as_fd(), stored.as_bytes()).unwrap());
        share.casing.note(key.device, true);
        assert_eq!(respelled(&asked, true), stored);
        assert_eq!(respelled(&asked, false), stored, "for clients that tell case elsewhere, too");
        // The share's own file system tells `SHM` from `shm`.
        assert_eq!(respelled(&asked.replace("shm/", "SHM/"), true), stored);
        let exact = asked.replace("shm/", "SHM/");
        assert_eq!(respelled(&exact, false), exact);
        assert!(share.ignores_case_in(key.device, share.root.as_fd()));
        assert!(!share.ignores_case_in(share.home, share.root.as_fd()));
    }
}
