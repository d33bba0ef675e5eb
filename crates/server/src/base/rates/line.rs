//! The line before a gate: start-time fair queueing.
//!
//! Each operation has a start on the line's own scale: the end of the one before it of its flow, or the start of
//! the one that was admitted last, whichever is later. Its end is the start and its cost by the weight of its
//! flow. The operation with the lowest start is the first one. So a flow of weight 3 passes three times as much
//! as one of weight 1 while both wait, and a flow that comes later waits behind nobody's whole backlog.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;
use std::time::Duration;

/// The part of its cost by which a flow of weight 1 moves on.
const SCALE: u128 = 1 << 20;

/// Flows beyond those in line whose ends are kept before old ones are dropped.
const IDLE_FLOWS: usize = 64;

/// Operations that have their turns together: those of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow {
    /// The id of the session.
    pub(crate) id: u64,
    /// Its part beside flows of other weights.
    pub(crate) weight: u32,
}

/// The place of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    start: u128,
    number: u64,
}

#[derive(Debug)]
struct Waiting {
    flow: u64,
    end: u128,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
pub(super) struct Line {
    /// The start of the operation that was admitted last.
    now: u128,
    /// The end of the latest operation of each flow.
    ends: BTreeMap<u64, u128>,
    waiting: BTreeMap<Position, Waiting>,
    next: u64,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Puts an operation in line that costs `time` at the whole rate.
    pub(super) fn enter(&mut self, flow: Flow, time: Duration) -> Position {
        let start = self.ends.get(&flow.id).map_or(self.now, |end| self.now.max(*end));
        let end = start + time.as_nanos() * SCALE / u128::from(flow.weight.max(1));
        self.ends.insert(flow.id, end);
        self.next = self.next.wrapping_add(1);
        let place = Position { start, number: self.next };
        self.waiting.insert(place, Waiting { flow: flow.id, end, waker: None });
        place
    }

    /// True for the one that passes next.
    pub(super) fn is_first(&self, place: Position) -> bool {
        self.waiting.first_key_value().is_some_and(|(first, _)| *first == place)
    }

    /// Has `waker` woken when the place becomes the first one.
    pub(super) fn wake_by(&mut self, place: Position, waker: &Waker) {
        if let Some(waiting) = self.waiting.get_mut(&place) {
            match &mut waiting.waker {
                Some(known) => known.clone_from(waker),
                None => waiting.waker = Some(waker.clone()),
            }
        }
    }

    /// Notes that the first one passes; then it leaves.
    pub(super) fn admit(&mut self, place: Position) {
        self.now = place.start;
        // It has passed, and its flow's next operation starts at its end.
        if let Some(waiting) = self.waiting.get_mut(&place) {
            waiting.end = u128::MAX;
        }
        if self.ends.len() > self.waiting.len() + IDLE_FLOWS {
            let now = self.now;
            self.ends.retain(|_, end| *end > now);
        }
    }

    /// Takes one out of the line. Returns the waker of the one that is the first now.
    pub(super) fn leave(&mut self, place: Position) -> Option<Waker> {
        let was_first = self.is_first(place);
        let left = self.waiting.remove(&place)?;
        if let Some(end) = self.ends.get_mut(&left.flow)
            && *end == left.end
        {
            // It has not passed, and counts for nothing.
            *end = place.start;
        }
        let next = self.waiting.first_entry().filter(|_| was_first);
        next.and_then(|mut next| next.get_mut().waker.take())
    }

    /// Forgets what flows have passed: the gate was open to all since then.
    pub(super) fn forget(&mut self) {
        self.ends.clear();
    }

    /// Takes the waker of the first one.
    pub(super) fn take_first_waker(&mut self) -> Option<Waker> {
        self.waiting.first_entry().and_then(|mut first| first.get_mut().waker.take())
    }

    /// Takes the wakers of all.
    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        self.waiting.values_mut().filter_map(|waiting| waiting.waker.take()).collect()
    }

    /// The flows that have operations in line.
    pub(super) fn flows(&self) -> BTreeSet<u64> {
        self.waiting.values().map(|waiting| waiting.flow).collect()
    }
}
