//! The access list of a share: Share.FileSecurity of MS-SRVS 3.1.1.7, Share Permissions in Windows.
//!
//! It only takes away: the permissions of files and the other rules of the share apply too.

use std::fmt;
use std::str::FromStr;

use frevo_store::security::check::map_generic;
use frevo_store::security::{Token, maximal};
use frevo_wire::dtyp::{
    AccessMask, Ace, AceBody, AceFlags, AceType, Acl, SdControl, SecurityDescriptor, Sid,
};

use crate::base::limits::SHARE_ACCESS_ENTRIES;

/// Rights of Windows' Read: FILE_GENERIC_READ and FILE_EXECUTE.
const READ: AccessMask = AccessMask(0x0012_00A9);
/// Rights of Windows' Change: all but DELETE_CHILD, WRITE_DAC and WRITE_OWNER.
const CHANGE: AccessMask = AccessMask(0x0013_01BF);

/// The words for common rights, in the configuration.
const WORDS: [(&str, AccessMask); 3] =
    [("full", AccessMask::FILE_ALL), ("change", CHANGE), ("read", READ)];

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

/// An entry of an access list, written `allow:SID:RIGHTS` or `deny:SID:RIGHTS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessEntry {
    allows: bool,
    sid: Sid,
    mask: AccessMask,
}

impl FromStr for AccessEntry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not KIND:SID:RIGHTS, such as allow:S-1-1-0:change: the kind is allow or \
                 deny, the rights are full, change, read or a number such as 0x1200a9"
            )
        };
        let parts: Vec<&str> = text.split(':').collect();
        let [kind @ ("allow" | "deny"), sid, rights] = *parts else { return Err(wrong()) };
        let sid: Sid = sid.parse().map_err(|_| wrong())?;
        let word = WORDS.iter().find(|(word, _)| *word == rights).map(|(_, mask)| *mask);
        let number = || u32::from_str_radix(rights.strip_prefix("0x")?, 16).ok().map(AccessMask);
        let mask = word.or_else(number).ok_or_else(wrong)?;
        Ok(Self { allows: kind == "allow", sid, mask: map_generic(mask) & AccessMask::FILE_ALL })
    }
}

impl fmt::Display for AccessEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", if self.allows { "allow" } else { "deny" }, self.sid)?;
        match WORDS.iter().find(|(_, mask)| *mask == self.mask) {
            Some((word, _)) => f.write_str(word),
            None => write!(f, "{:#x}", self.mask.0),
        }
    }
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
            let make = if entry.allows { Ace::allow } else { Ace::deny };
            make(AceFlags::EMPTY, entry.mask, entry.sid)
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
            let mask = map_generic(*mask) & AccessMask::FILE_ALL;
            entries.push(AccessEntry { allows, sid: *sid, mask });
        }
        if entries.len() > SHARE_ACCESS_ENTRIES {
            return Err(unsupported("the access list of a share has too many entries"));
        }
        Ok(Some(Self::new(entries)))
    }

    /// The self-relative security descriptor of a share with this list, or without one.
    pub(crate) fn descriptor_of(list: Option<&Self>) -> Vec<u8> {
        let everybody =
            || Self::new(vec![AccessEntry { allows: true, sid: Sid::EVERYONE, mask: FULL }]);
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
        let denies_host = || self.entries.iter().any(|entry| !entry.allows && entry.is_of_host());
        if !groups_are_known && denies_host() {
            return AccessMask::EMPTY;
        }
        maximal(&self.descriptor, token)
    }

    /// True if the rights are enough to write: all those of Change, since one operation needs
    /// several of them.
    pub(crate) const fn writes(granted: AccessMask) -> bool {
        granted.contains(CHANGE)
    }

    /// True when some entry names a user or a group of the host.
    pub(crate) fn needs_host_users(&self) -> bool {
        self.entries.iter().any(AccessEntry::is_of_host)
    }
}

const FULL: AccessMask = AccessMask::FILE_ALL;

impl AccessEntry {
    const fn is_of_host(&self) -> bool {
        self.sid.authority() == UNIX
    }
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
    fn entries_are_read_and_written() {
        for text in ["allow:S-1-1-0:full", "deny:S-1-5-11:read", "allow:S-1-22-1-7:change"] {
            assert_eq!(text.parse::<AccessEntry>().unwrap().to_string(), text);
        }
        let generic: AccessEntry = "allow:S-1-1-0:0x10000000".parse().unwrap();
        assert_eq!(generic.to_string(), "allow:S-1-1-0:full");
        let odd: AccessEntry = "allow:S-1-1-0:0x81".parse().unwrap();
        assert_eq!(odd.to_string(), "allow:S-1-1-0:0x81");
        for bad in
            ["", "allow", "allow:ann:full", "grant:S-1-1-0:full", "allow:S-1-1-0:+1", "a:b:c:d"]
        {
            assert!(bad.parse::<AccessEntry>().is_err(), "{bad}");
        }
    }

    #[test]
    fn rights_are_those_of_the_token() {
        let some =
            list(&[&format!("deny:{BOB}:full"), "allow:S-1-1-0:read", "allow:S-1-5-32-544:full"]);
        assert_eq!(some.granted(&token(ANN, &[]), true), READ);
        assert_eq!(some.granted(&token(BOB, &["S-1-5-32-544"]), true), AccessMask::EMPTY);
        let all = some.granted(&token(ANN, &["S-1-5-32-544"]), true);
        assert!(all == FULL && AccessList::writes(all) && !AccessList::writes(READ));
        assert!(!AccessList::writes(CHANGE.without(AccessMask::DELETE)));
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
        // as a whole: without those entries it would grant other access than the client asked for.
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
