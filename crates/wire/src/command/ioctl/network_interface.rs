//! NETWORK_INTERFACE_INFO, MS-SMB2 2.2.32.5: further addresses of the server, for multichannel.

use crate::bit_set;
use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::command::field_u32;
use crate::limits::MAX_NETWORK_INTERFACES;
use alloc::vec::Vec;
use core::net::IpAddr;

bit_set! {
    /// Capability of an interface.
    InterfaceCapabilities(u32) {
        /// Receive-side scaling: several connections help.
        RSS_CAPABLE = 0x0000_0001,
        /// RDMA.
        RDMA_CAPABLE = 0x0000_0002,
    }
}

/// One address of one interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkInterface {
    /// Index of the interface, equal for all its addresses.
    pub if_index: u32,
    /// Capabilities of the interface.
    pub capability: InterfaceCapabilities,
    /// Speed in bits per second.
    pub link_speed: u64,
    /// An address of the interface.
    pub address: IpAddr,
}

/// Family of IPv4 in SOCKADDR_STORAGE.
const INTER_NETWORK: u16 = 0x0002;
/// Family of IPv6 in SOCKADDR_STORAGE.
const INTER_NETWORK_V6: u16 = 0x0017;
/// Bytes of SOCKADDR_STORAGE.
const SOCKADDR_STORAGE_LEN: usize = 128;
/// Bytes of an entry.
pub const ENTRY_LEN: usize = 152;

/// Parses the output of QUERY_NETWORK_INTERFACE_INFO. Skips entries that are neither IPv4 nor IPv6.
pub fn parse_list(output: &[u8]) -> Parsed<Vec<NetworkInterface>> {
    let mut interfaces = Vec::new();
    let mut rest = output;
    for _ in 0..MAX_NETWORK_INTERFACES {
        if rest.is_empty() {
            return Ok(interfaces);
        }
        let (next, interface) = parse_entry(rest)?;
        interfaces.extend(interface);
        if next == 0 {
            return Ok(interfaces);
        }
        if next < ENTRY_LEN || !next.is_multiple_of(8) {
            return Err(Malformed::new("interface Next"));
        }
        rest = rest.get(next..).ok_or(Malformed::new("interface Next"))?;
    }
    Err(Malformed::new("number of interfaces"))
}

fn parse_entry(entry: &[u8]) -> Parsed<(usize, Option<NetworkInterface>)> {
    let r = &mut Reader::new(entry);
    let next = usize::try_from(r.u32("interface Next")?).unwrap_or(usize::MAX);
    let if_index = r.u32("IfIndex")?;
    let capability = InterfaceCapabilities(r.u32("Capability")?);
    r.skip(4, "interface Reserved")?;
    let link_speed = r.u64("LinkSpeed")?;
    let r = &mut Reader::new(r.take(SOCKADDR_STORAGE_LEN, "SockAddr_Storage")?);
    let family = r.u16("Family")?;
    r.skip(2, "Port")?;
    let address = match family {
        INTER_NETWORK => Some(IpAddr::from(r.array::<4>("IPv4Address")?)),
        INTER_NETWORK_V6 => {
            r.skip(4, "FlowInfo")?;
            Some(IpAddr::from(r.array::<16>("IPv6Address")?))
        }
        _ => None,
    };
    let interface =
        address.map(|address| NetworkInterface { if_index, capability, link_speed, address });
    Ok((next, interface))
}

/// Appends the output of QUERY_NETWORK_INTERFACE_INFO.
pub fn encode_list(interfaces: &[NetworkInterface], w: &mut Writer<'_>) {
    for (i, interface) in interfaces.iter().enumerate() {
        let last = i.saturating_add(1) == interfaces.len();
        w.u32(if last { 0 } else { field_u32(ENTRY_LEN) }).u32(interface.if_index);
        w.u32(interface.capability.0).u32(0).u64(interface.link_speed);
        match interface.address {
            IpAddr::V4(v4) => w.u16(INTER_NETWORK).u16(0).bytes(&v4.octets()).zeros(120),
            IpAddr::V6(v6) => w.u16(INTER_NETWORK_V6).u16(0).u32(0).bytes(&v6.octets()).zeros(104),
        };
    }
}
