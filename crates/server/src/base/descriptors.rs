//! File descriptors: every open file, folder and connection has one or more, and the process may have
//! only so many. A part that Opens may not have is left for those who connect, for the log and for the
//! state store, and the last quarter of both parts for accounts that have little.
//!
//! The kernel gives each new descriptor the lowest number that is free. A number of `n` thus says that
//! at least `n` descriptors are in use. The number is asked of the kernel, not of the object that was
//! opened: whatever takes descriptors is counted. While few objects are there, nobody asks.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::fcntl_dupfd_cloexec;

use crate::base::limits::{
    DESCRIPTORS_FOR_SERVER, DESCRIPTORS_KEPT_MIN, DESCRIPTORS_KEPT_PART, DESCRIPTORS_PER_OBJECT,
};

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
        let limit = self.limit();
        limit.saturating_sub((limit / DESCRIPTORS_KEPT_PART).max(DESCRIPTORS_KEPT_MIN))
    }

    /// True if an Open or a listing may keep its descriptors, where its account has `own` objects
    /// with descriptors, of `all`. The last quarter is for accounts that have less than a quarter.
    pub fn admit_open(&self, own: usize, all: usize) -> bool {
        let room = self.for_opens();
        self.admit(own, all, room, next_number)
    }

    /// True if an account that has `own` connections may have a further one, where all accounts have
    /// `all` objects with descriptors: the connections of one account leave Opens to others.
    pub fn admit_logon(&self, own: usize, all: usize) -> bool {
        let room = self.limit().saturating_sub(DESCRIPTORS_FOR_SERVER).min(self.for_opens());
        own <= room / 4 || self.admit(own, all, room, next_number)
    }

    /// Answers for `room` descriptors, with the number that a new one would have.
    fn admit(&self, own: usize, all: usize, room: usize, next: impl FnOnce() -> usize) -> bool {
        if all < room / (2 * DESCRIPTORS_PER_OBJECT) {
            return true;
        }
        let used = next();
        used < room - room / 4 || (used < room && own <= room / 4)
    }

    /// True if a connection that was accepted may stay.
    pub fn admit_connection(&self, descriptor: BorrowedFd<'_>) -> bool {
        let number = usize::try_from(descriptor.as_raw_fd()).unwrap_or(usize::MAX);
        number < self.limit().saturating_sub(DESCRIPTORS_FOR_SERVER)
    }

    fn limit(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns the number that a new descriptor gets; the largest where there is none.
fn next_number() -> usize {
    let copy = fcntl_dupfd_cloexec(rustix::stdio::stderr(), 0);
    copy.map_or(usize::MAX, |copy| usize::try_from(copy.as_raw_fd()).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use super::*;

    /// A descriptor of that number, or the next one that is free.
    fn descriptor(number: usize) -> OwnedFd {
        let file = std::fs::File::open("/dev/null").unwrap();
        fcntl_dupfd_cloexec(&file, i32::try_from(number).unwrap()).unwrap()
    }

    /// At n - 1, n and n + 1.
    #[test]
    fn the_last_descriptors_are_kept_from_opens_and_from_large_accounts() {
        let descriptors = Descriptors::default();
        descriptors.set_limit(8_000);
        assert_eq!(descriptors.for_opens(), 7_000);
        // Opens may use 600 descriptors: an account with 151 Opens (`large`) gets only the first
        // 450 of them, and one with 150 Opens (`small`) all 600. `at` is the new descriptor's
        // number.
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
            assert_eq!(descriptors.admit(151, 300, 600, || at), large, "{at}");
            assert_eq!(descriptors.admit(150, 300, 600, || at), small, "{at}");
            assert!(descriptors.admit_connection(descriptor(at).as_fd()));
        }
        let last = 600 + DESCRIPTORS_KEPT_MIN - DESCRIPTORS_FOR_SERVER;
        for (at, admitted) in [(last - 1, true), (last, false), (last + 1, false)] {
            assert_eq!(descriptors.admit_connection(descriptor(at).as_fd()), admitted, "{at}");
        }
    }

    /// The kernel is asked where the objects that are known could have taken half of the room.
    #[test]
    fn few_objects_cost_no_call() {
        let descriptors = Descriptors::default();
        descriptors.set_limit(600 + DESCRIPTORS_KEPT_MIN);
        let most = 600 / (2 * DESCRIPTORS_PER_OBJECT);
        for (all, asks) in [(most - 1, false), (most, true), (most + 1, true)] {
            let mut asked = false;
            let next = || {
                asked = true;
                600
            };
            assert_eq!(descriptors.admit(0, all, 600, next), !asks);
            assert_eq!(asked, asks, "{all}");
        }
    }

    #[test]
    fn a_new_descriptor_has_the_number_that_was_told() {
        // Other tests open files at the same time and may take the predicted number first, so the
        // test tries up to a hundred times.
        let is_told = (0..100).any(|_| {
            let told = next_number();
            let file = std::fs::File::open("/dev/null").unwrap();
            usize::try_from(file.as_raw_fd()).unwrap() == told
        });
        assert!(is_told);
    }

    #[test]
    fn without_a_limit_all_are_admitted() {
        let descriptors = Descriptors::default();
        assert!(descriptors.admit_open(usize::MAX, usize::MAX - 1));
        assert!(descriptors.admit_logon(usize::MAX, usize::MAX - 1));
        assert!(descriptors.admit_connection(descriptor(3).as_fd()));
    }
}
