//! Running a test: tasks that carry out one operation after the other, counted and timed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use frevo_client::Result;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use super::content::Random;
use super::workload::{Client, Test, Unit};

/// Pause between two updates of the live line.
const TICK: Duration = Duration::from_millis(200);
/// Digits that latencies are kept with.
const DIGITS: u8 = 3;

/// The result of a test.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) test: Test,
    pub(super) depth: usize,
    pub(super) operations: u64,
    pub(super) bytes: u64,
    pub(super) entries: u64,
    pub(super) seconds: f64,
    /// Processor time of this process, seconds.
    pub(super) cpu_seconds: f64,
    /// Latencies of the operations, nanoseconds.
    pub(super) latency: Histogram<u64>,
}

impl Measured {
    /// The rate in the test's unit, per second.
    pub(super) fn per_second(&self) -> f64 {
        let count = match self.test.unit() {
            Unit::Bytes => self.bytes,
            Unit::Operations => self.operations,
            Unit::Entries => self.entries,
        };
        count as f64 / self.seconds.max(1e-9)
    }
}

/// The counts of all tasks so far.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) operations: AtomicU64,
    bytes: AtomicU64,
    entries: AtomicU64,
}

impl Counts {
    /// The count so far, in a unit.
    pub(super) fn in_unit(&self, unit: Unit) -> u64 {
        let counter = match unit {
            Unit::Bytes => &self.bytes,
            Unit::Operations => &self.operations,
            Unit::Entries => &self.entries,
        };
        counter.load(Ordering::Relaxed)
    }
}

/// How a test is run.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) clients: &'a [Arc<Client>],
    /// Operations of each client at the same time.
    pub(super) depth: usize,
    pub(super) time: Duration,
    /// Set when the user interrupts: each task ends after its operation.
    pub(super) stop: &'a Arc<AtomicBool>,
}

/// The part of a run that its tasks share.
struct Shared {
    test: Test,
    until: Instant,
    stop: Arc<AtomicBool>,
    counts: Counts,
}

/// Runs a test. `show` is called a few times a second.
pub(super) async fn run(
    test: Test,
    run: &Run<'_>,
    mut show: impl FnMut(&Counts, Duration),
) -> Result<Measured> {
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let shared = Arc::new(Shared {
        test,
        until: start + run.time,
        stop: Arc::clone(run.stop),
        counts: Counts::default(),
    });
    let mut tasks = JoinSet::new();
    let mut latencies = Vec::new();
    for (client, number) in run.clients.iter().zip(0_u64..) {
        let latency = Arc::new(Mutex::new(histogram()));
        for lane in 0..run.depth as u64 {
            let random = Random::new((number << 32) | (lane + 1));
            let (shared, latency) = (Arc::clone(&shared), Arc::clone(&latency));
            tasks.spawn(work(Arc::clone(client), random, shared, latency));
        }
        latencies.push(latency);
    }
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            ended = tasks.join_next() => match ended {
                None => break,
                Some(Ok(done)) => done?,
                Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
            },
            _ = tick.tick() => show(&shared.counts, start.elapsed()),
        }
    }
    let (seconds, cpu_seconds) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let mut latency = histogram();
    for one in &latencies {
        // The combined histogram resizes itself, so adding each task's histogram cannot fail.
        let _ = latency.add(&*one.lock().unwrap_or_else(PoisonError::into_inner));
    }
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let Counts { operations, bytes, entries } = &shared.counts;
    let (operations, bytes, entries) = (count(operations), count(bytes), count(entries));
    let depth = run.depth;
    Ok(Measured { test, depth, operations, bytes, entries, seconds, cpu_seconds, latency })
}

/// Processor time of this process so far, seconds, in steps of the kernel's ticks.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in parentheses may contain spaces, so it is skipped. utime and stime are fields 14
    // and 15 of proc_pid_stat(5).
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    let ticks: f64 = fields.filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / rustix::param::clock_ticks_per_second() as f64
}

/// One task: the operations of a client, one after the other.
async fn work(
    client: Arc<Client>,
    mut random: Random,
    shared: Arc<Shared>,
    latency: Arc<Mutex<Histogram<u64>>>,
) -> Result<()> {
    let mut began = Instant::now();
    while began < shared.until && !shared.stop.load(Ordering::Relaxed) {
        let Some(done) = client.step(shared.test, &mut random).await? else { break };
        let now = Instant::now();
        let nanoseconds = u64::try_from((now - began).as_nanos()).unwrap_or(u64::MAX);
        // The histogram resizes itself, so recording cannot fail.
        let _ = latency.lock().unwrap_or_else(PoisonError::into_inner).record(nanoseconds);
        shared.counts.operations.fetch_add(1, Ordering::Relaxed);
        shared.counts.bytes.fetch_add(done.bytes, Ordering::Relaxed);
        shared.counts.entries.fetch_add(done.entries, Ordering::Relaxed);
        began = now;
    }
    Ok(())
}

/// An empty histogram that resizes itself.
#[allow(clippy::expect_used, reason = "the number of digits is valid")]
fn histogram() -> Histogram<u64> {
    Histogram::new(DIGITS).expect("a valid number of digits")
}
