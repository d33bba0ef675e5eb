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
    ///
    /// A client that was disturbed since it asked may hear of a lock that it has lost: the server
    /// granted the lock, gave the connection up while the answer was on its way, and granted the
    /// lock to the next client.
    pub fn locked(&mut self, hold: Hold, losses: impl Fn(usize) -> u64) {
        let is_certain = |hold: &Hold| hold.kept || losses(hold.client) == hold.losses;
        self.holds.retain(is_certain);
        if !is_certain(&hold) {
            return;
        }
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
        // A crash during the read may have reduced `acknowledged`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    /// Judges client 0 with `first`, then client 1 with `second`, each a count of disturbances
    /// before the request and at the answer. Returns the count of violations.
    fn two_holders(first: ([u64; 2], bool), second: ([u64; 2], bool)) -> usize {
        let trace = Arc::new(Trace::new(Instant::now(), false));
        let mut file = LockFile::new(Arc::clone(&trace));
        let now = [first.0[1], second.0[1]];
        for (client, ([losses, _], kept)) in [first, second].into_iter().enumerate() {
            file.locked(Hold { client, losses, kept, id: client as u64 }, |client| now[client]);
        }
        trace.take().2.len()
    }

    #[test]
    fn an_answer_that_was_held_up_is_no_second_holder() {
        assert_eq!(two_holders(([0, 0], false), ([3, 4], false)), 0);
        assert_eq!(two_holders(([0, 0], true), ([3, 4], false)), 0);
        assert_eq!(two_holders(([3, 4], false), ([0, 0], false)), 0);
    }

    #[test]
    fn two_certain_holders_are_a_violation() {
        assert_eq!(two_holders(([2, 2], false), ([3, 3], false)), 1);
        // A persistent handle (`true`) keeps its lock through every disturbance, so the second lock
        // is a violation.
        assert_eq!(two_holders(([2, 3], true), ([0, 0], false)), 1);
        assert_eq!(two_holders(([0, 0], false), ([3, 4], true)), 1);
    }
}
