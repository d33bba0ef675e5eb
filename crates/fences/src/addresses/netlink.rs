//! Addresses and interfaces of the kernel: rtnetlink(7), as bytes and over a socket.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send,
    socket_with, sockopt,
};

/// Message types of linux/rtnetlink.h.
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;
const DELETE_ROUTE: u16 = 25;
/// NLMSG_ERROR and NLMSG_DONE of linux/netlink.h.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// NLM_F_REQUEST, NLM_F_ACK, NLM_F_REPLACE, NLM_F_EXCL, NLM_F_CREATE, NLM_F_DUMP.
pub(super) const REQUEST: u16 = 0x1;
pub(super) const ACK: u16 = 0x4;
const REPLACE: u16 = 0x100;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;
pub(super) const DUMP: u16 = 0x300;
/// IFA_ADDRESS, IFA_LOCAL, IFA_CACHEINFO, IFA_FLAGS, IFA_PROTO of linux/if_addr.h.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_CACHEINFO: u16 = 6;
const IFA_FLAGS: u16 = 8;
const IFA_PROTO: u16 = 11;
/// IFA_F_NODAD: the address is used at once, without a search for another machine that has it.
const NO_SEARCH: u32 = 0x02;
/// IFA_F_PERMANENT: the address has no end.
const PERMANENT: u32 = 0x80;
/// IFA_F_NOPREFIXROUTE: no route comes and goes with the address.
const NO_ROUTE: u32 = 0x200;
/// RT_TABLE_LOCAL, RTN_LOCAL and RT_SCOPE_NOWHERE, which means any scope, of linux/rtnetlink.h.
const LOCAL_TABLE: u8 = 255;
const LOCAL_ROUTE: u8 = 2;
const ANY_SCOPE: u8 = 255;
/// RTA_DST and RTA_OIF.
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
/// IFLA_ADDRESS and IFLA_IFNAME of linux/if_link.h.
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
/// AF_INET and AF_INET6.
pub(super) const IPV4: u8 = 2;
pub(super) const IPV6: u8 = 10;

/// Origin of Frevo's addresses in `ip -d address` (IFA_PROTO, Linux 5.18): a number that no program is
/// known to use.
const ORIGIN: u8 = 0x5B;
/// Bytes of struct nlmsghdr, struct ifaddrmsg and struct ifinfomsg.
const HEADER: usize = 16;
const OF_ADDRESS: usize = 8;
const OF_LINK: usize = 16;
/// Room for one message of a dump: the kernel sends at most 32 KiB at a time.
const ROOM: usize = 64 << 10;
/// Time for an answer. The kernel answers at once.
const PATIENCE: Duration = Duration::from_secs(1);

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AddressOnLink {
    pub(super) interface: u32,
    pub(super) address: IpAddr,
    pub(super) prefix: u8,
    /// The kernel takes the address away at a certain time, and it is no source of connections: an
    /// address of [`Floating`](super::Floating).
    pub(super) floats: bool,
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    /// The address of Ethernet. None for other links.
    pub(super) hardware: Option<[u8; 6]>,
}

/// A change of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Adds the address, which must not exist, for so many seconds.
    Add(u32),
    /// Keeps the address for so many seconds from now, or adds it.
    Keep(u32),
    /// Takes it away.
    Delete,
}

/// A socket to the kernel.
#[derive(Debug)]
pub(super) struct Netlink {
    fd: OwnedFd,
    sequence: u32,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        // `None` means the protocol number 0, which is NETLINK_ROUTE.
        Self::of(None)
    }

    /// Opens a socket that tells of connections and ends them: sock_diag(7).
    pub(super) fn for_connections() -> io::Result<Self> {
        Self::of(Some(netlink::SOCK_DIAG))
    }

    fn of(protocol: Option<Protocol>) -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let fd = socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(PATIENCE))?;
        Ok(Self { fd, sequence: 0 })
    }

    /// Changes an address.
    pub(super) fn change(
        &mut self,
        interface: u32,
        address: IpAddr,
        prefix: u8,
        change: Change,
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let question = address_message(self.sequence, interface, address, prefix, change);
        self.ask(&question, |_, _| {})
    }

    /// Takes away the route by which packets to an address of this machine arrive here. Packets from the address
    /// still leave.
    pub(super) fn take_no_more(&mut self, interface: u32, address: IpAddr) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let question = local_route_message(self.sequence, interface, address);
        self.ask(&question, |_, _| {})
    }

    pub(super) fn addresses(&mut self) -> io::Result<Vec<AddressOnLink>> {
        let mut held = Vec::new();
        self.dump(GET_ADDRESS, OF_ADDRESS, |kind, body| {
            held.extend(held_address(body).filter(|_| kind == NEW_ADDRESS));
        })?;
        Ok(held)
    }

    pub(super) fn links(&mut self) -> io::Result<Vec<Link>> {
        let mut links = Vec::new();
        self.dump(GET_LINK, OF_LINK, |kind, body| {
            links.extend(link(body).filter(|_| kind == NEW_LINK));
        })?;
        Ok(links)
    }

    fn dump(&mut self, kind: u16, room: usize, each: impl FnMut(u16, &[u8])) -> io::Result<()> {
        self.converse(kind, REQUEST | DUMP, &vec![0; room], each)
    }

    /// Sends a message and passes on the messages of its answer.
    pub(super) fn converse(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
        each: impl FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let question = message(kind, flags, self.sequence, body);
        self.ask(&question, each)
    }

    /// Sends a question and passes on the messages of its answer, until the last one.
    fn ask(&mut self, question: &[u8], mut each: impl FnMut(u16, &[u8])) -> io::Result<()> {
        send(&self.fd, question, SendFlags::empty())?;
        let mut buffer = vec![0; ROOM];
        loop {
            let flags = RecvFlags::empty();
            let (count, _) = rustix::io::retry_on_intr(|| recv(&self.fd, &mut buffer[..], flags))?;
            let received = buffer.get(..count).unwrap_or_default();
            if is_last(received, self.sequence, &mut each)? {
                return Ok(());
            }
        }
    }
}

/// Passes on the messages that answer the question; true if no more follow.
fn is_last(received: &[u8], sequence: u32, each: &mut impl FnMut(u16, &[u8])) -> io::Result<bool> {
    for part in (Parts { left: received, width: 4 }) {
        let (Some(kind), Some(number)) = (half(part, 4), word(part, 8)) else { return Ok(true) };
        if number != sequence {
            continue;
        }
        let body = part.get(HEADER..).unwrap_or_default();
        match kind {
            DONE => return Ok(true),
            ERROR => {
                let code = word(body, 0).unwrap_or_default().cast_signed();
                let failed = || io::Error::from_raw_os_error(code.wrapping_neg());
                return if code == 0 { Ok(true) } else { Err(failed()) };
            }
            kind => each(kind, body),
        }
    }
    Ok(false)
}

pub(super) fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + body.len()).unwrap_or_default();
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend_from_slice(&length.to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&flags.to_ne_bytes());
    message.extend_from_slice(&sequence.to_ne_bytes());
    message.extend_from_slice(&[0; 4]);
    message.extend_from_slice(body);
    message
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or_default();
    body.extend_from_slice(&length.to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn address_message(
    sequence: u32,
    interface: u32,
    address: IpAddr,
    prefix: u8,
    change: Change,
) -> Vec<u8> {
    let (family, bytes) = match address {
        IpAddr::V4(address) => (IPV4, address.octets().to_vec()),
        IpAddr::V6(address) => (IPV6, address.octets().to_vec()),
    };
    let (kind, flags, life) = match change {
        Change::Add(life) => (NEW_ADDRESS, CREATE | EXCLUSIVE, Some(life)),
        Change::Keep(life) => (NEW_ADDRESS, CREATE | REPLACE, Some(life)),
        Change::Delete => (DELETE_ADDRESS, 0, None),
    };
    let mut body = vec![family, prefix, 0, 0];
    body.extend_from_slice(&interface.to_ne_bytes());
    attribute(&mut body, IFA_LOCAL, &bytes);
    attribute(&mut body, IFA_ADDRESS, &bytes);
    if let Some(life) = life {
        // struct ifa_cacheinfo: never preferred, so that connections of this host have other sources;
        // valid for a while, so that the kernel takes it away if nobody keeps it.
        let life = life.to_ne_bytes();
        attribute(&mut body, IFA_CACHEINFO, &[&[0; 4], &life[..], &[0; 8]].concat());
        // With an address of IPv6 a route of its network would come that ends with it.
        let flags = if family == IPV6 { NO_SEARCH | NO_ROUTE } else { NO_SEARCH };
        attribute(&mut body, IFA_FLAGS, &flags.to_ne_bytes());
        attribute(&mut body, IFA_PROTO, &[ORIGIN]);
    }
    message(kind, REQUEST | ACK | flags, sequence, &body)
}

/// RTM_DELROUTE with struct rtmsg and attributes.
fn local_route_message(sequence: u32, interface: u32, address: IpAddr) -> Vec<u8> {
    let (family, bits, bytes) = match address {
        IpAddr::V4(address) => (IPV4, 32, address.octets().to_vec()),
        IpAddr::V6(address) => (IPV6, 128, address.octets().to_vec()),
    };
    let mut body = vec![family, bits, 0, 0, LOCAL_TABLE, 0, ANY_SCOPE, LOCAL_ROUTE, 0, 0, 0, 0];
    attribute(&mut body, RTA_DST, &bytes);
    attribute(&mut body, RTA_OIF, &interface.to_ne_bytes());
    message(DELETE_ROUTE, REQUEST | ACK, sequence, &body)
}

/// The body of RTM_NEWADDR: struct ifaddrmsg and attributes.
fn held_address(body: &[u8]) -> Option<AddressOnLink> {
    let family = *body.first()?;
    let prefix = *body.get(1)?;
    let mut flags = u32::from(*body.get(2)?);
    let interface = word(body, 4)?;
    let (mut local, mut address, mut preferred) = (None, None, None);
    for part in (Parts { left: body.get(OF_ADDRESS..)?, width: 2 }) {
        let value = part.get(4..).unwrap_or_default();
        match half(part, 2) {
            Some(IFA_LOCAL) => local = ip(family, value),
            Some(IFA_ADDRESS) => address = ip(family, value),
            Some(IFA_FLAGS) => flags = word(value, 0)?,
            Some(IFA_CACHEINFO) => preferred = word(value, 0),
            _ => {}
        }
    }
    // IFA_ADDRESS is the peer's on links between two machines, and IFA_LOCAL this machine's.
    let address = local.or(address)?;
    let floats = flags & PERMANENT == 0 && preferred == Some(0);
    Some(AddressOnLink { interface, address, prefix, floats })
}

/// The body of RTM_NEWLINK: struct ifinfomsg and attributes.
fn link(body: &[u8]) -> Option<Link> {
    let index = word(body, 4)?;
    let (mut name, mut hardware) = (None, None);
    for part in (Parts { left: body.get(OF_LINK..)?, width: 2 }) {
        let value = part.get(4..).unwrap_or_default();
        match half(part, 2) {
            Some(IFLA_IFNAME) => {
                let text = String::from_utf8_lossy(value);
                name = Some(text.trim_end_matches('\0').to_owned());
            }
            Some(IFLA_ADDRESS) => hardware = value.try_into().ok().filter(|at| *at != [0; 6]),
            _ => {}
        }
    }
    Some(Link { index, name: name?, hardware })
}

pub(super) fn ip(family: u8, value: &[u8]) -> Option<IpAddr> {
    match family {
        IPV4 => Some(IpAddr::from(<[u8; 4]>::try_from(value).ok()?)),
        IPV6 => Some(IpAddr::from(<[u8; 16]>::try_from(value).ok()?)),
        _ => None,
    }
}

/// Messages or attributes, one after the other, each after a length that counts itself.
struct Parts<'a> {
    left: &'a [u8],
    /// Bytes of the length.
    width: usize,
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let length = match self.width {
            4 => usize::try_from(word(self.left, 0)?).ok()?,
            _ => usize::from(half(self.left, 0)?),
        };
        let part = self.left.get(..length).filter(|_| length >= 4)?;
        self.left = self.left.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(part)
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The bytes on a machine whose numbers begin with the lowest byte.
    #[cfg(target_endian = "little")]
    #[test]
    fn messages_have_the_bytes_of_the_kernel() {
        let v4: IpAddr = "192.0.2.20".parse().unwrap();
        let add = address_message(7, 3, v4, 24, Change::Add(2));
        let expected = [
            "4c000000140005060700000000000000", // length, type, flags, sequence, port
            "0218000003000000",                 // family, prefix, flags, scope, interface
            "08000200c0000214",                 // IFA_LOCAL
            "08000100c0000214",                 // IFA_ADDRESS
            "1400060000000000020000000000000000000000", // IFA_CACHEINFO
            "0800080002000000",                 // IFA_FLAGS
            "05000b005b000000",                 // IFA_PROTO
        ];
        assert_eq!(text(&add), expected.concat());
        let delete = address_message(8, 3, v4, 24, Change::Delete);
        assert_eq!(
            text(&delete),
            "280000001500050008000000000000000218000003000000\
             08000200c000021408000100c0000214"
        );
        assert_eq!(
            text(&local_route_message(8, 3, v4)),
            "2c0000001900050008000000000000000220 0000ff00ff0200000000 08000100c0000214 0800040003000000"
                .replace(' ', "")
        );
        let v6: IpAddr = "2001:db8::20".parse().unwrap();
        let keep = address_message(9, 3, v6, 64, Change::Keep(2));
        assert_eq!(text(&keep[..24]), "640000001400050509000000000000000a40000003000000");
        assert!(text(&keep).contains("0800080002020000"), "no search, and no route");
    }

    #[test]
    fn what_is_written_is_read() {
        let v6: IpAddr = "2001:db8::20".parse().unwrap();
        let message = address_message(9, 3, v6, 64, Change::Keep(2));
        let held = held_address(&message[HEADER..]).unwrap();
        assert_eq!(held, AddressOnLink { interface: 3, address: v6, prefix: 64, floats: true });
        assert_eq!(held_address(&message[HEADER..HEADER + 7]), None);
        assert_eq!(held_address(&message[HEADER..HEADER + OF_ADDRESS]), None);
        let mut body = vec![0; OF_LINK];
        body[4..8].copy_from_slice(&5_u32.to_ne_bytes());
        attribute(&mut body, IFLA_IFNAME, b"eth0\0");
        attribute(&mut body, IFLA_ADDRESS, &[2, 0, 0, 0, 0, 1]);
        let eth0 = Link { index: 5, name: "eth0".into(), hardware: Some([2, 0, 0, 0, 0, 1]) };
        assert_eq!(link(&body), Some(eth0));
    }

    #[test]
    fn errors_and_ends_of_others_do_not_count() {
        let refusal = message(ERROR, 0, 4, &(-17_i32).to_ne_bytes());
        let end = message(DONE, 0, 4, &[0; 4]);
        let none = &mut |_: u16, _: &[u8]| {};
        let error = is_last(&refusal, 4, none).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(17));
        assert!(!is_last(&refusal, 5, none).unwrap());
        assert!(is_last(&end, 4, none).unwrap());
        assert!(!is_last(&[1, 0, 0], 4, none).unwrap(), "nonsense is no answer");
        assert!(is_last(&message(ERROR, 0, 4, &[0; 4]), 4, none).unwrap());
    }
}
