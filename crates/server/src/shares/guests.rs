//! Shares that guests may use: clients without an account, by the share's own wish.
//!
//! A guest is nobody (MS-SMB2 3.3.5.5.3, Session.IsGuest). It gets a view of the share, which acts as
//! the host's user that the share names for guests, and no other share.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use crate::access::access_rules::Rules;
use crate::shares::share::{RunAs, Share, Shares, Target};

/// The rights of guests on a share.
#[derive(Debug, Clone)]
pub struct GuestAccess {
    /// The user of the host as which guests use files.
    pub run_as: RunAs,
    /// True if guests may write, where the share is not read-only.
    pub writes: bool,
}

/// True for an address that is not routed over the Internet: RFC 1918, RFC 4193, link-local addresses and
/// this host.
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_private() || v4.is_link_local() || v4.is_loopback(),
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_unicast_link_local() || v6 == LOOPBACK,
    }
}

const LOOPBACK: Ipv6Addr = Ipv6Addr::LOCALHOST;

impl Share {
    /// The rights of guests; None where the share lets no guest in.
    ///
    /// Rules for users and a demand of encryption count before the wish for guests: administrators can
    /// add both over the network.
    pub fn guest_access(&self) -> Option<&GuestAccess> {
        let Rules { allow, deny, read_list, write_list, access_list, .. } = &self.rules;
        let has_rules = access_list.is_some()
            || [allow, deny, read_list, write_list].into_iter().any(|list| !list.is_empty());
        let is_for_accounts = has_rules || self.encrypt || self.user_folders.is_some();
        self.guest.as_ref().filter(|_| !is_for_accounts)
    }

    /// True if guests of some address may write.
    pub fn lets_guests_write(&self) -> bool {
        self.guest_access().is_some_and(|guest| guest.writes && !self.read_only)
    }

    /// The share as a guest at `address` has it. None where it lets no guest in from there: without
    /// `hosts_allow` guests are at private addresses.
    pub(crate) fn as_guests_have_it(&self, address: IpAddr) -> Option<Arc<Self>> {
        let guest = self.guest_access()?;
        let is_near = self.rules.takes_address(address)
            && (!self.rules.hosts_allow.is_empty() || is_private(address));
        is_near.then(|| {
            Arc::new(Self {
                read_only: self.read_only || !guest.writes,
                run_as: guest.run_as.clone(),
                force_group: None,
                ..self.clone()
            })
        })
    }

    /// True for IPC$.
    pub(crate) const fn is_pipes(&self) -> bool {
        matches!(self.target, Target::Pipes)
    }
}

impl Shares {
    /// True if a share lets guests at `address` in.
    pub(crate) fn let_guests_in(&self, address: IpAddr) -> bool {
        self.all().any(|share| share.as_guests_have_it(address).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::access_rules::Names;

    fn scans() -> Share {
        let guest = GuestAccess { run_as: RunAs::Server, writes: false };
        Share::new("scans", Target::Pipes).guest(guest)
    }

    fn lets_in(share: &Share, address: &str) -> bool {
        share.as_guests_have_it(address.parse().unwrap()).is_some()
    }

    #[test]
    fn guests_are_at_private_addresses_or_at_listed_ones() {
        for (address, is_near) in [
            ("10.9.8.7", true),
            ("172.31.0.1", true),
            ("172.32.0.1", false),
            ("192.168.1.1", true),
            ("::ffff:192.168.1.1", true),
            ("::ffff:203.0.113.9", false),
            ("169.254.1.1", true),
            ("127.0.0.1", true),
            ("100.64.0.1", false),
            ("203.0.113.9", false),
            ("fd00::1", true),
            ("fe80::1", true),
            ("::1", true),
            ("2001:db8::1", false),
        ] {
            assert_eq!(lets_in(&scans(), address), is_near, "{address}");
        }
        let listed = |allow: &[&str], deny: &[&str]| {
            let networks = |listed: &[&str]| listed.iter().map(|n| n.parse().unwrap()).collect();
            scans().rules(Rules {
                hosts_allow: networks(allow),
                hosts_deny: networks(deny),
                ..Rules::default()
            })
        };
        let one = listed(&["203.0.113.0/24"], &[]);
        assert!(lets_in(&one, "203.0.113.9") && !lets_in(&one, "192.168.1.1"));
        let without = listed(&[], &["192.168.0.0/16"]);
        assert!(lets_in(&without, "10.0.0.1") && !lets_in(&without, "192.168.1.1"));
        assert!(!lets_in(&without, "203.0.113.9"), "nobody listed it");
    }

    #[test]
    fn a_share_with_rules_or_encryption_has_no_guests() {
        let here = "127.0.0.1";
        assert!(lets_in(&scans(), here));
        let names = || Names::users(&["ann"]);
        let rules = |change: fn(&mut Rules, Names)| {
            let mut rules = Rules::default();
            change(&mut rules, names());
            scans().rules(rules)
        };
        for share in [
            rules(|rules, names| rules.allow = names),
            rules(|rules, names| rules.deny = names),
            rules(|rules, names| rules.read_list = names),
            rules(|rules, names| rules.write_list = names),
            rules(|rules, _| rules.access_list = Some(Arc::default())),
            scans().encrypt(true),
        ] {
            assert!(!lets_in(&share, here), "{:?}", share.rules);
        }
    }

    #[test]
    fn guests_write_where_both_keys_say_so() {
        let writes =
            |share: Share| !share.as_guests_have_it([10, 0, 0, 1].into()).unwrap().read_only;
        let guest = |writes| GuestAccess { run_as: RunAs::Server, writes };
        assert!(!writes(scans()));
        assert!(writes(scans().guest(guest(true))));
        assert!(!writes(scans().guest(guest(true)).read_only(true)));
    }
}
