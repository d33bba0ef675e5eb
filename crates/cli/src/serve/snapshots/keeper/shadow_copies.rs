//! Snapshots that clients have had made over MS-FSRVP: they stay until the client deletes them.

use std::thread;
use std::time::{Duration, Instant};

use frevo_snapshots::{Schedule, Second};

use super::super::for_admin::ShadowCopy;
use super::{Keeper, KeptShare, REMOVED_AT_ONCE, RETRY, SCHEDULE, now};

/// Time between looks for a second in which the share has no snapshot yet, and their number.
const NEXT_SECOND: Duration = Duration::from_millis(100);
const LOOKS_FOR_SECOND: usize = 30;
/// The word for the limits of copies that clients leave behind, in the audit log.
const LIMIT: &str = "fsrvp";
/// Seconds of removed shadow copies that are remembered.
const GONE: usize = 64;

impl Keeper {
    /// Makes, removes or releases a shadow copy. Returns the second by which it is known.
    pub(super) fn shadow_copy(&mut self, copy: &ShadowCopy) -> Result<u64, String> {
        match copy {
            ShadowCopy::Create { share, by } => {
                let at = self.place_of(share)?;
                self.list(at)?;
                let taken = self.free_second(at)?;
                self.create(at, taken, by)?;
                self.hold(at, taken, true);
                Ok(taken.since_1970())
            }
            ShadowCopy::Remove { share, taken, by } => {
                let (at, second) = self.known(share, *taken)?;
                self.hold(at, second, false);
                self.remove_now_or_later(at, second, by)?;
                Ok(*taken)
            }
            ShadowCopy::Release { share, taken } => {
                let (at, second) = self.known(share, *taken)?;
                self.hold(at, second, false);
                if let Some(share) = self.shares.get_mut(at) {
                    share.thins = true;
                }
                Ok(*taken)
            }
            ShadowCopy::Expire { share, taken } => {
                let (at, second) = self.known(share, *taken)?;
                self.expire(at, second)?;
                Ok(*taken)
            }
        }
    }

    fn known(&self, share: &str, taken: u64) -> Result<(usize, Second), String> {
        let second = Second::new(taken).ok_or("there is no such second")?;
        Ok((self.known_place_of(share)?, second))
    }

    /// Removes a shadow copy that a client has left behind where no schedule thins it.
    fn expire(&mut self, at: usize, taken: Second) -> Result<(), String> {
        let is_kept = |share: &KeptShare| {
            let is_thinned = !share.schedule.as_ref().is_some_and(Schedule::is_none);
            let is_meant = share.held.contains(&taken) || share.kept.contains(&taken);
            is_thinned || is_meant || share.removes_none.is_some()
        };
        if self.shares.get(at).is_none_or(is_kept) {
            return Ok(());
        }
        // An administrator may have removed it meanwhile.
        self.list(at)?;
        match self.shares.get(at).is_some_and(|share| share.existing.contains(&taken)) {
            true => self.remove(at, taken, LIMIT),
            false => Ok(()),
        }
    }

    /// Removes a shadow copy. One that cannot be removed now is tried again.
    fn remove_now_or_later(&mut self, at: usize, taken: Second, by: &str) -> Result<(), String> {
        let end = self.remove(at, taken, by);
        if let (Err(_), Some(share)) = (&end, self.shares.get_mut(at)) {
            share.unwanted.insert(taken);
            share.unwanted_wait = Instant::now().checked_add(RETRY);
        }
        end
    }

    /// Removes some of the shadow copies that could not be removed before, if it is time for that.
    pub(super) fn remove_unwanted(&mut self, at: usize) {
        let Some(share) = self.shares.get_mut(at).filter(|share| !share.unwanted.is_empty()) else {
            return;
        };
        if share.unwanted_wait.is_some_and(|until| until > Instant::now()) {
            return;
        }
        share.unwanted_wait = Instant::now().checked_add(RETRY);
        // The list gives those that failed another chance, and drops those that somebody else has removed.
        if share.unwanted.is_subset(&share.stuck) && self.list(at).is_err() {
            return;
        }
        let Some(share) = self.shares.get(at) else { return };
        let untried = share.unwanted.difference(&share.stuck).take(REMOVED_AT_ONCE);
        for taken in untried.copied().collect::<Vec<Second>>() {
            let end = self.remove(at, taken, SCHEDULE);
            let Some(share) = self.shares.get_mut(at) else { return };
            if end.is_ok() {
                share.unwanted.remove(&taken);
            } else {
                share.stuck.insert(taken);
            }
        }
    }

    fn hold(&mut self, at: usize, taken: Second, is_held: bool) {
        let Some(share) = self.shares.get_mut(at) else { return };
        if is_held {
            share.held.insert(taken);
        } else {
            share.held.remove(&taken);
            share.gone.insert(taken);
            if share.gone.len() > GONE {
                share.gone.pop_first();
            }
        }
    }

    /// Waits for a second in which the share has no snapshot yet.
    pub(super) fn free_second(&self, at: usize) -> Result<Second, String> {
        for _ in 0..LOOKS_FOR_SECOND {
            let second = now().ok_or("the clock of this machine is wrong")?;
            let is_free = |share: &KeptShare| {
                !share.existing.contains(&second) && !share.gone.contains(&second)
            };
            if self.shares.get(at).is_some_and(is_free) {
                return Ok(second);
            }
            thread::sleep(NEXT_SECOND);
        }
        Err(String::from("the share has a snapshot of each second around"))
    }
}
