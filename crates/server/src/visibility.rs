//! Access-based enumeration: on a share that hides what cannot be read, such a
//! thing does not exist for the user. MS-SMB2 3.3.5.9 and 3.3.5.18.

use std::sync::Arc;

use frevo_store::security::Token;
use frevo_store::vfs::{Kind, Node, Vfs, VfsResult};
use frevo_store::{Fault, Name};
use frevo_wire::Status;
use frevo_wire::dtyp::AccessMask;

use crate::protection::{self, LOOK};
use crate::tree_connect::TreeConnect;

/// GENERIC_READ; of a directory READ_DATA is FILE_LIST_DIRECTORY.
const READ: AccessMask = AccessMask::FILE_GENERIC_READ;

/// Whose eyes decide, on a share that hides.
pub fn viewer(tree: &TreeConnect) -> Option<Arc<Token>> {
    tree.share.hide_unreadable.then(|| tree.token())
}

/// Whether whoever has these rights on something sees it.
pub const fn shows(rights: AccessMask) -> bool {
    rights.contains(READ)
}

/// Whether `viewer` sees what has this name. What has gone meanwhile, or is
/// where it cannot be reached, is not seen.
///
/// # Errors
/// When the file system fails.
pub fn is_visible(vfs: &dyn Vfs, name: &Name, viewer: &Token) -> VfsResult<bool> {
    match vfs.open(name, &LOOK) {
        Ok(opened) => Ok(rights(&*opened.node, opened.stat.kind, viewer).is_some_and(shows)),
        Err(
            Fault::NotFound
            | Fault::PathNotFound
            | Fault::PathNotDirectory
            | Fault::AccessDenied
            | Fault::Symlink
            | Fault::Stale,
        ) => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// What `viewer` may do; none when that cannot be found out.
fn rights(node: &dyn Node, kind: Kind, viewer: &Token) -> Option<AccessMask> {
    protection::rights(node, kind, viewer).ok()
}

/// What an open is answered that `status` was to refuse: that, if the user may
/// know of the file, and else what he would be answered if there were none. Both
/// take the same steps, whether or not there is a file.
pub fn refusal(vfs: &dyn Vfs, name: &Name, viewer: &Token, status: Status) -> Status {
    let file = name.with_stream(None);
    let around = vfs.open(&file.parent(), &LOOK);
    match vfs.open(&file, &LOOK) {
        Ok(opened) => {
            let rights = rights(&*opened.node, opened.stat.kind, viewer);
            // Its owner can name what he can let himself read.
            let knows = |rights| shows(rights) || rights.contains(AccessMask::WRITE_DAC);
            if rights.is_some_and(knows) { status } else { absence(vfs, &file, viewer) }
        }
        Err(
            Fault::NotFound
            | Fault::PathNotFound
            | Fault::PathNotDirectory
            | Fault::AccessDenied
            | Fault::Stale,
        ) => {
            // As much is asked of its directory as was asked of a file that is hidden,
            // here and where its rights were not enough.
            if let Ok(around) = &around {
                for _ in 0..2 {
                    let _ = rights(&*around.node, around.stat.kind, viewer);
                }
            }
            absence(vfs, &file, viewer)
        }
        // A link on the way, or a file system that fails.
        Err(_) => status,
    }
}

/// What a CREATE that may make a file is answered that `status` was to refuse.
///
/// That a name is taken can be hidden from nobody who may use it: he is told
/// just that. Who may not add anything (`may_add`) is told that, whether the
/// name is taken or not.
pub fn refusal_to_make(
    vfs: &dyn Vfs,
    name: &Name,
    viewer: &Token,
    (status, may_add): (Status, bool),
) -> Status {
    let file = name.with_stream(None);
    if !is_way_visible(vfs, &file, viewer) {
        return Status::OBJECT_PATH_NOT_FOUND;
    }
    let is_there = match vfs.open(&file, &LOOK) {
        Ok(opened) => {
            let knows =
                |rights: AccessMask| shows(rights) || rights.contains(AccessMask::WRITE_DAC);
            if rights(&*opened.node, opened.stat.kind, viewer).is_some_and(knows) {
                return status;
            }
            true
        }
        Err(Fault::NotFound | Fault::Stale) => false,
        Err(_) => return status,
    };
    match (may_add, is_there) {
        (false, _) => Status::ACCESS_DENIED,
        (true, true) => Status::OBJECT_NAME_COLLISION,
        (true, false) => status,
    }
}

/// What is answered for a name that means nothing: a directory on the way to it
/// that cannot be seen is not there either.
fn absence(vfs: &dyn Vfs, name: &Name, viewer: &Token) -> Status {
    if is_way_visible(vfs, name, viewer) {
        Status::OBJECT_NAME_NOT_FOUND
    } else {
        Status::OBJECT_PATH_NOT_FOUND
    }
}

/// Whether `viewer` sees all directories that lead to a name.
pub fn is_way_visible(vfs: &dyn Vfs, name: &Name, viewer: &Token) -> bool {
    let mut way = name.parent();
    while !way.is_root() {
        if !is_visible(vfs, &way, viewer).unwrap_or(false) {
            return false;
        }
        way = way.parent();
    }
    true
}

/// Whether `viewer` may list every folder between `directory` and what has these names
/// below it. He has it open for listing himself.
pub fn are_listed<'a>(
    vfs: &dyn Vfs,
    directory: &Name,
    names: impl IntoIterator<Item = &'a str>,
    viewer: &Token,
) -> bool {
    names.into_iter().all(|name| {
        let mut folder = directory.clone();
        let Some((way, _)) = name.rsplit_once('\\') else { return true };
        way.split('\\').all(|part| {
            folder = folder.child(part).with_stream(None);
            lists(vfs, &folder, viewer)
        })
    })
}

fn lists(vfs: &dyn Vfs, folder: &Name, viewer: &Token) -> bool {
    let Ok(opened) = vfs.open(folder, &LOOK) else { return false };
    let rights = rights(&*opened.node, opened.stat.kind, viewer);
    rights.is_some_and(|rights| rights.contains(AccessMask::READ_DATA))
}

/// Whether `viewer` sees everything of these names below `directory` now. What
/// has gone cannot be seen.
pub fn are_visible<'a>(
    vfs: &dyn Vfs,
    directory: &Name,
    names: impl IntoIterator<Item = &'a str>,
    viewer: &Token,
) -> bool {
    names.into_iter().all(|name| {
        let parts = name.split('\\');
        let name = parts.fold(directory.clone(), |way, part| way.child(part)).with_stream(None);
        is_way_visible(vfs, &name, viewer) && is_visible(vfs, &name, viewer).unwrap_or(false)
    })
}
