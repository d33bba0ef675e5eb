//! The addresses of a server that further channels lead to: MS-SMB2 3.2.5.14.11.

use std::net::IpAddr;

use frevo_net::socket::{is_reachable, unmapped};
use frevo_net::transport::{InterfaceKind, Transport};
use frevo_wire::command::ioctl::network_interface::{InterfaceCapabilities, NetworkInterface};

use crate::dial::ServerName;
use crate::limits::{CHANNELS_MAX, CHANNELS_PER_RSS};

/// One way to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    /// The address; `None` for the name that the caller gave.
    pub(super) address: Option<IpAddr>,
    /// True if several connections over it help.
    pub(super) has_rss: bool,
}

/// The ways to the server, the best first; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Paths(Vec<Path>);

impl Paths {
    /// Returns the one way that needs no knowledge: the server's name.
    pub(super) fn by_name() -> Self {
        Self(vec![Path { address: None, has_rss: false }])
    }

    /// Chooses among the server's interfaces: all of the greatest speed, as Windows does, each by
    /// one address, of the family that is in use if it has one. `peer` is the address of the
    /// session's first connection. If the server does not know it, the network between translates
    /// addresses: then the others are of no use. Channels over a `transport` that needs RDMA lead
    /// only to addresses that have it.
    pub(super) fn choose(
        interfaces: &[NetworkInterface],
        peer: IpAddr,
        transport: Transport,
    ) -> Self {
        let needs_rdma = transport.facts().interface == InterfaceKind::Rdma;
        let peer = unmapped(peer);
        if !interfaces.iter().any(|interface| interface.address == peer) {
            return Self::by_name();
        }
        let is_usable = |one: &&NetworkInterface| {
            let has_rdma = one.capability.contains(InterfaceCapabilities::RDMA_CAPABLE);
            is_reachable(one.address) && !is_link_local(one) && (has_rdma || !needs_rdma)
        };
        let fastest = interfaces.iter().filter(is_usable).map(|one| one.link_speed).max();
        let mut chosen: Vec<(u32, Path)> = Vec::new();
        let mut candidates: Vec<&NetworkInterface> = interfaces
            .iter()
            .filter(is_usable)
            .filter(|one| Some(one.link_speed) == fastest)
            .collect();
        // For each interface the address in use comes first, then addresses of the same family.
        candidates
            .sort_by_key(|one| (one.address != peer, one.address.is_ipv4() != peer.is_ipv4()));
        for one in candidates {
            if chosen.len() < CHANNELS_MAX && chosen.iter().all(|(index, _)| *index != one.if_index)
            {
                let has_rss = one.capability.contains(InterfaceCapabilities::RSS_CAPABLE);
                chosen.push((one.if_index, Path { address: Some(one.address), has_rss }));
            }
        }
        if chosen.is_empty() {
            return Self::by_name();
        }
        Self(chosen.into_iter().map(|(_, path)| path).collect())
    }

    /// Returns the count of channels that use the paths well: 4 over each interface with RSS, 1
    /// over others.
    pub(super) fn channels(&self) -> usize {
        let each = |path: &Path| if path.has_rss { CHANNELS_PER_RSS } else { 1 };
        self.0.iter().map(each).sum::<usize>().min(CHANNELS_MAX)
    }

    /// Returns the path for the next of `wanted` channels: the one with the fewest of the present
    /// channels, which have these `peers`. Each path has its part of the channels, also while it
    /// does not work: when it works again, it is used again. Paths that are hopeless have none.
    pub(super) fn next(
        &self,
        wanted: usize,
        peers: &[IpAddr],
        is_hopeless: impl Fn(&Path) -> bool,
    ) -> Option<&Path> {
        let used = |path: &Path| match path.address {
            Some(address) => peers.iter().filter(|peer| **peer == address).count(),
            None => peers.len(),
        };
        let usable: Vec<&Path> = self.0.iter().filter(|path| !is_hopeless(path)).collect();
        let most = wanted.div_ceil(usable.len().max(1));
        usable.into_iter().filter(|path| used(path) < most).min_by_key(|path| used(path))
    }
}

impl Path {
    /// Returns the server under this path's address.
    pub(super) fn server(&self, name: &ServerName) -> ServerName {
        match self.address {
            Some(address) => ServerName { host: address.to_string(), ..name.clone() },
            None => name.clone(),
        }
    }
}

/// Returns true for an address that means nothing without the number of a link.
const fn is_link_local(interface: &NetworkInterface) -> bool {
    match interface.address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32, address: &str, gbit: u64, has_rss: bool) -> NetworkInterface {
        let capability =
            if has_rss { InterfaceCapabilities::RSS_CAPABLE } else { InterfaceCapabilities::EMPTY };
        NetworkInterface {
            if_index: index,
            capability,
            link_speed: gbit * 1_000_000_000,
            address: address.parse().unwrap(),
        }
    }

    fn addresses(paths: &Paths) -> Vec<String> {
        let name = |path: &Path| path.address.map_or("name".into(), |a| a.to_string());
        paths.0.iter().map(name).collect()
    }

    #[test]
    fn the_fastest_interfaces_are_used_each_once() {
        let found = [
            interface(2, "fe80::1", 10, true),
            interface(2, "2001:db8::2", 10, true),
            interface(2, "192.0.2.2", 10, true),
            interface(3, "198.51.100.3", 10, false),
            interface(4, "203.0.113.4", 1, true),
            interface(5, "169.254.1.1", 10, false),
        ];
        let paths = Paths::choose(&found, "192.0.2.2".parse().unwrap(), Transport::Tcp);
        assert_eq!(addresses(&paths), ["192.0.2.2", "198.51.100.3"]);
        assert_eq!(paths.channels(), 5);
        // The connection uses the slow interface, but further channels use the fast interfaces
        // only.
        let paths = Paths::choose(&found, "::ffff:203.0.113.4".parse().unwrap(), Transport::Tcp);
        assert_eq!(addresses(&paths), ["192.0.2.2", "198.51.100.3"]);
        let paths = Paths::choose(&found, "2001:db8::2".parse().unwrap(), Transport::Tcp);
        assert_eq!(addresses(&paths), ["2001:db8::2", "198.51.100.3"]);
    }

    #[test]
    fn channels_of_smb_direct_lead_to_interfaces_that_have_it() {
        let with_rdma = |interface: NetworkInterface| NetworkInterface {
            capability: InterfaceCapabilities::RDMA_CAPABLE,
            ..interface
        };
        let found = [
            with_rdma(interface(2, "192.0.2.2", 10, false)),
            interface(3, "198.51.100.3", 25, false),
            with_rdma(interface(4, "203.0.113.4", 10, false)),
        ];
        let choose = |over| Paths::choose(&found, "192.0.2.2".parse().unwrap(), over);
        assert_eq!(addresses(&choose(Transport::Rdma)), ["192.0.2.2", "203.0.113.4"]);
        assert_eq!(addresses(&choose(Transport::Tcp)), ["198.51.100.3"]);
    }

    #[test]
    fn behind_a_translated_address_only_the_name_is_used() {
        let found = [interface(2, "10.0.0.2", 10, true), interface(3, "10.0.1.2", 10, true)];
        for found in [&found[..], &[]] {
            let paths = Paths::choose(found, "192.0.2.2".parse().unwrap(), Transport::Tcp);
            assert_eq!((addresses(&paths), paths.channels()), (vec![String::from("name")], 1));
        }
    }

    #[test]
    fn channels_spread_over_the_paths_that_are_not_hopeless() {
        let found = [interface(2, "10.0.0.2", 10, true), interface(3, "10.0.1.2", 10, true)];
        let paths = Paths::choose(&found, "10.0.0.2".parse().unwrap(), Transport::Tcp);
        let next = |peers: &[&str], hopeless: &str| {
            let peers: Vec<IpAddr> = peers.iter().map(|peer| peer.parse().unwrap()).collect();
            let is_hopeless = |path: &Path| path.address.is_some_and(|a| a.to_string() == hopeless);
            paths.next(4, &peers, is_hopeless).map(|path| path.address.unwrap().to_string())
        };
        let (first, second) = (Some("10.0.0.2".to_owned()), Some("10.0.1.2".to_owned()));
        assert_eq!(next(&["10.0.0.2"], ""), second);
        assert_eq!(next(&["10.0.0.2", "10.0.1.2"], ""), first);
        // Both channels use the first path, because those of the second path were lost. So the next
        // channel uses the second path.
        assert_eq!(next(&["10.0.0.2", "10.0.0.2"], ""), second);
        assert_eq!(next(&["10.0.0.2", "10.0.0.2"], "10.0.1.2"), first);
        // The first connection (10.9.9.9) uses a path that was not chosen, so it does not count for
        // any path.
        assert_eq!(next(&["10.9.9.9", "10.0.0.2", "10.0.0.2"], ""), second);
        let name = ServerName::new("box").at_port(4450);
        let path = paths.next(1, &[], |_| false).unwrap();
        assert_eq!(path.server(&name).to_string(), "10.0.0.2:4450");
        let by_name = Paths::by_name();
        let path = by_name.next(2, &["10.0.0.2".parse().unwrap()], |_| false).unwrap();
        assert_eq!(path.server(&name).to_string(), "box:4450");
    }
}
