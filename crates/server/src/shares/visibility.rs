//! Access-based enumeration: on a share that hides what cannot be read, such a
//! thing does not exist for the user. MS-SMB2 3.3.5.9 and 3.3.5.18.

use frevo_store::security::Token;
use frevo_store::vfs::{Kind, Node, Vfs, VfsResult};
use frevo_store::{Fault, Name};
use frevo_wire::Status;
use frevo_wire::dtyp::AccessMask;

use crate::base::host;
use crate::shares::protection::{self, LOOK};

/// GENERIC_READ; of a directory READ_DATA is FILE_LIST_DIRECTORY.
const READ: AccessMask = AccessMask::FILE_GENERIC_READ;

/// True when a user with these rights sees the file.
pub(crate) const fn shows(rights: AccessMask) -> bool {
    rights.contains(READ)
}

/// True when `viewer` sees the file with this name. A file that has gone, or cannot be
/// reached, is not seen.
///
/// # Errors
/// When the file system fails.
pub(crate) fn is_visible(vfs: &dyn Vfs, name: &Name, viewer: &Token) -> VfsResult<bool> {
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

/// The rights of `viewer`; none when they cannot be found out.
fn rights(node: &dyn Node, kind: Kind, viewer: &Token) -> Option<AccessMask> {
    protection::rights(node, kind, viewer).ok()
}

/// The status of an open that `status` refuses: `status` if the user may know of the file,
/// else the status for a missing file. Both take the same steps, whether or not there is a
/// file.
pub(crate) fn refusal(vfs: &dyn Vfs, name: &Name, viewer: &Token, status: Status) -> Status {
    let file = name.with_stream(None);
    let around = vfs.open(&file.parent(), &LOOK);
    match vfs.open(&file, &LOOK) {
        Ok(opened) => {
            let rights = rights(&*opened.node, opened.stat.kind, viewer);
            // The owner may always give itself the right to read (WRITE_DAC), so the file need not
            // be hidden from it.
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
            // The rights of the directory are looked up as many times as the rights of a hidden
            // file would be, so that the time of the answer does not reveal if the file exists.
            if let Ok(around) = &around {
                for _ in 0..2 {
                    let _ = rights(&*around.node, around.stat.kind, viewer);
                }
            }
            absence(vfs, &file, viewer)
        }
        // The path leads through a link of DFS, which is told to those who see it.
        Err(Fault::NotCovered | Fault::DfsUnavailable) => {
            if is_way_visible(vfs, &file, viewer) {
                status
            } else {
                Status::OBJECT_PATH_NOT_FOUND
            }
        }
        // The path contains a link, or the file system failed, so this status reveals nothing about
        // the file.
        Err(_) => status,
    }
}

/// True when `viewer` sees a link of DFS: the directories that lead to it, and the one at its place.
pub(crate) fn is_link_visible(vfs: &dyn Vfs, link: &Name, viewer: &Token) -> bool {
    is_way_visible(vfs, link, viewer) && is_visible(vfs, link, viewer).unwrap_or(false)
}

/// The status of a CREATE that may make a file and that `status` refuses.
/// A taken name cannot be hidden from a user that may add files: the answer says that the name
/// is taken, and no more. A user that may not (`may_add`) gets that answer, whether the name
/// is taken or not.
pub(crate) fn refusal_to_make(
    vfs: &dyn Vfs,
    name: &Name,
    viewer: &Token,
    status: Status,
    may_add: bool,
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

/// The status for a missing name: a hidden directory on the way to it counts as missing too.
fn absence(vfs: &dyn Vfs, name: &Name, viewer: &Token) -> Status {
    if is_way_visible(vfs, name, viewer) {
        Status::OBJECT_NAME_NOT_FOUND
    } else {
        Status::OBJECT_PATH_NOT_FOUND
    }
}

/// True when `viewer` sees all directories that lead to a name. False also for a path that is too
/// long to be checked on a core: the request begins again on a thread.
pub(crate) fn is_way_visible(vfs: &dyn Vfs, name: &Name, viewer: &Token) -> bool {
    if host::gives_up(name.components().count()) {
        return false;
    }
    let mut way = name.parent();
    while !way.is_root() {
        // Behind a link of DFS is nothing of this server; the link itself comes later on the way.
        let is_beyond = |fault| matches!(fault, Fault::NotCovered | Fault::DfsUnavailable);
        if !is_visible(vfs, &way, viewer).unwrap_or_else(is_beyond) {
            return false;
        }
        way = way.parent();
    }
    true
}

/// True when `viewer` may list every folder between `directory` and these names below it. The
/// viewer has `directory` open for listing.
pub(crate) fn are_listed<'a>(
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

/// True when `viewer` sees all files of these names below `directory` now. A file that has
/// gone is not seen.
pub(crate) fn are_visible<'a>(
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
