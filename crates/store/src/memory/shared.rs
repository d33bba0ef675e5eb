//! The state that the nodes of one file system in memory share.

use alloc::sync::Arc;
use core::fmt;

use frevo_wire::dtyp::{FileAttributes, FileTime};
use parking_lot::Mutex;

use super::faults::Faults;
use super::options::{Clock, MemoryOptions};
use super::quotas::Quotas;
use super::stable::State;
use super::tree::{Ino, Inode};
use crate::limits::MEMORY_PAGE_BYTES;
use crate::vfs::{Fault, FileKey, STORED_ATTRIBUTES, Stat, VfsResult, Volume};

/// The state that the nodes of one file system share, as one machine uses it.
pub(super) struct Shared {
    /// The same one at all machines.
    pub(super) state: Arc<Mutex<State>>,
    pub(super) faults: Faults,
    pub(super) volume: Arc<Volume>,
    pub(super) quotas: Option<Arc<Quotas>>,
    pub(super) options: MemoryOptions,
    pub(super) clock: Clock,
}

impl Shared {
    /// True if both are of the same files.
    pub(super) fn has_files_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    pub(super) fn now(&self) -> FileTime {
        (self.clock)()
    }

    pub(super) fn key(&self, ino: Ino) -> FileKey {
        // The host has no device with such a large number, so the keys never equal those of the
        // host's files.
        FileKey::of_file(u64::from(self.options.serial) | 0xFFFF << 48, ino.0)
    }

    pub(super) fn writable(&self) -> VfsResult<()> {
        if self.volume.read_only { Err(Fault::ReadOnly) } else { Ok(()) }
    }

    /// True if an entry is HIDDEN because of its name.
    pub(super) fn hides(&self, entry: &str) -> bool {
        self.options.hide_dot_files && entry.starts_with('.')
    }

    pub(super) fn stat(&self, ino: Ino, inode: &Inode, hidden: bool) -> Stat {
        inode.stat(self.key(ino), MEMORY_PAGE_BYTES as u64, hidden)
    }

    /// Returns the number of pages of the volume; a part of a page does not count.
    pub(super) fn total(&self) -> u64 {
        self.faults.capacity().checked_div(MEMORY_PAGE_BYTES as u64).unwrap_or(0)
    }

    /// Returns the number of free pages.
    pub(super) fn room(&self, state: &State) -> u64 {
        self.total().saturating_sub(state.used)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Returns the attributes that a change may set.
pub(super) fn storable(attributes: FileAttributes) -> FileAttributes {
    attributes & STORED_ATTRIBUTES
}
