//! The cached state of a directory: its lease, its listing, its names.

mod known_names;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use frevo_client::internal::{Grant, Lease, LeaseHolder, LeasedDir};
use frevo_client::{DirEntry, LeaseState};
use parking_lot::Mutex;

use crate::limits::{FILLED_FOR, LOOKUPS_PER_LISTING, NAMES_PAUSE};
use known_names::KnownNames;

use super::Seen;

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
    /// The names of the last listing, and those that this mount has made since.
    names: Option<KnownNames>,
    /// The time at which the names were last looked for while the directory changed.
    sought: Option<Instant>,
    /// Names that the kernel has cached as absent.
    pub(crate) absent: HashSet<OsString>,
    /// The time of the last lease break.
    pub(crate) taken: Option<Instant>,
    /// The time of the last local change.
    pub(crate) changed: Option<Instant>,
    /// Counts the times that a name was another than the lease promised.
    pub(super) doubts: u64,
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
    /// A number that no other one has.
    pub(crate) number: u64,
    pub(crate) dir: LeasedDir,
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
    /// The directory when it was read; None without a lease.
    pub(crate) seen: Option<Seen>,
}

impl DirectoryListing {
    pub(crate) fn find(&self, name: &str) -> Option<&DirEntry> {
        self.entries.get(*self.by_name.get(name)?)
    }
}

impl State {
    /// Takes the names from a listing that was read under a lease.
    fn learn_names(&mut self) {
        let listing = self.listing.as_ref().and_then(|listing| Some((listing.grant?, listing)));
        if let Some((grant, listing)) = listing
            && self.names.as_ref().is_none_or(|names| names.version() != grant.version)
        {
            let names = listing.entries.iter().map(DirEntry::file_name);
            self.names = KnownNames::of(grant.version, names);
        }
    }

    /// Forgets everything that the lease allowed. Returns the names that the kernel has cached as
    /// absent.
    pub(crate) fn forget(&mut self) -> HashSet<OsString> {
        self.listing = None;
        self.names = None;
        std::mem::take(&mut self.absent)
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

    /// Records that this mount has made or removed `name`; without one that the names may be
    /// others.
    pub(crate) fn changed(&self, name: Option<&str>) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        let mut state = self.state.lock();
        state.learn_names();
        state.listing = None;
        state.changed = Some(Instant::now());
        match name {
            Some(name) => {
                // The name of a removed file is added, too. Only a name missing in this table is
                // known to be absent without a request, so an extra name is safe.
                state.names.take_if(|names| !names.add(name));
            }
            None => {
                state.names = None;
                state.doubts += 1;
            }
        }
    }

    /// Returns the lease under which no file is named `name`; None if one may be. Only of a
    /// directory that this mount is filling: elsewhere the server is asked once for each name, for
    /// the case that another client has just made it and the break of the lease is on its way.
    pub(crate) fn lacks(&self, name: &str) -> Option<Grant> {
        let mut state = self.state.lock();
        if state.changed.is_none_or(|at| at.elapsed() >= FILLED_FOR) {
            return None;
        }
        state.learn_names();
        let now = state.held.as_ref()?.grant()?;
        let names = state.names.as_ref().filter(|names| names.version() == now.version)?;
        names.lack(name).then_some(now)
    }

    /// Returns true if the names have to be looked for although the directory changes: they are
    /// unknown, and this was not tried lately.
    pub(crate) fn seeks_names(&self) -> bool {
        let mut state = self.state.lock();
        let now = state.held.as_ref().and_then(|held| held.grant());
        let is_known =
            now.is_some_and(|now| state.names.as_ref().is_some_and(|n| n.version() == now.version));
        let is_lately = state.sought.is_some_and(|at| at.elapsed() < NAMES_PAUSE);
        if is_known || is_lately {
            return false;
        }
        state.sought = Some(Instant::now());
        true
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
