//! Security descriptors: MS-SMB2 3.3.5.20.3 and 3.3.5.21.3.
//!
//! None are stored. What a client sees is made from owner, group and
//! permission bits, as smbd does where no NT ACL is stored.

use frevo_store::vfs::{BasicChange, Kind};
use frevo_store::{Fault, Stat};
use frevo_wire::Status;
use frevo_wire::command::query_info::SecurityInformation as Asked;
use frevo_wire::dtyp::{
    AccessMask, Ace, AceFlags, Acl, SdControl, SecurityDescriptor, SecurityInformation, Sid,
};

use super::Output;
use crate::open::Open;
use crate::posix;
use crate::refusal::Refusal;

/// Answers a query of the security descriptor.
pub(super) fn query(open: &Open, asked: Asked, output: &mut Output<'_>) -> Result<(), Refusal> {
    // MS-FSA 2.1.5.14.
    let readable = Asked::OWNER | Asked::GROUP | Asked::DACL | Asked::LABEL | Asked::ATTRIBUTE;
    if asked.intersects(readable | Asked::BACKUP) {
        open.require(AccessMask::READ_CONTROL)?;
    }
    if asked.intersects(Asked::SACL | Asked::SCOPE | Asked::BACKUP) {
        open.require(AccessMask::ACCESS_SYSTEM_SECURITY)?;
    }
    let descriptor = descriptor(&open.file()?.stat()?).select(parts(asked));
    let size = descriptor.encoded_len();
    if output.room < size {
        let needed = u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes();
        return Err(Refusal::Data(Status::BUFFER_TOO_SMALL, needed.into()));
    }
    descriptor.encode(output.bytes()).map_err(|_| Status::INTERNAL_ERROR)?;
    Ok(())
}

const fn parts(asked: Asked) -> SecurityInformation {
    SecurityInformation(asked.0)
}

/// What owner, group and mode of a file say.
pub(in crate::command) fn descriptor(stat: &Stat) -> SecurityDescriptor {
    let owner = Sid::unix_user(stat.uid);
    let group = Sid::unix_group(stat.gid);
    let directory = stat.kind == Kind::Directory;
    let aces = [(owner, 6), (group, 3), (Sid::EVERYONE, 0)]
        .into_iter()
        .map(|(sid, shift)| (sid, rights(stat.mode >> shift & 7, directory)))
        .filter(|(_, mask)| !mask.is_empty())
        .map(|(sid, mask)| Ace::allow(AceFlags::EMPTY, mask, sid))
        .collect();
    SecurityDescriptor {
        control: SdControl::SELF_RELATIVE | SdControl::DACL_PRESENT,
        rm_control: 0,
        owner: Some(owner),
        group: Some(group),
        sacl: None,
        dacl: Some(Acl::new(aces)),
    }
}

/// The rights that three permission bits stand for.
fn rights(bits: u32, directory: bool) -> AccessMask {
    if bits == 7 {
        return AccessMask::FILE_ALL;
    }
    let mut mask = AccessMask::EMPTY;
    if bits & 4 != 0 {
        mask |= AccessMask::FILE_GENERIC_READ;
    }
    if bits & 2 != 0 {
        mask |= AccessMask::FILE_GENERIC_WRITE;
        if directory {
            mask |= AccessMask::DELETE_CHILD;
        }
    }
    if bits & 1 != 0 {
        mask |= AccessMask::FILE_GENERIC_EXECUTE;
    }
    mask
}

/// Takes a descriptor that a client sets, its rights checked as MS-SMB2
/// 3.3.5.21.3 says. One that changes nothing is accepted.
///
/// Deviation: smbd without ACLs says SUCCESS to every descriptor and keeps
/// none. Whoever protects a file by setting one must hear that it was not
/// protected: NOT_SUPPORTED.
pub(in crate::command) fn set(open: &Open, asked: Asked, bytes: &[u8]) -> Result<(), Status> {
    for (part, right) in [
        (Asked::SACL | Asked::SCOPE | Asked::BACKUP, AccessMask::ACCESS_SYSTEM_SECURITY),
        (Asked::DACL | Asked::ATTRIBUTE | Asked::BACKUP, AccessMask::WRITE_DAC),
        (Asked::LABEL | Asked::GROUP | Asked::OWNER | Asked::BACKUP, AccessMask::WRITE_OWNER),
    ] {
        if asked.intersects(part) {
            open.require(right)?;
        }
    }
    let new = SecurityDescriptor::parse(bytes).map_err(|_| Status::INVALID_SECURITY_DESCR)?;
    let change = posix::change(asked, &new);
    if change != BasicChange::default() {
        open.file()?.node.set_basic(&change).map_err(Fault::status)?;
    }
    let old = descriptor(&open.file()?.stat()?);
    let settable = Asked::OWNER | Asked::GROUP | Asked::DACL;
    let other = Asked::SACL | Asked::LABEL | Asked::ATTRIBUTE | Asked::SCOPE | Asked::BACKUP;
    let same = (!asked.contains(Asked::OWNER) || new.owner == old.owner || change.uid.is_some())
        && (!asked.contains(Asked::GROUP) || new.group == old.group || change.gid.is_some())
        && (!asked.contains(Asked::DACL) || new.dacl == old.dacl || change.mode.is_some());
    if asked.intersects(settable) && !asked.intersects(other) && same {
        return Ok(());
    }
    Err(Status::NOT_SUPPORTED)
}
