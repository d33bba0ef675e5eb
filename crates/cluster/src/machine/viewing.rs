//! Reading and watching the keys of all nodes.

use alloc::vec;

use frevo_etcd::types::{Fault, Keys, Op, OpAnswer, Range, Revision, Txn, TxnAnswer, WatchAnswer};

use super::Machine;
use super::progress::Watching;
use super::requests::{Attempt, Purpose};
use crate::interface::{Output, Request, RequestId};
use crate::limits::VIEW_PART;

impl Machine {
    pub(super) fn act_on_view(&mut self) {
        let Watching::Reading(reading) = &self.watching else { return };
        let range = Range {
            keys: Keys::Prefix(self.layout.control_prefix()),
            limit: VIEW_PART,
            after: reading.after.clone(),
            revision: reading.view.revision,
        };
        if self.is_due(reading.attempt) {
            let txn = Txn { success: vec![Op::Range(range)], ..Txn::default() };
            self.send_txn(Purpose::ReadView, txn);
            if let Watching::Reading(reading) = &mut self.watching {
                reading.attempt = Attempt::Pending;
            }
        }
    }

    /// # Errors
    /// If the answer is not one to a reading.
    pub(super) fn on_view_part(&mut self, answer: &TxnAnswer) -> Result<(), &'static str> {
        let Watching::Reading(reading) = &mut self.watching else { return Ok(()) };
        let [OpAnswer::Range { values, more }] = &*answer.answers else {
            return Err("a reading has another answer");
        };
        if reading.view.revision == Revision(0) {
            reading.view.revision = answer.revision;
        }
        for entry in values {
            reading.view.put(&self.layout, entry);
        }
        match values.last() {
            Some(last) if *more => {
                if last.key <= reading.after {
                    return Err("the keys of a reading are not in order");
                }
                reading.after.clone_from(&last.key);
                reading.attempt = Attempt::Due(self.now);
            }
            _ => {
                let view = core::mem::take(&mut reading.view);
                let revision = view.revision;
                self.view = Some(view);
                self.watch(revision);
                self.note_free();
            }
        }
        Ok(())
    }

    fn watch(&mut self, after: Revision) {
        let id = self.requests.number();
        self.watching = Watching::Told(id);
        let prefix = self.layout.control_prefix();
        self.outputs.push_back(Output::Request(id, Request::Watch { prefix, after }));
    }

    pub(super) fn on_view_fault(&mut self, again: Attempt) {
        // etcd may have compacted the revision of the earlier parts, so the reading starts from the
        // beginning.
        let at = if let Attempt::Due(at) = again { at } else { self.now };
        self.watching = Watching::reading(at);
    }

    pub(super) fn on_watched(&mut self, id: RequestId, answer: Result<WatchAnswer, Fault>) {
        if !matches!(&self.watching, Watching::Told(told) if *told == id) {
            return;
        }
        match answer {
            Ok(WatchAnswer::Changes { revision, changes }) => {
                let Some(view) = &mut self.view else { return };
                for change in &changes {
                    view.change(&self.layout, change);
                }
                view.revision = view.revision.max(revision);
                if !changes.is_empty() {
                    self.is_changed = true;
                    self.note_free();
                }
            }
            Ok(WatchAnswer::Compacted { oldest }) => {
                self.is_changed = true;
                if planted!(WatchMissed) {
                    self.watch(oldest);
                } else {
                    self.watching = Watching::reading(self.now);
                }
            }
            // The watch goes on by itself.
            Err(Fault::Unavailable(_)) => {}
            Err(_) => {
                self.is_changed = true;
                let again = self.again();
                self.on_view_fault(again);
            }
        }
    }

    /// Notes since when this node knows that shares have no owner.
    fn note_free(&mut self) {
        let Some(view) = &self.view else { return };
        for (name, share) in &mut self.shares {
            if view.owners.contains_key(name) {
                share.free = None;
                continue;
            }
            let last = view.last.get(name).map_or(Revision(0), |last| last.revision);
            // Another owner may have come and gone between two answers of the watch. Then the
            // waiting time starts again now.
            if share.free.is_none_or(|free| free.last != last) {
                share.free = Some(super::share::Free { since: self.now, last });
            }
        }
    }
}
