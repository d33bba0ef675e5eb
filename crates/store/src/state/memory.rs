//! A state store in memory, for tests and simulations: it survives the server
//! that uses it, not the process, and fails when told to.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{Done, RecordId, StateFault, StateStore};

/// Records in memory.
#[derive(Debug, Default)]
pub struct MemoryState {
    records: Mutex<BTreeMap<RecordId, Vec<u8>>>,
    /// Calls so far that changed or were to change anything.
    changes: AtomicU64,
    fails: AtomicBool,
}

impl MemoryState {
    /// From now on changes fail, or succeed again.
    pub fn set_failing(&self, fails: bool) {
        self.fails.store(fails, Ordering::Release);
    }

    /// How often [`StateStore::put`] and [`StateStore::remove`] were called.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The records there are now.
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
