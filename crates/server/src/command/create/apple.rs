//! Apple's create context, AAPL: what macOS asks of a server when it mounts a
//! share. The layout is that of Apple's published SMB client, the behaviour
//! Samba's vfs_fruit where Apple says nothing.

use std::sync::atomic::Ordering;

use frevo_store::Fault;
use frevo_store::vfs::Opened;
use frevo_wire::Status;
use frevo_wire::codec::Writer;
use frevo_wire::command::create::CreateDisposition;
use frevo_wire::create_context::{
    AaplQuery, AaplQueryResponse, AaplRequested, AaplServerCapabilities, AaplVolumeCapabilities,
};
use frevo_wire::utf16::Utf16;

use super::creation::{Create, creates};
use crate::objects::tree_connect::TreeConnect;
use crate::shares::apple;
use crate::shares::share::Share;

/// Opens the file or stream that the request names. A stream that does not exist while it is
/// empty can be made but not found, even while others have it open.
///
/// `parent` is its directory, if that was opened just now.
pub(super) fn open_node(
    create: &Create<'_>,
    may_add: bool,
    parent: Option<&Opened>,
) -> Result<Opened, Fault> {
    let opened = create.open_node(may_add, false, parent);
    if create.name.stream().is_none() {
        return opened;
    }
    let is_apple = create.rq.tree().is_ok_and(|tree| is_client(tree, create.wanted.apple.as_ref()));
    let is_absent = |opened: &Opened| {
        !opened.created && apple::is_absent(&opened.name, &*opened.node, &opened.stat, is_apple)
    };
    let disposition = create.request.create_disposition;
    match opened {
        Ok(opened) if !creates(disposition) && is_absent(&opened) => Err(Fault::NotFound),
        Err(Fault::Exists) if disposition == CreateDisposition::CREATE => {
            let opened = create.open_node(may_add, true, None)?;
            if opened.created || is_absent(&opened) { Ok(opened) } else { Err(Fault::Exists) }
        }
        other => other,
    }
}

/// Reads the context. None for a query that is not supported, such as the path of a file id: it
/// gets no answer.
pub(super) fn parse(data: &[u8]) -> Result<Option<AaplQuery>, Status> {
    AaplQuery::parse(data).map_err(|_| Status::INVALID_PARAMETER)
}

/// Returns true if the client is macOS. Its first query marks the tree connect.
pub(super) fn is_client(tree: &TreeConnect, asked: Option<&AaplQuery>) -> bool {
    if let Some(query) = asked {
        tree.apple.store(true, Ordering::Relaxed);
        let entries = AaplServerCapabilities::SUPPORTS_READ_DIR_ATTR;
        let wants = query.requested.contains(AaplRequested::SERVER_CAPABILITIES)
            && query.client_capabilities.contains(entries);
        if wants {
            tree.apple_entries.store(true, Ordering::Relaxed);
        }
    }
    tree.apple.load(Ordering::Relaxed)
}

/// The capabilities of every share.
const SERVER_CAPABILITIES: AaplServerCapabilities = AaplServerCapabilities(
    AaplServerCapabilities::SUPPORTS_READ_DIR_ATTR.0
        | AaplServerCapabilities::SUPPORTS_OSX_COPYFILE.0
        | AaplServerCapabilities::UNIX_BASED.0
        | AaplServerCapabilities::SUPPORTS_NFS_ACE.0,
);

/// The answer: of what was asked about, what this server does.
///
/// SUPPORT_RESOLVE_ID is not promised: files are not opened by their number.
pub(super) fn answer(query: &AaplQuery, share: &Share, model: &str) -> Vec<u8> {
    let asked = |what| query.requested.contains(what);
    let mut volume = AaplVolumeCapabilities::EMPTY;
    if share.is_case_sensitive {
        volume |= AaplVolumeCapabilities::CASE_SENSITIVE;
    }
    // Each FLUSH of this server syncs the drive's cache. Still, only shares with `time_machine`
    // announce it, because macOS offers such volumes for Time Machine.
    if share.time_machine {
        volume |= AaplVolumeCapabilities::SUPPORTS_FULL_SYNC;
    }
    let model = asked(AaplRequested::MODEL_INFO).then(|| Utf16::from_str(model));
    let response = AaplQueryResponse {
        server_capabilities: asked(AaplRequested::SERVER_CAPABILITIES)
            .then_some(SERVER_CAPABILITIES),
        volume_capabilities: asked(AaplRequested::VOLUME_CAPABILITIES).then_some(volume),
        model,
    };
    let mut bytes = Vec::new();
    response.encode(&mut Writer::new(&mut bytes));
    bytes
}
