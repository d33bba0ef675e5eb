//! The records of persistent handles: a queue with group commit, and loads.
//!
//! Changes wait while a transaction is under way, and leave together with the next one. Each transaction
//! compares the owner's key, so that a former owner writes nothing, and the number of the transaction
//! before it. Without that number a transaction whose answer was lost, and which etcd carries out after
//! it was repeated, would set records back. A transaction that fails for its number has happened before
//! if the number is its own.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use frevo_etcd::types::{
    Compare, Fact, Keys, LeaseId, Op, OpAnswer, Range, Relation, Revision, Txn, TxnAnswer,
};

use crate::interface::{LoadPart, Record, RecordChange, Ticket};
use crate::keys::{ControlKey, Layout};
use crate::limits::{
    LOAD_PART, RECORD_BYTES, RECORD_BYTES_WAITING, RECORDS_WAITING, TXN_BYTES, TXN_RECORDS,
};
use crate::names::ShareName;
use crate::values::TakeNumber;
use crate::{Epoch, RecordId};

/// Compares the owner's key with the ownership.
pub(crate) fn is_owner(layout: &Layout, share: &ShareName, epoch: Epoch) -> Compare {
    Compare {
        key: layout.control(&ControlKey::Owner(share.clone())),
        relation: Relation::Equal,
        fact: Fact::CreateRevision(Revision(epoch.0)),
    }
}

/// A question for one key.
pub(crate) fn read_one(key: Vec<u8>) -> Op {
    Op::Range(Range { keys: Keys::One(key), limit: 0, after: Vec::new(), revision: Revision(0) })
}

/// The value of a share's key `batch` after the transaction with this number. Zero is the one that takes
/// the share.
pub(crate) fn batch_value(lease: LeaseId, take: TakeNumber, number: u64) -> Vec<u8> {
    format!("{}.{}.{number}", lease.0, take.0).into_bytes()
}

/// A change that waits.
#[derive(Debug)]
struct Waiting {
    change: RecordChange,
    ticket: Ticket,
    bytes: usize,
}

/// A transaction that was not answered yet.
#[derive(Debug)]
struct Flight {
    tickets: Vec<Ticket>,
    txn: Txn,
    /// The value of the key `batch` after it.
    stamp: Vec<u8>,
    number: u64,
    /// True if an attempt ended without an answer: it may have happened, or may still happen.
    is_uncertain: bool,
}

/// The reason why a change cannot wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The record is larger than [`RECORD_BYTES`].
    Record,
    /// So many changes or bytes wait: [`RECORDS_WAITING`], [`RECORD_BYTES_WAITING`].
    Queue,
}

impl core::fmt::Display for Full {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Record => "the record is too large for etcd",
            Self::Queue => "too many records wait for etcd",
        })
    }
}

/// The meaning of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The changes with these numbers are in etcd.
    Done(Vec<Ticket>),
    /// Another node owns the share.
    Fenced,
}

/// The changes of one ownership of a share.
#[derive(Debug)]
pub struct RecordQueue {
    share: ShareName,
    epoch: Epoch,
    lease: LeaseId,
    take: TakeNumber,
    /// The number in the key `batch`.
    stands: u64,
    /// The number of the last transaction that was made.
    last: u64,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    flight: Option<Flight>,
}

impl RecordQueue {
    /// A queue for an ownership that was taken with this lease and number.
    pub const fn new(share: ShareName, epoch: Epoch, lease: LeaseId, take: TakeNumber) -> Self {
        let waiting = VecDeque::new();
        let (stands, last, waiting_bytes, flight) = (0, 0, 0, None);
        Self { share, epoch, lease, take, stands, last, waiting, waiting_bytes, flight }
    }

    /// The ownership.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// True if no change waits or is under way.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.flight.is_none()
    }

    /// True if a transaction is under way, or waits to be repeated.
    pub const fn is_in_flight(&self) -> bool {
        self.flight.is_some()
    }

    /// The changes that wait behind the transaction under way.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a change.
    ///
    /// # Errors
    /// For a record that is too large, or if too many wait.
    pub fn push(&mut self, change: RecordChange, ticket: Ticket) -> Result<(), Full> {
        let value = match &change {
            RecordChange::Put(_, bytes) => bytes.len(),
            RecordChange::Remove(_) => 0,
        };
        if value > RECORD_BYTES {
            return Err(Full::Record);
        }
        // The constant is the largest size of a key, which contains the names of cluster and share
        // and the id.
        let bytes = value.saturating_add(1_200);
        let total = self.waiting_bytes.saturating_add(bytes);
        if self.waiting.len() >= RECORDS_WAITING || total > RECORD_BYTES_WAITING {
            return Err(Full::Queue);
        }
        self.waiting_bytes = total;
        self.waiting.push_back(Waiting { change, ticket, bytes });
        Ok(())
    }

    /// Makes the next transaction, if none is under way and changes wait.
    pub fn next(&mut self, layout: &Layout) -> Option<Txn> {
        if self.flight.is_some() || self.waiting.is_empty() {
            return None;
        }
        // etcd refuses two changes of one key in a transaction: the later one counts.
        let mut changes: Vec<RecordChange> = Vec::new();
        let mut tickets = Vec::new();
        let mut bytes = 0_usize;
        while let Some(next) = self.waiting.front() {
            let same = changes.iter().position(|change| change.id() == next.change.id());
            let total = bytes.saturating_add(next.bytes);
            let is_full = same.is_none() && changes.len() >= TXN_RECORDS;
            if !changes.is_empty() && (is_full || total > TXN_BYTES) {
                break;
            }
            let Some(next) = self.waiting.pop_front() else { break };
            self.waiting_bytes = self.waiting_bytes.saturating_sub(next.bytes);
            bytes = total;
            tickets.push(next.ticket);
            match same.and_then(|at| changes.get_mut(at)) {
                Some(earlier) => *earlier = next.change,
                None => changes.push(next.change),
            }
        }
        self.last = self.last.saturating_add(1);
        let stamp = batch_value(self.lease, self.take, self.last);
        let txn = self.txn(layout, changes, &stamp);
        let (number, is_uncertain) = (self.last, false);
        self.flight = Some(Flight { tickets, txn: txn.clone(), stamp, number, is_uncertain });
        Some(txn)
    }

    fn txn(&self, layout: &Layout, changes: Vec<RecordChange>, stamp: &[u8]) -> Txn {
        let batch = layout.batch(&self.share);
        let stands = batch_value(self.lease, self.take, self.stands);
        let mut compares = vec![Compare {
            key: batch.clone(),
            relation: Relation::Equal,
            fact: Fact::Value(stands),
        }];
        if !planted!(RecordWithoutComparison) {
            compares.push(is_owner(layout, &self.share, self.epoch));
        }
        if planted!(BatchWithoutNumber) {
            compares.remove(0);
        }
        let lease = LeaseId(0);
        let op = |change| match change {
            RecordChange::Put(id, value) => {
                Op::Put { key: layout.record(&self.share, id), value, lease }
            }
            RecordChange::Remove(id) => Op::Delete(Keys::One(layout.record(&self.share, id))),
        };
        let mut success: Vec<_> = changes.into_iter().map(op).collect();
        success.push(Op::Put { key: batch.clone(), value: stamp.to_vec(), lease });
        let owner = layout.control(&ControlKey::Owner(self.share.clone()));
        Txn { compares, success, failure: vec![read_one(owner), read_one(batch)] }
    }

    /// The transaction that is to be repeated, because its answer was lost.
    pub fn repeat(&mut self) -> Option<Txn> {
        let flight = self.flight.as_mut()?;
        flight.is_uncertain = true;
        Some(flight.txn.clone())
    }

    /// Judges the answer to the transaction under way.
    pub fn answered(&mut self, answer: &TxnAnswer) -> Verdict {
        let Some(flight) = self.flight.take() else { return Verdict::Done(Vec::new()) };
        if answer.succeeded || self.has_happened(&flight, answer) {
            self.stands = flight.number;
            return Verdict::Done(flight.tickets);
        }
        self.flight = Some(flight);
        Verdict::Fenced
    }

    /// True if an earlier attempt of the transaction has happened, by the keys that were read when the
    /// comparisons failed.
    fn has_happened(&self, flight: &Flight, answer: &TxnAnswer) -> bool {
        let [OpAnswer::Range { values: owner, .. }, OpAnswer::Range { values: batch, .. }] =
            &*answer.answers
        else {
            return false;
        };
        let is_owner = owner.first().is_some_and(|key| key.create_revision.0 == self.epoch.0);
        is_owner && batch.first().is_some_and(|key| key.value == flight.stamp)
    }

    /// Takes back a transaction that etcd refused as it is. Returns its changes' numbers. None if an
    /// earlier attempt may have happened: it is to be repeated.
    pub fn refused(&mut self) -> Option<Vec<Ticket>> {
        if self.flight.as_ref()?.is_uncertain {
            return None;
        }
        self.flight.take().map(|flight| flight.tickets)
    }

    /// Ends the ownership. Returns the numbers of all changes that were not answered, in their order.
    pub fn fence(&mut self) -> Vec<Ticket> {
        let mut tickets = self.flight.take().map(|flight| flight.tickets).unwrap_or_default();
        tickets.extend(self.waiting.drain(..).map(|waiting| waiting.ticket));
        self.waiting_bytes = 0;
        tickets
    }
}

/// A load of all records of a share.
#[derive(Debug)]
pub struct Load {
    share: ShareName,
    epoch: Epoch,
    /// The key after which the next part begins.
    after: Vec<u8>,
    /// The revision of all parts. Zero before the first.
    revision: Revision,
    /// Keys that are no records.
    pub ignored: u64,
}

/// The state of a load after an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loading {
    /// A further part is to be asked for.
    More,
    /// It has ended.
    End,
}

impl Load {
    /// A load under this ownership.
    pub const fn new(share: ShareName, epoch: Epoch) -> Self {
        Self { share, epoch, after: Vec::new(), revision: Revision(0), ignored: 0 }
    }

    /// The share.
    pub const fn share(&self) -> &ShareName {
        &self.share
    }

    /// The ownership.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The question for the next part.
    pub fn next(&self, layout: &Layout) -> Txn {
        let range = Range {
            keys: Keys::Prefix(layout.records(&self.share)),
            limit: LOAD_PART,
            after: self.after.clone(),
            revision: self.revision,
        };
        Txn {
            compares: vec![is_owner(layout, &self.share, self.epoch)],
            success: vec![Op::Range(range)],
            failure: Vec::new(),
        }
    }

    /// Begins anew: the revision is no longer kept.
    pub fn restart(&mut self) {
        self.after.clear();
        self.revision = Revision(0);
        self.ignored = 0;
    }

    /// Takes in an answer. Returns what is to be told, and how to go on.
    pub fn answered(&mut self, layout: &Layout, answer: &TxnAnswer) -> (LoadPart, Loading) {
        if !answer.succeeded {
            return (LoadPart::Fenced, Loading::End);
        }
        let [OpAnswer::Range { values, more }] = &*answer.answers else {
            let why = String::from("the answer is not one of etcd's");
            return (LoadPart::Failed(why), Loading::End);
        };
        if self.revision.0 == 0 {
            self.revision = answer.revision;
        }
        let mut records = Vec::with_capacity(values.len());
        for entry in values {
            match layout.parse_record(&self.share, &entry.key) {
                Some(id) => records.push(Record { id, bytes: entry.value.clone() }),
                None => self.ignored = self.ignored.saturating_add(1),
            }
        }
        match values.last() {
            Some(last) if *more => {
                // If the keys of an answer do not increase, the load would never end.
                if last.key <= self.after {
                    let why = String::from("the keys of an answer are not in order");
                    return (LoadPart::Failed(why), Loading::End);
                }
                self.after.clone_from(&last.key);
                (LoadPart::Records(records), Loading::More)
            }
            _ => (LoadPart::Records(records), Loading::End),
        }
    }
}

/// Returns the records of `parts`, for callers that want them all at once.
pub fn joined(parts: impl IntoIterator<Item = LoadPart>) -> Vec<(RecordId, Vec<u8>)> {
    let mut all = Vec::new();
    for part in parts {
        match part {
            LoadPart::Records(records) => {
                all.extend(records.into_iter().map(|record| (record.id, record.bytes)));
            }
            LoadPart::Again => all.clear(),
            LoadPart::End | LoadPart::Fenced | LoadPart::Failed(_) => {}
        }
    }
    all
}

#[cfg(test)]
mod tests;
