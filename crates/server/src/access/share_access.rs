//! The access list of a share: Share.FileSecurity of MS-SRVS 3.1.1.7, Share Permissions in Windows.
//!
//! It only takes away: the permissions of files and the other rules of the share apply too.

pub use frevo_store::security::AccessEntry;
use frevo_store::security::{Token, maximal};
use frevo_wire::dtyp::{
    AccessMask, Ace, AceBody, AceFlags, AceType, Acl, SdControl, SecurityDescriptor, Sid,
};

use crate::base::limits::SHARE_ACCESS_ENTRIES;

/// The authority of the SIDs of the host's users and groups.
pub(crate) const UNIX: u64 = 22;

/// A descriptor that is malformed, or has no DACL.
const fn invalid() -> NotAccepted {
    NotAccepted::Malformed("the security descriptor is malformed or has no DACL")
}

const fn unsupported(why: &'static str) -> NotAccepted {
    NotAccepted::Unsupported(why)
}

/// The reason why the access list of a client's security descriptor is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotAccepted {
    /// The descriptor is malformed.
    Malformed(&'static str),
    /// An entry would not be enforced.
    Unsupported(&'static str),
}

/// The access list of a share. Without entries it lets nobody in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessList {
    entries: Vec<AccessEntry>,
    /// The entries in the form of the access check; without an owner, who would have rights.
    descriptor: SecurityDescriptor,
}

impl AccessList {
    /// A list of these entries, in this order.
    pub fn new(entries: Vec<AccessEntry>) -> Self {
        let ace = |entry: &AccessEntry| {
            let make = if entry.allows() { Ace::allow } else { Ace::deny };
            make(AceFlags::EMPTY, entry.mask(), *entry.sid())
        };
        let dacl = Some(Acl::new(entries.iter().map(ace).collect()));
        let descriptor = SecurityDescriptor { dacl, ..SecurityDescriptor::default() };
        Self { entries, descriptor }
    }

    /// Returns the entries in their order.
    pub fn entries(&self) -> &[AccessEntry] {
        &self.entries
    }

    /// The list of a self-relative security descriptor; None for a null DACL, which lets everybody
    /// in. `knows` returns true for a SID that a token of this server can have; an entry that
    /// denies any other SID is refused.
    pub(crate) fn of_descriptor(
        bytes: &[u8],
        knows: impl Fn(&Sid) -> bool,
    ) -> Result<Option<Self>, NotAccepted> {
        let descriptor = SecurityDescriptor::parse(bytes).map_err(|_| invalid())?;
        if descriptor.sacl.as_ref().is_some_and(|sacl| !sacl.aces.is_empty()) {
            return Err(unsupported("the access list of a share cannot audit"));
        }
        if descriptor.has_null_dacl() {
            return Ok(None);
        }
        let dacl = descriptor.dacl.ok_or_else(invalid)?;
        let mut entries = Vec::new();
        // An inherit-only entry does not apply to the share itself, so it is skipped.
        for ace in dacl.aces.iter().filter(|ace| !ace.flags.contains(AceFlags::INHERIT_ONLY)) {
            let (AceBody::Plain { mask, sid, .. }, allows) = (&ace.body, kind(ace.kind)?) else {
                return Err(invalid());
            };
            if !allows && !knows(sid) {
                return Err(unsupported(
                    "an entry denies rights to a SID that no user of this server can have",
                ));
            }
            entries.push(AccessEntry::new(allows, *sid, *mask));
        }
        if entries.len() > SHARE_ACCESS_ENTRIES {
            return Err(unsupported("the access list of a share has too many entries"));
        }
        Ok(Some(Self::new(entries)))
    }

    /// The self-relative security descriptor of a share with this list, or without one.
    pub(crate) fn descriptor_of(list: Option<&Self>) -> Vec<u8> {
        let everybody = || Self::new(vec![AccessEntry::new(true, Sid::EVERYONE, FULL)]);
        let list = list.map_or_else(everybody, Self::clone);
        let descriptor = SecurityDescriptor {
            control: SdControl::SELF_RELATIVE,
            owner: Some(Sid::ADMINISTRATORS),
            group: Some(Sid::ADMINISTRATORS),
            ..list.descriptor
        };
        let mut bytes = Vec::new();
        // Encoding fails only if the configured list of users is too long for a descriptor. The
        // result is then empty.
        if descriptor.encode(&mut bytes).is_err() {
            bytes.clear();
        }
        bytes
    }

    /// Returns the rights that the list grants. While the groups of the user on the host are not
    /// known, a list that denies rights to a user or a group of the host grants nothing.
    pub(crate) fn granted(&self, token: &Token, groups_are_known: bool) -> AccessMask {
        let denies_host = || self.entries.iter().any(|entry| !entry.allows() && is_of_host(entry));
        if !groups_are_known && denies_host() {
            return AccessMask::EMPTY;
        }
        maximal(&self.descriptor, token)
    }

    /// True if the rights are enough to write: all those of Change, since one operation needs
    /// several of them.
    pub(crate) const fn writes(granted: AccessMask) -> bool {
        granted.contains(AccessEntry::CHANGE)
    }

    /// True when some entry names a user or a group of the host.
    pub(crate) fn needs_host_users(&self) -> bool {
        self.entries.iter().any(is_of_host)
    }
}

const FULL: AccessMask = AccessMask::FILE_ALL;

/// True for an entry about a user or a group of the host.
const fn is_of_host(entry: &AccessEntry) -> bool {
    entry.sid().authority() == UNIX
}

/// True for an entry that allows, false for one that denies.
fn kind(kind: AceType) -> Result<bool, NotAccepted> {
    match kind {
        AceType::ACCESS_ALLOWED => Ok(true),
        AceType::ACCESS_DENIED => Ok(false),
        _ => Err(unsupported("an entry is neither a plain allow nor a plain deny")),
    }
}

#[cfg(test)]
mod tests {
    use frevo_store::security::Privileges;

    use super::*;

    const ANN: &str = "S-1-5-21-1-2-3-1000";
    const BOB: &str = "S-1-5-21-1-2-3-1001";

    fn token(user: &str, more: &[&str]) -> Token {
        let more = more.iter().map(|sid| sid.parse().unwrap());
        let groups = Token::WELL_KNOWN.into_iter().chain(more);
        let primary = "S-1-5-21-1-2-3-513".parse().unwrap();
        Token::new(user.parse().unwrap(), primary, groups, Privileges::EMPTY)
    }

    fn list(entries: &[&str]) -> AccessList {
        AccessList::new(entries.iter().map(|entry| entry.parse().unwrap()).collect())
    }

    fn encoded(aces: Vec<Ace>) -> Vec<u8> {
        let dacl = Some(Acl::new(aces));
        let mut bytes = Vec::new();
        SecurityDescriptor { dacl, ..SecurityDescriptor::default() }.encode(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn rights_are_those_of_the_token() {
        let some =
            list(&[&format!("deny:{BOB}:full"), "allow:S-1-1-0:read", "allow:S-1-5-32-544:full"]);
        assert_eq!(some.granted(&token(ANN, &[]), true), AccessEntry::READ);
        assert_eq!(some.granted(&token(BOB, &["S-1-5-32-544"]), true), AccessMask::EMPTY);
        let all = some.granted(&token(ANN, &["S-1-5-32-544"]), true);
        assert!(all == FULL && AccessList::writes(all) && !AccessList::writes(AccessEntry::READ));
        assert!(!AccessList::writes(AccessEntry::CHANGE.without(AccessMask::DELETE)));
        let nobody = list(&[]);
        assert_eq!(nobody.granted(&token(ANN, &["S-1-5-32-544"]), true), AccessMask::EMPTY);
    }

    #[test]
    fn unknown_groups_count_as_denied() {
        let some = list(&["deny:S-1-22-2-7:full", "allow:S-1-1-0:full"]);
        assert!(some.needs_host_users() && !list(&["allow:S-1-1-0:full"]).needs_host_users());
        assert_eq!(some.granted(&token(ANN, &[]), false), AccessMask::EMPTY);
        assert_eq!(some.granted(&token(ANN, &[]), true), FULL);
        assert_eq!(some.granted(&token(ANN, &["S-1-22-2-7"]), true), AccessMask::EMPTY);
    }

    #[test]
    fn a_descriptor_is_taken_as_it_is_or_not_at_all() {
        let taken = |bytes: &[u8]| AccessList::of_descriptor(bytes, |sid| *sid == Sid::EVERYONE);
        let bytes = AccessList::descriptor_of(Some(&list(&["allow:S-1-5-11:change"])));
        let found = taken(&bytes).unwrap().unwrap();
        assert_eq!(found, list(&["allow:S-1-5-11:change"]));
        assert_eq!(
            taken(&AccessList::descriptor_of(None)),
            Ok(Some(list(&["allow:S-1-1-0:full"])))
        );
        let with = |kind, flags| Ace { kind, ..Ace::allow(flags, FULL, Sid::EVERYONE) };
        let plain = |kind| encoded(vec![with(kind, AceFlags::EMPTY)]);
        assert_eq!(taken(&plain(AceType::ACCESS_DENIED)), Ok(Some(list(&["deny:S-1-1-0:full"]))));
        let only = encoded(vec![with(AceType::ACCESS_ALLOWED, AceFlags::INHERIT_ONLY)]);
        assert_eq!(taken(&only), Ok(Some(list(&[]))));
        // A list with a condition, with an unsupported denial or with too many entries is refused
        // as a whole. Without those entries the list would grant other access than the client asked
        // for.
        for bytes in [
            plain(AceType::ACCESS_ALLOWED_CALLBACK),
            plain(AceType::ACCESS_DENIED_CALLBACK),
            encoded(vec![Ace::deny(AceFlags::EMPTY, FULL, "S-1-5-113".parse().unwrap())]),
            encoded(vec![with(AceType::ACCESS_ALLOWED, AceFlags::EMPTY); SHARE_ACCESS_ENTRIES + 1]),
        ] {
            assert!(matches!(taken(&bytes), Err(NotAccepted::Unsupported(_))));
        }
        let most =
            encoded(vec![with(AceType::ACCESS_ALLOWED, AceFlags::EMPTY); SHARE_ACCESS_ENTRIES]);
        assert!(taken(&most).is_ok());
        let mut none = Vec::new();
        SecurityDescriptor::default().encode(&mut none).unwrap();
        assert_eq!(taken(&none), Err(invalid()));
        let null = SecurityDescriptor {
            control: SdControl::DACL_PRESENT,
            ..SecurityDescriptor::default()
        };
        none.clear();
        null.encode(&mut none).unwrap();
        assert_eq!(taken(&none), Ok(None));
        for length in 0..bytes.len() {
            assert_ne!(taken(&bytes[..length]).ok().flatten(), Some(found.clone()), "{length}");
        }
    }
}
