//! The time for which a thread sleeps in the kernel, as it does for a disk, and not in which it computes.
//!
//! The kernel tells the processor time of a thread, and how often it went to sleep by itself. A thread
//! that did not is awake for all of the time, even where others had its processor. One that slept
//! slept for the time that it was not on a processor: a busy machine may make that longer.

use std::time::{Duration, Instant};

use crate::file_io::thread_usage;

/// A moment at which the present thread was awake.
#[derive(Debug, Clone, Copy)]
pub struct Awake {
    at: Instant,
    on_processor: Duration,
    sleeps: libc::c_long,
}

impl Awake {
    /// Returns the present moment. It takes one system call.
    #[must_use]
    pub fn now() -> Self {
        let usage = thread_usage();
        let on_processor = duration(usage.ru_utime).saturating_add(duration(usage.ru_stime));
        Self { at: Instant::now(), on_processor, sleeps: usage.ru_nvcsw }
    }

    /// Returns how long this thread, which has to be the one of `self`, has slept since.
    #[must_use]
    pub fn slept(&self) -> Duration {
        let now = Self::now();
        if now.sleeps == self.sleeps {
            return Duration::ZERO;
        }
        let worked = now.on_processor.saturating_sub(self.on_processor);
        now.at.saturating_duration_since(self.at).saturating_sub(worked)
    }
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(60);

    /// Tests it while twice as many threads as there are processors compute. A thread may sleep for a page.
    #[test]
    fn time_on_a_processor_is_no_sleep() {
        let count = 2 * crate::cores::usual_count();
        let together = std::sync::Barrier::new(count);
        let compute = || {
            together.wait();
            let began = Awake::now();
            while Awake::now().on_processor.saturating_sub(began.on_processor) < LONG {}
            began.slept()
        };
        let slept = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..count).map(|_| scope.spawn(compute)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let asleep = slept.iter().filter(|slept| !slept.is_zero()).count();
        assert!(asleep <= 1, "{slept:?}");
    }

    #[test]
    fn sleep_is_seen() {
        let began = Awake::now();
        std::thread::sleep(LONG);
        let slept = began.slept();
        // The processor time is told in microseconds, and some is used for the call.
        assert!(slept + Duration::from_millis(5) >= LONG, "{slept:?}");
    }
}
