//! Encryption and decryption on other cores.
//!
//! A processor that encrypts a mebibyte faster than it hands it to another core does so
//! itself, while the data is in its cache. With a slow processor or a slow cipher other
//! cores help. The time is measured.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{spawn, spawn_blocking};
use tokio::time::Instant;

use crate::limits::{BESIDE_BYTES_MIN, BESIDE_FROM};

/// The measured time for one mebibyte.
#[derive(Debug, Default)]
pub(super) struct CryptoSpeed {
    nanoseconds: AtomicU64,
}

impl CryptoSpeed {
    /// Does `work` on `bytes` and notes the time.
    pub(super) fn measure<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        if bytes < BESIDE_BYTES_MIN {
            return work();
        }
        let start = Instant::now();
        let done = work();
        self.note(bytes, start.elapsed());
        done
    }

    /// Lowers the time at once and raises it slowly: other work on the core counts little.
    fn note(&self, bytes: usize, took: Duration) {
        let taken = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX >> 20).min(u64::MAX >> 20);
        let now = (taken << 20) / (bytes as u64).max(1);
        let before = self.nanoseconds.load(Ordering::Relaxed);
        let after = if now < before { now } else { before + (now - before) / 8 };
        self.nanoseconds.store(after, Ordering::Relaxed);
    }

    /// Sets the time.
    #[cfg(test)]
    pub(super) fn set(&self, time: Duration) {
        let told = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.store(told, Ordering::Relaxed);
    }

    /// Returns true if another core should do it.
    pub(super) fn is_for_others(&self, bytes: usize) -> bool {
        let measured = Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed));
        bytes >= BESIDE_BYTES_MIN && measured > BESIDE_FROM
    }
}

/// Does `work` on another core: on a worker of the runtime, or on a blocking thread of a
/// runtime with a single worker.
pub(super) fn beside(work: impl FnOnce() + Send + 'static) {
    if is_alone() {
        drop(spawn_blocking(work));
    } else {
        drop(spawn(async move { work() }));
    }
}

/// Returns true if all tasks run on one thread.
pub(super) fn is_alone() -> bool {
    Handle::try_current()
        .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::CurrentThread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_are_helped_and_a_hiccup_is_not_slow() {
        let speed = CryptoSpeed::default();
        assert!(!speed.is_for_others(1 << 20), "nothing is known yet");
        for _ in 0..64 {
            speed.note(1 << 20, BESIDE_FROM * 2);
        }
        assert!(speed.is_for_others(1 << 20));
        assert!(!speed.is_for_others(BESIDE_BYTES_MIN - 1), "small ones stay");
        speed.note(1 << 19, BESIDE_FROM / 4);
        assert!(!speed.is_for_others(1 << 20), "half of it in a quarter is swift");
        speed.note(1 << 20, BESIDE_FROM * 3);
        assert!(!speed.is_for_others(1 << 20), "a hiccup");
        speed.note(usize::MAX, Duration::MAX);
    }
}
