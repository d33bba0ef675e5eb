//! Arguments of the calls, and the replies that are a handle or a status.

use super::{RegisterFlags, Version};
use crate::WinError;
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::Parsed;
use frevo_wire::ndr::{ContextHandle, NdrReader, NdrWriter};

/// An argument that is a string or NULL. Text that is no UTF-16 equals no name.
fn text(r: &mut NdrReader<'_>, what: &'static str) -> Parsed<Option<String>> {
    Ok(r.unique_string(what)?.map(|text| text.to_string_lossy()))
}

/// Arguments of WitnessrRegister.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// Version
    pub version: Version,
    /// NetName: the name by which clients reach the cluster.
    pub net_name: Option<String>,
    /// IpAddress: the address at which the client uses SMB.
    pub ip_address: Option<String>,
    /// ClientComputerName
    pub client_name: Option<String>,
}

impl Register {
    /// Parses the stub data.
    ///
    /// # Errors
    /// Malformed stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        Ok(Self {
            version: Version(r.u32("WitnessrRegister Version")?),
            net_name: text(&mut r, "WitnessrRegister NetName")?,
            ip_address: text(&mut r, "WitnessrRegister IpAddress")?,
            client_name: text(&mut r, "WitnessrRegister ClientComputerName")?,
        })
    }

    /// Stub data of a request.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.u32(self.version.0);
        for text in [&self.net_name, &self.ip_address, &self.client_name] {
            w.unique_string(text.as_deref());
        }
        w.into_stub()
    }
}

/// Arguments of WitnessrRegisterEx.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterEx {
    /// Version
    pub version: Version,
    /// NetName: the name by which clients reach the cluster.
    pub net_name: Option<String>,
    /// ShareName; None for a client that does not want to know where a share moves.
    pub share_name: Option<String>,
    /// IpAddress: the address at which the client uses SMB.
    pub ip_address: Option<String>,
    /// ClientComputerName
    pub client_name: Option<String>,
    /// Flags
    pub flags: RegisterFlags,
    /// KeepAliveTimeout
    pub keep_alive_seconds: u32,
}

impl RegisterEx {
    /// Parses the stub data.
    ///
    /// # Errors
    /// Malformed stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        Ok(Self {
            version: Version(r.u32("WitnessrRegisterEx Version")?),
            net_name: text(&mut r, "WitnessrRegisterEx NetName")?,
            share_name: text(&mut r, "WitnessrRegisterEx ShareName")?,
            ip_address: text(&mut r, "WitnessrRegisterEx IpAddress")?,
            client_name: text(&mut r, "WitnessrRegisterEx ClientComputerName")?,
            flags: RegisterFlags(r.u32("WitnessrRegisterEx Flags")?),
            keep_alive_seconds: r.u32("WitnessrRegisterEx KeepAliveTimeout")?,
        })
    }

    /// Stub data of a request.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.u32(self.version.0);
        for text in [&self.net_name, &self.share_name, &self.ip_address, &self.client_name] {
            w.unique_string(text.as_deref());
        }
        w.u32(self.flags.0).u32(self.keep_alive_seconds);
        w.into_stub()
    }
}

/// The reply to WitnessrRegister, WitnessrRegisterEx and WitnessrUnRegisterEx.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandleReply {
    /// ppContext; NULL for a call that failed, and after the end of a registration.
    pub handle: ContextHandle,
    /// The return value.
    pub status: WinError,
}

impl HandleReply {
    /// Parses the stub data.
    ///
    /// # Errors
    /// Malformed stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        let handle = r.handle("Witness ppContext")?;
        Ok(Self { handle, status: WinError(r.u32("Witness return value")?) })
    }

    /// Stub data of the reply.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.handle(&self.handle).u32(self.status.0);
        w.into_stub()
    }
}

/// The reply to WitnessrUnRegister.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusReply {
    /// The return value.
    pub status: WinError,
}

impl StatusReply {
    /// Parses the stub data.
    ///
    /// # Errors
    /// Malformed stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let status = NdrReader::new(stub).u32("WitnessrUnRegister return value")?;
        Ok(Self { status: WinError(status) })
    }

    /// Stub data of the reply.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.u32(self.status.0);
        w.into_stub()
    }
}
