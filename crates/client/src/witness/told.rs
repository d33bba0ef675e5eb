//! The judgement on what a witness tells.

use std::net::IpAddr;

use frevo_net::socket::{is_reachable, unmapped};
use frevo_rpc::witness::{
    AddressFlags, AddressInfo, InterfaceFlags, InterfaceInfo, InterfaceState, Notification,
    ResourceChange, ResourceState,
};

use super::NodeInUse;
use crate::limits::{WITNESS_ADDRESSES, WITNESS_INTERFACES};

/// The consequence of a notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// None.
    Stay,
    /// The node in use is gone.
    Gone,
    /// The client is to use these addresses.
    Move(Vec<IpAddr>),
    /// The share is at these addresses.
    ShareMove(Vec<IpAddr>),
}

impl Verdict {
    /// Returns the addresses that were told.
    pub(crate) fn addresses(&self) -> &[IpAddr] {
        match self {
            Self::Move(addresses) | Self::ShareMove(addresses) => addresses,
            Self::Stay | Self::Gone => &[],
        }
    }
}

/// The names of the node in use, each of which a notification can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    /// NetName: the server.
    pub(super) net_name: String,
    /// InterfaceGroupName of the interfaces with the address.
    pub(super) groups: Vec<String>,
}

impl Names {
    /// Returns the names of the node in use, as its cluster tells them.
    pub(super) fn of(net_name: &str, place: &NodeInUse, interfaces: &[InterfaceInfo]) -> Self {
        let own = interfaces.iter().filter(|one| one.addresses().any(|ip| ip == place.ip));
        let groups = own.map(|one| one.group_name.clone()).take(WITNESS_INTERFACES).collect();
        Self { net_name: net_name.to_owned(), groups }
    }

    /// Returns true if a resource is the node in use, or the whole server.
    fn mean(&self, resource: &str, place: &NodeInUse) -> bool {
        let is = |name: &String| name.eq_ignore_ascii_case(resource);
        is(&self.net_name)
            || self.groups.iter().any(is)
            || resource.parse().is_ok_and(|ip: IpAddr| unmapped(ip) == place.ip)
    }
}

/// Returns the consequence of a notification for the session at a place.
pub(super) fn judge(notification: &Notification, place: &NodeInUse, names: &Names) -> Verdict {
    match notification {
        Notification::ResourceChange(changes) => {
            let is_gone = |change: &ResourceChange| {
                change.state == ResourceState::UNAVAILABLE && names.mean(&change.name, place)
            };
            if changes.iter().any(is_gone) { Verdict::Gone } else { Verdict::Stay }
        }
        Notification::ClientMove(all) => moved(all, place, Verdict::Move),
        Notification::ShareMove(all) => moved(all, place, Verdict::ShareMove),
        // MS-SWN 2.2.2.1: an address that goes has IPADDR_OFFLINE. One that comes changes nothing.
        Notification::IpChange(all) => {
            let is_own = |one: &AddressInfo| {
                one.flags.contains(AddressFlags::OFFLINE)
                    && one.address().map(unmapped) == Some(place.ip)
            };
            match all.iter().any(is_own) {
                false => Verdict::Stay,
                true => match usable(all, place) {
                    none if none.is_empty() => Verdict::Gone,
                    some => Verdict::Move(some),
                },
            }
        }
        Notification::Other(_) => Verdict::Stay,
    }
}

fn moved(
    all: &[AddressInfo],
    place: &NodeInUse,
    verdict: impl FnOnce(Vec<IpAddr>) -> Verdict,
) -> Verdict {
    let found = usable(all, place);
    // The session may be where it is to go. Without an address there is no place to go to.
    if found.is_empty() || found.contains(&place.ip) { Verdict::Stay } else { verdict(found) }
}

/// Returns the first addresses that a client can go to.
fn usable(all: &[AddressInfo], place: &NodeInUse) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for one in all.iter().filter(|one| !one.flags.contains(AddressFlags::OFFLINE)) {
        let Some(ip) = one.address().map(unmapped) else { continue };
        if found.len() < WITNESS_ADDRESSES && is_host(ip, place.ip) && !found.contains(&ip) {
            found.push(ip);
        }
    }
    found
}

/// Returns the addresses at which a session can be registered, each of another node: those of the family
/// of its own address, or those of the other family if there are none. The user may have ruled some out.
pub(super) fn witnesses(
    interfaces: &[InterfaceInfo],
    place: &NodeInUse,
    may_be_at: impl Fn(IpAddr) -> bool,
) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for one in interfaces {
        // MS-SWN 2.2.2.5: without the flag the interface must not be used for a registration. Samba's
        // nodes all have the name of the cluster, so that the names tell nothing.
        let is_witness = one.flags.contains(InterfaceFlags::WITNESS)
            && one.state == InterfaceState::AVAILABLE
            && one.addresses().all(|ip| unmapped(ip) != place.ip);
        for ip in one.addresses().map(unmapped).filter(|_| is_witness) {
            let is_usable = is_host(ip, place.ip) && may_be_at(ip);
            if found.len() < WITNESS_INTERFACES && is_usable && !found.contains(&ip) {
                found.push(ip);
            }
        }
    }
    if found.iter().any(|ip| ip.is_ipv4() == place.ip.is_ipv4()) {
        found.retain(|ip| ip.is_ipv4() == place.ip.is_ipv4());
    }
    found
}

/// Returns true for the address of one host that can be reached as the node in use is: a loopback
/// address from a loopback address alone, and none that means something only with a link.
fn is_host(ip: IpAddr, in_use: IpAddr) -> bool {
    let is_of_link = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !is_of_link && is_reachable(ip) && (!ip.is_loopback() || in_use.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc_over_tcp::Demand;
    use frevo_rpc::witness::MessageType;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn place() -> NodeInUse {
        let demand = Demand { by_kerberos: false, is_sealed: false };
        NodeInUse { generation: 1, ip: ip("192.0.2.1"), share: None, demand }
    }

    fn interface(group: &str, address: &str, is_witness: bool) -> InterfaceInfo {
        InterfaceInfo::of(group, InterfaceState::AVAILABLE, ip(address), is_witness)
    }

    fn names() -> Names {
        let all = [interface("NODE1", "192.0.2.1", false), interface("NODE2", "192.0.2.2", true)];
        Names::of("cluster", &place(), &all)
    }

    fn told(notification: &Notification) -> Verdict {
        judge(notification, &place(), &names())
    }

    fn addresses(all: &[(&str, AddressFlags)]) -> Vec<AddressInfo> {
        all.iter().map(|(address, flags)| AddressInfo::of(ip(address), *flags)).collect()
    }

    #[test]
    fn a_node_that_is_gone_is_known_by_each_of_its_names() {
        let change = |name: &str, state| ResourceChange { state, name: name.into() };
        for (name, state, expected) in [
            ("node1", ResourceState::UNAVAILABLE, Verdict::Gone),
            ("CLUSTER", ResourceState::UNAVAILABLE, Verdict::Gone),
            ("192.0.2.1", ResourceState::UNAVAILABLE, Verdict::Gone),
            ("::ffff:192.0.2.1", ResourceState::UNAVAILABLE, Verdict::Gone),
            ("node1", ResourceState::AVAILABLE, Verdict::Stay),
            ("node1", ResourceState::UNKNOWN, Verdict::Stay),
            ("node2", ResourceState::UNAVAILABLE, Verdict::Stay),
            ("192.0.2.2", ResourceState::UNAVAILABLE, Verdict::Stay),
            ("", ResourceState::UNAVAILABLE, Verdict::Stay),
        ] {
            let all = vec![change("other", ResourceState::UNAVAILABLE), change(name, state)];
            assert_eq!(told(&Notification::ResourceChange(all)), expected, "{name} {state:?}");
        }
        assert_eq!(told(&Notification::ResourceChange(Vec::new())), Verdict::Stay);
        assert_eq!(told(&Notification::Other(MessageType(9))), Verdict::Stay);
    }

    #[test]
    fn a_client_goes_where_it_is_told_and_nowhere_else() {
        let none = AddressFlags::EMPTY;
        let go = |all: &[(&str, AddressFlags)]| told(&Notification::ClientMove(addresses(all)));
        let to = |all: &[&str]| Verdict::Move(all.iter().map(|text| ip(text)).collect());
        assert_eq!(go(&[("192.0.2.2", AddressFlags::ONLINE)]), to(&["192.0.2.2"]));
        let two = [("192.0.2.2", none), ("2001:db8::2", none), ("192.0.2.2", none)];
        assert_eq!(go(&two), to(&["192.0.2.2", "2001:db8::2"]));
        assert_eq!(go(&[("::ffff:192.0.2.2", none)]), to(&["192.0.2.2"]));
        let one = [("192.0.2.2", AddressFlags::OFFLINE), ("192.0.2.3", AddressFlags::ONLINE)];
        assert_eq!(go(&one), to(&["192.0.2.3"]));
        // It is there.
        assert_eq!(go(&[("192.0.2.2", none), ("192.0.2.1", none)]), Verdict::Stay);
        for nobody in [
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "169.254.1.1",
            "127.0.0.1",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:127.0.0.1",
        ] {
            assert_eq!(go(&[(nobody, none)]), Verdict::Stay, "{nobody}");
        }
        assert_eq!(go(&[]), Verdict::Stay);
        let share = Notification::ShareMove(addresses(&[("192.0.2.2", none)]));
        assert_eq!(told(&share), Verdict::ShareMove(vec![ip("192.0.2.2")]));
    }

    #[test]
    fn of_a_thousand_addresses_the_first_count() {
        let all = (0..1_000u32).map(|at| IpAddr::V4((0x0a00_0000 + at).into()));
        let all = all.map(|ip| AddressInfo::of(ip, AddressFlags::ONLINE)).collect();
        let Verdict::Move(found) = told(&Notification::ClientMove(all)) else { panic!("a move") };
        assert_eq!(found.len(), WITNESS_ADDRESSES);
    }

    #[test]
    fn an_address_that_goes_is_left() {
        let (on, off) = (AddressFlags::ONLINE, AddressFlags::OFFLINE);
        let go = |all: &[(&str, AddressFlags)]| told(&Notification::IpChange(addresses(all)));
        assert_eq!(go(&[("192.0.2.1", off)]), Verdict::Gone);
        let moved = go(&[("192.0.2.1", off), ("192.0.2.9", on)]);
        assert_eq!(moved, Verdict::Move(vec![ip("192.0.2.9")]));
        assert_eq!(go(&[("192.0.2.2", off), ("192.0.2.9", on)]), Verdict::Stay);
        assert_eq!(go(&[("192.0.2.1", on)]), Verdict::Stay);
    }

    #[test]
    fn a_witness_is_another_node() {
        let down = InterfaceInfo {
            state: InterfaceState::UNAVAILABLE,
            ..interface("NODE4", "192.0.2.4", true)
        };
        let all = [
            interface("NODE1", "192.0.2.1", true),
            // Samba's nodes all have the name of the cluster.
            interface("NODE1", "198.51.100.1", false),
            interface("NODE2", "2001:db8::2", true),
            interface("NODE1", "192.0.2.2", true),
            interface("NODE3", "192.0.2.3", false),
            down,
            interface("NODE5", "127.0.0.1", true),
            InterfaceInfo {
                flags: InterfaceFlags::WITNESS,
                ..interface("NODE6", "192.0.2.6", true)
            },
        ];
        assert_eq!(witnesses(&all, &place(), |_| true), [ip("192.0.2.2")]);
        let ruled_out = |at| at != ip("192.0.2.2");
        assert_eq!(witnesses(&all, &place(), ruled_out), [ip("2001:db8::2")]);
        assert_eq!(witnesses(&all[..3], &place(), |_| true), [ip("2001:db8::2")]);
        let many: Vec<_> = (0..100)
            .map(|at| interface(&format!("N{at}"), &format!("192.0.2.{}", at + 100), true))
            .collect();
        assert_eq!(witnesses(&many, &place(), |_| true).len(), WITNESS_INTERFACES);
    }
}
