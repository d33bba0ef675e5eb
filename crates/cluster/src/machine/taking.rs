//! Taking shares that have no owner.

use alloc::vec;
use alloc::vec::Vec;

use frevo_etcd::engine::Moment;
use frevo_etcd::types::{Compare, Fact, LeaseId, Op, OpAnswer, Relation, Revision, Txn, TxnAnswer};

use super::Machine;
use super::requests::{Attempt, Purpose};
use super::share::{Fencing, Free, Stage, Taking};
use crate::Epoch;
use crate::interface::{Event, Order};
use crate::keys::ControlKey;
use crate::limits::{FENCE_RETRY, TAKES_AT_ONCE};
use crate::names::ShareName;
use crate::records::{RecordQueue, batch_value, read_one};
use crate::settings::Timing;
use crate::time::after;
use crate::values::{LastEnd, LastValue, OwnerValue, Reason, TakeNumber};

/// The way in which a share without an owner can be taken.
enum Claim {
    /// At once.
    Now(Reason),
    /// From this moment on: the former owner cannot be fenced.
    At(Moment, Reason),
    /// When storage refuses the former owner, which is not asked for before this moment.
    Fence(Moment, LastValue),
    /// Not at all: the key `last` cannot be read.
    Never,
}

impl Machine {
    pub(super) fn act_on_takes(&mut self) {
        self.end_fences();
        self.send_takes();
        if self.is_paused || self.is_leaving || !self.is_inside() {
            return;
        }
        let Some(view) = &self.view else { return };
        let turns = self.turns(view);
        #[cfg(test)]
        turns.judge(&self.turns_by_all_ranks(view));
        if let Some(next) = turns.next {
            self.wake(next);
        }
        for share in turns.come {
            self.consider(&share);
        }
    }

    /// Ends fences of shares that have an owner again, or that this node is no longer to take.
    fn end_fences(&mut self) {
        let may_take = self.is_inside() && !self.is_leaving;
        for share in self.shares.values_mut() {
            let is_over = !may_take || share.free.is_none() || share.storage.is_none();
            if is_over && matches!(share.stage, Stage::Fencing(_)) {
                share.stage = Stage::Away;
            }
        }
    }

    /// Takes a share whose turn has come at this node, or does what comes before that.
    fn consider(&mut self, name: &ShareName) {
        let Some(free) = self.shares.get(name).and_then(|share| share.free) else { return };
        match self.claim(name, free) {
            Claim::Now(reason) => self.take(name, free, reason),
            Claim::At(moment, _) | Claim::Fence(moment, _) if moment > self.now => {
                self.wake(moment);
            }
            Claim::At(_, reason) => {
                if let Reason::Failover(node) = &reason {
                    self.note(Event::TakenWithoutFence(name.clone(), node.clone()));
                }
                self.take(name, free, reason);
            }
            Claim::Fence(_, former) => self.fence(name, free, former),
            Claim::Never => self.note_unreadable(name),
        }
    }

    fn claim(&self, name: &ShareName, free: Free) -> Claim {
        let Some(view) = &self.view else { return Claim::Never };
        let Some(last) = view.last.get(name) else { return Claim::Now(Reason::First) };
        let Some(last) = &last.value else { return Claim::Never };
        if matches!(last.end, LastEnd::Given(_)) {
            return Claim::Now(Reason::Given(last.node.clone()));
        }
        let reason = Reason::Failover(last.node.clone());
        // This node itself had the share and has stopped it, so no other node needs to be fenced.
        if last.lease == self.lease || planted!(ServeBeforeFence) {
            return Claim::Now(reason);
        }
        let is_up = view.nodes.get(&last.node).is_some_and(|node| node.lease == last.lease);
        // An earlier process of this node has the same identity at the storage: to refuse that one is to
        // refuse this one.
        let storage = self.shares.get(name).and_then(|share| share.storage.as_ref());
        let is_own = storage.is_some_and(|storage| storage.fence == last.fence);
        // The former owner serves no longer than until this limit.
        let limit = after(free.since, Timing::of(last.ttl).unwrap_or_default().wait());
        if is_own || !last.fence.can_refuse() || (is_up && planted!(UpWithoutFence)) {
            return Claim::At(limit, reason);
        }
        // If the node is up although its key was deleted, it may still answer clients, and a fence
        // does not prevent that. So this node waits until the limit. If the former owner has not
        // reported by then that it has stopped the share (`resign`), its process may be suspended,
        // and it is fenced.
        Claim::Fence(if is_up { limit } else { free.since }, last.clone())
    }

    fn note_unreadable(&mut self, name: &ShareName) {
        let Some(share) = self.shares.get_mut(name) else { return };
        if !share.is_unreadable {
            share.is_unreadable = true;
            self.note(Event::Unreadable(name.clone()));
        }
    }

    /// Orders a fence, if that is not under way.
    fn fence(&mut self, name: &ShareName, free: Free, former: LastValue) {
        let Some(share) = self.shares.get(name) else { return };
        if let Stage::Fencing(fencing) = &share.stage
            && fencing.free == free
            && !self.is_due(fencing.attempt)
        {
            return;
        }
        let attempt = Attempt::Pending;
        let fencing = Fencing { lease: former.lease, node: former.node.clone(), free, attempt };
        if let Some(share) = self.shares.get_mut(name) {
            share.stage = Stage::Fencing(fencing);
        }
        let LastValue { node, lease, fence, .. } = former;
        self.order(Order::Fence { share: name.clone(), node, lease, fence });
    }

    pub(super) fn on_fenced(&mut self, name: &ShareName, lease: LeaseId) {
        let Some(share) = self.shares.get(name) else { return };
        let Stage::Fencing(fencing) = &share.stage else { return };
        if fencing.lease == lease {
            let Fencing { node, free, .. } = fencing.clone();
            self.take(name, free, Reason::Failover(node));
        }
    }

    pub(super) fn on_fence_failed(&mut self, name: &ShareName, lease: LeaseId) {
        let again = Attempt::Due(after(self.now, FENCE_RETRY));
        let Some(share) = self.shares.get_mut(name) else { return };
        if let Stage::Fencing(fencing) = &mut share.stage
            && fencing.lease == lease
        {
            fencing.attempt = again;
        }
    }

    /// Begins to make the owner's key.
    fn take(&mut self, name: &ShareName, free: Free, reason: Reason) {
        let under_way =
            self.shares.values().filter(|s| matches!(s.stage, Stage::Taking(_))).count();
        if under_way >= TAKES_AT_ONCE {
            // The share is considered again when one of the running transactions has ended. Its
            // fence is then ordered once more.
            if let Some(share) = self.shares.get_mut(name) {
                share.stage = Stage::Away;
            }
            return;
        }
        self.takes = self.takes.saturating_add(1);
        let take = TakeNumber(self.takes);
        let attempt = Attempt::Due(self.now);
        let Some(share) = self.shares.get_mut(name) else { return };
        let Some(storage) = share.storage.clone() else { return };
        share.stage = Stage::Taking(Taking { take, free, reason, storage, attempt });
        self.send_take(name);
    }

    /// Sends the transactions that take shares and are due.
    fn send_takes(&mut self) {
        let is_taking = |(_, share): &(&ShareName, &super::share::Share)| {
            matches!(share.stage, Stage::Taking(_))
        };
        let names: Vec<_> =
            self.shares.iter().filter(is_taking).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.send_take(&name);
        }
    }

    fn send_take(&mut self, name: &ShareName) {
        let Some(share) = self.shares.get(name) else { return };
        let Stage::Taking(taking) = &share.stage else { return };
        let taking = taking.clone();
        if !self.is_due(taking.attempt) {
            return;
        }
        let owner_key = self.layout.control(&ControlKey::Owner(name.clone()));
        let last_key = self.layout.control(&ControlKey::Last(name.clone()));
        let node = self.settings.node.clone();
        let owner = OwnerValue { node: node.clone(), take: taking.take, reason: taking.reason };
        let last = LastValue {
            node,
            lease: self.lease,
            ttl: self.settings.timing.ttl(),
            fence: taking.storage.fence,
            end: LastEnd::Open,
        };
        let equal =
            |key: &[u8], fact| Compare { key: key.to_vec(), relation: Relation::Equal, fact };
        let put = |key: &[u8], value, lease| Op::Put { key: key.to_vec(), value, lease };
        let batch = batch_value(self.lease, taking.take, 0);
        let txn = Txn {
            compares: vec![
                equal(&owner_key, Fact::CreateRevision(Revision(0))),
                equal(&last_key, Fact::ModRevision(taking.free.last)),
            ],
            success: vec![
                put(&owner_key, owner.to_bytes(), self.lease),
                put(&last_key, last.to_bytes(), LeaseId(0)),
                put(&self.layout.batch(name), batch, LeaseId(0)),
            ],
            failure: vec![read_one(owner_key)],
        };
        self.send_txn(Purpose::Take(name.clone()), txn);
        self.retry_take(name, Attempt::Pending);
    }

    pub(super) fn retry_take(&mut self, name: &ShareName, attempt: Attempt) {
        if let Some(share) = self.shares.get_mut(name)
            && let Stage::Taking(taking) = &mut share.stage
        {
            taking.attempt = attempt;
        }
    }

    /// # Errors
    /// If the answer is not one to such a transaction.
    pub(super) fn on_taken(
        &mut self,
        name: &ShareName,
        sent: Moment,
        answer: &TxnAnswer,
    ) -> Result<(), &'static str> {
        let is_late_enough = self.covers_limit(sent);
        let lease = self.lease;
        let Some(share) = self.shares.get_mut(name) else { return Ok(()) };
        let Stage::Taking(taking) = &share.stage else { return Ok(()) };
        let epoch = if answer.succeeded {
            Some(Epoch(answer.revision.0))
        } else {
            let [OpAnswer::Range { values, .. }] = &*answer.answers else {
                return Err("the taking of a share has another answer");
            };
            // An earlier attempt of this node may have made the key, and its answer was lost.
            let owner = values.first().filter(|key| key.lease == lease);
            let value = owner.and_then(|key| OwnerValue::from_bytes(&key.value).ok());
            let is_own = value.is_some_and(|value| value.take == taking.take);
            owner.filter(|_| is_own).map(|key| Epoch(key.create_revision.0))
        };
        let Some(epoch) = epoch else {
            share.refused = Some(taking.free);
            share.stage = Stage::Away;
            return Ok(());
        };
        let (take, reason) = (taking.take, taking.reason.clone());
        share.queue = Some(RecordQueue::new(name.clone(), epoch, lease, take));
        share.batch = Attempt::Due(self.now);
        share.stage = Stage::Starting { epoch, is_restored: false, reason: reason.clone() };
        share.verified = is_late_enough.then_some(sent);
        if share.verified.is_none() {
            self.round_at = self.now;
        }
        self.order(Order::Start { share: name.clone(), epoch, reason });
        Ok(())
    }
}
