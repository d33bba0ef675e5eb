//! Programs behind FUSE that ignore case, as exfat-fuse: each spelling of a name is an object of its
//! own for the kernel, with another number.
//!
//! Share modes, locks and leases go by that number, so two spellings of a name must lead to one
//! object: names there are looked up in their stored spelling.

use std::collections::HashSet;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use frevo_store::Fault;
use frevo_store::vfs::VfsResult;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::cache::{Seen, each_name};
use crate::dir::Dir;
use crate::errno::fault_of;
use crate::names::DiskPath;
use crate::share::Share;
use crate::{sys, volume};

/// Entries of a share's root that are looked at to find out if case is ignored.
const PROBED_NAMES: usize = 1_000;

/// True if a file system of FUSE finds a name in another case than the stored one. An empty folder
/// says nothing, so the family of FAT is known otherwise.
pub(crate) fn ignores_case(root: BorrowedFd<'_>) -> bool {
    volume::is_fuse(root) && (volume::is_fat_on_fuse(root) || finds_other_case(root))
}

fn finds_other_case(root: BorrowedFd<'_>) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let Ok(fd) = sys::open_beneath(root, b".", flags, Mode::empty(), false) else { return false };
    let mut names = HashSet::new();
    // The error from the closure only ends the reading; the names that were read are kept.
    let _ = each_name(fd.as_fd(), |name| {
        names.insert(name.to_vec());
        if names.len() < PROBED_NAMES { Ok(()) } else { Err(Errno::OVERFLOW) }
    });
    let other = names.iter().map(|name| swapped(name)).find(|other| !names.contains(other));
    other.is_some_and(|other| sys::stat_at(root, &other).is_ok())
}

/// Returns the name with upper and lower case of ASCII letters exchanged.
fn swapped(name: &[u8]) -> Vec<u8> {
    let swap = |byte: &u8| {
        if byte.is_ascii_uppercase() {
            byte.to_ascii_lowercase()
        } else {
            byte.to_ascii_uppercase()
        }
    };
    name.iter().map(swap).collect()
}

impl Share {
    /// Returns the path in its stored spelling, as far as it exists; with `keeps_last` without a look
    /// at the last component.
    pub(crate) fn respelled(&self, path: DiskPath, keeps_last: bool) -> VfsResult<DiskPath> {
        if !self.ignores_case || path.is_root() {
            return Ok(path);
        }
        let mut components: Vec<Vec<u8>> =
            path.as_bytes().split(|&byte| byte == b'/').map(<[u8]>::to_vec).collect();
        let count = components.len() - usize::from(keeps_last);
        let mut dir = Dir::Root(Arc::clone(&self.root));
        for component in components.iter_mut().take(count) {
            let seen = Seen::of(&sys::stat_fd(dir.fd()).map_err(fault_of)?);
            match self.folded(&dir, seen, component) {
                Ok(Some(stored)) => *component = stored,
                Err(fault @ Fault::Busy) => return Err(fault),
                // The rest of the path is not changed, because the operation that uses the path
                // reports what is wrong with it.
                Ok(None) | Err(_) => break,
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            match sys::open_beneath(dir.fd(), component, flags, Mode::empty(), false) {
                Ok(fd) => dir = Dir::Sub(Arc::new(fd)),
                Err(_) => break,
            }
        }
        Ok(DiskPath::of_components(&components))
    }
}

#[cfg(test)]
mod tests {
    use frevo_store::Name;
    use frevo_store::vfs::{OpenHow, Vfs as _};
    use rustix::fs::CWD;

    use super::*;
    use crate::{PosixOptions, PosixVfs};

    #[test]
    fn names_get_their_stored_spelling() {
        let host = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(host.path().join("Folder/Below")).unwrap();
        std::fs::write(host.path().join("Folder/Below/File.txt"), "").unwrap();
        let mut vfs = PosixVfs::open_root(host.path(), PosixOptions::default()).unwrap();
        vfs.pretend_to_ignore_case();
        let respelled = |path: &str, keeps_last| {
            let path = DiskPath::of_components(
                &path.split('/').map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>(),
            );
            let path = vfs.share().respelled(path, keeps_last).unwrap();
            String::from_utf8(path.as_bytes().to_vec()).unwrap()
        };
        assert_eq!(respelled("folder/BELOW/file.TXT", false), "Folder/Below/File.txt");
        assert_eq!(respelled("folder/BELOW/file.TXT", true), "Folder/Below/file.TXT");
        assert_eq!(respelled("folder/none/file.TXT", false), "Folder/none/file.TXT");
        assert_eq!(respelled("FOLDER", true), "FOLDER");
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

    #[test]
    fn a_file_system_of_linux_finds_no_other_case() {
        let host = tempfile::tempdir().unwrap();
        std::fs::write(host.path().join("a"), "").unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let root = rustix::fs::openat(CWD, host.path(), flags, Mode::empty()).unwrap();
        assert!(!finds_other_case(root.as_fd()));
        // Both spellings of the name exist, so it does not show whether case is ignored.
        std::fs::write(host.path().join("A"), "").unwrap();
        assert!(!finds_other_case(root.as_fd()));
        assert_eq!(swapped("aB.é1".as_bytes()), "Ab.é1".as_bytes());
    }
}
