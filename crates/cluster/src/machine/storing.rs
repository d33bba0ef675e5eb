//! Records of persistent handles: the requests of their queues and loads.

use alloc::string::ToString;
use alloc::vec::Vec;

use frevo_etcd::types::{Fault, TxnAnswer};

use super::Machine;
use super::requests::{Attempt, Holding, Purpose};
use crate::Epoch;
use crate::interface::{LoadPart, Output, RecordChange, RecordEnd, StopReason, Ticket};
use crate::limits::LOADS;
use crate::names::ShareName;
use crate::records::{Load, Loading, RecordQueue, Verdict};

impl Machine {
    /// The queue of an ownership.
    fn queue(&mut self, held: &Holding) -> Option<&mut RecordQueue> {
        let queue = self.shares.get_mut(&held.share)?.queue.as_mut()?;
        (queue.epoch() == held.epoch).then_some(queue)
    }

    fn end_record(&mut self, ticket: Ticket, end: RecordEnd) {
        self.outputs.push_back(Output::RecordDone(ticket, end));
    }

    pub(super) fn on_record(
        &mut self,
        share: &ShareName,
        epoch: Epoch,
        change: RecordChange,
        ticket: Ticket,
    ) {
        let held = Holding { share: share.clone(), epoch };
        match self.queue(&held).map(|queue| queue.push(change, ticket)) {
            None => self.end_record(ticket, RecordEnd::Fenced),
            Some(Err(full)) => self.end_record(ticket, RecordEnd::Failed(full.to_string())),
            Some(Ok(())) => self.send_batch(&held),
        }
    }

    /// Sends the next transaction, if none is under way.
    fn send_batch(&mut self, held: &Holding) {
        let Some(share) = self.shares.get_mut(&held.share) else { return };
        let Some(queue) = &mut share.queue else { return };
        if let Some(txn) = queue.next(&self.layout) {
            share.batch = Attempt::Pending;
            self.send_txn(Purpose::Batch(held.clone()), txn);
        }
    }

    pub(super) fn on_batch(&mut self, held: &Holding, answer: &TxnAnswer) {
        let now = self.now;
        let Some(queue) = self.queue(held) else { return };
        match queue.answered(answer) {
            Verdict::Done(tickets) => {
                if let Some(share) = self.shares.get_mut(&held.share) {
                    share.batch = Attempt::Due(now);
                }
                for ticket in tickets {
                    self.end_record(ticket, RecordEnd::Done);
                }
                self.send_batch(held);
            }
            Verdict::Fenced => self.lose(held, StopReason::RecordRefused),
        }
    }

    pub(super) fn on_batch_fault(&mut self, held: &Holding, fault: &Fault, again: Attempt) {
        let Some(queue) = self.queue(held) else { return };
        if let Fault::Refused(why) = fault
            && let Some(tickets) = queue.refused()
        {
            for ticket in tickets {
                self.end_record(ticket, RecordEnd::Failed(why.clone()));
            }
            self.send_batch(held);
            return;
        }
        if let Some(share) = self.shares.get_mut(&held.share) {
            share.batch = again;
        }
        self.is_changed = true;
    }

    pub(super) fn act_on_records(&mut self) {
        let waits = |(_, share): &(&ShareName, &super::share::Share)| {
            let is_pending = share.batch == Attempt::Pending;
            !is_pending && share.queue.as_ref().is_some_and(RecordQueue::is_in_flight)
        };
        let waiting: Vec<_> =
            self.shares.iter().filter(waits).map(|(name, _)| name.clone()).collect();
        for name in waiting {
            let Some(share) = self.shares.get(&name) else { continue };
            let attempt = share.batch;
            if self.is_due(attempt) {
                self.repeat_batch(&name);
            }
        }
        let due: Vec<_> = self.load_retries.iter().map(|(ticket, at)| (*ticket, *at)).collect();
        for (ticket, at) in due {
            if self.is_due(Attempt::Due(at)) {
                self.load_retries.remove(&ticket);
                self.send_load(ticket);
            }
        }
    }

    fn repeat_batch(&mut self, name: &ShareName) {
        let Some(share) = self.shares.get_mut(name) else { return };
        let Some(queue) = &mut share.queue else { return };
        let held = Holding { share: name.clone(), epoch: queue.epoch() };
        if let Some(txn) = queue.repeat() {
            share.batch = Attempt::Pending;
            self.send_txn(Purpose::Batch(held), txn);
        }
    }

    pub(super) fn on_load(&mut self, share: ShareName, epoch: Epoch, ticket: Ticket) {
        let stage = self.shares.get(&share).map(|share| &share.stage);
        if stage.and_then(super::share::Stage::owned) != Some(epoch) {
            self.outputs.push_back(Output::Loaded(ticket, LoadPart::Fenced));
        } else if self.loads.len() >= LOADS || self.loads.contains_key(&ticket) {
            let part = LoadPart::Failed("too many loads are under way".to_string());
            self.outputs.push_back(Output::Loaded(ticket, part));
        } else {
            self.loads.insert(ticket, Load::new(share, epoch));
            self.send_load(ticket);
        }
    }

    fn send_load(&mut self, ticket: Ticket) {
        if let Some(load) = self.loads.get(&ticket) {
            let txn = load.next(&self.layout);
            self.send_txn(Purpose::Load(ticket), txn);
        }
    }

    pub(super) fn on_load_part(&mut self, ticket: Ticket, answer: &TxnAnswer) {
        let Some(load) = self.loads.get_mut(&ticket) else { return };
        let held = Holding { share: load.share().clone(), epoch: load.epoch() };
        let (part, loading) = load.answered(&self.layout, answer);
        let has_records = matches!(part, LoadPart::Records(_));
        let is_fenced = part == LoadPart::Fenced;
        self.outputs.push_back(Output::Loaded(ticket, part));
        if loading == Loading::More {
            self.send_load(ticket);
            return;
        }
        self.loads.remove(&ticket);
        if has_records {
            self.outputs.push_back(Output::Loaded(ticket, LoadPart::End));
        }
        if is_fenced {
            self.lose(&held, StopReason::RecordRefused);
        }
    }

    pub(super) fn on_load_fault(&mut self, ticket: Ticket, fault: Fault, again: Attempt) {
        let Some(load) = self.loads.get_mut(&ticket) else { return };
        match fault {
            Fault::Refused(why) => {
                self.loads.remove(&ticket);
                self.outputs.push_back(Output::Loaded(ticket, LoadPart::Failed(why)));
                return;
            }
            Fault::Compacted => {
                load.restart();
                self.outputs.push_back(Output::Loaded(ticket, LoadPart::Again));
            }
            Fault::Unavailable(_)
            | Fault::NoSpace(_)
            | Fault::LeaseNotFound
            | Fault::Malformed(_) => {}
        }
        let at = if let Attempt::Due(at) = again { at } else { self.now };
        self.load_retries.insert(ticket, at);
        self.is_changed = true;
    }
}
