//! Limits of rate: buckets of tokens, and lines of those who wait for them.
//!
//! A [`Bucket`] and a [`Line`] are values without a clock. A [`Gate`] puts them together: while nobody waits
//! an operation takes its tokens without a lock. Else it stands in line, where flows have shares by their
//! weights, and the first one sleeps until the bucket has room.

mod bucket;
mod line;
mod pace;
mod waits;

pub(crate) use line::Flow;
pub(crate) use pace::{HeldRequest, HeldRequests, Moved, Pace};
pub(crate) use waits::{Wait, Waited, Waits};

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use bucket::Bucket;
use line::{Line, Position};

/// The clock of limits, which never goes back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    /// Starts a clock.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since its start.
    pub(crate) fn now(self) -> Duration {
        self.0.elapsed()
    }

    fn at(self, time: Duration) -> Instant {
        self.0 + time
    }
}

/// The gate was closed: its limit is not in force any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Closed;

/// One limit, of bytes or of operations a second.
#[derive(Debug)]
pub(crate) struct Gate {
    bucket: Bucket,
    /// The number of those in line.
    crowd: AtomicUsize,
    line: Mutex<Line>,
    is_closed: AtomicBool,
    waits: Waits,
}

/// The turn of one that is in line.
enum Turn {
    /// It has taken its tokens.
    Come,
    /// Another one is before it.
    Behind,
    /// It is the first one, and the bucket has room at this time.
    At(Duration),
    /// The gate was closed.
    Closed,
}

impl Gate {
    /// A gate that lets `per_second` units pass, and as many at once as it lets pass in `burst`.
    pub(crate) fn new(per_second: u64, burst: Duration) -> Self {
        Self {
            bucket: Bucket::new(per_second, burst),
            crowd: AtomicUsize::new(0),
            line: Mutex::default(),
            is_closed: AtomicBool::new(false),
            waits: Waits::default(),
        }
    }

    /// Returns the units that it lets pass in a second.
    pub(crate) const fn per_second(&self) -> u64 {
        self.bucket.per_second()
    }

    /// Passes with `units` at once. False where it has to wait. A closed gate lets all pass.
    pub(crate) fn try_pass(&self, units: u64, now: Duration) -> bool {
        let is_free = || self.crowd.load(Ordering::Acquire) == 0;
        (is_free() && self.bucket.take(units, now).is_ok())
            || self.is_closed.load(Ordering::Acquire)
    }

    /// Waits for its turn, and passes with `units`. Dropped before, it leaves the line.
    ///
    /// # Errors
    /// [`Closed`] when the limit is not in force any more.
    pub(crate) async fn pass(&self, flow: Flow, units: u64, clock: Clock) -> Result<(), Closed> {
        let waiter = Waiter::enter(self, flow, units, clock);
        let mut timer = pin!(sleep_until(clock.at(Duration::ZERO)));
        poll_fn(|cx| {
            loop {
                match waiter.turn(clock.now(), cx.waker()) {
                    Turn::Come => return Poll::Ready(Ok(())),
                    Turn::Closed => return Poll::Ready(Err(Closed)),
                    Turn::Behind => return Poll::Pending,
                    Turn::At(time) => timer.as_mut().reset(clock.at(time)),
                }
                if timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Returns tokens for `units` that were not needed. The first one in line looks again if it may pass.
    pub(crate) fn give_back(&self, units: u64) {
        self.bucket.give_back(units);
        if self.crowd.load(Ordering::Acquire) > 0 {
            let first = self.line.lock().take_first_waker();
            first.into_iter().for_each(Waker::wake);
        }
    }

    /// Notes `units` that have passed beyond those that were asked for: later ones wait for them.
    pub(crate) fn owe(&self, units: u64, now: Duration) {
        self.bucket.owe(units, now);
    }

    /// Returns the units that are owed for what has passed.
    pub(crate) fn owed(&self, now: Duration) -> u64 {
        self.bucket.owed(now)
    }

    /// Returns the numbers of its waits.
    pub(crate) fn waited(&self) -> Waited {
        self.waits.numbers()
    }

    /// Closes the gate: those in line wait no longer.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let wakers = self.line.lock().take_wakers();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The time from which on nothing is owed for what has passed.
    pub(crate) fn rests_at(&self) -> Duration {
        self.bucket.rests_at()
    }

    /// The flows that have somebody in line.
    pub(crate) fn flows(&self) -> BTreeSet<u64> {
        let is_free = self.crowd.load(Ordering::Relaxed) == 0;
        if is_free { BTreeSet::new() } else { self.line.lock().flows() }
    }
}

/// One that is in line, until it is dropped.
struct Waiter<'a> {
    gate: &'a Gate,
    place: Position,
    units: u64,
    _wait: Wait<'a>,
}

impl<'a> Waiter<'a> {
    fn enter(gate: &'a Gate, flow: Flow, units: u64, clock: Clock) -> Self {
        let mut line = gate.line.lock();
        if line.is_empty() && gate.bucket.is_rested(clock.now()) {
            line.forget();
        }
        let place = line.enter(flow, gate.bucket.time_of(units));
        gate.crowd.store(line.len(), Ordering::Release);
        Self { gate, place, units, _wait: gate.waits.begin(clock) }
    }

    fn turn(&self, now: Duration, waker: &Waker) -> Turn {
        let mut line = self.gate.line.lock();
        if self.gate.is_closed.load(Ordering::Acquire) {
            return Turn::Closed;
        }
        line.wake_by(self.place, waker);
        if !line.is_first(self.place) {
            return Turn::Behind;
        }
        match self.gate.bucket.take(self.units, now) {
            Ok(()) => {
                line.admit(self.place);
                Turn::Come
            }
            Err(time) => Turn::At(time),
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut line = self.gate.line.lock();
        let next = line.leave(self.place);
        self.gate.crowd.store(line.len(), Ordering::Release);
        drop(line);
        if let Some(next) = next {
            next.wake();
        }
    }
}

#[cfg(test)]
mod tests;
