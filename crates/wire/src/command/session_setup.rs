//! SESSION_SETUP, MS-SMB2 2.2.5 and 2.2.6.

use super::field_u16;
use super::negotiate::{GlobalCapabilities, SecurityMode};
use crate::bit_set;
use crate::codec::{Parsed, Writer, pointed};

bit_set! {
    /// Flags of the request (3.x).
    SessionSetupFlags(u8) {
        /// Binds the session of the header to this connection.
        BINDING = 0x01,
    }
}

bit_set! {
    /// SessionFlags of the response.
    SessionFlags(u16) {
        /// The client is a guest.
        IS_GUEST = 0x0001,
        /// The client is anonymous.
        IS_NULL = 0x0002,
        /// Everything in this session is to be encrypted (3.x).
        ENCRYPT_DATA = 0x0004,
    }
}

/// Where the variable part of the request starts.
const REQUEST_FIXED: usize = 88;
/// Where the variable part of the response starts.
const RESPONSE_FIXED: usize = 72;

/// MS-SMB2 2.2.5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// BINDING adds a channel to the session.
    pub flags: SessionSetupFlags,
    /// SecurityMode in one byte, with the bits of NEGOTIATE.
    pub security_mode: SecurityMode,
    /// Capabilities, of which only DFS is used here.
    pub capabilities: GlobalCapabilities,
    /// A session of this user that the client has lost, or 0.
    pub previous_session_id: u64,
    /// The GSS token.
    pub security_buffer: &'a [u8],
}

impl<'a> Request<'a> {
    /// Parses a whole message.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 25, "SESSION_SETUP request StructureSize")?;
        let flags = SessionSetupFlags(r.u8("Flags")?);
        let security_mode = SecurityMode(u16::from(r.u8("SecurityMode")?));
        let capabilities = GlobalCapabilities(r.u32("Capabilities")?);
        r.skip(4, "Channel")?;
        let offset = r.u16("SecurityBufferOffset")?;
        let length = r.u16("SecurityBufferLength")?;
        let previous_session_id = r.u64("PreviousSessionId")?;
        let security_buffer =
            pointed(message, offset.into(), length.into(), REQUEST_FIXED, "SecurityBuffer")?;
        Ok(Self { flags, security_mode, capabilities, previous_session_id, security_buffer })
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let [security_mode, _] = self.security_mode.0.to_le_bytes();
        w.u16(25).u8(self.flags.0).u8(security_mode).u32(self.capabilities.0).u32(0);
        w.u16(field_u16(REQUEST_FIXED)).u16(field_u16(self.security_buffer.len()));
        w.u64(self.previous_session_id).bytes(self.security_buffer);
        if self.security_buffer.is_empty() {
            // StructureSize counts one byte of the buffer, and some servers refuse the request
            // without it.
            w.u8(0);
        }
    }
}

/// MS-SMB2 2.2.6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response<'a> {
    /// Guest, anonymous or encrypted.
    pub session_flags: SessionFlags,
    /// The GSS token.
    pub security_buffer: &'a [u8],
}

impl<'a> Response<'a> {
    /// Parses a whole message.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 9, "SESSION_SETUP response StructureSize")?;
        let session_flags = SessionFlags(r.u16("SessionFlags")?);
        let offset = r.u16("SecurityBufferOffset")?;
        let length = r.u16("SecurityBufferLength")?;
        let security_buffer =
            pointed(message, offset.into(), length.into(), RESPONSE_FIXED, "SecurityBuffer")?;
        Ok(Self { session_flags, security_buffer })
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(9).u16(self.session_flags.0);
        w.u16(field_u16(RESPONSE_FIXED)).u16(field_u16(self.security_buffer.len()));
        w.bytes(self.security_buffer);
    }
}
