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

use crate::access::domain_names::{DomainNames, is_of_domain};
use crate::access::id_map::IdMap;
use crate::access::principals::{Listing, Principal, Principals, Use};
use crate::base::ambient::Ambient;
use crate::base::limits::{DOMAIN_NAMES_TIMEOUT, HOST_IDS_FRESH, HOST_IDS_REMEMBERED};

/// The answers about SIDs that do not tell it themselves.
#[derive(Debug, Default)]
pub(crate) struct HostIds(Mutex<HashMap<Sid, (Instant, Identity)>>);

impl HostIds {
    /// Returns the users of a SID. None when somebody must be asked.
    pub(crate) fn known(&self, sid: &Sid) -> Option<Identity> {
        told(sid).or_else(|| self.fresh(sid, Instant::now()))
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
        // All accounts of the server, and all users of domains, are in these groups.
        Sid::EVERYONE | Sid::NETWORK | Sid::AUTHENTICATED_USERS | Sid::USERS => Identity::Everyone,
        Sid::LOCAL_SYSTEM | Sid::ANONYMOUS | Sid::NULL => Identity::Nobody,
        _ => match (sid.authority(), sid.sub_authorities()) {
            (22, [1 | 2, u32::MAX]) => Identity::Unknown,
            (22, [1, uid]) => Identity::User(*uid),
            (22, [2, gid]) => Identity::Group(*gid),
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
}

impl Asked<'_> {
    /// Returns the users of a SID below S-1-5-21, and true if everybody has answered.
    fn identity(&self, listing: &Listing, sid: &Sid, deadline: Instant) -> (Identity, bool) {
        if let Some(number) = self.map.number(sid) {
            return match self.names.find_sid(sid, deadline).map(|found| found.kind) {
                Some(Use::User) => (Identity::User(number), true),
                Some(_) => (Identity::Group(number), true),
                None => (Identity::Either(number), false),
            };
        }
        let is_own = sid.split_rid().is_some_and(|(domain, _)| domain == self.principals.machine);
        let found = if is_own {
            self.principals.find_sid_in(listing, sid)
        } else {
            self.names.find_sid(sid, deadline)
        };
        match found {
            Some(found) if found.kind == Use::User => self.user(&found, is_own),
            // The host's group of the name has other members than one of the account file.
            Some(found) if !is_own => self.group(&found),
            Some(_) => (Identity::Unknown, true),
            None => (Identity::Unknown, is_own),
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
            ("S-1-22-2-4294967295", Some(Identity::Unknown)),
            ("S-1-22-3-1", Some(Identity::Unknown)),
            ("S-1-5-21-1-2-3-500", None),
        ] {
            assert_eq!(HostIds::default().known(&sid(text)), identity, "{text}");
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
