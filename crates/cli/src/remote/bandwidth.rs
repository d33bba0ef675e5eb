//! The bandwidth limit of a command (`--bwlimit`).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Shorter waits are skipped, seconds.
const BURST: f64 = 0.1;

/// Bytes that are taken at once, at least and at most.
const PIECE_MIN: u64 = 16 << 10;
const PIECE_MAX: u64 = 8 << 20;

/// Bytes a second, for all files of a command together.
#[derive(Debug)]
pub(crate) struct Limit {
    rate: f64,
    /// The time at which all bytes taken so far will be sent.
    free: Mutex<Instant>,
}

impl Limit {
    /// A limit of `rate` bytes per second.
    pub(crate) fn new(rate: u64) -> Self {
        Self { rate: rate.max(1) as f64, free: Mutex::new(Instant::now()) }
    }

    /// Bytes to send in one piece.
    pub(crate) fn piece(&self) -> u64 {
        // The cast turns a rate that is too large into u64::MAX, which `clamp` then limits.
        ((self.rate / 4.0) as u64).clamp(PIECE_MIN, PIECE_MAX)
    }

    /// Waits until `bytes` more may be sent.
    pub(crate) async fn take(&self, bytes: u64) {
        let until = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let took =
                Duration::try_from_secs_f64(bytes as f64 / self.rate).unwrap_or(Duration::MAX);
            let next = (*free).max(now).checked_add(took).unwrap_or(*free);
            *free = next;
            next
        };
        let early = Duration::from_secs_f64(BURST);
        tokio::time::sleep_until(until.checked_sub(early).unwrap_or(until)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_more_goes_than_may() {
        let limit = Limit::new(1_000_000);
        let start = Instant::now();
        for _ in 0..100 {
            limit.take(100_000).await;
        }
        let took = start.elapsed().as_secs_f64();
        assert!((9.7..10.1).contains(&took), "{took}");
        // During this pause no bandwidth is used, and it must not be saved up for later.
        tokio::time::advance(Duration::from_secs(60)).await;
        let start = Instant::now();
        for _ in 0..30 {
            limit.take(100_000).await;
        }
        assert!(start.elapsed().as_secs_f64() > 2.7);
    }
}
