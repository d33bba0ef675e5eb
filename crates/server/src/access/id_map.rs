//! Numbers of the host for users and groups of domains, by arithmetic: no daemon is asked.
//!
//! It is the map of Samba's back end `rid`: ID = RID - BASE_RID + LOW_RANGE_ID. A SID has one
//! number, which a user has as its uid and a group as its gid.

use frevo_auth::kerberos::LogonInfo;
use frevo_wire::dtyp::{AceBody, Acl, SecurityDescriptor, Sid};

use crate::base::host::HostUser;
use crate::base::host::UnixUser;

/// The numbers of one domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    /// The SID of the domain.
    pub domain: Sid,
    /// The number of the RID `base_rid`.
    pub first: u32,
    /// The highest number.
    pub last: u32,
    /// The lowest RID that has a number.
    pub base_rid: u32,
}

impl IdRange {
    fn number(&self, rid: u32) -> Option<u32> {
        let number = rid.checked_sub(self.base_rid)?.checked_add(self.first)?;
        (number <= self.last).then_some(number)
    }

    fn rid(&self, number: u32) -> Option<u32> {
        let is_in = (self.first..=self.last).contains(&number);
        number.checked_sub(self.first).filter(|_| is_in)?.checked_add(self.base_rid)
    }
}

/// The numbers of all domains. Ranges do not overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdMap(Vec<IdRange>);

impl IdMap {
    /// Makes the map of these ranges, of which each domain has one.
    pub const fn new(ranges: Vec<IdRange>) -> Self {
        Self(ranges)
    }

    /// Returns the number of a user or a group of a domain.
    pub fn number(&self, sid: &Sid) -> Option<u32> {
        let (domain, rid) = sid.split_rid()?;
        self.0.iter().find(|range| range.domain == domain)?.number(rid)
    }

    /// Returns the SID that has a number.
    pub fn sid(&self, number: u32) -> Option<Sid> {
        self.0.iter().find_map(|range| range.domain.with_rid(range.rid(number)?))
    }

    /// Returns the host's user that a user of a domain is. None for a domain without numbers, and
    /// for a user outside of its range. Groups outside of it have no number.
    pub(crate) fn user(&self, of: &LogonInfo) -> Option<HostUser> {
        let uid = self.number(&of.user)?;
        let gid = self.number(&of.primary_group)?;
        let mut groups: Vec<u32> = of.groups.iter().filter_map(|sid| self.number(sid)).collect();
        groups.push(gid);
        groups.sort_unstable();
        groups.dedup();
        Some(HostUser { unix: UnixUser { uid, gid, groups }, groups: Vec::new() })
    }

    /// Shows a SID of the host's user or group as that of the domain which has the number.
    pub(crate) fn shown(&self, sid: Sid) -> Sid {
        let number = match (sid.authority(), sid.sub_authorities()) {
            (22, [1 | 2, number]) => *number,
            _ => return sid,
        };
        self.sid(number).unwrap_or(sid)
    }

    /// Shows the SIDs of a descriptor so.
    pub(crate) fn show(&self, descriptor: &mut SecurityDescriptor) {
        if self.0.is_empty() {
            return;
        }
        for sid in [&mut descriptor.owner, &mut descriptor.group].into_iter().flatten() {
            *sid = self.shown(*sid);
        }
        for list in [&mut descriptor.dacl, &mut descriptor.sacl].into_iter().flatten() {
            self.show_list(list);
        }
    }

    fn show_list(&self, list: &mut Acl) {
        for ace in &mut list.aces {
            if let AceBody::Plain { sid, .. } = &mut ace.body {
                *sid = self.shown(*sid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use frevo_wire::dtyp::{AccessMask, Ace, AceFlags};

    use super::*;
    use crate::access::domain_users::tests::ann;

    fn sid(text: &str) -> Sid {
        text.parse().unwrap()
    }

    fn map() -> IdMap {
        let range =
            |domain, first, last, base_rid| IdRange { domain: sid(domain), first, last, base_rid };
        IdMap::new(vec![
            range("S-1-5-21-1-2-3", 100_000, 199_999, 0),
            range("S-1-5-21-4-5-6", 200_000, 200_009, 1_000),
        ])
    }

    /// The formula of idmap_rid(8), with the ends of ranges.
    #[test]
    fn numbers_are_those_of_samba() {
        for (of, number) in [
            ("S-1-5-21-1-2-3-500", Some(100_500)),
            ("S-1-5-21-1-2-3-99999", Some(199_999)),
            ("S-1-5-21-1-2-3-100000", None),
            ("S-1-5-21-1-2-3-4294967295", None),
            ("S-1-5-21-4-5-6-999", None),
            ("S-1-5-21-4-5-6-1000", Some(200_000)),
            ("S-1-5-21-4-5-6-1009", Some(200_009)),
            ("S-1-5-21-4-5-6-1010", None),
            ("S-1-5-21-7-8-9-500", None),
            ("S-1-5-21-1-2-3", None),
            ("S-1-1-0", None),
        ] {
            assert_eq!(map().number(&sid(of)), number, "{of}");
            if let Some(number) = number {
                assert_eq!(map().sid(number), Some(sid(of)));
            }
        }
        for number in [0, 99_999, 200_010, u32::MAX] {
            assert_eq!(map().sid(number), None, "{number}");
        }
    }

    #[test]
    fn users_have_the_numbers_of_their_groups() {
        let domain_sid = sid("S-1-5-21-1-2-3");
        let groups =
            ["S-1-5-21-1-2-3-1108", "S-1-5-21-1-2-3-513", "S-1-18-1", "S-1-5-32-544"].map(sid);
        let info = ann(domain_sid, groups.to_vec());
        let unix = map().user(&info).unwrap().unix;
        assert_eq!((unix.uid, unix.gid, unix.groups), (101_105, 100_513, vec![100_513, 101_108]));
        assert!(IdMap::default().user(&info).is_none());
        let far = LogonInfo { user: domain_sid.with_rid(100_000).unwrap(), ..info };
        assert!(map().user(&far).is_none());
    }

    #[test]
    fn descriptors_show_the_domain() {
        let ace = |sid| Ace::allow(AceFlags::EMPTY, AccessMask::FILE_ALL, sid);
        let mut descriptor = SecurityDescriptor {
            owner: Some(Sid::unix_user(101_105)),
            group: Some(Sid::unix_group(100_513)),
            dacl: Some(Acl::new(vec![
                ace(Sid::unix_user(7)),
                ace(Sid::unix_group(200_001)),
                ace(Sid::EVERYONE),
            ])),
            ..SecurityDescriptor::default()
        };
        let before = descriptor.clone();
        IdMap::default().show(&mut descriptor);
        assert_eq!(descriptor, before);
        map().show(&mut descriptor);
        assert_eq!(descriptor.owner, Some(sid("S-1-5-21-1-2-3-1105")));
        assert_eq!(descriptor.group, Some(sid("S-1-5-21-1-2-3-513")));
        let aces = [Sid::unix_user(7), sid("S-1-5-21-4-5-6-1001"), Sid::EVERYONE].map(ace);
        assert_eq!(descriptor.dacl, Some(Acl::new(aces.to_vec())));
    }
}
