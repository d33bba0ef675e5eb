//! Packets: TCP streams that are made again around messages, and ([`parse`]) the segments in the packets of
//! a file.

pub mod parse;

use core::net::{IpAddr, SocketAddr};

use alloc::vec::Vec;

/// The port of SMB: Wireshark knows SMB by it, so each server has it in a capture.
pub const SMB_PORT: u16 = 445;

/// Bytes of the longest head of a packet: IPv6 with the option of a jumbogram, and TCP.
const HEAD_BYTES: usize = 68;
/// The longest payload behind the head of TCP whose length the head of either IP can say.
const PLAIN_MAX: usize = 65_495;

/// TCP's flag FIN.
pub(crate) const FIN: u8 = 0x01;
/// TCP's flag SYN.
pub(crate) const SYN: u8 = 0x02;
/// TCP's flag RST.
pub(crate) const RST: u8 = 0x04;
/// TCP's flag PSH.
const PSH: u8 = 0x08;
/// TCP's flag ACK.
const ACK: u8 = 0x10;

/// The ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The client.
    pub client: SocketAddr,
    /// The server.
    pub server: SocketAddr,
}

/// The end that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// A TCP stream that is made again: the numbers of the next bytes of both directions.
#[derive(Debug, Clone)]
pub struct Stream {
    ends: Ends,
    next_of_client: u32,
    next_of_server: u32,
}

impl Stream {
    /// Makes a stream. Both ends are of one family of addresses: an IPv4 address beside an IPv6 one is
    /// mapped.
    pub fn new(ends: Ends) -> Self {
        let Ends { client, server } = ends;
        let ends = match (client.ip(), server.ip()) {
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => ends,
            _ => Ends { client: mapped(client), server: mapped(server) },
        };
        Self { ends, next_of_client: 0, next_of_server: 0 }
    }

    /// Returns the ends, of one family of addresses.
    pub const fn ends(&self) -> Ends {
        self.ends
    }

    /// Returns the heads of the packets by which TCP opens the stream.
    pub fn open(&mut self) -> [(Sender, Vec<u8>); 3] {
        let client = self.segment(Sender::Client, SYN, 0);
        self.next_of_client = self.next_of_client.wrapping_add(1);
        let server = self.segment(Sender::Server, SYN | ACK, 0);
        self.next_of_server = self.next_of_server.wrapping_add(1);
        let acknowledged = self.segment(Sender::Client, ACK, 0);
        [(Sender::Client, client), (Sender::Server, server), (Sender::Client, acknowledged)]
    }

    /// Returns the head of a packet with `len` further bytes of the stream. `is_last` is true for the last
    /// packet of a message.
    pub fn data(&mut self, sender: Sender, len: usize, is_last: bool) -> Vec<u8> {
        let flags = if is_last { ACK | PSH } else { ACK };
        let head = self.segment(sender, flags, len);
        let count = u32::try_from(len).unwrap_or(u32::MAX);
        let next = match sender {
            Sender::Client => &mut self.next_of_client,
            Sender::Server => &mut self.next_of_server,
        };
        *next = next.wrapping_add(count);
        head
    }

    /// Returns the heads of the packets by which TCP closes the stream.
    pub fn close(&mut self) -> [(Sender, Vec<u8>); 2] {
        let client = self.segment(Sender::Client, FIN | ACK, 0);
        self.next_of_client = self.next_of_client.wrapping_add(1);
        let server = self.segment(Sender::Server, FIN | ACK, 0);
        self.next_of_server = self.next_of_server.wrapping_add(1);
        [(Sender::Client, client), (Sender::Server, server)]
    }

    /// Makes the head of a packet with `len` bytes behind it. A packet that is too long for its field has no length in
    /// IPv4, as one that the network card cuts into segments, and is a jumbogram in IPv6 (RFC 2675).
    fn segment(&self, sender: Sender, flags: u8, len: usize) -> Vec<u8> {
        let Ends { client, server } = self.ends;
        let (from, to, sequence, acknowledged) = match sender {
            Sender::Client => (client, server, self.next_of_client, self.next_of_server),
            Sender::Server => (server, client, self.next_of_server, self.next_of_client),
        };
        let mut head = Vec::with_capacity(HEAD_BYTES);
        let tcp_len = len.saturating_add(20);
        let short_len = u16::try_from(tcp_len).ok().filter(|_| len <= PLAIN_MAX);
        match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let total = short_len.map_or(0, |len| len.saturating_add(20)).to_be_bytes();
                // Version 4, five words, no fragments, TTL 64, TCP.
                head.extend_from_slice(&[0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 6, 0, 0]);
                head.extend_from_slice(&from.octets());
                head.extend_from_slice(&to.octets());
                let sum = checksum(&head).to_be_bytes();
                if let Some(place) = head.get_mut(10..12) {
                    place.copy_from_slice(&sum);
                }
            }
            (from, to) => {
                let [high, low] = short_len.unwrap_or(0).to_be_bytes();
                let next = if short_len.is_some() { 6 } else { 0 };
                head.extend_from_slice(&[0x60, 0, 0, 0, high, low, next, 64]);
                head.extend_from_slice(&octets(from));
                head.extend_from_slice(&octets(to));
                if short_len.is_none() {
                    // Hop-by-hop options: TCP follows, no further words, and the jumbo payload.
                    head.extend_from_slice(&[6, 0, 0xC2, 4]);
                    let len = u32::try_from(tcp_len.saturating_add(8)).unwrap_or(u32::MAX);
                    head.extend_from_slice(&len.to_be_bytes());
                }
            }
        }
        head.extend_from_slice(&from.port().to_be_bytes());
        head.extend_from_slice(&to.port().to_be_bytes());
        head.extend_from_slice(&sequence.to_be_bytes());
        let acknowledged = if flags & ACK == 0 { 0 } else { acknowledged };
        head.extend_from_slice(&acknowledged.to_be_bytes());
        // Five words, a full window, and no checksum, as with a network card that computes it.
        head.extend_from_slice(&[0x50, flags, 0xFF, 0xFF, 0, 0, 0, 0]);
        head
    }
}

fn mapped(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(octets(end.ip()).into(), end.port())
}

const fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The checksum of an IPv4 header.
fn checksum(head: &[u8]) -> u16 {
    let words = head.chunks(2).map(|pair| match pair {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        _ => 0,
    });
    let sum = words.fold(0_u32, u32::saturating_add);
    let folded = (sum & 0xFFFF).saturating_add(sum >> 16);
    let folded = (folded & 0xFFFF).saturating_add(folded >> 16);
    !u16::try_from(folded).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests;
