//! A listing of a directory in memory.

use super::faults::Operation;
use super::node::Hold;
use super::tree::EntryKey;
use crate::limits::MEMORY_COMPONENT_BYTES;
use crate::vfs::{Directory, Stat, VfsResult};

/// A listing in progress. It goes by names: entries that come and go meanwhile neither hide nor
/// repeat others.
#[derive(Debug)]
pub(super) struct MemoryDirectory {
    hold: Hold,
    /// The entry that was returned last.
    last: Option<EntryKey>,
    /// True between the first entry and the end of the listing.
    is_present: bool,
}

impl MemoryDirectory {
    /// A listing that begins.
    pub(super) const fn new(hold: Hold) -> Self {
        Self { hold, last: None, is_present: false }
    }
}

impl Directory for MemoryDirectory {
    fn next_name(&mut self) -> VfsResult<Option<&str>> {
        self.hold.shared.faults.pass(Operation::List)?;
        let next = {
            let state = self.hold.shared.state.lock();
            let entries = state.live.entries(self.hold.ino);
            entries.and_then(|entries| entries.after(self.last.as_ref())).cloned()
        };
        self.is_present = next.is_some();
        if !self.is_present {
            return Ok(None);
        }
        self.last = next;
        Ok(self.last.as_ref().map(|key| key.name.as_str()))
    }

    fn entry_stat(&mut self) -> VfsResult<Option<Stat>> {
        let Some(key) = self.last.as_ref().filter(|_| self.is_present) else { return Ok(None) };
        let shared = &self.hold.shared;
        shared.faults.pass(Operation::Stat)?;
        let state = shared.state.lock();
        let found = state.live.find(self.hold.ino, &key.name, true);
        Ok(found.map(|(name, ino, inode)| shared.stat(ino, inode, shared.hides(name))))
    }

    fn rewind(&mut self) -> VfsResult<()> {
        self.last = None;
        self.is_present = false;
        Ok(())
    }

    fn bytes(&self) -> usize {
        size_of::<Self>().saturating_add(MEMORY_COMPONENT_BYTES)
    }
}
