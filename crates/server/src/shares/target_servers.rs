//! The servers that links of namespaces lead to: their health and their addresses, and the sites of clients
//! and targets. MS-DFSC 3.2.5.5.
//!
//! The server asks nobody: whoever embeds it tells it ([`TargetServers::set`]). A request looks things up here
//! and never waits for a name.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use frevo_dfs::{SiteId, Target};
use frevo_net::IpNetwork;
use frevo_wire::fscc::fold_name;
use parking_lot::RwLock;

/// Bits of a network in which a target is near a client without sites: MS-DFSC 3.2.1.1 has sites of a
/// domain, and this server belongs to none.
const NEAR_V4_BITS: u32 = 24;
/// Bits of an IPv6 network of one link.
const NEAR_V6_BITS: u32 = 64;

/// A site: networks that are near each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// The addresses that are in it.
    pub networks: Vec<IpNetwork>,
}

/// The sites of a server, in the order of their [`SiteId`]s.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sites(Vec<Site>);

impl Sites {
    /// Returns the site of an address: the first one that has it.
    pub(crate) fn of(&self, address: IpAddr) -> Option<SiteId> {
        let has_it = |site: &Site| site.networks.iter().any(|network| network.contains(address));
        self.0.iter().position(has_it).and_then(SiteId::of_index)
    }
}

impl FromIterator<Site> for Sites {
    fn from_iter<I: IntoIterator<Item = Site>>(sites: I) -> Self {
        Self(sites.into_iter().collect())
    }
}

/// The health of a server, as far as it is probed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TargetHealth {
    /// Nobody probes it.
    #[default]
    NotProbed,
    /// It is probed, and not judged yet.
    Unknown,
    /// It answers.
    Answers {
        /// Seconds from 1970 to the judgement.
        since: i64,
    },
    /// It does not answer.
    Fails {
        /// Seconds from 1970 to the judgement.
        since: i64,
        /// The reason of the latest failure.
        why: String,
    },
}

/// A server that links lead to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetServer {
    /// Its name or address, as in targets.
    pub name: String,
    /// Its health.
    pub health: TargetHealth,
    /// Its addresses, where they are known. A server that is called by its address needs none.
    pub addresses: Vec<IpAddr>,
}

/// Servers by their names in lower case.
#[derive(Debug, Default)]
struct Known {
    servers: HashMap<String, TargetServer>,
    failing: usize,
    probed: usize,
}

/// The servers that links lead to, as they were told last.
#[derive(Debug, Default)]
pub(crate) struct TargetServers(RwLock<Arc<Known>>);

impl TargetServers {
    /// Replaces all servers.
    pub(crate) fn set(&self, servers: impl IntoIterator<Item = TargetServer>) {
        let mut known = Known::default();
        for server in servers {
            known.failing += usize::from(matches!(server.health, TargetHealth::Fails { .. }));
            known.probed += usize::from(server.health != TargetHealth::NotProbed);
            known.servers.insert(fold_name(&server.name), server);
        }
        *self.0.write() = Arc::new(known);
    }

    /// Returns the servers as they are now, sorted by name.
    pub(crate) fn sorted(&self) -> Vec<TargetServer> {
        let known = Arc::clone(&self.0.read());
        let mut servers: Vec<_> = known.servers.values().cloned().collect();
        servers.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        servers
    }

    /// The number of servers that are probed.
    pub(crate) fn probed(&self) -> usize {
        self.0.read().probed
    }

    /// The number of servers that do not answer.
    pub(crate) fn failing(&self) -> usize {
        self.0.read().failing
    }

    /// Returns a look at the servers for the referral of one client.
    pub(crate) fn for_client<'a>(&self, client: IpAddr, sites: &'a Sites) -> View<'a> {
        let known = Arc::clone(&self.0.read());
        View { known, client, site: sites.of(client), sites }
    }
}

/// The servers of targets as one client sees them.
pub(crate) struct View<'a> {
    known: Arc<Known>,
    client: IpAddr,
    /// The client's site.
    site: Option<SiteId>,
    sites: &'a Sites,
}

impl View<'_> {
    /// True for a server that does not answer.
    pub(crate) fn is_failing(&self, name: &str) -> bool {
        self.known.failing > 0
            && self
                .known
                .servers
                .get(&fold_name(name))
                .is_some_and(|server| matches!(server.health, TargetHealth::Fails { .. }))
    }

    /// True for a target in the client's site. MS-DFSC 3.2.5.5: a target's site follows from its address, which
    /// follows from the name of its server; here the administrator's word goes before it.
    pub(crate) fn is_near(&self, target: &Target) -> bool {
        if target.site.is_some() {
            return target.site == self.site;
        }
        if let Ok(address) = target.server().parse() {
            return self.has_near(address);
        }
        let known = self.known.servers.get(&fold_name(target.server()));
        known.is_some_and(|known| known.addresses.iter().any(|one| self.has_near(*one)))
    }

    /// True for an address in the client's site. Where one of both is in no site, near is the same network.
    fn has_near(&self, address: IpAddr) -> bool {
        match (self.site, self.sites.of(address)) {
            (Some(site), Some(other)) => site == other,
            _ => is_near(self.client, address),
        }
    }
}

/// True if both addresses are in one network.
fn is_near(client: IpAddr, target: IpAddr) -> bool {
    match (client.to_canonical(), target.to_canonical()) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            (one.to_bits() ^ other.to_bits()).leading_zeros() >= NEAR_V4_BITS
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            (one.to_bits() ^ other.to_bits()).leading_zeros() >= NEAR_V6_BITS
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_target_is_in_the_network_of_the_client() {
        let near = |one: &str, other: &str| is_near(one.parse().unwrap(), other.parse().unwrap());
        assert!(near("192.0.2.1", "192.0.2.255") && near("::ffff:192.0.2.1", "192.0.2.9"));
        assert!(near("2001:db8::1", "2001:db8::ffff:1"));
        assert!(!near("192.0.2.1", "192.0.3.1") && !near("192.0.2.1", "2001:db8::1"));
        assert!(!near("2001:db8::1", "2001:db8:0:1::1"));
    }

    fn target(server: &str) -> Target {
        Target::new(&format!(r"\\{server}\data")).unwrap()
    }

    fn site(name: &str, networks: &[&str]) -> Site {
        let networks = networks.iter().map(|network| network.parse().unwrap()).collect();
        Site { name: name.into(), networks }
    }

    #[test]
    fn sites_of_clients_and_targets_are_compared() {
        let berlin = site("berlin", &["10.1.0.0/16", "2001:db8:1::/48"]);
        let sites: Sites = [berlin, site("oslo", &["10.2.0.0/16"]), site("all", &["10.0.0.0/8"])]
            .into_iter()
            .collect();
        let servers = TargetServers::default();
        let named = |name: &str, addresses: &[&str]| TargetServer {
            name: name.into(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            ..TargetServer::default()
        };
        servers.set([
            named("NAS.Berlin.test", &["192.0.2.1", "2001:db8:1::7"]),
            named("nas.oslo.test", &["10.2.9.9"]),
        ]);
        let is_near = |client: &str, target: &Target| {
            servers.for_client(client.parse().unwrap(), &sites).is_near(target)
        };
        for (client, server, expected) in [
            ("10.1.200.1", "10.1.3.4", true),
            ("10.1.200.1", "10.2.3.4", false),
            ("::ffff:10.1.200.1", "nas.berlin.test", true),
            ("10.1.200.1", "nas.oslo.test", false),
            ("10.2.0.1", "nas.OSLO.test", true),
            // The first site counts that has an address.
            ("10.3.0.1", "10.2.3.4", false),
            ("10.3.0.1", "10.4.3.4", true),
            ("10.1.200.1", "nas.unknown.test", false),
            // One of both is in no site: the network decides.
            ("198.51.100.1", "198.51.100.2", true),
            ("192.0.2.9", "nas.berlin.test", true),
            ("198.51.100.1", "10.1.0.1", false),
        ] {
            assert_eq!(is_near(client, &target(server)), expected, "{client} {server}");
        }
        let mut said = target("10.1.3.4");
        said.site = SiteId::of_index(1);
        assert!(is_near("10.2.0.1", &said) && !is_near("10.1.3.4", &said));
        assert!(!is_near("198.51.100.1", &said), "a client in no site");
    }

    #[test]
    fn servers_that_fail_are_known_by_name() {
        let servers = TargetServers::default();
        let named = |name: &str, health| TargetServer {
            name: name.into(),
            health,
            ..TargetServer::default()
        };
        let fails = TargetHealth::Fails { since: 7, why: String::from("refused") };
        servers.set([
            named("One", fails),
            named("two", TargetHealth::Answers { since: 7 }),
            named("three", TargetHealth::Unknown),
            named("four", TargetHealth::NotProbed),
        ]);
        let sites = Sites::default();
        let view = servers.for_client("192.0.2.1".parse().unwrap(), &sites);
        let failing = ["ONE", "two", "three", "four", "five"].map(|name| view.is_failing(name));
        assert_eq!(failing, [true, false, false, false, false]);
        assert_eq!((servers.probed(), servers.failing()), (3, 1));
        servers.set([]);
        assert!(view.is_failing("one"), "a look stays as it was");
        assert_eq!((servers.sorted().len(), servers.failing()), (0, 0));
    }
}
