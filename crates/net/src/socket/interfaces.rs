//! The host's network interfaces, for clients that ask for further addresses
//! (FSCTL_QUERY_NETWORK_INTERFACE_INFO).

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::routes::{self, Address, Link};
use crate::limits::INTERFACES_MAX;

/// One network interface and its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number of the interface; never 0.
    pub index: u32,
    /// The name of the interface.
    pub name: String,
    /// Its addresses, without scope.
    pub addresses: Vec<IpAddr>,
    /// True if it is administratively up and has a carrier.
    pub running: bool,
    /// True for the loopback interface.
    pub loopback: bool,
    /// Link speed in bits per second, if the driver knows it.
    pub speed: Option<u64>,
    /// Number of hardware receive queues; more than one means receive side scaling.
    pub receive_queues: u32,
    /// True if it has an RDMA device.
    pub rdma: bool,
}

/// Returns all interfaces that have an address, by index.
///
/// # Errors
/// If the system cannot tell.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let rdma = rdma_interfaces();
    let mut found: Vec<Interface> = Vec::new();
    let (links, addresses) = routes::links_and_addresses()?;
    for Address { index, address } in addresses {
        if let Some(known) = found.iter_mut().find(|known| known.index == index) {
            known.addresses.push(address);
            continue;
        }
        let Some(Link { name, flags, .. }) = links.iter().find(|link| link.index == index) else {
            // The interface was added after the links were listed, so nothing is known about it
            // yet.
            continue;
        };
        if found.len() == INTERFACES_MAX {
            break;
        }
        let (name, flags) = (name.clone(), *flags);
        let up = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_uint;
        found.push(Interface {
            index,
            addresses: vec![address],
            running: flags & up == up,
            loopback: flags & libc::IFF_LOOPBACK as libc::c_uint != 0,
            speed: speed_of(read_number(&sys_path(&name, "speed"))),
            receive_queues: receive_queues(&sys_path(&name, "queues")),
            rdma: rdma.contains(&name),
            name,
        });
    }
    found.sort_by_key(|interface| interface.index);
    Ok(found)
}

fn sys_path(name: &str, attribute: &str) -> PathBuf {
    Path::new("/sys/class/net").join(name).join(attribute)
}

fn read_number(path: &Path) -> Option<i64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Converts megabits per second, -1 for unknown, to bits per second.
fn speed_of(megabits: Option<i64>) -> Option<u64> {
    let megabits = u64::try_from(megabits?).ok().filter(|&megabits| megabits > 0)?;
    // Some drivers report u32::MAX for an unknown speed.
    if megabits >= u64::from(u32::MAX) { None } else { megabits.checked_mul(1_000_000) }
}

fn receive_queues(queues: &Path) -> u32 {
    let Ok(entries) = std::fs::read_dir(queues) else { return 1 };
    let receives =
        |entry: &std::fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b"rx-");
    let count = entries.flatten().filter(receives).count();
    u32::try_from(count).unwrap_or(u32::MAX).max(1)
}

/// Returns the names of the interfaces with an RDMA device.
fn rdma_interfaces() -> HashSet<String> {
    let Ok(devices) = std::fs::read_dir("/sys/class/infiniband") else { return HashSet::new() };
    let interfaces_of = |device: std::fs::DirEntry| {
        let net = std::fs::read_dir(device.path().join("device/net"));
        net.into_iter().flatten().flatten().filter_map(|net| net.file_name().into_string().ok())
    };
    devices.flatten().flat_map(interfaces_of).collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_loopback_is_found_as_it_is() {
        let all = interfaces().unwrap();
        let loopback = all.iter().find(|interface| interface.loopback).unwrap();
        assert!(loopback.addresses.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
        assert!(loopback.index > 0 && loopback.running && !loopback.rdma);
        assert!(loopback.receive_queues >= 1);
        let mut indices: Vec<u32> = all.iter().map(|interface| interface.index).collect();
        indices.dedup();
        assert_eq!(indices.len(), all.len());
    }

    #[test]
    fn unknown_speeds_are_unknown() {
        assert_eq!(speed_of(None), None);
        assert_eq!(speed_of(Some(-1)), None);
        assert_eq!(speed_of(Some(0)), None);
        assert_eq!(speed_of(Some(i64::from(u32::MAX))), None);
        assert_eq!(speed_of(Some(10_000)), Some(10_000_000_000));
        assert_eq!(speed_of(Some(400_000)), Some(400_000_000_000));
    }
}
