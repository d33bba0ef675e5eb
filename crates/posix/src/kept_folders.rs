//! Folders that stay open between requests, so that a new name in one of them needs no open of its
//! folder.
//!
//! Each use looks at the path again, component by component from the share's root and without
//! following links, and compares the folder there with the open one. A folder that another program
//! has moved, replaced, removed or covered by a mount is not used any more. Nothing must be told for
//! that, and it is as good as opening the folder by its path. It costs less for short paths only.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use frevo_store::FileKey;
use frevo_store::vfs::Kind;
use hashbrown::HashMap;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, Statx};

use crate::limits::{KEPT_FOLDER_BYTES, KEPT_FOLDER_DEPTH, KEPT_FOLDERS, KEPT_FOLDERS_PER_SHARE};
use crate::stat;
use crate::sys;

/// Folders that all shares of this process keep open.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Returns the bytes that the open folders of all shares take.
pub(crate) fn bytes() -> usize {
    KEPT.load(Ordering::Relaxed) * KEPT_FOLDER_BYTES
}

/// A folder of one mount: the same folder may be mounted elsewhere, with other rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    key: FileKey,
    /// The number of the mount. It is not used again while the folder is open.
    mount: u64,
}

impl Identity {
    /// None for what is no folder.
    fn of(stx: &Statx) -> Option<Self> {
        let identity = Self { key: stat::key_of(stx), mount: stx.stx_mnt_id };
        (stat::kind_of(stx) == Kind::Directory).then_some(identity)
    }
}

/// An open folder, counted in [`KEPT`].
#[derive(Debug)]
struct OpenFolder {
    fd: Arc<OwnedFd>,
    identity: Identity,
    /// The number of the last use.
    used: u64,
}

impl OpenFolder {
    /// None if as many are open as may be.
    fn new(fd: Arc<OwnedFd>, identity: Identity, used: u64) -> Option<Self> {
        let more = |kept: usize| (kept < KEPT_FOLDERS).then_some(kept + 1);
        KEPT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Self { fd, identity, used })
    }
}

impl Drop for OpenFolder {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Slots for the hashes of the paths that were asked for lately.
const ASKED: usize = 64;

/// The open folders of one share.
#[derive(Debug)]
pub(crate) struct KeptFolders {
    /// By path below the root.
    folders: Mutex<HashMap<Box<[u8]>, OpenFolder>>,
    /// The folders asked for once: one is kept from the second time on.
    asked: [AtomicU64; ASKED],
    uses: AtomicU64,
}

impl Default for KeptFolders {
    fn default() -> Self {
        Self {
            folders: Mutex::default(),
            asked: [const { AtomicU64::new(0) }; ASKED],
            uses: AtomicU64::new(0),
        }
    }
}

impl KeptFolders {
    /// Returns a folder that was left open by [`Self::keep`] and is at `path` below `root` now, and
    /// its state.
    pub(crate) fn at(&self, root: BorrowedFd<'_>, path: &[u8]) -> Option<(Arc<OwnedFd>, Statx)> {
        let mut found: Option<(Arc<OwnedFd>, Statx)> = None;
        for (path, component) in steps(path)? {
            let (fd, identity) = self.find(path)?;
            let above = found.as_ref().map_or(root, |(fd, _)| fd.as_fd());
            // The component is opened below `above` without following links, so it cannot lead out
            // of the share. It must still be the same folder.
            match sys::stat_at(above, component) {
                Ok(stx) if Identity::of(&stx) == Some(identity) => found = Some((fd, stx)),
                _ => {
                    self.forget(path);
                    return None;
                }
            }
        }
        found
    }

    /// Leaves the folder at `path` below `root`, which has just been opened for reading, open for
    /// later requests, if it is used often. `home` is the device of `root`: a file system that is
    /// mounted below can be unmounted.
    pub(crate) fn keep(
        &self,
        root: BorrowedFd<'_>,
        home: u64,
        path: &[u8],
        fd: &Arc<OwnedFd>,
        stx: &Statx,
    ) {
        let identity_of =
            |stx: &Statx| Identity::of(stx).filter(|folder| folder.key.device == home);
        let (Some(identity), Some(steps)) = (identity_of(stx), steps(path)) else { return };
        if !self.is_asked_again(path) {
            return;
        }
        for (above, _) in steps.filter(|(above, _)| above.len() < path.len()) {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let fd = sys::open_beneath(root, above, flags, Mode::empty(), false);
            let Ok(fd) = fd else { return };
            let Ok(stx) = sys::stat_fd(fd.as_fd()) else { return };
            let Some(identity) = identity_of(&stx) else { return };
            self.insert(above, Arc::new(fd), identity);
        }
        self.insert(path, Arc::clone(fd), identity);
    }

    fn find(&self, path: &[u8]) -> Option<(Arc<OwnedFd>, Identity)> {
        let used = self.uses.fetch_add(1, Ordering::Relaxed);
        let mut folders = self.folders.lock();
        let folder = folders.get_mut(path)?;
        folder.used = used;
        Some((Arc::clone(&folder.fd), folder.identity))
    }

    /// Closes a folder, if it is open.
    pub(crate) fn forget(&self, path: &[u8]) {
        let removed = self.folders.lock().remove(path);
        // The folder's descriptors are closed only here, after the lock was released.
        drop(removed);
    }

    /// Closes all folders.
    pub(crate) fn clear(&self) {
        let removed = std::mem::take(&mut *self.folders.lock());
        // The folders' descriptors are closed only here, after the lock was released.
        drop(removed);
    }

    /// True for a path that was asked for a short time ago.
    fn is_asked_again(&self, path: &[u8]) -> bool {
        let folders = self.folders.lock();
        let hash = std::hash::BuildHasher::hash_one(folders.hasher(), path);
        drop(folders);
        self.asked[hash as usize % ASKED].swap(hash, Ordering::Relaxed) == hash
    }

    fn insert(&self, path: &[u8], fd: Arc<OwnedFd>, identity: Identity) {
        let used = self.uses.fetch_add(1, Ordering::Relaxed);
        let mut folders = self.folders.lock();
        folders.remove(path);
        if folders.len() >= KEPT_FOLDERS_PER_SHARE {
            forget_oldest(&mut folders);
        }
        let folder = OpenFolder::new(Arc::clone(&fd), identity, used).or_else(|| {
            forget_oldest(&mut folders);
            OpenFolder::new(fd, identity, used)
        });
        if let Some(folder) = folder {
            folders.insert(path.into(), folder);
        }
    }
}

/// Closes the least recently used folder.
fn forget_oldest(folders: &mut HashMap<Box<[u8]>, OpenFolder>) {
    let oldest = folders.iter().min_by_key(|(_, kept)| kept.used);
    if let Some(oldest) = oldest.map(|(path, _)| path.clone()) {
        folders.remove(&oldest);
    }
}

/// Returns the paths of the folders on the way to `path`, itself included, each with its last
/// component; None for a path with too many.
fn steps(path: &[u8]) -> Option<impl Iterator<Item = (&[u8], &[u8])>> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let depth = ends.clone().take(KEPT_FOLDER_DEPTH).count() + 1;
    let ends = ends.chain([path.len()]);
    (!path.is_empty() && depth <= KEPT_FOLDER_DEPTH).then(|| {
        ends.scan(0, |start, end| {
            let step = (&path[..end], &path[*start..end]);
            *start = end + 1;
            Some(step)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_steps_as_far_as_they_are_short() {
        let of = |path: &'static str| {
            let text = |bytes| core::str::from_utf8(bytes).unwrap();
            steps(path.as_bytes())
                .map(|steps| steps.map(|(path, last)| (text(path), text(last))).collect::<Vec<_>>())
        };
        assert_eq!(KEPT_FOLDER_DEPTH, 2);
        assert_eq!(of(""), None);
        assert_eq!(of("a"), Some(vec![("a", "a")]));
        assert_eq!(of("a/bc"), Some(vec![("a", "a"), ("a/bc", "bc")]));
        assert_eq!(of("a/b/c"), None);
        assert_eq!(of("a/b/c/d"), None);
    }
}
