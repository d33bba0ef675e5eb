//! FILE_NOTIFY_INFORMATION, MS-FSCC 2.7.1: the entries of a CHANGE_NOTIFY reply.

use super::list::{Entries, ListWriter, Pushed};
use super::name::{WireName, read_counted, utf16_len, write_counted};
use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::open_enum;
use alloc::vec::Vec;

open_enum! {
    /// The kind of a change.
    NotifyAction(u32) {
        /// FILE_ACTION_ADDED
        ADDED = 1,
        /// FILE_ACTION_REMOVED
        REMOVED = 2,
        /// FILE_ACTION_MODIFIED
        MODIFIED = 3,
        /// FILE_ACTION_RENAMED_OLD_NAME
        RENAMED_OLD_NAME = 4,
        /// FILE_ACTION_RENAMED_NEW_NAME
        RENAMED_NEW_NAME = 5,
        /// FILE_ACTION_ADDED_STREAM
        ADDED_STREAM = 6,
        /// FILE_ACTION_REMOVED_STREAM
        REMOVED_STREAM = 7,
        /// FILE_ACTION_MODIFIED_STREAM
        MODIFIED_STREAM = 8,
        /// FILE_ACTION_REMOVED_BY_DELETE
        REMOVED_BY_DELETE = 9,
        /// FILE_ACTION_ID_NOT_TUNNELLED
        ID_NOT_TUNNELLED = 10,
        /// FILE_ACTION_TUNNELLED_ID_COLLISION
        TUNNELLED_ID_COLLISION = 11,
    }
}

/// One change below a watched directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotifyEntry<N> {
    /// Action
    pub action: NotifyAction,
    /// FileName, relative to the watched directory, `\` between components.
    pub name: N,
}

const NOTIFY_FIXED: usize = 12;

/// Writes the body of a CHANGE_NOTIFY reply.
#[derive(Debug)]
pub struct NotifyWriter<'a>(ListWriter<'a>);

impl<'a> NotifyWriter<'a> {
    /// Appends entries to `out`, at most `max_len` bytes.
    pub fn new(out: &'a mut Vec<u8>, max_len: usize) -> Self {
        Self(ListWriter::new(out, 4, max_len))
    }

    /// Appends an entry if it fits whole. When it does not, the server answers
    /// STATUS_NOTIFY_ENUM_DIR instead, MS-SMB2 3.3.4.4.
    pub fn push(&mut self, entry: &NotifyEntry<&str>) -> Pushed {
        let size = NOTIFY_FIXED.saturating_add(utf16_len(entry.name));
        let Some(out) = self.0.begin(size) else { return Pushed::Full };
        let mut w = Writer::new(out);
        w.u32(0).u32(entry.action.0);
        write_counted(&mut w, entry.name);
        Pushed::Fits
    }
}

/// Reads the body of a CHANGE_NOTIFY reply.
#[derive(Debug, Clone)]
pub struct NotifyEntries<'a>(Entries<'a>);

impl<'a> NotifyEntries<'a> {
    /// The entries in `bytes`; none when it is empty.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(Entries::new(bytes, NOTIFY_FIXED, "notify entry"))
    }
}

impl<'a> Iterator for NotifyEntries<'a> {
    type Item = Parsed<NotifyEntry<WireName<'a>>>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.0.next()?;
        Some(bytes.and_then(|bytes| {
            let mut r = Reader::new(bytes);
            // The offset is a multiple of 4.
            if !r.u32("notify entry")?.is_multiple_of(4) {
                return Err(Malformed::new("NextEntryOffset of a notify entry"));
            }
            let action = NotifyAction(r.u32("notify entry")?);
            Ok(NotifyEntry { action, name: read_counted(&mut r, "notify entry")? })
        }))
    }
}
