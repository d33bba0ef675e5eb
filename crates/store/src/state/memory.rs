//! A state store in memory, for tests and simulations. It survives the server but not the process,
//! and fails on demand.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{Done, Epoch, LoadDone, Loaded, Ownership, RecordId, StateFault, StateStore};

/// A state store in memory.
#[derive(Debug, Default)]
pub struct MemoryState {
    shares: Mutex<BTreeMap<String, ShareRecords>>,
    /// Number of calls that changed the store or failed to.
    changes: AtomicU64,
    fails: AtomicBool,
}

/// The records of a share, and the epoch of its owner.
#[derive(Debug, Default)]
struct ShareRecords {
    epoch: Epoch,
    records: BTreeMap<RecordId, Vec<u8>>,
}

impl MemoryState {
    /// Makes changes fail, or succeed again.
    pub fn set_failing(&self, fails: bool) {
        self.fails.store(fails, Ordering::Release);
    }

    /// Returns the number of calls of [`StateStore::put`] and [`StateStore::remove`].
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns the present records of all shares.
    pub fn records(&self) -> Vec<(RecordId, Vec<u8>)> {
        let shares = self.shares.lock();
        let all = shares.values().flat_map(|share| &share.records);
        all.map(|(id, record)| (*id, record.clone())).collect()
    }

    fn change(
        &self,
        owner: &Ownership,
        done: Done,
        apply: impl FnOnce(&mut BTreeMap<RecordId, Vec<u8>>),
    ) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        if self.fails.load(Ordering::Acquire) {
            return done(Err(StateFault::Failed(String::from("told to fail"))));
        }
        let result = {
            let mut shares = self.shares.lock();
            let share = shares.entry(String::from(&*owner.share)).or_default();
            if owner.epoch < share.epoch {
                Err(StateFault::Fenced)
            } else {
                apply(&mut share.records);
                Ok(())
            }
        };
        done(result);
    }
}

impl StateStore for MemoryState {
    fn load(&self, share: &str, done: LoadDone) {
        let loaded = {
            let mut shares = self.shares.lock();
            let kept = shares.entry(String::from(share)).or_default();
            kept.epoch = Epoch(kept.epoch.0.saturating_add(1));
            let ownership = Ownership { share: Arc::from(share), epoch: kept.epoch };
            let records = kept.records.iter().map(|(id, record)| (*id, record.clone())).collect();
            Loaded { ownership, records }
        };
        done(Ok(loaded));
    }

    fn put(&self, owner: &Ownership, id: RecordId, record: Vec<u8>, done: Done) {
        self.change(owner, done, |records| _ = records.insert(id, record));
    }

    fn remove(&self, owner: &Ownership, id: RecordId, done: Done) {
        self.change(owner, done, |records| _ = records.remove(&id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(store: &MemoryState, share: &str) -> Loaded {
        let loaded = Arc::new(Mutex::new(None));
        let told = Arc::clone(&loaded);
        store.load(share, alloc::boxed::Box::new(move |result| *told.lock() = result.ok()));
        let loaded = loaded.lock().take();
        loaded.unwrap()
    }

    fn put(store: &MemoryState, owner: &Ownership, id: u64) -> Result<(), StateFault> {
        let ended = Arc::new(Mutex::new(None));
        let told = Arc::clone(&ended);
        let done = alloc::boxed::Box::new(move |result| *told.lock() = Some(result));
        store.put(owner, RecordId(id), Vec::from([1]), done);
        let ended = ended.lock().take();
        ended.unwrap()
    }

    #[test]
    fn an_owner_is_fenced_by_the_next_one_of_its_share_alone() {
        let store = MemoryState::default();
        let [first, other] = ["a", "b"].map(|share| load(&store, share).ownership);
        assert_eq!(put(&store, &first, 1), Ok(()));
        let second = load(&store, "a");
        assert_eq!(second.records, [(RecordId(1), Vec::from([1]))]);
        assert!(second.ownership.epoch > first.epoch);
        assert_eq!(put(&store, &first, 2), Err(StateFault::Fenced));
        assert_eq!(put(&store, &other, 3), Ok(()));
        assert_eq!(put(&store, &second.ownership, 4), Ok(()));
        let ids: Vec<u64> = load(&store, "a").records.iter().map(|(id, _)| id.0).collect();
        assert_eq!(ids, [1, 4], "nothing of the earlier owner, nothing of the other share");
    }
}
