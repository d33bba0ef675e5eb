//! The time for which each poll of a task holds its core.
//!
//! A core serves many clients with one thread. A poll that computes for long, or that sleeps in the
//! kernel, makes all of them wait. This module measures every poll: [`Histogram`] counts polls by
//! duration, [`lap`] measures parts of one poll, and loops call [`yield_if_due`] to give other
//! tasks their turn.
//!
//! One poll costs two reads of the monotonic clock (some 25 ns each, without a system call) and one
//! atomic addition; each [`lap`] costs one read more.

use std::array;
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::file_io;
use crate::limits::{
    HELD_CORE_MAX, POLL_SLICE, SHARED_CORE, SIMULATED_LOOK, SIMULATED_POLL, TURN_SLICE,
    UNOPTIMISED_FACTOR,
};

mod moment;

pub use moment::Moment;
pub(crate) use moment::nanoseconds;

/// The environment variable that sets [`held_limit`], in milliseconds of processor time; 0 disables
/// the check.
pub const HELD_CORE_VARIABLE: &str = "FREVO_HELD_CORE_MS";

/// The present poll of this thread.
#[derive(Debug, Clone, Copy)]
struct Present {
    began: Moment,
    /// The end of the last measured part.
    mark: Moment,
    /// Processor time of the thread at `began`, if the limit is checked.
    cpu: Option<Duration>,
    /// True if a task within this one has had its turn.
    had_turn: bool,
    /// True if a measurement within this one has ended at `mark`.
    closed: bool,
}

thread_local! {
    static PRESENT: Cell<Option<Present>> = const { Cell::new(None) };
    /// The time until which the core counts as shared.
    static SHARED_UNTIL: Cell<Option<Moment>> = const { Cell::new(None) };
    /// The clock of a simulator that gives turns.
    static SIMULATED: Cell<Option<Simulated>> = const { Cell::new(None) };
}

/// The clock of a simulator that gives turns.
#[derive(Debug, Clone, Copy)]
struct Simulated {
    /// The beginning, in time of tokio and as the moment that stands for it.
    start: tokio::time::Instant,
    origin: Moment,
    /// The moment at which the processor has done the work so far.
    done: Moment,
}

/// Returns the present time. In a simulator that gives turns it is the time at which the processor has
/// done the work so far, or that of the simulator's clock if that is later.
pub(crate) fn now() -> Moment {
    match SIMULATED.get() {
        None => Moment::now(),
        Some(clock) => clock.done.max(clock.origin.after(clock.start.elapsed())),
    }
}

/// Begins or ends to count work instead of time on this thread.
pub(crate) fn simulate(simulates: bool) {
    SHARED_UNTIL.set(None);
    SIMULATED.set(simulates.then(|| {
        let origin = Moment::now();
        Simulated { start: tokio::time::Instant::now(), origin, done: origin }
    }));
}

/// True on the thread of a simulator that gives turns.
pub(crate) fn is_simulated() -> bool {
    SIMULATED.get().is_some()
}

/// Returns the time at which the processor of a simulator has done the work so far.
pub(crate) fn simulated_time() -> tokio::time::Instant {
    match SIMULATED.get() {
        None => tokio::time::Instant::now(),
        Some(clock) => clock.start + now().since(clock.origin),
    }
}

/// Counts work in a simulator.
fn work(time: Duration) {
    if let Some(clock) = SIMULATED.get() {
        SIMULATED.set(Some(Simulated { done: now().after(time), ..clock }));
    }
}

/// The time of one poll.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PollTime {
    /// Elapsed time, waiting for the processor included.
    pub wall: Duration,
    /// Processor time of the thread; None unless [`held_limit`] is set.
    pub cpu: Option<Duration>,
}

impl PollTime {
    /// True if the poll used more processor time than [`held_limit`] allows.
    #[must_use]
    pub fn is_too_long(&self) -> bool {
        matches!((self.cpu, held_limit()), (Some(cpu), Some(limit)) if cpu > limit)
    }
}

/// Returns the processor time of one poll that counts as a fault, if that is checked: in builds
/// with debug assertions, or if the environment variable [`HELD_CORE_VARIABLE`] is set.
///
/// Processor time counts because a busy machine may stop a thread for any time between two
/// instructions. Unoptimised code is some ten times slower, and so the default is ten times
/// [`HELD_CORE_MAX`] there: tests find loops without a bound, not the missing optimiser. The
/// simulator's builds are optimised and have assertions; their scripts set the variable.
#[must_use]
pub fn held_limit() -> Option<Duration> {
    static LIMIT: OnceLock<Option<Duration>> = OnceLock::new();
    *LIMIT.get_or_init(|| limit_of(std::env::var(HELD_CORE_VARIABLE).ok().as_deref()))
}

fn limit_of(variable: Option<&str>) -> Option<Duration> {
    let asserts = cfg!(debug_assertions).then_some(HELD_CORE_MAX * UNOPTIMISED_FACTOR);
    match variable.and_then(|text| text.trim().parse().ok()) {
        Some(0) => None,
        Some(milliseconds) => Some(Duration::from_millis(milliseconds)),
        None => asserts,
    }
}

/// Returns the processor time that this thread has used; None unless [`held_limit`] is set.
#[must_use]
pub fn processor_time() -> Option<Duration> {
    held_limit()?;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).ok()?;
    Some(Duration::new(seconds, u32::try_from(now.tv_nsec).ok()?))
}

/// Ends the measurement of a poll, also when it panics.
struct Ending {
    outer: Option<Present>,
}

impl Ending {
    fn held(&self) -> PollTime {
        let Some(present) = PRESENT.get() else { return PollTime::default() };
        let end = if present.closed { present.mark } else { now() };
        let cpu = present.cpu.and_then(|began| Some(processor_time()?.saturating_sub(began)));
        PRESENT.set(Some(Present { mark: end, ..present }));
        PollTime { wall: end.since(present.began), cpu }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // The inner measurement has ended, so the outer measurement of the same poll ends here,
        // too.
        let ended = self.outer.is_some().then(|| PRESENT.get()).flatten();
        PRESENT.set(ended.map(|present| Present { closed: true, ..present }));
    }
}

/// Makes one poll and measures it. If this poll is measured already, the earlier beginning counts.
pub fn measured<T>(poll: impl FnOnce() -> T) -> (T, PollTime) {
    let outer = PRESENT.get();
    if outer.is_none() {
        let now = now();
        work(SIMULATED_POLL);
        let cpu = processor_time();
        let present = Present { began: now, mark: now, cpu, had_turn: false, closed: false };
        PRESENT.set(Some(present));
    }
    let ending = Ending { outer };
    let polled = poll();
    let held = ending.held();
    (polled, held)
}

/// Returns the time since the present poll began, or since its last lap; zero outside of measured
/// polls.
#[must_use]
pub fn lap() -> Duration {
    let Some(present) = PRESENT.get() else { return Duration::ZERO };
    let now = now();
    PRESENT.set(Some(Present { mark: now, closed: false, ..present }));
    now.since(present.mark)
}

/// Returns the time of the last measurement within the present poll, without a look at the clock.
/// Outside of measured polls it is the present time.
#[must_use]
pub fn mark() -> Moment {
    PRESENT.get().map_or_else(now, |present| present.mark)
}

/// Returns the nanoseconds from the beginning of the present poll to its last measurement, without a
/// look at the clock.
pub(crate) fn spent() -> u64 {
    PRESENT.get().map_or(0, |present| present.mark.nanoseconds_since(present.began))
}

/// Notes that this core works for several accounts, for [`SHARED_CORE`] from the present poll on.
pub(crate) fn share_core() {
    SHARED_UNTIL.set(Some(mark().after(SHARED_CORE)));
}

/// Returns the longest time for which an account's tasks use this core before others have their
/// turn: shorter while the core is shared.
pub(crate) fn slice() -> Duration {
    if is_shared() { TURN_SLICE } else { POLL_SLICE }
}

/// True while several accounts use this core.
#[must_use]
pub fn is_shared() -> bool {
    SHARED_UNTIL.get().is_some_and(|until| mark() < until)
}

/// True if the present poll has lasted [`POLL_SLICE`], or [`TURN_SLICE`] where several accounts use
/// the core: work that can wait should wait. False outside of measured polls, and in a simulator,
/// where real time must not decide anything: one that gives turns counts each call as work.
#[must_use]
pub fn is_due() -> bool {
    has_lasted(slice())
}

/// True if the present poll has lasted `time`; false where [`is_due`] is always false.
#[must_use]
pub fn has_lasted(time: Duration) -> bool {
    if file_io::stays() && !is_simulated() {
        return false;
    }
    PRESENT.get().is_some_and(|present| {
        work(SIMULATED_LOOK);
        now().since(present.began) >= time
    })
}

/// True if one of several tasks within the present poll may continue: always for the first one, so
/// that each poll gets something done, for others until [`is_due`].
#[must_use]
pub fn has_turn() -> bool {
    match PRESENT.get() {
        Some(present) if !present.had_turn => {
            PRESENT.set(Some(Present { had_turn: true, ..present }));
            true
        }
        _ => !is_due(),
    }
}

/// Gives other tasks of the core their turn if [`is_due`].
pub async fn yield_if_due() {
    if is_due() {
        tokio::task::yield_now().await;
    }
}

/// Numbers of polls by their duration.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
}

/// Buckets of a [`Histogram`].
pub const BUCKETS: usize = 28;

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Histogram {
    fn count(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - micros.leading_zeros()) as usize;
        if let Some(count) = self.buckets.get(bucket.min(BUCKETS - 1)) {
            // Only this thread writes the counter, so a load and a store suffice.
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// Returns the present counts.
    #[must_use]
    pub fn polls(&self) -> Polls {
        Polls(array::from_fn(|at| {
            self.buckets.get(at).map_or(0, |count| count.load(Ordering::Relaxed))
        }))
    }
}

/// Numbers of polls by duration: the first counts polls below 1 us, each further one those below
/// twice as much, the last one all longer polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Polls(pub [u64; BUCKETS]);

impl Polls {
    /// Returns the number of all polls.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the sum of two counts.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        let mut sums = self.0;
        sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other);
        Self(sums)
    }

    /// Returns the number of polls of at least about `duration`, in whole buckets.
    #[must_use]
    pub fn from(&self, duration: Duration) -> u64 {
        let counted = self.0.iter().enumerate().filter(|(at, _)| {
            // A poll in this bucket took at least half of the bucket's limit, which is the limit of
            // the bucket before.
            let least = if *at == 0 { 0 } else { 1_u64 << (at - 1) };
            Duration::from_micros(least) >= duration
        });
        counted.map(|(_, count)| count).sum()
    }
}

impl fmt::Display for Polls {
    /// Prints `<8us 120, <16us 7`, without empty buckets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (at, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            match at {
                _ if at + 1 == BUCKETS => write!(f, "{separator}longer {count}")?,
                0..=9 => write!(f, "{separator}<{}us {count}", 1_u64 << at)?,
                10..=19 => write!(f, "{separator}<{}ms {count}", 1_u64 << (at - 10))?,
                _ => write!(f, "{separator}<{}s {count}", 1_u64 << (at - 20))?,
            }
            separator = ", ";
        }
        Ok(())
    }
}

/// A task whose polls are counted.
pub(crate) struct Watched {
    task: Pin<Box<dyn Future<Output = ()>>>,
    histogram: Arc<Histogram>,
}

impl Watched {
    pub(crate) fn new(task: Pin<Box<dyn Future<Output = ()>>>, histogram: &Arc<Histogram>) -> Self {
        Self { task, histogram: Arc::clone(histogram) }
    }
}

impl Future for Watched {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let (polled, held) = measured(|| this.task.as_mut().poll(cx));
        this.histogram.count(held.wall);
        polled
    }
}

#[cfg(test)]
mod tests;
