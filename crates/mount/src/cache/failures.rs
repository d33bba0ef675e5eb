//! What went wrong when what was written was sent later: each handle that was open is told
//! once, whoever else asks about the file meanwhile.

use fuser::Errno;
use parking_lot::Mutex;

/// The failures of one file.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    count: u64,
    last: Option<Errno>,
    /// Somebody knows of the last one.
    is_told: bool,
}

/// What a handle was told of them.
#[derive(Debug)]
pub(crate) struct Heard(Mutex<u64>);

impl Failures {
    /// Another one.
    pub(super) fn note(&self, error: Errno) {
        let mut noted = self.0.lock();
        noted.count += 1;
        (noted.last, noted.is_told) = (Some(error), false);
    }

    /// For a new handle: it is told of what nobody was told of before.
    pub(crate) fn heard(&self) -> Heard {
        let noted = self.0.lock();
        let news = u64::from(noted.last.is_some() && !noted.is_told);
        Heard(Mutex::new(noted.count - news))
    }

    /// Whether there are some of which the handle was not told.
    pub(crate) fn are_new(&self, to: &Heard) -> bool {
        *to.0.lock() != self.0.lock().count
    }

    /// Tells a handle of the last one, once.
    pub(crate) fn tell(&self, to: &Heard) -> Result<(), Errno> {
        let mut heard = to.0.lock();
        let mut noted = self.0.lock();
        if std::mem::replace(&mut *heard, noted.count) == noted.count {
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
        let (one, two) = (failures.heard(), failures.heard());
        assert_eq!(failures.tell(&one), Ok(()));
        failures.note(Errno::EIO);
        failures.note(Errno::ENOSPC);
        let late = failures.heard();
        for handle in [&one, &two, &late] {
            assert!(failures.are_new(handle));
            assert_eq!(failures.tell(handle), Err(Errno::ENOSPC));
            assert!(!failures.are_new(handle));
            assert_eq!(failures.tell(handle), Ok(()));
        }
        assert_eq!(failures.tell(&failures.heard()), Ok(()), "it is known");
        failures.note(Errno::EIO);
        assert_eq!(failures.tell(&one), Err(Errno::EIO));
    }
}
