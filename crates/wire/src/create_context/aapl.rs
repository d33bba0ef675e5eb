//! Apple's create context, which is not in MS-SMB2. Apple publishes its layout with the sources of
//! its SMB client.

use crate::codec::{Parsed, Reader, Writer};
use crate::command::field_u32;
use crate::utf16::Utf16;
use crate::{bit_set, open_enum};

open_enum! {
    /// The command of the context.
    AaplCommand(u32) {
        /// Queries the capabilities of server and volume.
        SERVER_QUERY = 1,
        /// Asks for the path of a file id.
        RESOLVE_ID = 2,
    }
}

bit_set! {
    /// The parts of a server query, and of its answer.
    AaplRequested(u64) {
        /// Capabilities of the server (in the request: of the client).
        SERVER_CAPABILITIES = 0x01,
        /// Capabilities of the volume.
        VOLUME_CAPABILITIES = 0x02,
        /// The model that the server claims to be, which selects the icon in Finder.
        MODEL_INFO = 0x04,
    }
}

bit_set! {
    /// Capabilities of the server and of the client.
    AaplServerCapabilities(u64) {
        /// Directory entries contain access rights, resource fork size and Finder information in
        /// place of short names and EA sizes.
        SUPPORTS_READ_DIR_ATTR = 0x01,
        /// Server-side copies of whole files by COPYCHUNK without chunks.
        SUPPORTS_OSX_COPYFILE = 0x02,
        /// Unix modes in directory entries.
        UNIX_BASED = 0x04,
        /// Unix modes through NFS access control entries.
        SUPPORTS_NFS_ACE = 0x08,
    }
}

bit_set! {
    /// Capabilities of the volume.
    AaplVolumeCapabilities(u64) {
        /// The server answers RESOLVE_ID.
        SUPPORT_RESOLVE_ID = 0x01,
        /// Names on the volume are case-sensitive.
        CASE_SENSITIVE = 0x02,
        /// FLUSH can empty the drive's own cache.
        SUPPORTS_FULL_SYNC = 0x04,
    }
}

/// The server query in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AaplQuery {
    /// The requested parts of the answer.
    pub requested: AaplRequested,
    /// Capabilities of the client.
    pub client_capabilities: AaplServerCapabilities,
}

impl AaplQuery {
    /// Parses the data of an AAPL context: a server query, or `None` for another command.
    pub fn parse(data: &[u8]) -> Parsed<Option<Self>> {
        let r = &mut Reader::new(data);
        if AaplCommand(r.u32("AAPL command")?) != AaplCommand::SERVER_QUERY {
            return Ok(None);
        }
        r.skip(4, "AAPL reserved")?;
        let requested = AaplRequested(r.u64("AAPL request bitmap")?);
        let client_capabilities = AaplServerCapabilities(r.u64("AAPL client capabilities")?);
        Ok(Some(Self { requested, client_capabilities }))
    }

    /// Appends the data of the context.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(AaplCommand::SERVER_QUERY.0).u32(0);
        w.u64(self.requested.0).u64(self.client_capabilities.0);
    }
}

/// The answer to the server query.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AaplQueryResponse<'a> {
    /// Capabilities of the server.
    pub server_capabilities: Option<AaplServerCapabilities>,
    /// Capabilities of the volume.
    pub volume_capabilities: Option<AaplVolumeCapabilities>,
    /// The model, such as `MacSamba`.
    pub model: Option<Utf16<'a>>,
}

impl<'a> AaplQueryResponse<'a> {
    /// Parses the data of an AAPL context: the answer to a server query, or
    /// `None` for another command.
    pub fn parse(data: &'a [u8]) -> Parsed<Option<Self>> {
        let r = &mut Reader::new(data);
        if AaplCommand(r.u32("AAPL command")?) != AaplCommand::SERVER_QUERY {
            return Ok(None);
        }
        r.skip(4, "AAPL reserved")?;
        let held = AaplRequested(r.u64("AAPL reply bitmap")?);
        let mut response = Self::default();
        if held.contains(AaplRequested::SERVER_CAPABILITIES) {
            let capabilities = AaplServerCapabilities(r.u64("AAPL server capabilities")?);
            response.server_capabilities = Some(capabilities);
        }
        if held.contains(AaplRequested::VOLUME_CAPABILITIES) {
            let capabilities = AaplVolumeCapabilities(r.u64("AAPL volume capabilities")?);
            response.volume_capabilities = Some(capabilities);
        }
        if held.contains(AaplRequested::MODEL_INFO) {
            r.skip(4, "AAPL padding")?;
            let length = usize::try_from(r.u32("AAPL model length")?).unwrap_or(usize::MAX);
            response.model = Some(Utf16::new(r.take(length, "AAPL model")?)?);
        }
        Ok(Some(response))
    }

    /// Appends the data of the context.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let mut held = AaplRequested::EMPTY;
        if self.server_capabilities.is_some() {
            held |= AaplRequested::SERVER_CAPABILITIES;
        }
        if self.volume_capabilities.is_some() {
            held |= AaplRequested::VOLUME_CAPABILITIES;
        }
        if self.model.is_some() {
            held |= AaplRequested::MODEL_INFO;
        }
        w.u32(AaplCommand::SERVER_QUERY.0).u32(0).u64(held.0);
        if let Some(capabilities) = self.server_capabilities {
            w.u64(capabilities.0);
        }
        if let Some(capabilities) = self.volume_capabilities {
            w.u64(capabilities.0);
        }
        if let Some(model) = &self.model {
            w.u32(0).u32(field_u32(model.as_bytes().len())).bytes(model.as_bytes());
        }
    }
}
