//! The promises that were given for one file.

use alloc::vec::Vec;
use core::time::Duration;

use super::{
    ALL, Actor, Break, Cause, Granted, LeaseState, NONE, OplockLevel, Owner, R, Route, V2, W,
};
use crate::crowd::Keyed;
use crate::open_id::OpenId;

/// A break that the client has not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Breaking {
    pub(super) number: u64,
    /// Lease.BreakToLeaseState: the state that the client was told.
    pub(super) told: LeaseState,
    /// The state that the client will have to reach, because of later actions.
    pub(super) needed: LeaseState,
    /// True while the client is away, and has to be told when it comes back.
    pub(super) is_untold: bool,
    /// The end of the client's time, once it was told.
    pub(super) ends: Option<Duration>,
}

/// A promise, with the Opens that it belongs to.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) owner: Owner,
    pub(super) opens: Vec<(OpenId, Route)>,
    pub(super) caching: LeaseState,
    pub(super) breaking: Option<Breaking>,
    pub(super) v2: Option<V2>,
}

impl Keyed for Grant {
    type Key = Owner;

    fn key(&self) -> Owner {
        self.owner
    }
}

impl Grant {
    /// True for an oplock that is broken to nothing.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_lease() && self.caching.is_empty()
    }

    pub(super) const fn is_lease(&self) -> bool {
        matches!(self.owner, Owner::Lease(_))
    }

    pub(super) fn is_of(&self, actor: Actor) -> bool {
        match self.owner {
            Owner::Open(open) => open == actor.open,
            Owner::Lease(owner) => actor.lease == Some(owner),
        }
    }

    /// True if this is the lease on the directory that the acting Open knows. MS-FSA 2.1.4.12.2
    /// with PARENT_OBJECT: ParentOplockKey is Lease.ParentLeaseKey (MS-SMB2 3.3.5.9.11), which
    /// names no client.
    fn is_parent_of(&self, actor: Actor) -> bool {
        match self.owner {
            Owner::Open(open) => open == actor.open,
            Owner::Lease(owner) => actor.lease.is_some_and(|lease| owner.is_known_to(lease)),
        }
    }

    /// True if the action breaks this promise. MS-FSA 2.1.4.12: an Open does not break its own
    /// promise, except an oplock of level II when data changes.
    pub(super) fn minds(&self, actor: Actor, cause: Cause) -> bool {
        let is_level_two = !self.is_lease() && self.caching == R;
        if cause == Cause::Entry {
            return !self.is_parent_of(actor);
        }
        !self.is_of(actor) || (cause == Cause::Write && is_level_two)
    }

    pub(super) fn tell(&self, from: LeaseState, to: LeaseState, number: Option<u64>) -> Break {
        let (owner, epoch) = (self.owner, self.v2.map_or(0, |v2| v2.epoch));
        Break { owner, from, to, epoch, number, routes: self.opens.clone() }
    }

    pub(super) const fn count(&mut self) {
        if let Some(v2) = &mut self.v2 {
            v2.epoch = v2.epoch.wrapping_add(1);
        }
    }

    /// Begins a break to `to`, which must be a valid state. A promise of reads alone has nothing to
    /// give up, so nobody waits for it.
    pub(super) fn begin(&mut self, to: LeaseState, number: u64) -> Break {
        let from = self.caching;
        let number = (from != R).then_some(number);
        match number {
            Some(number) => {
                let (told, needed, is_untold, ends) = (to, to, false, None);
                self.breaking = Some(Breaking { number, told, needed, is_untold, ends });
            }
            None => (self.caching, self.breaking) = (to, None),
        }
        self.tell(from, to, number)
    }

    /// Returns the right as the Open is told of it.
    pub(super) fn granted(&self) -> Granted {
        match self.owner {
            Owner::Open(_) => Granted::Oplock(level(self.caching)),
            Owner::Lease(_) => Granted::Lease {
                state: self.caching,
                is_breaking: self.breaking.is_some(),
                v2: self.v2,
            },
        }
    }
}

/// Returns the state after `lost` is taken away. Without reading nothing is left, and a broken
/// oplock never keeps more than reading.
pub(super) fn remains(caching: LeaseState, lost: LeaseState, is_lease: bool) -> LeaseState {
    let left = caching.without(lost);
    if !left.contains(R) {
        return NONE;
    }
    if is_lease { left } else { R }
}

/// Returns the level of an oplock in this state.
pub(super) const fn level(caching: LeaseState) -> OplockLevel {
    match caching {
        ALL => OplockLevel::BATCH,
        c if c.contains(W) => OplockLevel::EXCLUSIVE,
        c if c.contains(R) => OplockLevel::II,
        _ => OplockLevel::NONE,
    }
}
