//! Records that are to go from the state store. One that stayed because the store failed
//! would be an Open again after the next start, which nobody has and which keeps others
//! from its file: it is asked for until it has gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use frevo_store::StateStore;
use frevo_store::state::{Done, RecordId, StateFault};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::REMOVE_AGAIN;

/// What has been asked for and not been done yet.
#[derive(Clone, Default)]
pub(super) struct Removals(Arc<Mutex<Outstanding>>);

#[derive(Default)]
struct Outstanding {
    under_way: usize,
    failed: BTreeSet<RecordId>,
    /// When those are asked for again.
    again: Option<Instant>,
}

impl Removals {
    /// Removes `id` from `store`; `done` hears how the first attempt ended.
    pub(super) fn remove(&self, store: &dyn StateStore, id: RecordId, done: Done) {
        self.0.lock().under_way += 1;
        let removals = self.clone();
        let note = move |result: Result<(), StateFault>| {
            let mut all = removals.0.lock();
            all.under_way = all.under_way.saturating_sub(1);
            if result.is_err() {
                all.failed.insert(id);
                all.again.get_or_insert_with(|| Instant::now() + REMOVE_AGAIN);
            }
            drop(all);
            done(result);
        };
        store.remove(id, Box::new(note));
    }

    /// When to look again; none when all that was to go has gone.
    pub(super) fn next(&self) -> Option<Instant> {
        let all = self.0.lock();
        all.again.or_else(|| (all.under_way > 0).then(|| Instant::now() + REMOVE_AGAIN))
    }

    /// Asks again for what failed, when it is time.
    pub(super) fn retry(&self, store: &dyn StateStore, now: Instant) {
        let failed = {
            let mut all = self.0.lock();
            if all.again.is_none_or(|again| again > now) {
                return;
            }
            all.again = None;
            std::mem::take(&mut all.failed)
        };
        for id in failed {
            self.remove(store, id, Box::new(|_| {}));
        }
    }
}
