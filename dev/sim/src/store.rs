//! The simulated store of persistent Opens: each change becomes stable after a while. The end of
//! the server keeps a prefix of the unstable changes, or none.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use frevo_store::StateStore;
use frevo_store::state::{Done, RecordId, StateFault};
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::dice::Dice;

/// The store of one run of the server.
pub struct Store(Arc<Mutex<Kept>>);

struct Kept {
    stable: BTreeMap<RecordId, Vec<u8>>,
    /// Requested changes in order.
    pending: VecDeque<Change>,
    /// True while a task makes changes stable.
    is_writing: bool,
    /// Number of next changes that fail.
    failing: u64,
    dice: Dice,
}

struct Change {
    id: RecordId,
    /// The new record; None removes it.
    record: Option<Vec<u8>>,
    done: Done,
}

impl Store {
    /// Returns a store with these records.
    pub fn new(stable: BTreeMap<RecordId, Vec<u8>>, dice: Dice) -> Self {
        let (pending, is_writing, failing) = (VecDeque::new(), false, 0);
        Self(Arc::new(Mutex::new(Kept { stable, pending, is_writing, failing, dice })))
    }

    /// Makes the next `times` changes fail.
    pub fn fail(&self, times: u64) {
        self.0.lock().failing = times;
    }

    /// Makes all further changes succeed.
    pub fn heal(&self) {
        self.fail(0);
    }

    /// Records that are stable, and changes that are not.
    pub fn counts(&self) -> (usize, usize) {
        let records = self.0.lock();
        (records.stable.len(), records.pending.len())
    }

    /// Returns the records for the next server: all stable ones and, while `survives` returns true,
    /// the unstable ones in order. The old server continues with its own copy.
    pub fn after_fall(&self, survives: &mut dyn FnMut() -> bool) -> BTreeMap<RecordId, Vec<u8>> {
        let records = self.0.lock();
        let mut left = records.stable.clone();
        for change in records.pending.iter().take_while(|_| survives()) {
            apply(&mut left, change.id, change.record.clone());
        }
        left
    }

    fn change(&self, change: Change) {
        let mut records = self.0.lock();
        if records.failing > 0 {
            records.failing -= 1;
            drop(records);
            return (change.done)(Err(StateFault("the medium fails".into())));
        }
        records.pending.push_back(change);
        if !std::mem::replace(&mut records.is_writing, true) {
            tokio::spawn(write(Arc::clone(&self.0)));
        }
    }
}

impl StateStore for Store {
    fn load(&self) -> Result<Vec<(RecordId, Vec<u8>)>, StateFault> {
        let records = self.0.lock();
        Ok(records.stable.iter().map(|(id, record)| (*id, record.clone())).collect())
    }

    fn put(&self, id: RecordId, record: Vec<u8>, done: Done) {
        self.change(Change { id, record: Some(record), done });
    }

    fn remove(&self, id: RecordId, done: Done) {
        self.change(Change { id, record: None, done });
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

fn apply(records: &mut BTreeMap<RecordId, Vec<u8>>, id: RecordId, record: Option<Vec<u8>>) {
    match record {
        Some(record) => drop(records.insert(id, record)),
        None => drop(records.remove(&id)),
    }
}

/// Makes changes stable until none are left; changes that arrive meanwhile form one batch.
async fn write(records: Arc<Mutex<Kept>>) {
    loop {
        let (count, takes) = {
            let mut records = records.lock();
            if records.pending.is_empty() {
                records.is_writing = false;
                return;
            }
            let longest = *records.dice.pick(&[1, 5, 5, 40, 300]);
            (records.pending.len(), records.dice.millis(0, longest))
        };
        sleep(takes).await;
        let done: Vec<Done> = {
            let mut records = records.lock();
            let batch: Vec<Change> = records.pending.drain(..count).collect();
            let stable = &mut records.stable;
            let one = |Change { id, record, done }| {
                apply(stable, id, record);
                done
            };
            batch.into_iter().map(one).collect()
        };
        done.into_iter().for_each(|done| done(Ok(())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn only_unacknowledged_records_may_be_lost() {
        let store = Store::new(BTreeMap::new(), Dice::new(1, 1));
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let done = || -> Done {
            let acknowledged = Arc::clone(&acknowledged);
            Box::new(move |result| {
                assert!(result.is_ok());
                acknowledged.fetch_add(1, Ordering::Relaxed);
            })
        };
        store.put(RecordId(1), vec![1], done());
        store.put(RecordId(2), vec![2], done());
        store.remove(RecordId(1), done());
        assert_eq!(acknowledged.load(Ordering::Relaxed), 0);
        let ids = |left: BTreeMap<RecordId, Vec<u8>>| -> Vec<u64> {
            left.into_keys().map(|id| id.0).collect()
        };
        for (survivors, expected) in [(0, vec![]), (1, vec![1]), (2, vec![1, 2]), (3, vec![2])] {
            let mut left = survivors;
            let mut survives = || {
                left -= 1;
                left >= 0
            };
            assert_eq!(ids(store.after_fall(&mut survives)), expected, "{survivors}");
        }
        sleep(Duration::from_secs(2)).await;
        assert_eq!(acknowledged.load(Ordering::Relaxed), 3);
        assert_eq!(ids(store.after_fall(&mut || false)), [2]);
        store.fail(1);
        store.remove(RecordId(2), Box::new(|result| assert!(result.is_err())));
        assert_eq!(store.counts(), (1, 0));
    }
}
