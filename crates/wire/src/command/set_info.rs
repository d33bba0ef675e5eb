//! SET_INFO, MS-SMB2 2.2.39 and 2.2.40.

pub use super::query_info::InfoType;
use super::{field_u16, field_u32};
use crate::codec::{Parsed, Writer, pointed};
use crate::dtyp::SecurityInformation;
use crate::file_id::FileId;

/// Where the variable part of the request starts.
const REQUEST_FIXED: usize = 96;

/// MS-SMB2 2.2.39.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The subject of the change.
    pub info_type: InfoType,
    /// The class of the buffer, MS-FSCC 2.4 and 2.5.
    pub file_info_class: u8,
    /// [`SecurityInformation`] if a descriptor is set.
    pub additional_information: u32,
    /// FileId of the Open.
    pub file_id: FileId,
    /// The new values, in the class's structure.
    pub buffer: &'a [u8],
}

impl<'a> Request<'a> {
    /// Parses a whole message.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 33, "SET_INFO request StructureSize")?;
        let info_type = InfoType(r.u8("InfoType")?);
        let file_info_class = r.u8("FileInfoClass")?;
        let length = r.u32("BufferLength")?;
        let offset = r.u16("BufferOffset")?;
        r.skip(2, "Reserved")?;
        let additional_information = r.u32("AdditionalInformation")?;
        let file_id = FileId::read(r)?;
        let buffer = pointed(message, offset.into(), length, REQUEST_FIXED, "Buffer")?;
        Ok(Self { info_type, file_info_class, additional_information, file_id, buffer })
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(33).u8(self.info_type.0).u8(self.file_info_class);
        w.u32(field_u32(self.buffer.len())).u16(field_u16(REQUEST_FIXED)).u16(0);
        w.u32(self.additional_information);
        self.file_id.encode(w);
        w.bytes(self.buffer);
        if self.buffer.is_empty() {
            // StructureSize counts one byte of the buffer, and some servers refuse the request
            // without it.
            w.u8(0);
        }
    }

    /// Returns AdditionalInformation of a change of a descriptor.
    pub const fn security_information(&self) -> SecurityInformation {
        SecurityInformation(self.additional_information)
    }
}

/// MS-SMB2 2.2.40.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Response;

impl Response {
    /// Parses a whole message.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        super::body(message, 2, "SET_INFO response StructureSize").map(|_| Self)
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(2);
    }
}
