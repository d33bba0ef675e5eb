//! CLOSE, MS-SMB2 2.2.15 and 2.2.16.

use crate::bit_set;
use crate::codec::{Parsed, Writer};
use crate::dtyp::{FileAttributes, FileTime};
use crate::file_id::FileId;

bit_set! {
    /// Flags of both messages.
    CloseFlags(u16) {
        /// The attributes in the response are asked for, or valid.
        POSTQUERY_ATTRIB = 0x0001,
    }
}

/// MS-SMB2 2.2.15.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// POSTQUERY_ATTRIB asks for attributes.
    pub flags: CloseFlags,
    /// FileId of the Open.
    pub file_id: FileId,
}

impl Request {
    /// Parses a whole message.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 24, "CLOSE request StructureSize")?;
        let flags = CloseFlags(r.u16("Flags")?);
        r.skip(4, "Reserved")?;
        Ok(Self { flags, file_id: FileId::read(r)? })
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(24).u16(self.flags.0).u32(0);
        self.file_id.encode(w);
    }
}

/// MS-SMB2 2.2.16. All zero unless POSTQUERY_ATTRIB is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Response {
    /// The other fields are valid if POSTQUERY_ATTRIB is set.
    pub flags: CloseFlags,
    /// Time of creation.
    pub creation_time: FileTime,
    /// Time of the last read.
    pub last_access_time: FileTime,
    /// Time of the last write.
    pub last_write_time: FileTime,
    /// Time of the last change of data or metadata.
    pub change_time: FileTime,
    /// Bytes allocated on disk.
    pub allocation_size: u64,
    /// Size in bytes.
    pub end_of_file: u64,
    /// Attributes.
    pub file_attributes: FileAttributes,
}

impl Response {
    /// Parses a whole message.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 60, "CLOSE response StructureSize")?;
        let flags = CloseFlags(r.u16("Flags")?);
        r.skip(4, "Reserved")?;
        Ok(Self {
            flags,
            creation_time: FileTime(r.u64("CreationTime")?),
            last_access_time: FileTime(r.u64("LastAccessTime")?),
            last_write_time: FileTime(r.u64("LastWriteTime")?),
            change_time: FileTime(r.u64("ChangeTime")?),
            allocation_size: r.u64("AllocationSize")?,
            end_of_file: r.u64("EndofFile")?,
            file_attributes: FileAttributes(r.u32("FileAttributes")?),
        })
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(60).u16(self.flags.0).u32(0);
        w.u64(self.creation_time.0).u64(self.last_access_time.0);
        w.u64(self.last_write_time.0).u64(self.change_time.0);
        w.u64(self.allocation_size).u64(self.end_of_file).u32(self.file_attributes.0);
    }
}
