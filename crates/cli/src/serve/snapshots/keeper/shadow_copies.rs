//! Snapshots that clients have had made over MS-FSRVP: they stay until the client deletes them.

use std::thread;
use std::time::Duration;

use frevo_snapshots::Second;

use super::super::for_admin::ShadowCopy;
use super::{Keeper, KeptShare, now};

/// Time between looks for a second in which the share has no snapshot yet, and their number.
const NEXT_SECOND: Duration = Duration::from_millis(100);
const LOOKS_FOR_SECOND: usize = 30;
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
                self.remove(at, second, by)?;
                Ok(*taken)
            }
            ShadowCopy::Release { share, taken } => {
                let (at, second) = self.known(share, *taken)?;
                self.hold(at, second, false);
                Ok(*taken)
            }
        }
    }

    fn known(&self, share: &str, taken: u64) -> Result<(usize, Second), String> {
        let second = Second::new(taken).ok_or("there is no such second")?;
        Ok((self.place_of(share)?, second))
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
    fn free_second(&self, at: usize) -> Result<Second, String> {
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
