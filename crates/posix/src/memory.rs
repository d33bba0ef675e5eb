//! Counts the memory of what is remembered of clients' names, and the pause in which nothing is
//! gathered, after the server needed that memory for its clients.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::time::ClockId;

use crate::limits::FORGOTTEN_FOR;

/// Bytes of the names in known directories, in all shares.
static NAMES: AtomicUsize = AtomicUsize::new(0);

static PAUSE: Pause = Pause::new();

/// Returns the bytes of the names in known directories.
pub(crate) fn of_names() -> usize {
    NAMES.load(Ordering::Relaxed)
}

/// Begins a pause; false if one goes on.
pub(crate) fn pause() -> bool {
    PAUSE.begin(milliseconds())
}

/// True for a while after everything was forgotten.
pub(crate) fn is_paused() -> bool {
    PAUSE.is_on(milliseconds)
}

fn milliseconds() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::MonotonicCoarse);
    let (seconds, nanoseconds) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    seconds.saturating_mul(1_000).saturating_add(nanoseconds / 1_000_000)
}

/// The time in which nothing is gathered or given up.
#[derive(Debug)]
struct Pause {
    /// Its end in milliseconds; 0 for none.
    end: AtomicU64,
}

impl Pause {
    const fn new() -> Self {
        Self { end: AtomicU64::new(0) }
    }

    /// Begins a pause; false if one goes on.
    fn begin(&self, now: u64) -> bool {
        let end = self.end.load(Ordering::Relaxed);
        let next = now.saturating_add(FORGOTTEN_FOR.as_millis().try_into().unwrap_or(u64::MAX));
        now >= end
            && self.end.compare_exchange(end, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// True while it goes on. The clock is read only after a pause has begun.
    fn is_on(&self, now: impl FnOnce() -> u64) -> bool {
        match self.end.load(Ordering::Relaxed) {
            0 => false,
            end if now() < end => true,
            end => {
                let _ = self.end.compare_exchange(end, 0, Ordering::Relaxed, Ordering::Relaxed);
                false
            }
        }
    }
}

/// The part of one cache in [`NAMES`].
#[derive(Debug, Default)]
pub(crate) struct Counted(AtomicUsize);

impl Counted {
    /// Counts `bytes` instead of those that were counted before.
    pub(crate) fn set(&self, bytes: usize) {
        let before = self.0.swap(bytes, Ordering::Relaxed);
        if bytes >= before {
            NAMES.fetch_add(bytes - before, Ordering::Relaxed);
        } else {
            NAMES.fetch_sub(before - bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
impl Counted {
    /// Returns the bytes that are counted.
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_and_may_begin_again() {
        let pause = Pause::new();
        let length = u64::try_from(FORGOTTEN_FOR.as_millis()).unwrap();
        assert!(!pause.is_on(|| panic!("the clock is not read")));
        assert!(pause.begin(1_000));
        for at in [1_000, 1_001, 1_000 + length - 1] {
            assert!(pause.is_on(|| at) && !pause.begin(at), "{at}");
        }
        assert!(!pause.is_on(|| 1_000 + length));
        assert!(!pause.is_on(|| panic!("the clock is not read")));
        assert!(pause.begin(1_000 + length));
        // The pause also ends if no thread has checked the memory in the meantime.
        assert!(pause.begin(1_000 + 2 * length));
    }
}
