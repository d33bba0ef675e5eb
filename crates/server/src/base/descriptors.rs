//! File descriptors: every open file and every connection has one, and the process may
//! have only so many. What opens may not have is left for those who connect, for the log
//! and for the state store.
//!
//! The kernel gives each new descriptor the lowest number that is free. A number of `n`
//! thus says that at least `n` descriptors are in use, and nobody has to count them.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::limits::{DESCRIPTORS_FOR_SERVER, DESCRIPTORS_KEPT_MIN, DESCRIPTORS_KEPT_PART};

/// The number of descriptors that the process may have.
#[derive(Debug)]
pub struct Descriptors(AtomicUsize);

impl Default for Descriptors {
    fn default() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }
}

impl Descriptors {
    /// Sets how many the process may have (RLIMIT_NOFILE).
    pub fn set_limit(&self, limit: usize) {
        self.0.store(limit, Ordering::Relaxed);
    }

    /// How many opens may take.
    pub fn for_opens(&self) -> usize {
        let limit = self.0.load(Ordering::Relaxed);
        limit.saturating_sub((limit / DESCRIPTORS_KEPT_PART).max(DESCRIPTORS_KEPT_MIN))
    }

    /// Answers if an Open may keep its descriptor, where its account has `own` Opens. The
    /// last quarter is for accounts that have less than a quarter.
    pub fn admit_open(&self, descriptor: BorrowedFd<'_>, own: usize) -> bool {
        self.admit(number(descriptor), own)
    }

    /// The same for a descriptor that is known by its number, with which its account has
    /// `own`: of Opens, and of listings under way.
    pub fn admit(&self, used: usize, own: usize) -> bool {
        let room = self.for_opens();
        used < room - room / 4 || (used < room && own <= room / 4)
    }

    /// Answers if a connection that was accepted may stay.
    pub fn admit_connection(&self, descriptor: BorrowedFd<'_>) -> bool {
        let limit = self.0.load(Ordering::Relaxed);
        number(descriptor) < limit.saturating_sub(DESCRIPTORS_FOR_SERVER)
    }
}

fn number(descriptor: BorrowedFd<'_>) -> usize {
    usize::try_from(descriptor.as_raw_fd()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use super::*;

    /// A descriptor of that number.
    fn descriptor(number: i32) -> OwnedFd {
        let file = std::fs::File::open("/dev/null").unwrap();
        rustix::io::fcntl_dupfd_cloexec(&file, number).unwrap()
    }

    /// At n - 1, n and n + 1.
    #[test]
    fn the_last_descriptors_are_kept_from_opens_and_from_large_accounts() {
        let descriptors = Descriptors::default();
        descriptors.set_limit(8_000);
        assert_eq!(descriptors.for_opens(), 7_000);
        // Opens may use 600 descriptors: an account that already has 151 Opens gets only the first
        // 450, and one with 150 Opens all 600. Each case has the new descriptor's number.
        descriptors.set_limit(600 + DESCRIPTORS_KEPT_MIN);
        assert_eq!(descriptors.for_opens(), 600);
        for (at, large, small) in [
            (449, true, true),
            (450, false, true),
            (451, false, true),
            (599, false, true),
            (600, false, false),
            (601, false, false),
        ] {
            let descriptor = descriptor(at);
            assert_eq!(descriptors.admit_open(descriptor.as_fd(), 151), large, "{at}");
            assert_eq!(descriptors.admit_open(descriptor.as_fd(), 150), small, "{at}");
            assert!(descriptors.admit_connection(descriptor.as_fd()));
        }
        let last = 600 + DESCRIPTORS_KEPT_MIN - DESCRIPTORS_FOR_SERVER;
        for (at, admitted) in [(last - 1, true), (last, false), (last + 1, false)] {
            let descriptor = descriptor(i32::try_from(at).unwrap());
            assert_eq!(descriptors.admit_connection(descriptor.as_fd()), admitted, "{at}");
        }
    }

    #[test]
    fn without_a_limit_all_are_admitted() {
        let descriptor = descriptor(3);
        let descriptors = Descriptors::default();
        assert!(descriptors.admit_open(descriptor.as_fd(), usize::MAX));
        assert!(descriptors.admit_connection(descriptor.as_fd()));
    }
}
