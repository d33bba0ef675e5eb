//! Lets the answers about many small files gather before this thread wakes up.
//!
//! A server that has more to do than it can answers one file at a time, and each answer
//! would wake us for itself. On one machine that takes the core from the server, and
//! between two machines it is many small packets' work. While requests wait at the server
//! anyhow, nothing is lost by looking only now and then: before this thread would wait for
//! the next answer, it sleeps for a small part of the time that the server has work for.
//! Where it is the way to the server that takes the time, it does not sleep.

use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    static PAUSE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// For the runtime, before this thread would wait.
pub(crate) fn rest() {
    let pause = PAUSE.get();
    if !pause.is_zero() {
        std::thread::sleep(pause);
    }
}

/// Files after which the pause is computed again.
const WINDOW: u32 = 64;

/// Of the time that the server has work for this part is slept.
const PART: u32 = 8;

/// Sleeps shorter than this are not worth it.
const LEAST: Duration = Duration::from_micros(50);
const MOST: Duration = Duration::from_micros(500);

/// Measures the rate of small files and sets the pause. Dropping it ends the pause.
pub(crate) struct Pacing {
    fastest: Cell<Duration>,
    since: Cell<Instant>,
    done: Cell<u32>,
}

impl Pacing {
    pub(crate) fn new() -> Self {
        Self {
            fastest: Cell::new(Duration::MAX),
            since: Cell::new(Instant::now()),
            done: Cell::new(0),
        }
    }

    /// A file was done that took so long, while so many were under way.
    pub(crate) fn note(&self, took: Duration, under_way: usize) {
        self.fastest.set(self.fastest.get().min(took));
        self.done.set(self.done.get() + 1);
        if self.done.get() < WINDOW {
            return;
        }
        let each = self.since.get().elapsed() / self.done.get();
        PAUSE.set(pause(each, under_way, self.fastest.get()));
        self.since.set(Instant::now());
        self.done.set(0);
    }
}

impl Drop for Pacing {
    fn drop(&mut self) {
        PAUSE.set(Duration::ZERO);
    }
}

/// How long to sleep when files are done at intervals of `each` with `under_way` at once,
/// and one alone takes `alone`.
fn pause(each: Duration, under_way: usize, alone: Duration) -> Duration {
    // Little's law: a file stays in progress for `each` times the number of files in progress.
    let stay = each.saturating_mul(u32::try_from(under_way).unwrap_or(u32::MAX));
    let pause = (stay.saturating_sub(alone) / PART).min(MOST);
    if pause < LEAST { Duration::ZERO } else { pause }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    #[test]
    fn it_sleeps_while_the_server_has_enough_to_do() {
        // At one file per 40 us with 64 in progress, the server has work for 2.5 ms, so the client
        // may pause.
        assert_eq!(pause(us(40), 64, us(200)), us(295));
        assert_eq!(pause(us(900), 64, us(1000)), MOST, "a slow one");
    }

    #[test]
    fn it_does_not_where_the_way_is_what_takes_the_time() {
        assert_eq!(pause(us(16), 64, us(1000)), Duration::ZERO, "a millisecond away");
        assert_eq!(pause(us(800), 64, us(51_000)), Duration::ZERO, "far away");
        assert_eq!(pause(us(100), 1, us(100)), Duration::ZERO, "nothing else under way");
    }

    #[test]
    fn what_it_sleeps_does_not_make_it_sleep_longer() {
        // The client slept too long and the server was idle: 64 files were done in each pause. The
        // next pause must be shorter.
        let slept = MOST;
        assert!(pause(slept / 64, 64, us(50)) < slept / 2);
    }

    #[test]
    fn the_pause_ends_with_the_files() {
        let pacing = Pacing::new();
        pacing.note(us(10), 64);
        std::thread::sleep(us(2000));
        (1..WINDOW).for_each(|_| pacing.note(us(2000), 64));
        assert_ne!(PAUSE.get(), Duration::ZERO);
        drop(pacing);
        assert_eq!(PAUSE.get(), Duration::ZERO);
    }
}
