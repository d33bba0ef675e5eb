//! QUERY_DIRECTORY, MS-SMB2 2.2.33 and 2.2.34.

use super::field_u16;
use crate::bit_set;
use crate::codec::{Parsed, Writer, pointed};
use crate::file_id::FileId;
use crate::utf16::Utf16;

bit_set! {
    /// Flags of the request.
    QueryDirectoryFlags(u8) {
        /// Lists from the beginning.
        RESTART_SCANS = 0x01,
        /// Returns one entry only.
        RETURN_SINGLE_ENTRY = 0x02,
        /// Lists from FileIndex on.
        INDEX_SPECIFIED = 0x04,
        /// Lists from the beginning with a new pattern.
        REOPEN = 0x10,
    }
}

/// Where the variable part of the request starts.
const REQUEST_FIXED: usize = 96;

/// MS-SMB2 2.2.33.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// The class of the entries, MS-FSCC 2.4.
    pub file_information_class: u8,
    /// QUERY_DIRECTORY_FLAGS.
    pub flags: QueryDirectoryFlags,
    /// The first entry, if INDEX_SPECIFIED is set.
    pub file_index: u32,
    /// FileId of the directory's Open.
    pub file_id: FileId,
    /// Largest answer in bytes.
    pub output_buffer_length: u32,
    /// The search pattern, with wildcards.
    pub file_name: Utf16<'a>,
}

impl<'a> Request<'a> {
    /// Parses a whole message.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 33, "QUERY_DIRECTORY request StructureSize")?;
        let file_information_class = r.u8("FileInformationClass")?;
        let flags = QueryDirectoryFlags(r.u8("Flags")?);
        let file_index = r.u32("FileIndex")?;
        let file_id = FileId::read(r)?;
        let offset = r.u16("FileNameOffset")?;
        let length = r.u16("FileNameLength")?;
        let output_buffer_length = r.u32("OutputBufferLength")?;
        let name = pointed(message, offset.into(), length.into(), REQUEST_FIXED, "FileName")?;
        Ok(Self {
            file_information_class,
            flags,
            file_index,
            file_id,
            output_buffer_length,
            file_name: Utf16::new(name)?,
        })
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let name = self.file_name.as_bytes();
        w.u16(33).u8(self.file_information_class).u8(self.flags.0).u32(self.file_index);
        self.file_id.encode(w);
        let offset = if name.is_empty() { 0 } else { REQUEST_FIXED };
        w.u16(field_u16(offset)).u16(field_u16(name.len())).u32(self.output_buffer_length);
        w.bytes(name);
        if name.is_empty() {
            // StructureSize counts one byte of the buffer, and some servers refuse the request
            // without it.
            w.u8(0);
        }
    }
}

super::output_response! {
    /// MS-SMB2 2.2.34: MS-FSCC 2.4 entries.
    Response, "QUERY_DIRECTORY response";
}
