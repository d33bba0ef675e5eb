//! Giving shares away: planned moves, drained nodes, and the end of a node.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use frevo_etcd::types::{Compare, Fact, Keys, LeaseId, Op, Relation, Revision, Txn, TxnAnswer};

use super::Machine;
use super::requests::{Attempt, Holding, Purpose};
use super::share::{Share, Stage};
use crate::Epoch;
use crate::interface::{Event, Order};
use crate::keys::ControlKey;
use crate::limits::{FENCE_RETRY, MOVES_AT_ONCE};
use crate::names::{NodeName, ShareName};
use crate::placement::spread;
use crate::records::is_owner;
use crate::time::after;
use crate::values::{LastEnd, LastValue};

/// A planned move of a share that this node has.
enum Planned {
    /// The share is to be given to this node.
    To(NodeName),
    /// The move is not for this ownership, or the node cannot take the share.
    Impossible(Revision, Option<NodeName>),
}

impl Machine {
    pub(super) fn act_on_gifts(&mut self) {
        let may_go = |(name, share): &(&ShareName, &Share)| self.may_go(name, share);
        let names: Vec<_> =
            self.shares.iter().filter(may_go).map(|(name, _)| name.clone()).collect();
        for name in &names {
            self.release(name);
            self.resign(name);
            self.follow_plan(name);
        }
        let is_drained =
            self.view.as_ref().is_some_and(|view| view.drained.contains_key(&self.settings.node));
        if is_drained || self.is_leaving || self.is_behind() {
            self.give_all();
        }
    }

    /// False for a share with which nothing of this is to be done: most of thousands.
    fn may_go(&self, name: &ShareName, share: &Share) -> bool {
        match share.stage {
            Stage::Releasing { .. } => true,
            Stage::Away => {
                let last = self.view.as_ref().and_then(|view| view.last.get(name));
                let value =
                    last.filter(|_| share.free.is_some()).and_then(|last| last.value.as_ref());
                value.is_some_and(|value| value.lease == self.lease)
            }
            _ => self.view.as_ref().is_some_and(|view| view.moves.contains_key(name)),
        }
    }

    fn follow_plan(&mut self, name: &ShareName) {
        let Some(share) = self.shares.get(name) else { return };
        let (Some(epoch), Some(view)) = (share.stage.owned(), &self.view) else { return };
        // The view may be older than this ownership. Then it cannot show whether a move is planned
        // for it.
        let Some(planned) = view.moves.get(name).filter(|_| view.revision.0 >= epoch.0) else {
            return;
        };
        let (attempt, calm) = (share.move_drop, share.calm_until);
        let is_serving = share.stage == Stage::Serving { epoch };
        let plan = match &planned.value {
            Some(value) if value.epoch == epoch => {
                if value.to != self.settings.node && view.can_take(&value.to, name) {
                    Planned::To(value.to.clone())
                } else {
                    Planned::Impossible(planned.revision, Some(value.to.clone()))
                }
            }
            _ => Planned::Impossible(planned.revision, None),
        };
        match plan {
            // The server could not give the share away, and the deletion of the planned move is
            // under way.
            Planned::To(_) if is_serving && attempt == Attempt::Pending => {}
            Planned::To(_) if is_serving && calm > self.now => self.wake(calm),
            Planned::To(to) if is_serving => self.drain(name, epoch, Some(to)),
            Planned::To(_) => {}
            Planned::Impossible(revision, to) if self.is_due(attempt) => {
                self.drop_move(name, revision);
                if let Some(to) = to {
                    self.note(Event::MoveRefused(name.clone(), to));
                }
            }
            Planned::Impossible(..) => {}
        }
    }

    /// Deletes a planned move.
    fn drop_move(&mut self, name: &ShareName, revision: Revision) {
        if let Some(share) = self.shares.get_mut(name) {
            share.move_drop = Attempt::Pending;
        }
        let key = self.layout.control(&ControlKey::Move(name.clone()));
        let fact = Fact::ModRevision(revision);
        let txn = Txn {
            compares: vec![Compare { key: key.clone(), relation: Relation::Equal, fact }],
            success: vec![Op::Delete(Keys::One(key))],
            failure: Vec::new(),
        };
        self.send_txn(Purpose::DropMove(name.clone()), txn);
    }

    /// Notes that a planned move was deleted, before the watch says so. Where another one has taken its
    /// place, that one stays.
    pub(super) fn on_move_dropped(&mut self, name: &ShareName, answer: &TxnAnswer) {
        let again = if answer.succeeded { Attempt::Due(self.now) } else { self.again() };
        self.retry_move_drop(name, again);
        if answer.succeeded
            && let Some(view) = &mut self.view
            && view.moves.get(name).is_some_and(|planned| planned.revision < answer.revision)
        {
            view.moves.remove(name);
        }
    }

    pub(super) fn retry_move_drop(&mut self, name: &ShareName, attempt: Attempt) {
        if let Some(share) = self.shares.get_mut(name) {
            share.move_drop = attempt;
        }
    }

    fn drain(&mut self, name: &ShareName, epoch: Epoch, to: Option<NodeName>) {
        if let Some(share) = self.shares.get_mut(name) {
            share.stage = Stage::Draining { epoch, to: to.clone() };
        }
        self.order(Order::Drain { share: name.clone(), epoch, to });
    }

    /// Gives shares to other nodes, a few at a time.
    fn give_all(&mut self) {
        let is_moving = |share: &&Share| {
            matches!(share.stage, Stage::Draining { .. } | Stage::Releasing { .. })
        };
        let room = MOVES_AT_ONCE.saturating_sub(self.shares.values().filter(is_moving).count());
        let Some(view) = &self.view else { return };
        let mut calm = None;
        let mut own = BTreeMap::new();
        let mut epochs = Vec::new();
        for (name, share) in &self.shares {
            let Stage::Serving { epoch } = share.stage else { continue };
            if share.calm_until > self.now {
                calm = calm.max(Some(share.calm_until));
            } else if epochs.len() < room {
                own.insert(name.clone(), share.weight);
                epochs.push(Holding { share: name.clone(), epoch });
            }
        }
        let mut loads = self.loads(view, &BTreeMap::new());
        loads.remove(&self.settings.node);
        let targets = spread(loads, &own, |node, share| view.can_take(node, share));
        if let Some(calm) = calm {
            self.wake(calm);
        }
        for Holding { share, epoch } in epochs {
            let to = targets.get(&share).cloned();
            if to.is_some() || self.is_leaving || self.is_behind() {
                self.drain(&share, epoch, to);
            }
        }
    }

    pub(super) fn on_drained(&mut self, name: &ShareName, epoch: Epoch) {
        let now = self.now;
        let Some(share) = self.shares.get_mut(name) else { return };
        if let Stage::Draining { epoch: of, to } = &share.stage
            && *of == epoch
        {
            let to = to.clone();
            share.stage = Stage::Releasing { epoch, to, attempt: Attempt::Due(now) };
            // All earlier changes of records were answered. Changes that come now are refused.
            self.fence_records(name);
        }
    }

    pub(super) fn on_not_drained(&mut self, name: &ShareName, epoch: Epoch) {
        let calm_until = after(self.now, FENCE_RETRY);
        let Some(share) = self.shares.get_mut(name) else { return };
        if !matches!(&share.stage, Stage::Draining { epoch: of, .. } if *of == epoch) {
            return;
        }
        share.stage = Stage::Serving { epoch };
        share.calm_until = calm_until;
        let planned = self.view.as_ref().and_then(|view| view.moves.get(name));
        if let Some(revision) = planned.map(|planned| planned.revision) {
            self.drop_move(name, revision);
        }
    }

    /// Deletes the owner's key of a share that nobody uses any more.
    fn release(&mut self, name: &ShareName) {
        let Some(share) = self.shares.get(name) else { return };
        let Stage::Releasing { epoch, to, attempt } = &share.stage else { return };
        let (epoch, to, attempt) = (*epoch, to.clone(), *attempt);
        if !self.is_due(attempt) {
            return;
        }
        let fence = self.view.as_ref().and_then(|view| view.last.get(name));
        let fence = fence.and_then(|last| last.value.as_ref()).map(|value| value.fence.clone());
        let last = LastValue {
            node: self.settings.node.clone(),
            lease: self.lease,
            ttl: self.settings.timing.ttl(),
            fence: fence.unwrap_or_default(),
            end: LastEnd::Given(to),
        };
        let owner = self.layout.control(&ControlKey::Owner(name.clone()));
        let planned = self.layout.control(&ControlKey::Move(name.clone()));
        let key = self.layout.control(&ControlKey::Last(name.clone()));
        let txn = Txn {
            compares: vec![is_owner(&self.layout, name, epoch)],
            success: vec![
                Op::Delete(Keys::One(owner)),
                Op::Put { key, value: last.to_bytes(), lease: LeaseId(0) },
                Op::Delete(Keys::One(planned)),
            ],
            failure: Vec::new(),
        };
        let held = Holding { share: name.clone(), epoch };
        self.send_txn(Purpose::Release(held.clone()), txn);
        self.retry_release(&held, Attempt::Pending);
    }

    /// Says in the key `last` that this node uses a share no longer whose owner's key has gone by another
    /// hand. The next owner then neither waits nor has storage refuse this node.
    fn resign(&mut self, name: &ShareName) {
        let Some(share) = self.shares.get(name) else { return };
        let (Stage::Away, Some(free)) = (&share.stage, share.free) else { return };
        let attempt = share.resigning;
        let last = self.view.as_ref().and_then(|view| view.last.get(name));
        let Some(last) = last.filter(|last| last.revision == free.last) else { return };
        let is_own = |value: &&LastValue| value.lease == self.lease && value.end == LastEnd::Open;
        let Some(value) = last.value.as_ref().filter(is_own) else { return };
        let value = LastValue { end: LastEnd::Given(None), ..value.clone() };
        if !self.is_inside() || !self.is_due(attempt) {
            return;
        }
        let owner = self.layout.control(&ControlKey::Owner(name.clone()));
        let key = self.layout.control(&ControlKey::Last(name.clone()));
        let equal =
            |key: &[u8], fact| Compare { key: key.to_vec(), relation: Relation::Equal, fact };
        let txn = Txn {
            compares: vec![
                equal(&owner, Fact::CreateRevision(Revision(0))),
                equal(&key, Fact::ModRevision(free.last)),
            ],
            success: vec![Op::Put { key, value: value.to_bytes(), lease: LeaseId(0) }],
            failure: Vec::new(),
        };
        self.send_txn(Purpose::Resign(name.clone()), txn);
        self.retry_resign(name, Attempt::Pending);
    }

    pub(super) fn retry_resign(&mut self, name: &ShareName, attempt: Attempt) {
        if let Some(share) = self.shares.get_mut(name) {
            share.resigning = attempt;
        }
    }

    pub(super) fn retry_release(&mut self, held: &Holding, again: Attempt) {
        if let Some(share) = self.shares.get_mut(&held.share)
            && let Stage::Releasing { epoch, attempt, .. } = &mut share.stage
            && *epoch == held.epoch
        {
            *attempt = again;
        }
    }

    pub(super) fn on_released(&mut self, held: &Holding) {
        let Some(share) = self.shares.get_mut(&held.share) else { return };
        if let Stage::Releasing { epoch, to, .. } = &share.stage
            && *epoch == held.epoch
        {
            let to = to.clone();
            share.stage = Stage::Away;
            share.verified = None;
            let Holding { share, epoch } = held.clone();
            self.order(Order::Left { share, epoch, to });
        }
    }
}
