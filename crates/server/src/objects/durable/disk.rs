//! The state store on this machine's disk: one redb file, written by one thread
//! that puts what has come in the meantime on stable storage in one go.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use frevo_store::StateStore;
use frevo_store::state::{Done, RecordId, StateFault};
use redb::backends::FileBackend;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableError};

use crate::base::limits::{STATE_BATCH, STATE_QUEUE};
use crate::base::panics;

/// Records by Open.DurableFileId.
const OPENS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("persistent-opens-1");

struct Change {
    id: RecordId,
    /// The new record; None removes the record.
    record: Option<Vec<u8>>,
    done: Done,
}

/// Records in a file.
pub struct DiskState {
    database: std::sync::Arc<Database>,
    changes: SyncSender<Change>,
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
        // redb syncs its file, and not the entry of a new one.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new("."))).map_err(fault)?;
        folder.sync_all().map_err(fault)?;
        let database = std::sync::Arc::new(database);
        let (changes, received) = sync_channel(STATE_QUEUE);
        let writing = std::sync::Arc::clone(&database);
        thread::Builder::new()
            .name("frevo-state".into())
            .spawn(move || write(&writing, &received))
            .map_err(fault)?;
        Ok(Self { database, changes })
    }

    fn send(&self, change: Change) {
        match self.changes.try_send(change) {
            Ok(()) => {}
            Err(TrySendError::Full(change) | TrySendError::Disconnected(change)) => {
                (change.done)(Err(StateFault("too much to write at one time".into())));
            }
        }
    }
}

impl StateStore for DiskState {
    fn load(&self) -> Result<Vec<(RecordId, Vec<u8>)>, StateFault> {
        let transaction = self.database.begin_read().map_err(fault)?;
        let table = match transaction.open_table(OPENS) {
            Ok(table) => table,
            Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(error) => return Err(fault(error)),
        };
        let mut records = Vec::new();
        for entry in table.iter().map_err(fault)? {
            let (id, record) = entry.map_err(fault)?;
            records.push((RecordId(id.value()), record.value().to_vec()));
        }
        Ok(records)
    }

    fn put(&self, id: RecordId, record: Vec<u8>, done: Done) {
        self.send(Change { id, record: Some(record), done });
    }

    fn remove(&self, id: RecordId, done: Done) {
        self.send(Change { id, record: None, done });
    }
}

/// Until nobody is left who could ask for more.
fn write(database: &Database, changes: &Receiver<Change>) {
    while let Ok(first) = changes.recv() {
        let mut batch = vec![first];
        batch.extend(changes.try_iter().take(STATE_BATCH));
        // A transaction that was begun and not committed is undone.
        let result = panics::contained(|| commit(database, &batch))
            .unwrap_or_else(|| Err(StateFault("a bug in the server; see the log".into())));
        for change in batch {
            let result = result.clone();
            panics::contained(|| (change.done)(result));
        }
    }
}

fn commit(database: &Database, batch: &[Change]) -> Result<(), StateFault> {
    // A transaction is durable when it is committed: redb's default.
    let transaction = database.begin_write().map_err(fault)?;
    {
        let mut table = transaction.open_table(OPENS).map_err(fault)?;
        for change in batch {
            match &change.record {
                Some(record) => _ = table.insert(change.id.0, record.as_slice()).map_err(fault)?,
                None => _ = table.remove(change.id.0).map_err(fault)?,
            }
        }
    }
    transaction.commit().map_err(fault)
}

fn fault(error: impl fmt::Display) -> StateFault {
    StateFault(error.to_string())
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

    #[test]
    fn what_was_put_is_there_when_it_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let store = DiskState::open(&path).unwrap();
        assert!(store.load().unwrap().is_empty());
        for id in 0..100 {
            store.put(RecordId(id), vec![1; 300], Box::new(|result| result.unwrap()));
        }
        wait(|done| store.put(RecordId(7), vec![2], done)).unwrap();
        wait(|done| store.remove(RecordId(8), done)).unwrap();
        assert!(DiskState::open(&path).is_err(), "one process at a time");
        drop(store);
        // The thread lets go when it has seen that nobody is left.
        let again = (0..100)
            .find_map(|_| {
                thread::sleep(std::time::Duration::from_millis(10));
                DiskState::open(&path).ok()
            })
            .unwrap();
        let records = again.load().unwrap();
        assert_eq!(records.len(), 99);
        assert_eq!(records[7], (RecordId(7), vec![2]));
    }
}
