//! The limit until which a server of a cluster serves.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

/// The moment of a clock until which a server may serve shares that other servers can take over. One
/// part of the program moves it forward while it knows that nobody else has the shares; all others look
/// at it before they answer a request and before they change a file.
///
/// The clock is one that goes on while the machine is suspended, as CLOCK_BOOTTIME of Linux. The type
/// reads no clock.
#[derive(Debug)]
pub struct ServeLimit(AtomicU64);

impl ServeLimit {
    /// A limit that has passed: nothing is served.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A limit that never passes.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }

    /// Sets the limit, in place of the one before it.
    pub fn set(&self, until: Duration) {
        let nanoseconds = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        self.0.store(nanoseconds, Ordering::Release);
    }

    /// The limit.
    #[must_use]
    pub fn until(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Acquire))
    }

    /// True while `now` is before the limit.
    #[must_use]
    pub fn allows(&self, now: Duration) -> bool {
        now < self.until()
    }
}

impl Default for ServeLimit {
    /// A limit that has passed.
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_served_before_the_first_limit() {
        let limit = ServeLimit::new();
        assert!(!limit.allows(Duration::ZERO) && !limit.allows(Duration::from_secs(1)));
        assert_eq!(limit.until(), Duration::ZERO);
    }

    #[test]
    fn the_moment_of_the_limit_is_beyond_it() {
        let limit = ServeLimit::new();
        let until = Duration::from_nanos(5_000_000_001);
        limit.set(until);
        assert!(limit.allows(until - Duration::from_nanos(1)) && !limit.allows(until));
        limit.set(until + Duration::from_secs(1));
        assert!(limit.allows(until));
        limit.set(Duration::ZERO);
        assert!(!limit.allows(Duration::ZERO), "it can be taken back");
    }

    #[test]
    fn a_limit_that_is_too_far_for_its_number_is_the_farthest() {
        let century = Duration::from_secs(100 * 365 * 86_400);
        assert!(ServeLimit::unlimited().allows(century));
        let limit = ServeLimit::new();
        limit.set(Duration::MAX);
        assert_eq!(limit.until(), ServeLimit::unlimited().until());
    }
}
