//! Names for which the server need not be asked: they were seen under a lease on their directory
//! (MS-SMB2 2.2.13.2.10) that still holds, and this mount has not changed them since.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Node, Nodes, directory::DirectoryCache};
use crate::limits::FILLED_FOR;

/// A lease on a directory between two breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Promise {
    /// [`LeasedDirectory::number`](super::LeasedDirectory::number).
    lease: u64,
    version: u64,
    /// The count of names that were others than the lease promised.
    doubts: u64,
}

/// A directory before the server is asked for a name in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    promise: Promise,
    /// The count of local changes.
    changes: u64,
}

impl Seen {
    /// Returns true if there were `changes` local changes.
    pub(crate) const fn is_of(&self, changes: u64) -> bool {
        self.changes == changes
    }

    /// The directory after one change by the caller.
    pub(crate) const fn after_own_change(self) -> Self {
        Self { changes: self.changes + 1, ..self }
    }
}

impl DirectoryCache {
    /// Returns the present promise; None without a lease.
    fn promise(&self) -> Option<Promise> {
        let state = self.state.lock();
        let held = state.held.as_ref()?;
        let version = held.grant()?.version;
        Some(Promise { lease: held.number, version, doubts: state.doubts })
    }

    /// Returns the directory as it is before a request; None without a lease.
    pub(crate) fn seen(&self) -> Option<Seen> {
        // The change count is read before the lease (in `promise`). If a change follows, the counts
        // differ and the answer is not used.
        let changes = self.changes();
        Some(Seen { promise: self.promise()?, changes })
    }

    /// True while this mount changes the names of the directory.
    fn is_filled(&self) -> bool {
        self.state.lock().changed.is_some_and(|at| at.elapsed() < FILLED_FOR)
    }
}

impl Nodes {
    /// Records that `name` in `parent` is the name of the node `id`, for as long as the lease holds
    /// under which the server was asked. `before` is the directory at that time.
    pub(crate) fn promised(&self, parent: &Node, name: &str, id: u64, before: Option<Seen>) {
        let Some(before) = before else { return };
        let mut table = self.table.lock();
        // The directory is compared while the table is locked, because a change is counted before
        // its name leaves the table.
        if parent.directory.seen() != Some(before) {
            return;
        }
        // A promise lets later look-ups of the name do without a request. A name that was removed
        // meanwhile is not in the table any more, so it gets no promise.
        if let Some(all) = table.seen_as.get_mut(&(parent.id, name.to_owned())) {
            for seen in all {
                seen.promise = (seen.id == id).then_some(before.promise);
            }
        }
    }

    /// Returns the node of a name that needs no question, and counts one lookup. Only in a directory
    /// that this mount is changing: elsewhere the server is asked, for the case that another client
    /// has just changed the name and the break of the lease is on its way.
    pub(crate) fn look_up_promised(&self, parent: &Node, name: &str) -> Option<Arc<Node>> {
        let promise = parent.directory.promise().filter(|_| parent.directory.is_filled())?;
        let table = self.table.lock();
        let all = table.seen_as.get(&(parent.id, name.to_owned()))?;
        let seen = all.iter().find(|seen| seen.promise == Some(promise))?;
        let node = table.by_id.get(&seen.id)?;
        node.lookups.fetch_add(1, Ordering::AcqRel);
        Some(Arc::clone(node))
    }
}
