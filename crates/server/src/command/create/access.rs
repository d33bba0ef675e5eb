//! Open.GrantedAccess: MS-FSA 2.1.5.1.2.1 in the terms of the host.

use frevo_store::vfs::{HostAccess, Kind, Opened};
use frevo_wire::Status;
use frevo_wire::command::create::{CreateAction, CreateOptions};
use frevo_wire::dtyp::{AccessMask, FileAttributes};

use super::{Create, timewarp};

/// Rights that READONLY takes away from files.
const WRITES: AccessMask = AccessMask(AccessMask::WRITE_DATA.0 | AccessMask::APPEND_DATA.0);

/// What the Open is granted, or the status that refuses it.
pub(super) fn grant(
    create: &Create<'_>,
    opened: &Opened,
    action: CreateAction,
) -> Result<AccessMask, Status> {
    let read_only = opened.stat.attributes.contains(FileAttributes::READONLY);
    let is_file = opened.stat.kind != Kind::Directory;
    // A new stream of a file that was there changes that file.
    let existed = !opened.file_created;
    let overwritten = matches!(action, CreateAction::OVERWRITTEN | CreateAction::SUPERSEDED);
    if existed
        && is_file
        && read_only
        && (overwritten || opened.created || create.desired.intersects(WRITES))
    {
        return Err(Status::ACCESS_DENIED);
    }
    if create.has(CreateOptions::DELETE_ON_CLOSE) {
        if read_only {
            return Err(Status::CANNOT_DELETE);
        }
        if create.name.is_root() {
            return Err(Status::ACCESS_DENIED);
        }
    }
    if !create.desired.contains(AccessMask::MAXIMUM_ALLOWED) {
        return Ok(create.desired);
    }
    let explicit = create.desired.without(AccessMask::MAXIMUM_ALLOWED);
    Ok(explicit | maximal(create, opened.node.host_access(), opened.stat.attributes, is_file))
}

/// The most that this user could be granted.
pub(super) fn maximal(
    create: &Create<'_>,
    host: HostAccess,
    attributes: FileAttributes,
    is_file: bool,
) -> AccessMask {
    let mut access = AccessMask::READ_ATTRIBUTES
        | AccessMask::READ_EA
        | AccessMask::READ_CONTROL
        | AccessMask::SYNCHRONIZE
        | AccessMask::DELETE;
    if host.read {
        access |= AccessMask::READ_DATA;
    }
    if host.write {
        access |= WRITES | AccessMask::WRITE_EA | AccessMask::WRITE_ATTRIBUTES;
        if !is_file {
            access |= AccessMask::DELETE_CHILD;
        }
    }
    if host.execute || host.read {
        access |= AccessMask::EXECUTE;
    }
    if host.owner {
        access |= AccessMask::WRITE_DAC
            | AccessMask::WRITE_OWNER
            | AccessMask::WRITE_ATTRIBUTES
            | AccessMask::WRITE_EA
            | AccessMask::DELETE_CHILD;
    }
    if is_file && attributes.contains(FileAttributes::READONLY) {
        access = access.without(WRITES | AccessMask::DELETE_CHILD);
    }
    let share = create.rq.tree().map_or(AccessMask::EMPTY, |tree| tree.maximal_access);
    timewarp::readable(create.vfs.volume().read_only, access & share)
}
