//! Durable handles of version 2, MS-SMB2 2.2.13.2.11, 2.2.13.2.12 and
//! 2.2.14.2.12.

use crate::bit_set;
use crate::codec::{Parsed, Reader, Writer};
use crate::dtyp::Guid;
use crate::file_id::FileId;

bit_set! {
    /// Flags of the version 2 contexts.
    DurableHandleFlags(u32) {
        /// A persistent handle is asked for or granted.
        PERSISTENT = 0x0000_0002,
    }
}

/// DH2Q in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurableRequestV2 {
    /// Time for which the Open is kept without a connection, milliseconds; 0 lets the server
    /// choose.
    pub timeout: u32,
    /// PERSISTENT asks for a persistent handle.
    pub flags: DurableHandleFlags,
    /// Identifies the request in replays.
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
    /// The Open to reconnect.
    pub file_id: FileId,
    /// CreateGuid of the request that made the Open.
    pub create_guid: Guid,
    /// PERSISTENT is set for a persistent handle.
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
    /// Time for which the Open is kept without a connection, milliseconds.
    pub timeout: u32,
    /// PERSISTENT is set for a persistent handle.
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
