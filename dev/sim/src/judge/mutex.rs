//! A byte range that only one may hold, and a number in the file that whoever
//! holds it makes one larger.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::End;
use crate::trace::Trace;
use crate::violation;

/// The file's name.
pub(super) const NAME: &str = "counter";

/// Somebody who holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// Whose it is.
    pub client: usize,
    /// How often the client's connections had been disturbed when it got the
    /// lock: as long as that stays so the lock cannot have been lost.
    pub losses: u64,
    /// The server said that the handle outlives it: then the lock does.
    pub kept: bool,
    /// Which hold.
    pub id: u64,
}

/// What is known of it.
#[derive(Debug)]
pub struct LockFile {
    trace: Arc<Trace>,
    holds: Vec<Hold>,
    /// The largest number that was acknowledged.
    acknowledged: u64,
    /// All that were, since the last crash.
    counted: BTreeSet<u64>,
    /// The largest that was acknowledged and is stable.
    stable: u64,
    /// The largest that somebody tried to write.
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

    /// `hold` has got the lock; `losses` says how often each client was
    /// disturbed until now.
    pub fn locked(&mut self, hold: Hold, losses: impl Fn(usize) -> u64) {
        self.holds.retain(|other| other.kept || losses(other.client) == other.losses);
        for other in &self.holds {
            violation!(self.trace, "{hold:?} has the lock that {other:?} has");
        }
        self.holds.push(hold);
    }

    /// `hold` gives the lock back, or has lost it.
    pub fn unlocks(&mut self, hold: Hold) {
        self.holds.retain(|other| *other != hold);
    }

    /// The largest number that was acknowledged until now.
    pub const fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Whoever holds the lock has read `number`; `at_least` was acknowledged
    /// when it asked.
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

    /// It is about to write `number`.
    pub fn write(&mut self, number: u64) {
        self.tried = self.tried.max(number);
    }

    /// It has written `number`.
    pub fn wrote(&mut self, number: u64, end: End) {
        if let End::Done { .. } = end {
            if !self.counted.insert(number) {
                violation!(self.trace, "two have counted to {number}");
            }
            self.acknowledged = self.acknowledged.max(number);
        }
    }

    /// `number` is stable.
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
