//! The workstation service, MS-WKST: the identity of the server, and its users.

use crate::interface::{Answer, Interface};
use crate::security::AuthLevel;
use crate::srvsvc::{Cell, CellOf, Entry, ServerInfo, UsageEnum, cells};
use crate::{FaultStatus, SyntaxId, WinError};
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::Parsed;
use frevo_wire::ndr::{NdrReader, NdrWriter};

/// NetrWkstaGetInfo, MS-WKST 3.2.4.1.
pub const WKSTA_GET_INFO: u16 = 0;

/// NetrWkstaUserEnum, MS-WKST 3.2.4.3.
pub const WKSTA_USER_ENUM: u16 = 2;

/// PLATFORM_ID_NT, MS-WKST 2.2.5.1.
const PLATFORM_ID_NT: u32 = 500;

/// Arguments of NetrWkstaGetInfo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WkstaGetInfo {
    /// Level
    pub level: u32,
}

impl WkstaGetInfo {
    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        r.unique_string("ServerName")?;
        Ok(Self { level: r.u32("NetrWkstaGetInfo level")? })
    }

    /// Stub data of a request to `server`, which is `\\name`.
    pub fn encode(&self, server: &str) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.unique_string(Some(server)).u32(self.level);
        w.into_stub()
    }

    /// Stub data of the reply: 100, 101 and 102 (for administrators), or an
    /// error.
    pub fn encode_reply(&self, info: &ServerInfo, is_administrator: bool) -> Vec<u8> {
        let status = match self.level {
            100 | 101 => WinError::SUCCESS,
            102 if is_administrator => WinError::SUCCESS,
            102 => WinError::ACCESS_DENIED,
            _ => WinError::INVALID_LEVEL,
        };
        let mut w = NdrWriter::new();
        w.u32(self.level);
        if status == WinError::SUCCESS {
            w.pointer(true).u32(PLATFORM_ID_NT).pointer(true).pointer(true);
            w.u32(info.version_major).u32(info.version_minor);
            if self.level >= 101 {
                // The pointer lanroot is reserved and null.
                w.pointer(false);
            }
            if self.level == 102 {
                w.u32(info.logged_on_users);
            }
            w.string(&info.name).string(&info.domain);
        } else if matches!(self.level, 102 | 502 | 1013 | 1018 | 1046) {
            // MS-WKST 2.2.4.1: an error has no data, so the pointer in WKSTA_INFO is null.
            w.pointer(false);
        }
        w.u32(status.0);
        w.into_stub()
    }
}

/// A user who is logged on, as WKSTA_USER_INFO_1 (MS-WKST 2.2.5.10) shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WkstaUser {
    /// The name of the account.
    pub name: String,
    /// The domain of the account.
    pub domain: String,
    /// The server that has authenticated the user; empty if it is unknown.
    pub logon_server: String,
}

impl Entry for WkstaUser {
    fn cells(&self, level: u32) -> Option<Vec<CellOf<'_>>> {
        let Self { name, domain, logon_server } = self;
        match level {
            0 => cells([Cell::Text(name)]),
            // The computer browses no other domains.
            1 => cells([
                Cell::Text(name),
                Cell::Text(domain),
                Cell::Text(""),
                Cell::Text(logon_server),
            ]),
            _ => None,
        }
    }
}

/// The interface of MS-WKST 2.1.
pub static INTERFACE: Interface = Interface {
    syntax: SyntaxId::WKSSVC,
    name: "Workstation service",
    pipes: &["wkssvc"],
    secondary_address: r"\PIPE\wkssvc",
    least_level: AuthLevel::NONE,
    // MS-WKST 2.1: the interface is served on pipes only, not on TCP.
    level_on_tcp: None,
};

/// The workstation service: its data for one caller.
pub trait WorkstationService {
    /// Returns facts about the server.
    fn server(&self) -> ServerInfo;
    /// True if the caller may also read paths, counts and descriptors.
    fn is_administrator(&self) -> bool;
    /// Returns the users who are logged on. None for a caller who does not administer the server.
    fn users(&self) -> Option<Vec<WkstaUser>>;
}

/// Answers a call of MS-WKST.
///
/// # Errors
/// The fault that is sent instead of an answer.
pub fn call(opnum: u16, stub: &[u8], service: &dyn WorkstationService) -> Answer {
    match opnum {
        WKSTA_GET_INFO => {
            let request = WkstaGetInfo::parse(stub)?;
            Ok(request.encode_reply(&service.server(), service.is_administrator()))
        }
        WKSTA_USER_ENUM => {
            let request = UsageEnum::parse(stub, 0)?;
            Ok(match service.users() {
                Some(users) => request.encode(&users),
                // MS-WKST 3.2.4.3 note 35: Windows tells members of Administrators alone.
                None => request.encode_refusal::<WkstaUser>(WinError::ACCESS_DENIED),
            })
        }
        _ => Err(FaultStatus::OP_RNG_ERROR),
    }
}
