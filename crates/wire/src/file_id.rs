//! SMB2_FILEID, MS-SMB2 2.2.14.1.

use crate::codec::{Parsed, Reader, Writer};
use core::fmt;

/// The client's handle of an Open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct FileId {
    /// Unchanged by a reconnect of a durable Open.
    pub persistent: u64,
    /// Changed by a reconnect of a durable Open.
    pub volatile: u64,
}

impl FileId {
    /// No Open, for FSCTLs that need none. In a related request of a compound: the Open of the
    /// request before it (MS-SMB2 3.3.5.2.7.2).
    pub const ALL_ONES: Self = Self { persistent: u64::MAX, volatile: u64::MAX };

    /// Reads the 16 bytes.
    pub fn read(r: &mut Reader<'_>) -> Parsed<Self> {
        Ok(Self { persistent: r.u64("FileId.Persistent")?, volatile: r.u64("FileId.Volatile")? })
    }

    /// Appends the 16 bytes.
    pub fn encode(self, w: &mut Writer<'_>) {
        w.u64(self.persistent).u64(self.volatile);
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileId({:#x}, {:#x})", self.persistent, self.volatile)
    }
}
