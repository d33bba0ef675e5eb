//! Shares whose file system turns out to be slow: their requests leave the cores for a while.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use frevo_net::watchdog::{self, Moment};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::base::limits::{DISK_TRIALS, SLOW_CALL, SLOW_SHARE, UNTRIED_AFTER};

/// The knowledge that calls of a share's file system take long. Of a disk that has not been used for a while
/// threads make the first calls, since it may stand still. Nothing tells of one that stops while it is used
/// before the first call: that one holds its core.
#[derive(Debug)]
pub(crate) struct Slowness {
    /// The second of the last request.
    used: AtomicU64,
    /// Parts of requests that try the disk out; none once it is.
    trials: AtomicU32,
    /// True until somebody notices that `until` has passed. Requests look here first.
    is_slow: AtomicBool,
    /// The end of the time in which calls may take long.
    until: Mutex<Option<Instant>>,
}

impl Default for Slowness {
    fn default() -> Self {
        let (used, trials) = (AtomicU64::new(0), AtomicU32::new(DISK_TRIALS));
        Self { used, trials, is_slow: AtomicBool::new(false), until: Mutex::default() }
    }
}

impl Slowness {
    /// True if a request of now should leave the core.
    pub(crate) fn may_wait(&self) -> bool {
        self.is_untried(watchdog::mark()) || self.is_slow()
    }

    /// True while the disk is tried out.
    fn is_untried(&self, now: Moment) -> bool {
        let now = now.seconds();
        let used = self.used.load(Ordering::Relaxed);
        if now != used {
            self.used.store(now, Ordering::Relaxed);
            if now.saturating_sub(used) >= UNTRIED_AFTER.as_secs() {
                self.trials.store(DISK_TRIALS, Ordering::Relaxed);
            }
        }
        self.trials.load(Ordering::Relaxed) > 0
    }

    /// True if parts of requests on threads are to be noted.
    pub(crate) fn is_watched(&self) -> bool {
        self.trials.load(Ordering::Relaxed) > 0 || self.is_slow()
    }

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
    /// on purpose, so that no share becomes slow by it unless its disk is tried out; one that is slow stays so.
    /// Work does not count, however long it takes.
    pub(crate) fn note_on_thread(&self, slept: Duration) {
        let is_long = slept >= SLOW_CALL;
        if is_long && self.is_watched() {
            self.begin();
        } else if !is_long {
            let less = |trials: u32| trials.checked_sub(1);
            let _ = self.trials.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Counts the disk as tried out.
    #[cfg(test)]
    pub(crate) fn end_trial(&self) {
        assert!(self.may_wait(), "the trial begins at the first request");
        self.trials.store(0, Ordering::Relaxed);
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
        slowness.end_trial();
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

    /// Tests n and n - 1 quick parts of requests, n and n - 1 seconds of rest, and a disk that stands still.
    #[test]
    fn a_disk_is_tried_out_after_a_rest() {
        let (slowness, tick) = (Slowness::default(), Duration::from_millis(1));
        let start = Moment::now().after(UNTRIED_AFTER);
        let try_out = |since: Moment| {
            for number in 0..DISK_TRIALS {
                assert!(slowness.is_untried(since) && slowness.is_watched(), "{number}");
                slowness.note_on_thread(SLOW_CALL - tick);
            }
            assert!(!slowness.is_untried(since) && !slowness.is_watched());
        };
        try_out(start);
        let second = Duration::from_secs(1);
        let soon = start.after(UNTRIED_AFTER - second);
        assert!(!slowness.is_untried(soon));
        try_out(soon.after(UNTRIED_AFTER));
        let later = soon.after(UNTRIED_AFTER * 2);
        assert!(slowness.is_untried(later) && !slowness.is_slow());
        slowness.note_on_thread(SLOW_CALL);
        assert!(slowness.is_slow() && slowness.is_untried(later));
    }
}
