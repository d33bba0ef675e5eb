//! A model of etcd: keys with revisions, leases on a clock that the caller moves, transactions, the
//! history for watches, and a lost majority. Requests are carried out one after the other, so that the
//! model is linearizable; who uses it lets requests and answers be slow or get lost on their way.
//!
//! [`table`] has the cases that the model and a real etcd must agree on, [`subject`] runs them on any
//! engine, and [`engine`] is the model as an engine.

pub mod engine;
pub mod subject;
pub mod table;

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use frevo_etcd::engine::{Confirmed, Moment};
use frevo_etcd::types::{
    Change, Compare, Fact, Fault, KeyValue, Keys, LeaseId, Op, OpAnswer, Range, Relation, Revision,
    Txn, TxnAnswer, WatchAnswer,
};

use crate::interface::{Answer, Request};
use crate::time::after;

/// Operations of a transaction, as etcd is configured usually.
pub const OPERATIONS: usize = 128;

/// Bytes of a request, as etcd is configured usually.
pub const REQUEST_BYTES: usize = 1_536 << 10;

#[derive(Debug, Clone)]
struct Lease {
    ttl: Duration,
    ends: Moment,
}

/// A state of a key: none if it was deleted.
#[derive(Debug, Clone)]
struct Version {
    revision: Revision,
    value: Option<KeyValue>,
}

/// The space for keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    Enough,
    /// The next transaction that sets values takes the last of it: it happens, and is refused.
    Ending,
    /// Transactions that set values do not happen.
    None,
}

/// Counts for estimates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions that were carried out.
    pub transactions: u64,
    /// Those of them that changed something.
    pub changes: u64,
    /// Leases that were kept alive.
    pub keep_alives: u64,
    /// Changes that watches told.
    pub told: u64,
}

/// A model of etcd.
#[derive(Debug, Clone)]
pub struct Etcd {
    now: Moment,
    revision: Revision,
    compacted: Revision,
    versions: BTreeMap<Vec<u8>, Vec<Version>>,
    history: Vec<Change>,
    leases: BTreeMap<LeaseId, Lease>,
    last_lease: i64,
    has_majority: bool,
    space: Space,
    counts: Counts,
}

impl Default for Etcd {
    fn default() -> Self {
        Self {
            now: Moment(Duration::ZERO),
            revision: Revision(1),
            compacted: Revision(0),
            versions: BTreeMap::new(),
            history: Vec::new(),
            leases: BTreeMap::new(),
            last_lease: 0,
            has_majority: true,
            space: Space::Enough,
            counts: Counts::default(),
        }
    }
}

fn no_majority() -> Fault {
    Fault::Unavailable("etcd has no majority".to_string())
}

impl Etcd {
    /// The newest revision.
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// Counts since the beginning.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// The number of keys, and the bytes of their names and values.
    pub fn size(&self) -> (usize, usize) {
        let values =
            || self.versions.values().filter_map(|versions| versions.last()?.value.as_ref());
        let bytes = |key: &KeyValue| key.key.len().saturating_add(key.value.len());
        (values().count(), values().map(bytes).sum())
    }

    /// Moves the clock of etcd, and ends leases whose time has passed.
    pub fn pass(&mut self, now: Moment) {
        self.now = self.now.max(now);
        if !self.has_majority {
            return;
        }
        let ended = self.leases.iter().filter(|(_, lease)| lease.ends <= self.now);
        let ended: Vec<_> = ended.map(|(id, _)| *id).collect();
        for id in ended {
            self.end_lease(id);
        }
    }

    /// The moment at which the next lease ends.
    pub fn next_end(&self) -> Option<Moment> {
        let ends = self.leases.values().map(|lease| lease.ends).min();
        ends.filter(|_| self.has_majority)
    }

    /// Takes the majority away or gives it back. A new leader lets all leases live for their whole time
    /// once more.
    pub fn set_majority(&mut self, has_majority: bool) {
        if has_majority && !self.has_majority {
            for lease in self.leases.values_mut() {
                lease.ends = after(self.now, lease.ttl);
            }
        }
        self.has_majority = has_majority;
    }

    /// True if requests are carried out.
    pub const fn has_majority(&self) -> bool {
        self.has_majority
    }

    /// Has the space end with the next transaction that sets values.
    pub const fn fill(&mut self) {
        self.space = Space::Ending;
    }

    /// Makes room.
    pub const fn make_room(&mut self) {
        self.space = Space::Enough;
    }

    /// Forgets all states of keys before the present one.
    pub fn compact(&mut self) {
        self.compacted = self.revision;
        self.history.clear();
        self.versions.retain(|_, versions| {
            versions.drain(..versions.len().saturating_sub(1));
            versions.last().is_some_and(|version| version.value.is_some())
        });
    }

    /// Carries out a request other than a watch.
    ///
    /// # Errors
    /// As etcd: see [`Fault`].
    pub fn call(&mut self, request: &Request) -> Result<Answer, Fault> {
        if !self.has_majority {
            return Err(no_majority());
        }
        match request {
            Request::Grant(ttl) => {
                self.last_lease = self.last_lease.saturating_add(1);
                let id = LeaseId(self.last_lease);
                self.leases.insert(id, Lease { ttl: *ttl, ends: after(self.now, *ttl) });
                Ok(Answer::Confirmed(Confirmed { lease: id, ttl: *ttl, sent: self.now }))
            }
            Request::KeepAlive(id) => {
                let now = self.now;
                let lease = self.leases.get_mut(id).ok_or(Fault::LeaseNotFound)?;
                lease.ends = after(now, lease.ttl);
                self.counts.keep_alives = self.counts.keep_alives.saturating_add(1);
                Ok(Answer::Confirmed(Confirmed { lease: *id, ttl: lease.ttl, sent: now }))
            }
            Request::Revoke(id) => {
                self.end_lease(*id);
                Ok(Answer::Revoked)
            }
            Request::Txn(txn) => self.txn_in_space(txn).map(Answer::Txn),
            Request::Watch { .. } => {
                Err(Fault::Refused("a watch has no single answer".to_string()))
            }
        }
    }

    fn end_lease(&mut self, id: LeaseId) {
        if self.leases.remove(&id).is_none() {
            return;
        }
        let is_of_lease = |(_, versions): &(&Vec<u8>, &Vec<Version>)| {
            versions.last().is_some_and(|version| {
                version.value.as_ref().is_some_and(|value| value.lease == id)
            })
        };
        let keys: Vec<_> =
            self.versions.iter().filter(is_of_lease).map(|(key, _)| key.clone()).collect();
        if !keys.is_empty() {
            self.revision = Revision(self.revision.0.saturating_add(1));
        }
        for key in keys {
            self.delete(&key);
        }
    }

    /// Returns the changes that a watch tells of keys that begin with `prefix`, after the revision `told`.
    /// Without changes a real watch tells nothing; the revision is that of the moment then.
    ///
    /// # Errors
    /// If etcd has no majority.
    pub fn watch(&mut self, prefix: &[u8], told: Revision) -> Result<WatchAnswer, Fault> {
        if !self.has_majority {
            return Err(no_majority());
        }
        if told < self.compacted {
            return Ok(WatchAnswer::Compacted { oldest: self.compacted });
        }
        let key_and_revision = |change: &Change| match change {
            Change::Put(entry) => (entry.key.starts_with(prefix), entry.mod_revision),
            Change::Delete { key, revision } => (key.starts_with(prefix), *revision),
        };
        let begin = self.history.partition_point(|change| key_and_revision(change).1 <= told);
        let later = self.history.get(begin..).unwrap_or_default();
        let changes: Vec<_> =
            later.iter().filter(|change| key_and_revision(change).0).cloned().collect();
        let count = u64::try_from(changes.len()).unwrap_or(u64::MAX);
        self.counts.told = self.counts.told.saturating_add(count);
        let newest = changes.last().map(|change| key_and_revision(change).1);
        Ok(WatchAnswer::Changes { revision: newest.unwrap_or(self.revision), changes })
    }

    /// The present value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&KeyValue> {
        self.versions.get(key)?.last()?.value.as_ref()
    }

    /// The present values of all keys that begin with `prefix`.
    pub fn all<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = &'a KeyValue> {
        let from = self.versions.range(prefix.to_vec()..);
        let of_prefix = from.take_while(move |(key, _)| key.starts_with(prefix));
        of_prefix.filter_map(|(_, versions)| versions.last()?.value.as_ref())
    }

    fn holds(&self, compare: &Compare) -> bool {
        let value = self.get(&compare.key);
        let order = match &compare.fact {
            Fact::CreateRevision(right) => {
                value.map_or(Revision(0), |key| key.create_revision).cmp(right)
            }
            Fact::ModRevision(right) => {
                value.map_or(Revision(0), |key| key.mod_revision).cmp(right)
            }
            Fact::Lease(right) => value.map_or(LeaseId(0), |key| key.lease).0.cmp(&right.0),
            Fact::Value(right) => match value {
                Some(key) => key.value.cmp(right),
                None => return false,
            },
        };
        match compare.relation {
            Relation::Equal => order.is_eq(),
            Relation::NotEqual => order.is_ne(),
            Relation::Greater => order.is_gt(),
            Relation::Less => order.is_lt(),
        }
    }

    /// Carries out a transaction, as far as there is space. etcd looks at the space by the operations of
    /// both cases.
    fn txn_in_space(&mut self, txn: &Txn) -> Result<TxnAnswer, Fault> {
        let mut ops = txn.success.iter().chain(&txn.failure);
        let sets = ops.any(|op| matches!(op, Op::Put { .. }));
        let full = || Fault::NoSpace("etcdserver: mvcc: database space exceeded".to_string());
        match self.space {
            Space::None if sets => Err(full()),
            Space::Ending if sets => {
                self.txn(txn)?;
                self.space = Space::None;
                Err(full())
            }
            _ => self.txn(txn),
        }
    }

    fn txn(&mut self, txn: &Txn) -> Result<TxnAnswer, Fault> {
        for ops in [&txn.success, &txn.failure] {
            self.check(ops)?;
        }
        if txn.compares.len() > OPERATIONS {
            return Err(Fault::Refused("too many operations in txn request".to_string()));
        }
        let succeeded = txn.compares.iter().all(|compare| self.holds(compare));
        let ops = if succeeded { &txn.success } else { &txn.failure };
        for op in ops {
            if let Op::Put { lease, .. } = op
                && *lease != LeaseId(0)
                && !self.leases.contains_key(lease)
            {
                return Err(Fault::LeaseNotFound);
            }
            if let Op::Range(range) = op {
                if range.revision.0 != 0 && range.revision < self.compacted {
                    return Err(Fault::Compacted);
                }
                if range.revision > self.revision {
                    return Err(Fault::Refused(
                        "required revision is a future revision".to_string(),
                    ));
                }
            }
        }
        let before = self.revision;
        let answers = ops.iter().map(|op| self.carry_out(op, before)).collect();
        self.counts.transactions = self.counts.transactions.saturating_add(1);
        if self.revision > before {
            self.counts.changes = self.counts.changes.saturating_add(1);
        }
        Ok(TxnAnswer { revision: self.revision, succeeded, answers })
    }

    /// Refuses the operations that etcd refuses whatever its keys are.
    fn check(&self, ops: &[Op]) -> Result<(), Fault> {
        if ops.len() > OPERATIONS {
            return Err(Fault::Refused("too many operations in txn request".to_string()));
        }
        let mut bytes = 0_usize;
        let mut puts = alloc::collections::BTreeSet::new();
        for op in ops {
            if let Op::Put { key, value, .. } = op {
                bytes = bytes.saturating_add(key.len()).saturating_add(value.len());
                if !puts.insert(key) {
                    return Err(Fault::Refused("duplicate key given in txn request".to_string()));
                }
            }
        }
        let is_put = |keys: &Keys| match keys {
            Keys::One(key) => puts.contains(key),
            Keys::Prefix(prefix) => puts.iter().any(|key| key.starts_with(prefix)),
        };
        if ops.iter().any(|op| matches!(op, Op::Delete(keys) if is_put(keys))) {
            return Err(Fault::Refused("duplicate key given in txn request".to_string()));
        }
        if bytes > REQUEST_BYTES {
            return Err(Fault::Refused("request is too large".to_string()));
        }
        Ok(())
    }

    /// Makes the revision of a transaction, once.
    fn begin_change(&mut self, before: Revision) {
        self.revision = Revision(before.0.saturating_add(1));
    }

    fn carry_out(&mut self, op: &Op, before: Revision) -> OpAnswer {
        match op {
            Op::Range(range) => self.range(range),
            Op::Put { key, value, lease } => {
                self.begin_change(before);
                self.put(key, value, *lease);
                OpAnswer::Put
            }
            Op::Delete(keys) => {
                let keys: Vec<_> = match keys {
                    Keys::One(key) => {
                        self.get(key).map(|key| key.key.clone()).into_iter().collect()
                    }
                    Keys::Prefix(prefix) => self.all(prefix).map(|key| key.key.clone()).collect(),
                };
                if !keys.is_empty() {
                    self.begin_change(before);
                }
                for key in &keys {
                    self.delete(key);
                }
                OpAnswer::Delete(u64::try_from(keys.len()).unwrap_or(u64::MAX))
            }
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8], lease: LeaseId) {
        let revision = self.revision;
        let earlier = self.get(key);
        let entry = KeyValue {
            key: key.to_vec(),
            value: value.to_vec(),
            create_revision: earlier.map_or(revision, |key| key.create_revision),
            mod_revision: revision,
            version: earlier.map_or(1, |key| key.version.saturating_add(1)),
            lease,
        };
        self.history.push(Change::Put(entry.clone()));
        let versions = self.versions.entry(key.to_vec()).or_default();
        versions.push(Version { revision, value: Some(entry) });
    }

    fn delete(&mut self, key: &[u8]) {
        let revision = self.revision;
        self.history.push(Change::Delete { key: key.to_vec(), revision });
        if let Some(versions) = self.versions.get_mut(key) {
            versions.push(Version { revision, value: None });
        }
    }

    fn range(&self, range: &Range) -> OpAnswer {
        let revision = if range.revision.0 == 0 { self.revision } else { range.revision };
        let at = |versions: &[Version]| {
            let past = versions.iter().rev().find(|version| version.revision <= revision)?;
            past.value.clone()
        };
        let (from, prefix) = match &range.keys {
            Keys::One(key) => (key, None),
            Keys::Prefix(prefix) => (prefix, Some(prefix)),
        };
        let is_wanted = |key: &Vec<u8>| match prefix {
            Some(prefix) => key.starts_with(prefix),
            None => key == from,
        };
        let limit = if range.limit == 0 { u64::MAX } else { range.limit };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let begin = from.max(&range.after).clone();
        let mut found = self.versions.range(begin..);
        let mut values = Vec::new();
        let mut more = false;
        for (key, versions) in found.by_ref().take_while(|(key, _)| is_wanted(key)) {
            if !range.after.is_empty() && *key <= range.after {
                continue;
            }
            let Some(value) = at(versions) else { continue };
            if values.len() >= limit {
                more = true;
                break;
            }
            values.push(value);
        }
        OpAnswer::Range { values, more }
    }
}

#[cfg(test)]
mod tests {
    use super::engine::SharedEtcd;
    use super::subject::EngineSubject;
    use super::table::CASES;
    use super::*;
    use alloc::boxed::Box;

    #[test]
    fn the_model_is_an_etcd() {
        let etcd = SharedEtcd::default();
        let now = Moment(Duration::from_secs(1));
        let engine = etcd.engine(move || now);
        let one = etcd.clone();
        let mut subject = EngineSubject {
            engine: &engine,
            prefix: Vec::new(),
            wait: Box::new(move |time| one.change(|etcd| etcd.pass(after(etcd.now, time)))),
            compact: Box::new(move || etcd.change(Etcd::compact)),
        };
        for case in CASES {
            subject.prefix = alloc::format!("test/{}/", case.name).into_bytes();
            if let Err(why) = (case.run)(&mut subject) {
                panic!("{}: {why}", case.name);
            }
        }
    }

    #[test]
    fn without_a_majority_nothing_happens_and_leases_live_on() {
        let mut etcd = Etcd::default();
        let ttl = Duration::from_secs(2);
        let Ok(Answer::Confirmed(lease)) = etcd.call(&Request::Grant(ttl)) else { panic!() };
        etcd.set_majority(false);
        assert!(matches!(etcd.call(&Request::KeepAlive(lease.lease)), Err(Fault::Unavailable(_))));
        assert!(matches!(etcd.watch(b"", Revision(0)), Err(Fault::Unavailable(_))));
        etcd.pass(Moment(Duration::from_secs(60)));
        etcd.set_majority(true);
        etcd.pass(Moment(Duration::from_millis(61_999)));
        assert!(etcd.call(&Request::KeepAlive(lease.lease)).is_ok());
        etcd.pass(Moment(Duration::from_secs(64)));
        assert_eq!(etcd.call(&Request::KeepAlive(lease.lease)), Err(Fault::LeaseNotFound));
    }
}
