//! Byte-range locks of one file, MS-FSA 2.1.4.10, 2.1.5.8, 2.1.5.9.

mod host_locks;
mod interval;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::task::{Poll, Waker};

use frevo_wire::Status;
use hashbrown::HashMap;

use crate::limits::{LOCK_WAITS_PER_FILE, LOCKS_PER_FILE, LOCKS_PER_OPEN};
use crate::open_id::OpenId;
use crate::surplus::{less_room, return_surplus};
use interval::{Intervals, Key};

/// A range of bytes. `length` may be zero: such a lock conflicts only with ranges that it lies
/// strictly inside of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

impl Range {
    /// Refuses a range that ends behind the largest possible offset of a file. MS-FSA 2.1.5.8.
    pub const fn check(self) -> Result<Self, Status> {
        if self.length != 0 && self.offset.checked_add(self.length.saturating_sub(1)).is_none() {
            return Err(Status::INVALID_LOCK_RANGE);
        }
        Ok(self)
    }

    /// True for `{0, 0}`, which overlaps nothing, not even itself.
    const fn is_nothing(self) -> bool {
        self.offset == 0 && self.length == 0
    }

    /// Returns the last byte, computed modulo 2^64 as in MS-FSA 2.1.4.10: a range of length zero at
    /// `n` ends at `n - 1`.
    const fn last(self) -> u64 {
        self.offset.wrapping_add(self.length).wrapping_sub(1)
    }

    const fn overlaps(self, other: Self) -> bool {
        if self.is_nothing() || other.is_nothing() {
            return false;
        }
        self.offset <= other.last() && self.last() >= other.offset
    }
}

/// The kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Only the owner may read and write. Unlocked before shared locks. MS-FSA 2.1.5.9.
    Exclusive,
    /// Other Opens may read, and no Open may write.
    Shared,
}

/// The number of a lock request that waits for its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    owner: OpenId,
    range: Range,
    mode: Mode,
    /// The end of the wait.
    outcome: Option<Result<(), Status>>,
    /// True once the request has read the end.
    is_told: bool,
    waker: Option<Waker>,
}

/// The ranges of one Open with the number of locks on each: a range may be locked shared several
/// times.
type HeldRanges = BTreeMap<(Range, Mode), u32>;

/// The ByteRangeLockList of one file, with the requests that wait for it to change.
#[derive(Debug, Default)]
pub struct ByteRanges {
    state: Option<alloc::boxed::Box<State>>,
}

/// The locks and waits of a file. It exists from the first lock on.
#[derive(Debug)]
struct State {
    exclusive: Intervals,
    shared: Intervals,
    held: HashMap<OpenId, (HeldRanges, usize)>,
    /// Number of locks of all Opens.
    count: usize,
    /// Waiting requests in the order of their arrival, in which they are served.
    waiting: VecDeque<Waiting>,
    last_ticket: u64,
}

/// The answer to a request for a range.
enum Verdict {
    Free,
    Conflict,
}

impl ByteRanges {
    /// A list without locks.
    pub const EMPTY: Self = Self { state: None };

    /// True if no range is locked. READ and WRITE ask this first.
    pub fn is_empty(&self) -> bool {
        self.state.as_ref().is_none_or(|state| state.count == 0)
    }

    /// Returns the offset of the lock nearest to the beginning of the file; None without locks.
    pub fn first_offset(&self) -> Option<u64> {
        let held = self.state.as_ref()?.held.values();
        held.filter_map(|(ranges, _)| Some(ranges.first_key_value()?.0.0.offset)).min()
    }

    /// True if no lock keeps `owner` from reading `range`.
    pub fn may_read(&self, owner: OpenId, range: Range) -> bool {
        let Some(state) = &self.state else { return true };
        range.is_nothing() || !state.exclusive.any_other(owner, range)
    }

    /// True if no lock keeps `owner` from writing `range`. A shared lock stops its own owner too.
    pub fn may_write(&self, owner: OpenId, range: Range) -> bool {
        let Some(state) = &self.state else { return true };
        range.is_nothing() || !(state.exclusive.any_other(owner, range) || state.shared.any(range))
    }

    /// Locks `range`. Fails with LOCK_NOT_GRANTED if any Open (or `owner` itself, exclusively)
    /// holds an overlapping range in a conflicting mode.
    pub fn lock(&mut self, owner: OpenId, range: Range, mode: Mode) -> Result<(), Status> {
        let range = range.check()?;
        self.state.get_or_insert_default().lock(owner, range, mode)
    }

    /// Locks `range`, or returns a ticket to wait for it with [`Self::poll`]. Every ticket must be
    /// given back with [`Self::give_up`] at the end of its wait.
    pub fn lock_or_wait(
        &mut self,
        owner: OpenId,
        range: Range,
        mode: Mode,
    ) -> Result<Option<Ticket>, Status> {
        let range = range.check()?;
        let state = self.state.get_or_insert_default();
        match state.lock(owner, range, mode) {
            Err(Status::LOCK_NOT_GRANTED) => {}
            outcome => return outcome.map(|()| None),
        }
        if state.waiting.len() >= LOCK_WAITS_PER_FILE {
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        state.last_ticket = state.last_ticket.wrapping_add(1);
        let ticket = Ticket(state.last_ticket);
        let waiting =
            Waiting { ticket, owner, range, mode, outcome: None, is_told: false, waker: None };
        state.waiting.push_back(waiting);
        Ok(Some(ticket))
    }

    /// Returns the end of a wait, once: the range is locked, or RANGE_NOT_LOCKED because the Open was
    /// closed (Windows: this status). Until then `waker` is woken at the end. The ticket is no other
    /// request's until it is given up.
    pub fn poll(&mut self, ticket: Ticket, waker: &Waker) -> Poll<Result<(), Status>> {
        let Some(state) = &mut self.state else { return Poll::Ready(Err(Status::CANCELLED)) };
        let Some(at) = state.find(ticket) else { return Poll::Ready(Err(Status::CANCELLED)) };
        let Some(waiting) = state.waiting.get_mut(at).filter(|w| !w.is_told) else {
            return Poll::Ready(Err(Status::CANCELLED));
        };
        if let Some(outcome) = waiting.outcome {
            waiting.is_told = true;
            return Poll::Ready(outcome);
        }
        waiting.waker = Some(waker.clone());
        Poll::Pending
    }

    /// Ends a wait. A lock that was granted for it and not read by [`Self::poll`] is released.
    pub fn give_up(&mut self, ticket: Ticket) {
        let Some(state) = &mut self.state else { return };
        let Some(at) = state.find(ticket) else { return };
        if let Some(Waiting { owner, range, mode, outcome: Some(Ok(())), is_told: false, .. }) =
            state.waiting.remove(at)
        {
            state.drop_lock(owner, range, mode);
            state.grant(Some(range));
        }
        self.shrink();
    }

    /// Unlocks exactly `range` of `owner`; fails with RANGE_NOT_LOCKED if there is no such lock.
    /// MS-FSA 2.1.5.9: exclusive locks go before shared ones.
    pub fn unlock(&mut self, owner: OpenId, range: Range) -> Result<(), Status> {
        self.unlock_all(owner, [range]).1
    }

    /// Unlocks the ranges in order, up to one that is not locked. Looks at waiting requests once,
    /// however many ranges there are. Returns the number of unlocked ranges.
    pub fn unlock_all(
        &mut self,
        owner: OpenId,
        ranges: impl IntoIterator<Item = Range>,
    ) -> (usize, Result<(), Status>) {
        let Some(state) = &mut self.state else {
            let is_empty = ranges.into_iter().next().is_none();
            return (0, if is_empty { Ok(()) } else { Err(Status::RANGE_NOT_LOCKED) });
        };
        let mut freed = Vec::new();
        let mut outcome = Ok(());
        for range in ranges {
            outcome = range.check().and_then(|range| {
                state.unlock(owner, range)?;
                freed.push(range);
                Ok(())
            });
            if outcome.is_err() {
                break;
            }
        }
        let count = freed.len();
        state.grant_any(freed);
        self.shrink();
        (count, outcome)
    }

    /// Releases locks that [`Self::lock`] has just granted. Looks at waiting requests once.
    pub fn take_back(&mut self, owner: OpenId, locks: impl IntoIterator<Item = (Range, Mode)>) {
        let Some(state) = &mut self.state else { return };
        let mut freed = Vec::new();
        for (range, mode) in locks {
            state.drop_lock(owner, range, mode);
            freed.push(range);
        }
        state.grant_any(freed);
        self.shrink();
    }

    /// Releases all locks of `owner` and ends its waits.
    pub fn release(&mut self, owner: OpenId) {
        self.release_some(owner, usize::MAX);
    }

    /// Ends the waits of `owner` and releases its locks on at most `count` ranges, so that others need
    /// not wait long for this list. Returns true if it has more.
    pub fn release_some(&mut self, owner: OpenId, count: usize) -> bool {
        let Some(state) = &mut self.state else { return false };
        for waiting in state.waiting.iter_mut().filter(|w| w.owner == owner) {
            waiting.end(Err(Status::RANGE_NOT_LOCKED));
        }
        let mut freed = Vec::new();
        while freed.len() < count {
            let first = state.held.get(&owner).and_then(|(held, _)| held.first_key_value());
            let Some((&(range, mode), &times)) = first else { break };
            state.drop_locks(owner, range, mode, times);
            freed.push(range);
        }
        if !freed.is_empty() {
            state.grant_any(freed);
        }
        let has_more = state.held.contains_key(&owner);
        self.shrink();
        has_more
    }

    /// Returns all locks of `owner` in an order in which they can be locked again: exclusive ranges
    /// first, because an exclusive lock does not go over a shared one. A range that is locked
    /// several times is listed as often. Locks of waits that have not read their result are left
    /// out.
    pub fn of(&self, owner: OpenId) -> Vec<(Range, Mode)> {
        let Some(state) = &self.state else { return Vec::new() };
        let mut all: Vec<_> = state
            .held
            .get(&owner)
            .into_iter()
            .flat_map(|(held, _)| held)
            .flat_map(|(lock, times)| core::iter::repeat_n(*lock, *times as usize))
            .collect();
        let is_untold = |w: &&Waiting| w.owner == owner && w.outcome == Some(Ok(())) && !w.is_told;
        for untold in state.waiting.iter().filter(is_untold) {
            if let Some(at) = all.iter().position(|lock| *lock == (untold.range, untold.mode)) {
                all.swap_remove(at);
            }
        }
        all.sort_unstable_by_key(|(range, mode)| {
            (*mode == Mode::Shared, range.offset, range.length)
        });
        all
    }

    /// Number of ranges that `owner` holds (Open.LockCount).
    pub fn held_by(&self, owner: OpenId) -> usize {
        let held = self.state.as_ref().and_then(|state| state.held.get(&owner));
        held.map_or(0, |(_, count)| *count)
    }

    /// Number of ranges that all Opens hold.
    pub fn len(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.count)
    }

    /// Number of waiting requests.
    pub fn waiting_count(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.waiting.len())
    }

    /// Frees the memory of a file without locks and waits, and that of a crowd that has gone.
    fn shrink(&mut self) {
        let Some(state) = &mut self.state else { return };
        if state.count == 0 && state.waiting.is_empty() {
            self.state = None;
            return;
        }
        if let Some(room) = less_room(state.waiting.capacity(), state.waiting.len()) {
            state.waiting.shrink_to(room);
        }
        return_surplus(&mut state.held);
    }
}

impl Waiting {
    fn end(&mut self, outcome: Result<(), Status>) {
        if matches!(self.outcome, None | Some(Ok(()))) {
            self.outcome = Some(outcome);
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            exclusive: Intervals::EMPTY,
            shared: Intervals::EMPTY,
            held: HashMap::new(),
            count: 0,
            waiting: VecDeque::new(),
            last_ticket: 0,
        }
    }
}

impl State {
    const fn intervals(&mut self, mode: Mode) -> &mut Intervals {
        match mode {
            Mode::Exclusive => &mut self.exclusive,
            Mode::Shared => &mut self.shared,
        }
    }

    fn find(&self, ticket: Ticket) -> Option<usize> {
        self.waiting.binary_search_by_key(&ticket.0, |w| w.ticket.0).ok()
    }

    fn verdict(&self, owner: OpenId, range: Range, mode: Mode) -> Verdict {
        let conflicts = !range.is_nothing()
            && match mode {
                // An Open may add a shared lock to its own exclusive one, but only another Open's
                // exclusive lock conflicts.
                Mode::Shared => self.exclusive.any_other(owner, range),
                Mode::Exclusive => self.exclusive.any(range) || self.shared.any(range),
            };
        if conflicts { Verdict::Conflict } else { Verdict::Free }
    }

    fn lock(&mut self, owner: OpenId, range: Range, mode: Mode) -> Result<(), Status> {
        if let Verdict::Conflict = self.verdict(owner, range, mode) {
            return Err(Status::LOCK_NOT_GRANTED);
        }
        let own = self.held.get(&owner).map_or(0, |(_, count)| *count);
        if self.count >= LOCKS_PER_FILE || own >= LOCKS_PER_OPEN {
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        let (held, own) = self.held.entry(owner).or_default();
        *own = own.saturating_add(1);
        let times = held.entry((range, mode)).or_default();
        *times = times.saturating_add(1);
        let is_first = *times == 1;
        self.count = self.count.saturating_add(1);
        if is_first && !range.is_nothing() {
            self.intervals(mode).insert(Key::new(owner, range));
        }
        Ok(())
    }

    fn unlock(&mut self, owner: OpenId, range: Range) -> Result<(), Status> {
        let (held, _) = self.held.get(&owner).ok_or(Status::RANGE_NOT_LOCKED)?;
        let is_held = |mode: &Mode| held.contains_key(&(range, *mode));
        let mode = [Mode::Exclusive, Mode::Shared].into_iter().find(is_held);
        self.drop_lock(owner, range, mode.ok_or(Status::RANGE_NOT_LOCKED)?);
        Ok(())
    }

    /// Removes one lock; does nothing if there is no such lock.
    fn drop_lock(&mut self, owner: OpenId, range: Range, mode: Mode) {
        self.drop_locks(owner, range, mode, 1);
    }

    /// Removes `count` locks of one range, or all that there are if they are fewer.
    fn drop_locks(&mut self, owner: OpenId, range: Range, mode: Mode, count: u32) {
        let Some((held, own)) = self.held.get_mut(&owner) else { return };
        let Some(times) = held.get_mut(&(range, mode)) else { return };
        let count = count.min(*times);
        *times = times.saturating_sub(count);
        *own = own.saturating_sub(count as usize);
        self.count = self.count.saturating_sub(count as usize);
        let was_last = *times == 0;
        if was_last {
            held.remove(&(range, mode));
        }
        if *own == 0 {
            self.held.remove(&owner);
        }
        if was_last {
            self.intervals(mode).remove(Key::new(owner, range));
        }
    }

    /// Grants locks to waiting requests, first come first served: those that `freed` concerns, or
    /// all for None. Wakes only requests that get their lock.
    fn grant(&mut self, freed: Option<Range>) {
        self.grant_if(|range| freed.is_none_or(|freed| freed.overlaps(range)));
    }

    /// Grants locks to requests that wait for any of these ranges.
    fn grant_any(&mut self, mut freed: Vec<Range>) {
        if let [only] = freed[..] {
            return self.grant(Some(only));
        }
        freed.retain(|range| !range.is_nothing());
        freed.sort_unstable_by_key(|range| (range.offset, range.length));
        // Overlapping ranges are joined, so that each waiter is compared with only one of them: the
        // last one that begins before the waiter's end.
        let mut joined: Vec<Range> = Vec::new();
        for range in freed {
            match joined.last_mut().filter(|last| last.overlaps(range)) {
                Some(last) => {
                    let end = last.last().max(range.last());
                    last.length = end.saturating_sub(last.offset).saturating_add(1);
                }
                None => joined.push(range),
            }
        }
        self.grant_if(|range| {
            let before = joined.partition_point(|freed| freed.offset <= range.last());
            let last = before.checked_sub(1).and_then(|at| joined.get(at));
            last.is_some_and(|freed| freed.overlaps(range))
        });
    }

    fn grant_if(&mut self, is_freed: impl Fn(Range) -> bool) {
        let mut waiting = core::mem::take(&mut self.waiting);
        let concerned = |w: &&mut Waiting| w.outcome.is_none() && is_freed(w.range);
        for one in waiting.iter_mut().filter(concerned) {
            match self.lock(one.owner, one.range, one.mode) {
                Err(Status::LOCK_NOT_GRANTED) => {}
                outcome => one.end(outcome),
            }
        }
        self.waiting = waiting;
    }
}

#[cfg(test)]
mod tests;
