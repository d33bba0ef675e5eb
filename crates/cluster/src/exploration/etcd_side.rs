//! The way to etcd, and the records that come there.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use frevo_etcd::engine::Moment;
use frevo_etcd::types::{Fault, Op, WatchAnswer};

use super::world::{Event, Process, World, scaled};
use crate::interface::{Answer, Input, Request, RequestId};
use crate::keys::ControlKey;
use crate::values::OwnerValue;

impl World {
    pub(super) fn etcd_true_time(&self, moment: Moment) -> Duration {
        let nanos =
            moment.0.as_nanos() as i128 * 1_000_000 / i128::from(1_000_000 + self.etcd_rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap() + 2)
    }

    /// Moves the clock of etcd, and tells watches what has changed.
    pub(super) fn pass_etcd(&mut self) {
        let before = self.etcd.revision();
        self.etcd.pass(Moment(scaled(self.now, self.etcd_rate)));
        if self.etcd.revision() != before {
            self.wake_watches();
        }
    }

    pub(super) fn wake_watches(&mut self) {
        for node in 0..self.nodes.len() {
            let process = Process { node, start: self.nodes[node].start };
            self.wake_watch(process, Duration::ZERO);
        }
    }

    pub(super) fn wake_watch(&mut self, process: Process, more: Duration) {
        let delay = self.delay(process.node) + more;
        let Some(running) = self.running(process) else { return };
        if running.watch.is_some() && !running.is_watch_due {
            running.is_watch_due = true;
            self.later(delay, Event::Watch { to: process });
        }
    }

    /// The time of a message between a node and etcd.
    pub(super) fn delay(&mut self, node: usize) -> Duration {
        if self.nodes[node].slow_until > self.now && self.dice.chance(30) {
            return if self.dice.chance(10) {
                self.dice.micros(1_000_000, 6_000_000)
            } else {
                self.dice.micros(1_000, 1_300_000)
            };
        }
        self.dice.micros(100, 1_500)
    }

    /// A request comes to etcd.
    pub(super) fn arrive(&mut self, from: Process, id: RequestId, request: &Request) {
        self.pass_etcd();
        let stamp = self.stamp(request);
        let before = self.etcd.revision();
        let answer = self.etcd.call(request);
        // etcd carries out the transaction that uses up its space, and still answers with a
        // refusal.
        let has_happened = self.etcd.revision() > before;
        if let Some(stamp) = stamp.filter(|_| has_happened) {
            self.judge_records(&stamp);
        }
        self.note(|| match &answer {
            Ok(Answer::Txn(answer)) if answer.succeeded => {
                format!("{from:?} {id:?} in revision {}", answer.revision)
            }
            answer => format!("{from:?} {id:?} {answer:?}"),
        });
        let is_answered =
            matches!((request, &answer), (Request::Txn(_) | Request::Revoke(_), Ok(_)));
        if has_happened || is_answered {
            self.wake_watches();
        }
        if self.nodes[from.node].loses_answers {
            return;
        }
        let delay = if self.nodes[from.node].has_slow_answers {
            self.dice.micros(500_000, 1_500_000)
        } else {
            self.delay(from.node)
        };
        self.later(delay, Event::Input { to: from, input: Input::Answer { id, answer } });
    }

    /// The share, the stamp and the owner of a transaction with records, as they are before it.
    pub(super) fn stamp(&self, request: &Request) -> Option<Stamp> {
        let Request::Txn(txn) = request else { return None };
        // The transaction that takes a share sets the number of batches to zero, so it is not a
        // batch.
        if txn.success.iter().any(|op| matches!(op, Op::Put { lease, .. } if lease.0 != 0)) {
            return None;
        }
        let share = self.shares.iter().find(|share| {
            let batch = self.layout.batch(share);
            txn.success.iter().any(|op| matches!(op, Op::Put { key, .. } if *key == batch))
        })?;
        let batch = self.layout.batch(share);
        let value = txn.success.iter().find_map(|op| match op {
            Op::Put { key, value, .. } if *key == batch => Some(value.clone()),
            _ => None,
        })?;
        let owner = self.layout.control(&ControlKey::Owner(share.clone()));
        Some(Stamp {
            value: numbers(&value),
            before: self.etcd.get(&batch).map(|key| numbers(&key.value)),
            owner: self.etcd.get(&owner).and_then(|key| {
                let value = OwnerValue::from_bytes(&key.value).ok()?;
                Some([key.lease.0, i64::try_from(value.take.0).ok()?])
            }),
        })
    }

    pub(super) fn judge_records(&mut self, stamp: &Stamp) {
        if stamp.owner != Some([stamp.value[0], stamp.value[1]]) {
            self.judge.violation(format!("records were written by a former owner: {stamp:?}"));
        }
        let is_later = stamp.before.as_ref().is_some_and(|before| {
            before[0] != stamp.value[0] || before[1] != stamp.value[1] || before[2] < stamp.value[2]
        });
        if !is_later {
            self.judge.violation(format!("records were set back: {stamp:?}"));
        }
    }

    pub(super) fn tell_watch(&mut self, to: Process) {
        let is_cut = self.nodes[to.node].loses_answers;
        let Some(running) = self.running(to) else { return };
        running.is_watch_due = false;
        let Some((id, told)) = running.watch else { return };
        let prefix = self.layout.control_prefix();
        let answer = if is_cut {
            Err(Fault::Unavailable("no connection".to_string()))
        } else {
            self.etcd.watch(&prefix, told)
        };
        if answer.is_err() {
            self.wake_watch(to, Duration::from_millis(100));
            return;
        }
        // Like a real etcd, the model sends no answer without changes.
        if matches!(&answer, Ok(WatchAnswer::Changes { changes, .. }) if changes.is_empty()) {
            return;
        }
        if let Some(running) = self.running(to)
            && let Ok(answer) = &answer
        {
            match answer {
                WatchAnswer::Changes { revision, .. } => {
                    running.watch = Some((id, *revision));
                }
                WatchAnswer::Compacted { .. } => running.watch = None,
            }
        }
        self.note(|| match &answer {
            Ok(WatchAnswer::Changes { revision, .. }) => format!("{to:?} is told {revision}"),
            answer => format!("{to:?} is told {answer:?}"),
        });
        self.input(to, Input::Watched { id, answer });
    }
}

/// A transaction with records, as it comes to etcd.
#[derive(Debug)]
pub(super) struct Stamp {
    /// The lease, the number of the take, and that of the transaction.
    value: [i64; 3],
    before: Option<[i64; 3]>,
    /// The lease of the owner, and the number of its take.
    owner: Option<[i64; 2]>,
}

fn numbers(value: &[u8]) -> [i64; 3] {
    let text = core::str::from_utf8(value).unwrap();
    let numbers: Vec<_> = text.split('.').map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}
