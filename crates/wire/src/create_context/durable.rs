//! Durable handles of version 2, MS-SMB2 2.2.13.2.11, 2.2.13.2.12 and
//! 2.2.14.2.12.

use crate::bit_set;
use crate::codec::{Parsed, Reader, Writer};
use crate::dtyp::Guid;
use crate::file_id::FileId;

bit_set! {
    /// Flags of the version 2 contexts.
    DurableHandleFlags(u32) {
        /// Persistent.
        PERSISTENT = 0x0000_0002,
    }
}

/// DH2Q in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurableRequestV2 {
    /// How long the Open is to be kept, milliseconds; 0 leaves it to the server.
    pub timeout: u32,
    /// Whether it is to be persistent.
    pub flags: DurableHandleFlags,
    /// Names the request, so that a replay is known for one.
    pub create_guid: Guid,
}

impl DurableRequestV2 {
    pub(super) fn parse(data: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(data);
        let timeout = r.u32("DH2Q Timeout")?;
        let flags = DurableHandleFlags(r.u32("DH2Q Flags")?);
        r.skip(8, "DH2Q Reserved")?;
        let create_guid = Guid(r.array("DH2Q CreateGuid")?);
        r.end("DH2Q length")?;
        Ok(Self { timeout, flags, create_guid })
    }

    /// Appends the data of the context.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.timeout).u32(self.flags.0).u64(0).bytes(&self.create_guid.0);
    }
}

/// DH2C in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurableReconnectV2 {
    /// The Open to take up again.
    pub file_id: FileId,
    /// Names the request that made it.
    pub create_guid: Guid,
    /// Whether it is persistent.
    pub flags: DurableHandleFlags,
}

impl DurableReconnectV2 {
    pub(super) fn parse(data: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(data);
        let file_id = FileId::read(r)?;
        let create_guid = Guid(r.array("DH2C CreateGuid")?);
        let flags = DurableHandleFlags(r.u32("DH2C Flags")?);
        r.end("DH2C length")?;
        Ok(Self { file_id, create_guid, flags })
    }

    /// Appends the data of the context.
    pub fn encode(&self, w: &mut Writer<'_>) {
        self.file_id.encode(w);
        w.bytes(&self.create_guid.0).u32(self.flags.0);
    }
}

/// DH2Q in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurableResponseV2 {
    /// How long the Open is kept, milliseconds.
    pub timeout: u32,
    /// Whether it is persistent.
    pub flags: DurableHandleFlags,
}

impl DurableResponseV2 {
    pub(super) fn parse(data: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(data);
        let timeout = r.u32("DH2Q Timeout")?;
        let flags = DurableHandleFlags(r.u32("DH2Q Flags")?);
        r.end("DH2Q length")?;
        Ok(Self { timeout, flags })
    }

    /// Appends the data of the context.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.timeout).u32(self.flags.0);
    }
}
