//! Arithmetic of moments.

use core::time::Duration;
use frevo_etcd::engine::Moment;

/// The moment that is `time` later.
pub const fn after(moment: Moment, time: Duration) -> Moment {
    Moment(moment.0.saturating_add(time))
}

/// The time from `earlier` to `moment`; zero if `earlier` is the later one.
pub const fn since(moment: Moment, earlier: Moment) -> Duration {
    moment.0.saturating_sub(earlier.0)
}
