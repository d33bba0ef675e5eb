//! Connections at an address that leaves: sock_diag(7).
//!
//! A connection whose address has left this machine can end with nothing: neither FIN nor RST goes out
//! without the address, and the client waits for its own time limits. So the kernel is told to reset the
//! connections while the address is still there (SOCK_DESTROY), which takes a kernel with
//! CONFIG_INET_DIAG_DESTROY and CAP_NET_ADMIN.

use std::io;
use std::net::IpAddr;

use super::netlink::{ACK, DUMP, IPV4, IPV6, Netlink, REQUEST, ip};
use crate::limits::{RESET_AT_ONCE, RESET_PASSES};

/// Message types of linux/sock_diag.h: SOCK_DIAG_BY_FAMILY, SOCK_DESTROY.
const BY_FAMILY: u16 = 20;
const DESTROY: u16 = 21;
const TCP: u8 = 6;
/// ENOENT: no such connection, or no such family.
const NO_CONNECTION: Option<i32> = Some(2);
/// A bit for each state of net/tcp_states.h but TIME_WAIT, CLOSE and LISTEN, which have no client that waits.
const STATES: u32 = 0x1FFE & !((1 << 6) | (1 << 7) | (1 << 10));
/// Bytes of struct inet_diag_sockid, and its places in a message and in the addresses of both ends.
const ID: usize = 48;
const ID_AT: usize = 4;
const SOURCE_AT: usize = 4;

/// A connection, in the words of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Connection {
    family: u8,
    /// struct inet_diag_sockid: the ports and addresses, the interface, and a cookie that no other
    /// connection has.
    id: [u8; ID],
}

/// The connections of this machine.
#[derive(Debug)]
pub(super) struct Connections {
    netlink: Netlink,
}

impl Connections {
    /// Opens the socket, and tries to end a connection that does not exist.
    ///
    /// # Errors
    /// This kernel ends no connections of others.
    pub(super) fn open() -> io::Result<Self> {
        let mut this = Self { netlink: Netlink::for_connections()? };
        // A kernel without the module for TCP fails here, and loads it otherwise.
        this.at(IpAddr::from([0; 4]))?;
        match this.destroy(&Connection { family: IPV4, id: [0; ID] }) {
            Err(error) if error.raw_os_error() != NO_CONNECTION => Err(error),
            _ => Ok(this),
        }
    }

    /// Resets the connections at an address, and those that clients make meanwhile.
    pub(super) fn reset(&mut self, address: IpAddr) -> io::Result<()> {
        for _ in 0..RESET_PASSES {
            let found = self.at(address)?;
            // One that has ended by itself is no fault.
            if found.iter().filter(|one| self.destroy(one).is_ok()).count() == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Returns connections at an address. A socket of IPv6 has those of IPv4 too.
    fn at(&mut self, address: IpAddr) -> io::Result<Vec<Connection>> {
        let mut found = Vec::new();
        let families: &[u8] = if address.is_ipv4() { &[IPV4, IPV6] } else { &[IPV6] };
        for family in families {
            let body = request(*family, STATES, &[0; ID]);
            let asked = self.netlink.converse(BY_FAMILY, REQUEST | DUMP, &body, |kind, body| {
                let one = connection(body, address).filter(|_| kind == BY_FAMILY);
                found.extend(one.filter(|_| found.len() < RESET_AT_ONCE));
            });
            match asked {
                // A kernel without IPv6.
                Err(error) if *family == IPV6 && error.raw_os_error() == NO_CONNECTION => {}
                asked => asked?,
            }
        }
        Ok(found)
    }

    fn destroy(&mut self, one: &Connection) -> io::Result<()> {
        let body = request(one.family, STATES, &one.id);
        self.netlink.converse(DESTROY, REQUEST | ACK, &body, |_, _| {})
    }
}

/// struct inet_diag_req_v2.
fn request(family: u8, states: u32, id: &[u8; ID]) -> Vec<u8> {
    [&[family, TCP, 0, 0][..], &states.to_ne_bytes(), id].concat()
}

/// Reads the connection of a struct inet_diag_msg if this machine's end has the address.
fn connection(body: &[u8], address: IpAddr) -> Option<Connection> {
    let family = *body.first()?;
    let id: [u8; ID] = body.get(ID_AT..ID_AT + ID)?.try_into().ok()?;
    let bytes = if family == IPV4 { 4 } else { 16 };
    let source = ip(family, id.get(SOURCE_AT..SOURCE_AT + bytes)?)?;
    (source.to_canonical() == address).then_some(Connection { family, id })
}

#[cfg(test)]
mod tests {
    use super::super::netlink::message;
    use super::*;

    fn told(family: u8, source: &[u8]) -> Vec<u8> {
        let mut body = vec![family, 1, 0, 0, 0x01, 0xBD, 0xC0, 0x01];
        body.extend_from_slice(source);
        body.resize(72, 7);
        body
    }

    #[test]
    fn connections_at_the_address_are_found() {
        let v4: IpAddr = "192.0.2.20".parse().unwrap();
        let one = connection(&told(IPV4, &[192, 0, 2, 20]), v4).unwrap();
        assert_eq!((one.family, &one.id[..4]), (IPV4, &[0x01, 0xBD, 0xC0, 0x01][..]));
        assert_eq!(connection(&told(IPV4, &[192, 0, 2, 21]), v4), None);
        // A socket that takes both families.
        let mapped = [&[0; 10][..], &[0xFF, 0xFF, 192, 0, 2, 20]].concat();
        assert_eq!(connection(&told(IPV6, &mapped), v4).unwrap().family, IPV6);
        let v6: IpAddr = "2001:db8::20".parse().unwrap();
        let source = [0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20];
        assert!(connection(&told(IPV6, &source), v6).is_some());
        assert_eq!(connection(&told(IPV6, &mapped), v6), None);
        assert_eq!(connection(&told(IPV4, &[192, 0, 2, 20])[..51], v4), None);
        assert_eq!(connection(&[], v4), None);
    }

    /// The bytes on a machine whose numbers begin with the lowest byte.
    #[cfg(target_endian = "little")]
    #[test]
    fn requests_have_the_bytes_of_the_kernel() {
        let body = request(IPV4, STATES, &[9; ID]);
        assert_eq!(body[..8], [2, 6, 0, 0, 0x3E, 0x1B, 0, 0], "no TIME_WAIT, CLOSE and LISTEN");
        assert_eq!(body.len(), 56);
        let whole = message(DESTROY, REQUEST | ACK, 3, &body);
        assert_eq!(whole[..8], [72, 0, 0, 0, 21, 0, 5, 0]);
    }
}
