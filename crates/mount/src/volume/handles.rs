//! Handles: the files and directories that programs have open.

use std::sync::Arc;
use std::time::Instant;

use frevo_client::DirEntry;
use parking_lot::Mutex;

use crate::cache::{ReadAhead, SeenFailures};
use crate::errno::Outcome;
use crate::node::{Node, Seen};

/// A file that a program has open.
pub(crate) struct Handle {
    pub(crate) node: Arc<Node>,
    pub(crate) can_read: bool,
    pub(crate) can_write: bool,
    /// True if every write goes to the end of the file.
    pub(crate) appends: bool,
    /// True if a write is on stable storage before it is acknowledged.
    pub(crate) syncs: bool,
    pub(crate) read_ahead: ReadAhead,
    /// The failures that this handle has reported.
    pub(crate) seen_failures: SeenFailures,
}

impl Handle {
    /// Reports a failed write-back, once for each handle.
    pub(crate) fn tell_failures(&self) -> Outcome<()> {
        self.node.content().map_or(Ok(()), |content| content.failures.tell(&self.seen_failures))
    }
}

/// An open directory, with its entries from the last read at offset 0.
pub(crate) struct OpenDirectory {
    pub(crate) node: Arc<Node>,
    pub(crate) entries: Mutex<Option<ListedEntries>>,
}

/// Entries of a directory, and the state that it was in when they were read.
#[derive(Clone)]
pub(crate) struct ListedEntries {
    pub(crate) asked: Instant,
    pub(crate) seen: Option<Seen>,
    pub(crate) entries: Arc<Vec<DirEntry>>,
}
