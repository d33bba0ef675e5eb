//! Notifications: the reply to WitnessrAsyncNotify.

use super::{AddressFlags, MessageType, ResourceState};
use crate::WinError;
use crate::limits::{MAX_WITNESS_BUFFER, MAX_WITNESS_MESSAGES};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use frevo_wire::codec::{Malformed, Parsed, Reader, Writer};
use frevo_wire::fscc::WireName;
use frevo_wire::ndr::{NdrReader, NdrWriter};

/// Bytes of RESOURCE_CHANGE before its name.
const CHANGE_HEAD: usize = 8;
/// Bytes of IPADDR_INFO_LIST before its addresses.
const LIST_HEAD: usize = 12;
/// Bytes of an IPADDR_INFO.
const ADDRESS_BYTES: usize = 24;

/// RESOURCE_CHANGE, MS-SWN 2.2.2.3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceChange {
    /// ChangeType
    pub state: ResourceState,
    /// ResourceName
    pub name: String,
}

impl ResourceChange {
    fn read(r: &mut Reader<'_>) -> Parsed<Self> {
        let what = "RESOURCE_CHANGE";
        let length = usize::try_from(r.u32(what)?).map_err(|_| Malformed::new(what))?;
        let state = ResourceState(r.u32(what)?);
        let name = length.checked_sub(CHANGE_HEAD).ok_or(Malformed::new(what))?;
        let name = r.take(name, what)?.strip_suffix(&[0, 0]).ok_or(Malformed::new(what))?;
        Ok(Self { state, name: WireName::new(name)?.to_string_lossy() })
    }

    fn write(&self, w: &mut Writer<'_>) {
        let units = self.name.encode_utf16().count().saturating_add(1);
        let length = units.saturating_mul(2).saturating_add(CHANGE_HEAD);
        w.u32(u32::try_from(length).unwrap_or(u32::MAX)).u32(self.state.0);
        w.utf16(&self.name).u16(0);
    }
}

/// IPADDR_INFO, MS-SWN 2.2.2.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressInfo {
    /// Flags
    pub flags: AddressFlags,
    /// IPV4, if the flags say so.
    pub ipv4: Ipv4Addr,
    /// IPV6, if the flags say so.
    pub ipv6: Ipv6Addr,
}

impl AddressInfo {
    /// An address, with these flags and the one of its family.
    pub fn of(address: IpAddr, flags: AddressFlags) -> Self {
        let (ipv4, ipv6, family) = match address {
            IpAddr::V4(ipv4) => (ipv4, Ipv6Addr::UNSPECIFIED, AddressFlags::V4),
            IpAddr::V6(ipv6) => (Ipv4Addr::UNSPECIFIED, ipv6, AddressFlags::V6),
        };
        Self { flags: flags | family, ipv4, ipv6 }
    }

    /// The address that the flags name. None if they name none.
    pub const fn address(&self) -> Option<IpAddr> {
        if self.flags.contains(AddressFlags::V4) {
            return Some(IpAddr::V4(self.ipv4));
        }
        if self.flags.contains(AddressFlags::V6) {
            return Some(IpAddr::V6(self.ipv6));
        }
        None
    }
}

/// IPADDR_INFO_LIST, MS-SWN 2.2.2.2.
fn read_addresses(r: &mut Reader<'_>) -> Parsed<Vec<AddressInfo>> {
    let what = "IPADDR_INFO_LIST";
    let length = usize::try_from(r.u32(what)?).map_err(|_| Malformed::new(what))?;
    let rest = length.checked_sub(4).ok_or(Malformed::new(what))?;
    let mut r = Reader::new(r.take(rest, what)?);
    r.u32(what)?;
    let count = usize::try_from(r.u32(what)?).map_err(|_| Malformed::new(what))?;
    if count > MAX_WITNESS_MESSAGES {
        return Err(Malformed::new(what));
    }
    let mut addresses = Vec::new();
    for _ in 0..count {
        addresses.push(AddressInfo {
            flags: AddressFlags(r.u32(what)?),
            ipv4: Ipv4Addr::from(r.array::<4>(what)?),
            ipv6: Ipv6Addr::from(r.array::<16>(what)?),
        });
    }
    Ok(addresses)
}

fn write_addresses(addresses: &[AddressInfo], w: &mut Writer<'_>) {
    let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    let length = addresses.len().saturating_mul(ADDRESS_BYTES).saturating_add(LIST_HEAD);
    w.u32(u32::try_from(length).unwrap_or(u32::MAX)).u32(0).u32(count);
    for AddressInfo { flags, ipv4, ipv6 } in addresses {
        w.u32(flags.0).bytes(&ipv4.octets()).bytes(&ipv6.octets());
    }
}

/// The messages of RESP_ASYNC_NOTIFY, MS-SWN 2.2.2.4, all of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notification {
    /// Nodes or addresses come or go.
    ResourceChange(Vec<ResourceChange>),
    /// The client is to use SMB at these addresses.
    ClientMove(Vec<AddressInfo>),
    /// The share is now at these addresses.
    ShareMove(Vec<AddressInfo>),
    /// These addresses came or went.
    IpChange(Vec<AddressInfo>),
    /// A type that is not known; its messages are not read.
    Other(MessageType),
}

impl Notification {
    /// Its type.
    pub const fn kind(&self) -> MessageType {
        match self {
            Self::ResourceChange(_) => MessageType::RESOURCE_CHANGE,
            Self::ClientMove(_) => MessageType::CLIENT_MOVE,
            Self::ShareMove(_) => MessageType::SHARE_MOVE,
            Self::IpChange(_) => MessageType::IP_CHANGE,
            Self::Other(kind) => *kind,
        }
    }

    fn parse(kind: MessageType, count: u32, buffer: &[u8]) -> Parsed<Self> {
        let what = "RESP_ASYNC_NOTIFY MessageBuffer";
        let mut r = Reader::new(buffer);
        let lists = |r: &mut Reader<'_>| {
            // MS-SWN 3.1.4.4: a list of addresses is one message.
            let of_one = read_addresses(r)?;
            if count == 1 { Ok(of_one) } else { Err(Malformed::new(what)) }
        };
        Ok(match kind {
            MessageType::RESOURCE_CHANGE => {
                let count = usize::try_from(count).map_err(|_| Malformed::new(what))?;
                if count > MAX_WITNESS_MESSAGES {
                    return Err(Malformed::new(what));
                }
                let changes = (0..count).map(|_| ResourceChange::read(&mut r));
                Self::ResourceChange(changes.collect::<Parsed<_>>()?)
            }
            MessageType::CLIENT_MOVE => Self::ClientMove(lists(&mut r)?),
            MessageType::SHARE_MOVE => Self::ShareMove(lists(&mut r)?),
            MessageType::IP_CHANGE => Self::IpChange(lists(&mut r)?),
            other => Self::Other(other),
        })
    }

    /// The messages, and their number.
    fn encode(&self) -> (Vec<u8>, u32) {
        let mut buffer = Vec::new();
        let mut w = Writer::new(&mut buffer);
        let count = match self {
            Self::ResourceChange(changes) => {
                for change in changes {
                    change.write(&mut w);
                }
                u32::try_from(changes.len()).unwrap_or(u32::MAX)
            }
            Self::ClientMove(addresses)
            | Self::ShareMove(addresses)
            | Self::IpChange(addresses) => {
                write_addresses(addresses, &mut w);
                1
            }
            Self::Other(_) => 0,
        };
        (buffer, count)
    }
}

/// The reply to WitnessrAsyncNotify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifyReply {
    /// pResp; None for a call that failed.
    pub notification: Option<Notification>,
    /// The return value. The client asks again after TIMEOUT.
    pub status: WinError,
}

impl NotifyReply {
    /// Parses the stub data.
    ///
    /// # Errors
    /// Malformed stub data, and messages beyond [`MAX_WITNESS_MESSAGES`] or [`MAX_WITNESS_BUFFER`].
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let what = "RESP_ASYNC_NOTIFY";
        let mut r = NdrReader::new(stub);
        let notification = if r.pointer(what)? {
            let (kind, length, count) = (MessageType(r.u32(what)?), r.u32(what)?, r.u32(what)?);
            let buffer = match r.pointer(what)? {
                true if length > MAX_WITNESS_BUFFER => return Err(Malformed::new(what)),
                true => r.bytes(length, what)?,
                false => &[],
            };
            Some(Notification::parse(kind, count, buffer)?)
        } else {
            None
        };
        Ok(Self { notification, status: WinError(r.u32("WitnessrAsyncNotify return value")?) })
    }

    /// Stub data of the reply.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.pointer(self.notification.is_some());
        if let Some(notification) = &self.notification {
            let (buffer, count) = notification.encode();
            let length = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
            w.u32(notification.kind().0).u32(length).u32(count);
            w.pointer(!buffer.is_empty());
            if !buffer.is_empty() {
                w.bytes(&buffer);
            }
        }
        w.u32(self.status.0);
        w.into_stub()
    }
}
