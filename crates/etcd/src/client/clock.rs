//! The clock that counts while the machine is suspended.

use core::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::engine::Moment;

/// Returns the present moment of CLOCK_BOOTTIME (clock_gettime(2)), which no one can set.
pub fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    // The clock begins at zero and has less than a billion nanoseconds in a second.
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or_default());
    let rest = Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or_default());
    Moment(seconds.saturating_add(rest))
}
