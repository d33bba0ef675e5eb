//! The cached state of a directory: its lease, its listing, its absent names.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use frevo_client::internal::{Grant, KeptDir, Lease, LeaseHolder};
use frevo_client::{DirEntry, LeaseState};
use parking_lot::Mutex;

use crate::limits::LOOKUPS_PER_LISTING;

/// The lease state that allows caching of names.
pub(crate) const KEEPING: LeaseState = LeaseState::READ.union(LeaseState::HANDLE);

/// The cache of one directory.
#[derive(Default)]
pub(crate) struct DirectoryCache {
    pub(crate) state: Mutex<State>,
    /// Held while the directory is opened, listed or closed on the server.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// Counts local changes in the directory.
    changes: AtomicU64,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) held: Option<Arc<LeasedDirectory>>,
    pub(crate) listing: Option<DirectoryListing>,
    /// Names that the kernel has cached as absent.
    pub(crate) absent: HashSet<OsString>,
    /// The time of the last lease break.
    pub(crate) taken: Option<Instant>,
    /// The time of the last local change.
    pub(crate) changed: Option<Instant>,
    /// True if the directory is too long to be listed for a few look-ups.
    pub(crate) is_long: bool,
    asked: LookupRate,
}

/// Look-ups within the last second.
#[derive(Default)]
struct LookupRate {
    since: Option<Instant>,
    count: u32,
}

/// A directory that is open on the server under a lease.
pub(crate) struct LeasedDirectory {
    pub(crate) dir: KeptDir,
    pub(crate) lease: Arc<Lease>,
    /// Keeps the lease holder alive, which handles breaks.
    pub(crate) _holder: Arc<dyn LeaseHolder>,
}

/// The entries of a directory at one time.
#[derive(Clone)]
pub(crate) struct DirectoryListing {
    /// The time of the request.
    pub(crate) asked: Instant,
    pub(crate) entries: Arc<Vec<DirEntry>>,
    pub(crate) by_name: Arc<HashMap<String, usize>>,
    /// The lease under which the directory was read; None without one.
    pub(crate) grant: Option<Grant>,
}

impl DirectoryListing {
    pub(crate) fn find(&self, name: &str) -> Option<&DirEntry> {
        self.entries.get(*self.by_name.get(name)?)
    }
}

impl LeasedDirectory {
    /// Returns the lease if it allows caching of names and an open handle (H): such a handle does
    /// not block others from removing or moving the directory.
    pub(crate) fn grant(&self) -> Option<Grant> {
        Some(self.lease.grant()).filter(|grant| grant.state.contains(KEEPING))
    }
}

impl DirectoryCache {
    /// Returns true if the directory is open on the server.
    pub(crate) fn is_held(&self) -> bool {
        self.state.lock().held.is_some()
    }

    /// Returns the lease if it allows caching of names.
    pub(crate) fn lease(&self) -> Option<Arc<Lease>> {
        let held = self.state.lock().held.clone()?;
        held.grant().map(|_| Arc::clone(&held.lease))
    }

    pub(crate) fn held(&self) -> Option<Arc<LeasedDirectory>> {
        self.state.lock().held.clone()
    }

    /// Closes only the server's handle, as the first step of a lease break does.
    #[cfg(test)]
    pub(crate) async fn close_half(&self) {
        let held = self.held().unwrap();
        held.dir.close().await.unwrap();
    }

    /// Records a local change in the directory.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        let mut state = self.state.lock();
        state.listing = None;
        state.changed = Some(Instant::now());
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns the cached listing if its lease is still valid.
    pub(crate) fn listing(&self) -> Option<DirectoryListing> {
        let state = self.state.lock();
        let snapshot = state.listing.as_ref()?;
        let now = state.held.as_ref().and_then(|held| held.grant());
        (snapshot.grant.is_some() && snapshot.grant.map(|g| g.version) == now.map(|g| g.version))
            .then(|| snapshot.clone())
    }

    /// Returns the number of cached entries.
    pub(crate) fn listed_len(&self) -> usize {
        self.state.lock().listing.as_ref().map_or(0, |listing| listing.entries.len())
    }

    /// Counts a look-up; returns true if a listing is now cheaper.
    pub(crate) fn is_worth_listing(&self) -> bool {
        let mut state = self.state.lock();
        let is_lately = state.asked.since.is_some_and(|since| since.elapsed().as_secs() < 1);
        if !is_lately {
            state.asked = LookupRate { since: Some(Instant::now()), count: 0 };
        }
        state.asked.count += 1;
        state.asked.count >= LOOKUPS_PER_LISTING
    }
}
