//! The rights on a file, by its security descriptor or else by the host: MS-FSA 2.1.5.1.2.1,
//! 2.1.5.14 and 2.1.5.17.

use frevo_store::security::posix_lists::Nearest;
use frevo_store::security::{HostAcl, Token, host, maximal};
use frevo_store::vfs::{HostAccess, Kind, Node, OpenHow, Opened, Security, SecurityChange, Vfs};
use frevo_store::{Fault, Name, Stat};
use frevo_wire::Status;
use frevo_wire::dtyp::{AccessMask, SecurityDescriptor, Sid};

use crate::shares::impersonation;

/// Rights that READONLY takes away from files.
pub(crate) const WRITES: AccessMask =
    AccessMask(AccessMask::WRITE_DATA.0 | AccessMask::APPEND_DATA.0);

/// Looks at what is there, a link itself included, and opens no data.
pub(crate) const LOOK: OpenHow = OpenHow { open_link: true, ..OpenHow::LOOK };

/// The descriptor that is stored for a file and in force, if there is one. One
/// that cannot be read lets nobody in.
///
/// # Errors
/// When the file system fails.
pub(crate) fn stored(node: &dyn Node) -> Result<Option<SecurityDescriptor>, Status> {
    let stored = node.stored_security().map_err(Fault::status)?;
    Ok(stored.map(|bytes| read(&bytes)))
}

/// Like [`stored`], for an object that has just been opened.
///
/// # Errors
/// When the file system fails.
pub(crate) fn stored_of(opened: &Opened) -> Result<Option<SecurityDescriptor>, Status> {
    let stored = opened.stored_security().map_err(Fault::status)?;
    Ok(stored.map(|bytes| read(&bytes)))
}

fn read(bytes: &[u8]) -> SecurityDescriptor {
    SecurityDescriptor::parse(bytes).unwrap_or_else(|_| SecurityDescriptor {
        dacl: Some(frevo_wire::dtyp::Acl::default()),
        ..SecurityDescriptor::default()
    })
}

/// The descriptor that clients see: the stored one, or one that says what the
/// host's permissions say to `token`.
///
/// # Errors
/// When the file system fails.
pub(crate) fn descriptor(
    node: &dyn Node,
    stat: &Stat,
    token: &Token,
) -> Result<SecurityDescriptor, Status> {
    Ok(match node.security().map_err(Fault::status)? {
        Security::Stored(bytes) => read(&bytes),
        Security::Host(acl) => of_host(stat, &acl, token, impersonation::uid_of(node)),
    })
}

/// The security descriptor of owner, group, mode and POSIX list. A file of the host's user
/// `uid`, as which the server works, belongs to every user: the host does not tell them apart.
pub(crate) fn of_host(stat: &Stat, acl: &HostAcl, token: &Token, uid: u32) -> SecurityDescriptor {
    let is_own = stat.uid == uid && *token.user() != Sid::ANONYMOUS;
    let owned = host::Owned {
        mode: stat.mode,
        owner: if is_own { *token.user() } else { Sid::unix_user(stat.uid) },
        group: Sid::unix_group(stat.gid),
        is_directory: stat.kind == Kind::Directory,
        uid: stat.uid,
    };
    host::descriptor(&owned, acl)
}

/// Everything that `token` may do with a file, READONLY left aside. Without a
/// stored descriptor that is what the host lets this process do.
///
/// # Errors
/// When the file system fails.
pub(crate) fn rights(node: &dyn Node, kind: Kind, token: &Token) -> Result<AccessMask, Status> {
    Ok(match stored(node)? {
        Some(descriptor) => maximal(&descriptor, token),
        None => host_rights(node.host_access(), kind != Kind::Directory),
    })
}

/// The rights that the host's permissions give.
pub(crate) fn host_rights(here: HostAccess, is_file: bool) -> AccessMask {
    let mut access = AccessMask::READ_ATTRIBUTES
        | AccessMask::READ_EA
        | AccessMask::READ_CONTROL
        | AccessMask::SYNCHRONIZE
        | AccessMask::DELETE;
    if here.read {
        access |= AccessMask::READ_DATA;
    }
    if here.write {
        access |= WRITES | AccessMask::WRITE_EA | AccessMask::WRITE_ATTRIBUTES;
        if !is_file {
            access |= AccessMask::DELETE_CHILD;
        }
    }
    if here.execute || here.read {
        access |= AccessMask::EXECUTE;
    }
    if here.owner {
        access |= host::OF_OWNERS | AccessMask::DELETE_CHILD;
    }
    access
}

/// The directory that a name is in, as [`Vfs::open_parent`] opens it; none for the share's
/// root.
///
/// # Errors
/// When it is not there or the file system fails.
pub(crate) fn parent(vfs: &dyn Vfs, name: &Name) -> Result<Option<Opened>, Fault> {
    if name.is_root() { Ok(None) } else { vfs.open_parent(name).map(Some) }
}

/// The right that adding an entry of this kind takes on its directory.
pub(crate) const fn adding(is_directory: bool) -> AccessMask {
    // On a directory these bits mean FILE_ADD_SUBDIRECTORY (APPEND_DATA) and FILE_ADD_FILE
    // (WRITE_DATA).
    if is_directory { AccessMask::APPEND_DATA } else { AccessMask::WRITE_DATA }
}

/// Checks that `token` may add an entry to a directory, by the stored descriptor: the host
/// checks its own permissions when the entry is made.
///
/// # Errors
/// ACCESS_DENIED when it may not.
pub(crate) fn may_add(parent: &dyn Node, token: &Token, is_directory: bool) -> Result<(), Status> {
    match stored(parent)? {
        Some(descriptor) if !maximal(&descriptor, token).contains(adding(is_directory)) => {
            Err(Status::ACCESS_DENIED)
        }
        _ => Ok(()),
    }
}

/// Checks that `token` may remove the file `name`, by a right on the file or on its directory.
///
/// # Errors
/// ACCESS_DENIED when it may not.
pub(crate) fn may_remove(vfs: &dyn Vfs, name: &Name, token: &Token) -> Result<(), Status> {
    let there = vfs.open(name, &LOOK).map_err(Fault::status)?;
    if rights(&*there.node, there.stat.kind, token)?.contains(AccessMask::DELETE) {
        return Ok(());
    }
    let parent = parent(vfs, name).map_err(Fault::status)?.ok_or(Status::ACCESS_DENIED)?;
    let rights = rights(&*parent.node, parent.stat.kind, token)?;
    if rights.contains(AccessMask::DELETE_CHILD) { Ok(()) } else { Err(Status::ACCESS_DENIED) }
}

/// Stores a descriptor, and as the host's permissions what comes nearest. Where
/// descriptors are not stored those are all that is set.
///
/// On a share that acts as its users these are POSIX lists too, `nearest`. Elsewhere the server's own
/// user keeps what it needs to serve the file.
///
/// # Errors
/// INVALID_ACL for lists that are too long, and what the file system says: NOT_SUPPORTED where it has
/// no POSIX lists and `nearest` names others than owner and group.
pub(crate) fn store(
    vfs: &dyn Vfs,
    node: &dyn Node,
    stat: &Stat,
    descriptor: &SecurityDescriptor,
    nearest: Option<&Nearest>,
) -> Result<(), Status> {
    let needed = if stat.kind == Kind::Directory { 0o700 } else { 0o600 };
    let mode = nearest.map_or_else(|| host::mode(descriptor) | needed, |nearest| nearest.mode);
    let lists = nearest.map(|nearest| &nearest.lists);
    let change = SecurityChange { mode: Some(mode), lists, ..SecurityChange::default() };
    store_with(vfs, node, descriptor, change)
}

/// Stores a descriptor whose list says what the host's permissions do. These stay.
///
/// # Errors
/// INVALID_ACL for lists that are too long, and what the file system says.
pub(crate) fn store_beside(
    vfs: &dyn Vfs,
    node: &dyn Node,
    descriptor: &SecurityDescriptor,
) -> Result<(), Status> {
    store_with(vfs, node, descriptor, SecurityChange::default())
}

fn store_with(
    vfs: &dyn Vfs,
    node: &dyn Node,
    descriptor: &SecurityDescriptor,
    change: SecurityChange<'_>,
) -> Result<(), Status> {
    let mut bytes = Vec::new();
    descriptor.encode(&mut bytes).map_err(|_| Status::INVALID_ACL)?;
    let stores = vfs.volume().descriptors;
    let change = SecurityChange { descriptor: stores.then_some(&bytes[..]), ..change };
    node.set_security(&change).map_err(Fault::status)
}
