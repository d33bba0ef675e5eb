//! The simulated store of persistent Opens: each change becomes stable after a while. The end of
//! the server keeps a prefix of the unstable changes, or none.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use frevo_store::StateStore;
use frevo_store::state::{Done, Epoch, LoadDone, Loaded, Ownership, RecordId, StateFault};
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::dice::Dice;

/// The store of one run of the server, or of several servers that have a share in turn.
pub struct Store(Arc<Mutex<Kept>>);

/// The stable content.
#[derive(Debug, Clone, Default)]
pub struct Stable {
    records: BTreeMap<(String, RecordId), Vec<u8>>,
    /// The epoch of the latest owner of each share.
    epochs: BTreeMap<String, Epoch>,
}

struct Kept {
    stable: Stable,
    /// Requested changes in order.
    pending: VecDeque<Change>,
    /// True while a task makes changes stable.
    is_writing: bool,
    /// Number of next changes that fail.
    failing: u64,
    /// True if a load takes its time, as it does where the store is another machine's.
    is_far: bool,
    dice: Dice,
}

struct Change {
    owner: Ownership,
    id: RecordId,
    /// The new record; None removes it.
    record: Option<Vec<u8>>,
    done: Done,
}

impl Stable {
    /// Applies a change, unless a later owner has loaded the share.
    fn apply(&mut self, change: &Change) -> Result<(), StateFault> {
        let Change { owner, id, record, .. } = change;
        let share = String::from(&*owner.share);
        if self.epochs.get(&share).is_some_and(|latest| owner.epoch < *latest) {
            return Err(StateFault::Fenced);
        }
        match record {
            Some(record) => drop(self.records.insert((share, *id), record.clone())),
            None => drop(self.records.remove(&(share, *id))),
        }
        Ok(())
    }

    fn load(&mut self, share: &str) -> Loaded {
        let epoch = self.epochs.entry(share.into()).or_default();
        *epoch = Epoch(epoch.0 + 1);
        let ownership = Ownership { share: share.into(), epoch: *epoch };
        let own = self.records.iter().filter(|((of, _), _)| of == share);
        let records = own.map(|((_, id), record)| (*id, record.clone())).collect();
        Loaded { ownership, records }
    }
}

impl Store {
    /// Returns a store with this content. One that is far takes its time for a load.
    pub fn new(stable: Stable, is_far: bool, dice: Dice) -> Self {
        let (pending, is_writing, failing) = (VecDeque::new(), false, 0);
        Self(Arc::new(Mutex::new(Kept { stable, pending, is_writing, failing, is_far, dice })))
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
        let kept = self.0.lock();
        (kept.stable.records.len(), kept.pending.len())
    }

    /// Returns the content for the next server: all that is stable and, while `survives` returns true,
    /// the unstable changes in order. The old server continues with its own copy.
    pub fn after_fall(&self, survives: &mut dyn FnMut() -> bool) -> Stable {
        let kept = self.0.lock();
        let mut left = kept.stable.clone();
        for change in kept.pending.iter().take_while(|_| survives()) {
            // A change of an earlier owner of the share fails here, as it must, so the result is
            // ignored.
            let _ = left.apply(change);
        }
        left
    }

    fn change(&self, change: Change) {
        let mut kept = self.0.lock();
        if kept.failing > 0 {
            kept.failing -= 1;
            drop(kept);
            return (change.done)(Err(StateFault::Failed("the medium fails".into())));
        }
        kept.pending.push_back(change);
        if !std::mem::replace(&mut kept.is_writing, true) {
            tokio::spawn(write(Arc::clone(&self.0)));
        }
    }
}

impl StateStore for Store {
    fn load(&self, share: &str, done: LoadDone) {
        let far = {
            let mut kept = self.0.lock();
            kept.is_far.then(|| kept.dice.millis(0, 100))
        };
        let (kept, share) = (Arc::clone(&self.0), String::from(share));
        let load = move || {
            let loaded = kept.lock().stable.load(&share);
            done(Ok(loaded));
        };
        match far {
            None => load(),
            Some(time) => drop(tokio::spawn(async move {
                sleep(time).await;
                load();
            })),
        }
    }

    fn put(&self, owner: &Ownership, id: RecordId, record: Vec<u8>, done: Done) {
        self.change(Change { owner: owner.clone(), id, record: Some(record), done });
    }

    fn remove(&self, owner: &Ownership, id: RecordId, done: Done) {
        self.change(Change { owner: owner.clone(), id, record: None, done });
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

/// Makes changes stable until none are left; changes that arrive meanwhile form one batch.
async fn write(kept: Arc<Mutex<Kept>>) {
    loop {
        let (count, takes) = {
            let mut kept = kept.lock();
            if kept.pending.is_empty() {
                kept.is_writing = false;
                return;
            }
            let longest = *kept.dice.pick(&[1, 5, 5, 40, 300]);
            (kept.pending.len(), kept.dice.millis(0, longest))
        };
        sleep(takes).await;
        let done: Vec<_> = {
            let mut kept = kept.lock();
            let batch: Vec<Change> = kept.pending.drain(..count).collect();
            let stable = &mut kept.stable;
            let one = |change: Change| (stable.apply(&change), change.done);
            batch.into_iter().map(one).collect()
        };
        done.into_iter().for_each(|(result, done)| done(result));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    fn load(store: &Store) -> Loaded {
        let (done, loaded) = std::sync::mpsc::channel();
        store.load("data", Box::new(move |result| done.send(result).unwrap()));
        loaded.recv().unwrap().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_earlier_owner_wrote_late_has_no_effect() {
        let store = Store::new(Stable::default(), false, Dice::new(1, 1));
        let first = load(&store).ownership;
        let (done, ended) = std::sync::mpsc::channel();
        store.put(&first, RecordId(1), vec![1], Box::new(move |result| done.send(result).unwrap()));
        assert_eq!(load(&store).records, []);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(ended.recv().unwrap(), Err(StateFault::Fenced));
        assert_eq!(store.counts(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_acknowledged_may_be_lost_and_what_was_is_not() {
        let store = Store::new(Stable::default(), false, Dice::new(1, 1));
        let owner = load(&store).ownership;
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let done = || -> Done {
            let acknowledged = Arc::clone(&acknowledged);
            Box::new(move |result| {
                assert!(result.is_ok());
                acknowledged.fetch_add(1, Ordering::Relaxed);
            })
        };
        store.put(&owner, RecordId(1), vec![1], done());
        store.put(&owner, RecordId(2), vec![2], done());
        store.remove(&owner, RecordId(1), done());
        assert_eq!(acknowledged.load(Ordering::Relaxed), 0);
        let ids =
            |left: Stable| -> Vec<u64> { left.records.into_keys().map(|(_, id)| id.0).collect() };
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
        store.remove(&owner, RecordId(2), Box::new(|result| assert!(result.is_err())));
        assert_eq!(store.counts(), (1, 0));
    }
}
