//! NEGOTIATE, SESSION_SETUP, TREE_CONNECT and their ends.

use frevo_auth::spnego::{NTLM, NegState, NegTokenResp};
use frevo_smb1::info::{self, FsLevel, LargeIo, UnixInfo};
use frevo_smb1::negotiate::Capabilities;
use frevo_smb1::tree::{self, Service};
use frevo_wire::Status;
use frevo_wire::command::negotiate::{self, Dialect, GlobalCapabilities, SecurityMode};
use frevo_wire::command::session_setup::{self, SessionFlags};
use frevo_wire::command::tree_connect::{self, ShareCapabilities, ShareFlags, ShareType};
use frevo_wire::command::tree_disconnect;
use frevo_wire::dtyp::{AccessMask, FileTime, Guid};

use super::reply::Good;
use super::server::{Failed, Server, Tree};
use crate::limits::BRIDGE_IO_BYTES;
use crate::logon::NotLoggedOn;

/// The number of the only session of a bridge.
const SESSION: u64 = 1;

/// Most bytes of a listing or of information.
const TRANSACT_BYTES: u32 = 65_536;

impl Server {
    /// Returns the terms of the bridge: SMB 2.1 with large requests.
    #[allow(clippy::unnecessary_wraps, reason = "as all handlers")]
    pub(super) fn negotiate(&self) -> Result<Good, Failed> {
        let response = negotiate::Response {
            security_mode: SecurityMode::SIGNING_ENABLED,
            dialect_revision: Dialect::SMB_2_1,
            server_guid: Guid([0; 16]),
            capabilities: GlobalCapabilities::LARGE_MTU,
            max_transact_size: TRANSACT_BYTES,
            max_read_size: BRIDGE_IO_BYTES,
            max_write_size: BRIDGE_IO_BYTES,
            system_time: self.reached.negotiated.system_time,
            server_start_time: FileTime::ZERO,
            security_buffer: &[],
            negotiate_contexts: Vec::new(),
        };
        Ok(Good::of(|w| response.encode(w)))
    }

    /// Logs on at the server. The session of the bridge is a guest's, which has no keys.
    pub(super) async fn session_setup(&self) -> Result<Good, Failed> {
        match self.logon.log_on(&self.reached, &self.host).await {
            Ok(password) => self.set_password(password),
            Err(NotLoggedOn::Status(status)) => return Err(Failed::Status(status)),
            Err(NotLoggedOn::Gone) => return Err(Failed::Gone),
        }
        let chosen = NegTokenResp {
            state: Some(NegState::ACCEPT_COMPLETED),
            mechanism: Some(NTLM),
            ..NegTokenResp::default()
        };
        let token = chosen.encode();
        let response = session_setup::Response {
            session_flags: SessionFlags::IS_GUEST,
            security_buffer: &token,
        };
        Ok(Good::of(|w| response.encode(w)).with_session(SESSION))
    }

    pub(super) async fn log_off(&self) {
        let _ = self.ask(0, &frevo_smb1::session::logoff()).await;
    }

    pub(super) async fn tree_connect(&self, message: &[u8]) -> Result<Good, Failed> {
        let request = tree_connect::Request::parse(message)?;
        let path = request.path.to_string()?;
        let name = path.rsplit('\\').next().unwrap_or_default();
        let connect = tree::connect(self.charset(), &self.host, name, &self.password())?;
        let answer = self.ask(0, &connect).await?;
        let response = answer.response()?;
        let number = response.header.tree;
        let service = match tree::service(&response)? {
            Service::Disk if name.eq_ignore_ascii_case("IPC$") => Service::Pipe,
            service => service,
        };
        let large = match service {
            Service::Disk => self.agree_on_large_io(number).await?,
            _ => LargeIo::default(),
        };
        let share_type = match service {
            Service::Disk => ShareType::DISK,
            Service::Pipe => ShareType::PIPE,
            Service::Other => return Err(Failed::Status(Status::BAD_DEVICE_TYPE)),
        };
        let volume = if service == Service::Disk { self.volume(number).await? } else { None };
        let tree = self.add_tree(Tree { number, service, large, volume });
        let response = tree_connect::Response {
            share_type,
            share_flags: ShareFlags::NO_CACHING,
            capabilities: ShareCapabilities::EMPTY,
            // The server decides about each file.
            maximal_access: AccessMask(0x001F_01FF),
        };
        Ok(Good::of(|w| response.encode(w)).with_tree(tree))
    }

    /// Returns the serial number of a share's volume, if the server can tell numbers of files, too.
    async fn volume(&self, tree: u16) -> Result<Option<u32>, Failed> {
        if !self.has(Capabilities::INFOLEVEL_PASSTHRU) {
            return Ok(None);
        }
        match self.ask(tree, &info::query_fs(self.charset(), FsLevel::VOLUME)?).await {
            Ok(answer) => Ok(Some(info::serial_number(&answer.results().data)?)),
            Err(Failed::Status(_)) => Ok(None),
            Err(gone) => Err(gone),
        }
    }

    /// Agrees with a server that has Samba's Unix extensions on large READs and WRITEs.
    async fn agree_on_large_io(&self, tree: u16) -> Result<LargeIo, Failed> {
        let none = LargeIo::default();
        if !self.has(Capabilities::UNIX) {
            return Ok(none);
        }
        let charset = self.charset();
        let asked = self.ask(tree, &info::query_fs(charset, FsLevel::UNIX)?).await;
        let answer = match asked {
            Ok(answer) => answer,
            Err(Failed::Status(_)) => return Ok(none),
            Err(gone) => return Err(gone),
        };
        let found = UnixInfo::parse(&answer.results().data)?;
        if found.large_io() == none {
            return Ok(none);
        }
        match self.ask(tree, &found.set_large_io(charset)?).await {
            Ok(_) => Ok(found.large_io()),
            Err(Failed::Status(_)) => Ok(none),
            Err(gone) => Err(gone),
        }
    }

    pub(super) async fn tree_disconnect(&self, number: u32) -> Result<Good, Failed> {
        if let Some(tree) = self.take_tree(number) {
            self.ask(tree.number, &tree::disconnect()).await?;
        }
        Ok(Good::of(|w| tree_disconnect::Response.encode(w)))
    }
}
