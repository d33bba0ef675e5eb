//! Conversion between permissions of a POSIX host and security descriptors.
//!
//! Without a stored descriptor, clients see one that expresses the host's mode and access control
//! list. A stored descriptor appears on the host as the nearest mode.

use alloc::vec;
use alloc::vec::Vec;

use frevo_wire::dtyp::{AccessMask, Ace, AceFlags, Acl, SdControl, SecurityDescriptor, Sid};

use super::{Privileges, Token, maximal};

/// The subject of an entry in a POSIX access control list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// ACL_USER_OBJ
    Owner,
    /// ACL_USER
    User(u32),
    /// ACL_GROUP_OBJ
    OwningGroup,
    /// ACL_GROUP
    Group(u32),
    /// ACL_MASK
    Mask,
    /// ACL_OTHER
    Other,
}

/// One entry: a subject with three permission bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostEntry {
    /// The user or group that the bits are for.
    pub whose: Whose,
    /// Read 4, write 2, execute 1.
    pub bits: u8,
}

/// The access control lists of the host on one object; empty lists for an object without any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostAcl {
    /// The list for the object itself.
    pub access: Vec<HostEntry>,
    /// The list that new objects in a directory inherit.
    pub default: Vec<HostEntry>,
}

impl HostAcl {
    /// True if a list names users or groups beside the owner and the group of the object, which
    /// permission bits cannot express.
    pub fn names_others(&self) -> bool {
        let names = |list: &[HostEntry]| list.iter().any(|entry| entry.whose == Whose::Mask);
        names(&self.access) || names(&self.default)
    }
}

/// Owner, group and permissions of an object of the host.
#[derive(Debug, Clone, Copy)]
pub struct Owned {
    /// The permission bits, as chmod has them.
    pub mode: u32,
    /// The owner's SID.
    pub owner: Sid,
    /// The group's SID.
    pub group: Sid,
    /// True for a directory.
    pub is_directory: bool,
    /// The owner's number on the host.
    pub uid: u32,
}

/// The bit of a mode with which a directory gives its group to new objects in it.
pub const SET_GROUP_ID: u32 = 0o2000;

/// Returns the descriptor that expresses the host's permissions.
pub fn descriptor(of: &Owned, acl: &HostAcl) -> SecurityDescriptor {
    let from_mode;
    let access = if acl.access.is_empty() {
        from_mode = mode_entries(of.mode);
        &from_mode
    } else {
        &acl.access
    };
    let mut aces = Vec::new();
    let (owner, group) = (of.owner, of.group);
    Shown { list: access, of, flags: AceFlags::EMPTY, owner, group }.add_to(&mut aces);
    if of.is_directory {
        let flags = AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT | AceFlags::INHERIT_ONLY;
        let keeps_group = of.mode & SET_GROUP_ID != 0;
        let group = if keeps_group { of.group } else { Sid::CREATOR_GROUP };
        let owner = Sid::CREATOR_OWNER;
        Shown { list: &acl.default, of, flags, owner, group }.add_to(&mut aces);
    }
    SecurityDescriptor {
        control: SdControl::SELF_RELATIVE | SdControl::DACL_PRESENT,
        rm_control: 0,
        owner: Some(of.owner),
        group: Some(of.group),
        sacl: None,
        dacl: Some(Acl::new(aces)),
    }
}

fn mode_entries(mode: u32) -> Vec<HostEntry> {
    let bits = |shift: u32| u8::try_from(mode.checked_shr(shift).unwrap_or(0) & 7).unwrap_or(0);
    vec![
        HostEntry { whose: Whose::Owner, bits: bits(6) },
        HostEntry { whose: Whose::OwningGroup, bits: bits(3) },
        HostEntry { whose: Whose::Other, bits: bits(0) },
    ]
}

/// A POSIX list, and the SIDs of its subjects.
///
/// In such a list a user with an entry has its bits, whatever groups and others have, and a member of
/// groups with entries has the bits of any of them, whatever others have. So a user is denied at first
/// what its entry lacks. A group is denied it behind the entries of all users and groups, which give
/// their bits to members of several. That order is not canonical, and Windows tools offer to mend it.
/// Users may then have less; without the entry, the group's members would have what others have.
struct Shown<'a> {
    list: &'a [HostEntry],
    of: &'a Owned,
    flags: AceFlags,
    owner: Sid,
    group: Sid,
}

impl Shown<'_> {
    /// Adds entries that say what the list does.
    fn add_to(&self, aces: &mut Vec<Ace>) {
        // The owner has the bits of the entry for owners.
        let is_user = |whose| matches!(whose, Whose::User(uid) if uid != self.of.uid);
        let is_group = |whose| matches!(whose, Whose::OwningGroup | Whose::Group(_));
        let is_other = |whose| whose == Whose::Other;
        let others = self.sum(&is_other);
        self.deny(&is_user, others | self.sum(&is_group), aces);
        self.allow(&|whose| !is_other(whose), aces);
        self.deny(&is_group, others, aces);
        self.allow(&is_other, aces);
    }

    /// Returns the entries of some subjects: SIDs with their rights. The mask bounds all entries except
    /// those of the owner and of others.
    fn of<'a>(
        &'a self,
        is_in: &'a dyn Fn(Whose) -> bool,
    ) -> impl Iterator<Item = (Sid, AccessMask)> + 'a {
        let mask = self.list.iter().find(|entry| entry.whose == Whose::Mask);
        let mask = mask.map_or(7, |mask| mask.bits);
        let entries = self.list.iter().filter(move |entry| is_in(entry.whose));
        entries.filter_map(move |entry| {
            let (sid, bits) = match entry.whose {
                Whose::Owner => {
                    let rights = rights(entry.bits, self.of.is_directory);
                    return Some((self.owner, rights | OF_OWNERS));
                }
                Whose::User(uid) => (Sid::unix_user(uid), entry.bits & mask),
                Whose::OwningGroup => (self.group, entry.bits & mask),
                Whose::Group(gid) => (Sid::unix_group(gid), entry.bits & mask),
                Whose::Other => (Sid::EVERYONE, entry.bits),
                Whose::Mask => return None,
            };
            Some((sid, rights(bits, self.of.is_directory)))
        })
    }

    fn sum(&self, is_in: &dyn Fn(Whose) -> bool) -> AccessMask {
        self.of(is_in).fold(AccessMask::EMPTY, |sum, (_, rights)| sum | rights)
    }

    fn allow(&self, is_in: &dyn Fn(Whose) -> bool, aces: &mut Vec<Ace>) {
        let given = self.of(is_in).filter(|(_, rights)| !rights.is_empty());
        aces.extend(given.map(|(sid, rights)| Ace::allow(self.flags, rights, sid)));
    }

    /// Denies what these subjects lack of the rights of many.
    fn deny(&self, is_in: &dyn Fn(Whose) -> bool, many: AccessMask, aces: &mut Vec<Ace>) {
        let lacks = |(sid, rights)| (sid, many.without(rights).without(SEEN_BY_ALL));
        let lacking = self.of(is_in).map(lacks).filter(|(_, lacks)| !lacks.is_empty());
        aces.extend(lacking.map(|(sid, lacks)| Ace::deny(self.flags, lacks, sid)));
    }
}

/// Rights that the host takes from nobody.
const SEEN_BY_ALL: AccessMask = AccessMask(
    AccessMask::READ_CONTROL.0 | AccessMask::READ_ATTRIBUTES.0 | AccessMask::SYNCHRONIZE.0,
);

/// Rights of an owner on the host, whatever the bits are. The list shows them: an owner that sends it back
/// with another entry keeps the rights for the next change, among them WRITE_OWNER, which no list implies
/// (MS-DTYP 2.5.3.2).
pub const OF_OWNERS: AccessMask = AccessMask(
    SEEN_BY_ALL.0
        | AccessMask::WRITE_DAC.0
        | AccessMask::WRITE_OWNER.0
        | AccessMask::WRITE_ATTRIBUTES.0
        | AccessMask::WRITE_EA.0,
);

/// Returns the rights that three permission bits mean.
pub fn rights(bits: u8, is_directory: bool) -> AccessMask {
    if bits & 7 == 7 {
        return AccessMask::FILE_ALL;
    }
    let mut mask = AccessMask::EMPTY;
    if bits & 4 != 0 {
        mask |= AccessMask::FILE_GENERIC_READ;
    }
    if bits & 2 != 0 {
        mask |= AccessMask::FILE_GENERIC_WRITE;
        if is_directory {
            mask |= AccessMask::DELETE_CHILD;
        }
    }
    if bits & 1 != 0 {
        mask |= AccessMask::FILE_GENERIC_EXECUTE;
    }
    mask
}

/// Returns the permission bits nearest to a descriptor: the rights of its owner, of its group and
/// of everyone.
pub fn mode(descriptor: &SecurityDescriptor) -> u32 {
    let nobody = Sid::ANONYMOUS;
    let owner = descriptor.owner.unwrap_or(nobody);
    let group = descriptor.group.unwrap_or(nobody);
    let of = |user: Sid, primary: Sid| {
        let token = Token::new(user, primary, Token::WELL_KNOWN, Privileges::EMPTY);
        bits(maximal(descriptor, &token))
    };
    let shift = |bits: u32, by: u32| bits.checked_shl(by).unwrap_or(0);
    shift(of(owner, nobody), 6) | shift(of(nobody, group), 3) | of(nobody, nobody)
}

/// Returns the permission bits nearest to these rights.
pub fn bits(rights: AccessMask) -> u32 {
    let has = |right: AccessMask, bit| if rights.contains(right) { bit } else { 0 };
    has(AccessMask::READ_DATA, 4)
        | has(AccessMask::WRITE_DATA | AccessMask::APPEND_DATA, 2)
        | has(AccessMask::EXECUTE, 1)
}
