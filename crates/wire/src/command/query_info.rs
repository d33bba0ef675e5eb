//! QUERY_INFO, MS-SMB2 2.2.37 and 2.2.38.

use super::{field_u16, field_u32};
use crate::codec::{Parsed, Reader, Writer, pointed};
use crate::dtyp::SecurityInformation;
use crate::file_id::FileId;
use crate::{bit_set, open_enum};

open_enum! {
    /// InfoType: the subject of QUERY_INFO and SET_INFO.
    InfoType(u8) {
        /// The file, MS-FSCC 2.4.
        FILE = 1,
        /// The volume, MS-FSCC 2.5.
        FILESYSTEM = 2,
        /// The security descriptor, MS-DTYP 2.4.6.
        SECURITY = 3,
        /// Quotas, MS-FSCC 2.4.41.
        QUOTA = 4,
    }
}

bit_set! {
    /// Flags of a FileFullEaInformation query.
    QueryInfoFlags(u32) {
        /// Lists from the beginning.
        RESTART_SCAN = 0x0000_0001,
        /// Returns one attribute only.
        RETURN_SINGLE_ENTRY = 0x0000_0002,
        /// AdditionalInformation is the index of the first attribute.
        INDEX_SPECIFIED = 0x0000_0004,
    }
}

/// Where the variable part of the request starts.
const REQUEST_FIXED: usize = 104;
/// FileFullEaInformation, MS-FSCC 2.4.
const FILE_FULL_EA_INFORMATION: u8 = 15;

/// MS-SMB2 2.2.37.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The subject of the query.
    pub info_type: InfoType,
    /// The class of the answer, MS-FSCC 2.4 and 2.5.
    pub file_info_class: u8,
    /// Largest answer in bytes.
    pub output_buffer_length: u32,
    /// [`SecurityInformation`], or the index of an extended attribute.
    pub additional_information: u32,
    /// Flags for extended attributes.
    pub flags: QueryInfoFlags,
    /// FileId of the Open.
    pub file_id: FileId,
    /// [`QueryQuotaInfo`], or the names of extended attributes.
    pub input: &'a [u8],
}

impl<'a> Request<'a> {
    /// Parses a whole message.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 41, "QUERY_INFO request StructureSize")?;
        let info_type = InfoType(r.u8("InfoType")?);
        let file_info_class = r.u8("FileInfoClass")?;
        let output_buffer_length = r.u32("OutputBufferLength")?;
        let input_offset = r.u16("InputBufferOffset")?;
        r.skip(2, "Reserved")?;
        let input_length = r.u32("InputBufferLength")?;
        let additional_information = r.u32("AdditionalInformation")?;
        let flags = QueryInfoFlags(r.u32("Flags")?);
        let file_id = FileId::read(r)?;
        // MS-SMB2 2.2.37: only quota queries and queries of extended attributes have input. For
        // others the input fields are ignored.
        let input = match (info_type, file_info_class) {
            (InfoType::QUOTA, _) | (InfoType::FILE, FILE_FULL_EA_INFORMATION) => {
                pointed(message, input_offset.into(), input_length, REQUEST_FIXED, "InputBuffer")?
            }
            _ => &[],
        };
        Ok(Self {
            info_type,
            file_info_class,
            output_buffer_length,
            additional_information,
            flags,
            file_id,
            input,
        })
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(41).u8(self.info_type.0).u8(self.file_info_class).u32(self.output_buffer_length);
        let offset = if self.input.is_empty() { 0 } else { REQUEST_FIXED };
        w.u16(field_u16(offset)).u16(0).u32(field_u32(self.input.len()));
        w.u32(self.additional_information).u32(self.flags.0);
        self.file_id.encode(w);
        w.bytes(self.input);
        if self.input.is_empty() {
            // StructureSize counts one byte of the buffer, so a request without input has one byte
            // of zero, as on Windows.
            w.u8(0);
        }
    }

    /// Returns AdditionalInformation of a SECURITY query.
    pub const fn security_information(&self) -> SecurityInformation {
        SecurityInformation(self.additional_information)
    }
}

/// SMB2_QUERY_QUOTA_INFO, MS-SMB2 2.2.37.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryQuotaInfo<'a> {
    /// Returns one entry only.
    pub return_single: bool,
    /// Lists from the beginning.
    pub restart_scan: bool,
    /// The users whose quotas are queried.
    pub sids: QuotaSids<'a>,
}

/// The users whose quotas are queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaSids<'a> {
    /// Quotas of all users.
    All,
    /// FILE_GET_QUOTA_INFORMATION entries, MS-FSCC 2.4.41.1.
    List(&'a [u8]),
    /// All users from this SID on.
    From(&'a [u8]),
}

impl<'a> QueryQuotaInfo<'a> {
    /// Parses the input buffer of a quota query.
    pub fn parse(input: &'a [u8]) -> Parsed<Self> {
        let r = &mut Reader::new(input);
        let return_single = r.u8("ReturnSingle")? != 0;
        let restart_scan = r.u8("RestartScan")? != 0;
        r.skip(2, "Reserved")?;
        let list_length = r.u32("SidListLength")?;
        let start_length = r.u32("StartSidLength")?;
        let start_offset = r.u32("StartSidOffset")?;
        let buffer = r.rest();
        let sids = match (list_length, start_length) {
            (0, 0) => QuotaSids::All,
            (0, _) => QuotaSids::From(pointed(buffer, start_offset, start_length, 0, "StartSid")?),
            // MS-SMB2 3.3.5.20.4: the request has a list of SIDs, so its StartSid is ignored.
            _ => QuotaSids::List(pointed(buffer, 0, list_length, 0, "SidListLength")?),
        };
        Ok(Self { return_single, restart_scan, sids })
    }

    /// Appends the structure to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let (list, start): (&[u8], &[u8]) = match self.sids {
            QuotaSids::All => (&[], &[]),
            QuotaSids::List(list) => (list, &[]),
            QuotaSids::From(sid) => (&[], sid),
        };
        w.u8(self.return_single.into()).u8(self.restart_scan.into()).u16(0);
        w.u32(field_u32(list.len())).u32(field_u32(start.len())).u32(0);
        w.bytes(list).bytes(start);
    }
}

super::output_response! {
    /// MS-SMB2 2.2.38. The class determines the structure of the output.
    Response, "QUERY_INFO response";
}
