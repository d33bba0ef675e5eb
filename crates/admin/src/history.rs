//! The last hour of a server: a sample each few seconds, in a ring of constant size.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use frevo_server::{ActivityStatus, LatencyBuckets, Server, ServerStatus};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use crate::limits::{SAMPLE_INTERVAL, SAMPLES};

/// The samples of a server, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    samples: VecDeque<Sample>,
    /// The number of samples that were ever taken, which is the number of the latest one.
    taken: u64,
}

/// The activity between two looks at a server, and its state at the second one.
#[derive(Debug, Clone, Default, PartialEq)]
struct Sample {
    /// Seconds from 1970 to its end.
    time: i64,
    received: f64,
    sent: f64,
    operations: f64,
    failures: f64,
    /// Latencies that half, 95 % and 99 % of the operations kept, microseconds. None without
    /// operations.
    latencies: [Option<f64>; 3],
    sessions: usize,
    opens: usize,
    memory: usize,
}

/// The parts of the operations whose latencies are kept.
const PERCENTILES: [f64; 3] = [0.5, 0.95, 0.99];

/// The answer to `GET /history`: a list for each figure, with an entry for each sample.
#[derive(Debug, Default, Serialize, PartialEq)]
pub(crate) struct Columns {
    interval_seconds: u64,
    samples_max: usize,
    /// The number of the latest sample since the server's start, for the next request's `since`.
    last: u64,
    time: Vec<i64>,
    received_per_second: Vec<f64>,
    sent_per_second: Vec<f64>,
    operations_per_second: Vec<f64>,
    failures_per_second: Vec<f64>,
    median_us: Vec<Option<f64>>,
    p95_us: Vec<Option<f64>>,
    p99_us: Vec<Option<f64>>,
    sessions: Vec<usize>,
    opens: Vec<usize>,
    memory: Vec<usize>,
}

/// Samples a server for ever.
pub(crate) async fn keep(history: Rc<History>, server: Server) {
    let mut ticks = interval(SAMPLE_INTERVAL);
    // While the machine is suspended samples are missed. They are left out, and the next sample
    // covers the whole time.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let (mut before, mut at) = (server.overview(), Instant::now());
    loop {
        ticks.tick().await;
        let (now, then) = (server.overview(), std::mem::replace(&mut at, Instant::now()));
        history.add(Sample::between(&before, &now, at.duration_since(then).as_secs_f64()));
        before = now;
    }
}

impl History {
    fn add(&self, sample: Sample) {
        let mut ring = self.0.lock();
        if ring.samples.len() >= SAMPLES {
            ring.samples.pop_front();
        }
        ring.samples.push_back(sample);
        ring.taken += 1;
    }

    /// The samples after the one with the number `since`; all with 0, or with a number of
    /// another run of the server.
    pub(crate) fn columns(&self, since: u64) -> Columns {
        let ring = self.0.lock();
        let new = ring.taken.checked_sub(since).unwrap_or(u64::MAX);
        let skipped = ring.samples.len().saturating_sub(usize::try_from(new).unwrap_or(usize::MAX));
        let mut columns = Columns {
            interval_seconds: SAMPLE_INTERVAL.as_secs(),
            samples_max: SAMPLES,
            last: ring.taken,
            ..Columns::default()
        };
        for sample in ring.samples.iter().skip(skipped) {
            let [median, p95, p99] = sample.latencies.map(|micros| micros.map(short));
            columns.time.push(sample.time);
            columns.received_per_second.push(short(sample.received));
            columns.sent_per_second.push(short(sample.sent));
            columns.operations_per_second.push(short(sample.operations));
            columns.failures_per_second.push(short(sample.failures));
            columns.median_us.push(median);
            columns.p95_us.push(p95);
            columns.p99_us.push(p99);
            columns.sessions.push(sample.sessions);
            columns.opens.push(sample.opens);
            columns.memory.push(sample.memory);
        }
        columns
    }
}

/// A figure with one digit behind the point.
fn short(figure: f64) -> f64 {
    (figure * 10.0).round() / 10.0
}

impl Sample {
    /// The sample of two looks with `seconds` between them.
    fn between(before: &ServerStatus, now: &ServerStatus, seconds: f64) -> Self {
        let seconds = seconds.max(0.001);
        let (old, new) = (&before.activity, &now.activity);
        let rate = |count: fn(&ActivityStatus) -> u64| {
            float(count(new).saturating_sub(count(old))) / seconds
        };
        let (old_counts, mut counts) = (counts(old), counts(new));
        for (count, old) in counts.iter_mut().zip(old_counts) {
            *count = count.saturating_sub(old);
        }
        Self {
            time: now.now,
            received: rate(|activity| activity.received),
            sent: rate(|activity| activity.sent),
            operations: rate(|activity| activity.operations),
            failures: rate(|activity| activity.failures),
            latencies: PERCENTILES.map(|part| percentile(&counts, part)),
            sessions: now.sessions,
            opens: now.opens,
            memory: now.memory,
        }
    }
}

/// The operations in each bucket of latency, of all classes together.
fn counts(activity: &ActivityStatus) -> Vec<u64> {
    let mut sums = vec![0_u64; LatencyBuckets::ends().len()];
    for class in &activity.classes {
        for (sum, count) in sums.iter_mut().zip(class.buckets) {
            *sum = sum.saturating_add(count);
        }
    }
    sums
}

/// The latency in microseconds that the part `of` of the operations keeps, as if those of a bucket
/// were spread evenly over it. The last bucket has no end: its begin stands for it.
fn percentile(counts: &[u64], of: f64) -> Option<f64> {
    let wanted = float(counts.iter().sum()) * of;
    let (mut below, mut start) = (0.0, 0.0);
    for (count, end) in counts.iter().zip(LatencyBuckets::ends()) {
        let (count, end) = (float(*count), end * 1e6);
        if count > 0.0 && below + count >= wanted {
            let is_last = end.is_infinite();
            let part = if is_last { 0.0 } else { (end - start) * (wanted - below) / count };
            return Some(start + part);
        }
        below += count;
        start = end;
    }
    None
}

/// A number as one of floating point, exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
const fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(time: i64) -> Sample {
        Sample { time, ..Sample::default() }
    }

    #[test]
    fn the_ring_keeps_an_hour_and_returns_new_samples() {
        let history = History::default();
        assert_eq!(history.columns(0).time, [0_i64; 0]);
        for time in 1..=3 {
            history.add(sample(time));
        }
        assert_eq!(history.columns(0).time, [1, 2, 3]);
        let new = history.columns(2);
        assert_eq!((new.time, new.last), (vec![3], 3));
        assert!(history.columns(3).time.is_empty());
        // A page that was loaded before a restart of the server asks for samples after 99, a number
        // that is too high, so it gets all.
        assert_eq!(history.columns(99).time, [1, 2, 3]);
        let many = i64::try_from(SAMPLES).unwrap() + 10;
        for time in 4..=many {
            history.add(sample(time));
        }
        let all = history.columns(0);
        assert_eq!((all.time.len(), all.time[0]), (SAMPLES, 11));
        assert_eq!(all.time.last(), Some(&many));
        // Sample 2 and some after it have been dropped already, so the page gets all that are left.
        assert_eq!(history.columns(1).time.len(), SAMPLES);
        assert_eq!(SAMPLE_INTERVAL.as_secs() * SAMPLES as u64, 3600);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_sampled_again_and_again() {
        let server = Server::builder().build().unwrap();
        let history = Rc::new(History::default());
        let keeping = keep(Rc::clone(&history), server);
        // The paused clock advances only when no task can run, so exactly three samples are taken.
        let time = 3 * SAMPLE_INTERVAL + SAMPLE_INTERVAL / 2;
        assert!(tokio::time::timeout(time, keeping).await.is_err());
        let columns = history.columns(0);
        assert_eq!((columns.last, columns.operations_per_second), (3, vec![0.0; 3]));
        assert_eq!(columns.p99_us, [None; 3]);
    }

    #[test]
    fn percentiles_lie_within_their_buckets() {
        let mut counts = vec![0; LatencyBuckets::ends().len()];
        assert_eq!(percentile(&counts, 0.5), None);
        (counts[0], counts[2]) = (100, 100);
        assert_eq!(percentile(&counts, 0.5), Some(16.0));
        assert!(percentile(&counts, 0.99).is_some_and(|p99| p99 > 60.0 && p99 <= 64.0));
        *counts.last_mut().unwrap() = 1_000;
        assert!(percentile(&counts, 0.99).is_some_and(|p99| p99.is_finite() && p99 > 8e6));
    }
}
