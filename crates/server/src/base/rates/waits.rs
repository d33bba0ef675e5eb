//! Counts of waits, and of the time that they took.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::Clock;

/// Waits for one limit, or for several together.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    waiting: AtomicUsize,
    count: AtomicU64,
    micros: AtomicU64,
}

/// Numbers of waits at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Waited {
    /// Those that wait now.
    pub(crate) waiting: usize,
    /// Those that have waited.
    pub(crate) count: u64,
    /// The time that they have waited, all together, microseconds.
    pub(crate) micros: u64,
}

impl Waits {
    /// Counts a wait, until it is dropped.
    pub(crate) fn begin(&self, clock: Clock) -> Wait<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Wait { waits: self, clock, since: clock.now() }
    }

    /// Returns the numbers of now.
    pub(crate) fn numbers(&self) -> Waited {
        Waited {
            waiting: self.waiting.load(Ordering::Relaxed),
            count: self.count.load(Ordering::Relaxed),
            micros: self.micros.load(Ordering::Relaxed),
        }
    }
}

/// A wait, counted when it ends.
pub(crate) struct Wait<'a> {
    waits: &'a Waits,
    clock: Clock,
    since: Duration,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let waited = self.clock.now().saturating_sub(self.since);
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.waits.waiting.fetch_sub(1, Ordering::Relaxed);
        self.waits.count.fetch_add(1, Ordering::Relaxed);
        self.waits.micros.fetch_add(micros, Ordering::Relaxed);
    }
}
