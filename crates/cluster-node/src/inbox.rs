//! The inputs of the driver, in their order.

use std::collections::VecDeque;
use std::sync::Arc;

use frevo_cluster::Epoch;
use frevo_cluster::interface::{Answer, Command, CommandFault, RecordChange, RequestId, Statement};
use frevo_cluster::names::ShareName;
use frevo_etcd::types::{Fault, WatchAnswer};
use frevo_store::state::{Done, LoadDone, StateFault};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::limits::{CHANGE_BYTES_WAITING, CHANGES_WAITING};
use crate::unit::Unit;

/// The end of a command, for its caller.
pub(crate) type CommandEnd = oneshot::Sender<Result<(), CommandFault>>;

/// A thing that has happened.
pub(crate) enum Message {
    /// A request to etcd has ended.
    Answer(RequestId, Result<Answer, Fault>),
    /// A watch has told something.
    Watched(RequestId, Result<WatchAnswer, Fault>),
    /// The work of a unit says something.
    Statement(Statement),
    /// An administrator wants something.
    Command(Command, CommandEnd),
    /// A record is to be changed.
    Change(Change),
    /// The records of a share are to be read.
    Load(Loading),
    /// Storage refuses this node, a share of this unit says.
    StorageLost(ShareName),
    /// The configuration has a unit, or another weight of it.
    Unit(Unit),
}

/// A change of a record.
pub(crate) struct Change {
    pub(crate) unit: ShareName,
    pub(crate) epoch: Epoch,
    pub(crate) change: RecordChange,
    pub(crate) done: Done,
}

/// The load of a share's records.
pub(crate) struct Loading {
    pub(crate) unit: ShareName,
    pub(crate) share: Arc<str>,
    pub(crate) done: LoadDone,
}

impl Change {
    /// The bytes that it keeps.
    const fn bytes(&self) -> usize {
        match &self.change {
            RecordChange::Put(_, bytes) => bytes.len(),
            RecordChange::Remove(_) => 0,
        }
    }
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<Message>,
    changes: usize,
    bytes: usize,
    is_closed: bool,
}

/// The inputs of the driver. Those that clients can cause, changes of records, are bounded here; answers and
/// commands are bounded by the machine, which has asked for them.
#[derive(Default)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    filled: Notify,
}

impl Inbox {
    /// Takes a message in. One that comes after the end of the driver is dropped.
    pub(crate) fn push(&self, message: Message) {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            drop(waiting);
            refuse(message);
            return;
        }
        waiting.messages.push_back(message);
        drop(waiting);
        self.filled.notify_one();
    }

    /// Takes a change of a record in, or ends it if too many wait.
    pub(crate) fn push_change(&self, change: Change) {
        let bytes = change.bytes();
        let mut waiting = self.waiting.lock();
        let is_full = waiting.changes >= CHANGES_WAITING
            || waiting.bytes.saturating_add(bytes) > CHANGE_BYTES_WAITING;
        if is_full && !waiting.is_closed {
            drop(waiting);
            let why = "too many changes of records wait for etcd".to_owned();
            (change.done)(Err(StateFault::Failed(why)));
            return;
        }
        waiting.changes = waiting.changes.saturating_add(1);
        waiting.bytes = waiting.bytes.saturating_add(bytes);
        drop(waiting);
        self.push(Message::Change(change));
    }

    /// Takes the oldest messages out, at most so many.
    pub(crate) fn take(&self, most: usize) -> Vec<Message> {
        let mut waiting = self.waiting.lock();
        let count = waiting.messages.len().min(most);
        // Those that stay are not moved: there may be very many.
        let taken: Vec<_> = waiting.messages.drain(..count).collect();
        for message in &taken {
            if let Message::Change(change) = message {
                waiting.changes = waiting.changes.saturating_sub(1);
                waiting.bytes = waiting.bytes.saturating_sub(change.bytes());
            }
        }
        taken
    }

    /// True if messages wait.
    pub(crate) fn has_more(&self) -> bool {
        !self.waiting.lock().messages.is_empty()
    }

    /// Waits until there may be a message.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Ends all that waits, and all that comes.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.is_closed = true;
        let left = std::mem::take(&mut waiting.messages);
        drop(waiting);
        left.into_iter().for_each(refuse);
    }
}

/// Ends a message that nobody takes in any more. Other nodes may have the shares by now.
fn refuse(message: Message) {
    match message {
        Message::Change(change) => (change.done)(Err(StateFault::Fenced)),
        Message::Load(load) => (load.done)(Err(StateFault::Fenced)),
        Message::Command(_, done) => _ = done.send(Err(CommandFault::NotConnected)),
        Message::Answer(..)
        | Message::Watched(..)
        | Message::Statement(_)
        | Message::StorageLost(_)
        | Message::Unit(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_cluster::RecordId;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn change(bytes: usize, failures: &Arc<AtomicUsize>) -> Change {
        let failures = Arc::clone(failures);
        Change {
            unit: ShareName::new("data").unwrap(),
            epoch: Epoch(1),
            change: RecordChange::Put(RecordId(1), vec![0; bytes]),
            done: Box::new(move |end| {
                failures.fetch_add(usize::from(end.is_err()), Ordering::Relaxed);
            }),
        }
    }

    #[test]
    fn changes_of_clients_are_bounded() {
        let (inbox, failures) = (Inbox::default(), Arc::default());
        for _ in 0..CHANGES_WAITING {
            inbox.push_change(change(0, &failures));
        }
        assert_eq!(failures.load(Ordering::Relaxed), 0);
        inbox.push_change(change(0, &failures));
        assert_eq!(failures.load(Ordering::Relaxed), 1);
        assert_eq!(inbox.take(1).len(), 1);
        inbox.push_change(change(0, &failures));
        assert_eq!(failures.load(Ordering::Relaxed), 1);
        assert_eq!(inbox.take(usize::MAX).len(), CHANGES_WAITING);
        for _ in 0..4 {
            inbox.push_change(change(CHANGE_BYTES_WAITING / 4, &failures));
        }
        assert_eq!(failures.load(Ordering::Relaxed), 1);
        inbox.push_change(change(1, &failures));
        assert_eq!(failures.load(Ordering::Relaxed), 2);
        inbox.close();
        assert_eq!(failures.load(Ordering::Relaxed), 6);
        inbox.push_change(change(1, &failures));
        assert_eq!(failures.load(Ordering::Relaxed), 7);
    }
}
