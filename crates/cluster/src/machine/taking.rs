//! Taking shares that have no owner.

use alloc::collections::BTreeMap;
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
use crate::names::{NodeName, ShareName};
use crate::placement::{Load, rank, spread};
use crate::records::{RecordQueue, batch_value, read_one};
use crate::settings::Timing;
use crate::time::after;
use crate::values::{LastEnd, LastValue, OwnerValue, Reason, TakeNumber};
use crate::view::View;

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
        let node = &self.settings.node;
        let is_free = |(_, share): &(&ShareName, &super::share::Share)| {
            let is_away = matches!(share.stage, Stage::Away | Stage::Fencing(_));
            share.free.is_some() && is_away
        };
        let mut free = BTreeMap::new();
        let mut first = BTreeMap::new();
        for (name, share) in self.shares.iter().filter(is_free) {
            match given_to(view, name) {
                Some(to) => _ = first.insert(name.clone(), to.clone()),
                None => _ = free.insert(name.clone(), share.weight),
            }
        }
        if free.is_empty() && first.is_empty() {
            return;
        }
        let loads = self.loads(view, &first);
        first.extend(spread(loads, &free, |node, share| view.can_take(node, share)));
        let nodes = || view.nodes.keys();
        let able = |name: &&ShareName| view.can_take(node, name);
        let own = self.shares.iter().filter(is_free).map(|(name, _)| name).filter(able);
        let turns: Vec<_> = own
            .map(|name| Turn {
                share: name.clone(),
                rank: rank(name, node, first.get(name), nodes().filter(|n| view.can_take(n, name))),
                is_given: given_to(view, name) == Some(node),
            })
            .collect();
        for turn in turns {
            self.consider(&turn);
        }
    }

    /// The load of each node that may take shares.
    pub(super) fn loads(
        &self,
        view: &View,
        also: &BTreeMap<ShareName, NodeName>,
    ) -> BTreeMap<NodeName, Load> {
        let mut loads = BTreeMap::new();
        for (node, entry) in &view.nodes {
            if let Some(value) = &entry.value
                && !value.leaving
                && !view.drained.contains_key(node)
            {
                loads.insert(node.clone(), Load { weight: value.weight, load: 0 });
            }
        }
        let owners = view.owners.keys().filter_map(|name| Some((name, view.owner(name)?)));
        for (share, node) in owners.chain(also) {
            if let Some(load) = loads.get_mut(node) {
                let weight = self.shares.get(share).map_or(1, |share| share.weight);
                load.load = load.load.saturating_add(u64::from(weight));
            }
        }
        // Shares that this node is about to have count before the watch tells that it has them.
        let node = &self.settings.node;
        if let Some(load) = loads.get_mut(node) {
            for (name, share) in &self.shares {
                if share.stage.is_held() && view.owner(name) != Some(node) {
                    load.load = load.load.saturating_add(u64::from(share.weight));
                }
            }
        }
        loads
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

    fn consider(&mut self, turn: &Turn) {
        let Some(share) = self.shares.get(&turn.share) else { return };
        let Some(free) = share.free else { return };
        if share.storage.is_none() || share.refused == Some(free) {
            return;
        }
        let begin = if free.since <= self.registered_at && !turn.is_given {
            after(self.registered_at, self.settings.timing.settle())
        } else {
            free.since
        };
        let due = after(begin, self.settings.timing.turn().saturating_mul(turn.rank));
        if due > self.now && share.stage == Stage::Away {
            self.wake(due);
            return;
        }
        match self.claim(&turn.share, free) {
            Claim::Now(reason) => self.take(&turn.share, free, reason),
            Claim::At(moment, _) | Claim::Fence(moment, _) if moment > self.now => {
                self.wake(moment);
            }
            Claim::At(_, reason) => {
                if let Reason::Failover(node) = &reason {
                    self.note(Event::TakenWithoutFence(turn.share.clone(), node.clone()));
                }
                self.take(&turn.share, free, reason);
            }
            Claim::Fence(_, former) => self.fence(&turn.share, free, former),
            Claim::Never => self.note_unreadable(&turn.share),
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

/// A share that this node may take.
struct Turn {
    share: ShareName,
    /// The number of nodes that come before this one.
    rank: u32,
    /// True if the former owner has given it to this node.
    is_given: bool,
}

/// The node to which the former owner has given a share, if it can take the share.
fn given_to<'a>(view: &'a View, share: &ShareName) -> Option<&'a NodeName> {
    match &view.last.get(share)?.value.as_ref()?.end {
        LastEnd::Given(Some(to)) if view.can_take(to, share) => Some(to),
        _ => None,
    }
}
