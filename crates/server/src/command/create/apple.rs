//! Apple's create context, AAPL: what macOS asks of a server when it mounts a
//! share. The layout is that of Apple's published SMB client, the behaviour
//! Samba's vfs_fruit where Apple says nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use frevo_store::Fault;
use frevo_store::vfs::Opened;
use frevo_wire::Status;
use frevo_wire::codec::Writer;
use frevo_wire::command::create::CreateDisposition;
use frevo_wire::create_context::{
    AaplQuery, AaplQueryResponse, AaplRequested, AaplServerCapabilities, AaplVolumeCapabilities,
};
use frevo_wire::utf16::Utf16;

use super::{Create, creates};
use crate::apple;
use crate::share::Share;

/// Opens what the request names. A stream that its rules say is not there yet is
/// found by nobody and made by anybody, whoever else has it open.
pub(super) fn open_node(create: &Create<'_>, may_add: bool) -> Result<Opened, Fault> {
    let opened = create.open_node(may_add, false);
    if create.name.stream().is_none() {
        return opened;
    }
    let is_apple =
        create.rq.tree().is_ok_and(|tree| is_client(&tree.apple, create.wanted.apple.as_ref()));
    let is_absent = |opened: &Opened| {
        !opened.created && apple::is_absent(&opened.name, &*opened.node, &opened.stat, is_apple)
    };
    let disposition = create.request.create_disposition;
    match opened {
        Ok(opened) if !creates(disposition) && is_absent(&opened) => Err(Fault::NotFound),
        Err(Fault::Exists) if disposition == CreateDisposition::CREATE => {
            let opened = create.open_node(may_add, true)?;
            if opened.created || is_absent(&opened) { Ok(opened) } else { Err(Fault::Exists) }
        }
        other => other,
    }
}

/// Reads the context. None for what is no server query (to find a path by a
/// file id is not promised): it gets no answer.
pub(super) fn parse(data: &[u8]) -> Result<Option<AaplQuery>, Status> {
    AaplQuery::parse(data).map_err(|_| Status::INVALID_PARAMETER)
}

/// Notes on the tree connect that its client is macOS once it has asked; whether
/// it is.
pub(super) fn is_client(seen: &AtomicBool, asked: Option<&AaplQuery>) -> bool {
    if asked.is_some() {
        seen.store(true, Ordering::Relaxed);
    }
    asked.is_some() || seen.load(Ordering::Relaxed)
}

/// The answer: of what was asked about, what this server does.
///
/// SUPPORTS_READ_DIR_ATTR, SUPPORTS_OSX_COPYFILE, UNIX_BASED, SUPPORTS_NFS_ACE and
/// SUPPORT_RESOLVE_ID are not promised: none of them is done.
pub(super) fn answer(query: &AaplQuery, share: &Share, model: &str) -> Vec<u8> {
    let asked = |what| query.requested.contains(what);
    let mut volume = AaplVolumeCapabilities::EMPTY;
    if share.is_case_sensitive {
        volume |= AaplVolumeCapabilities::CASE_SENSITIVE;
    }
    // FLUSH always reaches the drive; macOS takes the promise for leave to back
    // up here, which is for the owner of the share to give.
    if share.time_machine {
        volume |= AaplVolumeCapabilities::SUPPORTS_FULL_SYNC;
    }
    let model = asked(AaplRequested::MODEL_INFO).then(|| Utf16::from_str(model));
    let response = AaplQueryResponse {
        server_capabilities: asked(AaplRequested::SERVER_CAPABILITIES)
            .then_some(AaplServerCapabilities::EMPTY),
        volume_capabilities: asked(AaplRequested::VOLUME_CAPABILITIES).then_some(volume),
        model,
    };
    let mut bytes = Vec::new();
    response.encode(&mut Writer::new(&mut bytes));
    bytes
}
