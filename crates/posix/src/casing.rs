//! File systems behind FUSE that find names in another case, as exfat-fuse.

use std::collections::HashSet;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::cache::each_name;
use crate::limits::CASED_MOUNTS;
use crate::{sys, volume};

/// Entries of a folder that are looked at to find out if case is ignored.
const PROBED_NAMES: usize = 1_000;
/// The time for which a mount's answer is taken. The number of a mount that went may be given to
/// another one.
const TRUSTED: Duration = Duration::from_secs(10);

/// True if a file system of FUSE finds a name in another case than the stored one. An empty folder
/// says nothing, which is None, so the family of FAT is known otherwise.
pub(crate) fn ignores_case(root: BorrowedFd<'_>) -> Option<bool> {
    if !volume::is_fuse(root) {
        return Some(false);
    }
    if volume::is_fat_on_fuse(root) { Some(true) } else { finds_other_case(root) }
}

/// The file systems of a share that ignore case: its own, and those that are mounted below its root.
#[derive(Debug)]
pub(crate) struct Casing {
    /// True if the file system of the share's root ignores case.
    pub(crate) home: bool,
    /// True once a file system below was seen that ignores case.
    below: AtomicBool,
    /// Answers about file systems below the root.
    known: Mutex<Vec<Known>>,
}

/// The answer of one file system below the root.
#[derive(Debug, Clone, Copy)]
struct Known {
    device: u64,
    ignores_case: bool,
    at: Instant,
}

impl Casing {
    /// Looks at the file system of a share's root.
    pub(crate) fn of(root: BorrowedFd<'_>) -> Self {
        let home = ignores_case(root).unwrap_or(false);
        Self { home, below: AtomicBool::new(false), known: Mutex::default() }
    }

    /// True if a name may have to be looked up in its stored spelling.
    pub(crate) fn respells(&self) -> bool {
        self.home || self.below.load(Ordering::Relaxed)
    }

    /// Returns the answer of a file system below the root, which `probe` looks at. Where that finds
    /// none, the last answer holds, however old it is.
    pub(crate) fn of_mount(&self, device: u64, probe: impl FnOnce() -> Option<bool>) -> bool {
        let known = self.known.lock().iter().find(|known| known.device == device).copied();
        if let Some(known) = known.filter(|known| known.at.elapsed() < TRUSTED) {
            return known.ignores_case;
        }
        let Some(ignores_case) = probe() else {
            return known.is_some_and(|known| known.ignores_case);
        };
        self.note(device, ignores_case);
        ignores_case
    }

    pub(crate) fn note(&self, device: u64, ignores_case: bool) {
        if ignores_case {
            self.below.store(true, Ordering::Relaxed);
        }
        let mut known = self.known.lock();
        known.retain(|known| known.device != device);
        if known.len() >= CASED_MOUNTS {
            known.remove(0);
        }
        known.push(Known { device, ignores_case, at: Instant::now() });
    }

    /// Treats the share's file system as one that ignores case.
    #[cfg(test)]
    pub(crate) fn pretend(&mut self) {
        self.home = true;
    }
}

/// True if a name of the folder is found in another case, too. None if no name tells it.
pub(crate) fn finds_other_case(root: BorrowedFd<'_>) -> Option<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let fd = sys::open_beneath(root, b".", flags, Mode::empty(), false).ok()?;
    let mut names = HashSet::new();
    // The error from the closure only ends the reading; the names that were read are kept.
    let _ = each_name(fd.as_fd(), |name| {
        names.insert(name.to_vec());
        if names.len() < PROBED_NAMES { Ok(()) } else { Err(Errno::OVERFLOW) }
    });
    let other = names.iter().map(|name| swapped(name)).find(|other| !names.contains(other));
    match sys::stat_at(root, &other?) {
        Ok(_) => Some(true),
        Err(Errno::NOENT) => Some(false),
        Err(_) => None,
    }
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

#[cfg(test)]
mod tests {
    use rustix::fs::CWD;

    use super::*;

    #[test]
    fn the_last_mounts_are_remembered() {
        let casing = Casing { home: false, below: AtomicBool::new(false), known: Mutex::default() };
        let is_remembered = |device| casing.of_mount(device, || Some(false));
        casing.note(0, true);
        assert!(casing.respells() && is_remembered(0));
        for device in 1..CASED_MOUNTS as u64 {
            casing.note(device, true);
        }
        assert!(is_remembered(0), "so many fit");
        casing.note(CASED_MOUNTS as u64, true);
        assert!(!is_remembered(0), "the first one makes room");
        assert_eq!(casing.known.lock().len(), CASED_MOUNTS);
    }

    #[test]
    fn a_look_that_tells_nothing_keeps_the_last_answer() {
        let casing = Casing { home: false, below: AtomicBool::new(false), known: Mutex::default() };
        assert!(!casing.of_mount(1, || None));
        assert!(casing.of_mount(1, || Some(true)), "the look before told nothing");
        let grow_old = || {
            for known in casing.known.lock().iter_mut() {
                known.at = Instant::now().checked_sub(TRUSTED).unwrap();
            }
        };
        grow_old();
        assert!(casing.of_mount(1, || None), "as it was");
        assert!(!casing.of_mount(1, || Some(false)));
        grow_old();
        assert!(!casing.of_mount(1, || None));
    }

    #[test]
    fn a_file_system_of_linux_finds_no_other_case() {
        let host = tempfile::tempdir().unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let root = rustix::fs::openat(CWD, host.path(), flags, Mode::empty()).unwrap();
        assert_eq!(finds_other_case(root.as_fd()), None, "an empty folder");
        std::fs::write(host.path().join("a"), "").unwrap();
        assert_eq!(finds_other_case(root.as_fd()), Some(false));
        // Both spellings of the name exist, so it does not show whether case is ignored.
        std::fs::write(host.path().join("A"), "").unwrap();
        assert_eq!(finds_other_case(root.as_fd()), None);
        assert_eq!(swapped("aB.é1".as_bytes()), "Ab.é1".as_bytes());
    }
}
