//! LOCK and the byte-range locks of other programs on the host.

use frevo_store::byte_range::Range;
use frevo_wire::Status;
use tokio::time::sleep;

use super::Locking;
use crate::base::limits::{HOST_LOCK_PAUSE, HOST_LOCK_PAUSE_MAX, HOST_LOCKS_PER_OPEN};
use crate::objects::host_locks::show;
use crate::objects::open::Open;

/// Shows a range that the Open has just locked to other programs. Gives the range back on
/// failure.
pub(super) fn confirm(locking: &Locking<'_>, range: Range) -> Result<(), Status> {
    let file = locking.file;
    if !file.vfs.shows_locks() {
        return Ok(());
    }
    let mut shared = file.cell.lock();
    if locking.open.is_closed() {
        return Err(Status::RANGE_NOT_LOCKED);
    }
    let shown = if shared.ranges.held_by(locking.open.id()) > HOST_LOCKS_PER_OPEN {
        Err(Status::INSUFFICIENT_RESOURCES)
    } else {
        show(file, &shared.ranges, range)
    };
    shown.inspect_err(|_| locking.take_back(&mut shared, 1))
}

/// How long to wait before other programs are asked once more: they tell nobody
/// when they unlock.
pub(super) struct Patience(std::time::Duration);

impl Patience {
    pub(super) const fn new() -> Self {
        Self(HOST_LOCK_PAUSE)
    }

    /// RANGE_NOT_LOCKED when the Open is closed meanwhile.
    pub(super) async fn pause(&mut self, open: &Open) -> Result<(), Status> {
        let pause = self.0;
        self.0 = (pause * 2).min(HOST_LOCK_PAUSE_MAX);
        tokio::select! {
            biased;
            () = open.closed() => Err(Status::RANGE_NOT_LOCKED),
            () = sleep(pause) => Ok(()),
        }
    }
}
