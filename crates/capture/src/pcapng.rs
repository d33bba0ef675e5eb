//! The file format pcapng (draft-ietf-opsawg-pcapng): the blocks of a capture that this program writes.
//! [`read`] reads files, also those of the older format pcap.

pub mod read;

use alloc::vec::Vec;

/// Section Header Block.
pub(crate) const SECTION: u32 = 0x0A0D_0D0A;
/// Interface Description Block.
pub(crate) const INTERFACE: u32 = 1;
/// Packet Block, the older form.
pub(crate) const OLD_PACKET: u32 = 2;
/// Simple Packet Block.
pub(crate) const SIMPLE_PACKET: u32 = 3;
/// Interface Statistics Block.
pub(crate) const STATISTICS: u32 = 5;
/// Enhanced Packet Block.
pub(crate) const PACKET: u32 = 6;
/// The magic number by which a reader knows the byte order.
pub(crate) const BYTE_ORDER: u32 = 0x1A2B_3C4D;

/// Packets that begin with an IP header, of either version.
pub(crate) const LINK_RAW: u16 = 101;

/// The end of a list of options.
const OPT_END: u16 = 0;
/// A comment.
pub(crate) const OPT_COMMENT: u16 = 1;
/// shb_userappl: the program that wrote the section.
const OPT_APPLICATION: u16 = 4;
/// if_name.
const OPT_NAME: u16 = 2;
/// if_tsresol: the unit of times, as a power of ten.
pub(crate) const OPT_RESOLUTION: u16 = 9;
/// epb_flags: the direction of a packet.
const OPT_FLAGS: u16 = 2;
/// isb_ifrecv: packets that were received.
pub(crate) const OPT_RECEIVED: u16 = 4;
/// isb_ifdrop: packets that were dropped.
pub(crate) const OPT_DROPPED: u16 = 5;

/// The direction of a message, as the program saw it that captured it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// It was received.
    Inbound,
    /// It was sent.
    Outbound,
}

/// A packet of a capture.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// Time of the packet, nanoseconds since 1970.
    pub time_ns: u64,
    /// Its direction.
    pub direction: Direction,
    /// The headers.
    pub head: &'a [u8],
    /// The bytes behind the headers.
    pub payload: &'a [u8],
    /// Bytes behind these that are not in the capture.
    pub cut: usize,
    /// A comment, if there is one.
    pub comment: Option<&'a str>,
}

/// Bytes of a block with this packet.
pub fn packet_len(packet: &Packet<'_>) -> usize {
    let data = packet.head.len().saturating_add(packet.payload.len()).next_multiple_of(4);
    let comment = packet.comment.map_or(0, |text| text.len().next_multiple_of(4).saturating_add(4));
    data.saturating_add(comment).saturating_add(PACKET_OVERHEAD)
}

/// Bytes of a packet's block without the packet and its comment: head, options and both lengths.
const PACKET_OVERHEAD: usize = 44;

/// Appends the head of a section and the description of its only interface.
pub fn begin(application: &str, comment: &str, out: &mut Vec<u8>) {
    block(SECTION, out, |out| {
        out.extend_from_slice(&BYTE_ORDER.to_le_bytes());
        // Version 1.0, and a section of unknown length.
        out.extend_from_slice(&[1, 0, 0, 0]);
        out.extend_from_slice(&u64::MAX.to_le_bytes());
        option(OPT_APPLICATION, application.as_bytes(), out);
        option(OPT_COMMENT, comment.as_bytes(), out);
        option(OPT_END, &[], out);
    });
    block(INTERFACE, out, |out| {
        out.extend_from_slice(&LINK_RAW.to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        // SnapLen 0: packets of any length.
        out.extend_from_slice(&0_u32.to_le_bytes());
        option(OPT_NAME, b"frevo", out);
        option(OPT_RESOLUTION, &[9], out);
        option(OPT_END, &[], out);
    });
}

/// Appends a packet.
pub fn packet(packet: &Packet<'_>, out: &mut Vec<u8>) {
    let len = packet.head.len().saturating_add(packet.payload.len());
    let original = u32::try_from(len.saturating_add(packet.cut)).unwrap_or(u32::MAX);
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    block(PACKET, out, |out| {
        out.extend_from_slice(&0_u32.to_le_bytes());
        time(packet.time_ns, out);
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&original.to_le_bytes());
        out.extend_from_slice(packet.head);
        out.extend_from_slice(packet.payload);
        pad(len as usize, out);
        let direction: u32 = if packet.direction == Direction::Inbound { 1 } else { 2 };
        option(OPT_FLAGS, &direction.to_le_bytes(), out);
        if let Some(comment) = packet.comment {
            option(OPT_COMMENT, comment.as_bytes(), out);
        }
        option(OPT_END, &[], out);
    });
}

/// The count of what a capture has and lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics<'a> {
    /// Time of the count, nanoseconds since 1970.
    pub time_ns: u64,
    /// Messages that there were.
    pub received: u64,
    /// Messages that are not in the capture.
    pub dropped: u64,
    /// The same for people.
    pub comment: &'a str,
}

/// Appends the statistics of the interface.
pub fn statistics(statistics: &Statistics<'_>, out: &mut Vec<u8>) {
    block(STATISTICS, out, |out| {
        out.extend_from_slice(&0_u32.to_le_bytes());
        time(statistics.time_ns, out);
        option(OPT_COMMENT, statistics.comment.as_bytes(), out);
        option(OPT_RECEIVED, &statistics.received.to_le_bytes(), out);
        option(OPT_DROPPED, &statistics.dropped.to_le_bytes(), out);
        option(OPT_END, &[], out);
    });
}

/// Appends a block whose body `body` writes, with its length before and behind it.
fn block(kind: u32, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    let len = out.len().saturating_sub(start).saturating_add(4);
    let len = u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes();
    out.extend_from_slice(&len);
    let place = start.saturating_add(4)..start.saturating_add(8);
    if let Some(place) = out.get_mut(place) {
        place.copy_from_slice(&len);
    }
}

/// Appends an option. A value that is longer than its field can say is cut.
fn option(code: u16, value: &[u8], out: &mut Vec<u8>) {
    let value = value.get(..usize::from(u16::MAX)).unwrap_or(value);
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&u16::try_from(value.len()).unwrap_or(0).to_le_bytes());
    out.extend_from_slice(value);
    pad(value.len(), out);
}

/// Appends a time, the more significant half first.
fn time(time_ns: u64, out: &mut Vec<u8>) {
    let [a, b, c, d, e, f, g, h] = time_ns.to_le_bytes();
    out.extend_from_slice(&[e, f, g, h, a, b, c, d]);
}

/// Appends zeros behind `len` bytes, to a multiple of four.
fn pad(len: usize, out: &mut Vec<u8>) {
    out.extend(core::iter::repeat_n(0, len.next_multiple_of(4).saturating_sub(len)));
}

#[cfg(test)]
mod tests;
