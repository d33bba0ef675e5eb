//! FSCTL_QUERY_NETWORK_INTERFACE_INFO, MS-SMB2 3.3.5.15.11: where else the
//! server can be reached.

use std::net::IpAddr;

use frevo_net::socket::{self, Interface};
use frevo_net::transport::{InterfaceKind, Listening};
use frevo_wire::Status;
use frevo_wire::command::ioctl::network_interface::{
    ENTRY_LEN, InterfaceCapabilities, NetworkInterface, encode_list,
};

use super::call::{Answer, Call, output};
use crate::objects::data;
use crate::objects::settings::InterfaceOverride;

/// Bits per second of an interface whose driver does not know.
const SPEED_UNKNOWN: u64 = 1_000_000_000;

/// Lists the addresses that a client may open further connections to.
///
/// Windows: answered for each dialect, and to a client that did not negotiate several channels;
/// MS-SMB2 3.3.5.15.11 lets a server refuse both.
pub(super) async fn handle(call: &Call<'_>) -> Answer {
    let connection = call.rq.connection;
    if connection.transport.facts().interface == InterfaceKind::Untold {
        // The client is in another network, to which the addresses of this one are not told.
        return Ok((output(|w| encode_list(&[], w)), Status::SUCCESS));
    }
    let found = call.rq.beside_core(socket::interfaces).await?;
    let mut found = found.map_err(|error| data::status(&error))?;
    let listening = call.rq.server().listening.get();
    if let Some(listening) = listening {
        keep_listening(&mut found, listening);
    }
    believe(&mut found, connection.local.ip());
    let mut entries = entries(&found);
    if let Some(listening) = listening {
        tell_rdma(&mut entries, listening);
    }
    put_right(&mut entries, &connection.settings.interfaces);
    let fitting = call.max_output as usize / ENTRY_LEN;
    if fitting == 0 && !entries.is_empty() {
        return Err(Status::BUFFER_TOO_SMALL.into());
    }
    entries.truncate(fitting);
    Ok((output(|w| encode_list(&entries, w)), Status::SUCCESS))
}

/// Whatever its driver says of a carrier, the interface that a connection has
/// come in by works.
fn believe(interfaces: &mut [Interface], local: IpAddr) {
    for interface in interfaces {
        interface.running |= interface.addresses.contains(&local.to_canonical());
    }
}

/// Leaves the addresses that somebody listens on: a client would wait in vain
/// for an answer from the others.
fn keep_listening(interfaces: &mut [Interface], listening: &[Listening]) {
    for interface in interfaces {
        interface.addresses.retain(|address| is_reached(*address, listening, InterfaceKind::Plain));
    }
}

/// True if a listener of this kind answers at `address`.
fn is_reached(address: IpAddr, listening: &[Listening], kind: InterfaceKind) -> bool {
    listening.iter().any(|one| one.interface == kind && one.includes(address))
}

/// One entry for each address. The loopback is no way in for others and is
/// told only when there is nothing else; nor is an address that means nothing
/// without its link.
fn entries(interfaces: &[Interface]) -> Vec<NetworkInterface> {
    let running = || interfaces.iter().filter(|i| i.running && i.index != 0);
    let outward: Vec<_> = running().filter(|i| !i.loopback).flat_map(addresses).collect();
    if outward.is_empty() { running().flat_map(addresses).collect() } else { outward }
}

fn addresses(interface: &Interface) -> impl Iterator<Item = NetworkInterface> + '_ {
    let mut capability = InterfaceCapabilities::EMPTY;
    if interface.receive_queues > 1 {
        capability |= InterfaceCapabilities::RSS_CAPABLE;
    }
    let link_speed = interface.speed.unwrap_or(SPEED_UNKNOWN);
    interface.addresses.iter().filter(|address| is_routable(address)).map(move |address| {
        NetworkInterface { if_index: interface.index, capability, link_speed, address: *address }
    })
}

/// Marks the addresses at which the server listens for RDMA.
fn tell_rdma(entries: &mut [NetworkInterface], listening: &[Listening]) {
    for entry in entries {
        if is_reached(entry.address, listening, InterfaceKind::Rdma) {
            entry.capability |= InterfaceCapabilities::RDMA_CAPABLE;
        }
    }
}

/// Replaces what the kernel says of an interface by what the configuration says of the address.
fn put_right(entries: &mut [NetworkInterface], overrides: &[InterfaceOverride]) {
    for entry in entries {
        let is_of_it = |one: &&InterfaceOverride| one.address == entry.address;
        let Some(said) = overrides.iter().rfind(is_of_it) else { continue };
        entry.link_speed = said.speed.unwrap_or(entry.link_speed);
        for (is_set, bit) in [
            (said.rss, InterfaceCapabilities::RSS_CAPABLE),
            (said.rdma, InterfaceCapabilities::RDMA_CAPABLE),
        ] {
            match is_set {
                Some(true) => entry.capability |= bit,
                Some(false) => entry.capability = entry.capability.without(bit),
                None => {}
            }
        }
    }
}

const fn is_routable(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_link_local() && !v4.is_unspecified(),
        IpAddr::V6(v6) => !v6.is_unicast_link_local() && !v6.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use frevo_net::socket::Reach;

    use super::*;

    fn interface(index: u32, loopback: bool, addresses: &[&str]) -> Interface {
        Interface {
            index,
            name: format!("if{index}"),
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            running: true,
            loopback,
            speed: None,
            receive_queues: index,
            rdma: true,
        }
    }

    #[test]
    fn the_loopback_is_told_only_when_alone() {
        let lo = interface(1, true, &["127.0.0.1", "::1"]);
        let eth = interface(2, false, &["192.0.2.1", "fe80::1", "2001:db8::1"]);
        let both = entries(&[lo.clone(), eth.clone()]);
        let told: Vec<_> = both.iter().map(|e| e.address.to_string()).collect();
        assert_eq!(told, ["192.0.2.1", "2001:db8::1"]);
        assert!(both.iter().all(|e| e.if_index == 2 && e.link_speed == SPEED_UNKNOWN));
        assert_eq!(both[0].capability, InterfaceCapabilities::RSS_CAPABLE, "and no RDMA");
        assert_eq!(entries(std::slice::from_ref(&lo)).len(), 2);
        let down = Interface { running: false, ..eth };
        assert_eq!(entries(&[lo.clone(), down.clone()])[0].address.to_string(), "127.0.0.1");
        let mut reached = [lo, down];
        believe(&mut reached, "::ffff:192.0.2.1".parse().unwrap());
        assert_eq!(entries(&reached)[0].address.to_string(), "192.0.2.1");
    }

    #[test]
    fn the_configuration_has_the_last_word() {
        let eth = interface(2, false, &["192.0.2.1", "2001:db8::1"]);
        let mut told = entries(&[eth]);
        let said = |address: &str, rss, rdma: Option<bool>| InterfaceOverride {
            address: address.parse().unwrap(),
            speed: rdma.map(|_| 25_000_000_000),
            rss,
            rdma,
        };
        let all = [
            said("192.0.2.1", Some(false), None),
            said("2001:db8::1", None, Some(true)),
            said("192.0.2.9", Some(true), Some(true)),
        ];
        put_right(&mut told, &all);
        let both = InterfaceCapabilities::RSS_CAPABLE | InterfaceCapabilities::RDMA_CAPABLE;
        let found: Vec<_> = told.iter().map(|one| (one.capability, one.link_speed)).collect();
        assert_eq!(found, [(InterfaceCapabilities::EMPTY, SPEED_UNKNOWN), (both, 25_000_000_000)],);
    }

    #[tokio::test]
    async fn addresses_that_nobody_listens_on_are_not_told() {
        let told = |listener: &str| {
            let listener = socket::Listener::bind(listener.parse().unwrap()).unwrap();
            let mut all = [interface(1, false, &["127.0.0.1", "192.0.2.1", "2001:db8::1"])];
            keep_listening(&mut all, &[Listening::of(&listener.into())]);
            all[0].addresses.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(told("127.0.0.1:0"), ["127.0.0.1"]);
        assert_eq!(told("0.0.0.0:0"), ["127.0.0.1", "192.0.2.1"]);
    }

    #[test]
    fn a_listener_for_rdma_marks_its_addresses_and_adds_none() {
        let at = |address: &str| Reach::of(address.parse().unwrap());
        let plain = Listening { interface: InterfaceKind::Plain, reach: None };
        let rdma =
            Listening { interface: InterfaceKind::Rdma, reach: Some(vec![at("2001:db8::1")]) };
        let mut all = [interface(1, false, &["192.0.2.1", "2001:db8::1"])];
        keep_listening(&mut all, &[plain, rdma.clone()]);
        let mut told = entries(&all);
        tell_rdma(&mut told, std::slice::from_ref(&rdma));
        let found: Vec<_> = told.iter().map(|one| one.capability).collect();
        assert_eq!(found, [InterfaceCapabilities::EMPTY, InterfaceCapabilities::RDMA_CAPABLE]);
        keep_listening(&mut all, &[rdma]);
        assert_eq!(all[0].addresses, Vec::<IpAddr>::new(), "nobody listens for TCP");
    }
}
