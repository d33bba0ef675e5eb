//! Calls of MS-SRVS about users of the server, for administrators alone.

use super::super::srvsvc::{
    ConnectionInfo, FileInfo, SessionInfo, UsageEnum, encode_file_info, encode_status,
    parse_file_id, parse_session_del,
};
use super::super::{Services, WinError};
use super::Answer;
use crate::fscc::eq_ignore_case;

/// NetrSessionEnum, MS-SRVS 3.1.4.5.
pub(super) fn session_enum(stub: &[u8], services: &dyn Services) -> Answer {
    let request = UsageEnum::parse(stub, 2)?;
    if !services.may_manage() {
        return Ok(request.encode_refusal(WinError::ACCESS_DENIED));
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
        return Ok(request.encode_refusal(absent));
    }
    Ok(request.encode(&sessions))
}

/// NetrFileEnum, MS-SRVS 3.1.4.2.
pub(super) fn file_enum(stub: &[u8], services: &dyn Services) -> Answer {
    let request = UsageEnum::parse(stub, 2)?;
    if !services.may_manage() {
        return Ok(request.encode_refusal(WinError::ACCESS_DENIED));
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
pub(super) fn connection_enum(stub: &[u8], services: &dyn Services) -> Answer {
    let request = UsageEnum::parse(stub, 1)?;
    if !services.may_manage() {
        return Ok(request.encode_refusal(WinError::ACCESS_DENIED));
    }
    let Some(qualifier) = request.first.as_deref() else {
        return Ok(request.encode_refusal(WinError::INVALID_PARAMETER));
    };
    let mut connections = services.connections();
    connections.retain(|connection: &ConnectionInfo| {
        let of = if qualifier.starts_with(r"\\") { &connection.client } else { &connection.share };
        is_chosen(Some(qualifier), of)
    });
    Ok(request.encode(&connections))
}

/// NetrFileGetInfo, MS-SRVS 3.1.4.3.
pub(super) fn file_get_info(stub: &[u8], services: &dyn Services) -> Answer {
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
pub(super) fn file_close(stub: &[u8], services: &dyn Services) -> Answer {
    let (id, _) = parse_file_id(stub)?;
    let status = match services.may_manage() {
        false => WinError::ACCESS_DENIED,
        true if services.close_file(id) => WinError::SUCCESS,
        true => WinError::FILE_ID_NOT_FOUND,
    };
    Ok(encode_status(status))
}

/// NetrSessionDel, MS-SRVS 3.1.4.6: of a client, of a user, or of both.
pub(super) fn session_del(stub: &[u8], services: &dyn Services) -> Answer {
    let (client, user) = parse_session_del(stub)?;
    let status = match (client.as_deref(), user.as_deref()) {
        _ if !services.may_manage() => WinError::ACCESS_DENIED,
        (None, None) => WinError::INVALID_PARAMETER,
        (client, user) if services.end_sessions(client, user) => WinError::SUCCESS,
        _ => WinError::CLIENT_NAME_NOT_FOUND,
    };
    Ok(encode_status(status))
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
