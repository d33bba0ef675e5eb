//! The state store on this machine's disk: one redb file, written by one thread
//! that puts what has come in the meantime on stable storage in one go.
//!
//! One process at a time has the file, so a share has an owner before it only in an earlier run, or
//! in this one.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use frevo_store::StateStore;
use frevo_store::state::{
    Done, Epoch, LoadDone, Loaded, OpenRecord, Ownership, RecordId, StateFault,
};
use frevo_wire::fscc::fold_name;
use redb::backends::FileBackend;
use redb::{
    Database, ReadableDatabase, ReadableTable, Table, TableDefinition, TableError, WriteTransaction,
};

use crate::base::limits::{STATE_BATCH, STATE_QUEUE};
use crate::base::panics;

/// Records by Open.DurableFileId, of all shares: the form of earlier versions.
const OPENS_OF_ALL: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("persistent-opens-1");

/// Records by share and Open.DurableFileId.
const OPENS: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("persistent-opens-2");

/// The epoch of the latest owner of each share.
const EPOCHS: TableDefinition<'_, &str, u64> = TableDefinition::new("epochs-1");

/// A request to the thread that writes.
enum Job {
    /// A change of a record.
    Change(Change),
    /// The load of a share.
    Load { share: String, done: LoadDone },
}

struct Change {
    owner: Ownership,
    id: RecordId,
    /// The new record; None removes the record.
    record: Option<Vec<u8>>,
    done: Done,
}

/// The effect of a job in a transaction.
enum Effect {
    /// The change is made.
    Changed,
    /// The owner of the change is not the latest one.
    Fenced,
    /// The share has a new owner.
    Loaded(Loaded),
}

impl Job {
    /// Tells the caller how the job ended.
    fn end(self, effect: Result<Effect, StateFault>) {
        match (self, effect) {
            (Self::Change(change), effect) => (change.done)(match effect {
                Ok(Effect::Fenced) => Err(StateFault::Fenced),
                Ok(Effect::Changed | Effect::Loaded(_)) => Ok(()),
                Err(fault) => Err(fault),
            }),
            (Self::Load { done, .. }, effect) => done(match effect {
                Ok(Effect::Loaded(loaded)) => Ok(loaded),
                Ok(Effect::Changed | Effect::Fenced) => Err(StateFault::Fenced),
                Err(fault) => Err(fault),
            }),
        }
    }
}

/// Records in a file.
pub struct DiskState {
    jobs: SyncSender<Job>,
}

impl DiskState {
    /// Opens or makes the file, which only its owner may read: it names files and users.
    ///
    /// # Errors
    /// When it cannot be made or read, or another process has it open.
    pub fn open(path: &Path) -> Result<Self, StateFault> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = FileBackend::new(options.open(path).map_err(fault)?).map_err(fault)?;
        let database = Database::builder().create_with_backend(file).map_err(fault)?;
        // redb syncs its new file, but not the directory entry, so the directory is synced here.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new("."))).map_err(fault)?;
        folder.sync_all().map_err(fault)?;
        sort_by_share(&database)?;
        let (jobs, received) = sync_channel(STATE_QUEUE);
        thread::Builder::new()
            .name("frevo-state".into())
            .spawn(move || write(&database, &received))
            .map_err(fault)?;
        Ok(Self { jobs })
    }

    fn send(&self, job: Job) {
        match self.jobs.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => {
                job.end(Err(StateFault::Failed("too much to write at one time".into())));
            }
        }
    }
}

impl StateStore for DiskState {
    fn load(&self, share: &str, done: LoadDone) {
        self.send(Job::Load { share: share.into(), done });
    }

    fn put(&self, owner: &Ownership, id: RecordId, record: Vec<u8>, done: Done) {
        self.send(Job::Change(Change { owner: owner.clone(), id, record: Some(record), done }));
    }

    fn remove(&self, owner: &Ownership, id: RecordId, done: Done) {
        self.send(Job::Change(Change { owner: owner.clone(), id, record: None, done }));
    }
}

/// Moves the records of an earlier version, which had one table for all shares. A record that names
/// no share is one of the durable Opens that a stopped server left, whose share has no name.
fn sort_by_share(database: &Database) -> Result<(), StateFault> {
    match database.begin_read().map_err(fault)?.open_table(OPENS_OF_ALL) {
        Ok(_) => {}
        Err(TableError::TableDoesNotExist(_)) => return Ok(()),
        Err(error) => return Err(fault(error)),
    }
    let transaction = database.begin_write().map_err(fault)?;
    {
        let old = transaction.open_table(OPENS_OF_ALL).map_err(fault)?;
        let mut opens = transaction.open_table(OPENS).map_err(fault)?;
        for entry in old.iter().map_err(fault)? {
            let (id, record) = entry.map_err(fault)?;
            let share = OpenRecord::from_bytes(record.value()).map(|record| record.share);
            let share = share.map_or_else(|_| String::new(), |share| fold_name(&share));
            opens.insert((&*share, id.value()), record.value()).map_err(fault)?;
        }
    }
    transaction.delete_table(OPENS_OF_ALL).map_err(fault)?;
    transaction.commit().map_err(fault)
}

/// Carries out jobs until nobody is left who could ask for more.
fn write(database: &Database, jobs: &Receiver<Job>) {
    while let Ok(first) = jobs.recv() {
        let mut batch = vec![first];
        batch.extend(jobs.try_iter().take(STATE_BATCH));
        // A panic before the commit rolls the transaction back, so all its jobs are reported as
        // failed.
        let bug = || Err(StateFault::Failed("a bug in the server; see the log".into()));
        match panics::contained(|| commit(database, &batch)).unwrap_or_else(bug) {
            Ok(effects) => {
                for (job, effect) in batch.into_iter().zip(effects) {
                    panics::contained(|| job.end(Ok(effect)));
                }
            }
            Err(fault) => {
                for job in batch {
                    panics::contained(|| job.end(Err(fault.clone())));
                }
            }
        }
    }
}

fn commit(database: &Database, batch: &[Job]) -> Result<Vec<Effect>, StateFault> {
    // By default redb makes a transaction durable when it commits.
    let transaction = database.begin_write().map_err(fault)?;
    let effects = {
        let mut tables = Tables::open(&transaction)?;
        batch.iter().map(|job| tables.carry_out(job)).collect::<Result<_, _>>()?
    };
    transaction.commit().map_err(fault)?;
    Ok(effects)
}

/// The tables in a transaction.
struct Tables<'a> {
    opens: Table<'a, (&'static str, u64), &'static [u8]>,
    epochs: Table<'a, &'static str, u64>,
}

impl<'a> Tables<'a> {
    fn open(transaction: &'a WriteTransaction) -> Result<Self, StateFault> {
        let opens = transaction.open_table(OPENS).map_err(fault)?;
        let epochs = transaction.open_table(EPOCHS).map_err(fault)?;
        Ok(Self { opens, epochs })
    }

    fn carry_out(&mut self, job: &Job) -> Result<Effect, StateFault> {
        match job {
            Job::Load { share, .. } => self.load(share).map(Effect::Loaded),
            Job::Change(change) => self.change(change),
        }
    }

    /// The epoch of the latest owner; zero before the first one.
    fn epoch(&self, share: &str) -> Result<u64, StateFault> {
        Ok(self.epochs.get(share).map_err(fault)?.map_or(0, |epoch| epoch.value()))
    }

    fn load(&mut self, share: &str) -> Result<Loaded, StateFault> {
        let epoch = self.epoch(share)?.saturating_add(1);
        self.epochs.insert(share, epoch).map_err(fault)?;
        let mut records = Vec::new();
        for entry in self.opens.range((share, 0)..=(share, u64::MAX)).map_err(fault)? {
            let (key, record) = entry.map_err(fault)?;
            records.push((RecordId(key.value().1), record.value().to_vec()));
        }
        let ownership = Ownership { share: Arc::from(share), epoch: Epoch(epoch) };
        Ok(Loaded { ownership, records })
    }

    fn change(&mut self, change: &Change) -> Result<Effect, StateFault> {
        let Change { owner, id, record, .. } = change;
        if owner.epoch.0 < self.epoch(&owner.share)? {
            return Ok(Effect::Fenced);
        }
        let key = (&*owner.share, id.0);
        match record {
            Some(record) => _ = self.opens.insert(key, record.as_slice()).map_err(fault)?,
            None => _ = self.opens.remove(key).map_err(fault)?,
        }
        Ok(Effect::Changed)
    }
}

fn fault(error: impl fmt::Display) -> StateFault {
    StateFault::Failed(error.to_string())
}

impl fmt::Debug for DiskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskState")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn wait(ask: impl FnOnce(Done)) -> Result<(), StateFault> {
        let (sender, receiver) = channel();
        ask(Box::new(move |result| sender.send(result).unwrap()));
        receiver.recv().unwrap()
    }

    fn load(store: &DiskState, share: &str) -> Loaded {
        let (sender, receiver) = channel();
        store.load(share, Box::new(move |result| sender.send(result).unwrap()));
        receiver.recv().unwrap().unwrap()
    }

    /// Opens a file that another store has just let go of: its thread lets go when it has seen that
    /// nobody is left.
    fn open_again(path: &Path) -> DiskState {
        let again = (0..100).find_map(|_| {
            thread::sleep(std::time::Duration::from_millis(10));
            DiskState::open(path).ok()
        });
        again.unwrap()
    }

    #[test]
    fn what_was_put_is_there_when_it_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let store = DiskState::open(&path).unwrap();
        let Loaded { ownership, records } = load(&store, "data");
        assert!(records.is_empty());
        for id in 0..100 {
            let done = Box::new(|result: Result<(), _>| result.unwrap());
            store.put(&ownership, RecordId(id), vec![1; 300], done);
        }
        wait(|done| store.put(&ownership, RecordId(7), vec![2], done)).unwrap();
        wait(|done| store.remove(&ownership, RecordId(8), done)).unwrap();
        assert!(DiskState::open(&path).is_err(), "one process at a time");
        drop(store);
        let again = open_again(&path);
        let loaded = load(&again, "data");
        assert_eq!(loaded.records.len(), 99);
        assert_eq!(loaded.records[7], (RecordId(7), vec![2]));
        assert!(loaded.ownership.epoch > ownership.epoch);
    }

    #[test]
    fn a_later_owner_fences_the_earlier_one_of_its_share() {
        let folder = tempfile::tempdir().unwrap();
        let store = DiskState::open(&folder.path().join("state")).unwrap();
        let [first, other] = ["a", "b"].map(|share| load(&store, share).ownership);
        wait(|done| store.put(&first, RecordId(1), vec![1], done)).unwrap();
        // The `put` was requested before the second load, so the load's result contains it. Then
        // the first owner is fenced off.
        store.put(&first, RecordId(2), vec![2], Box::new(|_| {}));
        let second = load(&store, "a");
        assert_eq!(second.records, [(RecordId(1), vec![1]), (RecordId(2), vec![2])]);
        let fenced = Err(StateFault::Fenced);
        assert_eq!(wait(|done| store.put(&first, RecordId(3), vec![3], done)), fenced);
        assert_eq!(wait(|done| store.remove(&first, RecordId(1), done)), fenced);
        wait(|done| store.put(&other, RecordId(4), vec![4], done)).unwrap();
        wait(|done| store.remove(&second.ownership, RecordId(2), done)).unwrap();
        assert_eq!(load(&store, "a").records, [(RecordId(1), vec![1])]);
        assert_eq!(load(&store, "b").records, [(RecordId(4), vec![4])]);
    }

    /// Tests that the file of an earlier version is read: its records are sorted by the shares that
    /// they name.
    #[test]
    fn records_of_an_earlier_version_are_sorted_by_their_shares() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        // The file has the record of an Open in the share "Daten", written by an earlier version of
        // Frevo.
        let old = include_bytes!("../../../../store/src/state/testing/record-2.bin");
        {
            let database = Database::create(&path).unwrap();
            let transaction = database.begin_write().unwrap();
            {
                let mut table = transaction.open_table(OPENS_OF_ALL).unwrap();
                table.insert(5, old.as_slice()).unwrap();
                table.insert(6, [9; 30].as_slice()).unwrap();
            }
            transaction.commit().unwrap();
        }
        let store = DiskState::open(&path).unwrap();
        assert_eq!(load(&store, "daten").records, [(RecordId(5), old.to_vec())]);
        assert_eq!(load(&store, "").records, [(RecordId(6), vec![9; 30])]);
        drop(store);
        let again = open_again(&path);
        assert_eq!(load(&again, "daten").records.len(), 1, "it is moved once");
    }
}
