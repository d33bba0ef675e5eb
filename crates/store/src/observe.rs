//! Changes of files by other programs on the host, as [`Vfs::observe`](crate::Vfs::observe) reports
//! them.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};

use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::fscc::notify::NotifyAction;

/// A change by another program below an observed directory. Changes by this process are not among
/// them: their author reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostChange<'a> {
    /// A change of one name, relative to the directory, with `\` between components.
    Change {
        /// The kind of change.
        action: NotifyAction,
        /// The name; empty for the observed object itself.
        name: &'a str,
        /// The completion filters that the change matches: all possible ones, if the host does not
        /// tell which.
        matches: CompletionFilter,
    },
    /// A rename within one directory.
    Renamed {
        /// The name before.
        from: &'a str,
        /// The name after.
        to: &'a str,
        /// The completion filters that the change matches.
        matches: CompletionFilter,
    },
    /// Changes that the host did not report, or will not.
    Lost,
}

/// The kinds of objects that the host keeps for an account, each with a limit of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observed {
    /// A directory: the one that is watched, or one in its tree.
    Directory,
    /// Any other object.
    File,
    /// A snapshot that stays open for a while after its last use.
    Snapshot,
}

/// The places that one account has among all observed objects, and among the snapshots that stay open;
/// and the bytes of its observed directories.
#[derive(Debug, Default)]
pub struct HostPlaces {
    directories: AtomicUsize,
    files: AtomicUsize,
    snapshots: AtomicUsize,
    bytes: AtomicUsize,
}

impl HostPlaces {
    const fn of(&self, kind: Observed) -> &AtomicUsize {
        match kind {
            Observed::Directory => &self.directories,
            Observed::File => &self.files,
            Observed::Snapshot => &self.snapshots,
        }
    }

    /// Returns the number of places of that kind.
    pub fn count(&self, kind: Observed) -> usize {
        self.of(kind).load(Ordering::Relaxed)
    }

    /// Takes a place where all accounts have `all` of `room` places: the last quarter is for accounts
    /// that have less than a quarter. None without room.
    #[must_use]
    pub fn take(self: &Arc<Self>, kind: Observed, all: usize, room: usize) -> Option<HostPlace> {
        let quarter = room / 4;
        let is_free = all < room.saturating_sub(quarter);
        if !is_free && (all >= room || self.count(kind) >= quarter) {
            return None;
        }
        Some(self.retake(kind))
    }

    /// Takes a place in exchange for one of its own, which is dropped soon.
    #[must_use]
    pub fn retake(self: &Arc<Self>, kind: Observed) -> HostPlace {
        self.of(kind).fetch_add(1, Ordering::Relaxed);
        HostPlace { places: Arc::clone(self), kind }
    }

    /// Returns the bytes of its observed directories.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts `bytes` where all accounts have `all` of `room` bytes: the last quarter is for accounts that
    /// have less than a quarter. None without room.
    #[must_use]
    pub fn take_bytes(
        self: &Arc<Self>,
        bytes: usize,
        all: usize,
        room: usize,
    ) -> Option<HostBytes> {
        let mut taken = HostBytes { places: Arc::clone(self), bytes: 0 };
        taken.resize(bytes, all, room).then_some(taken)
    }
}

/// Bytes of an observed directory, until this is dropped.
#[derive(Debug)]
pub struct HostBytes {
    places: Arc<HostPlaces>,
    bytes: usize,
}

impl HostBytes {
    /// Returns their number.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.bytes
    }

    /// Changes their number, as [`HostPlaces::take_bytes`] takes them; `all` has those that there are. False
    /// without room for more: the number stays.
    #[must_use]
    pub fn resize(&mut self, bytes: usize, all: usize, room: usize) -> bool {
        let own = &self.places.bytes;
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 {
            let quarter = room / 4;
            let with_these = all.saturating_add(more);
            let of_account = own.load(Ordering::Relaxed).saturating_add(more);
            let is_free = with_these <= room.saturating_sub(quarter);
            if !is_free && (with_these > room || of_account > quarter) {
                return false;
            }
        }
        own.fetch_add(more, Ordering::Relaxed);
        own.fetch_sub(self.bytes.saturating_sub(bytes), Ordering::Relaxed);
        self.bytes = bytes;
        true
    }
}

impl Drop for HostBytes {
    fn drop(&mut self) {
        self.places.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl HostPlace {
    /// The places of its account.
    #[must_use]
    pub fn places(&self) -> &HostPlaces {
        &self.places
    }

    /// True if `places` are those of its account.
    #[must_use]
    pub fn is_of(&self, places: &Arc<HostPlaces>) -> bool {
        Arc::ptr_eq(&self.places, places)
    }
}

/// A place among all these objects, until it is dropped.
#[derive(Debug)]
pub struct HostPlace {
    places: Arc<HostPlaces>,
    kind: Observed,
}

impl Drop for HostPlace {
    fn drop(&mut self) {
        self.places.of(self.kind).fetch_sub(1, Ordering::Relaxed);
    }
}

/// A callback for changes, on a thread of the file system, and the account that pays for it. It must
/// not block, and must not drop the [`Observation`] that it belongs to.
#[derive(Clone)]
pub struct Observer {
    places: Arc<HostPlaces>,
    tell: Arc<dyn Fn(&HostChange<'_>) + Send + Sync>,
}

impl Observer {
    /// Returns an observer that takes its places from those of an account.
    pub fn new(
        places: &Arc<HostPlaces>,
        tell: impl Fn(&HostChange<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self { places: Arc::clone(places), tell: Arc::new(tell) }
    }

    /// Returns the places of its account.
    #[must_use]
    pub const fn places(&self) -> &Arc<HostPlaces> {
        &self.places
    }

    /// Reports a change.
    pub fn tell(&self, change: &HostChange<'_>) {
        (self.tell)(change);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("places", &self.places).finish_non_exhaustive()
    }
}

/// An observation, which ends when it is dropped.
pub trait Observation: Send + Sync + fmt::Debug {
    /// True where the account that pays had no room for a part of it: another account may observe the
    /// object in its stead.
    fn lacks_room(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn the_last_quarter_of_places_is_for_accounts_that_have_few() {
        let (ann, bob) = (Arc::new(HostPlaces::default()), Arc::new(HostPlaces::default()));
        let take = |who: &Arc<HostPlaces>, all| who.take(Observed::File, all, 8);
        let held: Vec<_> = (0..6).map(|all| take(&ann, all).unwrap()).collect();
        assert!(take(&ann, 6).is_none(), "the last quarter");
        let first = take(&bob, 6).unwrap();
        let second = take(&bob, 7).unwrap();
        assert!(take(&bob, 8).is_none(), "all are taken");
        drop(first);
        assert_eq!(bob.count(Observed::File), 1);
        assert!(take(&bob, 7).is_some());
        assert!(bob.take(Observed::Directory, 0, 8).is_some(), "another kind");
        drop((held, second));
        assert_eq!((ann.count(Observed::File), bob.count(Observed::File)), (0, 0));
    }

    #[test]
    fn the_last_quarter_of_bytes_is_for_accounts_that_have_few() {
        let (ann, bob) = (Arc::new(HostPlaces::default()), Arc::new(HostPlaces::default()));
        let take = |who: &Arc<HostPlaces>, bytes, all| who.take_bytes(bytes, all, 400);
        assert!(take(&ann, 301, 0).is_none());
        let of_ann = take(&ann, 300, 0).unwrap();
        assert!(take(&ann, 1, 300).is_none(), "the last quarter");
        assert!(take(&bob, 101, 300).is_none(), "more than all have");
        let of_bob = take(&bob, 99, 300).unwrap();
        assert!(take(&bob, 2, 399).is_none() && take(&ann, 1, 399).is_none());
        let last = take(&bob, 1, 399).unwrap();
        assert_eq!((ann.bytes(), bob.bytes(), of_bob.count()), (300, 100, 99));
        drop(last);
        let mut of_ann = of_ann;
        assert!(!of_ann.resize(301, 399, 400) && of_ann.resize(300, 399, 400));
        assert!(of_ann.resize(200, 399, 400));
        assert_eq!((ann.bytes(), of_ann.count()), (200, 200));
        assert!(!of_ann.resize(202, 299, 400) && of_ann.resize(201, 299, 400));
        drop((of_ann, of_bob));
        assert_eq!((ann.bytes(), bob.bytes()), (0, 0));
    }
}
