//! Shares whose file system turns out to be slow: their requests leave the cores for a while.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::base::limits::{SLOW_CALL, SLOW_SHARE};

/// The knowledge that calls of a share's file system take long. Nothing tells of a disk that stands still,
/// or that looks for a name for seconds, before the first such call: that one holds its core.
#[derive(Debug, Default)]
pub(crate) struct Slowness {
    /// True until somebody notices that `until` has passed. Requests look here first.
    is_slow: AtomicBool,
    /// The end of the time in which calls may take long.
    until: Mutex<Option<Instant>>,
}

impl Slowness {
    /// Notes a part of a request that held its core for `took`. Returns true if the share becomes slow.
    pub(crate) fn note_on_core(&self, took: Duration) -> bool {
        if took < SLOW_CALL {
            return false;
        }
        let was_slow = self.is_slow();
        self.begin();
        !was_slow
    }

    /// Notes a part of a request that slept for `slept` on a thread beside the cores. Long work is made there
    /// on purpose, so that no share becomes slow by it; one that is slow stays so. Work does not count, however
    /// long it takes.
    pub(crate) fn note_on_thread(&self, slept: Duration) {
        if slept >= SLOW_CALL && self.is_slow() {
            self.begin();
        }
    }

    /// True if a call of the last time was slow.
    pub(crate) fn is_slow(&self) -> bool {
        if !self.is_slow.load(Ordering::Acquire) {
            return false;
        }
        let until = self.until.lock();
        let is_slow = until.is_some_and(|until| Instant::now() < until);
        self.is_slow.store(is_slow, Ordering::Release);
        is_slow
    }

    fn begin(&self) {
        let mut until = self.until.lock();
        *until = Some(Instant::now() + SLOW_SHARE);
        self.is_slow.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slow_call_on_a_core_makes_a_share_slow_for_a_while() {
        let (slowness, tick) = (Slowness::default(), Duration::from_millis(1));
        assert!(!slowness.note_on_core(SLOW_CALL - tick) && !slowness.is_slow());
        assert!(slowness.note_on_core(SLOW_CALL) && slowness.is_slow());
        assert!(!slowness.note_on_core(SLOW_CALL), "it is slow already");
        tokio::time::advance(SLOW_SHARE - tick).await;
        assert!(slowness.is_slow());
        tokio::time::advance(tick).await;
        assert!(!slowness.is_slow());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_calls_on_threads_prolong_it_and_do_not_begin_it() {
        let slowness = Slowness::default();
        slowness.note_on_thread(SLOW_CALL);
        assert!(!slowness.is_slow());
        slowness.note_on_core(SLOW_CALL);
        tokio::time::advance(SLOW_SHARE / 2).await;
        slowness.note_on_thread(SLOW_CALL);
        tokio::time::advance(SLOW_SHARE / 2).await;
        assert!(slowness.is_slow());
        tokio::time::advance(SLOW_SHARE / 2).await;
        assert!(!slowness.is_slow());
        slowness.note_on_thread(SLOW_CALL);
        assert!(!slowness.is_slow(), "the time is over");
    }
}
