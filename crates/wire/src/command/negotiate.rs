//! NEGOTIATE, MS-SMB2 2.2.3 and 2.2.4.

use super::{field_u16, field_u32};
use crate::codec::{Parsed, Reader, Writer, pointed};
use crate::dtyp::{FileTime, Guid};
use crate::negotiate_context::{self, NegotiateContext};
use crate::{bit_set, open_enum};
use alloc::vec::Vec;

open_enum! {
    /// DialectRevision: a version of the protocol.
    Dialect(u16) {
        /// 2.0.2
        SMB_2_0_2 = 0x0202,
        /// 2.1
        SMB_2_1 = 0x0210,
        /// 3.0
        SMB_3_0 = 0x0300,
        /// 3.0.2
        SMB_3_0_2 = 0x0302,
        /// 3.1.1
        SMB_3_1_1 = 0x0311,
        /// The answer to an SMB1 NEGOTIATE: the server speaks 2.1 or later, and negotiation
        /// continues.
        WILDCARD = 0x02FF,
    }
}

bit_set! {
    /// SecurityMode of NEGOTIATE, SESSION_SETUP (one byte there) and
    /// VALIDATE_NEGOTIATE_INFO.
    SecurityMode(u16) {
        /// SMB2_NEGOTIATE_SIGNING_ENABLED: signing is possible.
        SIGNING_ENABLED = 0x0001,
        /// SMB2_NEGOTIATE_SIGNING_REQUIRED: signing is required.
        SIGNING_REQUIRED = 0x0002,
    }
}

bit_set! {
    /// SMB2_GLOBAL_CAP_ values.
    GlobalCapabilities(u32) {
        /// SMB2_GLOBAL_CAP_DFS: the Distributed File System.
        DFS = 0x0000_0001,
        /// SMB2_GLOBAL_CAP_LEASING: leases on files.
        LEASING = 0x0000_0002,
        /// Requests of more than one credit.
        LARGE_MTU = 0x0000_0004,
        /// Several connections per session.
        MULTI_CHANNEL = 0x0000_0008,
        /// SMB2_GLOBAL_CAP_PERSISTENT_HANDLES: persistent handles.
        PERSISTENT_HANDLES = 0x0000_0010,
        /// SMB2_GLOBAL_CAP_DIRECTORY_LEASING: leases on directories.
        DIRECTORY_LEASING = 0x0000_0020,
        /// Encryption (3.0 and 3.0.2; 3.1.1 uses a context).
        ENCRYPTION = 0x0000_0040,
        /// Server-to-client notifications (3.1.1).
        NOTIFICATIONS = 0x0000_0080,
    }
}

/// Where the dialects of the request start.
const REQUEST_FIXED: usize = 100;
/// Where the variable part of the response starts.
const RESPONSE_FIXED: usize = 128;

/// MS-SMB2 2.2.3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// SecurityMode: signing enabled or required.
    pub security_mode: SecurityMode,
    /// Capabilities of the client.
    pub capabilities: GlobalCapabilities,
    /// The client's number; zero for 2.0.2 only.
    pub client_guid: Guid,
    /// Offered dialects, in the client's order. The server refuses an empty list.
    pub dialects: Vec<Dialect>,
    /// Negotiate contexts; empty unless 3.1.1 is offered.
    pub negotiate_contexts: Vec<NegotiateContext<'a>>,
}

impl<'a> Request<'a> {
    /// Parses a whole message.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 36, "NEGOTIATE request StructureSize")?;
        let dialect_count = r.u16("DialectCount")?;
        let security_mode = SecurityMode(r.u16("SecurityMode")?);
        r.skip(2, "Reserved")?;
        let capabilities = GlobalCapabilities(r.u32("Capabilities")?);
        let client_guid = Guid(r.array("ClientGuid")?);
        let context_offset = r.u32("NegotiateContextOffset")?;
        let context_count = r.u16("NegotiateContextCount")?;
        r.skip(2, "Reserved2")?;
        let dialects = read_dialects(r, dialect_count)?;
        // MS-SMB2 2.2.3: if the client does not offer 3.1.1, these bytes are ClientStartTime, which
        // is ignored.
        let negotiate_contexts = if dialects.contains(&Dialect::SMB_3_1_1) {
            negotiate_context::parse_list(message, context_offset, context_count, r.position())?
        } else {
            Vec::new()
        };
        Ok(Self { security_mode, capabilities, client_guid, dialects, negotiate_contexts })
    }

    /// Appends the body, with contexts if there are any. Contexts without 3.1.1 are a bug of the
    /// caller.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(36).u16(field_u16(self.dialects.len())).u16(self.security_mode.0).u16(0);
        w.u32(self.capabilities.0).bytes(&self.client_guid.0);
        let contexts_at = w.offset();
        w.u32(0).u16(field_u16(self.negotiate_contexts.len())).u16(0);
        debug_assert_eq!(w.offset(), REQUEST_FIXED);
        for dialect in &self.dialects {
            w.u16(dialect.0);
        }
        if !self.negotiate_contexts.is_empty() {
            w.align(8);
            w.patch_u32(contexts_at, field_u32(w.offset()));
            negotiate_context::encode_list(&self.negotiate_contexts, w);
        }
    }
}

/// MS-SMB2 2.2.4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response<'a> {
    /// SecurityMode: signing enabled or required.
    pub security_mode: SecurityMode,
    /// DialectRevision: the chosen dialect.
    pub dialect_revision: Dialect,
    /// ServerGuid: the server's number.
    pub server_guid: Guid,
    /// Capabilities of the server on this connection.
    pub capabilities: GlobalCapabilities,
    /// Largest buffer of requests other than READ and WRITE, bytes.
    pub max_transact_size: u32,
    /// Largest READ, bytes.
    pub max_read_size: u32,
    /// Largest WRITE, bytes.
    pub max_write_size: u32,
    /// The server's present time.
    pub system_time: FileTime,
    /// Time of the server's start, or 0.
    pub server_start_time: FileTime,
    /// The GSS token.
    pub security_buffer: &'a [u8],
    /// Negotiate contexts; empty unless 3.1.1 is chosen.
    pub negotiate_contexts: Vec<NegotiateContext<'a>>,
}

impl<'a> Response<'a> {
    /// Parses a whole message.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 65, "NEGOTIATE response StructureSize")?;
        let security_mode = SecurityMode(r.u16("SecurityMode")?);
        let dialect_revision = Dialect(r.u16("DialectRevision")?);
        let context_count = r.u16("NegotiateContextCount")?;
        let server_guid = Guid(r.array("ServerGuid")?);
        let capabilities = GlobalCapabilities(r.u32("Capabilities")?);
        let max_transact_size = r.u32("MaxTransactSize")?;
        let max_read_size = r.u32("MaxReadSize")?;
        let max_write_size = r.u32("MaxWriteSize")?;
        let system_time = FileTime(r.u64("SystemTime")?);
        let server_start_time = FileTime(r.u64("ServerStartTime")?);
        let offset = r.u16("SecurityBufferOffset")?;
        let length = r.u16("SecurityBufferLength")?;
        let context_offset = r.u32("NegotiateContextOffset")?;
        let security_buffer =
            pointed(message, offset.into(), length.into(), RESPONSE_FIXED, "SecurityBuffer")?;
        let negotiate_contexts = if dialect_revision == Dialect::SMB_3_1_1 {
            negotiate_context::parse_list(message, context_offset, context_count, RESPONSE_FIXED)?
        } else {
            Vec::new()
        };
        Ok(Self {
            security_mode,
            dialect_revision,
            server_guid,
            capabilities,
            max_transact_size,
            max_read_size,
            max_write_size,
            system_time,
            server_start_time,
            security_buffer,
            negotiate_contexts,
        })
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(65).u16(self.security_mode.0).u16(self.dialect_revision.0);
        w.u16(field_u16(self.negotiate_contexts.len())).bytes(&self.server_guid.0);
        w.u32(self.capabilities.0).u32(self.max_transact_size);
        w.u32(self.max_read_size).u32(self.max_write_size);
        w.u64(self.system_time.0).u64(self.server_start_time.0);
        w.u16(field_u16(RESPONSE_FIXED)).u16(field_u16(self.security_buffer.len()));
        let contexts_at = w.offset();
        w.u32(0).bytes(self.security_buffer);
        if !self.negotiate_contexts.is_empty() {
            w.align(8);
            w.patch_u32(contexts_at, field_u32(w.offset()));
            negotiate_context::encode_list(&self.negotiate_contexts, w);
        }
    }
}

/// Reads the next `count` dialects.
pub(super) fn read_dialects(r: &mut Reader<'_>, count: u16) -> Parsed<Vec<Dialect>> {
    let needed = usize::from(count).saturating_mul(2);
    let r = &mut Reader::new(r.take(needed, "Dialects")?);
    let mut dialects = Vec::with_capacity(count.into());
    while !r.is_empty() {
        dialects.push(Dialect(r.u16("Dialects")?));
    }
    Ok(dialects)
}
