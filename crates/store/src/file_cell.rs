//! The cell of an open file: its state behind a lock, and its observation.

use alloc::boxed::Box;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
    /// [`Unstable`]
    unstable: AtomicU64,
    /// Held from reading the file's attributes to storing them changed.
    attributes: parking_lot::Mutex<()>,
    /// The moment at which FILE_ATTRIBUTE_ARCHIVE was known to be set, or not to be storable; 0 for
    /// none.
    archived_at: AtomicU64,
    /// Number of changes that moved the file's times.
    moves: AtomicU64,
    /// Number of times that earlier times were restored.
    restorations: AtomicU64,
    /// True once the file was seen with several links.
    is_linked: AtomicBool,
    /// True once the close of its last descriptor may take long.
    closes_slowly: AtomicBool,
}

/// Changes of a file that were answered and may not be on stable storage yet. A FLUSH through any
/// Open of the file covers them, whichever Open made them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unstable(u64);

impl Unstable {
    /// The file was made.
    pub const MADE: Self = Self(1);
    /// The file got a name beside the first one, or instead of it.
    pub const NAMED: Self = Self(2);
    /// Attributes, times, protection or streams were changed.
    pub const ALTERED: Self = Self(4);

    /// Bits of changes. Above them is a count of the times that changes were recorded.
    const CHANGES: u64 = 7;
    const ONE: u64 = 8;

    /// True if all of `other` are among these.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True without any change.
    pub const fn is_nothing(self) -> bool {
        self.0 & Self::CHANGES == 0
    }
}

impl FileCell {
    /// Makes the cell of `file`, whose identity is `key`.
    pub(crate) fn new(key: FileKey, file: File) -> Self {
        let stream = AtomicU64::new(key.stream);
        let (file, observation) = (Ordered::new(file), parking_lot::Mutex::new(None));
        Self {
            key,
            stream,
            file,
            observation,
            unstable: AtomicU64::new(0),
            attributes: parking_lot::Mutex::new(()),
            archived_at: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            restorations: AtomicU64::new(0),
            is_linked: AtomicBool::new(false),
            closes_slowly: AtomicBool::new(false),
        }
    }

    /// Records that the close of the file's last descriptor may take long: its last name is gone, and
    /// then its blocks are freed.
    pub fn note_slow_close(&self) {
        self.closes_slowly.store(true, Ordering::Release);
    }

    /// True once the close of the file's last descriptor may take long.
    pub fn closes_slowly(&self) -> bool {
        self.closes_slowly.load(Ordering::Acquire)
    }

    /// Returns the moment, in the caller's count, at which FILE_ATTRIBUTE_ARCHIVE was known to be set,
    /// or not to be storable: a further change of the file through the server leaves it so. None if
    /// that is not known.
    pub fn archived_at(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.archived_at.load(Ordering::Acquire))
    }

    /// Changes the attributes of the file at the moment `now`. No other change through the server
    /// comes between the reading and the storing by `change`, which returns true if
    /// FILE_ATTRIBUTE_ARCHIVE is set afterwards. `change` asks the host alone: it locks nothing.
    ///
    /// # Errors
    /// The error of `change`.
    pub fn change_attributes<E>(
        &self,
        now: NonZeroU64,
        change: impl FnOnce() -> Result<bool, E>,
    ) -> Result<(), E> {
        let _alone = self.attributes.lock();
        let changed = change();
        let is_archived = *changed.as_ref().unwrap_or(&false);
        self.archived_at.store(if is_archived { now.get() } else { 0 }, Ordering::Release);
        changed.map(|_| ())
    }

    /// Records that the file has several links.
    pub fn note_linked(&self) {
        self.is_linked.store(true, Ordering::Release);
    }

    /// True once the file was seen with several links: one may be left when another goes.
    pub fn is_linked(&self) -> bool {
        self.is_linked.load(Ordering::Acquire)
    }

    /// Counts a change that moved the file's times.
    pub fn note_move(&self) {
        self.moves.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the number of changes so far that moved the file's times.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::SeqCst)
    }

    /// Counts a restoration of earlier times of the file.
    pub fn note_restoration(&self) {
        self.restorations.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the number of restorations so far. A change that sees another number afterwards than
    /// before may have lost its times.
    pub fn restorations(&self) -> u64 {
        self.restorations.load(Ordering::SeqCst)
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

    /// Records changes that may not be stable yet.
    pub fn note_unstable(&self, changes: Unstable) {
        let note = |now: u64| Some((now | changes.0).wrapping_add(Unstable::ONE));
        let _ = self.unstable.fetch_update(Ordering::AcqRel, Ordering::Acquire, note);
    }

    /// Returns the changes that may not be stable.
    pub fn unstable(&self) -> Unstable {
        Unstable(self.unstable.load(Ordering::Acquire))
    }

    /// Records that these changes are stable, which [`Self::unstable`] returned before they were made
    /// so. Does nothing if others were recorded meanwhile.
    pub fn are_stable(&self, changes: Unstable) {
        if !changes.is_nothing() {
            let (before, none) = (changes.0, changes.0 & !Unstable::CHANGES);
            let _ =
                self.unstable.compare_exchange(before, none, Ordering::AcqRel, Ordering::Acquire);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::File;
    use crate::name::{FolderId, Link, Name};

    /// Changes that are recorded while earlier ones are made stable stay.
    #[test]
    fn a_change_is_unstable_until_a_later_sync() {
        let key = FileKey::of_file(1, 1);
        let link = Link { folder_id: FolderId(1), name: Name::root() };
        let cell = FileCell::new(key, File::new(key, link));
        assert!(cell.unstable().is_nothing());
        cell.note_unstable(Unstable::MADE);
        let first = cell.unstable();
        assert!(first.contains(Unstable::MADE) && !first.contains(Unstable::NAMED));
        cell.note_unstable(Unstable::MADE);
        cell.are_stable(first);
        let second = cell.unstable();
        assert!(second.contains(Unstable::MADE));
        cell.note_unstable(Unstable::ALTERED);
        cell.are_stable(second);
        let third = cell.unstable();
        assert!(third.contains(Unstable::MADE) && third.contains(Unstable::ALTERED));
        cell.are_stable(third);
        assert!(cell.unstable().is_nothing());
        cell.are_stable(third);
        assert!(cell.unstable().is_nothing());
    }
}
