//! Oplocks and leases of one file: MS-FSA 2.1.1.10, 2.1.4.12, 2.1.5.18 and
//! 2.1.5.19, MS-SMB2 3.3.1.12.
//!
//! Both are promises that a client may cache: reading, writing, keeping the
//! handle. An oplock belongs to one Open, a lease to all Opens of a client that
//! name its key. Whoever is about to do what a promise excludes *contends*:
//! promises are broken, and some of them have to be given back before he goes
//! on. Time is the caller's: he says when a break that nobody acknowledged has
//! taken too long.

pub mod table;

use alloc::vec::Vec;
use core::task::Waker;

use frevo_wire::Status;
pub use frevo_wire::command::create::OplockLevel;
pub use frevo_wire::create_context::{LeaseKey, LeaseState};
use frevo_wire::dtyp::{AccessMask, Guid};

use crate::file::OpenId;

const R: LeaseState = LeaseState::READ;
const W: LeaseState = LeaseState::WRITE;
const H: LeaseState = LeaseState::HANDLE;
const ALL: LeaseState = R.union(W).union(H);
const NONE: LeaseState = LeaseState::EMPTY;

/// A lease of a client: two of them with one key are two leases (MS-FSA
/// TargetOplockKey, MS-SMB2 Lease.ClientLeaseId).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseOwner {
    /// The client: a number made of its ClientGuid and its account.
    pub client: Guid,
    /// LeaseKey
    pub key: LeaseKey,
}

/// Whose a promise is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// An oplock: this Open's.
    Open(OpenId),
    /// A lease: of all Opens with this key.
    Lease(LeaseOwner),
}

/// Where the client is found that has to be told of a break. Means nothing here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The session.
    pub session: u64,
    /// FileId.Persistent
    pub persistent: u64,
    /// What is told of this Open is sealed, whatever the session demands.
    pub sealed: bool,
}

/// What a new Open asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wish {
    /// Nothing.
    #[default]
    Nothing,
    /// An oplock of this level: II, EXCLUSIVE or BATCH.
    Oplock(OplockLevel),
    /// A lease.
    Lease(LeaseWish),
}

impl Wish {
    /// The lease that the Open belongs to.
    pub const fn owner(&self) -> Option<LeaseOwner> {
        match self {
            Self::Lease(lease) => Some(lease.owner),
            _ => None,
        }
    }
}

/// A lease that is asked for, MS-SMB2 2.2.13.2.8 and 2.2.13.2.10.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseWish {
    /// Whose.
    pub owner: LeaseOwner,
    /// What.
    pub state: LeaseState,
    /// What only version 2 has.
    pub v2: Option<V2>,
}

/// What only version 2 of a lease has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct V2 {
    /// Lease.Epoch, which counts changes of the state; in a wish, where the
    /// client's count is.
    pub epoch: u16,
    /// Lease.ParentLeaseKey
    pub parent: Option<LeaseKey>,
}

/// What an Open got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granted {
    /// Nothing.
    Nothing,
    /// An oplock.
    Oplock(OplockLevel),
    /// A place in a lease, which may be one that lets nothing be cached.
    Lease {
        /// What it lets the client cache.
        state: LeaseState,
        /// SMB2_LEASE_FLAG_BREAK_IN_PROGRESS
        is_breaking: bool,
        /// Of a lease that was asked for as version 2.
        v2: Option<V2>,
    },
}

/// What somebody is about to do, by what it does to the promises of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// To open the file for this access.
    Open(AccessMask),
    /// To open and empty it.
    Overwrite,
    /// To open it, which share modes forbid: who caches a handle may give it up.
    Violation {
        /// It would be emptied.
        overwrites: bool,
    },
    /// To change its data or to lock some: WRITE, LOCK, end of file, allocation,
    /// FSCTL_SET_ZERO_DATA.
    Write,
    /// To rename it, or to give it a further name.
    Rename,
    /// To mark it for deletion, or to change its security descriptor.
    Delete,
    /// Of a directory: what it lists changes.
    Entry,
}

impl Cause {
    /// What a lease, or an oplock, must not keep.
    fn takes(self, holder: &Grant) -> LeaseState {
        let is_lease = holder.is_lease();
        match self {
            // MS-FSA 2.1.4.12: who asks for attributes alone disturbs nobody.
            Self::Open(access) if is_stat(access, is_lease) => NONE,
            Self::Open(_) => W,
            Self::Overwrite | Self::Write | Self::Entry => ALL,
            Self::Violation { overwrites } if !is_lease && holder.caching.contains(H) => {
                if overwrites {
                    ALL
                } else {
                    W | H
                }
            }
            Self::Violation { .. } => H,
            Self::Rename if !is_lease && holder.caching.contains(H) => ALL,
            Self::Rename | Self::Delete if is_lease => H,
            Self::Rename | Self::Delete => NONE,
        }
    }

    /// What must have been given back before it is done.
    const fn waits_for(self) -> LeaseState {
        match self {
            Self::Open(_) | Self::Overwrite | Self::Write => W,
            Self::Violation { .. } | Self::Rename | Self::Delete => H,
            Self::Entry => NONE,
        }
    }
}

/// MS-FSA 2.1.4.12: access that touches nothing that is cached. Leases bear
/// READ_CONTROL, oplocks do not.
pub fn is_stat(access: AccessMask, beside_lease: bool) -> bool {
    let stat = AccessMask::READ_ATTRIBUTES | AccessMask::WRITE_ATTRIBUTES | AccessMask::SYNCHRONIZE;
    let stat = if beside_lease { stat | AccessMask::READ_CONTROL } else { stat };
    access.without(stat).is_empty()
}

/// Who does it: his own promises are not broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Actor {
    /// The Open.
    pub open: OpenId,
    /// Its lease.
    pub lease: Option<LeaseOwner>,
}

/// A break that the client has to be told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Break {
    /// Whose promise is broken.
    pub owner: Owner,
    /// What it was.
    pub from: LeaseState,
    /// What is left of it.
    pub to: LeaseState,
    /// Lease.Epoch; zero in version 1.
    pub epoch: u16,
    /// The number of the break, for [`Oplocks::expire`]; none when it needs no
    /// acknowledgment.
    pub number: Option<u64>,
    /// Where its Opens are.
    pub routes: Vec<(OpenId, Route)>,
}

/// What contending led to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contention {
    /// Those who must be told.
    pub breaks: Vec<Break>,
    /// Somebody has to give back first: ask again when nobody has to any more
    /// ([`Oplocks::would_wait`]).
    pub waits: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Breaking {
    number: u64,
    /// Lease.BreakToLeaseState: what the client was told.
    told: LeaseState,
    /// What it will have to come to, by what happened since then.
    needed: LeaseState,
}

#[derive(Debug)]
struct Grant {
    owner: Owner,
    opens: Vec<(OpenId, Route)>,
    caching: LeaseState,
    breaking: Option<Breaking>,
    v2: Option<V2>,
}

impl Grant {
    const fn is_lease(&self) -> bool {
        matches!(self.owner, Owner::Lease(_))
    }

    fn is_of(&self, actor: Actor) -> bool {
        match self.owner {
            Owner::Open(open) => open == actor.open,
            Owner::Lease(owner) => actor.lease == Some(owner),
        }
    }

    /// MS-FSA 2.1.4.12: nobody breaks his own, but for an oplock of level II,
    /// which no data changes under.
    fn minds(&self, actor: Actor, cause: Cause) -> bool {
        let is_level_two = !self.is_lease() && self.caching == R;
        !self.is_of(actor) || (cause == Cause::Write && is_level_two)
    }

    fn tell(&self, from: LeaseState, to: LeaseState, number: Option<u64>) -> Break {
        let (owner, epoch) = (self.owner, self.v2.map_or(0, |v2| v2.epoch));
        Break { owner, from, to, epoch, number, routes: self.opens.clone() }
    }

    const fn count(&mut self) {
        if let Some(v2) = &mut self.v2 {
            v2.epoch = v2.epoch.wrapping_add(1);
        }
    }

    /// Begins to break to `to`, a state that can be. What only reads has nothing
    /// to give back and is not waited for.
    fn begin(&mut self, to: LeaseState, number: u64) -> Break {
        let from = self.caching;
        let number = (from != R).then_some(number);
        match number {
            Some(number) => self.breaking = Some(Breaking { number, told: to, needed: to }),
            None => (self.caching, self.breaking) = (to, None),
        }
        self.tell(from, to, number)
    }
}

/// What is left when `lost` is taken: without reading there is nothing, and an
/// oplock that breaks never keeps more than reading.
fn remains(caching: LeaseState, lost: LeaseState, is_lease: bool) -> LeaseState {
    let left = caching.without(lost);
    if !left.contains(R) {
        return NONE;
    }
    if is_lease { left } else { R }
}

/// The level that an oplock of this state has.
const fn level(caching: LeaseState) -> OplockLevel {
    match caching {
        ALL => OplockLevel::BATCH,
        c if c.contains(W) => OplockLevel::EXCLUSIVE,
        c if c.contains(R) => OplockLevel::II,
        _ => OplockLevel::NONE,
    }
}

/// What an acknowledged break has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    /// What is kept.
    pub state: LeaseState,
    /// Something happened meanwhile that breaks that too.
    pub next: Option<Break>,
}

/// What the other Opens of the file and its byte-range locks allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Another Open, not of the same lease, touches data or has promises.
    pub is_shared: bool,
    /// There are byte-range locks.
    pub is_locked: bool,
    /// It is marked for deletion.
    pub is_going: bool,
    /// It is a directory.
    pub is_directory: bool,
}

/// The promises given for one file.
#[derive(Debug, Default)]
pub struct Oplocks {
    grants: Vec<Grant>,
    waiting: Vec<Waker>,
    last_number: u64,
    no_level_two: bool,
}

impl Oplocks {
    /// None.
    pub const EMPTY: Self =
        Self { grants: Vec::new(), waiting: Vec::new(), last_number: 0, no_level_two: false };

    /// Whether there is none at all: the data path's quick question.
    pub const fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    /// From now on an oplock of this file is exclusive or none at all, as those of
    /// Linux are (`F_SETLEASE` of one who writes). Leases stay what they are.
    pub const fn forbid_level_two(&mut self) {
        self.no_level_two = true;
    }

    /// Breaks what `actor` must not meet. Whoever has to wait asks again after
    /// a change.
    pub fn contend(&mut self, actor: Actor, cause: Cause) -> Contention {
        let mut contention = Contention::default();
        for grant in self.grants.iter_mut().filter(|grant| grant.minds(actor, cause)) {
            let lost = cause.takes(grant) & grant.caching;
            if lost.is_empty() {
                continue;
            }
            contention.waits |= grant.caching.intersects(cause.waits_for());
            let to = match remains(grant.caching, lost, grant.is_lease()) {
                _ if self.no_level_two && !grant.is_lease() => NONE,
                to => to,
            };
            match &mut grant.breaking {
                // One break at a time: the next is told when this one has been
                // acknowledged.
                Some(breaking) => {
                    let needed = breaking.needed & to;
                    breaking.needed = if needed.contains(R) { needed } else { NONE };
                }
                None => {
                    self.last_number = self.last_number.wrapping_add(1);
                    grant.count();
                    contention.breaks.push(grant.begin(to, self.last_number));
                }
            }
        }
        self.forget_idle();
        contention
    }

    /// Whether `actor`, who waits, has to wait on; breaks nothing. What was promised anew
    /// since then is nobody's to give back before he asks again: nobody was told.
    ///
    /// Windows: a break that goes on in steps holds up all who waited for its
    /// first one, whatever they wanted.
    pub fn would_wait(&self, actor: Actor) -> bool {
        self.grants.iter().any(|grant| !grant.is_of(actor) && grant.breaking.is_some())
    }

    /// The client gives back all but `state`, MS-FSA 2.1.5.19.
    ///
    /// UNSUCCESSFUL when there is no break to acknowledge, OBJECT_NAME_NOT_FOUND
    /// when there is no such promise, REQUEST_NOT_ACCEPTED when it would keep
    /// more than it was told.
    pub fn acknowledge(&mut self, owner: Owner, state: LeaseState) -> Result<Acknowledged, Status> {
        let grant = self.grants.iter_mut().find(|grant| grant.owner == owner);
        let grant = grant.ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
        let breaking = grant.breaking.ok_or(Status::UNSUCCESSFUL)?;
        if !breaking.told.contains(state) {
            return Err(Status::REQUEST_NOT_ACCEPTED);
        }
        grant.caching = if state.contains(R) { state } else { NONE };
        grant.breaking = None;
        let kept = grant.caching;
        let mut next = None;
        if !breaking.needed.contains(kept) {
            // Windows: what caches more than reads is broken to reading first,
            // and only then to nothing.
            let step = if kept == R { NONE } else { R };
            self.last_number = self.last_number.wrapping_add(1);
            next = Some(grant.begin(breaking.needed | step, self.last_number));
            if let Some(again) = &mut grant.breaking {
                again.needed = breaking.needed;
            }
        }
        self.changed();
        Ok(Acknowledged { state: kept, next })
    }

    /// What an owner could not or would not acknowledge is acknowledged for him,
    /// MS-SMB2 3.3.6.1 and 3.3.6.5: nothing is left. `number` is that of the
    /// break, so that a later one is not meant.
    pub fn expire(&mut self, owner: Owner, number: u64) {
        let mut grants = self.grants.iter_mut();
        let breaks = |b: Breaking| b.number == number;
        let found = grants.find(|g| g.owner == owner && g.breaking.is_some_and(breaks));
        if let Some(grant) = found {
            (grant.caching, grant.breaking) = (NONE, None);
            self.changed();
        }
    }

    /// Whether the break `number` waits to be acknowledged.
    pub fn is_breaking(&self, owner: Owner, number: u64) -> bool {
        let mut breaks = self.grants.iter().filter(|g| g.owner == owner).flat_map(|g| g.breaking);
        breaks.any(|breaking| breaking.number == number)
    }

    /// Grants as much of a wish as there is room for, MS-FSA 2.1.5.18, with the
    /// retries of MS-SMB2 3.3.5.9.
    pub fn request(&mut self, open: OpenId, route: Route, wish: Wish, room: Room) -> Granted {
        match wish {
            Wish::Nothing => Granted::Nothing,
            Wish::Oplock(level) => self.request_oplock(open, route, level, room),
            Wish::Lease(wish) => self.request_lease(open, route, wish, room),
        }
    }

    fn request_oplock(
        &mut self,
        open: OpenId,
        route: Route,
        wanted: OplockLevel,
        room: Room,
    ) -> Granted {
        let wanted = match wanted {
            OplockLevel::BATCH => ALL,
            OplockLevel::EXCLUSIVE => R | W,
            OplockLevel::II => R,
            _ => NONE,
        };
        let beside = self.held_by_others(Owner::Open(open));
        // MS-FSA 2.1.5.18.2: level II goes beside readers, never beside who
        // caches handles or writes.
        if room.is_directory || beside.intersects(H | W) {
            return Granted::Nothing;
        }
        let caching = match fitting(wanted, room) {
            c if c.contains(W) => c,
            _ if self.no_level_two => NONE,
            c => c & R,
        };
        if caching.is_empty() {
            return Granted::Nothing;
        }
        let opens = alloc::vec![(open, route)];
        let owner = Owner::Open(open);
        self.grants.push(Grant { owner, opens, caching, breaking: None, v2: None });
        Granted::Oplock(level(caching))
    }

    fn request_lease(
        &mut self,
        open: OpenId,
        route: Route,
        wish: LeaseWish,
        room: Room,
    ) -> Granted {
        if room.is_directory && wish.v2.is_none() {
            // MS-SMB2 3.3.5.9.11: directories came with version 2.
            return Granted::Nothing;
        }
        let owner = Owner::Lease(wish.owner);
        let wanted = match wish.state & ALL {
            state if !state.contains(R) => NONE,
            state if room.is_directory => state.without(W),
            state => state,
        };
        let beside = self.held_by_others(owner);
        let has_oplocks = self.grants.iter().any(|g| !g.is_lease() && !g.caching.is_empty());
        let mut granted = fitting(wanted, room);
        if beside.contains(W) {
            granted = NONE;
        }
        if has_oplocks {
            granted = granted.without(H);
        }
        if let Some(grant) = self.grants.iter_mut().find(|grant| grant.owner == owner) {
            grant.opens.push((open, route));
            // MS-SMB2 3.3.5.9.8 and .11: a lease grows, or stays as it is.
            let grows = granted == wanted && granted.contains(grant.caching);
            if grows && granted != grant.caching && grant.breaking.is_none() {
                grant.caching = granted;
                grant.count();
            }
            return grant.granted();
        }
        let (opens, v2) = (alloc::vec![(open, route)], wish.v2);
        let mut grant = Grant { owner, opens, caching: granted, breaking: None, v2 };
        if !granted.is_empty() {
            grant.count();
        }
        let answer = grant.granted();
        self.grants.push(grant);
        answer
    }

    /// What an Open has now; `lease` is the one that it belongs to.
    pub fn held(&self, open: OpenId, lease: Option<LeaseOwner>) -> Granted {
        let owner = lease.map_or(Owner::Open(open), Owner::Lease);
        let grant = self.grants.iter().find(|grant| grant.owner == owner);
        grant.map_or(Granted::Nothing, Grant::granted)
    }

    /// An oplock that is waited to be given back.
    pub fn is_oplock_breaking(&self, open: OpenId) -> Option<LeaseState> {
        let grant = self.grants.iter().find(|grant| grant.owner == Owner::Open(open))?;
        grant.breaking.map(|_| grant.caching)
    }

    /// True for a lease that is waited to be given back.
    pub fn is_lease_breaking(&self, lease: LeaseOwner) -> bool {
        let owner = Owner::Lease(lease);
        self.grants.iter().any(|grant| grant.owner == owner && grant.breaking.is_some())
    }

    /// The client of this Open is found elsewhere from now on: a durable Open
    /// was taken up again, or lost its session.
    pub fn reroute(&mut self, open: OpenId, route: Route) {
        let opens = self.grants.iter_mut().flat_map(|grant| &mut grant.opens);
        opens.filter(|(id, _)| *id == open).for_each(|(_, old)| *old = route);
    }

    /// The Open has closed: its oplock goes, and a lease with its last Open.
    pub(crate) fn leave(&mut self, open: OpenId) {
        let held = |grant: &Grant| grant.opens.iter().any(|(id, _)| *id == open);
        if self.grants.iter().any(held) {
            self.grants.iter_mut().for_each(|grant| grant.opens.retain(|(id, _)| *id != open));
            self.grants.retain(|grant| !grant.opens.is_empty());
        }
        // Who waits for a share mode waits for this as well.
        self.changed();
    }

    /// Whether any of these holds a lease, whatever is left of it.
    pub(crate) fn has_promise(&self, open: OpenId) -> bool {
        self.grants.iter().any(|grant| grant.opens.iter().any(|(id, _)| *id == open))
    }

    /// Wakes `waker` at the next acknowledgment, end of a break or close.
    pub fn wait(&mut self, waker: &Waker) {
        if !self.waiting.iter().any(|w| w.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
    }

    /// Wakes `waker` no more: whoever waited has given up.
    pub fn cease(&mut self, waker: &Waker) {
        self.waiting.retain(|w| !w.will_wake(waker));
    }

    fn held_by_others(&self, owner: Owner) -> LeaseState {
        let others = self.grants.iter().filter(|grant| grant.owner != owner);
        others.fold(NONE, |held, grant| held | grant.caching)
    }

    /// An oplock that is broken to nothing is no more; a lease stays for its
    /// Opens.
    fn forget_idle(&mut self) {
        self.grants.retain(|g| g.is_lease() || !g.caching.is_empty());
    }

    fn changed(&mut self) {
        self.forget_idle();
        self.waiting.drain(..).for_each(Waker::wake);
    }
}

impl Grant {
    fn granted(&self) -> Granted {
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

/// As much of `wanted` as the other Opens leave room for.
fn fitting(wanted: LeaseState, room: Room) -> LeaseState {
    let mut fits = wanted;
    if room.is_shared {
        fits = fits.without(W);
    }
    if room.is_going {
        fits = fits.without(H);
    }
    // MS-FSA 2.1.5.18: readers are not let in beside byte-range locks.
    if room.is_locked && !fits.contains(W) {
        fits = NONE;
    }
    fits
}

#[cfg(test)]
mod tests;
