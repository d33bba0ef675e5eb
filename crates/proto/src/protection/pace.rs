//! The measured time of signing and sealing, and the thread where they are done.
//!
//! A thread that is handed a message pays for the wake-up and for data that is in another core's
//! cache. So it gains only for long messages, slow algorithms and slow processors.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use super::Algorithm;
use crate::limits::{
    CRYPTO_ELSEWHERE_BYTES_MIN, CRYPTO_GAINS_BYTES_MIN, CRYPTO_HELD_ALONE_MAX, CRYPTO_HELD_MAX,
    CRYPTO_HELPED_BYTES_MIN, CRYPTO_SLOW_FROM,
};

/// Bytes of a mebibyte.
const MEBIBYTE: u64 = 1 << 20;

/// The thread where a message is signed, verified, sealed or unsealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// On the thread that has the message, in the message's turn.
    Here,
    /// On the thread that has the message, since no other thread would be faster; before the
    /// message's turn if others are elsewhere.
    HereAtOnce,
    /// On another thread.
    Elsewhere,
}

/// The measured time of one algorithm.
#[derive(Debug, Default)]
pub struct Pace {
    /// Nanoseconds for a mebibyte; 0 until it is measured.
    nanoseconds: AtomicU64,
}

impl Pace {
    /// Makes one that is not measured: the first measurement counts as it is.
    pub const fn new() -> Self {
        Self { nanoseconds: AtomicU64::new(0) }
    }

    /// Makes one of an algorithm that counts as fast until several measurements show otherwise.
    pub const fn fast() -> Self {
        Self { nanoseconds: AtomicU64::new(1) }
    }

    /// Makes one with a known time for a mebibyte.
    pub fn known(time: Duration) -> Self {
        Self { nanoseconds: AtomicU64::new(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)) }
    }

    /// Returns the time for `bytes` with `algorithm`: the measured one, unless it depends on the data.
    pub fn time_of(&self, algorithm: Algorithm, bytes: usize) -> Duration {
        if algorithm.longest().is_some() {
            return algorithm.longest_for(bytes);
        }
        let nanoseconds = match self.nanoseconds.load(Ordering::Relaxed) {
            0 => u64::try_from(algorithm.supposed().as_nanos()).unwrap_or(u64::MAX),
            measured => measured,
        };
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        Duration::from_nanos(nanoseconds.saturating_mul(bytes) >> 20)
    }

    /// Notes that `bytes` took so long. Lowers the time at once and raises it slowly: what slowed a
    /// message down once counts little.
    pub fn note(&self, bytes: usize, took: Duration) {
        let took = u64::try_from(took.as_nanos().min(u32::MAX.into())).unwrap_or(u64::MAX);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let now = took.saturating_mul(MEBIBYTE).checked_div(bytes).unwrap_or(u64::MAX);
        let before = self.nanoseconds.load(Ordering::Relaxed);
        let rise = now.saturating_sub(before) / 8;
        let after = if before == 0 || now < before { now } else { before.saturating_add(rise) };
        self.nanoseconds.store(after.max(1), Ordering::Relaxed);
    }

    /// Does `work` on `bytes` and notes its time, by a clock that the caller brings. Fewer than
    /// `bytes_min` bytes are worth no look at the clock.
    pub fn measured<T>(
        &self,
        bytes: usize,
        bytes_min: usize,
        clock: impl Fn() -> Duration,
        work: impl FnOnce() -> T,
    ) -> T {
        if bytes < bytes_min {
            return work();
        }
        let began = clock();
        let done = work();
        self.note(bytes, clock().saturating_sub(began));
        done
    }

    /// Returns the site for `bytes` where the thread serves many connections: a message must not
    /// hold it for long. `is_alone` is true if nothing else waits for the thread, `is_free` if another
    /// thread and a core for it have nothing to do.
    pub fn site_on_shared(
        &self,
        algorithm: Algorithm,
        bytes: usize,
        is_alone: impl FnOnce() -> bool,
        is_free: impl FnOnce() -> bool,
    ) -> Site {
        if bytes < CRYPTO_ELSEWHERE_BYTES_MIN {
            return Site::Here;
        }
        let time = self.time_of(algorithm, bytes);
        let gains = algorithm.is_chain() && bytes >= CRYPTO_GAINS_BYTES_MIN;
        // Short work is done here, unless another core does it faster. Longer work is done here
        // only if no other task waits for this thread.
        if !gains && time <= CRYPTO_HELD_MAX || time <= CRYPTO_HELD_ALONE_MAX && is_alone() {
            return Site::Here;
        }
        if time > CRYPTO_HELD_MAX || is_free() { Site::Elsewhere } else { Site::HereAtOnce }
    }

    /// Returns the site for `bytes` where one connection may use all threads: a processor that is
    /// fast at the algorithm works while the data is in its cache, a slow one is helped.
    pub fn site_on_own(&self, bytes: usize) -> Site {
        let for_mebibyte = Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed));
        let is_slow = bytes >= CRYPTO_HELPED_BYTES_MIN && for_mebibyte > CRYPTO_SLOW_FROM;
        if is_slow { Site::Elsewhere } else { Site::Here }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_crypto::Cipher;

    const CCM: Algorithm = Algorithm::Sealing(Cipher::Aes128Ccm);
    const GCM: Algorithm = Algorithm::Sealing(Cipher::Aes128Gcm);
    const MIB: usize = 1 << 20;

    fn place(pace: &Pace, algorithm: Algorithm, bytes: usize, is_free: bool) -> Site {
        pace.site_on_shared(algorithm, bytes, || false, || is_free)
    }

    #[test]
    fn a_message_goes_where_it_is_done_soonest() {
        let pace = Pace::new();
        assert_eq!(place(&pace, CCM, CRYPTO_GAINS_BYTES_MIN - 1, true), Site::Here);
        assert_eq!(place(&pace, CCM, CRYPTO_GAINS_BYTES_MIN, true), Site::Elsewhere);
        assert_eq!(place(&pace, CCM, 8 * MIB, true), Site::Elsewhere);
        assert_eq!(place(&pace, GCM, 8 * MIB, true), Site::Here);
        let at_once = place(&pace, CCM, CRYPTO_GAINS_BYTES_MIN, false);
        assert_eq!(at_once, Site::HereAtOnce, "no thread is free");
        let long = place(&pace, CCM, 8 * MIB, false);
        assert_eq!(long, Site::Elsewhere, "it would hold its core");
    }

    #[test]
    fn what_holds_a_core_goes_whatever_its_algorithm() {
        // GCM was measured as slow, as on a processor without AES instructions, so another thread
        // does the work.
        let (gcm, ccm) = (Pace::new(), Pace::new());
        for _ in 0..64 {
            gcm.note(MIB, CRYPTO_HELD_MAX * 2);
        }
        assert_eq!(place(&gcm, GCM, MIB, true), Site::Elsewhere);
        assert_eq!(place(&gcm, GCM, CRYPTO_ELSEWHERE_BYTES_MIN, true), Site::Here);
        assert_eq!(place(&gcm, GCM, CRYPTO_ELSEWHERE_BYTES_MIN - 1, true), Site::Here);
        // The measurements of CCM are fast, so even 8 MiB may stay on this thread if no other
        // thread is free.
        ccm.note(8 * MIB, CRYPTO_HELD_MAX / 4);
        assert_eq!(place(&ccm, CCM, 8 * MIB, true), Site::Elsewhere, "a thread is free");
        assert_eq!(place(&ccm, CCM, 8 * MIB, false), Site::HereAtOnce, "it holds no core for long");
        // One slow measurement must change the average only a little.
        ccm.note(8 * MIB, CRYPTO_HELD_MAX);
        assert!(ccm.time_of(CCM, 8 * MIB) < CRYPTO_HELD_MAX);
        ccm.note(usize::MAX, Duration::MAX);
        ccm.note(0, Duration::ZERO);
    }

    #[test]
    fn a_message_that_nothing_waits_for_stays() {
        let pace = Pace::new();
        let alone = |bytes| pace.site_on_shared(CCM, bytes, || true, || true);
        assert_eq!(alone(8 * MIB), Site::Here);
        pace.note(8 * MIB, CRYPTO_HELD_ALONE_MAX + Duration::from_millis(1));
        assert_eq!(alone(8 * MIB), Site::Elsewhere, "it would hold its core for too long");
        assert_eq!(alone(4 * MIB), Site::Here);
    }

    #[test]
    fn the_slow_are_helped_and_a_hiccup_is_not_slow() {
        let pace = Pace::fast();
        let is_helped = |bytes| pace.site_on_own(bytes) == Site::Elsewhere;
        assert!(!is_helped(MIB), "nothing is known yet");
        pace.note(MIB, CRYPTO_SLOW_FROM * 2);
        assert!(!is_helped(MIB), "once is not enough");
        for _ in 0..64 {
            pace.note(MIB, CRYPTO_SLOW_FROM * 2);
        }
        assert!(is_helped(MIB));
        assert!(!is_helped(CRYPTO_HELPED_BYTES_MIN - 1), "small ones stay");
        pace.note(MIB / 2, CRYPTO_SLOW_FROM / 4);
        assert!(!is_helped(MIB), "half of it in a quarter is swift");
        pace.note(MIB, CRYPTO_SLOW_FROM * 3);
        assert!(!is_helped(MIB), "a hiccup");
        assert_eq!(Pace::known(Duration::from_secs(1)).site_on_own(MIB), Site::Elsewhere);
    }

    #[test]
    fn compression_takes_its_longest_time_whatever_was_measured() {
        let pace = Pace::new();
        for codec in super::super::Codec::ALL {
            for algorithm in [Algorithm::Compressing(codec), Algorithm::Expanding(codec)] {
                pace.note(8 * MIB, Duration::from_nanos(1));
                assert!(pace.time_of(algorithm, 8 * MIB) > CRYPTO_HELD_ALONE_MAX);
                assert_eq!(place(&pace, algorithm, 8 * MIB, false), Site::Elsewhere);
                assert_eq!(place(&pace, algorithm, MIB / 2, false), Site::Here);
            }
        }
    }

    #[test]
    fn only_long_work_is_measured() {
        let time = core::cell::Cell::new(Duration::ZERO);
        let clock = || time.replace(time.get() + Duration::from_millis(3));
        let measure = |bytes: usize| {
            let pace = Pace::new();
            assert_eq!(pace.measured(bytes, MIB, clock, || bytes), bytes);
            pace.time_of(GCM, MIB)
        };
        assert_eq!(measure(MIB), Duration::from_millis(3));
        assert_eq!(measure(MIB - 1), Duration::ZERO);
    }
}
