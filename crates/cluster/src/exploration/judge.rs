//! The rules over all nodes, judged by the true time.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::interface::{Record, RecordChange};
use crate::names::ShareName;
use crate::{Epoch, RecordId};

/// The changes of one record.
#[derive(Debug, Default)]
struct History {
    /// The states after changes that may still count, by their numbers: none if it is removed.
    states: BTreeMap<usize, Option<Vec<u8>>>,
    /// The number of the first state that may be the present one.
    acknowledged: usize,
    /// The number of the next state.
    next: usize,
    /// The numbers of states that a new owner has not read: they may not be acknowledged any more.
    lost: BTreeSet<usize>,
}

/// A change of a record that was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    id: RecordId,
    state: usize,
}

/// The facts that the rules are about.
#[derive(Debug, Default)]
pub(super) struct Judge {
    pub(super) violations: Vec<String>,
    records: BTreeMap<(ShareName, RecordId), History>,
    /// The latest ownership that was started, for each share.
    pub(super) started: BTreeMap<ShareName, Epoch>,
    generations: BTreeSet<u32>,
    pub(super) starts: u64,
    pub(super) stops: u64,
    pub(super) acknowledged: u64,
    pub(super) pauses: u64,
    pub(super) moves: u64,
}

impl Judge {
    pub(super) fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    pub(super) fn generation(&mut self, generation: u32) {
        if !self.generations.insert(generation) {
            self.violation(format!("the generation {generation} was given twice"));
        }
    }

    pub(super) fn start(&mut self, share: &ShareName, epoch: Epoch) {
        self.starts += 1;
        // The answer to a former owner may arrive after the answer to the next owner. Then the
        // former owner's load fails, and it serves nothing.
        let latest = self.started.entry(share.clone()).or_default();
        *latest = epoch.max(*latest);
    }

    pub(super) fn serve(&mut self, share: &ShareName, epoch: Epoch) {
        let latest = self.started.get(share).copied();
        if latest != Some(epoch) {
            self.violation(format!("{share} is served as {epoch}, and {latest:?} was started"));
        }
    }

    pub(super) fn sent(&mut self, share: &ShareName, change: &RecordChange) -> Sent {
        let id = change.id();
        let history = self.records.entry((share.clone(), id)).or_default();
        if history.next == 0 {
            history.states.insert(0, None);
            history.next = 1;
        }
        let state = history.next;
        history.next += 1;
        let value = match change {
            RecordChange::Put(_, bytes) => Some(bytes.clone()),
            RecordChange::Remove(_) => None,
        };
        history.states.insert(state, value);
        Sent { id, state }
    }

    /// A change was acknowledged. The answer can come later than the load of a new owner.
    pub(super) fn acknowledged(&mut self, share: &ShareName, sent: Sent) {
        self.acknowledged += 1;
        let Some(history) = self.records.get_mut(&(share.clone(), sent.id)) else { return };
        history.acknowledged = history.acknowledged.max(sent.state);
        if history.lost.contains(&sent.state) {
            let id = sent.id;
            self.violation(format!("{share}: a change of {id:?} was acknowledged, and is lost"));
        }
    }

    /// Compares the records that a new owner has read with those that were acknowledged. The answer to a
    /// former owner may come later than that to the next one: its records are those of an earlier moment,
    /// and it serves nothing with them.
    pub(super) fn loaded(&mut self, share: &ShareName, epoch: Epoch, records: &[Record]) {
        if self.started.get(share) != Some(&epoch) {
            return;
        }
        self.compare(share, &format!("{epoch}"), records);
    }

    /// Compares records with those that were acknowledged, and forgets states that they exclude.
    pub(super) fn compare(&mut self, share: &ShareName, moment: &str, records: &[Record]) {
        let mut found: BTreeMap<RecordId, Vec<u8>> = BTreeMap::new();
        for record in records {
            if found.insert(record.id, record.bytes.clone()).is_some() {
                self.violation(format!("{share} has the record {:?} twice", record.id));
            }
        }
        for ((of, id), history) in &mut self.records {
            if of != share {
                continue;
            }
            let value = found.remove(id);
            let mut states = history.states.range(history.acknowledged..).rev();
            let Some((&state, _)) = states.find(|(_, state)| **state == value) else {
                self.violations.push(format!(
                    "{share}, {moment}: the record {id:?} is {value:?}, but {:?} was acknowledged",
                    history.states.get(&history.acknowledged)
                ));
                continue;
            };
            history.lost.extend(history.states.split_off(&(state + 1)).into_keys());
            history.states = [(state, value)].into();
            history.acknowledged = state;
        }
        if let Some(id) = found.keys().next() {
            self.violation(format!("{share} has the record {id:?}, which nobody has put"));
        }
    }
}

#[test]
fn a_late_load_of_a_former_owner_is_not_judged() {
    let share = ShareName::new("share").unwrap();
    let mut judge = Judge::default();
    judge.start(&share, Epoch(1));
    let put = |value: u8| RecordChange::Put(RecordId(7), alloc::vec![value]);
    let first = judge.sent(&share, &put(1));
    judge.acknowledged(&share, first);
    judge.start(&share, Epoch(2));
    let record = |value: u8| Record { id: RecordId(7), bytes: alloc::vec![value] };
    judge.loaded(&share, Epoch(2), &[record(1)]);
    let second = judge.sent(&share, &put(2));
    judge.acknowledged(&share, second);
    judge.loaded(&share, Epoch(1), &[record(1)]);
    assert!(judge.violations.is_empty(), "{:?}", judge.violations);
    judge.loaded(&share, Epoch(2), &[record(1)]);
    assert_eq!(judge.violations.len(), 1, "the owner's load is judged");
}
