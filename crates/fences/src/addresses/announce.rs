//! Announcements of an address: gratuitous ARP (RFC 5227 3) and unsolicited neighbour advertisement
//! (RFC 4861 7.2.6), so that others send to this machine at once.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::os::fd::AsFd as _;

use frevo_net::socket::ArpSocket;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::netlink::Link;

/// The group of all nodes of a link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 1);
/// The option SO_BINDTODEVICE takes a privilege; the interface is chosen by its number instead.
const HOPS: u32 = 255;

/// The sockets of announcements. Making them takes CAP_NET_RAW, and using them no privilege.
#[derive(Debug)]
pub(super) struct Announcer {
    arp: ArpSocket,
    /// None on a host without IPv6.
    icmp: Option<Socket>,
}

impl Announcer {
    pub(super) fn open() -> io::Result<Self> {
        let arp = ArpSocket::open()?;
        let icmp = match Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)) {
            Ok(icmp) => Some(icmp),
            Err(error) if error.raw_os_error() == Some(97) => None,
            Err(error) => return Err(error),
        };
        if let Some(icmp) = &icmp {
            // RFC 4861 7.1.2: others drop advertisements that came through a router.
            icmp.set_multicast_hops_v6(HOPS)?;
            icmp.set_multicast_loop_v6(false)?;
            // Nothing is read, so that little is kept.
            rustix::net::sockopt::set_socket_recv_buffer_size(icmp.as_fd(), 1)?;
        }
        Ok(Self { arp, icmp })
    }

    /// Announces an address once. Links that are not Ethernet need none.
    pub(super) fn announce(&self, link: &Link, address: IpAddr) -> io::Result<()> {
        let Some(hardware) = link.hardware else { return Ok(()) };
        match (address, &self.icmp) {
            (IpAddr::V4(address), _) => self.arp.send(link.index, &arp(hardware, address)),
            (IpAddr::V6(_), None) => Ok(()),
            (IpAddr::V6(address), Some(icmp)) => {
                icmp.set_multicast_if_v6(link.index)?;
                icmp.bind(&SockAddr::from(SocketAddrV6::new(address, 0, 0, link.index)))?;
                let to = SocketAddrV6::new(ALL_NODES, 0, 0, link.index);
                icmp.send_to(&advertisement(hardware, address), &SockAddr::from(to))?;
                Ok(())
            }
        }
    }
}

/// A frame to all: "ARP Announcement" of RFC 5227 3, a request in which sender and target are the address.
fn arp(hardware: [u8; 6], address: Ipv4Addr) -> Vec<u8> {
    let address = address.octets();
    [
        &[0xFF; 6][..],
        &hardware,
        &[0x08, 0x06],
        // Ethernet, IPv4, their lengths, a request.
        &[0, 1, 8, 0, 6, 4, 0, 1],
        &hardware,
        &address,
        &[0; 6],
        &address,
    ]
    .concat()
}

/// RFC 4861 4.4: not asked for, and in place of what was known before. The kernel computes the checksum.
fn advertisement(hardware: [u8; 6], address: Ipv6Addr) -> Vec<u8> {
    // The option with the address of the link, in units of 8 bytes.
    [&[136, 0, 0, 0, 0x20, 0, 0, 0][..], &address.octets(), &[2, 1], &hardware].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn announcements_have_the_bytes_of_their_documents() {
        let hardware = [2, 0, 0, 0, 0, 0x17];
        let frame = arp(hardware, Ipv4Addr::new(192, 0, 2, 20));
        assert_eq!(
            text(&frame),
            "ffffffffffff0200000000170806\
             0001080006040001020000000017c0000214000000000000c0000214"
        );
        let packet = advertisement(hardware, "2001:db8::20".parse().unwrap());
        assert_eq!(
            text(&packet),
            "880000002000000020010db80000000000000000000000200201020000000017"
        );
    }
}
