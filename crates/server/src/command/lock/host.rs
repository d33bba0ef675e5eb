//! Byte-range locks as other programs on the host see them (`posix_locks`), and
//! theirs as clients do. Clients among themselves are arbitrated by
//! `frevo_store::byte_range` first.

use frevo_store::Fault;
use frevo_store::byte_range::{ByteRanges, Range};
use frevo_store::vfs::ShownLock;
use frevo_wire::Status;
use tokio::time::sleep;

use super::Locking;
use crate::limits::{HOST_LOCK_PAUSE, HOST_LOCK_PAUSE_MAX};
use crate::open::{FileOpen, Open};

/// Shows what an Open has locked in `range` now. LOCK_NOT_GRANTED when another
/// program has locked some of it; what could be shown is.
///
/// The file is locked, so that what is shown last is what is there. The kernel is
/// asked at once and does not wait.
pub fn show(file: &FileOpen, ranges: &ByteRanges, range: Range) -> Result<(), Status> {
    if !file.vfs.shows_locks() {
        return Ok(());
    }
    for lock in ranges.shown(file.id, range) {
        match file.node.show_lock(lock) {
            Ok(true) => {}
            Ok(false) => return Err(Status::LOCK_NOT_GRANTED),
            Err(fault) => return Err(fault.status()),
        }
    }
    Ok(())
}

/// The same where something was unlocked, which nobody can be in the way of.
pub fn show_unlocked(file: &FileOpen, ranges: &ByteRanges, range: Range) {
    if let Err(status) = show(file, ranges, range) {
        tracing::warn!(target: "frevo::lock", inode = file.node.key().inode, %status,
            "other programs may find locked what a client has unlocked");
    }
}

/// Shows nothing more of an Open that closes, before its locks go: its
/// descriptor may be in use for longer.
pub fn hide(file: &FileOpen) {
    if file.is_directory || !file.vfs.shows_locks() {
        return;
    }
    match file.node.show_lock(ShownLock { first: 0, last: u64::MAX, mode: None }) {
        // Opened for attributes alone: it had none.
        Ok(_) | Err(Fault::AccessDenied) => {}
        Err(fault) => tracing::warn!(target: "frevo::lock", %fault, "a file stays locked"),
    }
}

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
    show(file, &shared.ranges, range).inspect_err(|_| {
        let _ = locking.take_back(&mut shared);
    })
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
