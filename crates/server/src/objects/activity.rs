//! Activity of channels: operations, bytes, latencies, and on what their time went.
//!
//! Each channel counts for itself. The core of its connection is the only writer, so that
//! counting is a relaxed load and store of memory that no other core writes. Readers add the
//! channels up; the counts of a channel that has ended stay in the sum of the server.

mod company;
mod errors;
mod registry;

pub(crate) use registry::{Entry, Registered, Registry};

use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frevo_net::watchdog::Moment;
use frevo_wire::Status;

/// The classes of operations that are measured apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Class {
    /// CREATE
    Open,
    /// CLOSE
    Close,
    /// READ
    Read,
    /// WRITE
    Write,
    /// FLUSH
    Flush,
    /// QUERY_DIRECTORY
    List,
    /// QUERY_INFO and SET_INFO
    Info,
    /// LOCK
    Lock,
    /// All other commands. CHANGE_NOTIFY is counted, its time is not.
    Other,
}

/// The number of classes.
pub(crate) const CLASSES: usize = 9;

impl Class {
    /// All classes, in the order of their counts.
    pub(crate) const ALL: [Self; CLASSES] = [
        Self::Open,
        Self::Close,
        Self::Read,
        Self::Write,
        Self::Flush,
        Self::List,
        Self::Info,
        Self::Lock,
        Self::Other,
    ];

    /// The name in output and in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Close => "close",
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::List => "list",
            Self::Info => "info",
            Self::Lock => "lock",
            Self::Other => "other",
        }
    }
}

/// The way in which requests of a command are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountedAs {
    /// In this class, with their time.
    Timed(Class),
    /// In this class, without their time, which says nothing about the server.
    Untimed(Class),
}

/// The number of buckets of a histogram.
pub(crate) const BUCKETS: usize = 21;

/// The first bucket counts up to 16 µs, each further one up to twice the time of the bucket
/// before it. The last bucket, from 8.4 s on, has no end.
const FIRST_BUCKET: u32 = 4;

/// The longest time that a bucket counts; None for the last bucket.
pub(crate) fn bucket_end(bucket: usize) -> Option<Duration> {
    let shift = u32::try_from(bucket).unwrap_or(u32::MAX).saturating_add(FIRST_BUCKET);
    (bucket + 1 < BUCKETS).then(|| Duration::from_micros(1 << shift))
}

/// The bucket of a time.
const fn bucket_of(micros: u64) -> usize {
    // 1 is subtracted so that a power of two is the largest value of its bucket: 16 becomes 15,
    // which has 4 bits.
    let bits = u64::BITS - micros.saturating_sub(1).leading_zeros();
    let bucket = bits.saturating_sub(FIRST_BUCKET) as usize;
    if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
}

/// The time that one request took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    /// Work on its core.
    pub(crate) busy: Duration,
    /// Waiting for a disk or a thread.
    pub(crate) medium: Duration,
    /// Waiting for other clients: breaks and locks.
    pub(crate) others: Duration,
    /// Waiting for limits of rate.
    pub(crate) held: Duration,
}

impl Spent {
    fn whole(&self) -> Duration {
        let waited = self.medium.saturating_add(self.others).saturating_add(self.held);
        self.busy.saturating_add(waited)
    }
}

/// A reason for which a client waits while no request of it is worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stall {
    /// The client has used up its credits.
    Credits,
    /// The client, or the network, has not taken the replies.
    Network,
}

/// Counts of one class.
#[derive(Debug)]
struct ClassCounts {
    buckets: [AtomicU64; BUCKETS],
    micros: AtomicU64,
}

impl Default for ClassCounts {
    fn default() -> Self {
        Self { buckets: array::from_fn(|_| AtomicU64::new(0)), micros: AtomicU64::new(0) }
    }
}

/// Counts of one channel.
#[derive(Debug)]
pub(crate) struct Activity {
    began: Moment,
    /// A class has memory from its first request on: most idle clients use only one.
    classes: [OnceLock<Box<ClassCounts>>; CLASSES],
    received: AtomicU64,
    sent: AtomicU64,
    failures: AtomicU64,
    busy: AtomicU64,
    medium: AtomicU64,
    others: AtomicU64,
    held: AtomicU64,
    credits: AtomicU64,
    network: AtomicU64,
    /// Credits that the client holds.
    credits_held: AtomicU64,
    /// Milliseconds from `began` to the latest request.
    latest: AtomicU64,
}

/// Adds to a counter that this thread alone writes.
fn add(counter: &AtomicU64, amount: u64) {
    if amount != 0 {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }
}

/// True for the status of a request that failed. The first rounds of a logon are no failures.
fn is_failure(status: Status) -> bool {
    status.is_error() && status != Status::MORE_PROCESSING_REQUIRED
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Default for Activity {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            began: Moment::now(),
            classes: array::from_fn(|_| OnceLock::new()),
            received: zero(),
            sent: zero(),
            failures: zero(),
            busy: zero(),
            medium: zero(),
            others: zero(),
            held: zero(),
            credits: zero(),
            network: zero(),
            credits_held: zero(),
            latest: zero(),
        }
    }
}

impl Activity {
    /// Counts an answered request: of `received` bytes, answered by `sent` bytes at `now`.
    pub(crate) fn count(
        &self,
        counted: CountedAs,
        status: Status,
        spent: &Spent,
        received: usize,
        sent: usize,
        now: Moment,
    ) {
        let (class, spent) = match counted {
            CountedAs::Timed(class) => (class, spent),
            CountedAs::Untimed(class) => (class, &Spent::default()),
        };
        if let Some(counts) = self.classes.get(class as usize) {
            let counts = counts.get_or_init(Box::default);
            let took = micros(spent.whole());
            if let Some(bucket) = counts.buckets.get(bucket_of(took)) {
                add(bucket, 1);
            }
            add(&counts.micros, took);
        }
        add(&self.received, received as u64);
        add(&self.sent, sent as u64);
        add(&self.failures, u64::from(is_failure(status)));
        add(&self.busy, micros(spent.busy));
        add(&self.medium, micros(spent.medium));
        add(&self.others, micros(spent.others));
        add(&self.held, micros(spent.held));
        let latest = millis(now.since(self.began));
        self.latest.store(latest, Ordering::Relaxed);
    }

    /// Counts a time in which the client waited.
    pub(crate) fn stalled(&self, stall: Stall, time: Duration) {
        match stall {
            Stall::Credits => add(&self.credits, micros(time)),
            Stall::Network => add(&self.network, micros(time)),
        }
    }

    /// Sets the number of credits that the client holds.
    pub(crate) fn hold_credits(&self, credits: u16) {
        self.credits_held.store(u64::from(credits), Ordering::Relaxed);
    }

    /// The number of credits that the client holds.
    pub(crate) fn credits_held(&self) -> u64 {
        self.credits_held.load(Ordering::Relaxed)
    }

    /// The time since the latest request, or since logon.
    pub(crate) fn idle(&self, now: Moment) -> Duration {
        let latest = Duration::from_millis(self.latest.load(Ordering::Relaxed));
        now.since(self.began).saturating_sub(latest)
    }

    /// The counts as they are now.
    pub(crate) fn totals(&self) -> Totals {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut totals = Totals {
            received: get(&self.received),
            sent: get(&self.sent),
            failures: get(&self.failures),
            busy: get(&self.busy),
            medium: get(&self.medium),
            others: get(&self.others),
            held: get(&self.held),
            credits: get(&self.credits),
            network: get(&self.network),
            ..Totals::default()
        };
        for (into, from) in totals.classes.iter_mut().zip(&self.classes) {
            let Some(from) = from.get() else { continue };
            into.micros = get(&from.micros);
            for (into, from) in into.buckets.iter_mut().zip(&from.buckets) {
                *into = get(from);
            }
        }
        totals
    }
}

/// Latencies of one class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Latencies {
    /// Operations in each bucket; [`bucket_end`] has the limits.
    pub(crate) buckets: [u64; BUCKETS],
    /// The sum of all latencies, microseconds.
    pub(crate) micros: u64,
}

impl Latencies {
    /// The number of operations.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Adds the counts of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        for (into, from) in self.buckets.iter_mut().zip(&other.buckets) {
            *into = into.wrapping_add(*from);
        }
        self.micros = self.micros.wrapping_add(other.micros);
    }
}

/// Counts of one channel, or of several together. Times are microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Latencies by class, in the order of [`Class::ALL`].
    pub(crate) classes: [Latencies; CLASSES],
    /// Bytes received in requests.
    pub(crate) received: u64,
    /// Bytes sent in responses.
    pub(crate) sent: u64,
    /// Requests that were answered with an error.
    pub(crate) failures: u64,
    /// Time of work on the core.
    pub(crate) busy: u64,
    /// Time of waiting for a disk or a thread.
    pub(crate) medium: u64,
    /// Time of waiting for other clients: breaks and locks.
    pub(crate) others: u64,
    /// Time of waiting for limits of rate.
    pub(crate) held: u64,
    /// Time in which the client had no credits.
    pub(crate) credits: u64,
    /// Time in which replies waited for the client or the network.
    pub(crate) network: u64,
}

impl Totals {
    /// The number of operations of all classes.
    pub(crate) fn operations(&self) -> u64 {
        self.classes.iter().map(Latencies::count).fold(0, u64::wrapping_add)
    }

    /// Adds the counts of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        for (into, from) in self.classes.iter_mut().zip(&other.classes) {
            into.add(from);
        }
        let pairs = [
            (&mut self.received, other.received),
            (&mut self.sent, other.sent),
            (&mut self.failures, other.failures),
            (&mut self.busy, other.busy),
            (&mut self.medium, other.medium),
            (&mut self.others, other.others),
            (&mut self.held, other.held),
            (&mut self.credits, other.credits),
            (&mut self.network, other.network),
        ];
        for (into, from) in pairs {
            *into = into.wrapping_add(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_bucket_that_ends_at_or_after_it() {
        for time in [0, 1, 15, 16, 17, 32, 33, 1_000, 8_388_608, 8_388_609, u64::MAX] {
            let bucket = bucket_of(time);
            let end = bucket_end(bucket).map_or(u64::MAX, micros);
            assert!(time <= end, "{time} in {bucket}");
            if bucket > 0 {
                assert!(bucket_end(bucket - 1).is_some_and(|end| micros(end) < time), "{time}");
            }
        }
        assert_eq!(bucket_end(BUCKETS - 1), None);
        assert_eq!(bucket_end(BUCKETS - 2), Some(Duration::from_micros(8_388_608)));
    }

    #[test]
    fn requests_are_counted_by_class_and_by_what_they_waited_for() {
        let activity = Activity::default();
        let ms = Duration::from_millis;
        let spent = Spent { busy: ms(1), medium: ms(20), others: ms(299), held: ms(1) };
        let now = activity.began.after(ms(5_000));
        activity.count(CountedAs::Timed(Class::Read), Status::SUCCESS, &spent, 100, 4_096, now);
        activity.count(CountedAs::Timed(Class::Open), Status::ACCESS_DENIED, &spent, 200, 73, now);
        activity.count(CountedAs::Untimed(Class::Other), Status::SUCCESS, &spent, 0, 0, now);
        activity.stalled(Stall::Credits, ms(7));
        activity.stalled(Stall::Network, ms(8));
        let mut totals = activity.totals();
        assert_eq!((totals.operations(), totals.failures), (3, 1));
        assert_eq!((totals.received, totals.sent), (300, 4_169));
        assert_eq!((totals.busy, totals.medium, totals.others), (2_000, 40_000, 598_000));
        assert_eq!(totals.held, 2_000);
        assert_eq!((totals.credits, totals.network), (7_000, 8_000));
        let read = totals.classes[Class::Read as usize];
        assert_eq!((read.count(), read.micros), (1, 321_000));
        assert_eq!(read.buckets[bucket_of(321_000)], 1);
        assert_eq!(activity.idle(now.after(ms(40))), ms(40));
        totals.add(&activity.totals());
        assert_eq!((totals.operations(), totals.others), (6, 1_196_000));
    }
}
