//! Time for which a poll slept in the kernel: its time without that on a processor, and without that in
//! which its thread waited for a processor.
//!
//! The beginning of a poll is not known to be that of a long one. So threads read their processor time
//! once in a while, and a long poll is compared with the reading before it.

use std::cell::Cell;
use std::time::Duration;

use frevo_net::file_io;
use frevo_net::watchdog::{self, Moment};
use rustix::time::{ClockId, clock_gettime};

use crate::base::limits::PROCESSOR_LOOK;
use crate::base::pools::blocking_pool;

/// Times of a thread since its beginning.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// The time on a processor.
    on_processor: Duration,
    /// The time in which it waited for a processor; None where the kernel does not tell.
    in_queue: Option<Duration>,
}

impl Reading {
    fn now() -> Self {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let on_processor = Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0));
        let statistics = std::fs::read_to_string("/proc/thread-self/schedstat");
        Self { on_processor, in_queue: statistics.ok().as_deref().and_then(in_queue) }
    }

    /// Returns the time since `earlier` in which the thread did not sleep.
    fn awake_since(self, earlier: Self) -> Duration {
        let in_queue = self.in_queue.zip(earlier.in_queue);
        let in_queue = in_queue.map(|(now, earlier)| now.saturating_sub(earlier));
        let on_processor = self.on_processor.saturating_sub(earlier.on_processor);
        on_processor.saturating_add(in_queue.unwrap_or_default())
    }
}

/// Returns the time in a queue from schedstat: the second number, in nanoseconds.
fn in_queue(statistics: &str) -> Option<Duration> {
    statistics.split_ascii_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

thread_local! {
    /// The last reading of this thread.
    static LAST: Cell<Option<(Moment, Reading)>> = const { Cell::new(None) };
}

/// Takes a reading before a poll, if the last one is old. Threads of tests and simulators take none.
pub(crate) fn look() {
    let now = watchdog::mark();
    let is_old = LAST.get().is_none_or(|(at, _)| now.since(at) >= PROCESSOR_LOOK);
    if is_old && (blocking_pool::is_here() || !file_io::stays()) {
        LAST.set(Some((now, Reading::now())));
    }
}

/// Returns how long a poll of `took`, before which [`look`] was called, slept at least. Without a
/// reading it is all of the time.
pub(crate) fn slept(took: Duration) -> Duration {
    let Some((_, before)) = LAST.take() else { return took };
    took.saturating_sub(Reading::now().awake_since(before))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_second_number_is_the_time_in_the_queue() {
        assert_eq!(in_queue("5 70 900\n"), Some(Duration::from_nanos(70)));
        assert_eq!((in_queue("5"), in_queue("5 x 9")), (None, None));
    }

    /// Tests that a thread which computes, on a busy machine too, does not seem to sleep, and that one
    /// which sleeps does.
    #[test]
    fn time_on_a_processor_is_no_sleep() {
        const LONG: Duration = Duration::from_millis(60);
        look();
        let began = Instant::now();
        std::thread::sleep(LONG);
        let (took, slept_then) = (began.elapsed(), slept(began.elapsed()));
        let awake = took.saturating_sub(slept_then);
        assert!(awake + LONG <= took + Duration::from_millis(5), "{slept_then:?} of {took:?}");
        look();
        let (began, before) = (Instant::now(), Reading::now());
        while Reading::now().on_processor.saturating_sub(before.on_processor) < LONG {}
        let took = began.elapsed();
        if before.in_queue.is_none() {
            return;
        }
        let slept_then = slept(took);
        assert!(slept_then < LONG / 2, "{slept_then:?} of {took:?}");
        assert_eq!(slept(took), took, "there is no reading");
    }
}
