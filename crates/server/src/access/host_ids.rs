//! The users and groups of the host that SIDs stand for, where the kernel decides by their numbers.
//!
//! Most SIDs tell it themselves. For the others the name service or a controller is asked, on threads
//! that may wait, and the answers are kept for a while: each new file in a folder asks again.

use std::collections::HashMap;
use std::time::Instant;

use frevo_store::security::posix_lists::Identity;
use frevo_wire::dtyp::Sid;
use frevo_wire::fscc::fold_name;
use parking_lot::Mutex;

use crate::access::administrators::DOMAIN_USERS;
use crate::access::domain_names::{DomainNames, NoAnswer, Told, is_of_domain};
use crate::access::id_map::IdMap;
use crate::access::principals::{Listing, Principal, Principals, Use};
use crate::base::ambient::Ambient;
use crate::base::limits::{DOMAIN_NAMES_TIMEOUT, HOST_IDS_FRESH, HOST_IDS_REMEMBERED};

/// The answers about SIDs that do not tell it themselves.
#[derive(Debug, Default)]
pub(crate) struct HostIds(Mutex<HashMap<Sid, (Instant, Identity)>>);

impl HostIds {
    /// Returns the users of a SID. None when somebody must be asked. `has_domain_users` tells that users
    /// of domains log on to this server.
    pub(crate) fn known(&self, sid: &Sid, has_domain_users: bool) -> Option<Identity> {
        // Not all users of domains are in BUILTIN\Users.
        let is_told = *sid != Sid::USERS || !has_domain_users;
        told(sid).filter(|_| is_told).or_else(|| self.fresh(sid, Instant::now()))
    }

    fn fresh(&self, sid: &Sid, now: Instant) -> Option<Identity> {
        let known = self.0.lock();
        let (since, identity) = known.get(sid)?;
        (now.saturating_duration_since(*since) < HOST_IDS_FRESH).then_some(*identity)
    }

    /// Keeps an answer. When there is no room, those that are not fresh go, or else all.
    fn learn(&self, sid: Sid, identity: Identity, now: Instant) {
        let mut known = self.0.lock();
        if known.len() >= HOST_IDS_REMEMBERED && !known.contains_key(&sid) {
            known.retain(|_, (since, _)| now.saturating_duration_since(*since) < HOST_IDS_FRESH);
            if known.len() >= HOST_IDS_REMEMBERED {
                known.clear();
            }
        }
        known.insert(sid, (now, identity));
    }

    /// Asks about SIDs, which may wait.
    pub(crate) fn ask(&self, sids: &[Sid], host: &Asked<'_>) -> Vec<(Sid, Identity)> {
        let deadline = Instant::now() + DOMAIN_NAMES_TIMEOUT;
        let listing = Listing::default();
        let answer = |sid: &Sid| {
            let (identity, is_certain) = host.identity(&listing, sid, deadline);
            if is_certain {
                self.learn(*sid, identity, Instant::now());
            }
            (*sid, identity)
        };
        sids.iter().map(answer).collect()
    }
}

/// Returns the users of a SID that tells it itself.
fn told(sid: &Sid) -> Option<Identity> {
    Some(match *sid {
        // All accounts of the server are in these groups.
        Sid::EVERYONE | Sid::NETWORK | Sid::AUTHENTICATED_USERS | Sid::USERS => Identity::Everyone,
        Sid::LOCAL_SYSTEM | Sid::ANONYMOUS | Sid::NULL => Identity::Nobody,
        _ => match (sid.authority(), sid.sub_authorities()) {
            // -1 is the number of nobody.
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
        let is_own = sid.split_rid().is_some_and(|(domain, _)| domain == self.principals.machine);
        let found = if is_own { self.own(listing, sid) } else { self.of_domain(sid, deadline) };
        match found {
            Ok(Some(found)) if found.kind == Use::User => self.user(&found, is_own),
            // The host's group of the name has other members than one of the account file.
            Ok(Some(found)) if !is_own => self.group(&found),
            Ok(Some(_)) => (Identity::Unknown, true),
            // An entry for a SID that nobody has gives nothing to anybody.
            Ok(None) => (Identity::Nobody, true),
            Err(NoAnswer) => (Identity::Unknown, false),
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
        let Some(group) = joined else { return (Identity::Unknown, false) };
        match self.identity(listing, &group, deadline) {
            (Identity::Group(gid) | Identity::Either(gid), is_certain) => {
                (Identity::GroupAndMore(gid), is_certain)
            }
            (_, is_certain) => (Identity::Unknown, is_certain),
        }
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
    use super::*;

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
        let start = Instant::now();
        for rid in 0..HOST_IDS_REMEMBERED {
            ids.learn(of(rid), Identity::User(1), start);
        }
        assert_eq!(ids.0.lock().len(), HOST_IDS_REMEMBERED);
        assert_eq!(ids.fresh(&of(0), start), Some(Identity::User(1)));
        ids.learn(of(0), Identity::User(2), start);
        assert_eq!(ids.0.lock().len(), HOST_IDS_REMEMBERED, "it was there");
        ids.learn(of(HOST_IDS_REMEMBERED), Identity::User(3), start);
        assert_eq!(ids.0.lock().len(), 1, "all were fresh");
        let later = start + HOST_IDS_FRESH;
        assert_eq!(ids.fresh(&of(HOST_IDS_REMEMBERED), later), None);
    }
}
