//! Requests to the state store that failed.
//! A record that stayed would be an Open again after the next start, which no client has and
//! which keeps others from its file: its removal is repeated until it succeeds. A record of a
//! lock that was released would take the range from its new owner. So no client is told that
//! an Open is kept before earlier failures are made good.
//!
//! A share that another server owns owes nothing: the records are that server's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frevo_store::StateStore;
use frevo_store::state::{Done, Epoch, Ownership, RecordId, StateFault};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::base::limits::REMOVE_AGAIN;
use crate::shares::life::Life;

/// Requests that have not been carried out yet.
#[derive(Clone, Default)]
pub(super) struct StoreBacklog(Arc<Mutex<Outstanding>>);

#[derive(Default)]
struct Outstanding {
    /// Removals that have not ended.
    under_way: usize,
    /// Records that should be gone. Each is here until it is.
    removals: BTreeMap<RecordId, Holder>,
    /// Records that are older than what they tell of.
    stale: BTreeSet<RecordId>,
    /// When removals are asked for again.
    again: Option<Instant>,
}

/// The share of a record, as this server owned it when it asked for a change.
#[derive(Clone)]
pub(super) struct Holder {
    life: Arc<Life>,
    owner: Ownership,
}

impl Holder {
    /// The share as this server owns it now. None if another server does, or may soon: the records of a
    /// share that was drained are the next owner's. The store itself refuses the changes of a paused share
    /// that another server has by now.
    pub(super) fn present(life: &Arc<Life>) -> Option<Self> {
        let owner = life.ownership();
        let is_owned = life.is_in_use() || planted!(OldOwnerAnswers);
        is_owned.then(|| Self { life: Arc::clone(life), owner })
    }

    /// The share as this server owns it by a load that has just ended.
    pub(super) fn loaded(life: &Arc<Life>, owner: &Ownership) -> Self {
        Self { life: Arc::clone(life), owner: owner.clone() }
    }

    /// The epoch of the share then.
    pub(super) const fn epoch(&self) -> Epoch {
        self.owner.epoch
    }

    /// Stops serving the share if the store says that another server owns it.
    fn note(&self, result: &Result<(), StateFault>) {
        if matches!(result, Err(StateFault::Fenced)) {
            self.life.fence(self.owner.epoch);
        }
    }
}

impl StoreBacklog {
    /// Removes `id` from `store`; `done` hears how this attempt ended.
    pub(super) fn remove(&self, store: &dyn StateStore, of: &Holder, id: RecordId, done: Done) {
        {
            let mut all = self.0.lock();
            all.under_way += 1;
            all.stale.remove(&id);
        }
        let (backlog, holder) = (self.clone(), of.clone());
        let note = move |result: Result<(), StateFault>| {
            holder.note(&result);
            let mut all = backlog.0.lock();
            all.under_way = all.under_way.saturating_sub(1);
            if matches!(result, Err(StateFault::Failed(_))) {
                all.removals.insert(id, holder);
                all.again.get_or_insert_with(|| Instant::now() + REMOVE_AGAIN);
            } else {
                all.removals.remove(&id);
            }
            drop(all);
            done(result);
        };
        store.remove(&of.owner, id, Box::new(note));
    }

    /// Puts `record` there; `done` hears how it ended.
    pub(super) fn put(
        &self,
        store: &dyn StateStore,
        of: &Holder,
        id: RecordId,
        record: Vec<u8>,
        done: Done,
    ) {
        let (backlog, holder) = (self.clone(), of.clone());
        let note = move |result: Result<(), StateFault>| {
            holder.note(&result);
            let mut all = backlog.0.lock();
            // The results arrive in the order of the requests, so the last one says if the stored
            // record is current.
            if matches!(result, Err(StateFault::Failed(_))) {
                all.stale.insert(id);
            } else {
                all.stale.remove(&id);
            }
            drop(all);
            done(result);
        };
        store.put(&of.owner, id, record, Box::new(note));
    }

    /// An Open that has no record any more owes none.
    pub(super) fn is_over(&self, id: RecordId) {
        self.0.lock().stale.remove(&id);
    }

    /// Forgets what is owed to a share that another server owns.
    pub(super) fn forget(&self, life: &Arc<Life>) {
        self.0.lock().removals.retain(|_, holder| !Arc::ptr_eq(&holder.life, life));
    }

    /// Records to be removed and to be put again.
    pub(super) fn owed(&self) -> (Vec<(RecordId, Holder)>, Vec<RecordId>) {
        let all = self.0.lock();
        let removals = all.removals.iter().map(|(id, holder)| (*id, holder.clone()));
        (removals.collect(), all.stale.iter().copied().collect())
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
        for (id, holder) in failed {
            self.remove(store, &holder, id, Box::new(|_| {}));
        }
    }
}
