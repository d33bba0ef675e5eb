//! FLUSH, MS-SMB2 2.2.17 and 2.2.18.

use crate::codec::{Parsed, Writer};
use crate::file_id::FileId;

/// MS-SMB2 2.2.17. Asks the server to make the Open's cached data stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Reserved1 of the specification. macOS sets it to 0xFFFF to ask for a
    /// flush of the drive's own cache (F_FULLFSYNC); others send 0.
    pub reserved1: u16,
    /// FileId of the Open.
    pub file_id: FileId,
}

impl Request {
    /// Parses a whole message.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 24, "FLUSH request StructureSize")?;
        let reserved1 = r.u16("Reserved1")?;
        r.skip(4, "Reserved2")?;
        Ok(Self { reserved1, file_id: FileId::read(r)? })
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(24).u16(self.reserved1).u32(0);
        self.file_id.encode(w);
    }
}

super::empty_messages! {
    /// MS-SMB2 2.2.18.
    Response, "FLUSH response";
}
