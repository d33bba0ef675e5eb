//! The interfaces to announce on, and whether a host is a neighbour.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use if_addrs::IfAddr;

use crate::announcement::Announcement;

/// An address of this machine that the server can be reached at from its neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The name, such as `eth0`.
    pub name: String,
    /// The number of the interface.
    pub index: u32,
    /// An address of the interface.
    pub address: IpAddr,
    /// Bits of the address that its network has.
    pub prefix: u8,
}

impl Interface {
    /// True for a host on the network of this interface.
    pub fn is_neighbour(&self, peer: &SocketAddr) -> bool {
        match (self.address, peer) {
            (IpAddr::V4(own), SocketAddr::V4(peer)) => is_prefix_same(
                u128::from(own.to_bits()) << 96,
                u128::from(peer.ip().to_bits()) << 96,
                self.prefix,
            ),
            (IpAddr::V6(own), SocketAddr::V6(peer)) => {
                let is_here = !is_link_local(*peer.ip()) || peer.scope_id() == self.index;
                is_here && is_prefix_same(own.to_bits(), peer.ip().to_bits(), self.prefix)
            }
            _ => false,
        }
    }
}

/// True for an address that is valid on one link only.
pub(crate) const fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xFFC0 == 0xFE80
}

const fn is_prefix_same(one: u128, two: u128, bits: u8) -> bool {
    // A prefix of zero bits would match every address, so it never matches here.
    bits > 0 && (one ^ two).leading_zeros() >= bits as u32
}

/// The addresses of this machine to announce the server at, as they are now: of the interfaces that
/// are named, or of all but loopback ones, if the server listens there.
pub fn interfaces(announcement: &Announcement) -> Vec<Interface> {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let found = all.into_iter().filter(|one| !one.is_loopback()).filter_map(|one| {
        let (address, prefix) = match &one.addr {
            IfAddr::V4(v4) => (IpAddr::V4(v4.ip), v4.prefixlen),
            IfAddr::V6(v6) => (IpAddr::V6(v6.ip), v6.prefixlen),
        };
        Some(Interface { name: one.name, index: one.index?, address, prefix })
    });
    found.filter(|one| is_announced(announcement, one)).collect()
}

fn is_announced(announcement: &Announcement, one: &Interface) -> bool {
    let named = &announcement.interfaces;
    if !named.is_empty() && !named.contains(&one.name) {
        return false;
    }
    announcement.addresses.iter().any(|listening| match listening {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => one.address.is_ipv4(),
        // An IPv6 socket on the unspecified address may also accept IPv4, so it counts for all
        // addresses.
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => true,
        address => *address == one.address,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(address: &str, prefix: u8) -> Interface {
        let address = address.parse().unwrap();
        Interface { name: String::from("eth0"), index: 2, address, prefix }
    }

    #[test]
    fn neighbours_are_on_the_same_network() {
        let v4 = interface("192.0.2.10", 24);
        let is = |one: &Interface, peer: &str| one.is_neighbour(&peer.parse().unwrap());
        assert!(is(&v4, "192.0.2.200:3702") && !is(&v4, "192.0.3.1:3702"));
        assert!(!is(&v4, "[::ffff:192.0.2.7]:1"));
        assert!(!is(&interface("192.0.2.10", 0), "198.51.100.1:1"), "everybody is no neighbour");
        assert!(is(&interface("192.0.2.10", 32), "192.0.2.10:1"));
        let v6 = interface("fe80::1", 64);
        assert!(is(&v6, "[fe80::2%2]:3702") && !is(&v6, "[fe80::2%3]:3702"));
        let global = interface("2001:db8::1", 64);
        assert!(is(&global, "[2001:db8::2]:1") && !is(&global, "[2001:db8:0:1::2]:1"));
    }

    #[test]
    fn only_where_the_server_listens() {
        let mut announcement = crate::announcement::example();
        let v4 = interface("192.0.2.10", 24);
        let v6 = interface("fe80::1", 64);
        let is = |announcement: &Announcement| {
            (is_announced(announcement, &v4), is_announced(announcement, &v6))
        };
        announcement.addresses = vec!["0.0.0.0".parse().unwrap()];
        assert_eq!(is(&announcement), (true, false));
        announcement.addresses = vec!["::".parse().unwrap()];
        assert_eq!(is(&announcement), (true, true));
        announcement.interfaces = vec![String::from("wlan0")];
        assert_eq!(is(&announcement), (false, false));
        announcement.interfaces = vec![String::from("eth0")];
        announcement.addresses = vec!["127.0.0.1".parse().unwrap()];
        assert_eq!(is(&announcement), (false, false));
        announcement.addresses = vec!["192.0.2.10".parse().unwrap()];
        assert_eq!(is(&announcement), (true, false));
    }
}
