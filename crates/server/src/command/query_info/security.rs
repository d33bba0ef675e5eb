//! Security descriptors: MS-SMB2 3.3.5.20.3 and 3.3.5.21.3.
//!
use std::sync::Arc;

use frevo_store::security::Token;
use frevo_store::security::set::{merge, owner_allowed};
use frevo_store::vfs::BasicChange;
use frevo_store::{Fault, Stat};
use frevo_wire::Status;
use frevo_wire::dtyp::{
    AccessMask, SdControl, SecurityDescriptor, SecurityInformation as Asked, Sid,
};

use super::Output;
use crate::command::create::refused;
use crate::command::host_lists::{self, Identities};
use crate::command::request::Request;
use crate::objects::audited;
use crate::objects::open::{FileOpen, Open};
use crate::objects::refusal::Refusal;
use crate::shares::apple::nfs_aces;
use crate::shares::posix;
use crate::shares::protection;

/// Answers a query of the security descriptor.
pub(super) fn query(open: &Open, asked: Asked, output: &mut Output<'_>) -> Result<(), Refusal> {
    // MS-FSA 2.1.5.14: reading these parts of the descriptor needs READ_CONTROL.
    let readable = Asked::OWNER | Asked::GROUP | Asked::DACL | Asked::LABEL | Asked::ATTRIBUTE;
    if asked.intersects(readable | Asked::BACKUP) {
        open.require(AccessMask::READ_CONTROL)?;
    }
    if asked.intersects(Asked::SACL | Asked::SCOPE | Asked::BACKUP) {
        open.require(AccessMask::ACCESS_SYSTEM_SECURITY)?;
    }
    let file = open.file()?;
    let stat = file.stat()?;
    let mut whole = protection::descriptor(&*file.node, &stat, &open.tree().token())?;
    open.tree().share.id_map.show(&mut whole);
    if file.apple {
        nfs_aces::add(&mut whole, &stat);
    }
    let descriptor = whole.select(parts(asked));
    let size = descriptor.encoded_len();
    if output.room < size {
        let needed = u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes();
        return Err(Refusal::Data(Status::BUFFER_TOO_SMALL, needed.into()));
    }
    descriptor.encode_answer(output.bytes()).map_err(|_| Status::INTERNAL_ERROR)?;
    Ok(())
}

/// SECURITY_INFORMATION of MS-DTYP 2.4.7; BACKUP_SECURITY_INFORMATION stands for
/// everything that there is.
fn parts(asked: Asked) -> Asked {
    if asked.contains(Asked::BACKUP) { asked | EVERYTHING } else { asked }
}

const EVERYTHING: Asked = Asked(Asked::OWNER.0 | Asked::GROUP.0 | Asked::DACL.0 | Asked::SACL.0);

/// Takes a descriptor that a client sets, its rights checked as MS-SMB2
/// 3.3.5.21.3 says. Where none can be kept one that changes nothing is accepted.
/// Deviation: smbd without ACLs says SUCCESS to every descriptor and keeps none. A client that
/// sets one to protect a file must learn that the file is not protected: NOT_SUPPORTED.
///
/// `known` are the SIDs of its list on the host, on a share that acts as its users.
pub(in crate::command) fn set(
    open: &Open,
    asked: Asked,
    bytes: &[u8],
    known: Option<&Identities<'_>>,
) -> Result<(), Status> {
    require(open, asked)?;
    let mut new = SecurityDescriptor::parse(bytes).map_err(|_| Status::INVALID_SECURITY_DESCR)?;
    let file = open.file()?;
    if file.apple && asked.contains(Asked::DACL) {
        let mode = nfs_aces::take(&mut new);
        let asked = if new.dacl.is_none() { asked.without(Asked::DACL) } else { asked };
        store(&Setting { open, file, known }, asked, &new)?;
        return nfs_aces::set_mode(&*file.node, &file.stat()?, mode);
    }
    store(&Setting { open, file, known }, asked, &new)
}

/// Checks the rights to set these parts.
fn require(open: &Open, asked: Asked) -> Result<(), Status> {
    for (part, right) in [
        (Asked::SACL | Asked::SCOPE | Asked::BACKUP, AccessMask::ACCESS_SYSTEM_SECURITY),
        (Asked::DACL | Asked::ATTRIBUTE | Asked::BACKUP, AccessMask::WRITE_DAC),
        (Asked::LABEL | Asked::GROUP | Asked::OWNER | Asked::BACKUP, AccessMask::WRITE_OWNER),
    ] {
        if asked.intersects(part) {
            open.require(right)?;
        }
    }
    Ok(())
}

/// Looks up the SIDs of a list that a client sets, where the kernel must know it. None where [`set`]
/// refuses the list in any case.
///
/// # Errors
/// CANCELLED when the client gives up, and what the file system says.
pub(in crate::command) async fn identities<'a>(
    rq: &'a Request<'a>,
    open: &Open,
    asked: Asked,
    bytes: &[u8],
) -> Result<Option<Box<Identities<'a>>>, Status> {
    if !host_lists::are_needed(&open.tree()) || require(open, asked).is_err() {
        return Ok(None);
    }
    let Ok(new) = SecurityDescriptor::parse(bytes) else { return Ok(None) };
    let file = open.file()?;
    // Parts that the client does not set stay, so their SIDs are needed too.
    let mut old = protection::descriptor(&*file.node, &file.stat()?, &open.tree().token())?;
    open.tree().share.id_map.show(&mut old);
    let found = host_lists::identities(rq, &[&new, &old]).await?;
    Ok(Some(Box::new(found)))
}

/// A descriptor that is set, and the parties.
struct Setting<'a> {
    open: &'a Open,
    file: &'a FileOpen,
    known: Option<&'a Identities<'a>>,
}

fn store(setting: &Setting<'_>, asked: Asked, new: &SecurityDescriptor) -> Result<(), Status> {
    let Setting { open, file, known } = *setting;
    let token = open.tree().token();
    let as_set;
    let new = if open.tree().share.inherited_as_set {
        as_set = asking_for_inheritance(new);
        &as_set
    } else {
        new
    };
    let mut left = parts(asked);
    let is_stored = protection::stored(&*file.node)?.is_some();
    if !is_stored {
        left = set_numbers(open, asked, new, &token)?;
    }
    let stat = file.stat()?;
    let mut old = protection::descriptor(&*file.node, &stat, &token)?;
    // The old descriptor's SIDs are replaced by those that clients see. So setting the same
    // descriptor again changes nothing.
    open.tree().share.id_map.show(&mut old);
    let merged = merge(&old, new, left, &token).map_err(refused)?;
    // The same descriptor again is written to the host's lists, which another version of the server may
    // have left out.
    let is_same = merged == old;
    if is_same && (known.is_none() || !is_stored) {
        return Ok(());
    }
    let sets_list = left.contains(Asked::DACL);
    match known {
        // The host's own lists, and who else is in them, stay as long as no client sets one.
        Some(_) if !is_stored && !sets_list => {
            protection::store_beside(&*file.vfs, &*file.node, &merged)?;
        }
        Some(known) => {
            let both = BothLists { file, stat: &stat, old: &old, merged: &merged, sets_list };
            match both.store(known, &token) {
                // The stored list goes on to have the effect that it had.
                Err(Status::ACCESS_DENIED | Status::NOT_SUPPORTED | Status::IO_TIMEOUT)
                    if is_same =>
                {
                    return Ok(());
                }
                stored => stored?,
            }
        }
        None => protection::store(&*file.vfs, &*file.node, &stat, &merged, None)?,
    }
    if let Some(owner) = merged.owner.filter(|owner| old.owner != Some(*owner)) {
        audited::gave(open, &owner, &token);
    }
    Ok(())
}

/// A descriptor to be stored with the nearest lists of the host.
struct BothLists<'a> {
    file: &'a FileOpen,
    stat: &'a Stat,
    old: &'a SecurityDescriptor,
    merged: &'a SecurityDescriptor,
    /// True if a client sets the list.
    sets_list: bool,
}

impl BothLists<'_> {
    fn store(&self, known: &Identities<'_>, token: &Token) -> Result<(), Status> {
        let Self { file, stat, old, merged, sets_list } = *self;
        let nearest = known.nearest(&*file.node, stat, merged, token);
        let nearest = nearest.inspect_err(|_| known.tell_no_answer(file.name().path()))?;
        let given = merged.dacl.as_ref().filter(|_| sets_list);
        known.check(file.name().path(), &nearest, given, old.dacl.as_ref())?;
        let stored = protection::store(&*file.vfs, &*file.node, stat, merged, Some(&nearest));
        if stored == Err(Status::NOT_SUPPORTED) && nearest.lists.names_others() && merged != old {
            known.tell_no_lists(file.name().path());
        }
        stored
    }
}

/// A descriptor that asks for its lists to count as inherited wherever it says
/// that they are.
fn asking_for_inheritance(descriptor: &SecurityDescriptor) -> SecurityDescriptor {
    let mut asking = descriptor.clone();
    for (said, asked) in [
        (SdControl::DACL_AUTO_INHERITED, SdControl::DACL_COMPUTED_INHERITANCE_REQUIRED),
        (SdControl::SACL_AUTO_INHERITED, SdControl::SACL_COMPUTED_INHERITANCE_REQUIRED),
    ] {
        if asking.control.contains(said) {
            asking.control |= asked;
        }
    }
    asking
}

/// Carries out what SIDs say that stand for numbers of the host: chown and chmod, where
/// no stored descriptor decides. Returns the parts that are left to be set.
fn set_numbers(
    open: &Open,
    asked: Asked,
    new: &SecurityDescriptor,
    token: &Token,
) -> Result<Asked, Status> {
    let file = open.file()?;
    let mut change = posix::change(asked, new);
    let map = Arc::clone(&open.tree().share.id_map);
    let number = |sid: Option<Sid>| sid.and_then(|sid| map.number(&sid));
    change.uid = change.uid.or_else(|| number(new.owner.filter(|_| asked.contains(Asked::OWNER))));
    change.gid = change.gid.or_else(|| number(new.group.filter(|_| asked.contains(Asked::GROUP))));
    let mut done = Asked::EMPTY;
    for (is_done, part) in [
        (change.uid.is_some(), Asked::OWNER),
        (change.gid.is_some(), Asked::GROUP),
        (change.mode.is_some(), Asked::DACL),
    ] {
        if is_done {
            done |= part;
        }
    }
    if change.uid.is_some() || change.gid.is_some() {
        let stat = file.stat()?;
        change.uid = change.uid.filter(|uid| *uid != stat.uid);
        change.gid = change.gid.filter(|gid| *gid != stat.gid);
    }
    check_numbers(&change, token)?;
    if change != BasicChange::default() {
        file.node.set_basic(&change).map_err(Fault::status)?;
        if let Some(uid) = change.uid {
            audited::gave(open, &Sid::unix_user(uid), token);
        }
    }
    Ok(parts(asked).without(done))
}

/// MS-FSA 2.1.5.17: checks a new owner and group of the host as any other. With
/// `run_as = "server"` the host does not: it asks the server's user, who may be root.
///
/// Windows accepts every group. There it gives its members no right; on the host the
/// mode does.
fn check_numbers(change: &BasicChange, token: &Token) -> Result<(), Status> {
    let may_give = |sid: Sid| owner_allowed(&sid, token);
    if change.uid.is_some_and(|uid| !may_give(Sid::unix_user(uid))) {
        return Err(Status::INVALID_OWNER);
    }
    if change.gid.is_some_and(|gid| !may_give(Sid::unix_group(gid))) {
        return Err(Status::INVALID_PRIMARY_GROUP);
    }
    Ok(())
}
