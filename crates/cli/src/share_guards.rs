//! Keeps two servers from sharing one folder: they would know nothing of each other's open files.
//!
//! Each folder that clients may change has a lock file in a folder of the host's, named after the
//! folder's inode. The folder itself is locked too while it is open (`claim_folder`), which servers
//! in other containers see.

use std::collections::HashMap;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, PoisonError};

use frevo_config::{Config, ShareSection};
use frevo_server::folders::claim_folder;
use frevo_store::Vfs;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// Bytes of a lock file that are read: a number of a process.
const PID_BYTES: u64 = 16;

/// The locks that this server has, until it ends.
pub(crate) struct ShareGuards {
    /// The folder of the lock files; None without one for this user.
    folder: Option<PathBuf>,
    files: Mutex<HashMap<FolderKey, Guard>>,
}

/// The identity of a shared folder on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FolderKey {
    device: u64,
    inode: u64,
}

struct Guard {
    file: File,
    is_held: bool,
}

impl ShareGuards {
    /// Locks the folders of a configuration, before the process is confined. Those that another
    /// server has are refused by [`Self::take`].
    pub(crate) fn of(config: &Config) -> Self {
        let guards = Self { folder: place(), files: Mutex::default() };
        for share in config.shares.iter().filter(|share| !share.cluster) {
            let _ = guards.lock(share);
        }
        guards
    }

    /// Keeps other servers out of the folder of a share, which is open as `vfs`.
    ///
    /// # Errors
    /// A sentence when another server has it.
    pub(crate) fn take(&self, share: &ShareSection, vfs: &dyn Vfs) -> Result<(), String> {
        // The nodes of a cluster have the folder open, and use it in turn.
        if share.cluster || share.read_only && share.write_list.is_empty() {
            return Ok(());
        }
        self.lock(share)?;
        claim_folder(vfs).map_err(|error| error.to_string())
    }

    fn lock(&self, share: &ShareSection) -> Result<(), String> {
        let path = share.shared_folder();
        let (Some(folder), Ok(metadata)) = (&self.folder, fs::metadata(&path)) else {
            return Ok(());
        };
        let key = FolderKey { device: metadata.dev(), inode: metadata.ino() };
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(guard) = files.get_mut(&key) {
            return guard.hold(&path);
        }
        // If the guard's own file cannot be made, the lock on the shared folder has to suffice.
        let Ok(file) = open(folder, key) else { return Ok(()) };
        files.entry(key).or_insert(Guard { file, is_held: false }).hold(&path)
    }
}

impl Guard {
    fn hold(&mut self, path: &Path) -> Result<(), String> {
        if self.is_held {
            return Ok(());
        }
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                self.is_held = true;
                let _ = self.write_pid();
                Ok(())
            }
            Err(Errno::WOULDBLOCK) => {
                let path = path.display();
                let pid = self.read_pid().unwrap_or_default();
                let how = if pid.is_empty() {
                    String::from("stop that server first")
                } else {
                    format!("stop the process {pid} first, or start with --replace {pid}")
                };
                Err(format!("another server has the folder {path}; {how}"))
            }
            Err(_) => Ok(()),
        }
    }

    fn write_pid(&mut self) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        write!(self.file, "{}", process::id())
    }

    fn read_pid(&mut self) -> std::io::Result<String> {
        let mut text = String::new();
        self.file.rewind()?;
        (&self.file).take(PID_BYTES).read_to_string(&mut text)?;
        Ok(text.trim().parse::<u32>().map_or_else(|_| String::new(), |pid| pid.to_string()))
    }
}

/// The folder that all servers of this user have for lock files.
fn place() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/run/frevo/shares"));
    }
    let folder = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    Some(folder.filter(|folder| folder.is_absolute())?.join("frevo/shares"))
}

fn open(folder: &Path, key: FolderKey) -> std::io::Result<File> {
    let FolderKey { device, inode } = key;
    let mut make = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(make.recursive(true), 0o700).create(folder)?;
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags.cast_signed())
        .open(folder.join(format!("{device:x}-{inode:x}.lock")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configured::folder;

    /// Tests that a second server is refused by its first look, and let in once the first has gone.
    #[test]
    fn a_folder_has_one_server() {
        let place = tempfile::tempdir().unwrap();
        let shared = tempfile::tempdir().unwrap();
        let guards =
            || ShareGuards { folder: Some(place.path().join("locks")), files: Mutex::default() };
        let mut share = ShareSection::new("a".parse().unwrap(), shared.path().to_owned());
        let vfs = folder::open(&share).unwrap();
        let (one, two) = (guards(), guards());
        one.take(&share, &*vfs).unwrap();
        one.take(&share, &*vfs).unwrap();
        let refused = two.take(&share, &*vfs).unwrap_err();
        let pid = process::id();
        assert!(refused.contains(&format!("start with --replace {pid}")), "{refused}");
        assert!(refused.contains(shared.path().to_str().unwrap()), "{refused}");
        drop(one);
        two.take(&share, &*vfs).unwrap();
        // A read-only share needs no guard of its own, so it can be served although `two` holds the
        // guard of this folder.
        share.read_only = true;
        guards().take(&share, &*vfs).unwrap();
    }
}
