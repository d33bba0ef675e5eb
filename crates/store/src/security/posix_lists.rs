//! The POSIX lists nearest to a security descriptor, for a host whose kernel decides by them.
//!
//! They never give more than the descriptor's list, whoever asks. A POSIX list knows no order, no
//! denial and no rights but read, write and execute, so it gives less where it cannot say the same:
//!
//! * An entry that denies a right to a group takes it from every user and group with an entry, because
//!   the members of a group are not known here. So does one for a SID that stands for nobody known.
//! * Write on the host takes WRITE_DATA and APPEND_DATA. In a directory it includes the removal of
//!   entries, so it also takes that DELETE_CHILD is not denied.
//! * New objects inherit a right if files and directories both do, at every depth.
//! * New objects in a directory that keeps its group are its group's, not their creators'.
//!
//! The owner's own rights are those of its token, where that is known.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use frevo_wire::dtyp::{AccessMask, Ace, AceFlags, SecurityDescriptor, Sid};

use super::Token;
use super::check::{Decided, effect, map_generic};
use super::host::{HostAcl, HostEntry, Whose, bits};

/// The users of the host that a SID stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// The user with this number.
    User(u32),
    /// The members of the group with this number.
    Group(u32),
    /// A user or a group with this number, which nobody has told apart: no other user or group of the
    /// host has the number.
    Either(u32),
    /// The members of the group with this number, and further users whom the host does not know by one.
    GroupAndMore(u32),
    /// All users.
    Everyone,
    /// No user. Entries for nobody give and deny nothing.
    Nobody,
    /// Users whom the host does not know by a number.
    Unknown,
}

/// The object that gets the lists.
#[derive(Debug, Clone, Copy)]
pub struct Protected<'a> {
    /// The owner's number on the host.
    pub uid: u32,
    /// The group's number on the host.
    pub gid: u32,
    /// True for a directory, which can have a list for new objects in it.
    pub is_directory: bool,
    /// True for a directory that gives its group to new objects in it.
    pub keeps_group: bool,
    /// A user with its number, whose token tells all groups of this user.
    pub user: Option<(u32, &'a Token)>,
}

impl Protected<'_> {
    /// Returns a subject of new objects, their group by its number where that is known.
    const fn heir(&self, whose: Whose) -> Whose {
        match whose {
            Whose::OwningGroup if self.keeps_group => Whose::Group(self.gid),
            other => other,
        }
    }
}

/// The nearest permissions of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nearest {
    /// The lists. `access` is empty if the permission bits say the same, `default` if nothing is
    /// inherited.
    pub lists: HostAcl,
    /// The permission bits for an object without `lists.access`. They give nobody more than the list.
    pub mode: u32,
    /// SIDs that the list gives rights to, and the host cannot.
    pub unknown: Vec<Sid>,
}

/// Returns the permissions of the host nearest to `descriptor`. `identify` tells the users of a SID.
pub fn nearest(
    descriptor: &SecurityDescriptor,
    object: &Protected<'_>,
    identify: &dyn Fn(&Sid) -> Identity,
) -> Nearest {
    let Some(dacl) = &descriptor.dacl else {
        return Nearest { mode: 0o777, ..Nearest::default() };
    };
    let mut unknown = Vec::new();
    let mut access = Evaluation::new(object, descriptor.owner, false, identify);
    let applies = |ace: &&Ace| !ace.flags.contains(AceFlags::INHERIT_ONLY);
    dacl.aces.iter().filter(applies).for_each(|ace| access.take(ace, &mut unknown));
    let mut inherited = Vec::new();
    if object.is_directory {
        for kind in [AceFlags::OBJECT_INHERIT, AceFlags::CONTAINER_INHERIT] {
            let mut passed = Evaluation::new(object, None, true, identify);
            let aces = dacl.aces.iter().filter(|ace| passes_on(ace, kind));
            aces.for_each(|ace| passed.take(ace, &mut unknown));
            inherited.push(passed);
        }
    }
    let bits_here = access.entries();
    let default = default_list(&bits_here, &inherited, object);
    unknown.sort_unstable();
    unknown.dedup();
    let mode = mode_alone(&bits_here);
    Nearest { lists: HostAcl { access: whole(bits_here), default }, mode, unknown }
}

/// True if new objects of a kind inherit an entry at every depth, and for one that denies if they
/// inherit it at all.
fn passes_on(ace: &Ace, kind: AceFlags) -> bool {
    let stops = ace.flags.contains(AceFlags::NO_PROPAGATE_INHERIT);
    let allows = effect(ace).is_some_and(|(.., allows)| allows);
    ace.flags.contains(kind) && !(stops && allows)
}

/// Permission bits by subject.
type Bits = BTreeMap<Whose, u8>;

/// The evaluation of a list for everybody at once, entry by entry.
struct Evaluation<'a> {
    object: &'a Protected<'a>,
    /// The owner of the object.
    owner: Option<Sid>,
    /// True for the list of new objects, whose owner and group are not known.
    creator: bool,
    identify: &'a dyn Fn(&Sid) -> Identity,
    /// The rights of users and groups, as far as entries for many decide.
    many: Decided,
    /// The rights of all others.
    others: Decided,
    /// The rights that an entry for one subject has decided about, before one for many did. Owner and
    /// OwningGroup are those of new objects.
    own: BTreeMap<Whose, Decided>,
    /// The rights of the user whose token is known, as any user.
    known: Decided,
    /// The rights of this user as the owner of new objects.
    known_as_creator: Decided,
}

impl<'a> Evaluation<'a> {
    const fn new(
        object: &'a Protected<'a>,
        owner: Option<Sid>,
        creator: bool,
        identify: &'a dyn Fn(&Sid) -> Identity,
    ) -> Self {
        let none = Decided { granted: AccessMask::EMPTY, denied: AccessMask::EMPTY };
        Self {
            object,
            owner,
            creator,
            identify,
            many: none,
            others: none,
            own: BTreeMap::new(),
            known: none,
            known_as_creator: none,
        }
    }

    fn take(&mut self, ace: &Ace, unknown: &mut Vec<Sid>) {
        let Some((sid, mask, allows)) = effect(ace) else { return };
        let mask = map_generic(mask);
        self.take_for_known(sid, mask, allows);
        let owns = *sid == Sid::OWNER_RIGHTS || *sid == Sid::CREATOR_OWNER;
        match *sid {
            _ if owns && self.creator => self.one(Whose::Owner, mask, allows),
            Sid::CREATOR_GROUP if self.creator => {
                self.one(Whose::OwningGroup, mask, allows);
                self.group_denies(mask, allows);
                if self.object.keeps_group && !allows {
                    // The object has another group, so the members of its creator's are any others.
                    self.others.decide(mask, false);
                }
            }
            // An entry for the creator that is not for new objects applies to nobody.
            Sid::CREATOR_OWNER | Sid::CREATOR_GROUP => {}
            Sid::OWNER_RIGHTS => {
                let identity =
                    self.owner.map_or(Identity::Unknown, |owner| (self.identify)(&owner));
                self.apply(identity, mask, allows);
            }
            _ => {
                let identity = (self.identify)(sid);
                if identity == Identity::Unknown && allows && !mask.is_empty() {
                    unknown.push(*sid);
                }
                self.apply(identity, mask, allows);
            }
        }
    }

    fn take_for_known(&mut self, sid: &Sid, mask: AccessMask, allows: bool) {
        let Some((_, token)) = self.object.user else { return };
        let is_named = token.contains(sid);
        let owns = self.owner.is_some_and(|owner| token.contains(&owner));
        // The user may be in the group of another creator.
        let may_be_denied = self.creator && *sid == Sid::CREATOR_GROUP && !allows;
        if is_named || may_be_denied || (owns && *sid == Sid::OWNER_RIGHTS) {
            self.known.decide(mask, allows);
        }
        let heirs = [Sid::CREATOR_OWNER, Sid::CREATOR_GROUP, Sid::OWNER_RIGHTS];
        if is_named || heirs.contains(sid) {
            self.known_as_creator.decide(mask, allows);
        }
    }

    fn apply(&mut self, identity: Identity, mask: AccessMask, allows: bool) {
        match identity {
            Identity::User(uid) => self.one(Whose::User(uid), mask, allows),
            Identity::Group(gid) => {
                self.one(Whose::Group(gid), mask, allows);
                self.group_denies(mask, allows);
            }
            Identity::GroupAndMore(gid) => {
                self.one(Whose::Group(gid), mask, allows);
                self.apply(Identity::Unknown, mask, allows);
            }
            Identity::Either(number) => {
                self.one(Whose::User(number), mask, allows);
                self.one(Whose::Group(number), mask, allows);
                self.group_denies(mask, allows);
            }
            Identity::Everyone => {
                self.many.decide(mask, allows);
                self.others.decide(mask, allows);
            }
            Identity::Unknown if !allows => {
                self.many.decide(mask, false);
                self.others.decide(mask, false);
            }
            Identity::Nobody | Identity::Unknown => {}
        }
    }

    /// Takes an entry for one subject.
    fn one(&mut self, whose: Whose, mask: AccessMask, allows: bool) {
        let undecided = mask.without(self.many.all());
        self.own.entry(whose).or_default().decide(undecided, allows);
    }

    /// Takes what a group is denied from everybody who may be in it.
    fn group_denies(&mut self, mask: AccessMask, allows: bool) {
        if !allows {
            self.many.decide(mask, false);
        }
    }

    /// Returns the rights of a subject. Those of several that are one user are what any of them is
    /// granted and none of them denied.
    fn rights(&self, subjects: &[Whose]) -> Decided {
        let mut sum = Decided::default();
        for subject in subjects {
            let own = self.own.get(subject).copied().unwrap_or_default();
            let many = if *subject == Whose::Other { self.others } else { self.many };
            sum.granted |= own.granted | many.granted.without(own.denied);
            sum.denied |= own.denied | many.denied.without(own.granted);
        }
        if subjects.len() > 1 {
            sum.granted = sum.granted.without(sum.denied);
        }
        sum
    }

    fn bits_of(&self, subjects: &[Whose]) -> u8 {
        let is_known =
            |whose: &Whose| self.object.user.is_some_and(|(uid, _)| *whose == Whose::User(uid));
        let decided = match (subjects.iter().any(is_known), subjects.contains(&Whose::Owner)) {
            (false, _) => self.rights(subjects),
            (true, false) => self.known,
            (true, true) => self.known_as_creator,
        };
        let denies_removal =
            self.object.is_directory && decided.denied.contains(AccessMask::DELETE_CHILD);
        let bits = u8::try_from(bits(decided.granted) & 7).unwrap_or(0);
        if denies_removal { bits & !2 } else { bits }
    }

    /// Returns the bits of everybody, by the numbers of the object's owner and group.
    fn entries(&self) -> Bits {
        let (owner, group) = (Whose::User(self.object.uid), Whose::Group(self.object.gid));
        let named = self.own.keys().filter(|whose| **whose != owner && **whose != group);
        let mut entries: Bits = named.map(|whose| (*whose, self.bits_of(&[*whose]))).collect();
        entries.insert(Whose::Owner, self.bits_of(&[owner]));
        entries.insert(Whose::OwningGroup, self.bits_of(&[group]));
        entries.insert(Whose::Other, self.bits_of(&[Whose::Other]));
        entries
    }
}

/// Returns the list that new objects inherit; empty without entries to inherit. `inherited` are the
/// evaluations for files and for directories.
fn default_list(
    here: &Bits,
    inherited: &[Evaluation<'_>],
    object: &Protected<'_>,
) -> Vec<HostEntry> {
    let group = object.heir(Whose::OwningGroup);
    let all = inherited.iter().flat_map(|kind| kind.own.keys().copied());
    let named: Vec<Whose> = all.filter(|whose| *whose != group).collect();
    let is_empty = |kind: &Evaluation<'_>| kind.many.all().is_empty() && kind.own.is_empty();
    if inherited.iter().all(is_empty) {
        return Vec::new();
    }
    // A right counts if files and directories both inherit it.
    let both =
        |subjects: &[Whose]| inherited.iter().fold(7, |bits, kind| bits & kind.bits_of(subjects));
    let mut entries: Bits = named.into_iter().map(|whose| (whose, both(&[whose]))).collect();
    entries.insert(Whose::OwningGroup, both(&[group]));
    entries.insert(Whose::Other, both(&[Whose::Other]));
    let owner = creators(here, &entries, object)
        .iter()
        .fold(7, |bits, creator| bits & both(&[*creator, Whose::Owner]));
    entries.insert(Whose::Owner, owner);
    whole_default(entries)
}

/// Returns the subjects that may make objects in the directory, or in directories that inherit from
/// it. An object's owner gets the rights that each of them has as its owner.
fn creators(here: &Bits, default: &Bits, object: &Protected<'_>) -> Vec<Whose> {
    let writes = |(whose, bits): (&Whose, &u8)| (bits & 2 != 0).then_some(*whose);
    let numbered = |whose: Whose| match whose {
        Whose::Owner => Whose::User(object.uid),
        Whose::OwningGroup => Whose::Group(object.gid),
        other => other,
    };
    let mut found: Vec<Whose> = here.iter().filter_map(writes).map(numbered).collect();
    let makers = default.iter().filter_map(writes).filter(|whose| *whose != Whose::Owner);
    found.extend(makers.map(|whose| object.heir(whose)));
    // A user with an entry for new objects alone may be in a group that makes them.
    if found.iter().any(|whose| !matches!(whose, Whose::User(_))) {
        let is_new = |whose: &&Whose| matches!(whose, Whose::User(_)) && !here.contains_key(*whose);
        found.extend(default.keys().filter(is_new));
    }
    found.sort_unstable();
    found.dedup();
    if found.is_empty() { alloc::vec![Whose::Owner] } else { found }
}

/// Returns the list with its mask; empty if the permission bits say the same.
fn whole(entries: Bits) -> Vec<HostEntry> {
    let is_named = |whose: &Whose| matches!(whose, Whose::User(_) | Whose::Group(_));
    if entries.keys().any(is_named) { whole_default(entries) } else { Vec::new() }
}

/// Returns the list with its mask, in the order of the kernel.
fn whole_default(mut entries: Bits) -> Vec<HostEntry> {
    let is_named = |whose: &Whose| matches!(whose, Whose::User(_) | Whose::Group(_));
    let is_masked = |whose: &Whose| is_named(whose) || *whose == Whose::OwningGroup;
    if entries.keys().any(is_named) {
        let masked = entries.iter().filter(|(whose, _)| is_masked(whose));
        let mask = masked.fold(0, |mask, (_, bits)| mask | bits);
        entries.insert(Whose::Mask, mask);
    }
    entries.into_iter().map(|(whose, bits)| HostEntry { whose, bits }).collect()
}

/// Returns the permission bits that give nobody more than the entries: members of the group and others
/// may be users and groups that have an entry.
fn mode_alone(entries: &Bits) -> u32 {
    let of = |whose: Whose| entries.get(&whose).copied().unwrap_or(0);
    let (mut group, mut other) = (of(Whose::OwningGroup), of(Whose::Other));
    for (whose, bits) in entries {
        match whose {
            Whose::User(_) => {
                group &= bits;
                other &= bits;
            }
            Whose::Group(_) => other &= bits,
            _ => {}
        }
    }
    let shift = |bits: u8, by: u32| u32::from(bits).checked_shl(by).unwrap_or(0);
    shift(of(Whose::Owner), 6) | shift(group, 3) | u32::from(other)
}

#[cfg(test)]
mod tests;
