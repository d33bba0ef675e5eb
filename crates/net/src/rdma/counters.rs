//! Counts of what this process asks of its devices, for measurements and tests.

use std::sync::atomic::{AtomicU64, Ordering};

/// Objects of one kind: made so far, and freed so far.
pub(super) struct Objects {
    made: AtomicU64,
    freed: AtomicU64,
}

pub(super) static REGIONS: Objects = Objects::new();
pub(super) static WINDOWS: Objects = Objects::new();
pub(super) static BINDS: AtomicU64 = AtomicU64::new(0);
pub(super) static INVALIDATIONS: AtomicU64 = AtomicU64::new(0);

impl Objects {
    const fn new() -> Self {
        Self { made: AtomicU64::new(0), freed: AtomicU64::new(0) }
    }

    pub(super) fn add(&self) {
        count(&self.made);
    }

    pub(super) fn remove(&self) {
        count(&self.freed);
    }

    fn totals(&self) -> (u64, u64) {
        let freed = self.freed.load(Ordering::Relaxed);
        let made = self.made.load(Ordering::Relaxed);
        (made, made.saturating_sub(freed))
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// See [`counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Memory regions that are registered now.
    pub regions: u64,
    /// Memory regions registered so far. Each costs two system calls, and pins its pages.
    pub registrations: u64,
    /// Memory windows that there are now.
    pub windows: u64,
    /// Memory windows made so far. Each costs two system calls.
    pub windows_made: u64,
    /// Requests that gave a window a key.
    pub binds: u64,
    /// Keys that peers have invalidated.
    pub invalidations: u64,
}

/// Returns what this process has registered with its devices, and how often.
#[must_use]
pub fn counts() -> Counts {
    let (registrations, regions) = REGIONS.totals();
    let (windows_made, windows) = WINDOWS.totals();
    Counts {
        regions,
        registrations,
        windows,
        windows_made,
        binds: BINDS.load(Ordering::Relaxed),
        invalidations: INVALIDATIONS.load(Ordering::Relaxed),
    }
}
