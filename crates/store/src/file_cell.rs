//! The cell of an open file: its state behind a lock, and its observation.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};

use parking_lot::MutexGuard;

use crate::file::File;
use crate::observe::Observation;
use crate::order::{Guard, Ordered, rank};
use crate::vfs::FileKey;

/// A file's shared state behind its lock. Hold the guard briefly, and never across an await.
#[derive(Debug)]
pub struct FileCell {
    /// The file's identity. Renaming a stream changes the stream in it.
    key: FileKey,
    stream: AtomicU64,
    file: Ordered<File, { rank::FILE }>,
    /// The observation of changes by other programs, while a client has a caching right.
    observation: parking_lot::Mutex<Option<Box<dyn Observation>>>,
}

impl FileCell {
    /// Makes the cell of `file`, whose identity is `key`.
    pub(crate) fn new(key: FileKey, file: File) -> Self {
        let stream = AtomicU64::new(key.stream);
        let (file, observation) = (Ordered::new(file), parking_lot::Mutex::new(None));
        Self { key, stream, file, observation }
    }

    /// Locks the file's state.
    pub fn lock(&self) -> Guard<MutexGuard<'_, File>, { rank::FILE }> {
        self.file.lock()
    }

    /// Observes the file with the observation that `begin` makes, until no client has a caching
    /// right on it. Does nothing if the file is observed already. The cell must not be locked.
    pub fn observe(&self, begin: impl FnOnce() -> Option<Box<dyn Observation>>) {
        let mut observation = self.observation.lock();
        if observation.is_none() {
            *observation = begin();
        }
    }

    /// Ends the observation of a file without caching rights. It runs after locks are released,
    /// because it asks the host. An observation for a new caching right stays.
    pub(crate) fn let_alone(&self) {
        let mut observation = self.observation.lock();
        let ended = if self.lock().oplocks.is_empty() { observation.take() } else { None };
        drop(observation);
        drop(ended);
    }

    /// True if changes by other programs are observed.
    pub fn is_observed(&self) -> bool {
        self.observation.lock().is_some()
    }

    /// Returns the identity of the file's stream.
    pub fn key(&self) -> FileKey {
        FileKey { stream: self.stream.load(Ordering::Acquire), ..self.key }
    }

    /// Changes the stream, after a rename.
    pub(crate) fn set_stream(&self, stream: u64) {
        self.stream.store(stream, Ordering::Release);
    }
}
