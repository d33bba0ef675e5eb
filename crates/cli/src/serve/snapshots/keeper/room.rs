//! Room on the disk: the oldest snapshots go while the file system has less left than the configuration wants.

use std::path::Path;
use std::time::Instant;

use super::{Keeper, RETRY};

/// The word for the rule in the audit log.
const MIN_FREE: &str = "min_free";

/// Returns the bytes that a file system has left for files. None if it does not tell.
pub(super) fn space_left(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

impl Keeper {
    /// Removes the oldest snapshot of a share whose file system has too little space left. The newest one stays, and
    /// shadow copies of clients do. One goes at a time: file systems free the space some time later.
    pub(super) fn make_room(&mut self, at: usize, space_left: impl Fn(&Path) -> Option<u64>) {
        let Some(share) = self.shares.get(at).filter(|share| share.knows_held) else { return };
        let Some(min_free) = share.min_free.filter(|_| share.listed.is_some()) else { return };
        if share.room_wait.is_some_and(|until| until > Instant::now())
            || space_left(&share.folder).is_none_or(|left| left >= min_free)
        {
            return;
        }
        let newest = share.existing.iter().max().copied();
        let may_go = |taken: &_| newest != Some(*taken) && !share.stuck.contains(taken);
        let Some(oldest) = share.scheduled().into_iter().filter(may_go).min() else { return };
        tracing::warn!(target: "frevo::snapshot", share = share.name, snapshot = oldest.to_name(),
            "the file system has less space left than min_free: the oldest snapshot is removed");
        let removed = self.remove(at, oldest, MIN_FREE);
        if let Some(share) = self.shares.get_mut(at) {
            if removed.is_err() {
                share.stuck.insert(oldest);
            }
            share.room_wait = Instant::now().checked_add(RETRY);
        }
    }
}
