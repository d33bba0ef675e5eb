//! CLOCK_BOOTTIME of the machines: clocks that are a little fast or slow, and that jump.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::dice::Dice;

/// The largest error of a clock, in millionths: one hundredth.
const ERROR_MAX: u64 = 10_000;

/// The clock of one machine, since its start.
#[derive(Debug)]
pub(super) struct BootClock {
    start: Instant,
    /// Its time at the beginning of the run.
    offset: Duration,
    /// The length of its second, in millionths of a second.
    rate: u64,
    /// The time by which it has jumped, nanoseconds.
    jumped: AtomicU64,
    /// The moment at which it stands still for a stopped process, nanoseconds. Zero while it runs.
    stopped: AtomicU64,
}

impl BootClock {
    /// A clock of a machine that was started some time before the run.
    pub(super) fn new(start: Instant, dice: &mut Dice) -> Self {
        let error = *dice.pick(&[0, ERROR_MAX / 2, ERROR_MAX]);
        let rate = if dice.percent(50) { 1_000_000 + error } else { 1_000_000 - error };
        let offset = dice.millis(1_000, 3_000_000);
        let (jumped, stopped) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { start, offset, rate, jumped, stopped }
    }

    /// The time.
    pub(super) fn now(&self) -> Duration {
        let elapsed = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let passed = u128::from(elapsed) * u128::from(self.rate) / 1_000_000;
        let jumped = self.jumped.load(Ordering::Relaxed);
        self.offset + Duration::from_nanos(u64::try_from(passed).unwrap_or(u64::MAX) + jumped)
    }

    /// The time as the tasks of a process see it that read it by themselves: it stands still while the
    /// process is stopped.
    pub(super) fn seen(&self) -> Duration {
        match self.stopped.load(Ordering::Relaxed) {
            0 => self.now(),
            stopped => Duration::from_nanos(stopped),
        }
    }

    /// Stops what [`BootClock::seen`] returns, or has it go on with the time that it is then.
    pub(super) fn stop(&self, is_stopped: bool) {
        let now = u64::try_from(self.now().as_nanos()).unwrap_or(u64::MAX);
        self.stopped.store(if is_stopped { now } else { 0 }, Ordering::Relaxed);
    }

    /// Lets it jump forward.
    pub(super) fn jump(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(0);
        self.jumped.fetch_add(by, Ordering::Relaxed);
    }

    /// The moment of the run at which it shows `time`, unless it jumps before.
    pub(super) fn when(&self, time: Duration) -> Instant {
        let left = time.saturating_sub(self.now()).as_nanos();
        let left = left * 1_000_000 / u128::from(self.rate);
        Instant::now() + Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_stands_still_for_its_process_alone() {
        for seed in 0..20 {
            let clock = BootClock::new(Instant::now(), &mut Dice::new(seed, 1));
            let begin = clock.now();
            clock.stop(true);
            tokio::time::sleep(Duration::from_secs(100)).await;
            let passed = clock.now() - begin;
            assert!((Duration::from_secs(99)..=Duration::from_secs(101)).contains(&passed));
            assert_eq!(clock.seen(), begin);
            clock.stop(false);
            clock.jump(Duration::from_secs(5));
            assert_eq!(clock.seen(), begin + passed + Duration::from_secs(5));
            let later = clock.now() + Duration::from_secs(2);
            tokio::time::sleep_until(clock.when(later)).await;
            assert!(clock.now() >= later && clock.now() < later + Duration::from_millis(5));
        }
    }
}
