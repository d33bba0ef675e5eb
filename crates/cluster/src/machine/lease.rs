//! The lease of a node: its registration, its confirmation, and the limit until which it serves.

use alloc::vec;
use alloc::vec::Vec;

use frevo_etcd::engine::{Confirmed, Moment};
use frevo_etcd::types::{
    Compare, Fact, Keys, LeaseId, Op, OpAnswer, Relation, Revision, Txn, TxnAnswer,
};

use super::Machine;
use super::progress::Membership;
use super::requests::{Attempt, Holding, Purpose};
use super::share::Stage;
use crate::fence::Fence;
use crate::ids::Generation;
use crate::interface::{Command, CommandId, Event, Order, Request, StopReason};
use crate::keys::ControlKey;
use crate::limits::TXN_RECORDS;
use crate::names::ShareName;
use crate::records::{is_owner, read_one};
use crate::time::after;
use crate::values::{LastEnd, LastValue, NodeValue, Unable};

impl Machine {
    /// True if this node is registered.
    pub(super) fn is_inside(&self) -> bool {
        self.membership == Membership::Inside
    }

    pub(super) fn has_left(&self) -> bool {
        self.membership == Membership::Gone
    }

    fn has_lease(&self) -> bool {
        self.lease != LeaseId(0)
    }

    pub(super) fn act_on_lease(&mut self) {
        match self.membership {
            Membership::Outside(attempt) => {
                if self.is_leaving {
                    self.membership = Membership::Gone;
                } else if self.is_due(attempt) {
                    self.membership = Membership::Outside(Attempt::Pending);
                    self.send(Purpose::Grant, Request::Grant(self.settings.timing.ttl()));
                }
            }
            Membership::Registering(attempt) => self.register(attempt),
            Membership::Inside => {
                self.advertise();
                if self.is_leaving && self.shares.values().all(|share| share.stage == Stage::Away) {
                    self.membership = Membership::Leaving(Attempt::Due(self.now));
                    self.is_changed = true;
                }
            }
            Membership::Leaving(attempt) => {
                if self.is_due(attempt) {
                    self.membership = Membership::Leaving(Attempt::Pending);
                    self.send(Purpose::Revoke, Request::Revoke(self.lease));
                }
            }
            Membership::Gone => {}
        }
        if self.has_lease() {
            self.number();
            self.confirm();
        }
    }

    /// Repeats the step to the present relation.
    pub(super) fn retry_membership(&mut self, again: Attempt) {
        self.membership = match self.membership {
            Membership::Outside(_) => Membership::Outside(again),
            Membership::Registering(_) => Membership::Registering(again),
            Membership::Leaving(_) => Membership::Leaving(again),
            other => other,
        };
    }

    pub(super) fn on_granted(&mut self, sent: Moment, lease: &Confirmed) {
        self.lease = lease.lease;
        self.alive = sent;
        self.round_at = after(self.now, self.settings.timing.round());
        self.numbering = Some(Attempt::Due(self.now));
        self.membership = Membership::Registering(Attempt::Due(self.now));
    }

    /// Gets a number for this registration.
    fn number(&mut self) {
        let Some(attempt) = self.numbering else { return };
        if self.is_due(attempt) {
            self.numbering = Some(Attempt::Pending);
            let key = self.layout.generation();
            let put = Op::Put { key: key.clone(), value: Vec::new(), lease: LeaseId(0) };
            let txn = Txn { success: vec![put, read_one(key)], ..Txn::default() };
            self.send_txn(Purpose::Number, txn);
        }
    }

    /// # Errors
    /// If the answer has no number.
    pub(super) fn on_numbered(&mut self, answer: &TxnAnswer) -> Result<(), &'static str> {
        let version = match &*answer.answers {
            [_, OpAnswer::Range { values, .. }] => values.first().map(|key| key.version),
            _ => None,
        };
        let number = version.and_then(|version| u32::try_from(version).ok());
        self.generation = Generation(number.ok_or("the number of starts is missing or too large")?);
        self.numbering = None;
        self.order(Order::Generation(self.generation));
        Ok(())
    }

    /// The registration as it should be.
    fn registration(&self) -> NodeValue {
        let own = |is_able| {
            let own = self.shares.iter();
            own.filter(move |(_, share)| share.storage.is_some() == is_able).map(|(name, _)| name)
        };
        // The key `last` of a share stays when no node has the share in its configuration.
        let known = self.view.iter().flat_map(|view| view.last.keys());
        let others = known.filter(|name| !self.shares.contains_key(name));
        NodeValue {
            addresses: self.settings.addresses.clone(),
            weight: self.settings.weight,
            software: self.settings.software.clone(),
            generation: self.generation,
            dialect: self.settings.dialect,
            leaving: self.is_leaving,
            unable: Unable::of(own(false).chain(others), own(true)),
            records: self.settings.records,
        }
    }

    fn node_key(&self) -> Vec<u8> {
        self.layout.control(&ControlKey::Node(self.settings.node.clone()))
    }

    fn register(&mut self, attempt: Attempt) {
        if self.numbering.is_some()
            || self.view.is_none()
            || self.inherit()
            || !self.is_due(attempt)
        {
            return;
        }
        self.membership = Membership::Registering(Attempt::Pending);
        let key = self.node_key();
        let value = self.registration();
        let none = Fact::CreateRevision(Revision(0));
        let put = Op::Put { key: key.clone(), value: value.to_bytes(), lease: self.lease };
        let is_new = Compare { key: key.clone(), relation: Relation::Equal, fact: none };
        let txn = Txn {
            // A node that does not know what the cluster demands does not come in.
            compares: vec![is_new, self.has_same_dialect()],
            success: vec![put],
            failure: vec![read_one(key)],
        };
        self.advertised = Some(value);
        self.send_txn(Purpose::Register, txn);
    }

    /// # Errors
    /// If the answer is not one to a registration.
    pub(super) fn on_registered(&mut self, answer: &TxnAnswer) -> Result<(), &'static str> {
        if !answer.succeeded {
            let [OpAnswer::Range { values, .. }] = &*answer.answers else {
                return Err("a registration has another answer");
            };
            if values.first().is_none_or(|key| key.lease != self.lease) {
                // Without a key of that name the demanded dialect has changed, and the watch will tell it.
                if !values.is_empty() {
                    self.note(Event::NameTaken);
                }
                let again = after(self.now, self.settings.timing.round());
                self.membership = Membership::Registering(Attempt::Due(again));
                return Ok(());
            }
            // An earlier attempt, whose answer was lost, may have written another value, so the
            // value is written again.
            self.advertised = None;
        }
        self.advertised_at = answer.revision;
        self.membership = Membership::Inside;
        self.registered_at = self.now;
        self.note(Event::Registered(self.generation));
        Ok(())
    }

    /// Gives the shares of this node's earlier process free, which has ended. Returns true until that is
    /// done.
    fn inherit(&mut self) -> bool {
        let Some(lease) = self.settings.predecessor else { return false };
        if !self.is_due(self.inheriting) {
            return true;
        }
        self.inheriting = Attempt::Pending;
        let owners = self.view.iter().flat_map(|view| &view.owners);
        let of_lease = owners.filter(|(_, owner)| owner.lease == lease);
        let held =
            of_lease.map(|(share, owner)| Holding { share: share.clone(), epoch: owner.epoch });
        let Some(held) = held.min_by(|a, b| a.share.cmp(&b.share)) else {
            self.send(Purpose::RevokePredecessor, Request::Revoke(lease));
            return true;
        };
        let key = self.layout.control(&ControlKey::Owner(held.share.clone()));
        let node = self.settings.node.clone();
        let last = LastValue {
            node: node.clone(),
            lease,
            ttl: self.settings.timing.ttl(),
            fence: Fence::None,
            end: LastEnd::Given(Some(node)),
        };
        let last_key = self.layout.control(&ControlKey::Last(held.share.clone()));
        let of_lease = Fact::Lease(lease);
        let txn = Txn {
            compares: vec![
                is_owner(&self.layout, &held.share, held.epoch),
                Compare { key: key.clone(), relation: Relation::Equal, fact: of_lease },
            ],
            success: vec![
                Op::Delete(Keys::One(key)),
                Op::Put { key: last_key, value: last.to_bytes(), lease: LeaseId(0) },
            ],
            failure: Vec::new(),
        };
        self.send_txn(Purpose::Inherit(held), txn);
        true
    }

    /// Notes that the earlier process has this share no longer, before the watch says so.
    pub(super) fn on_inherited(&mut self, held: &Holding) {
        self.inheriting = Attempt::Due(self.now);
        if let Some(view) = &mut self.view
            && view.owners.get(&held.share).is_some_and(|owner| owner.epoch == held.epoch)
        {
            view.owners.remove(&held.share);
        }
    }

    /// Changes the registration where it is no longer right.
    fn advertise(&mut self) {
        if !self.is_due(self.advertising) {
            return;
        }
        let value = self.registration();
        if self.advertised.as_ref() == Some(&value) && !self.is_overtaken(&value) {
            return;
        }
        self.advertising = Attempt::Pending;
        let key = self.node_key();
        let of_lease = Fact::Lease(self.lease);
        let put = Op::Put { key: key.clone(), value: value.to_bytes(), lease: self.lease };
        let txn = Txn {
            compares: vec![Compare { key, relation: Relation::Equal, fact: of_lease }],
            success: vec![put],
            failure: Vec::new(),
        };
        self.advertised = Some(value);
        self.send_txn(Purpose::Advertise, txn);
    }

    /// True if etcd has another registration than the last one: a request that was given up has come to
    /// etcd after it.
    fn is_overtaken(&self, value: &NodeValue) -> bool {
        let Some(view) = self.view.as_ref().filter(|view| view.revision >= self.advertised_at)
        else {
            return false;
        };
        let entry = view.nodes.get(&self.settings.node);
        let entry = entry.filter(|entry| entry.lease == self.lease);
        let Some(seen) = entry.and_then(|entry| entry.value.as_ref()) else { return false };
        // The value as others read it.
        let read = || NodeValue::from_bytes(&value.to_bytes());
        seen != value && read().is_ok_and(|read| *seen != read)
    }

    pub(super) fn on_advertised(&mut self, answer: &TxnAnswer) {
        self.advertising = Attempt::Due(self.now);
        self.advertised_at = answer.revision;
        if !answer.succeeded {
            // The key of this node was deleted by hand, so the node registers again.
            self.membership = Membership::Registering(Attempt::Due(self.now));
        }
    }

    /// Sends a keep-alive, and looks at the owners' keys of this node, when it is time.
    fn confirm(&mut self) {
        if self.round_at > self.now {
            self.wake(self.round_at);
            return;
        }
        self.round_at = after(self.now, self.settings.timing.round());
        self.wake(self.round_at);
        self.send(Purpose::KeepAlive, Request::KeepAlive(self.lease));
        let held = |(name, share): (&ShareName, &super::share::Share)| {
            share.stage.owned().map(|epoch| Holding { share: name.clone(), epoch })
        };
        let held: Vec<_> = self.shares.iter().filter_map(held).collect();
        for part in held.chunks(TXN_RECORDS) {
            let compare = |held: &Holding| is_owner(&self.layout, &held.share, held.epoch);
            let owner = |held: &Holding| {
                read_one(self.layout.control(&ControlKey::Owner(held.share.clone())))
            };
            // etcd reads the newest state only for a transaction that has an operation.
            let txn = Txn {
                compares: part.iter().map(compare).collect(),
                success: vec![read_one(self.node_key())],
                failure: part.iter().map(owner).collect(),
            };
            self.send_txn(Purpose::Verify(part.to_vec()), txn);
        }
    }

    pub(super) fn on_kept_alive(&mut self, sent: Moment, lease: &Confirmed) {
        if lease.lease == self.lease && lease.ttl >= self.settings.timing.ttl() {
            let moment = if is_wrong_moment_planted() { self.now } else { sent };
            self.alive = self.alive.max(moment);
        }
    }

    /// # Errors
    /// If the answer is not one to the question.
    pub(super) fn on_verified(
        &mut self,
        held: &[Holding],
        sent: Moment,
        answer: &TxnAnswer,
    ) -> Result<(), &'static str> {
        let sent = if is_wrong_moment_planted() { self.now } else { sent };
        if !answer.succeeded && answer.answers.len() != held.len() {
            return Err("a check of owners has another answer");
        }
        let is_late_enough = self.covers_limit(sent);
        let mut asks_again = false;
        for (at, held) in held.iter().enumerate() {
            let owner = match answer.answers.get(at) {
                Some(OpAnswer::Range { values, .. }) if !answer.succeeded => values.first(),
                _ => None,
            };
            let is_owned = owner.is_some_and(|key| key.create_revision.0 == held.epoch.0);
            if !answer.succeeded && !is_owned {
                self.lose(held, StopReason::KeyGone);
            } else if let Some(share) = self.shares.get_mut(&held.share)
                && share.stage.owned() == Some(held.epoch)
            {
                if share.verified.is_some() || is_late_enough {
                    share.verified = share.verified.max(Some(sent));
                } else {
                    asks_again = true;
                }
            }
        }
        if asks_again {
            self.round_at = self.now;
        }
        Ok(())
    }

    /// True if a share whose owner's key was found by a request that was sent then can be served until the
    /// limit, which does not fall again.
    pub(super) fn covers_limit(&self, sent: Moment) -> bool {
        let limit = self.settings.timing.limit(sent);
        self.until.is_none_or(|until| until <= limit)
    }

    /// The moment since when this node is confirmed. None without a lease.
    pub(super) fn confirmed(&self) -> Option<Moment> {
        let owned = self.shares.values().filter(|share| share.stage.owned().is_some());
        let oldest = owned.filter_map(|share| share.verified).min().unwrap_or(self.alive);
        self.has_lease().then(|| oldest.min(self.alive))
    }

    /// Tells the server a later limit, and looks at the limit.
    pub(super) fn act_on_limit(&mut self) {
        if let Some(confirmed) = self.confirmed() {
            let until = self.settings.timing.limit(confirmed);
            if self.until.is_none_or(|before| before < until) {
                self.until = Some(until);
                if !self.is_paused {
                    self.order(Order::ServeUntil(until));
                } else if until > self.now {
                    self.is_paused = false;
                    self.is_changed = true;
                    self.order(Order::Resume(until));
                }
            }
        }
        self.look_at_limit();
        if let Some(until) = self.until
            && !self.is_paused
        {
            self.wake(until);
        }
    }

    /// Pauses all shares if the limit has passed.
    pub(super) fn look_at_limit(&mut self) {
        if !self.is_paused && self.until.is_some_and(|until| until <= self.now) {
            self.is_paused = true;
            self.is_changed = true;
            self.order(Order::Pause);
        }
    }

    /// The lease has ended: all shares are lost, and the node begins anew.
    pub(super) fn on_lease_ended(&mut self) {
        if !self.has_lease() {
            return;
        }
        self.is_changed = true;
        self.lease = LeaseId(0);
        self.requests.forget_lease();
        self.advertised = None;
        self.advertising = Attempt::Due(self.now);
        self.numbering = None;
        self.note(Event::LeaseEnded);
        let names: Vec<_> = self.shares.keys().cloned().collect();
        for name in names {
            let epoch = self.shares.get(&name).and_then(|share| share.stage.epoch());
            if let Some(epoch) = epoch {
                self.lose(&Holding { share: name.clone(), epoch }, StopReason::LeaseEnded);
            }
            if let Some(share) = self.shares.get_mut(&name) {
                share.move_drop = Attempt::Due(self.now);
                share.resigning = Attempt::Due(self.now);
                match &mut share.stage {
                    Stage::Stopping { has_key, .. } => *has_key = false,
                    stage if stage.epoch().is_none() => *stage = Stage::Away,
                    _ => {}
                }
            }
        }
        self.membership = match self.membership {
            Membership::Leaving(_) | Membership::Gone => Membership::Gone,
            _ => Membership::Outside(Attempt::Due(self.now)),
        };
    }

    pub(super) fn on_revoked(&mut self) {
        self.membership = Membership::Gone;
        self.lease = LeaseId(0);
        self.requests.forget_lease();
    }

    pub(super) fn on_new_generation(&mut self, id: CommandId) {
        self.numbering.get_or_insert(Attempt::Due(self.now));
        self.await_command(id, &Command::NewGeneration);
    }
}

/// True where the moment of an answer is planted for that of its request.
fn is_wrong_moment_planted() -> bool {
    planted!(ConfirmedByAnswer)
}
