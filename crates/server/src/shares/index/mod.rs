//! The index of a share's names, sizes and dates: made by a walk through the share, kept true by the changes that this
//! server makes and by those that the host tells, and asked by searches.
//!
//! A [`ShareIndex`] has a thread of its own, which alone changes the index. It hears of a change as a path, and looks at
//! what is there: the order of changes does not matter, and one that is told twice does no harm. The index knows
//! nothing of rights: [`Searcher`] looks at each file that it tells with the rights of the user who asks.
//!
//! The index is in memory alone. A server that starts walks through its shares again.

mod inbox;
mod overlap;
mod search;
mod walk;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use frevo_index::limits::{BYTES, ENTRIES};
use frevo_index::{Index, Room};
use frevo_store::watch::Listener;
use frevo_store::{FolderId, HostChange, Vfs};
use parking_lot::{Mutex, RwLock};
use serde::Serialize;

use crate::base::host;
use crate::shares::life::Life;
use inbox::Inbox;
pub(crate) use overlap::Overlap;
pub use search::{FoundFile, FoundPage, SearchError};
pub(crate) use search::{Searcher, Viewer};
use walk::Walker;

/// The rules of a share for its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexRules {
    /// Files and folders that it has at most; further ones are not found.
    pub max_files: usize,
    /// Bytes of memory that it takes at most.
    pub max_bytes: usize,
}

impl Default for IndexRules {
    /// As much as [`frevo_index::limits`] says.
    fn default() -> Self {
        Self { max_files: ENTRIES, max_bytes: BYTES }
    }
}

/// The state of an index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct IndexState {
    /// True once a walk has ended, and all files had room.
    pub complete: bool,
    /// True while a walk through the share goes on.
    pub walking: bool,
    /// True if changes by other programs are heard of at once, and not at the next walk alone.
    pub watched: bool,
    /// True if there was no room for some files.
    pub full: bool,
    /// Files and folders.
    pub files: u64,
    /// Bytes of memory.
    pub bytes: u64,
    /// Walks that have ended.
    pub walks: u64,
    /// Seconds that the last walk took; zero before the first has ended.
    pub last_walk_seconds: u64,
}

/// The index of a share.
pub(crate) struct ShareIndex {
    rules: IndexRules,
    index: RwLock<Index>,
    inbox: Arc<Inbox>,
    progress: Progress,
    is_started: AtomicBool,
}

/// The state of the thread's work.
#[derive(Debug, Default)]
struct Progress {
    walking: AtomicBool,
    watched: AtomicBool,
    full: AtomicBool,
    walks: AtomicU64,
    last_walk: Mutex<Duration>,
}

impl fmt::Debug for ShareIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShareIndex").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl ShareIndex {
    /// Returns an index that has nothing, until it is started.
    pub(crate) fn new(rules: IndexRules) -> Self {
        let room = Room { entries: rules.max_files, bytes: rules.max_bytes };
        Self {
            rules,
            index: RwLock::new(Index::new(room)),
            inbox: Arc::default(),
            progress: Progress::default(),
            is_started: AtomicBool::new(false),
        }
    }

    pub(crate) const fn rules(&self) -> IndexRules {
        self.rules
    }

    /// Returns how far the index is.
    pub(crate) fn state(&self) -> IndexState {
        let index = self.index.read();
        let (files, bytes) = (index.len(), index.bytes());
        drop(index);
        let full = self.progress.full.load(Ordering::Relaxed);
        let walks = self.progress.walks.load(Ordering::Relaxed);
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        IndexState {
            complete: self.is_complete(),
            walking: self.progress.walking.load(Ordering::Relaxed),
            watched: self.progress.watched.load(Ordering::Relaxed),
            full,
            files: number(files),
            bytes: number(bytes),
            walks,
            last_walk_seconds: self.progress.last_walk.lock().as_secs(),
        }
    }

    /// True once a walk has ended, and all files had room.
    fn is_complete(&self) -> bool {
        self.progress.walks.load(Ordering::Relaxed) > 0
            && !self.progress.full.load(Ordering::Relaxed)
    }

    /// Starts the thread, if it does not run yet. `files` are the share's files as the server sees them.
    ///
    /// # Errors
    /// There is no thread.
    pub(crate) fn start(self: &Arc<Self>, share: Indexed) -> io::Result<()> {
        if self.is_started.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let walker = Walker::new(self, share);
        // The thread works for all users, so it must not begin as the user that this thread acts as.
        let _server = host::as_server();
        let named = std::thread::Builder::new().name(String::from("index"));
        named.spawn(move || walker.run()).map(drop).inspect_err(|_| {
            self.is_started.store(false, Ordering::Release);
        })
    }

    /// Ends the thread soon.
    pub(crate) fn stop(&self) {
        self.inbox.stop();
    }

    /// Returns the ear of the index for the changes that this server makes, also those through other shares.
    pub(crate) fn listener(&self, others: Vec<Overlap>) -> Listener {
        let inbox = Arc::clone(&self.inbox);
        Listener::new(move |folder_id: FolderId, change: &HostChange<'_>| {
            if inbox.is_of(folder_id) {
                inbox.hear(change);
            } else if let Some(other) = others.iter().find(|other| other.is_of(folder_id)) {
                other.tell(&inbox, change);
            }
        })
    }
}

impl Drop for ShareIndex {
    fn drop(&mut self) {
        self.inbox.stop();
    }
}

/// A share, as its index needs it.
#[derive(Debug)]
pub(crate) struct Indexed {
    pub(crate) name: String,
    /// The files as the server sees them.
    pub(crate) files: Arc<dyn Vfs>,
    /// The folder of deleted files, which is left out.
    pub(crate) bin: Option<String>,
    pub(crate) life: Arc<Life>,
}

#[cfg(test)]
mod tests;
