//! Oplocks and leases of one file: MS-FSA 2.1.1.10, 2.1.4.12, 2.1.5.18 and 2.1.5.19, MS-SMB2
//! 3.3.1.12.
//!
//! Both are promises that a client may cache: reads, writes, the handle. An oplock belongs to one
//! Open, a lease to all Opens of a client that name its key. An Open that is about to do something
//! that a promise excludes *contends*: promises are broken, and it has to wait until some of them
//! are given up. This module has no clock: the caller decides when a break that nobody acknowledged
//! has taken too long.

mod grant;
pub mod queue;
pub mod table;

use alloc::vec::Vec;
use core::mem;
use core::task::Waker;
use core::time::Duration;

use frevo_wire::Status;
pub use frevo_wire::command::create::OplockLevel;
pub use frevo_wire::create_context::{LeaseKey, LeaseState};
use frevo_wire::dtyp::{AccessMask, Guid};

use crate::crowd::Crowd;
use crate::open_id::OpenId;
use grant::{Grant, level, remains};

const R: LeaseState = LeaseState::READ;
const W: LeaseState = LeaseState::WRITE;
const H: LeaseState = LeaseState::HANDLE;
const ALL: LeaseState = R.union(W).union(H);
const NONE: LeaseState = LeaseState::EMPTY;

/// A lease's identity: one key of two clients means two leases (MS-FSA TargetOplockKey, MS-SMB2
/// Lease.ClientLeaseId).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseOwner {
    /// The client: a number made of its account (the first half) and its ClientGuid.
    pub client: Guid,
    /// LeaseKey
    pub key: LeaseKey,
}

impl LeaseOwner {
    /// True if a client of the same account names this lease by its key.
    ///
    /// Deviation: another account that guesses the key hides no change from the holder.
    fn is_known_to(self, other: Self) -> bool {
        let account = |owner: Self| owner.client.0.first_chunk::<8>().copied();
        self.key == other.key && account(self) == account(other)
    }
}

/// The holder of a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// The Open that an oplock belongs to.
    Open(OpenId),
    /// The lease of all Opens with this key.
    Lease(LeaseOwner),
}

/// The address for breaks of an Open. This crate stores it without using it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// SessionId of the session that the Open is in.
    pub session: u64,
    /// FileId.Persistent
    pub persistent: u64,
    /// True if breaks for this Open are sealed even when the session does not demand it.
    pub sealed: bool,
}

/// The caching right that a new Open asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wish {
    /// The Open asks for no caching right.
    #[default]
    Nothing,
    /// An oplock of this level: II, EXCLUSIVE or BATCH.
    Oplock(OplockLevel),
    /// A lease with this key and state.
    Lease(LeaseWish),
}

impl Wish {
    /// Returns the lease that the Open belongs to.
    pub const fn owner(&self) -> Option<LeaseOwner> {
        match self {
            Self::Lease(lease) => Some(lease.owner),
            _ => None,
        }
    }
}

/// A request for a lease, MS-SMB2 2.2.13.2.8 and 2.2.13.2.10.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseWish {
    /// The client and the key of the lease.
    pub owner: LeaseOwner,
    /// The caching rights that the client asks for.
    pub state: LeaseState,
    /// The fields of version 2; None for version 1.
    pub v2: Option<V2>,
}

/// The fields that only version 2 of a lease has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct V2 {
    /// Lease.Epoch, which counts changes of the state. In a wish: the client's count.
    pub epoch: u16,
    /// Lease.ParentLeaseKey
    pub parent: Option<LeaseKey>,
}

/// The caching right that an Open was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granted {
    /// The Open got no caching right.
    Nothing,
    /// An oplock of this level.
    Oplock(OplockLevel),
    /// Membership in a lease, which may allow no caching at all.
    Lease {
        /// The rights that the lease gives the client.
        state: LeaseState,
        /// SMB2_LEASE_FLAG_BREAK_IN_PROGRESS
        is_breaking: bool,
        /// Present if the lease was asked for as version 2.
        v2: Option<V2>,
    },
}

/// An action, by its effect on the promises of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Opens the file for this access.
    Open(AccessMask),
    /// Opens the file and removes its content.
    Overwrite,
    /// Opens the file against share modes: a client that caches a handle may close it.
    Violation {
        /// The open would remove the content.
        overwrites: bool,
    },
    /// Changes data or locks a range: WRITE, LOCK, end of file, allocation, FSCTL_SET_ZERO_DATA.
    Write,
    /// Renames the file, or gives it a further name.
    Rename,
    /// Marks the file for deletion, or changes its security descriptor.
    Delete,
    /// Changes the entries of a directory.
    Entry,
}

impl Cause {
    /// Returns the rights that a lease or oplock must not keep.
    fn takes(self, holder: &Grant) -> LeaseState {
        let is_lease = holder.is_lease();
        match self {
            // MS-FSA 2.1.4.12: an Open for attributes only breaks no caching.
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

    /// Returns the rights that must have been given up before the action.
    pub const fn waits_for(self) -> LeaseState {
        match self {
            Self::Open(_) | Self::Overwrite | Self::Write => W,
            Self::Violation { .. } | Self::Rename | Self::Delete => H,
            Self::Entry => NONE,
        }
    }
}

/// True for access that conflicts with no caching right, MS-FSA 2.1.4.12. Leases allow READ_CONTROL
/// beside them, oplocks do not.
pub fn is_stat(access: AccessMask, beside_lease: bool) -> bool {
    let stat = AccessMask::READ_ATTRIBUTES | AccessMask::WRITE_ATTRIBUTES | AccessMask::SYNCHRONIZE;
    let stat = if beside_lease { stat | AccessMask::READ_CONTROL } else { stat };
    access.without(stat).is_empty()
}

/// The Open that acts. Its own promises are not broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Actor {
    /// The number of the acting Open.
    pub open: OpenId,
    /// The lease of the acting Open.
    pub lease: Option<LeaseOwner>,
}

/// A break that the client has to be told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Break {
    /// The holder of the broken promise.
    pub owner: Owner,
    /// The state before the break.
    pub from: LeaseState,
    /// The state after the break.
    pub to: LeaseState,
    /// Lease.Epoch; 0 in version 1.
    pub epoch: u16,
    /// The number of the break, for [`Oplocks::expire`]; None if it needs no acknowledgment.
    pub number: Option<u64>,
    /// The Opens that the promise belongs to, with their addresses.
    pub routes: Vec<(OpenId, Route)>,
}

/// The result of contending.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contention {
    /// The breaks to send.
    pub breaks: Vec<Break>,
    /// The rights of others that must be given up first.
    pub awaited: LeaseState,
}

impl Contention {
    /// True if a promise must be given up first: ask [`Oplocks::would_wait`] again after each
    /// change.
    pub const fn waits(&self) -> bool {
        !self.awaited.is_empty()
    }
}

/// The result of an acknowledgment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    /// The state that the client keeps.
    pub state: LeaseState,
    /// The next break, if an action in the meantime breaks that state too.
    pub next: Option<Break>,
}

/// The conditions for a grant, from the other Opens of the file and its byte-range locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Another Open, not of this lease, touches data or has promises.
    pub is_shared: bool,
    /// A byte-range lock begins before the end of the file's space (MS-FSA 2.1.5.18).
    pub is_locked: bool,
    /// The file is marked for deletion.
    pub is_going: bool,
    /// The file is a directory.
    pub is_directory: bool,
    /// The rights that requests wait for; see [`queue`].
    pub awaited: LeaseState,
}

/// The promises given for one file.
#[derive(Debug, Default)]
pub struct Oplocks {
    grants: Crowd<Grant>,
    waiting: Vec<Waker>,
    /// The task that ends breaks whose time is over, while it waits.
    timer: Option<Waker>,
    /// True while there is such a task.
    has_timer: bool,
    last_number: u64,
    no_level_two: bool,
}

/// The breaks whose time is over, and the time of the others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overdue {
    /// The holders that have not acknowledged in time.
    pub owners: Vec<Owner>,
    /// The end of the time of the next break. None if there is no further one: the timer has ended.
    pub next: Option<Duration>,
}

impl Oplocks {
    /// A file without promises.
    pub const EMPTY: Self = Self {
        grants: Crowd::new(),
        waiting: Vec::new(),
        timer: None,
        has_timer: false,
        last_number: 0,
        no_level_two: false,
    };

    /// True if there are no promises. READ and WRITE ask this first.
    pub const fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    /// Allows only exclusive oplocks on this file from now on, as Linux does beside a local program
    /// (`F_SETLEASE` of a writer). Leases are not affected.
    pub const fn forbid_level_two(&mut self) {
        self.no_level_two = true;
    }

    /// Breaks the promises that conflict with `actor`'s action. An actor that has to wait asks
    /// again after a change.
    pub fn contend(&mut self, actor: Actor, cause: Cause) -> Contention {
        let mut contention = Contention::default();
        let mut idle = Vec::new();
        for grant in self.grants.iter_mut().filter(|grant| grant.minds(actor, cause)) {
            let lost = cause.takes(grant) & grant.caching;
            if lost.is_empty() {
                continue;
            }
            contention.awaited |= grant.caching & cause.waits_for();
            let to = match remains(grant.caching, lost, grant.is_lease()) {
                _ if self.no_level_two && !grant.is_lease() => NONE,
                to => to,
            };
            match &mut grant.breaking {
                // A break is in progress and the client gets only one at a time. So the stronger
                // break is noted and sent after the acknowledgment.
                Some(breaking) => {
                    let needed = breaking.needed & to;
                    breaking.needed = if needed.contains(R) { needed } else { NONE };
                }
                None => {
                    self.last_number = self.last_number.wrapping_add(1);
                    grant.count();
                    contention.breaks.push(grant.begin(to, self.last_number));
                    idle.extend(grant.is_idle().then_some(grant.owner));
                }
            }
        }
        for owner in idle {
            self.grants.take(owner);
        }
        contention
    }

    /// True if `actor`, which waits, has to go on waiting. Breaks nothing. A promise that was
    /// granted after the wait began does not count: its holder was told of no break.
    ///
    /// Windows: a break in several steps holds up everyone who waited for its first step.
    pub fn would_wait(&self, actor: Actor) -> bool {
        self.grants.iter().any(|grant| !grant.is_of(actor) && grant.breaking.is_some())
    }

    /// Gives up all rights but `state`, MS-FSA 2.1.5.19.
    ///
    /// # Errors
    /// UNSUCCESSFUL without a break to acknowledge, OBJECT_NAME_NOT_FOUND without such a promise,
    /// REQUEST_NOT_ACCEPTED if the client would keep more than it was told.
    pub fn acknowledge(&mut self, owner: Owner, state: LeaseState) -> Result<Acknowledged, Status> {
        let grant = self.grants.find_mut(owner).ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
        let breaking = grant.breaking.ok_or(Status::UNSUCCESSFUL)?;
        if !breaking.told.contains(state) {
            return Err(Status::REQUEST_NOT_ACCEPTED);
        }
        grant.caching = if state.contains(R) { state } else { NONE };
        grant.breaking = None;
        let kept = grant.caching;
        let mut next = None;
        if !breaking.needed.contains(kept) {
            // As on Windows, a lease breaks in two steps: first to read caching, then to none.
            let step = if kept == R { NONE } else { R };
            self.last_number = self.last_number.wrapping_add(1);
            next = Some(grant.begin(breaking.needed | step, self.last_number));
            if let Some(again) = &mut grant.breaking {
                again.needed = breaking.needed;
            }
        }
        self.forget_idle(owner);
        self.changed();
        Ok(Acknowledged { state: kept, next })
    }

    /// Acknowledges a break in place of an owner that could not or would not do so, MS-SMB2 3.3.6.1
    /// and 3.3.6.5: nothing is left. `number` is the break's, so that a later break is not
    /// affected.
    pub fn expire(&mut self, owner: Owner, number: u64) {
        let grant = self.grants.find_mut(owner);
        let is_it = |grant: &&mut Grant| grant.breaking.is_some_and(|b| b.number == number);
        if let Some(grant) = grant.filter(is_it) {
            (grant.caching, grant.breaking) = (NONE, None);
            self.forget_idle(owner);
            self.changed();
        }
    }

    /// Sets the end of the time of breaks whose clients are told now; the caller decides from where
    /// time is counted. Returns true if the caller has to begin a timer, which asks
    /// [`Self::expire_by`] again and again. A file has one, however many breaks there are.
    pub fn tell_until(&mut self, end: Duration) -> bool {
        let breaks = self.grants.iter_mut().filter_map(|grant| grant.breaking.as_mut());
        let mut is_told = false;
        for breaking in breaks.filter(|breaking| breaking.ends.is_none()) {
            (breaking.ends, is_told) = (Some(end), true);
        }
        is_told && !mem::replace(&mut self.has_timer, true)
    }

    /// Acknowledges the breaks whose time has ended by `now`, as [`Self::expire`] does.
    pub fn expire_by(&mut self, now: Duration) -> Overdue {
        let mut overdue = Overdue::default();
        for grant in self.grants.iter_mut() {
            let Some(end) = grant.breaking.and_then(|breaking| breaking.ends) else { continue };
            if end <= now {
                (grant.caching, grant.breaking) = (NONE, None);
                overdue.owners.push(grant.owner);
            } else {
                overdue.next = Some(overdue.next.map_or(end, |next| next.min(end)));
            }
        }
        self.expired(&overdue.owners);
        self.has_timer = overdue.next.is_some();
        self.timer = None;
        overdue
    }

    /// True if no break is left. Else `waker`, which is the timer's, is called once that is so.
    pub fn has_no_break(&mut self, waker: &Waker) -> bool {
        let is_breaking = self.is_breaking_any();
        self.timer = is_breaking.then(|| waker.clone());
        !is_breaking
    }

    /// Acknowledges the breaks that `actor` waits for in place of their owners, as [`Self::expire`]
    /// does, and returns these owners: the actor has waited long enough.
    pub fn expire_for(&mut self, actor: Actor) -> Vec<Owner> {
        let mut owners = Vec::new();
        let broken = |grant: &&mut Grant| !grant.is_of(actor) && grant.breaking.is_some();
        for grant in self.grants.iter_mut().filter(broken) {
            (grant.caching, grant.breaking) = (NONE, None);
            owners.push(grant.owner);
        }
        self.expired(&owners);
        owners
    }

    fn expired(&mut self, owners: &[Owner]) {
        for owner in owners {
            self.forget_idle(*owner);
        }
        if !owners.is_empty() {
            self.changed();
        }
    }

    /// Records that the client of the break `number` is away and was not told of it.
    pub fn not_told(&mut self, owner: Owner, number: u64) {
        let breaking = self.grants.find_mut(owner).and_then(|grant| grant.breaking.as_mut());
        if let Some(breaking) = breaking.filter(|breaking| breaking.number == number) {
            breaking.is_untold = true;
        }
    }

    /// Returns the break of this Open's promise that its client was not told of, for a client that
    /// has come back.
    pub fn take_untold(&mut self, open: OpenId) -> Option<Break> {
        let held = |grant: &&mut Grant| grant.opens.iter().any(|(id, _)| *id == open);
        let grant = self.grants.iter_mut().find(held)?;
        let breaking = grant.breaking.as_mut().filter(|breaking| breaking.is_untold)?;
        breaking.is_untold = false;
        let (told, number) = (breaking.told, breaking.number);
        Some(grant.tell(grant.caching, told, Some(number)))
    }

    /// True if the break `number` waits to be acknowledged.
    pub fn is_breaking(&self, owner: Owner, number: u64) -> bool {
        let breaking = self.grants.find(owner).and_then(|grant| grant.breaking);
        breaking.is_some_and(|breaking| breaking.number == number)
    }

    /// Grants the largest part of a wish that `room` allows, MS-FSA 2.1.5.18, with the retries of
    /// MS-SMB2 3.3.5.9.
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
        // MS-FSA 2.1.5.18.2: level II is not granted while another Open has handle or write
        // caching.
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
            // MS-SMB2 3.3.5.9.11: only a lease of version 2 can be granted for a directory.
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
        if let Some(grant) = self.grants.find_mut(owner) {
            grant.opens.push((open, route));
            // MS-SMB2 3.3.5.9.8 and 3.3.5.9.11: a further request with the same key may add rights
            // to a lease, but never take rights away.
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

    /// Returns the caching right that an Open has now; `lease` is the lease that it belongs to.
    pub fn held(&self, open: OpenId, lease: Option<LeaseOwner>) -> Granted {
        let owner = lease.map_or(Owner::Open(open), Owner::Lease);
        self.grants.find(owner).map_or(Granted::Nothing, Grant::granted)
    }

    /// Returns the target state of an unacknowledged break of this Open's oplock.
    pub fn is_oplock_breaking(&self, open: OpenId) -> Option<LeaseState> {
        let grant = self.grants.find(Owner::Open(open))?;
        grant.breaking.map(|_| grant.caching)
    }

    /// True for a lease with an unacknowledged break.
    pub fn is_lease_breaking(&self, lease: LeaseOwner) -> bool {
        self.grants.find(Owner::Lease(lease)).is_some_and(|grant| grant.breaking.is_some())
    }

    /// Changes the address for breaks of this Open: a durable Open was reconnected, or lost its
    /// session.
    pub fn reroute(&mut self, open: OpenId, route: Route) {
        let opens = self.grants.iter_mut().flat_map(|grant| &mut grant.opens);
        opens.filter(|(id, _)| *id == open).for_each(|(_, old)| *old = route);
    }

    /// Removes the promises of a closed Open: its oplock, and its lease if it was the last Open of
    /// it.
    pub(crate) fn leave(&mut self, open: OpenId, lease: Option<LeaseOwner>) {
        let owner = lease.map_or(Owner::Open(open), Owner::Lease);
        if let Some(grant) = self.grants.find_mut(owner) {
            grant.opens.retain(|(id, _)| *id != open);
            if grant.opens.is_empty() {
                self.grants.take(owner);
            }
        }
        // Requests that wait for caching or for a share mode are woken to look again.
        self.changed();
    }

    /// True if this Open has an oplock.
    pub(crate) fn has_oplock(&self, open: OpenId) -> bool {
        self.grants.find(Owner::Open(open)).is_some()
    }

    /// Wakes `waker` at the next acknowledgment, expired break or close.
    pub fn wait(&mut self, waker: &Waker) {
        if !self.waiting.iter().any(|w| w.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
    }

    /// Forgets `waker`: its wait was given up.
    pub fn cease(&mut self, waker: &Waker) {
        self.waiting.retain(|w| !w.will_wake(waker));
    }

    /// Returns the number of Opens whose clients cache the handle, and may close it when they are
    /// asked to.
    pub(crate) fn opens_with_cached_handles(&self) -> usize {
        let grants = self.grants.iter().filter(|grant| grant.caching.contains(H));
        grants.map(|grant| grant.opens.len()).sum()
    }

    fn held_by_others(&self, owner: Owner) -> LeaseState {
        let others = self.grants.iter().filter(|grant| grant.owner != owner);
        others.fold(NONE, |held, grant| held | grant.caching)
    }

    /// Removes an oplock that is broken to nothing. A lease stays for its Opens.
    fn forget_idle(&mut self, owner: Owner) {
        if self.grants.find(owner).is_some_and(Grant::is_idle) {
            self.grants.take(owner);
        }
    }

    fn changed(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
        if self.timer.is_some() && !self.is_breaking_any() {
            self.timer.take().into_iter().for_each(Waker::wake);
        }
    }

    fn is_breaking_any(&self) -> bool {
        self.grants.iter().any(|grant| grant.breaking.is_some())
    }
}

/// Returns the largest part of `wanted` that the other Opens allow.
fn fitting(wanted: LeaseState, room: Room) -> LeaseState {
    let mut fits = wanted.without(room.awaited);
    if room.is_shared {
        fits = fits.without(W);
    }
    if room.is_going {
        fits = fits.without(H);
    }
    // MS-FSA 2.1.5.18: with byte-range locks on the file, read caching alone is not granted.
    if room.is_locked && !fits.contains(W) {
        fits = NONE;
    }
    fits
}

#[cfg(test)]
mod tests;
