//! Failures of write-back: each handle that was open is told once.

use fuser::Errno;
use parking_lot::Mutex;

/// The failures of one file.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    count: u64,
    last: Option<Errno>,
    /// True if the last failure was reported.
    is_told: bool,
}

/// The count of failures that a handle has seen.
#[derive(Debug)]
pub(crate) struct SeenFailures(Mutex<u64>);

impl Failures {
    /// Records a failure that no caller was told yet.
    pub(super) fn note(&self, error: Errno) {
        let mut noted = self.0.lock();
        noted.count += 1;
        (noted.last, noted.is_told) = (Some(error), false);
    }

    /// Returns the state of a new handle: only an unreported failure is new to it.
    pub(crate) fn seen(&self) -> SeenFailures {
        let noted = self.0.lock();
        let news = u64::from(noted.last.is_some() && !noted.is_told);
        SeenFailures(Mutex::new(noted.count - news))
    }

    /// Returns true if the handle has not seen all failures.
    pub(crate) fn are_new(&self, to: &SeenFailures) -> bool {
        *to.0.lock() != self.0.lock().count
    }

    /// Reports the last failure to a handle, once.
    pub(crate) fn tell(&self, to: &SeenFailures) -> Result<(), Errno> {
        let mut seen = to.0.lock();
        let mut noted = self.0.lock();
        if std::mem::replace(&mut *seen, noted.count) == noted.count {
            return Ok(());
        }
        noted.is_told = true;
        noted.last.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_who_was_there_is_told_once_and_who_comes_later_of_what_nobody_knows() {
        let failures = Failures::default();
        let (one, two) = (failures.seen(), failures.seen());
        assert_eq!(failures.tell(&one), Ok(()));
        failures.note(Errno::EIO);
        failures.note(Errno::ENOSPC);
        let late = failures.seen();
        for handle in [&one, &two, &late] {
            assert!(failures.are_new(handle));
            assert_eq!(failures.tell(handle), Err(Errno::ENOSPC));
            assert!(!failures.are_new(handle));
            assert_eq!(failures.tell(handle), Ok(()));
        }
        assert_eq!(failures.tell(&failures.seen()), Ok(()), "it is known");
        failures.note(Errno::EIO);
        assert_eq!(failures.tell(&one), Err(Errno::EIO));
    }
}
