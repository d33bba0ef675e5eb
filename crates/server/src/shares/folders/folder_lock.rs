//! A lock on the folder of a share, which another server that shares it would break.
//!
//! It is a lock of the kernel on the folder itself, so that servers in other containers see it. It
//! ends with its process. On file systems without such locks there is none.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// A lock, until the last share of the folder gives it up.
#[derive(Debug)]
pub(super) struct FolderLock {
    /// None only while it is dropped.
    folder: Option<Arc<File>>,
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // HELD is locked until the folder is unlocked, so that another share that opens it now
        // waits and does not fail. A forked child may still have a copy of the descriptor, so
        // closing alone would not unlock it.
        let _held = HELD.lock();
        if let Some(folder) = self.folder.take().and_then(Arc::into_inner) {
            let _ = rustix::fs::flock(&folder, FlockOperation::Unlock);
        }
    }
}

/// Locked folders by device and inode.
type LockTable = HashMap<(u64, u64), Weak<File>>;

/// The locks of this process: its own shares of one folder have one lock.
static HELD: LazyLock<Mutex<LockTable>> = LazyLock::new(Mutex::default);

/// Locks the folder at `path`. None where that is not possible.
///
/// # Errors
/// ResourceBusy when another process has locked it.
pub(super) fn take(path: &Path) -> io::Result<Option<FolderLock>> {
    let folder = File::open(path)?;
    let metadata = folder.metadata()?;
    let key = (metadata.dev(), metadata.ino());
    let mut held = HELD.lock();
    if let Some(folder) = held.get(&key).and_then(Weak::upgrade) {
        return Ok(Some(FolderLock { folder: Some(folder) }));
    }
    held.retain(|_, folder| folder.strong_count() > 0);
    match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            let folder = Arc::new(folder);
            held.insert(key, Arc::downgrade(&folder));
            Ok(Some(FolderLock { folder: Some(folder) }))
        }
        Err(Errno::WOULDBLOCK) => {
            let path = path.display();
            let text = format!("another server has the folder {path}; stop that server first");
            Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
        }
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    /// Tests that shares of one folder, which come and go at once, are not in each other's way.
    #[test]
    fn shares_of_one_process_never_refuse_each_other() {
        let shared = tempfile::tempdir().unwrap();
        let take = || (0..5000).for_each(|_| drop(super::take(shared.path()).unwrap()));
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(take);
            }
        });
    }
}
