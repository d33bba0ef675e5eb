//! The requests that wait for the holders of leases and oplocks. A request waits for the holders that it
//! finds: while it waits nobody is granted what it waits for, so that holders in a row, each of which
//! gives way to the next, do not lengthen the wait.
//!
//! Deviation: MS-FSA 2.1.5.18 knows only the holders. A client gets less caching for a moment, which
//! each client has to expect of each request.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;

use super::{H, LeaseState, NONE, W};
use crate::order::{Ordered, rank};
use crate::surplus::return_surplus;
use crate::vfs::FileKey;

/// The requests that wait for one file: how many of them for each right.
#[derive(Debug, Default)]
struct Awaited {
    write: usize,
    handle: usize,
}

impl Awaited {
    fn counts(&mut self, rights: LeaseState) -> impl Iterator<Item = &mut usize> {
        let counts = [(W, &mut self.write), (H, &mut self.handle)];
        counts.into_iter().filter(move |(right, _)| rights.contains(*right)).map(|(_, n)| n)
    }

    const fn rights(&self) -> LeaseState {
        let write = if self.write == 0 { NONE } else { W };
        let handle = if self.handle == 0 { NONE } else { H };
        write.union(handle)
    }
}

/// The requests that wait, by file. A file may be closed and opened again meanwhile.
#[derive(Debug, Default)]
pub struct Queues {
    files: Ordered<HashMap<FileKey, Awaited>, { rank::LAST }>,
    /// The number of `files`, for requests that find nobody waiting.
    count: AtomicUsize,
}

impl Queues {
    /// Takes a place among the requests that wait for `rights` in the file `key`.
    pub fn enter(self: &Arc<Self>, key: FileKey, rights: LeaseState) -> Queued {
        let mut files = self.files.lock();
        let awaited = files.entry(key).or_default();
        awaited.counts(rights).for_each(|count| *count = count.saturating_add(1));
        self.count.store(files.len(), Ordering::Release);
        Queued { queues: Arc::clone(self), key, rights }
    }

    /// Returns the rights that some request waits for.
    pub(crate) fn awaited(&self, key: FileKey) -> LeaseState {
        if self.is_empty() {
            return NONE;
        }
        self.files.lock().get(&key).map_or(NONE, Awaited::rights)
    }

    /// True if no request waits.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }
}

/// The place of a request among those that wait for a file; given up when it is dropped.
#[derive(Debug)]
pub struct Queued {
    queues: Arc<Queues>,
    key: FileKey,
    rights: LeaseState,
}

impl Drop for Queued {
    fn drop(&mut self) {
        let mut files = self.queues.files.lock();
        let Some(awaited) = files.get_mut(&self.key) else { return };
        awaited.counts(self.rights).for_each(|count| *count = count.saturating_sub(1));
        if awaited.rights().is_empty() {
            files.remove(&self.key);
            return_surplus(&mut *files);
        }
        self.queues.count.store(files.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: FileKey = FileKey::of_file(1, 7);

    #[test]
    fn a_right_is_awaited_while_one_request_waits_for_it() {
        let queues = Arc::new(Queues::default());
        let write = queues.enter(KEY, W);
        let both = queues.enter(KEY, W.union(H));
        let other = queues.enter(FileKey::of_file(1, 8), H);
        assert_eq!(queues.awaited(KEY), W.union(H));
        drop(both);
        assert_eq!(queues.awaited(KEY), W);
        drop(write);
        assert_eq!(queues.awaited(KEY), NONE);
        assert!(!queues.is_empty());
        drop(other);
        assert!(queues.is_empty() && queues.files.lock().is_empty());
    }
}
