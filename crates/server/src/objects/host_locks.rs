//! Byte-range locks as other programs on the host see them (`posix_locks`), and
//! theirs as clients do. Clients among themselves are arbitrated by
//! `frevo_store::byte_range` first.

use frevo_store::Fault;
use frevo_store::byte_range::{ByteRanges, Range};
use frevo_store::vfs::HostLock;
use frevo_wire::Status;

use crate::objects::open::FileOpen;

/// Shows what an Open has locked in `range` now. LOCK_NOT_GRANTED when another
/// program has locked some of it; what could be shown is.
///
/// The file is locked, so that what is shown last is what is there. The kernel is
/// asked at once and does not wait.
pub(crate) fn show(file: &FileOpen, ranges: &ByteRanges, range: Range) -> Result<(), Status> {
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

/// Like [`show`], for a range that was unlocked: no other program can be in the way.
pub(crate) fn show_unlocked(file: &FileOpen, ranges: &ByteRanges, range: Range) {
    if let Err(status) = show(file, ranges, range) {
        tracing::warn!(target: "frevo::lock", inode = file.node.key().inode, %status,
            "cannot unlock a range for other programs that a client has unlocked");
    }
}

impl FileOpen {
    /// Hides the locks of an Open that closes from other programs, before the locks go: its
    /// descriptor may be in use for longer.
    pub(crate) fn hide_locks(&self) {
        if self.is_directory || !self.vfs.shows_locks() {
            return;
        }
        match self.node.show_lock(HostLock { first: 0, last: u64::MAX, mode: None }) {
            // AccessDenied means that the file was opened for its attributes only, so it has no
            // locks on the host.
            Ok(_) | Err(Fault::AccessDenied) => {}
            Err(fault) => {
                tracing::warn!(target: "frevo::lock", %fault, "cannot release a client's locks; the file stays locked for other programs")
            }
        }
    }
}
