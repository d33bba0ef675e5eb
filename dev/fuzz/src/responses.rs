//! Responses of a hostile server to a client.

use frevo_rpc::client::Client;
use frevo_rpc::{SyntaxId, srvsvc};
use frevo_wire::codec::{Malformed, Parsed, Writer};
use frevo_wire::command::ioctl::{
    copychunk, dfs, network_interface, snapshots, validate_negotiate,
};
use frevo_wire::command::{
    change_notify, close, create, echo, flush, ioctl, lock, logoff, negotiate, oplock_break,
    query_directory, query_info, read, server_to_client_notification, session_setup, set_info,
    tree_connect, tree_disconnect, write,
};
use frevo_wire::error_response::{ErrorResponse, ShareRedirect, SymlinkError};
use frevo_wire::fscc::notify::NotifyEntries;
use frevo_wire::fscc::posix::PosixAttributes;
use frevo_wire::fscc::query::{FileAllInformation, FileNameInformation, StreamEntries};
use frevo_wire::fscc::volume::{FsAttributeInformation, FsVolumeInformation};
use frevo_wire::fscc::{DirectoryEntries, FileInfoClass};
use frevo_wire::{Command, Header};

use crate::{chunk, message, settles};

fn reencode(command: Command, m: &[u8]) -> Parsed<Vec<u8>> {
    macro_rules! by {
        ($module:ident) => {
            $module::Response::parse(m).map(|it| message(|w: &mut Writer<'_>| it.encode(w)))
        };
    }
    match command {
        Command::NEGOTIATE => by!(negotiate),
        Command::SESSION_SETUP => by!(session_setup),
        Command::LOGOFF => by!(logoff),
        Command::TREE_CONNECT => by!(tree_connect),
        Command::TREE_DISCONNECT => by!(tree_disconnect),
        Command::CREATE => by!(create),
        Command::CLOSE => by!(close),
        Command::FLUSH => by!(flush),
        Command::READ => by!(read),
        Command::WRITE => by!(write),
        Command::LOCK => by!(lock),
        Command::IOCTL => by!(ioctl),
        Command::ECHO => by!(echo),
        Command::QUERY_DIRECTORY => by!(query_directory),
        Command::CHANGE_NOTIFY => by!(change_notify),
        Command::QUERY_INFO => by!(query_info),
        Command::SET_INFO => by!(set_info),
        Command::OPLOCK_BREAK => by!(oplock_break),
        _ => Ok(Vec::new()),
    }
}

/// FSCTL_DFS_GET_REFERRALS: responses of every version, and requests.
pub fn referrals(data: &[u8]) {
    settles(data, |bytes| {
        let found = dfs::ReferralResponse::parse(bytes)?;
        // Several entries may share one string. When encoded, each entry has its own copy, which
        // may be too long for one answer.
        found.encode().ok_or(Malformed::new("referrals too long for one answer"))
    });
    settles(data, |bytes| {
        let request = dfs::ReferralRequest::parse(bytes)?;
        let mut out = Vec::new();
        request.encode(&mut Writer::new(&mut out));
        Ok(out)
    });
}

/// By the first byte: a response, or what one carries.
pub fn responses(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    match kind % 8 {
        0 | 1 => response(data),
        2 => {
            if let Some((class, data)) = data.split_first() {
                let class = FileInfoClass(*class);
                if let Some(entries) = DirectoryEntries::new(data, class) {
                    entries.take_while(Result::is_ok).flatten().for_each(|entry| {
                        let _ = entry.name.decode();
                    });
                }
            }
        }
        3 => {
            NotifyEntries::new(data).for_each(drop);
            StreamEntries::new(data).for_each(drop);
        }
        4 => {
            let _ = FileAllInformation::parse(data);
            let _ = FileNameInformation::parse(data);
            let _ = FsVolumeInformation::parse(data);
            let _ = FsAttributeInformation::parse(data);
            let _ = PosixAttributes::parse(data);
        }
        5 => {
            let _ = network_interface::parse_list(data);
            let _ = snapshots::SnapshotArray::parse(data);
            let _ = validate_negotiate::Response::parse(data);
            let _ = copychunk::CopyResponse::parse(data);
            let _ = copychunk::ResumeKeyResponse::parse(data);
        }
        6 => rpc(data),
        _ => {
            let _ = SymlinkError::parse(data);
            let _ = ShareRedirect::parse(data);
        }
    }
}

fn response(data: &[u8]) {
    let Ok(header) = Header::parse(data) else { return };
    settles(data, |bytes| reencode(header.command, bytes));
    settles(data, |bytes| ErrorResponse::parse(bytes).map(|it| message(|w| it.encode(w))));
    let _ = oplock_break::Notification::parse(data);
    let _ = server_to_client_notification::Notification::parse(data);
    if let Ok(create) = create::Response::parse(data) {
        create.contexts.responses().for_each(drop);
    }
}

/// The client's end of a pipe: a bind and a call, then any answers.
fn rpc(data: &[u8]) {
    let mut data = data;
    let mut client = Client::new(SyntaxId::SRVSVC);
    let _ = client.bind();
    while let Some(bytes) = chunk(&mut data) {
        match client.handle_bind_reply(bytes) {
            Ok(true) => break,
            Ok(false) => {}
            Err(_) => return,
        }
    }
    let _ = client.call(15, &[0; 40]);
    while let Some(bytes) = chunk(&mut data) {
        match client.handle_bytes(bytes) {
            Ok(None) => {}
            Ok(Some(stub)) => {
                for level in [0, 1, 2, 501, 502] {
                    let _ = srvsvc::parse_share_info(&stub, level);
                    let _ = srvsvc::ShareEnumReply::parse(&stub, level);
                }
                return;
            }
            Err(_) => return,
        }
    }
}
