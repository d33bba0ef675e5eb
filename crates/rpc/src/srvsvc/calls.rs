//! The calls of MS-SRVS, and the data that the server supplies for them.

use super::{
    self as srvsvc, ConnectionInfo, FileInfo, MAX_PREFERRED_LENGTH, NameValidate, ServerGetInfo,
    ServerInfo, SessionInfo, ShareChange, ShareEnum, ShareEnumReply, ShareGetInfo, ShareInfo,
    ShareSettings, ShareType, TimeOfDay, UsageEnum, encode_disks, encode_file_info,
    encode_share_info, encode_status, parse_disk_enum, parse_file_id, parse_session_del,
    parse_share_del, server_name,
};
use crate::interface::Answer;
use crate::{FaultStatus, WinError};
use alloc::vec::Vec;
use frevo_wire::dtyp::FileTime;
use frevo_wire::fscc::eq_ignore_case;

/// A change of the server that a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt<'a> {
    /// NetrShareAdd of this share.
    AddShare(&'a str),
    /// NetrShareSetInfo of this share.
    SetShare(&'a str),
    /// NetrShareDel of this share.
    RemoveShare(&'a str),
    /// NetrFileClose of this file.
    CloseFile(u32),
    /// NetrSessionDel.
    EndSessions {
        /// The sessions of this client; of all when None.
        client: Option<&'a str>,
        /// The sessions of this user; of all when None.
        user: Option<&'a str>,
    },
}

/// The server service: its data, and its changes, for one caller.
pub trait ServerService {
    /// The shares that the caller may know of by this name of the server, in an order that stays. The name is
    /// empty if the caller uses none.
    fn shares(&self, server: &str) -> Vec<ShareInfo>;
    /// Returns facts about the server.
    fn server(&self) -> ServerInfo;
    /// True if the caller may also read paths, counts and descriptors.
    fn is_administrator(&self) -> bool;
    /// Returns the present time.
    fn now(&self) -> FileTime;
    /// Milliseconds since the server started.
    fn uptime_ms(&self) -> u64;
    /// True if the caller may see and end what others use: a member of Administrators.
    fn may_manage(&self) -> bool {
        false
    }
    /// Receives the attempt of a caller that may not manage the server, for the audit log.
    fn refused(&self, _attempt: Attempt<'_>) {}
    /// Returns all sessions of the server.
    fn sessions(&self) -> Vec<SessionInfo> {
        Vec::new()
    }
    /// Returns all files that are open.
    fn files(&self) -> Vec<FileInfo> {
        Vec::new()
    }
    /// All uses of shares.
    fn connections(&self) -> Vec<ConnectionInfo> {
        Vec::new()
    }
    /// Closes the open file of this number.
    ///
    /// # Errors
    /// FILE_ID_NOT_FOUND where there is none, BUSY when it cannot be closed now.
    fn close_file(&self, _id: u32) -> Result<(), WinError> {
        Err(WinError::FILE_ID_NOT_FOUND)
    }
    /// Ends the sessions of a client, of a user, or of both.
    ///
    /// # Errors
    /// CLIENT_NAME_NOT_FOUND where there are none, BUSY when they cannot be ended now.
    fn end_sessions(&self, _client: Option<&str>, _user: Option<&str>) -> Result<(), WinError> {
        Err(WinError::CLIENT_NAME_NOT_FOUND)
    }
    /// Adds a share.
    ///
    /// # Errors
    /// DUPLICATE_SHARE, UNKNOWN_DEV_DIR, INVALID_NAME; ACCESS_DENIED where the server does not
    /// permit it.
    fn add_share(&self, _share: &ShareInfo) -> Result<(), WinError> {
        Err(WinError::ACCESS_DENIED)
    }
    /// Changes settings of a share.
    ///
    /// # Errors
    /// NET_NAME_NOT_FOUND; ACCESS_DENIED where the server does not permit it.
    fn set_share(&self, _name: &str, _settings: &ShareSettings) -> Result<(), WinError> {
        Err(WinError::ACCESS_DENIED)
    }
    /// Removes a share; its files stay.
    ///
    /// # Errors
    /// NET_NAME_NOT_FOUND; ACCESS_DENIED where the server does not permit it.
    fn remove_share(&self, _name: &str) -> Result<(), WinError> {
        Err(WinError::ACCESS_DENIED)
    }
}

/// Answers a call of MS-SRVS.
///
/// # Errors
/// The fault that is sent instead of an answer.
pub fn call(opnum: u16, stub: &[u8], services: &dyn ServerService) -> Answer {
    Ok(match opnum {
        srvsvc::SHARE_ENUM => {
            let request = ShareEnum::parse(stub)?;
            share_enum(&request, &services.shares(&server_name(stub)?), services)
        }
        srvsvc::SHARE_ENUM_STICKY => {
            let request = ShareEnum::parse(stub)?;
            let mut shares = services.shares(&server_name(stub)?);
            shares.retain(|share| !share.kind.intersects(STICKY_NEVER));
            share_enum(&request, &shares, services)
        }
        srvsvc::SHARE_GET_INFO => {
            let request = ShareGetInfo::parse(stub)?;
            let name = request.name.decode()?;
            let shares = services.shares(&server_name(stub)?);
            encode_share_info(
                request.level,
                share_get_info(&shares, &name, request.level, services),
            )
        }
        srvsvc::SERVER_GET_INFO => {
            let request = ServerGetInfo::parse(stub)?;
            request.encode_reply(&services.server(), services.may_manage())
        }
        srvsvc::SERVER_DISK_ENUM => {
            let level = parse_disk_enum(stub)?;
            encode_disks(level, services.may_manage())
        }
        srvsvc::CONNECTION_ENUM => connection_enum(stub, services)?,
        srvsvc::FILE_ENUM => file_enum(stub, services)?,
        srvsvc::FILE_GET_INFO => file_get_info(stub, services)?,
        srvsvc::FILE_CLOSE => file_close(stub, services)?,
        srvsvc::SESSION_ENUM => session_enum(stub, services)?,
        srvsvc::SESSION_DEL => session_del(stub, services)?,
        srvsvc::SHARE_ADD => {
            let change = ShareChange::parse_add(stub)?;
            let name = change.info.as_ref().map_or("", |share| &share.name);
            let done = permitted(services, Attempt::AddShare(name));
            let done = done.map_err(|status| (status, 0)).and_then(|()| {
                services.add_share(change.addition()?).map_err(|status| (status, 0))
            });
            change.encode_reply(done)
        }
        srvsvc::SHARE_SET_INFO => {
            let change = ShareChange::parse_set(stub)?;
            let done = permitted(services, Attempt::SetShare(&change.name));
            let done = done.map_err(|status| (status, 0)).and_then(|()| {
                let settings = change.settings()?;
                services.set_share(&change.name, &settings).map_err(|status| (status, 0))
            });
            change.encode_reply(done)
        }
        srvsvc::SHARE_DEL => {
            let name = parse_share_del(stub)?;
            let done = permitted(services, Attempt::RemoveShare(&name));
            let done = done.and_then(|()| services.remove_share(&name));
            encode_status(done.err().unwrap_or(WinError::SUCCESS))
        }
        srvsvc::REMOTE_TOD => {
            srvsvc::parse_remote_tod(stub)?;
            TimeOfDay::new(services.now(), services.uptime_ms()).encode_reply()
        }
        srvsvc::NAME_VALIDATE => encode_status(NameValidate::parse(stub)?.judge()),
        _ => return Err(FaultStatus::OP_RNG_ERROR),
    })
}

/// Refuses a caller that does not manage the server, and reports the attempt.
fn permitted(services: &dyn ServerService, attempt: Attempt<'_>) -> Result<(), WinError> {
    if services.may_manage() {
        return Ok(());
    }
    services.refused(attempt);
    Err(WinError::ACCESS_DENIED)
}

fn share_get_info<'a>(
    shares: &'a [ShareInfo],
    name: &str,
    level: u32,
    services: &dyn ServerService,
) -> Result<&'a ShareInfo, WinError> {
    if !srvsvc::is_get_level(level) {
        return Err(WinError::INVALID_LEVEL);
    }
    if srvsvc::is_privileged_level(level) && !services.is_administrator() {
        return Err(WinError::ACCESS_DENIED);
    }
    shares
        .iter()
        .find(|share| eq_ignore_case(&share.name, name))
        .ok_or(WinError::NET_NAME_NOT_FOUND)
}

/// MS-SRVS 3.1.4.9: shares that are not configured are not sticky.
const STICKY_NEVER: ShareType = ShareType(ShareType::SPECIAL.0 | ShareType::TEMPORARY.0);

/// MS-SRVS 3.1.4.8: the resume handle is an index, and the preferred length
/// bounds how many shares are told at once.
fn share_enum(request: &ShareEnum, all: &[ShareInfo], services: &dyn ServerService) -> Vec<u8> {
    let level = request.level;
    let fail = |status| {
        ShareEnumReply { level, shares: &[][..], total: 0, resume: request.resume, status }.encode()
    };
    if !srvsvc::is_enum_level(level) {
        return fail(WinError::INVALID_LEVEL);
    }
    if srvsvc::is_privileged_level(level) && !services.is_administrator() {
        return fail(WinError::ACCESS_DENIED);
    }
    let start = usize::try_from(request.resume.unwrap_or(0)).unwrap_or(usize::MAX);
    let shares = all.get(start..).unwrap_or(&[]);
    let told = fitting(shares, level, request.max_len);
    let status = match told {
        _ if told == shares.len() => WinError::SUCCESS,
        0 => WinError::BUF_TOO_SMALL,
        _ => WinError::MORE_DATA,
    };
    let next = match status {
        WinError::SUCCESS => 0,
        _ => u32::try_from(start.saturating_add(told)).unwrap_or(0),
    };
    ShareEnumReply {
        level,
        shares: shares.get(..told).unwrap_or(&[]),
        total: u32::try_from(shares.len()).unwrap_or(u32::MAX),
        resume: request.resume.map(|_| next),
        status,
    }
    .encode()
}

/// How many shares fit a preferred length.
fn fitting(shares: &[ShareInfo], level: u32, max_len: u32) -> usize {
    if max_len == MAX_PREFERRED_LENGTH {
        return shares.len();
    }
    let mut room = usize::try_from(max_len).unwrap_or(usize::MAX);
    let fits = |share: &&ShareInfo| match room.checked_sub(share.size_at(level)) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    };
    shares.iter().take_while(fits).count()
}

// The following calls show the server's users, so only administrators may use them.

/// NetrSessionEnum, MS-SRVS 3.1.4.5.
fn session_enum(stub: &[u8], services: &dyn ServerService) -> Answer {
    let request = UsageEnum::parse(stub, 2)?;
    if !services.may_manage() {
        return Ok(request.encode_refusal::<SessionInfo>(WinError::ACCESS_DENIED));
    }
    let mut sessions = services.sessions();
    let (client, user) = (request.first.as_deref(), request.user.as_deref());
    sessions.retain(|session: &SessionInfo| {
        is_chosen(client, &session.client) && is_chosen(user, &session.user)
    });
    if sessions.is_empty() && (client.is_some() || user.is_some()) {
        let absent = if client.is_some() {
            WinError::CLIENT_NAME_NOT_FOUND
        } else {
            WinError::USER_NOT_FOUND
        };
        return Ok(request.encode_refusal::<SessionInfo>(absent));
    }
    Ok(request.encode(&sessions))
}

/// NetrFileEnum, MS-SRVS 3.1.4.2.
fn file_enum(stub: &[u8], services: &dyn ServerService) -> Answer {
    let request = UsageEnum::parse(stub, 2)?;
    if !services.may_manage() {
        return Ok(request.encode_refusal::<FileInfo>(WinError::ACCESS_DENIED));
    }
    let mut files = services.files();
    let base = request.first.as_deref();
    files.retain(|file: &FileInfo| {
        let head = base.and_then(|base| file.path.get(..base.len()));
        base.is_none_or(|base| head.is_some_and(|head| eq_ignore_case(head, base)))
            && is_chosen(request.user.as_deref(), &file.user)
    });
    Ok(request.encode(&files))
}

/// NetrConnectionEnum, MS-SRVS 3.1.4.1: of a share, or of a client behind `\\`.
fn connection_enum(stub: &[u8], services: &dyn ServerService) -> Answer {
    let request = UsageEnum::parse(stub, 1)?;
    if !services.may_manage() {
        return Ok(request.encode_refusal::<ConnectionInfo>(WinError::ACCESS_DENIED));
    }
    let Some(qualifier) = request.first.as_deref() else {
        return Ok(request.encode_refusal::<ConnectionInfo>(WinError::INVALID_PARAMETER));
    };
    let mut connections = services.connections();
    connections.retain(|connection: &ConnectionInfo| {
        let of = if qualifier.starts_with(r"\\") { &connection.client } else { &connection.share };
        is_chosen(Some(qualifier), of)
    });
    Ok(request.encode(&connections))
}

/// NetrFileGetInfo, MS-SRVS 3.1.4.3.
fn file_get_info(stub: &[u8], services: &dyn ServerService) -> Answer {
    let (id, level) = parse_file_id(stub)?;
    let level = level.unwrap_or(0);
    if !services.may_manage() {
        return Ok(encode_file_info(level, Err(WinError::ACCESS_DENIED)));
    }
    let files = services.files();
    let file = files.iter().find(|file| file.id == id).ok_or(WinError::FILE_ID_NOT_FOUND);
    Ok(encode_file_info(level, file))
}

/// NetrFileClose, MS-SRVS 3.1.4.4.
fn file_close(stub: &[u8], services: &dyn ServerService) -> Answer {
    let (id, _) = parse_file_id(stub)?;
    let done = permitted(services, Attempt::CloseFile(id)).and_then(|()| services.close_file(id));
    Ok(encode_status(done.err().unwrap_or(WinError::SUCCESS)))
}

/// NetrSessionDel, MS-SRVS 3.1.4.6: of a client, of a user, or of both.
fn session_del(stub: &[u8], services: &dyn ServerService) -> Answer {
    let (client, user) = parse_session_del(stub)?;
    let (client, user) = (client.as_deref(), user.as_deref());
    let done = permitted(services, Attempt::EndSessions { client, user });
    let done = done.and_then(|()| match (client, user) {
        (None, None) => Err(WinError::INVALID_PARAMETER),
        (client, user) => services.end_sessions(client, user),
    });
    Ok(encode_status(done.err().unwrap_or(WinError::SUCCESS)))
}

/// True if a name is the one that is asked for, or none is. A client is named with and without
/// `\\`.
fn is_chosen(wanted: Option<&str>, name: &str) -> bool {
    let bare = |name: &str| -> usize { if name.starts_with(r"\\") { 2 } else { 0 } };
    wanted.is_none_or(|wanted| {
        let wanted = wanted.get(bare(wanted)..).unwrap_or_default();
        eq_ignore_case(wanted, name.get(bare(name)..).unwrap_or_default())
    })
}
