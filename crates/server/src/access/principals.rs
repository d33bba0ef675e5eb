//! Names, security identifiers and tokens of the accounts.
//!
//! Accounts of this server are `S-1-5-21-a-b-c-RID`: the machine's part and the
//! RID are kept in the account file.
//! Groups of the account file get theirs from their name. Unix users and groups
//! are `S-1-22-1-uid` and `S-1-22-2-gid`, as under Samba.

mod listing;
mod named_everywhere;

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use frevo_auth::{Accounts, Membership};
use frevo_crypto::sha256;
use frevo_store::security::{Privileges, Token};
use frevo_wire::dtyp::{Guid, Sid};
use frevo_wire::fscc::fold_name;

use crate::base::host::HostNames;
use crate::base::limits::{ACCOUNT_LISTED_BYTES, ACCOUNTS_LISTED};
pub(crate) use listing::Listing;
use named_everywhere::Named;

thread_local! {
    /// Bytes of accounts that were listed on this thread, and of what was made of them.
    static LISTED: Cell<usize> = const { Cell::new(0) };
}

/// Returns the bytes of accounts that were listed on this thread since the last call. They are free when
/// the questions have been answered.
pub(super) fn take_listed() -> usize {
    LISTED.take()
}

/// Accounts that can be swapped for newer ones while the server runs.
pub type SharedAccounts = Arc<dyn Accounts + Send + Sync>;

/// DOMAIN_USERS' relative identifier; of a machine it is called None.
const USERS_RID: u32 = 513;

/// The kind of account that a SID names, MS-SAMR 2.2.2.3 SID_NAME_USE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// SidTypeUser
    User = 1,
    /// SidTypeGroup
    Group = 2,
    /// SidTypeDomain
    Domain = 3,
    /// SidTypeAlias
    Alias = 4,
    /// SidTypeWellKnownGroup
    WellKnownGroup = 5,
}

/// A name and the SID behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The SID that the name stands for.
    pub sid: Sid,
    /// Name of the domain that it is in.
    pub domain: String,
    /// Its name there; empty for the domain itself.
    pub name: String,
    /// The kind of account.
    pub kind: Use,
}

/// Shown as `domain\name`.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.domain, &*self.name) {
            (domain, "") => f.write_str(domain),
            ("", name) => f.write_str(name),
            (domain, name) => write!(f, "{domain}\\{name}"),
        }
    }
}

/// Names that are the same everywhere, MS-DTYP 2.4.2.4.
const WELL_KNOWN: [(Sid, &str, &str, Use); 13] = [
    (Sid::EVERYONE, "", "Everyone", Use::WellKnownGroup),
    (Sid::CREATOR_OWNER, "", "CREATOR OWNER", Use::WellKnownGroup),
    (Sid::CREATOR_GROUP, "", "CREATOR GROUP", Use::WellKnownGroup),
    (Sid::OWNER_RIGHTS, "", "OWNER RIGHTS", Use::WellKnownGroup),
    (Sid::NETWORK, "NT AUTHORITY", "NETWORK", Use::WellKnownGroup),
    (Sid::ANONYMOUS, "NT AUTHORITY", "ANONYMOUS LOGON", Use::WellKnownGroup),
    (Sid::AUTHENTICATED_USERS, "NT AUTHORITY", "Authenticated Users", Use::WellKnownGroup),
    (Sid::LOCAL_SYSTEM, "NT AUTHORITY", "SYSTEM", Use::WellKnownGroup),
    (Sid::ADMINISTRATORS, "BUILTIN", "Administrators", Use::Alias),
    (Sid::USERS, "BUILTIN", "Users", Use::Alias),
    (Sid::GUESTS, "BUILTIN", "Guests", Use::Alias),
    (Sid::BUILTIN, "BUILTIN", "", Use::Domain),
    (Sid::NT_AUTHORITY, "NT AUTHORITY", "", Use::Domain),
];

/// The machine's SID if neither the configuration nor the account file has one.
pub(crate) fn machine_sid(guid: Guid) -> Sid {
    let hash = sha256(&[b"frevo machine sid ", &guid.0[..]].concat());
    let mut parts = hash.chunks_exact(4).map(|part| {
        part.iter().fold(0u32, |number, byte| number.wrapping_shl(8) | u32::from(*byte))
    });
    let mut next = || parts.next().unwrap_or(1);
    Sid::new(5, &[21, next(), next(), next()]).unwrap_or(Sid::BUILTIN)
}

/// The accounts with what makes them principals.
#[derive(Clone, Copy)]
pub struct Principals<'a> {
    /// SID of the machine.
    pub machine: Sid,
    /// The machine's name, which is the domain of its accounts.
    pub name: &'a str,
    /// The accounts of the server.
    pub accounts: &'a SharedAccounts,
    /// The users and groups of the host.
    pub host: &'a dyn HostNames,
}

impl Principals<'_> {
    /// The SID of an account.
    pub fn user_sid(&self, name: &str, membership: Option<&Membership>) -> Sid {
        let rid = membership.and_then(|membership| membership.rid);
        self.with_rid(rid.unwrap_or_else(|| rid_of(name, 0x1000_0000)))
    }

    /// The SID of a group of the account file.
    pub fn group_sid(&self, name: &str) -> Sid {
        let builtin = WELL_KNOWN.iter().find(|(_, domain, known, kind)| {
            *kind == Use::Alias && *domain == "BUILTIN" && known.eq_ignore_ascii_case(name)
        });
        builtin.map_or_else(|| self.with_rid(rid_of(name, 0x2000_0000)), |(sid, ..)| *sid)
    }

    fn with_rid(&self, rid: u32) -> Sid {
        self.machine.with_rid(rid).unwrap_or(self.machine)
    }

    /// The token of the account `user` for access checks, before it is decided if the account
    /// administers the server. `unix` are further SIDs, of the host's user that operations run as.
    pub fn token(&self, user: &str, unix: &[Sid]) -> Token {
        let membership = self.accounts.membership(user);
        let groups = membership.as_ref().map_or(&[][..], |membership| &membership.groups);
        let groups: Vec<Sid> = groups.iter().map(|name| self.group_sid(name)).collect();
        let all = Token::WELL_KNOWN.into_iter().chain([Sid::USERS]).chain(groups);
        let all = all.chain(unix.iter().copied());
        let sid = self.user_sid(user, membership.as_ref());
        Token::new(sid, self.with_rid(USERS_RID), all, Privileges::EMPTY)
    }

    /// The principal with this SID.
    pub fn find_sid(&self, sid: &Sid) -> Option<Principal> {
        self.find_sid_in(&Listing::default(), sid)
    }

    /// Like [`Self::find_sid`], with a listing that serves several questions.
    pub fn find_sid_in(&self, listing: &Listing, sid: &Sid) -> Option<Principal> {
        let principal = |domain: &str, name: &str, kind| {
            Some(Principal { sid: *sid, domain: domain.to_owned(), name: name.to_owned(), kind })
        };
        if let Some((_, domain, name, kind)) = WELL_KNOWN.iter().find(|(known, ..)| known == sid) {
            return principal(domain, name, *kind);
        }
        if *sid == self.machine {
            return principal(self.name, "", Use::Domain);
        }
        if let (22, [kind, id]) = (sid.authority(), sid.sub_authorities()) {
            let (domain, name, kind) = match kind {
                1 => ("Unix User", self.host.user_name(*id), Use::User),
                2 => ("Unix Group", self.host.group_name(*id), Use::Alias),
                _ => return None,
            };
            let name = name.ok().flatten();
            return principal(domain, &name.unwrap_or_else(|| id.to_string()), kind);
        }
        if *sid == self.with_rid(USERS_RID) {
            return principal(self.name, "None", Use::Group);
        }
        if let Some(Named { domain, name, kind, .. }) = named_everywhere::by_sid(sid) {
            return principal(domain, name, kind);
        }
        listing.find_sid(self, sid)
    }

    /// The principal with this name, written `name`, `domain\name` or `name@domain`.
    pub fn find_name(&self, name: &str) -> Option<Principal> {
        self.find_name_in(&Listing::default(), name)
    }

    /// Like [`Self::find_name`], with a listing that serves several questions.
    pub fn find_name_in(&self, listing: &Listing, name: &str) -> Option<Principal> {
        let (domain, name) = match (name.split_once('\\'), name.split_once('@')) {
            (Some((domain, name)), _) | (None, Some((name, domain))) => (Some(domain), name),
            (None, None) => (None, name),
        };
        let in_domain = |of: &str| domain.is_none_or(|domain| domain.eq_ignore_ascii_case(of));
        let known = WELL_KNOWN.iter().find(|(_, of, known, _)| {
            in_domain(of) && !known.is_empty() && known.eq_ignore_ascii_case(name)
        });
        if let Some((sid, ..)) = known {
            return self.find_sid(sid);
        }
        if domain.is_none_or(str::is_empty) && name.eq_ignore_ascii_case(self.name) {
            return self.find_sid(&self.machine);
        }
        if in_domain(self.name) {
            if let Some(membership) = self.accounts.membership(name) {
                return Some(self.user(&membership));
            }
            if name.eq_ignore_ascii_case("None") {
                return self.find_sid(&self.with_rid(USERS_RID));
            }
            if let Some(group) = listing.find_group(self, name) {
                return Some(group);
            }
        }
        let unix = |domain: &str, sid: Option<Sid>| {
            sid.filter(|_| in_domain(domain)).and_then(|sid| self.find_sid(&sid))
        };
        let user = || self.host.user(name).ok()?.map(|user| Sid::unix_user(user.uid));
        let group = || self.host.group_id(name).ok()?.map(Sid::unix_group);
        // An account or a group that is called "service" comes before the name of everywhere.
        let named = || self.find_sid(&named_everywhere::by_name(domain, name)?.sid);
        unix("Unix User", user()).or_else(|| unix("Unix Group", group())).or_else(named)
    }

    /// The accounts of the account file, which are looked through.
    fn all(&self) -> Vec<Membership> {
        let all = self.accounts.memberships(ACCOUNTS_LISTED);
        let bytes = all.len().saturating_mul(ACCOUNT_LISTED_BYTES);
        LISTED.set(LISTED.get().saturating_add(bytes));
        all
    }

    /// The users of the account file.
    pub fn users(&self) -> Vec<Principal> {
        let all = self.all();
        all.iter().map(|membership| self.user(membership)).collect()
    }

    /// The groups that anybody of the account file is in and that are not built
    /// in.
    pub fn groups(&self) -> Vec<Principal> {
        let all = self.all();
        let mut names: Vec<String> = all.into_iter().flat_map(|m| m.groups).collect();
        names.sort_by_key(|name| fold_name(name));
        names.dedup_by(|a, b| fold_name(a) == fold_name(b));
        let of = |name: String| {
            let (sid, domain) = (self.group_sid(&name), self.name.to_owned());
            Principal { sid, domain, name, kind: Use::Alias }
        };
        let machine = self.machine;
        let ours = move |group: &Principal| {
            group.sid.split_rid().is_some_and(|(domain, _)| domain == machine)
        };
        names.into_iter().map(of).filter(ours).collect()
    }

    /// The users, groups and aliases of a domain: this machine's, or BUILTIN.
    pub fn in_domain(&self, domain: &Sid) -> Vec<Principal> {
        if *domain == self.machine {
            let none = self.find_sid(&self.with_rid(USERS_RID));
            return none.into_iter().chain(self.users()).chain(self.groups()).collect();
        }
        let aliases = WELL_KNOWN.iter().filter(|(.., kind)| *kind == Use::Alias);
        let in_it = |sid: &Sid| sid.split_rid().is_some_and(|(of, _)| of == *domain);
        aliases.filter(|(sid, ..)| in_it(sid)).filter_map(|(sid, ..)| self.find_sid(sid)).collect()
    }

    /// The SID of the account with this name.
    pub(crate) fn account_sid(&self, name: &str) -> Option<Sid> {
        let membership = self.accounts.membership(name)?;
        Some(self.user_sid(&membership.name, Some(&membership)))
    }

    /// The accounts in a group of the account file; the host's group of this name where the file has
    /// none.
    pub(crate) fn group_sids(&self, name: &str) -> Vec<Sid> {
        let folded = fold_name(name);
        let all = self.all();
        let is_in = |of: &&Membership| of.groups.iter().any(|group| fold_name(group) == folded);
        let found: Vec<Sid> =
            all.iter().filter(is_in).map(|of| self.user_sid(&of.name, Some(of))).collect();
        if !found.is_empty() {
            return found;
        }
        let group = self.host.group_id(name).ok().flatten();
        group.map(Sid::unix_group).into_iter().collect()
    }

    /// The members of a group: all accounts are in the machine's None, and None is in
    /// BUILTIN\Users. Those of domains are with [`Administrators`](super::administrators::Administrators).
    pub fn members(&self, group: &Sid) -> Vec<Sid> {
        let none = self.with_rid(USERS_RID);
        if *group == Sid::USERS {
            return vec![none];
        }
        let all = self.all();
        let is_in = |of: &&Membership| {
            *group == none || of.groups.iter().any(|name| self.group_sid(name) == *group)
        };
        let sid = |of: &Membership| self.user_sid(&of.name, Some(of));
        all.iter().filter(is_in).map(sid).collect()
    }

    /// The aliases that any of `sids` is in.
    pub fn memberships(&self, sids: &[Sid]) -> Vec<Sid> {
        let none = self.with_rid(USERS_RID);
        let mut found = Vec::new();
        for of in self.all() {
            if sids.contains(&self.user_sid(&of.name, Some(&of))) {
                found.extend(of.groups.iter().map(|name| self.group_sid(name)));
                found.push(Sid::USERS);
            }
        }
        if sids.contains(&none) {
            found.push(Sid::USERS);
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// True for a user that may log on.
    pub fn is_enabled(&self, user: &Sid) -> bool {
        let all = self.all();
        all.iter().any(|of| self.user_sid(&of.name, Some(of)) == *user && !of.rules.is_disabled)
    }

    fn user(&self, membership: &Membership) -> Principal {
        Principal {
            sid: self.user_sid(&membership.name, Some(membership)),
            domain: self.name.to_owned(),
            name: membership.name.clone(),
            kind: Use::User,
        }
    }

    /// The users of the host that SIDs stand for, where they stand for any. The
    /// host is asked, which may wait.
    pub fn unix_users(&self, sids: &[Sid]) -> Vec<Option<u32>> {
        let mut accounts = None;
        let mut uid = |sid: &Sid| match (sid.authority(), sid.sub_authorities()) {
            (22, [1, uid]) => Some(*uid),
            _ => {
                let accounts = accounts.get_or_insert_with(|| {
                    self.users().into_iter().map(|user| (user.sid, user.name)).collect()
                });
                let accounts: &HashMap<Sid, String> = accounts;
                self.host.user(accounts.get(sid)?).ok()?.map(|user| user.uid)
            }
        };
        sids.iter().map(&mut uid).collect()
    }
}

impl fmt::Debug for Principals<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Principals").field("machine", &self.machine).finish_non_exhaustive()
    }
}

/// A relative identifier of a name, the same whatever its case: FNV-1a in 28
/// bits behind a first digit that tells the kinds apart.
fn rid_of(name: &str, kind: u32) -> u32 {
    let hash = fold_name(name)
        .bytes()
        .fold(0x811C_9DC5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    kind | (hash & 0x0FFF_FFFF)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use frevo_auth::AccountFile;
    use frevo_auth::smbpasswd::Entry;

    use super::*;
    use crate::base::host;

    fn accounts() -> SharedAccounts {
        let mut file = AccountFile::default();
        for name in ["ann", "bob"] {
            let hash = frevo_auth::NtHash::from_password("x");
            file.add(Entry::new(name, u32::MAX, hash, 0)).unwrap();
        }
        file.set_groups("ann", &["staff".into(), "administrators".into()]).unwrap();
        file.set_groups("bob", &["service".into()]).unwrap();
        Arc::new(file)
    }

    #[test]
    fn names_and_sids_lead_to_each_other() {
        let accounts = accounts();
        let machine = machine_sid(Guid([7; 16]));
        assert_eq!(machine, machine_sid(Guid([7; 16])));
        assert_ne!(machine, machine_sid(Guid([8; 16])));
        let principals =
            Principals { machine, name: "BOX", accounts: &accounts, host: host::names() };
        for name in [
            "ann",
            "BOX\\bob",
            "BOX\\staff",
            "Everyone",
            "BUILTIN\\Administrators",
            "NT AUTHORITY\\SYSTEM",
            "BUILTIN\\Backup Operators",
            "interactive",
            "BOX\\None",
            "BOX",
            "Unix User\\root",
            "Unix Group\\root",
        ] {
            let found = principals.find_name(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(principals.find_sid(&found.sid), Some(found), "{name}");
        }
        assert_eq!(principals.find_name("ann").unwrap().sid, machine.with_rid(1_000).unwrap());
        // A group of the account file comes before the well-known name.
        assert_eq!(principals.find_name("service").unwrap().kind, Use::Alias);
        assert_eq!(
            principals.find_name("NT AUTHORITY\\service").unwrap().sid.to_string(),
            "S-1-5-6"
        );
        for name in ["nobody-at-all", "OTHER\\ann", "BUILTIN\\ann", "", "\\"] {
            assert_eq!(principals.find_name(name), None, "{name}");
        }
        let unknown = machine.with_rid(4_711).unwrap();
        assert_eq!(principals.find_sid(&unknown), None);
        let sids = [Sid::unix_user(7), unknown, Sid::unix_group(7), Sid::EVERYONE];
        assert_eq!(principals.unix_users(&sids), [Some(7), None, None, None]);
    }

    /// So many accounts that some are beyond the limit.
    struct Many(usize);

    impl Accounts for Many {
        fn account(&self, _: &str, _: &str) -> Option<frevo_auth::Account> {
            None
        }

        fn memberships(&self, limit: usize) -> Vec<Membership> {
            let rid = |at: usize| u32::try_from(at + 1_000).ok();
            let of = |at: usize| Membership {
                name: at.to_string(),
                rid: rid(at),
                ..Membership::default()
            };
            (0..self.0.min(limit)).map(of).collect()
        }
    }

    #[test]
    fn so_many_accounts_are_listed() {
        for count in [ACCOUNTS_LISTED - 1, ACCOUNTS_LISTED, ACCOUNTS_LISTED + 1] {
            let accounts: SharedAccounts = Arc::new(Many(count));
            let machine = machine_sid(Guid([7; 16]));
            let principals =
                Principals { machine, name: "BOX", accounts: &accounts, host: host::names() };
            let users = principals.users();
            assert_eq!(users.len(), count.min(ACCOUNTS_LISTED));
            let last = machine.with_rid(u32::try_from(count + 999).unwrap()).unwrap();
            assert_eq!(principals.is_enabled(&last), count <= ACCOUNTS_LISTED, "{count}");
        }
    }

    #[test]
    fn an_account_is_the_hosts_user_of_its_name() {
        let mut file = AccountFile::default();
        for name in ["root", "no such user here"] {
            let hash = frevo_auth::NtHash::from_password("x");
            file.add(Entry::new(name, u32::MAX, hash, 0)).unwrap();
        }
        let accounts: SharedAccounts = Arc::new(file);
        let machine = machine_sid(Guid([7; 16]));
        let principals =
            Principals { machine, name: "BOX", accounts: &accounts, host: host::names() };
        let sids: Vec<Sid> = principals.users().iter().map(|user| user.sid).collect();
        assert_eq!(principals.unix_users(&sids), [Some(0), None]);
    }

    #[test]
    fn who_is_in_what_is_told_both_ways() {
        let accounts = accounts();
        let machine = machine_sid(Guid([7; 16]));
        let principals =
            Principals { machine, name: "BOX", accounts: &accounts, host: host::names() };
        let sid = |name| principals.find_name(name).unwrap().sid;
        let (ann, bob, none) = (sid("ann"), sid("bob"), sid("BOX\\None"));
        let names: Vec<_> = principals.in_domain(&machine).into_iter().map(|of| of.name).collect();
        assert_eq!(names, ["None", "ann", "bob", "service", "staff"]);
        let builtin: Vec<_> =
            principals.in_domain(&Sid::BUILTIN).into_iter().map(|of| of.name).collect();
        assert_eq!(builtin, ["Administrators", "Users", "Guests"]);
        assert!(principals.in_domain(&Sid::NT_AUTHORITY).is_empty());
        for (group, members) in [
            (none, vec![ann, bob]),
            (sid("staff"), vec![ann]),
            (Sid::ADMINISTRATORS, vec![ann]),
            (Sid::USERS, vec![none]),
            (Sid::GUESTS, vec![]),
        ] {
            assert_eq!(principals.members(&group), members, "{group}");
        }
        let mut anns = vec![sid("staff"), Sid::ADMINISTRATORS, Sid::USERS];
        anns.sort_unstable();
        assert_eq!(principals.memberships(&[ann]), anns);
        let mut bobs = vec![sid("service"), Sid::USERS];
        bobs.sort_unstable();
        assert_eq!(principals.memberships(&[bob]), bobs);
        assert_eq!(principals.memberships(&[none]), [Sid::USERS]);
        assert!(principals.memberships(&[Sid::EVERYONE]).is_empty());
        assert!(principals.is_enabled(&ann) && !principals.is_enabled(&none));
    }

    #[test]
    fn tokens_have_the_groups_of_the_account() {
        let accounts = accounts();
        let machine = machine_sid(Guid([7; 16]));
        let principals =
            Principals { machine, name: "BOX", accounts: &accounts, host: host::names() };
        let (ann, bob) = (principals.token("ANN", &[]), principals.token("bob", &[]));
        let staff = principals.group_sid("Staff");
        assert!(ann.contains(&staff) && !bob.contains(&staff));
        assert!(ann.contains(&Sid::ADMINISTRATORS) && !bob.contains(&Sid::ADMINISTRATORS));
        assert!(ann.privileges().is_empty(), "that is decided later");
        assert!(bob.contains(&Sid::EVERYONE) && bob.contains(&Sid::USERS));
        assert_eq!(bob.user(), &machine.with_rid(1_001).unwrap());
    }
}
