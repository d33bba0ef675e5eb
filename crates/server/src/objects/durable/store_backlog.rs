//! Requests to the state store that failed.
//! A record that stayed would be an Open again after the next start, which no client has and
//! which keeps others from its file: its removal is repeated until it succeeds. A record of a
//! lock that was released would take the range from its new owner. So no client is told that
//! an Open is kept before earlier failures are made good.

use std::collections::BTreeSet;
use std::sync::Arc;

use frevo_store::StateStore;
use frevo_store::state::{Done, RecordId, StateFault};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::base::limits::REMOVE_AGAIN;

/// Requests that have not been carried out yet.
#[derive(Clone, Default)]
pub(super) struct StoreBacklog(Arc<Mutex<Outstanding>>);

#[derive(Default)]
struct Outstanding {
    /// Removals that have not ended.
    under_way: usize,
    /// Records that should be gone. Each is here until it is.
    removals: BTreeSet<RecordId>,
    /// Records that are older than what they tell of.
    stale: BTreeSet<RecordId>,
    /// When removals are asked for again.
    again: Option<Instant>,
}

impl StoreBacklog {
    /// Removes `id` from `store`; `done` hears how this attempt ended.
    pub(super) fn remove(&self, store: &dyn StateStore, id: RecordId, done: Done) {
        {
            let mut all = self.0.lock();
            all.under_way += 1;
            all.stale.remove(&id);
        }
        let backlog = self.clone();
        let note = move |result: Result<(), StateFault>| {
            let mut all = backlog.0.lock();
            all.under_way = all.under_way.saturating_sub(1);
            if result.is_err() {
                all.removals.insert(id);
                all.again.get_or_insert_with(|| Instant::now() + REMOVE_AGAIN);
            } else {
                all.removals.remove(&id);
            }
            drop(all);
            done(result);
        };
        store.remove(id, Box::new(note));
    }

    /// Puts `record` there; `done` hears how it ended.
    pub(super) fn put(&self, store: &dyn StateStore, id: RecordId, record: Vec<u8>, done: Done) {
        let backlog = self.clone();
        let note = move |result: Result<(), StateFault>| {
            let mut all = backlog.0.lock();
            // In the order in which they were asked for: the last one counts.
            if result.is_err() {
                all.stale.insert(id);
            } else {
                all.stale.remove(&id);
            }
            drop(all);
            done(result);
        };
        store.put(id, record, Box::new(note));
    }

    /// An Open that has no record any more owes none.
    pub(super) fn is_over(&self, id: RecordId) {
        self.0.lock().stale.remove(&id);
    }

    /// Records to be removed and to be put again.
    pub(super) fn owed(&self) -> (Vec<RecordId>, Vec<RecordId>) {
        let all = self.0.lock();
        (all.removals.iter().copied().collect(), all.stale.iter().copied().collect())
    }

    /// When to look again; none when all that was to go has gone.
    pub(super) fn next(&self) -> Option<Instant> {
        let all = self.0.lock();
        all.again.or_else(|| (all.under_way > 0).then(|| Instant::now() + REMOVE_AGAIN))
    }

    /// Asks again for removals that failed, when it is time.
    pub(super) fn retry(&self, store: &dyn StateStore, now: Instant) {
        let failed = {
            let mut all = self.0.lock();
            if all.again.is_none_or(|again| again > now) {
                return;
            }
            all.again = None;
            all.removals.clone()
        };
        for id in failed {
            self.remove(store, id, Box::new(|_| {}));
        }
    }
}
