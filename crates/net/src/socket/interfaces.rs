//! The host's network interfaces, for clients that ask for further addresses
//! (FSCTL_QUERY_NETWORK_INTERFACE_INFO).

use std::collections::HashSet;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

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
    for (name, flags, address) in addresses()? {
        if let Some(known) = found.iter_mut().find(|known| known.name == name) {
            known.addresses.push(address);
            continue;
        }
        let Some(index) = read_number(&sys_path(&name, "ifindex")).and_then(|i| i.try_into().ok())
        else {
            // Gone meanwhile, or a host without /sys: nothing is known.
            continue;
        };
        if found.len() == INTERFACES_MAX {
            break;
        }
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
    // Some drivers use u32::MAX for unknown.
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

/// Returns name, flags and address of every interface with an IP address.
fn addresses() -> io::Result<Vec<(String, libc::c_uint, IpAddr)>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: on success the call stores a list that we free below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: each element and what it points to lives until the list is
    // freed, and is null or valid.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: the name is a C string of the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        // SAFETY: the address is null or one of the list.
        let address = unsafe { address_of(entry.ifa_addr) };
        if let (Ok(name), Some(address)) = (name.to_str(), address) {
            found.push((name.to_owned(), entry.ifa_flags, address));
        }
    }
    // SAFETY: the list came from getifaddrs, and nothing of it is kept.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// # Safety
/// `address` is null or points to a socket address as long as its family
/// says.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's promise; every socket address begins so.
    let family = unsafe { address.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: this family means this structure; it may be unaligned.
            let four = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(four.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let six = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(six.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn both_families_are_read_even_unaligned() {
        let mut bytes = [0_u8; 64];
        // SAFETY: all-zero bytes are a good value of this structure.
        let mut four: libc::sockaddr_in = unsafe { std::mem::zeroed() };
        four.sin_family = libc::AF_INET as libc::sa_family_t;
        four.sin_addr.s_addr = u32::from_be_bytes([192, 0, 2, 7]).to_be();
        // SAFETY: both lie within the array; the reads below allow for any
        // alignment but that of the family, which is 2.
        unsafe {
            let place = bytes.as_mut_ptr().add(bytes.as_ptr() as usize % 2 + 2);
            place.cast::<libc::sockaddr_in>().write_unaligned(four);
            let got = address_of(place.cast());
            assert_eq!(got, Some(Ipv4Addr::new(192, 0, 2, 7).into()));
            assert_eq!(address_of(std::ptr::null()), None);
        }
    }
}
