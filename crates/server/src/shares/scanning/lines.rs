//! Files that wait for a scan, in lines by account: each account has its turn. In the line of an account files
//! that somebody waits for go first.

use std::collections::VecDeque;

use frevo_store::FileKey;

use crate::base::limits::{SCANS_WAITING, SCANS_WAITING_PER_USER};

/// A thing that waits in a line.
pub(super) trait Waits {
    /// Its file.
    fn key(&self) -> FileKey;
    /// True if nobody waits for its end.
    fn is_background(&self) -> bool;
}

/// Places that one account may have, of so many: the others are for other accounts.
const fn places_of_one(at_once: usize) -> usize {
    if at_once < 2 { 1 } else { at_once - at_once.div_ceil(4) }
}

/// Places that scans of the background may have: the others are for files that somebody waits for.
const fn places_of_background(at_once: usize) -> usize {
    at_once.div_ceil(2)
}

/// The jobs that have a place.
#[derive(Debug, Default)]
pub(super) struct Running {
    owners: Vec<usize>,
    background: usize,
}

impl Running {
    pub(super) const fn count(&self) -> usize {
        self.owners.len()
    }

    fn of(&self, owner: usize) -> usize {
        self.owners.iter().filter(|one| **one == owner).count()
    }

    pub(super) fn begin(&mut self, owner: usize, is_background: bool) {
        self.owners.push(owner);
        self.background += usize::from(is_background);
    }

    pub(super) fn end(&mut self, owner: usize, is_background: bool) {
        if let Some(at) = self.owners.iter().position(|one| *one == owner) {
            self.owners.swap_remove(at);
        }
        self.background = self.background.saturating_sub(usize::from(is_background));
    }
}

/// The line of one account.
#[derive(Debug)]
struct Line<T> {
    owner: usize,
    awaited: VecDeque<T>,
    background: VecDeque<T>,
}

/// All lines, that of the next turn first. None is empty.
#[derive(Debug)]
pub(super) struct Lines<T> {
    lines: VecDeque<Line<T>>,
    count: usize,
}

impl<T> Default for Lines<T> {
    fn default() -> Self {
        Self { lines: VecDeque::new(), count: 0 }
    }
}

impl<T: Waits> Lines<T> {
    /// The number of files in all lines.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Puts a job at the end of the line of `owner`; returns it if there is no place.
    pub(super) fn add(&mut self, owner: usize, job: T) -> Result<(), T> {
        if self.count >= SCANS_WAITING {
            return Err(job);
        }
        let at = match self.lines.iter().position(|line| line.owner == owner) {
            Some(at) => at,
            None => {
                let (awaited, background) = (VecDeque::new(), VecDeque::new());
                self.lines.push_back(Line { owner, awaited, background });
                self.lines.len() - 1
            }
        };
        let Some(line) = self.lines.get_mut(at) else { return Err(job) };
        if line.awaited.len() + line.background.len() >= SCANS_WAITING_PER_USER {
            return Err(job);
        }
        let part = if job.is_background() { &mut line.background } else { &mut line.awaited };
        part.push_back(job);
        self.count += 1;
        Ok(())
    }

    /// Has a file of the background go before others, because somebody waits for it now.
    pub(super) fn hurry(&mut self, key: FileKey) {
        for line in &mut self.lines {
            if let Some(at) = line.background.iter().position(|job| job.key() == key)
                && let Some(job) = line.background.remove(at)
            {
                line.awaited.push_back(job);
                return;
            }
        }
    }

    /// Takes the job whose turn it is. None if all that wait have as many of the `at_once` places as they may.
    pub(super) fn next(&mut self, running: &Running, at_once: usize) -> Option<T> {
        let may_run = |line: &Line<T>| {
            let has_place = running.of(line.owner) < places_of_one(at_once);
            let is_background = line.awaited.is_empty();
            has_place && (!is_background || running.background < places_of_background(at_once))
        };
        let at = self.lines.iter().position(may_run)?;
        let mut line = self.lines.remove(at)?;
        let job = line.awaited.pop_front().or_else(|| line.background.pop_front());
        if !line.awaited.is_empty() || !line.background.is_empty() {
            self.lines.push_back(line);
        }
        self.count = self.count.saturating_sub(usize::from(job.is_some()));
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    struct Job(u64, bool);

    impl Waits for Job {
        fn key(&self) -> FileKey {
            FileKey::of_file(1, self.0)
        }

        fn is_background(&self) -> bool {
            self.1
        }
    }

    #[test]
    fn accounts_have_turns_and_opens_go_first() {
        let mut lines = Lines::default();
        for job in [Job(1, true), Job(2, true), Job(3, false), Job(4, true)] {
            lines.add(7, job).unwrap();
        }
        lines.add(8, Job(9, true)).unwrap();
        lines.hurry(FileKey::of_file(1, 4));
        assert_eq!(lines.count(), 5);
        let nobody = Running::default();
        let order = std::iter::from_fn(|| lines.next(&nobody, 4)).map(|job| job.0);
        assert_eq!(order.collect::<Vec<u64>>(), [3, 9, 4, 1, 2]);
        assert_eq!(lines.count(), 0);
    }

    #[test]
    fn an_account_and_the_background_leave_places_to_others() {
        let (mut lines, mut running) = (Lines::default(), Running::default());
        let next = |lines: &mut Lines<Job>, running: &mut Running, owner: usize| {
            let job = lines.next(running, 4)?;
            running.begin(owner, job.1);
            Some(job.0)
        };
        for number in 0..4 {
            lines.add(7, Job(number, true)).unwrap();
        }
        assert_eq!(next(&mut lines, &mut running, 7), Some(0));
        assert_eq!(next(&mut lines, &mut running, 7), Some(1));
        assert_eq!(
            next(&mut lines, &mut running, 7),
            None,
            "half is for files that somebody waits for"
        );
        for number in 10..13 {
            lines.add(7, Job(number, false)).unwrap();
        }
        assert_eq!(next(&mut lines, &mut running, 7), Some(10));
        assert_eq!(next(&mut lines, &mut running, 7), None, "a quarter is for other accounts");
        lines.add(8, Job(20, false)).unwrap();
        assert_eq!(next(&mut lines, &mut running, 8), Some(20));
        running.end(7, true);
        assert_eq!(next(&mut lines, &mut running, 7), Some(11));
        assert_eq!(running.count(), 4);
        // A service that scans one file at a time has a place for everybody.
        assert!(lines.next(&Running::default(), 1).is_some());
    }

    #[test]
    fn an_account_has_so_many_waiting_scans() {
        let mut lines = Lines::default();
        for number in 0..SCANS_WAITING_PER_USER as u64 {
            lines.add(1, Job(number, number % 2 == 0)).unwrap();
        }
        assert!(lines.add(1, Job(0, false)).is_err());
        lines.add(2, Job(0, false)).unwrap();
        for owner in 3.. {
            if lines.count() == SCANS_WAITING {
                break;
            }
            (0..SCANS_WAITING_PER_USER as u64).for_each(|n| drop(lines.add(owner, Job(n, true))));
        }
        assert!(lines.add(0, Job(0, false)).is_err());
    }
}
