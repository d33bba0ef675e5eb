//! The server service, MS-SRVS: shares and the server itself.

mod calls;
mod disks;
mod names;
mod server_info;
mod server_limits;
mod share;
mod share_change;
mod usage;

pub use calls::{Attempt, ServerService, call};
#[cfg(test)]
pub(crate) use disks::parse_disks;
pub use disks::{encode_disks, parse_disk_enum};
pub use names::NameValidate;
pub use server_info::{ServerGetInfo, ServerInfo, ServerType, TimeOfDay};
pub use server_limits::ServerLimits;
pub use share::{
    ShareEnum, ShareEnumReply, ShareGetInfo, ShareInfo, ShareType, encode_share_info,
    parse_share_info,
};

pub use share_change::{ShareChange, ShareSettings, parse_share_del};
pub(crate) use usage::{Cell, CellOf, Entry, cells};
pub use usage::{
    ConnectionInfo, FileInfo, SessionInfo, UsageEnum, encode_file_info, encode_status,
    parse_file_id, parse_session_del,
};

pub(crate) use share::{is_enum_level, is_get_level, is_privileged_level};

use crate::interface::Interface;
use crate::security::AuthLevel;
use crate::{SyntaxId, WinError};
use alloc::string::String;
use frevo_wire::codec::Parsed;
use frevo_wire::ndr::{NdrReader, NdrWriter};

/// The interface of MS-SRVS 2.1.
pub static INTERFACE: Interface = Interface {
    syntax: SyntaxId::SRVSVC,
    name: "Server service",
    pipes: &["srvsvc"],
    secondary_address: r"\PIPE\srvsvc",
    least_level: AuthLevel::NONE,
    // MS-SRVS 2.1: the interface is served on pipes only, not on TCP.
    level_on_tcp: None,
};

/// NetrConnectionEnum, MS-SRVS 3.1.4.1.
pub const CONNECTION_ENUM: u16 = 8;
/// NetrFileEnum, MS-SRVS 3.1.4.2.
pub const FILE_ENUM: u16 = 9;
/// NetrFileGetInfo, MS-SRVS 3.1.4.3.
pub const FILE_GET_INFO: u16 = 10;
/// NetrFileClose, MS-SRVS 3.1.4.4.
pub const FILE_CLOSE: u16 = 11;
/// NetrSessionEnum, MS-SRVS 3.1.4.5.
pub const SESSION_ENUM: u16 = 12;
/// NetrSessionDel, MS-SRVS 3.1.4.6.
pub const SESSION_DEL: u16 = 13;
/// NetrShareAdd, MS-SRVS 3.1.4.7.
pub const SHARE_ADD: u16 = 14;
/// NetrShareEnum, MS-SRVS 3.1.4.8.
pub const SHARE_ENUM: u16 = 15;
/// NetrShareGetInfo, MS-SRVS 3.1.4.10.
pub const SHARE_GET_INFO: u16 = 16;
/// NetrShareSetInfo, MS-SRVS 3.1.4.11.
pub const SHARE_SET_INFO: u16 = 17;
/// NetrShareDel, MS-SRVS 3.1.4.12.
pub const SHARE_DEL: u16 = 18;
/// NetrServerGetInfo, MS-SRVS 3.1.4.17.
pub const SERVER_GET_INFO: u16 = 21;
/// NetrServerDiskEnum, MS-SRVS 3.1.4.19.
pub const SERVER_DISK_ENUM: u16 = 23;
/// NetrRemoteTOD, MS-SRVS 3.1.4.21.
pub const REMOTE_TOD: u16 = 28;
/// NetprNameValidate, MS-SRVS 3.1.4.32.
pub const NAME_VALIDATE: u16 = 33;
/// NetrShareEnumSticky, MS-SRVS 3.1.4.9: as NetrShareEnum, of the shares
/// that are configured.
pub const SHARE_ENUM_STICKY: u16 = 36;

/// MAX_PREFERRED_LENGTH: everything at once.
pub const MAX_PREFERRED_LENGTH: u32 = 0xFFFF_FFFF;

/// The name of the server as a caller uses it, without the backslashes before it (MS-SRVS 3.1.4.8); empty
/// where there is none. Each call begins with it.
fn server_name(stub: &[u8]) -> Parsed<String> {
    let name = NdrReader::new(stub).unique_string("ServerName")?;
    // A name that is no text is none of this server's names.
    let name = name.and_then(|name| name.decode().ok()).unwrap_or_default();
    Ok(name.trim_start_matches('\\').into())
}

/// The arguments of NetrRemoteTOD: the server's name, which is ignored.
pub fn parse_remote_tod(stub: &[u8]) -> Parsed<()> {
    NdrReader::new(stub).unique_string("ServerName").map(|_| ())
}

/// The stub data of a call that takes a server name and a level, and the
/// shape that all calls of this kind share.
fn encode_server_and_level(server: &str, level: u32) -> alloc::vec::Vec<u8> {
    let mut w = NdrWriter::new();
    w.unique_string(Some(server)).u32(level);
    w.into_stub()
}

/// The return value that ends every reply.
fn read_status(r: &mut NdrReader<'_>) -> Parsed<WinError> {
    r.u32("return value").map(WinError)
}
