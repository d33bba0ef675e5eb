//! The open streams of a share, and its side folder.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use frevo_store::FileKey;
use frevo_store::surplus::less_room;
use frevo_store::vfs::VfsResult;
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::body::Body;
use crate::errno::fault_of;
use crate::limits::{CACHE_PATIENCE, SIDE_LOCKS};
use crate::options::{PosixOptions, SIDE_FOLDER, Streams};
use crate::{patience, sys};

/// Closed streams from which on the table is tidied.
const UNTIDY: usize = 64;

/// The open streams by key.
pub(crate) type OpenStreams = HashMap<FileKey, Weak<Body>>;

/// The open streams of a share, and its side folder.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) open: Mutex<OpenStreams>,
    /// Streams that have closed since the table was tidied.
    closed: AtomicUsize,
    pub(crate) side: Folder,
    /// Held while an entry is made in the directory of a file in the side folder; by the file's number.
    making: [Mutex<()>; SIDE_LOCKS],
}

impl Table {
    pub(crate) fn open(root: BorrowedFd<'_>, options: &PosixOptions) -> Self {
        let side = Folder::open(root, options);
        let making = [const { Mutex::new(()) }; SIDE_LOCKS];
        Self { open: Mutex::default(), closed: AtomicUsize::new(0), side, making }
    }

    /// Keeps other threads from making entries for this file in the side folder. A core waits for a
    /// limited time: another thread may write data meanwhile.
    pub(crate) fn making(&self, inode: u64) -> VfsResult<MutexGuard<'_, ()>> {
        let making = &self.making[inode as usize % SIDE_LOCKS];
        if !patience::is_short() {
            return Ok(making.lock());
        }
        let locked = making.try_lock_for(CACHE_PATIENCE);
        locked.ok_or_else(|| fault_of(patience::give_up()))
    }

    /// Notes that a stream closes. Closed streams leave the table once they are half of it, so that many
    /// of them leave no memory behind. Waits for nobody: a later close does what this one cannot.
    pub(crate) fn note_closed(&self) {
        let closed = self.closed.fetch_add(1, Ordering::Relaxed) + 1;
        if closed < UNTIDY {
            return;
        }
        let Some(mut open) = self.open.try_lock() else { return };
        if 2 * closed >= open.len() {
            self.closed.store(0, Ordering::Relaxed);
            open.retain(|_, body| body.strong_count() > 0);
            if let Some(room) = less_room(open.capacity(), open.len()) {
                open.shrink_to(room);
            }
        }
    }

    /// Locks the open streams. A core waits for a limited time: other threads copy and free streams
    /// under the lock.
    pub(crate) fn lock_soon(&self) -> VfsResult<MutexGuard<'_, OpenStreams>> {
        if !patience::is_short() {
            return Ok(self.open.lock());
        }
        let locked = self.open.try_lock_for(CACHE_PATIENCE);
        locked.ok_or_else(|| fault_of(patience::give_up()))
    }
}

/// Returns the body of a stream that is open.
pub(crate) fn alive(open: &OpenStreams, key: FileKey) -> Option<Arc<Body>> {
    open.get(&key).and_then(Weak::upgrade)
}

pub(crate) fn remember(open: &mut OpenStreams, key: FileKey, body: &Arc<Body>) {
    if open.len() >= 64 && open.len() == open.capacity() {
        open.retain(|_, body| body.strong_count() > 0);
    }
    open.insert(key, Arc::downgrade(body));
}

pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);

/// The side folder, once it exists.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: OnceLock<OwnedFd>,
    pub(crate) made: AtomicU64,
}

impl Folder {
    fn open(root: BorrowedFd<'_>, options: &PosixOptions) -> Self {
        let folder = Self { fd: OnceLock::new(), made: AtomicU64::new(0) };
        folder.find(root, options);
        folder
    }

    /// Opens the folder if another program has made it meanwhile.
    pub(crate) fn find(&self, root: BorrowedFd<'_>, options: &PosixOptions) {
        if options.streams == Streams::Off || self.get().is_some() {
            return;
        }
        let path = SIDE_FOLDER.as_bytes();
        if let Ok(fd) = sys::open_beneath(root, path, DIRECTORY, Mode::empty(), false) {
            // Another thread may have opened it first.
            let _ = self.fd.set(fd);
        }
    }

    pub(crate) fn get(&self) -> Option<BorrowedFd<'_>> {
        self.fd.get().map(|fd| fd.as_fd())
    }

    pub(crate) fn make(&self, root: BorrowedFd<'_>) -> VfsResult<BorrowedFd<'_>> {
        if let Some(fd) = self.get() {
            return Ok(fd);
        }
        let path = SIDE_FOLDER.as_bytes();
        match rustix::fs::mkdirat(root, path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(fault_of(errno)),
        }
        let fd =
            sys::open_beneath(root, path, DIRECTORY, Mode::empty(), false).map_err(fault_of)?;
        Ok(self.fd.get_or_init(|| fd).as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousands of streams leave little behind when they have closed, while another one stays open.
    #[test]
    fn a_crowd_of_streams_leaves_no_room() {
        let host = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(host.path()).unwrap();
        let table = Table::open(root.as_fd(), &PosixOptions::default());
        let open = |number| {
            let body = Arc::new(Body::new(String::from("s"), super::super::body::Where::Attribute));
            remember(&mut table.open.lock(), FileKey::of_file(1, number), &body);
            body
        };
        let stays = open(0);
        for body in (1..10_000).map(open).collect::<Vec<_>>() {
            drop(body);
            table.note_closed();
        }
        let open = table.open.lock();
        assert!(
            alive(&open, FileKey::of_file(1, 0)).is_some_and(|body| Arc::ptr_eq(&body, &stays))
        );
        assert!(open.len() <= 2 * UNTIDY, "{} entries", open.len());
        assert!(open.capacity() <= 8 * UNTIDY, "room for {}", open.capacity());
    }

    /// Tests that a core does not wait for a thread that makes an entry of the same file.
    #[test]
    fn a_core_does_not_wait_for_an_entry() {
        let host = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(host.path()).unwrap();
        let table = Table::open(root.as_fd(), &PosixOptions::default());
        let begins = |inode| patience::short(|| table.making(inode).is_ok());
        let held = table.making(1).unwrap();
        assert_eq!(begins(1), (false, true));
        assert_eq!(begins(2), (true, false));
        drop(held);
        assert_eq!(begins(1), (true, false));
    }
}
