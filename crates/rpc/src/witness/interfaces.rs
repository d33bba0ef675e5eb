//! The interfaces of a cluster: the reply to WitnessrGetInterfaceList.

use super::{InterfaceFlags, InterfaceState, Version};
use crate::WinError;
use crate::limits::MAX_WITNESS_INTERFACES;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::fscc::WireName;
use frevo_wire::ndr::{NdrReader, NdrWriter};

/// UTF-16 units of InterfaceGroupName, with its NUL.
const GROUP_NAME_UNITS: usize = 260;

/// Bytes of a WITNESS_INTERFACE_INFO.
const INFO_BYTES: usize = 552;

/// WITNESS_INTERFACE_INFO, MS-SWN 2.2.2.5.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceInfo {
    /// InterfaceGroupName: the name of the node.
    pub group_name: String,
    /// Version
    pub version: Version,
    /// State
    pub state: InterfaceState,
    /// IPV4, if the flags say so.
    pub ipv4: Ipv4Addr,
    /// IPV6, if the flags say so.
    pub ipv6: Ipv6Addr,
    /// Flags
    pub flags: InterfaceFlags,
}

impl InterfaceInfo {
    /// An interface with one address. `is_witness` is true if clients may register there.
    pub fn of(group_name: &str, state: InterfaceState, address: IpAddr, is_witness: bool) -> Self {
        let (ipv4, ipv6, flags) = match address {
            IpAddr::V4(ipv4) => (ipv4, Ipv6Addr::UNSPECIFIED, InterfaceFlags::IPV4),
            IpAddr::V6(ipv6) => (Ipv4Addr::UNSPECIFIED, ipv6, InterfaceFlags::IPV6),
        };
        let flags = if is_witness { flags | InterfaceFlags::WITNESS } else { flags };
        let (group_name, version) = (String::from(group_name), Version::V2);
        Self { group_name, version, state, ipv4, ipv6, flags }
    }

    /// The addresses that the flags name.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let ipv4 = self.flags.contains(InterfaceFlags::IPV4).then_some(IpAddr::V4(self.ipv4));
        let ipv6 = self.flags.contains(InterfaceFlags::IPV6).then_some(IpAddr::V6(self.ipv6));
        ipv4.into_iter().chain(ipv6)
    }

    fn read(r: &mut NdrReader<'_>) -> Parsed<Self> {
        let what = "WITNESS_INTERFACE_INFO";
        r.align(4)?;
        let name = r.raw(GROUP_NAME_UNITS.saturating_mul(2), what)?;
        let units = name.chunks_exact(2).take_while(|unit| *unit != [0, 0]);
        let length = units.count().saturating_mul(2);
        let name = WireName::new(name.get(..length).unwrap_or(&[]))?;
        Ok(Self {
            group_name: name.to_string_lossy(),
            version: Version(r.u32(what)?),
            state: InterfaceState(r.u16(what)?),
            ipv4: {
                r.align(4)?;
                // Windows and Samba send addresses in network order.
                Ipv4Addr::from(r.fixed::<4>(what)?)
            },
            ipv6: Ipv6Addr::from(r.fixed::<16>(what)?),
            flags: InterfaceFlags(r.u32(what)?),
        })
    }

    fn write(&self, w: &mut NdrWriter) {
        w.align(4);
        let units = self.group_name.encode_utf16().take_while(|unit| *unit != 0);
        let units = units.take(GROUP_NAME_UNITS.saturating_sub(1)).chain(core::iter::repeat(0));
        for unit in units.take(GROUP_NAME_UNITS) {
            w.u16(unit);
        }
        w.u32(self.version.0).u16(self.state.0).align(4);
        w.fixed(&self.ipv4.octets()).fixed(&self.ipv6.octets()).u32(self.flags.0);
    }
}

/// The reply to WitnessrGetInterfaceList.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceListReply {
    /// InterfaceList; empty if the call failed.
    pub interfaces: Vec<InterfaceInfo>,
    /// The return value.
    pub status: WinError,
}

impl InterfaceListReply {
    /// Parses the stub data.
    ///
    /// # Errors
    /// Malformed stub data, and more interfaces than [`MAX_WITNESS_INTERFACES`].
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let what = "WITNESS_INTERFACE_LIST";
        let mut r = NdrReader::new(stub);
        let mut interfaces = Vec::new();
        if r.pointer(what)? {
            let count = r.u32(what)?;
            if r.pointer(what)? {
                let count = r.array(count, INFO_BYTES, what)?;
                if count > MAX_WITNESS_INTERFACES {
                    return Err(Malformed::new(what));
                }
                for _ in 0..count {
                    interfaces.push(InterfaceInfo::read(&mut r)?);
                }
            } else if count != 0 {
                return Err(Malformed::new(what));
            }
        }
        Ok(Self { interfaces, status: WinError(r.u32("WitnessrGetInterfaceList return value")?) })
    }

    /// Stub data of the reply. A call that failed has no list.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.pointer(self.status == WinError::SUCCESS);
        if self.status == WinError::SUCCESS {
            let count = u32::try_from(self.interfaces.len()).unwrap_or(u32::MAX);
            w.u32(count).pointer(true).u32(count);
            for interface in &self.interfaces {
                interface.write(&mut w);
            }
        }
        w.u32(self.status.0);
        w.into_stub()
    }
}
