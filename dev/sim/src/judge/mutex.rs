//! A byte range with one lock holder, and a number in the file that each holder increments.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::End;
use crate::trace::Trace;
use crate::violation;

/// The name of the counter file.
pub(super) const NAME: &str = "counter";

/// A holder of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// The number of its client.
    pub client: usize,
    /// How often the client's connections had been disturbed when it got the lock: an undisturbed
    /// client cannot have lost its lock.
    pub losses: u64,
    /// True if the server granted a persistent handle, and so a persistent lock.
    pub kept: bool,
    /// The number of this hold.
    pub id: u64,
}

/// The known state of the lock and the number.
#[derive(Debug)]
pub struct LockFile {
    trace: Arc<Trace>,
    holds: Vec<Hold>,
    /// The largest acknowledged number.
    acknowledged: u64,
    /// All acknowledged numbers since the last crash.
    counted: BTreeSet<u64>,
    /// The largest acknowledged number that is stable.
    stable: u64,
    /// The largest number of any attempted write.
    tried: u64,
}

impl LockFile {
    pub(super) const fn new(trace: Arc<Trace>) -> Self {
        Self {
            trace,
            holds: Vec::new(),
            acknowledged: 0,
            counted: BTreeSet::new(),
            stable: 0,
            tried: 0,
        }
    }

    /// Records that `hold` has got the lock; `losses` returns how often each client was disturbed
    /// so far.
    pub fn locked(&mut self, hold: Hold, losses: impl Fn(usize) -> u64) {
        self.holds.retain(|other| other.kept || losses(other.client) == other.losses);
        for other in &self.holds {
            violation!(self.trace, "{hold:?} has the lock that {other:?} has");
        }
        self.holds.push(hold);
    }

    /// Records that `hold` releases the lock, or has lost it.
    pub fn unlocks(&mut self, hold: Hold) {
        self.holds.retain(|other| *other != hold);
    }

    /// Returns the largest acknowledged number so far.
    pub const fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Records that the lock holder has read `number`; `at_least` was acknowledged when it asked.
    pub fn read(&mut self, number: u64, at_least: u64) {
        // A crash may have come between.
        let at_least = at_least.min(self.acknowledged);
        if number < at_least || number > self.tried {
            violation!(
                self.trace,
                "the counter is {number}: {at_least} was acknowledged, {} was tried",
                self.tried
            );
        }
    }

    /// Records that a write of `number` begins.
    pub fn write(&mut self, number: u64) {
        self.tried = self.tried.max(number);
    }

    /// Records the end of a write of `number`.
    pub fn wrote(&mut self, number: u64, end: End) {
        if let End::Done { .. } = end {
            if !self.counted.insert(number) {
                violation!(self.trace, "two have counted to {number}");
            }
            self.acknowledged = self.acknowledged.max(number);
        }
    }

    /// Records that `number` is on stable storage.
    pub fn stable(&mut self, number: u64) {
        self.stable = self.stable.max(number);
    }

    pub(super) fn on_disk(&mut self, content: &[u8], is_crash: bool) {
        let number = content.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if is_crash {
            self.acknowledged = self.stable.min(self.acknowledged);
        }
        self.read(number, self.acknowledged);
        if is_crash {
            self.acknowledged = number;
            self.stable = number;
            self.counted.retain(|counted| *counted <= number);
        }
    }
}
