//! Open.GrantedAccess: MS-FSA 2.1.5.1.1 and 2.1.5.1.2.1. Everything here comes
//! before a file is made, emptied or given a place among its Opens.

use frevo_store::security::inherit::new_object;
use frevo_store::security::posix_lists::Nearest;
use frevo_store::security::set::Refused;
use frevo_store::security::{HostAcl, Privileges, Token, check, maximal as maximal_of};
use frevo_store::vfs::{Kind, Opened, Security};
use frevo_store::{Fault, Node, Stat};
use frevo_wire::Status;
use frevo_wire::command::create::{CreateAction, CreateDisposition, CreateOptions};
use frevo_wire::dtyp::{AccessMask, FileAttributes, SecurityDescriptor};

use super::creation::Create;
use super::timewarp;
use crate::base::host;
use crate::command::host_lists::{self, Identities, are_needed};
use crate::shares::protection::{self, WRITES};
use crate::shares::visibility;

/// The access that the Open is granted.
pub(super) fn grant(
    create: &Create<'_>,
    opened: &Opened,
    action: CreateAction,
) -> Result<AccessMask, Status> {
    let read_only = opened.stat.attributes.contains(FileAttributes::READONLY);
    let is_file = opened.stat.kind != Kind::Directory;
    // A new stream changes an existing file, so READONLY forbids it like an overwrite.
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
        // READONLY forbids deletion, but not to a POSIX client.
        if read_only && create.posix.is_none() {
            return Err(Status::CANNOT_DELETE);
        }
        if create.name.is_root() {
            return Err(Status::ACCESS_DENIED);
        }
    }
    let token = create.token();
    if !existed && create.name.stream().is_none() {
        // MS-FSA 2.1.5.1.1: the CREATE makes a new file, so it gets all the access that it asks
        // for.
        let most = if create.desired.contains(AccessMask::MAXIMUM_ALLOWED) {
            within_share(create, AccessMask::FILE_ALL)
        } else {
            AccessMask::EMPTY
        };
        return Ok(create.desired.without(AccessMask::MAXIMUM_ALLOWED) | most);
    }
    match protection::stored_of(opened)? {
        Some(descriptor) => granted(create, opened, &token, &descriptor, needed(action)),
        None => host_granted(create, opened),
    }
}

/// The rights that a disposition needs, whether they are asked for or not.
///
/// Deviation: MS-FSA 2.1.5.1.2 wants DELETE alone for FILE_SUPERSEDE, which the
/// directory may grant. A file whose list forbids writing is not emptied.
const fn needed(action: CreateAction) -> AccessMask {
    match action {
        CreateAction::OVERWRITTEN => AccessMask::WRITE_DATA,
        CreateAction::SUPERSEDED => AccessMask(AccessMask::WRITE_DATA.0 | AccessMask::DELETE.0),
        _ => AccessMask::EMPTY,
    }
}

/// The access by the file's descriptor, and where that refuses it by its directory's.
fn granted(
    create: &Create<'_>,
    opened: &Opened,
    token: &Token,
    descriptor: &SecurityDescriptor,
    needed: AccessMask,
) -> Result<AccessMask, Status> {
    let maximum = create.desired.contains(AccessMask::MAXIMUM_ALLOWED);
    let named = create.desired.without(AccessMask::MAXIMUM_ALLOWED);
    let missing = match check(descriptor, token, named | needed) {
        Ok(_) => AccessMask::EMPTY,
        Err(denied) if denied.lacks_privilege => return Err(Status::PRIVILEGE_NOT_HELD),
        Err(denied) => denied.missing,
    };
    let by_parent = AccessMask::DELETE | AccessMask::READ_ATTRIBUTES;
    if !maximum && missing.is_empty() {
        return Ok(named);
    }
    if !missing.without(by_parent).is_empty() {
        return Err(Status::ACCESS_DENIED);
    }
    // Some rights, such as deletion, come from the directory. They do not make a hidden file
    // visible, so only rights on the file itself count.
    let own = maximal_of(descriptor, token);
    let given = if hides(create, own) {
        if own.without(AccessMask::SYNCHRONIZE).is_empty() {
            return Err(Status::ACCESS_DENIED);
        }
        AccessMask::EMPTY
    } else {
        given_by_parent(create, opened, token)?
    };
    if !missing.without(given).is_empty() {
        return Err(Status::ACCESS_DENIED);
    }
    if !maximum {
        return Ok(named);
    }
    Ok(named | within_share(create, readable(opened, own | given)))
}

/// MS-FSA 2.1.5.1.2.1: the right to delete children of the directory allows deleting the file,
/// and the right to list the directory allows reading its attributes.
fn given_by_parent(
    create: &Create<'_>,
    opened: &Opened,
    token: &Token,
) -> Result<AccessMask, Status> {
    let parent = match protection::parent(&**create.vfs, &opened.name) {
        Ok(Some(parent)) => parent,
        Ok(None) | Err(Fault::NotFound | Fault::PathNotFound | Fault::AccessDenied) => {
            return Ok(AccessMask::EMPTY);
        }
        Err(fault) => return Err(fault.status()),
    };
    let rights = protection::rights(&*parent.node, Kind::Directory, token)?;
    let mut given = AccessMask::EMPTY;
    if rights.contains(AccessMask::DELETE_CHILD) {
        given |= AccessMask::DELETE;
    }
    if rights.contains(AccessMask::READ_DATA) {
        given |= AccessMask::READ_ATTRIBUTES;
    }
    Ok(given)
}

/// True when a file with these rights is hidden from the user.
fn hides(create: &Create<'_>, rights: AccessMask) -> bool {
    create.rq.tree().is_ok_and(|tree| tree.share.hide_unreadable) && !visibility::shows(rights)
}

/// The access by the host, which has opened the data as far as it is asked for.
fn host_granted(create: &Create<'_>, opened: &Opened) -> Result<AccessMask, Status> {
    let named = create.desired.without(AccessMask::MAXIMUM_ALLOWED);
    let is_file = opened.stat.kind != Kind::Directory;
    let most = || protection::host_rights(opened.node.host_access(), is_file);
    let discreet = create.rq.tree().is_ok_and(|tree| tree.share.hide_unreadable);
    if discreet && hides(create, most()) {
        return Err(Status::ACCESS_DENIED);
    }
    if !create.desired.contains(AccessMask::MAXIMUM_ALLOWED) {
        return Ok(named);
    }
    let most = most();
    Ok(named | within_share(create, readable(opened, most)))
}

/// Without what READONLY takes away.
fn readable(opened: &Opened, most: AccessMask) -> AccessMask {
    without_read_only(&opened.stat, most)
}

fn without_read_only(stat: &Stat, most: AccessMask) -> AccessMask {
    let is_file = stat.kind != Kind::Directory;
    if is_file && stat.attributes.contains(FileAttributes::READONLY) {
        most.without(WRITES | AccessMask::DELETE_CHILD)
    } else {
        most
    }
}

fn within_share(create: &Create<'_>, access: AccessMask) -> AccessMask {
    let share = create.rq.tree().map_or(AccessMask::EMPTY, |tree| tree.maximal_access);
    timewarp::readable(create.vfs.volume().read_only, access & share)
}

/// The most that this user could be granted: SMB2_CREATE_QUERY_MAXIMAL_ACCESS.
pub(super) fn maximal(
    create: &Create<'_>,
    node: &dyn Node,
    stat: &Stat,
) -> Result<AccessMask, Status> {
    let token = create.token();
    let mut most = protection::rights(node, stat.kind, &token)?;
    if !most.contains(AccessMask::DELETE | AccessMask::READ_ATTRIBUTES)
        && let Ok(Some(parent)) = protection::parent(&**create.vfs, &create.name)
    {
        let rights = protection::rights(&*parent.node, Kind::Directory, &token)?;
        if rights.contains(AccessMask::DELETE_CHILD) {
            most |= AccessMask::DELETE;
        }
        if rights.contains(AccessMask::READ_DATA) {
            most |= AccessMask::READ_ATTRIBUTES;
        }
    }
    // MS-SMB2 3.3.5.9.5, note 333: the maximal access follows from the security descriptor alone;
    // READONLY does not reduce it.
    Ok(within_share(create, most))
}

/// The rules of a new file's directory.
pub(super) struct Nursery<'a> {
    /// True when the user may make a file of the wanted kind here.
    pub(super) may_add: bool,
    /// The directory's descriptor, when one is stored.
    descriptor: Option<SecurityDescriptor>,
    /// The SIDs of the new file's list on the host, on a share that acts as its users.
    known: Option<Box<Identities<'a>>>,
    /// A stream is made of a file that is there: it keeps its protection.
    is_protected: bool,
    /// The directory, until the first attempt to make the file in it.
    pub(super) parent: Option<Opened>,
}

impl<'a> Nursery<'a> {
    const OPEN: Self =
        Self { may_add: true, descriptor: None, known: None, is_protected: false, parent: None };

    /// Looks up the SIDs of the list that a new file gets, where the kernel must know it.
    ///
    /// # Errors
    /// IO_TIMEOUT when the directory changes all the time, and what the directory says after a wait.
    pub(super) async fn identify(&mut self, create: &Create<'a>) -> Result<(), Status> {
        if !self.needs_identities(create) {
            return Ok(());
        }
        // The future is boxed, so that requests for other shares need no memory for its state.
        Box::pin(self.identify_all(create)).await
    }

    fn needs_identities(&self, create: &Create<'a>) -> bool {
        let has_list = self.descriptor.is_some() || create.wanted.security.is_some();
        has_list && !self.is_protected && create.rq.tree().is_ok_and(|tree| are_needed(tree))
    }

    /// Looks at the directory again after each wait, in which it may have got another list, or may have
    /// been deleted.
    async fn identify_all(&mut self, create: &Create<'a>) -> Result<(), Status> {
        for _ in 0..LOOKS {
            let lists: Vec<_> = create.wanted.security.iter().chain(&self.descriptor).collect();
            let known = Box::new(host_lists::identities(create.rq, &lists).await?);
            if !known.has_waited() {
                self.known = Some(known);
                return Ok(());
            }
            let now = nursery(create)?;
            let is_same = now.descriptor == self.descriptor;
            *self = Self { known: is_same.then_some(known), ..now };
            if is_same || !self.needs_identities(create) {
                return Ok(());
            }
        }
        Err(Status::IO_TIMEOUT)
    }
}

/// Looks at a directory whose list has changed each time that its SIDs were looked up.
const LOOKS: usize = 3;

/// Looks at the directory before anything is made in it: MS-FSA 2.1.5.1.1 wants
/// FILE_ADD_FILE or FILE_ADD_SUBDIRECTORY there.
pub(super) fn nursery<'a>(create: &Create<'a>) -> Result<Nursery<'a>, Status> {
    let makes = !matches!(
        create.request.create_disposition,
        CreateDisposition::OPEN | CreateDisposition::OVERWRITE
    );
    if !makes {
        return Ok(Nursery::OPEN);
    }
    let stores = create.vfs.volume().descriptors;
    if stores && let Some(nursery) = of_stream(create)? {
        return Ok(nursery);
    }
    let parent = match protection::parent(&**create.vfs, &create.name) {
        Ok(Some(parent)) => parent,
        // The parent cannot be opened. The CREATE itself will fail and report the error.
        _ => return Ok(Nursery::OPEN),
    };
    // MS-FSA 2.1.5.1, phase 6: nothing is made in a directory that is about to be deleted. It is empty,
    // so nothing can be opened in it either.
    let above = create.rq.server().files.find(parent.stat.key);
    if above.is_some_and(|cell| cell.lock().is_delete_pending()) {
        return Err(Status::DELETE_PENDING);
    }
    if !stores {
        return Ok(Nursery { parent: Some(parent), ..Nursery::OPEN });
    }
    let descriptor = protection::stored_of(&parent)?;
    // The new object gets as long a list, which some file systems write to the medium at once.
    let list = descriptor.as_ref().and_then(|descriptor| descriptor.dacl.as_ref());
    if host::gives_up(list.map_or(0, |list| list.aces.len())) {
        return Err(Fault::Leased.status());
    }
    let right = protection::adding(create.has(CreateOptions::DIRECTORY_FILE));
    let may_add = descriptor
        .as_ref()
        .is_none_or(|descriptor| maximal_of(descriptor, &create.token()).contains(right));
    Ok(Nursery { may_add, descriptor, parent: Some(parent), ..Nursery::OPEN })
}

/// True when the directory's descriptor, or the host, lets the user add the file.
pub(super) fn may_add(create: &Create<'_>, token: &Token) -> bool {
    let Ok(Some(parent)) = protection::parent(&**create.vfs, &create.name) else { return false };
    let right = protection::adding(create.has(CreateOptions::DIRECTORY_FILE));
    protection::rights(&*parent.node, Kind::Directory, token)
        .is_ok_and(|rights| rights.contains(right))
}

/// A stream of a file that is there is made in the file: that takes the right to
/// write it.
fn of_stream<'a>(create: &Create<'a>) -> Result<Option<Nursery<'a>>, Status> {
    if create.name.stream().is_none() {
        return Ok(None);
    }
    let file = match create.vfs.open(&create.name.with_stream(None), &protection::LOOK) {
        Ok(file) => file,
        Err(Fault::NotFound) => return Ok(None),
        // The file cannot be opened. The CREATE itself will fail and report the error.
        Err(_) => return Ok(Some(Nursery::OPEN)),
    };
    let stored = protection::stored_of(&file)?;
    let may_add = stored.is_none_or(|descriptor| {
        maximal_of(&descriptor, &create.token()).contains(AccessMask::WRITE_DATA)
    });
    Ok(Some(Nursery { may_add, is_protected: true, ..Nursery::OPEN }))
}

/// Gives a new file the descriptor that came with the request or that its
/// directory passes on. Where there is neither the host's permissions are all.
pub(super) fn protect(
    create: &Create<'_>,
    opened: &Opened,
    nursery: &Nursery<'_>,
) -> Result<(), Status> {
    let given = create.wanted.security.as_ref();
    if !opened.created || nursery.is_protected {
        return Ok(());
    }
    if given.is_none() && nursery.descriptor.is_none() {
        return Ok(());
    }
    let token = create.token();
    if given.is_some_and(|given| given.sacl.is_some()) && !token.holds(Privileges::SECURITY) {
        return Err(Status::PRIVILEGE_NOT_HELD);
    }
    let is_directory = opened.stat.kind == Kind::Directory;
    let parent = nursery.descriptor.clone().unwrap_or_default();
    let made = new_object(&parent, given, &token, is_directory).map_err(refused)?;
    let Some(known) = nursery.known.as_deref() else {
        return or_unsupported(protection::store(
            &**create.vfs,
            &*opened.node,
            &opened.stat,
            &made,
            None,
        ));
    };
    let path = create.name.path();
    let nearest = match known.nearest(&*opened.node, &opened.stat, &made, &token) {
        Ok(nearest) => nearest,
        Err(_) if given.is_none() && has_list_of_directory(opened)? => {
            return or_unsupported(protection::store_beside(&**create.vfs, &*opened.node, &made));
        }
        Err(status) => {
            known.tell_no_answer(path);
            return Err(status);
        }
    };
    if let Some(given) = given {
        known.check(path, &nearest, given.dacl.as_ref(), parent.dacl.as_ref())?;
    }
    let store = |nearest: &Nearest| {
        protection::store(&**create.vfs, &*opened.node, &opened.stat, &made, Some(nearest))
    };
    match store(&nearest) {
        Err(Status::NOT_SUPPORTED) if nearest.lists.names_others() => {
            if given.is_some() {
                known.tell_no_lists(path);
                return Err(Status::NOT_SUPPORTED);
            }
            // Nobody has asked for the list of the directory, so the file is made with the permission
            // bits that give no more.
            or_unsupported(store(&Nearest { lists: HostAcl::default(), ..nearest }))
        }
        stored => or_unsupported(stored),
    }
}

/// True if the kernel gave a new file a list with other users or groups. It was made from the list
/// that the directory passes on, which is the nearest to the directory's descriptor.
fn has_list_of_directory(opened: &Opened) -> Result<bool, Status> {
    let security = opened.node.security().map_err(Fault::status)?;
    Ok(matches!(security, Security::Host(lists) if lists.names_others()))
}

/// Accepts a file system that stores no security descriptors. The CREATE still succeeds, because a
/// client that copies a file cannot change that.
fn or_unsupported(stored: Result<(), Status>) -> Result<(), Status> {
    stored.or_else(|status| if status == Status::NOT_SUPPORTED { Ok(()) } else { Err(status) })
}

/// The status that refuses a security descriptor.
pub(in crate::command) const fn refused(why: Refused) -> Status {
    match why {
        Refused::Owner => Status::INVALID_OWNER,
        Refused::Group => Status::INVALID_PRIMARY_GROUP,
        Refused::List => Status::INVALID_ACL,
    }
}
