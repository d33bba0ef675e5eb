//! Times that cost little: nanoseconds of the monotonic clock in one integer.

use std::time::Duration;

/// A time of the monotonic clock. Two of them are compared and subtracted by one instruction, for which
/// [`std::time::Instant`] needs some forty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// Returns the present time.
    #[must_use]
    pub fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let rest = u64::try_from(now.tv_nsec).unwrap_or(0);
        Self(seconds.saturating_mul(NANOSECONDS).saturating_add(rest))
    }

    /// Returns the time that has passed since `earlier`; zero if it is the later one.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanoseconds_since(earlier))
    }

    /// Returns the whole seconds of the clock.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        self.0 / NANOSECONDS
    }

    /// Returns the nanoseconds that have passed since `earlier`; zero if it is the later one.
    #[must_use]
    pub const fn nanoseconds_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the moment `time` later.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(nanoseconds(time)))
    }
}

/// Nanoseconds of a second.
const NANOSECONDS: u64 = 1_000_000_000;

/// Returns a time as nanoseconds.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn moments_pass_like_the_clock_of_the_standard_library() {
        let (before, first) = (Instant::now(), Moment::now());
        let inner = Instant::now();
        std::thread::sleep(Duration::from_millis(5));
        let (least, second) = (inner.elapsed(), Moment::now());
        let most = before.elapsed();
        let passed = second.since(first);
        assert!(least <= passed && passed <= most, "{least:?} {passed:?} {most:?}");
    }

    #[test]
    fn an_earlier_moment_is_no_time_after_a_later_one() {
        let first = Moment(1_999_999_999);
        let later = first.after(Duration::from_millis(2));
        assert!(later > first);
        assert_eq!(later.since(first), Duration::from_millis(2));
        assert_eq!(first.since(later), Duration::ZERO);
        assert_eq!(later.nanoseconds_since(first), 2_000_000);
        assert_eq!(
            first.after(Duration::MAX).since(first).as_nanos() as u64,
            u64::MAX - 1_999_999_999
        );
    }
}
