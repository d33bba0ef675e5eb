//! IOCTL, MS-SMB2 2.2.31 and 2.2.32, and in the submodules the buffers that MS-SMB2 defines.
//! [`crate::fscc`] has those of MS-FSCC 2.3.

pub mod copychunk;
mod ctl_code;
pub mod dfs;
pub mod network_interface;
pub mod operation;
pub mod pipe_wait;
pub mod read_hash;
pub mod resiliency;
pub mod snapshots;
pub mod storage_qos;
pub mod validate_negotiate;

pub use ctl_code::CtlCode;

use super::field_u32;
use crate::bit_set;
use crate::codec::{Parsed, Writer, pointed};
use crate::file_id::FileId;

bit_set! {
    /// Flags of the request.
    IoctlFlags(u32) {
        /// An FSCTL; an IOCTL when clear.
        IS_FSCTL = 0x0000_0001,
    }
}

/// Where the variable part of the request starts.
const REQUEST_FIXED: usize = 120;
/// Where the variable part of the response starts.
const RESPONSE_FIXED: usize = 112;

/// MS-SMB2 2.2.31.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// CtlCode: the operation.
    pub ctl_code: CtlCode,
    /// The Open, or all ones for a code that needs none.
    pub file_id: FileId,
    /// Largest input in the answer, bytes.
    pub max_input_response: u32,
    /// Largest output in the answer, bytes.
    pub max_output_response: u32,
    /// IS_FSCTL is set for every valid request.
    pub flags: IoctlFlags,
    /// The input buffer; empty for none.
    pub input: &'a [u8],
    /// OutputCount, which must be 0 in a request. It is only checked against the message's bounds.
    pub output_count: u32,
}

impl<'a> Request<'a> {
    /// Makes a request for an FSCTL with `input`.
    pub const fn fsctl(
        ctl_code: CtlCode,
        file_id: FileId,
        input: &'a [u8],
        max_output_response: u32,
    ) -> Self {
        Self {
            ctl_code,
            file_id,
            max_input_response: 0,
            max_output_response,
            flags: IoctlFlags::IS_FSCTL,
            input,
            output_count: 0,
        }
    }

    /// Parses a whole message.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 57, "IOCTL request StructureSize")?;
        r.skip(2, "Reserved")?;
        let ctl_code = CtlCode(r.u32("CtlCode")?);
        let file_id = FileId::read(r)?;
        let input_offset = r.u32("InputOffset")?;
        let input_count = r.u32("InputCount")?;
        let max_input_response = r.u32("MaxInputResponse")?;
        let output_offset = r.u32("OutputOffset")?;
        let output_count = r.u32("OutputCount")?;
        let max_output_response = r.u32("MaxOutputResponse")?;
        let flags = IoctlFlags(r.u32("Flags")?);
        r.skip(4, "Reserved2")?;
        let input = pointed(message, input_offset, input_count, REQUEST_FIXED, "Input")?;
        pointed(message, output_offset, output_count, REQUEST_FIXED, "Output")?;
        Ok(Self {
            ctl_code,
            file_id,
            max_input_response,
            max_output_response,
            flags,
            input,
            output_count,
        })
    }

    /// Appends the body; OutputCount is written as 0.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(57).u16(0).u32(self.ctl_code.0);
        self.file_id.encode(w);
        w.u32(field_u32(REQUEST_FIXED)).u32(field_u32(self.input.len()));
        w.u32(self.max_input_response).u32(0).u32(0).u32(self.max_output_response);
        w.u32(self.flags.0).u32(0).bytes(self.input);
        if self.input.is_empty() {
            // StructureSize counts one byte of the buffer, and some servers refuse the request
            // without it.
            w.u8(0);
        }
    }
}

/// MS-SMB2 2.2.32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response<'a> {
    /// CtlCode: the operation.
    pub ctl_code: CtlCode,
    /// The Open, or all ones for a code that needs none.
    pub file_id: FileId,
    /// The input buffer, which is usually empty.
    pub input: &'a [u8],
    /// The output buffer; empty for none.
    pub output: &'a [u8],
}

impl<'a> Response<'a> {
    /// Parses a whole message.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 49, "IOCTL response StructureSize")?;
        r.skip(2, "Reserved")?;
        let ctl_code = CtlCode(r.u32("CtlCode")?);
        let file_id = FileId::read(r)?;
        let input_offset = r.u32("InputOffset")?;
        let input_count = r.u32("InputCount")?;
        let output_offset = r.u32("OutputOffset")?;
        let output_count = r.u32("OutputCount")?;
        r.skip(8, "Flags and Reserved2")?;
        let input = pointed(message, input_offset, input_count, RESPONSE_FIXED, "Input")?;
        let output = pointed(message, output_offset, output_count, RESPONSE_FIXED, "Output")?;
        Ok(Self { ctl_code, file_id, input, output })
    }

    /// Appends the body; the output begins at the first 8-byte boundary behind the input.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let output_offset = RESPONSE_FIXED.saturating_add(self.input.len()).next_multiple_of(8);
        w.u16(49).u16(0).u32(self.ctl_code.0);
        self.file_id.encode(w);
        w.u32(field_u32(RESPONSE_FIXED)).u32(field_u32(self.input.len()));
        w.u32(field_u32(output_offset)).u32(field_u32(self.output.len()));
        w.u32(0).u32(0).bytes(self.input);
        if !self.output.is_empty() {
            w.align(8).bytes(self.output);
        }
    }
}
