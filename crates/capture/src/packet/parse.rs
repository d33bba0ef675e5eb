//! TCP segments in the packets of a file.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A segment of TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The end that sent it.
    pub from: SocketAddr,
    /// The end that it was sent to.
    pub to: SocketAddr,
    /// The number of its first byte.
    pub sequence: u32,
    /// The flags of TCP.
    pub flags: u8,
    /// The bytes of the stream in it, as far as they were captured.
    pub payload: &'a [u8],
    /// Bytes of the stream in it.
    pub len: usize,
}

/// The EtherType of IPv4.
const IPV4: u16 = 0x0800;
/// The EtherType of IPv6.
const IPV6: u16 = 0x86DD;
/// The protocol number of TCP.
const TCP: u8 = 6;
/// Tags of VLANs that are skipped.
const TAGS: usize = 4;
/// Extension headers of IPv6 that are skipped.
const EXTENSIONS: usize = 8;

/// Finds the segment in a packet of an interface with this link type (LINKTYPE_ values). None for a packet
/// of another kind, for a fragment of one, and for one whose headers were not captured. `cut` is the number of bytes at
/// its end that were not captured.
pub fn segment(link: u16, packet: &[u8], cut: usize) -> Option<Segment<'_>> {
    match link {
        // NULL and LOOP: a word with the family of addresses.
        0 | 108 => ip(packet.get(4..)?, cut),
        // ETHERNET.
        1 => ethernet(packet.get(12..)?, cut),
        // RAW, IPV4, IPV6, and what systems wrote in place of RAW.
        12 | 14 | 101 | 228 | 229 => ip(packet, cut),
        // LINUX_SLL.
        113 => ethernet(packet.get(14..)?, cut),
        // LINUX_SLL2.
        276 => match u16_at(packet, 0)? {
            IPV4 | IPV6 => ip(packet.get(20..)?, cut),
            _ => None,
        },
        _ => None,
    }
}

/// Reads from the EtherType on.
fn ethernet(mut rest: &[u8], cut: usize) -> Option<Segment<'_>> {
    for _ in 0..TAGS {
        match u16_at(rest, 0)? {
            IPV4 | IPV6 => return ip(rest.get(2..)?, cut),
            0x8100 | 0x88A8 | 0x9100 => rest = rest.get(4..)?,
            _ => return None,
        }
    }
    None
}

fn ip(packet: &[u8], cut: usize) -> Option<Segment<'_>> {
    match packet.first()? >> 4 {
        4 => ipv4(packet, cut),
        6 => ipv6(packet, cut),
        _ => None,
    }
}

fn ipv4(packet: &[u8], cut: usize) -> Option<Segment<'_>> {
    let head_len = usize::from(packet.first()? & 0x0F).saturating_mul(4);
    let total = usize::from(u16_at(packet, 2)?);
    let is_fragment = u16_at(packet, 6)? & 0x3FFF != 0;
    if head_len < 20 || is_fragment || *packet.get(9)? != TCP {
        return None;
    }
    let from = Ipv4Addr::from(*packet.get(12..)?.first_chunk::<4>()?);
    let to = Ipv4Addr::from(*packet.get(16..)?.first_chunk::<4>()?);
    // A length of zero is that of a packet which the network card cuts.
    let len = if total == 0 { packet.len().saturating_add(cut) } else { total };
    tcp(from.into(), to.into(), packet.get(head_len..)?, len.checked_sub(head_len)?)
}

fn ipv6(packet: &[u8], cut: usize) -> Option<Segment<'_>> {
    let payload_len = usize::from(u16_at(packet, 4)?);
    let mut next = *packet.get(6)?;
    let from = Ipv6Addr::from(*packet.get(8..)?.first_chunk::<16>()?);
    let to = Ipv6Addr::from(*packet.get(24..)?.first_chunk::<16>()?);
    let mut rest = packet.get(40..)?;
    // A length of zero is that of a jumbogram, too.
    let mut len = if payload_len == 0 { rest.len().saturating_add(cut) } else { payload_len };
    for _ in 0..EXTENSIONS {
        match next {
            TCP => return tcp(from.into(), to.into(), rest, len),
            // Hop-by-hop options, routing, destination options.
            0 | 43 | 60 => {
                next = *rest.first()?;
                let skipped = usize::from(*rest.get(1)?).saturating_add(1).saturating_mul(8);
                rest = rest.get(skipped..)?;
                len = len.checked_sub(skipped)?;
            }
            _ => return None,
        }
    }
    None
}

fn tcp(from: IpAddr, to: IpAddr, segment: &[u8], len: usize) -> Option<Segment<'_>> {
    let head_len = usize::from(segment.get(12)? >> 4).saturating_mul(4);
    if head_len < 20 {
        return None;
    }
    let len = len.checked_sub(head_len)?;
    let payload = segment.get(head_len..)?;
    Some(Segment {
        from: SocketAddr::new(from, u16_at(segment, 0)?),
        to: SocketAddr::new(to, u16_at(segment, 2)?),
        sequence: u32::from_be_bytes(*segment.get(4..)?.first_chunk()?),
        flags: *segment.get(13)?,
        // Ethernet pads short packets.
        payload: payload.get(..len).unwrap_or(payload),
        len,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}
