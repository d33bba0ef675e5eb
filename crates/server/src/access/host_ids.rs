//! The users and groups of the host that SIDs stand for, where the kernel decides by their numbers.
//!
//! Most SIDs tell it themselves. For the others the name service or a controller is asked, on threads
//! that may wait, and the answers are kept for a while: each new file in a folder asks again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use frevo_store::security::posix_lists::Identity;
use frevo_wire::dtyp::Sid;
use frevo_wire::fscc::fold_name;
use parking_lot::Mutex;

use crate::access::administrators::DOMAIN_USERS;
use crate::access::domain_names::{DomainNames, NoAnswer, Told, is_of_domain};
use crate::access::id_map::IdMap;
use crate::access::principals::{Listing, Principal, Principals, Use};
use crate::base::ambient::Ambient;
use crate::base::limits::{
    DOMAIN_NAMES_TIMEOUT, HOST_IDS_FRESH, HOST_IDS_REMEMBERED, HOST_USER_FRESH,
};

/// The answers about SIDs that do not tell it themselves.
#[derive(Debug, Default)]
pub(crate) struct HostIds(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    answers: HashMap<Sid, (Instant, Identity)>,
    /// The number of configurations before the present one.
    generation: u64,
}

/// An answer about a SID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) sid: Sid,
    pub(crate) identity: Identity,
    /// True if everybody who was asked has answered.
    is_certain: bool,
}

impl Answer {
    /// True if it tells the number, or that there is none.
    pub(crate) fn is_told(&self) -> bool {
        self.is_certain || self.identity != Identity::Unknown
    }
}

impl HostIds {
    /// Returns the users of a SID. None when somebody must be asked. `has_domain_users` tells that users
    /// of domains log on to this server.
    pub(crate) fn known(&self, sid: &Sid, has_domain_users: bool) -> Option<Identity> {
        // BUILTIN\Users does not contain all users of domains, so with them it does not stand for
        // everyone.
        let is_told = *sid != Sid::USERS || !has_domain_users;
        told(sid).filter(|_| is_told).or_else(|| self.fresh(sid, Instant::now()))
    }

    fn fresh(&self, sid: &Sid, now: Instant) -> Option<Identity> {
        let known = self.0.lock();
        let (since, identity) = known.answers.get(sid)?;
        (now.saturating_duration_since(*since) < lifetime(*identity)).then_some(*identity)
    }

    /// Returns the generation of the configuration, for [`Self::ask`].
    pub(crate) fn generation(&self) -> u64 {
        self.0.lock().generation
    }

    /// Forgets all answers: there is another configuration, which may have other numbers.
    pub(crate) fn forget(&self) {
        let mut known = self.0.lock();
        known.answers.clear();
        known.generation = known.generation.wrapping_add(1);
    }

    /// Keeps an answer, unless it belongs to another configuration. When there is no room, those that
    /// are not fresh go, or else all.
    fn learn(&self, sid: Sid, identity: Identity, generation: u64, now: Instant) {
        let mut kept = self.0.lock();
        if kept.generation != generation {
            return;
        }
        let known = &mut kept.answers;
        if known.len() >= HOST_IDS_REMEMBERED && !known.contains_key(&sid) {
            known.retain(|_, (since, identity)| {
                now.saturating_duration_since(*since) < lifetime(*identity)
            });
            if known.len() >= HOST_IDS_REMEMBERED {
                known.clear();
            }
        }
        known.insert(sid, (now, identity));
    }

    /// Asks about SIDs, which may wait. `generation` is the one before the caller read the
    /// configuration.
    pub(crate) fn ask(&self, sids: &[Sid], generation: u64, host: &Asked<'_>) -> Vec<Answer> {
        let deadline = Instant::now() + DOMAIN_NAMES_TIMEOUT;
        let listing = Listing::default();
        let answer = |sid: &Sid| {
            let (identity, is_certain) = host.identity(&listing, sid, deadline);
            // The account file tells about the server's own, and clients can invent as many of them as
            // they like: only those with a number are kept.
            if is_certain && (is_number(identity) || !host.is_own(sid)) {
                self.learn(*sid, identity, generation, Instant::now());
            }
            Answer { sid: *sid, identity, is_certain }
        };
        sids.iter().map(answer).collect()
    }
}

/// True for users and groups with a number on the host.
const fn is_number(identity: Identity) -> bool {
    !matches!(identity, Identity::Unknown | Identity::Nobody)
}

/// The time for which an answer counts. An administrator who adds a user or group does not wait long.
const fn lifetime(identity: Identity) -> Duration {
    if is_number(identity) { HOST_IDS_FRESH } else { HOST_USER_FRESH }
}

/// Returns the users of a SID that tells it itself.
fn told(sid: &Sid) -> Option<Identity> {
    Some(match *sid {
        // All accounts of the server are in these groups.
        Sid::EVERYONE | Sid::NETWORK | Sid::AUTHENTICATED_USERS | Sid::USERS => Identity::Everyone,
        Sid::LOCAL_SYSTEM | Sid::ANONYMOUS | Sid::NULL => Identity::Nobody,
        _ => match (sid.authority(), sid.sub_authorities()) {
            // The number -1 means no user and no group.
            (22, [1 | 2, u32::MAX]) => Identity::Nobody,
            (22, [1, uid]) => Identity::User(*uid),
            (22, [2, gid]) => Identity::Group(*gid),
            (22, _) => Identity::Nobody,
            _ if is_of_domain(sid) => return None,
            _ => Identity::Unknown,
        },
    })
}

/// True for the SID of a user or group that could have a number on the host. The members of groups
/// that are built in have theirs.
pub(crate) fn could_have_number(sid: &Sid) -> bool {
    is_of_domain(sid) || sid.authority() == 22
}

/// Those that can be asked.
pub(crate) struct Asked<'a> {
    pub(crate) map: &'a IdMap,
    pub(crate) names: &'a DomainNames,
    pub(crate) principals: Principals<'a>,
    pub(crate) ambient: &'a dyn Ambient,
    /// True if users of domains log on to this server.
    pub(crate) has_domain_users: bool,
}

impl Asked<'_> {
    /// Returns the users of BUILTIN\Users or of a SID below S-1-5-21, and true if everybody has
    /// answered.
    fn identity(&self, listing: &Listing, sid: &Sid, deadline: Instant) -> (Identity, bool) {
        if *sid == Sid::USERS {
            return self.users(listing, deadline);
        }
        if let Some(number) = self.map.number(sid) {
            return match self.names.find_sid(sid, deadline).map(|found| found.kind) {
                Some(Use::User) => (Identity::User(number), true),
                Some(_) => (Identity::Group(number), true),
                None => (Identity::Either(number), false),
            };
        }
        let is_own = self.is_own(sid);
        let found = if is_own { self.own(listing, sid) } else { self.of_domain(sid, deadline) };
        match found {
            Ok(Some(found)) if found.kind == Use::User => self.user(&found, is_own),
            // The host's group of the name has other members than one of the account file.
            Ok(Some(found)) if !is_own => self.group(&found),
            Ok(Some(_)) => (Identity::Unknown, true),
            // A SID that belongs to no account gives rights to no one.
            Ok(None) => (Identity::Nobody, true),
            // An account that is not listed, or a domain without anybody to ask, is never told.
            Err(NoAnswer) => (Identity::Unknown, is_own || !self.names.has_directory()),
        }
    }

    /// The account or group of this server. More accounts than are listed may have any SID.
    fn own(&self, listing: &Listing, sid: &Sid) -> Told {
        match self.principals.find_sid_in(listing, sid) {
            None if !listing.is_whole(&self.principals) => Err(NoAnswer),
            found => Ok(found),
        }
    }

    /// The user or group of a domain. Where no user of a domain logs on, nobody has such a SID.
    fn of_domain(&self, sid: &Sid, deadline: Instant) -> Told {
        match self.names.look_up_sid(sid, deadline) {
            Err(NoAnswer) if !self.has_domain_users => Ok(None),
            told => told,
        }
    }

    /// The members of BUILTIN\Users: Domain Users of the joined domain, and the accounts of this
    /// server, for whom a POSIX list has no entry.
    fn users(&self, listing: &Listing, deadline: Instant) -> (Identity, bool) {
        let sids = self.names.sids();
        let joined = sids.joined().first().and_then(|domain| domain.sid.with_rid(DOMAIN_USERS));
        let Some(group) = joined else { return (Identity::Unknown, true) };
        match self.identity(listing, &group, deadline) {
            (Identity::Group(gid) | Identity::Either(gid), is_certain) => {
                (Identity::GroupAndMore(gid), is_certain)
            }
            (_, is_certain) => (Identity::Unknown, is_certain),
        }
    }

    /// True for the SID of an account or group of this server.
    fn is_own(&self, sid: &Sid) -> bool {
        sid.split_rid().is_some_and(|(domain, _)| domain == self.principals.machine)
    }

    /// A user of a domain is called on the host as it logs on: `domain\name`.
    fn user(&self, found: &Principal, is_own: bool) -> (Identity, bool) {
        let name = if is_own { found.name.clone() } else { found.to_string() };
        match self.ambient.host_user(&name) {
            Ok(user) => {
                (user.map_or(Identity::Unknown, |user| Identity::User(user.unix.uid)), true)
            }
            Err(_) => (Identity::Unknown, false),
        }
    }

    fn group(&self, found: &Principal) -> (Identity, bool) {
        // The SID of a domain is in no list for its own sake, and a group of the host may have its name.
        let is_group = matches!(found.kind, Use::Group | Use::Alias | Use::WellKnownGroup);
        if !is_group || found.name.is_empty() || found.domain.is_empty() {
            return (Identity::Unknown, true);
        }
        let name = found.to_string();
        let host = self.ambient.names();
        let gid = match host.group_id(&name) {
            Ok(None) => host.group_id(&fold_name(&name)),
            found => found,
        };
        match gid {
            Ok(gid) => (gid.map_or(Identity::Unknown, Identity::Group), true),
            Err(_) => (Identity::Unknown, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use frevo_wire::dtyp::FileTime;

    use super::*;
    use crate::access::principals::SharedAccounts;
    use crate::base::host::{HostNames, Said, UnixUser};

    fn sid(text: &str) -> Sid {
        text.parse().unwrap()
    }

    #[test]
    fn most_sids_tell_it_themselves() {
        for (text, identity) in [
            ("S-1-1-0", Some(Identity::Everyone)),
            ("S-1-5-11", Some(Identity::Everyone)),
            ("S-1-5-32-545", Some(Identity::Everyone)),
            ("S-1-5-18", Some(Identity::Nobody)),
            ("S-1-5-32-544", Some(Identity::Unknown)),
            ("S-1-5-80-1", Some(Identity::Unknown)),
            ("S-1-22-1-1000", Some(Identity::User(1_000))),
            ("S-1-22-2-1000", Some(Identity::Group(1_000))),
            ("S-1-22-2-4294967295", Some(Identity::Nobody)),
            ("S-1-22-3-1", Some(Identity::Nobody)),
            ("S-1-5-21-1-2-3-500", None),
        ] {
            assert_eq!(HostIds::default().known(&sid(text), false), identity, "{text}");
            let on_member = identity.filter(|_| sid(text) != Sid::USERS);
            assert_eq!(HostIds::default().known(&sid(text), true), on_member, "{text}");
        }
    }

    #[test]
    fn answers_are_bounded_in_number_and_time() {
        let ids = HostIds::default();
        let of = |rid: usize| sid("S-1-5-21-1-2-3").with_rid(u32::try_from(rid).unwrap()).unwrap();
        let count = || ids.0.lock().answers.len();
        let start = Instant::now();
        for rid in 0..HOST_IDS_REMEMBERED {
            ids.learn(of(rid), Identity::User(1), 0, start);
        }
        assert_eq!(count(), HOST_IDS_REMEMBERED);
        assert_eq!(ids.fresh(&of(0), start), Some(Identity::User(1)));
        ids.learn(of(0), Identity::User(2), 0, start);
        assert_eq!(count(), HOST_IDS_REMEMBERED, "it was there");
        ids.learn(of(HOST_IDS_REMEMBERED), Identity::User(3), 0, start);
        assert_eq!(count(), 1, "all were fresh");
        let later = start + HOST_IDS_FRESH;
        assert_eq!(ids.fresh(&of(HOST_IDS_REMEMBERED), later), None);
        // An administrator adds the user that was missed.
        ids.learn(of(1), Identity::Unknown, 0, start);
        assert_eq!(ids.fresh(&of(1), start), Some(Identity::Unknown));
        assert_eq!(ids.fresh(&of(1), start + HOST_USER_FRESH), None);
    }

    #[test]
    fn another_configuration_has_other_answers() {
        let ids = HostIds::default();
        let (sid, now) = (sid("S-1-5-21-1-2-3-500"), Instant::now());
        let before = ids.generation();
        ids.learn(sid, Identity::User(1), before, now);
        ids.forget();
        assert_eq!(ids.fresh(&sid, now), None);
        ids.learn(sid, Identity::User(1), before, now);
        assert_eq!(ids.fresh(&sid, now), None, "it was asked for before");
        ids.learn(sid, Identity::User(2), ids.generation(), now);
        assert_eq!(ids.fresh(&sid, now), Some(Identity::User(2)));
    }

    /// A host that has a group of every name.
    #[derive(Debug)]
    struct AllGroups;

    impl HostNames for AllGroups {
        fn user(&self, _: &str) -> Said<UnixUser> {
            Ok(None)
        }

        fn user_name(&self, _: u32) -> Said<String> {
            Ok(None)
        }

        fn group_name(&self, _: u32) -> Said<String> {
            Ok(None)
        }

        fn group_id(&self, _: &str) -> Said<u32> {
            Ok(Some(7))
        }
    }

    impl Ambient for AllGroups {
        fn now(&self) -> FileTime {
            FileTime(0)
        }

        fn random(&self, _: &mut [u8]) {}

        fn names(&self) -> &dyn HostNames {
            self
        }
    }

    /// A host may have a group that is called like a domain; nobody is in it by the SID of the domain.
    #[test]
    fn the_sid_of_a_domain_is_no_group_of_the_host() {
        let accounts: SharedAccounts = Arc::new(frevo_auth::AccountFile::default());
        let principals =
            Principals { machine: Sid::NULL, name: "FILES", accounts: &accounts, host: &AllGroups };
        let (map, names) = (IdMap::default(), DomainNames::default());
        let asked = Asked {
            map: &map,
            names: &names,
            principals,
            ambient: &AllGroups,
            has_domain_users: true,
        };
        let sid = sid("S-1-5-21-1-2-3");
        for (kind, name, expected) in [
            (Use::Group, "staff", Identity::Group(7)),
            (Use::Alias, "staff", Identity::Group(7)),
            (Use::Domain, "", Identity::Unknown),
            (Use::Domain, "staff", Identity::Unknown),
            (Use::Group, "", Identity::Unknown),
        ] {
            let found = Principal { sid, domain: "EXAMPLE".into(), name: name.into(), kind };
            assert_eq!(asked.group(&found), (expected, true), "{kind:?} {name}");
        }
    }
}
