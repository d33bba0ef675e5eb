//! A state store in memory, for tests and simulations. It survives the server but not the process,
//! and fails on demand.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{Done, RecordId, StateFault, StateStore};

/// A state store in memory.
#[derive(Debug, Default)]
pub struct MemoryState {
    records: Mutex<BTreeMap<RecordId, Vec<u8>>>,
    /// Number of calls that changed the store or failed to.
    changes: AtomicU64,
    fails: AtomicBool,
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

    /// Returns the present records.
    pub fn records(&self) -> Vec<(RecordId, Vec<u8>)> {
        self.records.lock().iter().map(|(id, record)| (*id, record.clone())).collect()
    }

    fn change(&self, done: Done, apply: impl FnOnce(&mut BTreeMap<RecordId, Vec<u8>>)) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        if self.fails.load(Ordering::Acquire) {
            return done(Err(StateFault(String::from("told to fail"))));
        }
        apply(&mut self.records.lock());
        done(Ok(()));
    }
}

impl StateStore for MemoryState {
    fn load(&self) -> Result<Vec<(RecordId, Vec<u8>)>, StateFault> {
        Ok(self.records())
    }

    fn put(&self, id: RecordId, record: Vec<u8>, done: Done) {
        self.change(done, |records| _ = records.insert(id, record));
    }

    fn remove(&self, id: RecordId, done: Done) {
        self.change(done, |records| _ = records.remove(&id));
    }
}
