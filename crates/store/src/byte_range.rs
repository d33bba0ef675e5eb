//! Byte-range locks of one file, MS-FSA 2.1.4.10, 2.1.5.8, 2.1.5.9.

use alloc::vec::Vec;
use core::task::Waker;

use frevo_wire::Status;

use crate::file::OpenId;
use crate::limits::{LOCKS_PER_FILE, LOCKS_PER_OPEN};

/// A range of bytes. `length` may be zero: such a lock conflicts only with
/// ranges that it lies strictly inside of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

impl Range {
    /// Fails for a range past the last byte a file can have, MS-FSA 2.1.5.8.
    pub const fn check(self) -> Result<Self, Status> {
        if self.length != 0 && self.offset.checked_add(self.length.saturating_sub(1)).is_none() {
            return Err(Status::INVALID_LOCK_RANGE);
        }
        Ok(self)
    }

    /// MS-FSA 2.1.4.10: inclusive ends computed modulo 2^64, as the algorithm
    /// writes it, so that a zero-length range at `n` ends at `n - 1`.
    const fn overlaps(self, other: Self) -> bool {
        if (self.offset == 0 && self.length == 0) || (other.offset == 0 && other.length == 0) {
            return false;
        }
        let last = self.offset.wrapping_add(self.length).wrapping_sub(1);
        let other_last = other.offset.wrapping_add(other.length).wrapping_sub(1);
        self.offset <= other_last && last >= other.offset
    }
}

/// What a lock keeps others from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Others may read, nobody may write.
    Shared,
    /// Only the owner may read and write.
    Exclusive,
}

#[derive(Debug, Clone, Copy)]
struct Lock {
    owner: OpenId,
    range: Range,
    mode: Mode,
}

/// The ByteRangeLockList of one file and those who wait for it to change.
#[derive(Debug, Default)]
pub struct ByteRanges {
    locks: Vec<Lock>,
    waiting: Vec<Waker>,
}

impl ByteRanges {
    /// No lock.
    pub const EMPTY: Self = Self { locks: Vec::new(), waiting: Vec::new() };

    /// Whether no range is locked: the data path's quick question.
    pub const fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// May `owner` read `range`?
    pub fn may_read(&self, owner: OpenId, range: Range) -> bool {
        !self
            .locks
            .iter()
            .any(|l| l.mode == Mode::Exclusive && l.owner != owner && l.range.overlaps(range))
    }

    /// May `owner` write `range`? A shared lock stops even its own owner.
    pub fn may_write(&self, owner: OpenId, range: Range) -> bool {
        !self
            .locks
            .iter()
            .any(|l| (l.mode == Mode::Shared || l.owner != owner) && l.range.overlaps(range))
    }

    /// Locks `range`. LOCK_NOT_GRANTED when somebody (or the owner itself,
    /// exclusively) holds an overlapping range in a conflicting way.
    pub fn lock(&mut self, owner: OpenId, range: Range, mode: Mode) -> Result<(), Status> {
        let range = range.check()?;
        let conflict = self.locks.iter().any(|l| {
            l.range.overlaps(range)
                && match (l.mode, mode) {
                    (Mode::Shared, Mode::Shared) => false,
                    // A shared lock by the owner of the exclusive one is allowed.
                    (Mode::Exclusive, Mode::Shared) => l.owner != owner,
                    (_, Mode::Exclusive) => true,
                }
        });
        if conflict {
            return Err(Status::LOCK_NOT_GRANTED);
        }
        let own = self.locks.iter().filter(|l| l.owner == owner).count();
        if self.locks.len() >= LOCKS_PER_FILE || own >= LOCKS_PER_OPEN {
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        self.locks.push(Lock { owner, range, mode });
        Ok(())
    }

    /// Unlocks exactly `range` of `owner`; RANGE_NOT_LOCKED when it is not
    /// there. Exclusive locks go before shared ones, as MS-FSA 2.1.5.9 has it.
    pub fn unlock(&mut self, owner: OpenId, range: Range) -> Result<(), Status> {
        let range = range.check()?;
        let find = |mode| {
            self.locks.iter().position(|l| l.owner == owner && l.range == range && l.mode == mode)
        };
        let at = find(Mode::Exclusive).or_else(|| find(Mode::Shared));
        self.locks.remove(at.ok_or(Status::RANGE_NOT_LOCKED)?);
        self.wake();
        Ok(())
    }

    /// Drops everything `owner` holds and wakes whoever waits, `owner` too: it
    /// will find that it is gone.
    pub fn release(&mut self, owner: OpenId) {
        self.locks.retain(|l| l.owner != owner);
        self.wake();
    }

    /// Wakes `waker` at the next unlock; a waiter asks again each time.
    pub fn wait(&mut self, waker: &Waker) {
        if !self.waiting.iter().any(|w| w.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
    }

    /// Wakes `waker` no more: whoever waited has given up.
    pub fn cease(&mut self, waker: &Waker) {
        self.waiting.retain(|w| !w.will_wake(waker));
    }

    /// How many wait.
    pub const fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    fn wake(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: OpenId = OpenId(1);
    const B: OpenId = OpenId(2);

    fn range(offset: u64, length: u64) -> Range {
        Range { offset, length }
    }

    #[test]
    fn exclusive_keeps_others_out_and_shared_keeps_writers_out() {
        let mut r = ByteRanges::default();
        r.lock(A, range(10, 10), Mode::Exclusive).unwrap();
        assert!(r.may_read(A, range(10, 1)) && r.may_write(A, range(10, 1)));
        assert!(!r.may_read(B, range(19, 1)) && !r.may_write(B, range(19, 1)));
        assert!(r.may_read(B, range(20, 1)) && r.may_read(B, range(9, 1)));
        r.unlock(A, range(10, 10)).unwrap();
        r.lock(A, range(10, 10), Mode::Shared).unwrap();
        assert!(r.may_read(B, range(10, 1)));
        assert!(!r.may_write(B, range(10, 1)) && !r.may_write(A, range(10, 1)));
        r.lock(B, range(15, 10), Mode::Shared).unwrap();
        assert_eq!(r.lock(A, range(24, 1), Mode::Exclusive), Err(Status::LOCK_NOT_GRANTED));
    }

    #[test]
    fn the_owner_conflicts_with_itself_only_exclusively() {
        let mut r = ByteRanges::default();
        r.lock(A, range(0, 8), Mode::Exclusive).unwrap();
        assert_eq!(r.lock(A, range(4, 8), Mode::Exclusive), Err(Status::LOCK_NOT_GRANTED));
        r.lock(A, range(0, 8), Mode::Shared).unwrap();
        // The exclusive one goes first.
        r.unlock(A, range(0, 8)).unwrap();
        assert!(r.may_read(B, range(0, 8)));
        r.unlock(A, range(0, 8)).unwrap();
        assert_eq!(r.unlock(A, range(0, 8)), Err(Status::RANGE_NOT_LOCKED));
    }

    #[test]
    fn zero_length_and_the_end_of_the_world() {
        let mut r = ByteRanges::default();
        r.lock(A, range(0, 0), Mode::Exclusive).unwrap();
        assert!(r.may_write(B, range(0, 100)));
        r.lock(A, range(10, 0), Mode::Exclusive).unwrap();
        assert!(r.may_write(B, range(10, 5)) && r.may_write(B, range(5, 5)));
        assert!(!r.may_write(B, range(9, 2)), "strictly inside");
        assert_eq!(range(u64::MAX, 2).check(), Err(Status::INVALID_LOCK_RANGE));
        assert!(range(u64::MAX, 1).check().is_ok());
        assert!(range(u64::MAX - 1, 2).check().is_ok());
    }

    #[test]
    fn locks_are_bounded() {
        let mut r = ByteRanges::default();
        for i in 0..LOCKS_PER_OPEN as u64 {
            r.lock(A, range(i, 1), Mode::Shared).unwrap();
        }
        let next = range(LOCKS_PER_OPEN as u64, 1);
        assert_eq!(r.lock(A, next, Mode::Shared), Err(Status::INSUFFICIENT_RESOURCES));
        r.lock(B, next, Mode::Shared).unwrap();
        r.release(A);
        r.lock(A, next, Mode::Shared).unwrap();
    }

    proptest! {
        /// Two exclusive locks are never granted over one byte.
        #[test]
        fn no_byte_has_two_exclusive_owners(
            ops in proptest::collection::vec((0u64..2, 0u64..64, 1u64..16, any::<bool>()), 1..64)
        ) {
            let mut r = ByteRanges::default();
            let mut owner = [None::<u64>; 80];
            for (who, offset, length, lock) in ops {
                let range = range(offset, length);
                let bytes = offset as usize..(offset + length) as usize;
                if lock {
                    let free = owner[bytes.clone()].iter().all(Option::is_none);
                    let got = r.lock(OpenId(who), range, Mode::Exclusive);
                    prop_assert_eq!(got.is_ok(), free);
                    if free { owner[bytes].fill(Some(who)); }
                } else if r.unlock(OpenId(who), range).is_ok() {
                    prop_assert!(owner[bytes.clone()].iter().all(|o| *o == Some(who)));
                    owner[bytes].fill(None);
                }
            }
        }
    }
}
