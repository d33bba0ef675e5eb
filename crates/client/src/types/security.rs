//! Security descriptors: owners, access lists, and the accounts they name. MS-DTYP 2.4.

use std::fmt;
use std::str::FromStr;

use frevo_rpc::SidNameUse;
use frevo_wire::dtyp as wire;

use super::flags::{AccessMask, flags};

/// A security identifier: a user, group or domain as access lists name it, MS-DTYP 2.4.2.
///
/// Its text form is `S-1-5-21-...`, which [`FromStr`] reads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sid(wire::Sid);

impl Sid {
    /// S-1-1-0: everybody.
    pub const EVERYONE: Self = Self(wire::Sid::EVERYONE);
    /// S-1-5-11: every user who has logged on with a password.
    pub const AUTHENTICATED_USERS: Self = Self(wire::Sid::AUTHENTICATED_USERS);
    /// S-1-5-32-544: the server's administrators.
    pub const ADMINISTRATORS: Self = Self(wire::Sid::ADMINISTRATORS);

    /// Returns the SID of an authority below 2^48 and at most 15 sub-authorities; `None`
    /// outside these bounds.
    pub fn new(authority: u64, sub_authorities: &[u32]) -> Option<Self> {
        wire::Sid::new(authority, sub_authorities).map(Self)
    }

    /// Returns the authority, below 2^48.
    pub const fn authority(&self) -> u64 {
        self.0.authority()
    }

    /// Returns the sub-authorities; the last one is the relative identifier (RID).
    pub fn sub_authorities(&self) -> &[u32] {
        self.0.sub_authorities()
    }

    pub(crate) const fn wire(self) -> wire::Sid {
        self.0
    }

    pub(crate) const fn of_wire(sid: wire::Sid) -> Self {
        Self(sid)
    }
}

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The error of text that is not a SID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParseSidError;

impl fmt::Display for ParseSidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a SID; write it as S-1-5-21-...")
    }
}

impl std::error::Error for ParseSidError {}

impl FromStr for Sid {
    type Err = ParseSidError;

    fn from_str(text: &str) -> Result<Self, ParseSidError> {
        text.parse().map(Self).map_err(|_| ParseSidError)
    }
}

flags! {
    /// Inheritance flags of an access list's entry, MS-DTYP 2.4.4.1.
    AceFlags(u8), frevo_wire::dtyp::AceFlags {
        /// Files in the directory inherit the entry.
        OBJECT_INHERIT,
        /// Directories in the directory inherit the entry.
        CONTAINER_INHERIT,
        /// An object that inherits the entry does not pass it on.
        NO_PROPAGATE_INHERIT,
        /// The entry is for inheriting objects only, not for this one.
        INHERIT_ONLY,
        /// The entry was inherited from the directory above.
        INHERITED,
        /// Audit entries: log what succeeds.
        SUCCESSFUL_ACCESS,
        /// Audit entries: log what fails.
        FAILED_ACCESS,
    }
}

/// The effect of an access list's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AceKind {
    /// Allows the rights of its mask.
    Allow,
    /// Denies the rights of its mask.
    Deny,
    /// Another AceType of MS-DTYP 2.4.4.1, by its number.
    Other(u8),
}

impl fmt::Display for AceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = match *self {
            Self::Allow => wire::AceType::ACCESS_ALLOWED,
            Self::Deny => wire::AceType::ACCESS_DENIED,
            Self::Other(number) => wire::AceType(number),
        };
        fmt::Display::fmt(&number, f)
    }
}

/// An entry of an access list: it allows or denies rights to a user or group.
///
/// Entries of kinds that this crate does not know are kept as they are.
#[derive(Clone, PartialEq, Eq)]
pub struct Ace(wire::Ace);

impl Ace {
    /// Returns an entry that allows `rights` to `sid`.
    pub const fn allow(flags: AceFlags, rights: AccessMask, sid: Sid) -> Self {
        Self(wire::Ace::allow(flags.wire(), rights.wire(), sid.0))
    }

    /// Returns an entry that denies `rights` to `sid`.
    pub const fn deny(flags: AceFlags, rights: AccessMask, sid: Sid) -> Self {
        Self(wire::Ace::deny(flags.wire(), rights.wire(), sid.0))
    }

    /// Returns the effect of the entry.
    pub const fn kind(&self) -> AceKind {
        match self.0.kind {
            wire::AceType::ACCESS_ALLOWED => AceKind::Allow,
            wire::AceType::ACCESS_DENIED => AceKind::Deny,
            other => AceKind::Other(other.0),
        }
    }

    /// Returns the inheritance flags.
    pub const fn flags(&self) -> AceFlags {
        AceFlags::from_bits(self.0.flags.0)
    }

    /// Returns the rights; `None` if the kind's layout is unknown.
    pub fn mask(&self) -> Option<AccessMask> {
        self.0.mask().map(AccessMask::from)
    }

    /// Returns the user or group; `None` if the kind's layout is unknown.
    pub fn sid(&self) -> Option<Sid> {
        self.0.sid().copied().map(Sid)
    }

    /// Returns true if both entries have the same effect on the same account, whatever
    /// their inheritance flags.
    pub fn is_same_but_flags(&self, other: &Self) -> bool {
        self.0.kind == other.0.kind && self.0.body == other.0.body
    }
}

impl fmt::Debug for Ace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// An access list (DACL), MS-DTYP 2.4.5: the first entry that decides on a right counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acl {
    /// The entries, in the order in which they count.
    pub aces: Vec<Ace>,
}

impl Acl {
    /// Returns a list of these entries.
    pub const fn new(aces: Vec<Ace>) -> Self {
        Self { aces }
    }
}

flags! {
    /// Properties of an access list as a whole, MS-DTYP 2.4.6 Control.
    DaclControl(u16), frevo_wire::dtyp::SdControl {
        /// The object has an access list. One that is present and `None` allows
        /// everything to everybody.
        DACL_PRESENT,
        /// The list was made by a default rule.
        DACL_DEFAULTED,
        /// The list takes part in automatic inheritance.
        DACL_AUTO_INHERITED,
        /// Asks the server to compute the inherited entries.
        DACL_COMPUTED_INHERITANCE_REQUIRED,
        /// The list inherits nothing from the directory above.
        DACL_PROTECTED,
    }
}

/// Owner, group and access list of a file, MS-DTYP 2.4.6.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SecurityDescriptor {
    /// The owner, who may always change the access list.
    pub owner: Option<Sid>,
    /// The primary group; of use to POSIX clients only.
    pub group: Option<Sid>,
    /// The access list (DACL): the rights of users and groups.
    pub dacl: Option<Acl>,
    /// Properties of the access list.
    pub control: DaclControl,
}

impl SecurityDescriptor {
    pub(crate) fn of_wire(found: wire::SecurityDescriptor) -> Self {
        let list = |acl: wire::Acl| Acl { aces: acl.aces.into_iter().map(Ace).collect() };
        Self {
            owner: found.owner.map(Sid),
            group: found.group.map(Sid),
            dacl: found.dacl.map(list),
            control: found.control.into(),
        }
    }

    pub(crate) fn wire(&self) -> wire::SecurityDescriptor {
        let list = |acl: &Acl| wire::Acl::new(acl.aces.iter().map(|ace| ace.0.clone()).collect());
        wire::SecurityDescriptor {
            control: self.control.wire(),
            owner: self.owner.map(Sid::wire),
            group: self.group.map(Sid::wire),
            dacl: self.dacl.as_ref().map(list),
            ..wire::SecurityDescriptor::default()
        }
    }

    /// The parts that are given, which are those that are set.
    pub(crate) fn parts(&self) -> wire::SecurityInformation {
        let mut parts = wire::SecurityInformation::EMPTY;
        if self.owner.is_some() {
            parts |= wire::SecurityInformation::OWNER;
        }
        if self.group.is_some() {
            parts |= wire::SecurityInformation::GROUP;
        }
        if self.dacl.is_some() || self.control.contains(DaclControl::DACL_PRESENT) {
            parts |= wire::SecurityInformation::DACL;
        }
        parts
    }
}

/// A user, group or domain that a server knows.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Account {
    /// The SID that access lists name it by.
    pub sid: Sid,
    /// The name of its domain; may be empty.
    pub domain: String,
    /// Its name in the domain; empty for a domain.
    pub name: String,
    /// The kind: user, group, domain or machine.
    pub kind: AccountKind,
}

impl Account {
    pub(crate) fn new(sid: Sid, domain: String, name: String, kind: SidNameUse) -> Self {
        Self { sid, domain, name, kind: AccountKind::of_wire(kind) }
    }
}

/// The kind of an account: SID_NAME_USE, MS-LSAT 2.2.13.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AccountKind {
    /// The account of a user.
    User,
    /// A group, also a well-known one.
    Group,
    /// A local group of a domain or of a server, or a built-in one.
    Alias,
    /// The domain itself, or a machine's accounts.
    Domain,
    /// The account of a computer.
    Computer,
    /// A kind that has no name here.
    Other,
}

impl AccountKind {
    const fn of_wire(kind: SidNameUse) -> Self {
        match kind {
            SidNameUse::USER => Self::User,
            SidNameUse::GROUP | SidNameUse::WELL_KNOWN_GROUP => Self::Group,
            SidNameUse::ALIAS => Self::Alias,
            SidNameUse::DOMAIN => Self::Domain,
            SidNameUse::COMPUTER => Self::Computer,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sids_are_read_and_shown() {
        let sid: Sid = "S-1-5-32-544".parse().unwrap();
        assert_eq!((sid, &*sid.to_string()), (Sid::ADMINISTRATORS, "S-1-5-32-544"));
        assert_eq!(
            "ann".parse::<Sid>().unwrap_err().to_string(),
            "not a SID; write it as S-1-5-21-..."
        );
    }

    #[test]
    fn a_descriptor_keeps_its_entries_and_names_its_parts() {
        let ace = Ace::deny(AceFlags::CONTAINER_INHERIT, AccessMask::DELETE, Sid::EVERYONE);
        assert_eq!((ace.kind(), ace.sid()), (AceKind::Deny, Some(Sid::EVERYONE)));
        assert_eq!(ace.mask(), Some(AccessMask::DELETE));
        let list = SecurityDescriptor {
            dacl: Some(Acl::new(vec![ace])),
            control: DaclControl::DACL_PROTECTED,
            ..SecurityDescriptor::default()
        };
        assert_eq!(list.parts(), wire::SecurityInformation::DACL);
        let mut back = SecurityDescriptor::of_wire(list.wire());
        back.control = list.control;
        assert_eq!(back, list);
        let owner = SecurityDescriptor { owner: Some(Sid::EVERYONE), ..Default::default() };
        assert_eq!(owner.parts(), wire::SecurityInformation::OWNER);
        assert!(SecurityDescriptor::default().parts().is_empty());
    }
}
