//! A bucket of tokens that is filled with time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const NANOS: u128 = 1_000_000_000;

/// Tokens for a number of units a second. An operation may take them while no more are owed than
/// `burst` fills in: so the bucket owes at most `burst` and one operation, and no operation is too large.
#[derive(Debug)]
pub(super) struct Bucket {
    per_second: u64,
    /// Nanoseconds.
    burst: u64,
    /// The time by which all tokens that were taken are filled in again, nanoseconds.
    filled_at: AtomicU64,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Bucket {
    pub(super) fn new(per_second: u64, burst: Duration) -> Self {
        let (per_second, burst) = (per_second.max(1), nanos(burst));
        Self { per_second, burst, filled_at: AtomicU64::new(0) }
    }

    /// Returns the number of units in a second.
    pub(super) const fn per_second(&self) -> u64 {
        self.per_second
    }

    /// The time in which the tokens for `units` are filled in.
    pub(super) fn time_of(&self, units: u64) -> Duration {
        Duration::from_nanos(self.nanos_of(units))
    }

    fn nanos_of(&self, units: u64) -> u64 {
        let rate = u128::from(self.per_second);
        let nanos = (u128::from(units) * NANOS + rate / 2) / rate;
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// Takes the tokens for `units`.
    ///
    /// # Errors
    /// The time from which on they may be taken. Nothing was taken.
    pub(super) fn take(&self, units: u64, now: Duration) -> Result<(), Duration> {
        let (now, cost) = (nanos(now), self.nanos_of(units));
        let may_owe = now.saturating_add(self.burst);
        let taken = self.filled_at.fetch_update(Ordering::AcqRel, Ordering::Acquire, |filled_at| {
            (filled_at <= may_owe).then(|| filled_at.max(now).saturating_add(cost))
        });
        taken.map(drop).map_err(|filled_at| Duration::from_nanos(filled_at - self.burst))
    }

    /// Takes the tokens for `units` that have passed already, whatever is owed.
    pub(super) fn owe(&self, units: u64, now: Duration) {
        let (now, cost) = (nanos(now), self.nanos_of(units));
        let more = |filled_at: u64| Some(filled_at.max(now).saturating_add(cost));
        let _ = self.filled_at.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
    }

    /// Returns the tokens for `units`.
    pub(super) fn give_back(&self, units: u64) {
        let cost = self.nanos_of(units);
        let less = |filled_at: u64| Some(filled_at.saturating_sub(cost));
        let _ = self.filled_at.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    /// The units whose tokens are not filled in yet, a part of one as a whole one.
    pub(super) fn owed(&self, now: Duration) -> u64 {
        let time = nanos(self.rests_at().saturating_sub(now));
        let units = (u128::from(time) * u128::from(self.per_second)).div_ceil(NANOS);
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// The time from which on nothing is owed.
    pub(super) fn rests_at(&self) -> Duration {
        Duration::from_nanos(self.filled_at.load(Ordering::Acquire))
    }

    /// True while nothing is owed.
    pub(super) fn is_rested(&self, now: Duration) -> bool {
        self.rests_at() <= now
    }
}
