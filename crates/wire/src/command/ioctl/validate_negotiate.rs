//! VALIDATE_NEGOTIATE_INFO, MS-SMB2 2.2.31.4 and 2.2.32.6: repeats the negotiation under a
//! signature (3.0 and 3.0.2).

use crate::codec::{Parsed, Reader, Writer};
use crate::command::field_u16;
use crate::command::negotiate::{self, Dialect, GlobalCapabilities, SecurityMode};
use crate::dtyp::Guid;
use alloc::vec::Vec;

/// The input: the client's NEGOTIATE request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Capabilities.
    pub capabilities: GlobalCapabilities,
    /// ClientGuid.
    pub guid: Guid,
    /// SecurityMode.
    pub security_mode: SecurityMode,
    /// Dialects.
    pub dialects: Vec<Dialect>,
}

impl Request {
    /// Parses the input buffer of the FSCTL.
    pub fn parse(input: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(input);
        let capabilities = GlobalCapabilities(r.u32("Capabilities")?);
        let guid = Guid(r.array("Guid")?);
        let security_mode = SecurityMode(r.u16("SecurityMode")?);
        let count = r.u16("DialectCount")?;
        let dialects = negotiate::read_dialects(r, count)?;
        Ok(Self { capabilities, guid, security_mode, dialects })
    }

    /// Appends the input buffer to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.capabilities.0).bytes(&self.guid.0).u16(self.security_mode.0);
        w.u16(field_u16(self.dialects.len()));
        for dialect in &self.dialects {
            w.u16(dialect.0);
        }
    }
}

/// The output: the server's NEGOTIATE response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// Capabilities.
    pub capabilities: GlobalCapabilities,
    /// ServerGuid.
    pub guid: Guid,
    /// SecurityMode.
    pub security_mode: SecurityMode,
    /// DialectRevision.
    pub dialect: Dialect,
}

impl Response {
    /// Parses the output buffer of the FSCTL.
    pub fn parse(output: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(output);
        Ok(Self {
            capabilities: GlobalCapabilities(r.u32("Capabilities")?),
            guid: Guid(r.array("Guid")?),
            security_mode: SecurityMode(r.u16("SecurityMode")?),
            dialect: Dialect(r.u16("Dialect")?),
        })
    }

    /// Appends the output buffer to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.capabilities.0).bytes(&self.guid.0);
        w.u16(self.security_mode.0).u16(self.dialect.0);
    }
}
