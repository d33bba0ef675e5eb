//! The memory that large buffers of the process hold, and its limit.
//!
//! It is counted, not reserved: one addition for each large buffer made or freed, for all threads
//! in one counter, without a lock. The code that accepts connections and grants credits reads the
//! fill level.

use std::sync::atomic::{AtomicUsize, Ordering};

// The counter is global because all servers of the process share one store of free buffers (the
// depot).
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// The sum of the parts; 0 while there is none.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// The part of the process's large buffers that one server may use.
///
/// The limit of the process is the sum of the parts. Without a part there is no limit.
#[derive(Debug)]
pub struct Part(AtomicUsize);

impl Part {
    /// Adds `bytes` to the limit of the process until this is dropped.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.clamp(1, PART_BYTES_MAX);
        LIMIT.fetch_add(bytes, Ordering::Relaxed);
        Self(AtomicUsize::new(bytes))
    }

    /// Replaces the number of bytes.
    pub fn set(&self, bytes: usize) {
        let bytes = bytes.clamp(1, PART_BYTES_MAX);
        LIMIT.fetch_add(bytes, Ordering::Relaxed);
        LIMIT.fetch_sub(self.0.swap(bytes, Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        LIMIT.fetch_sub(self.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// No part is larger, so that no sum of parts overflows.
const PART_BYTES_MAX: usize = usize::MAX >> 16;

/// The fill level of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fullness {
    /// Less than half: no restrictions.
    Ample,
    /// Half or more: no client should get more credits than it gives back.
    Scarce,
    /// Seven eighths or more: every client should give credits back.
    Dire,
    /// The limit or more.
    Full,
}

/// Returns the bytes of large buffers in use, without those kept for reuse.
#[must_use]
pub fn in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}

/// Returns the limit in bytes.
#[must_use]
pub fn limit() -> usize {
    match LIMIT.load(Ordering::Relaxed) {
        0 => usize::MAX,
        sum => sum,
    }
}

/// Returns the fill level now.
#[must_use]
pub fn fullness() -> Fullness {
    fullness_with(0)
}

/// The fill level when `other` bytes are in use for other things than buffers.
#[must_use]
pub fn fullness_with(other: usize) -> Fullness {
    of(in_use().saturating_add(other), limit())
}

/// True if the reserve of an eighth beyond the limit is used up too. It is for holders that have
/// little. `other` bytes are in use for things other than buffers.
#[must_use]
pub fn is_overdrawn_with(other: usize) -> bool {
    let limit = limit();
    in_use().saturating_add(other) >= limit.saturating_add(limit / 8)
}

/// Returns the fill level for `used` bytes of `limit`.
#[must_use]
pub const fn of(used: usize, limit: usize) -> Fullness {
    // Each request asks, and mostly there is room.
    if used < limit - limit / 2 {
        Fullness::Ample
    } else if used < limit - limit / 8 {
        Fullness::Scarce
    } else if used < limit {
        Fullness::Dire
    } else {
        Fullness::Full
    }
}

/// Counts a new large buffer.
pub(crate) fn take(bytes: usize) {
    IN_USE.fetch_add(bytes, Ordering::Relaxed);
}

/// Counts a freed large buffer.
pub(crate) fn give(bytes: usize) {
    IN_USE.fetch_sub(bytes, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No other test of this crate makes a part.
    #[test]
    fn the_limit_is_the_sum_of_the_parts() {
        assert_eq!(limit(), usize::MAX);
        let (one, other) = (Part::new(1_000), Part::new(500));
        assert_eq!(limit(), 1_500);
        one.set(2_000);
        assert_eq!(limit(), 2_500);
        other.set(usize::MAX);
        assert_eq!(limit(), 2_000 + PART_BYTES_MAX);
        drop(other);
        assert_eq!(limit(), 2_000);
        drop(one);
        assert_eq!(limit(), usize::MAX);
    }

    #[test]
    fn fullness_has_four_steps() {
        for (used, fullness) in [
            (0, Fullness::Ample),
            (499, Fullness::Ample),
            (500, Fullness::Scarce),
            (874, Fullness::Scarce),
            (875, Fullness::Dire),
            (999, Fullness::Dire),
            (1_000, Fullness::Full),
            (usize::MAX, Fullness::Full),
        ] {
            assert_eq!(of(used, 1_000), fullness, "{used}");
        }
        assert_eq!(of(usize::MAX / 4, usize::MAX), Fullness::Ample);
        assert_eq!((of(0, 1), of(1, 1)), (Fullness::Ample, Fullness::Full));
    }
}
