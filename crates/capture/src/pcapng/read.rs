//! Reads files of the formats pcapng and pcap, in pieces. Nothing in a file makes the reader hold more than
//! the piece that it is given.

use alloc::string::String;
use alloc::vec::Vec;

use super::{
    BYTE_ORDER, INTERFACE, OLD_PACKET, OPT_COMMENT, OPT_DROPPED, OPT_RECEIVED, OPT_RESOLUTION,
    PACKET, SECTION, SIMPLE_PACKET, STATISTICS,
};
use crate::limits::{BLOCK_BYTES, COMMENT_BYTES, INTERFACES};

/// A file that is none of these formats, or breaks their rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadFile(pub &'static str);

impl core::fmt::Display for BadFile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for BadFile {}

/// A packet of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured<'a> {
    /// Time, nanoseconds since 1970; None where the format has none.
    pub time_ns: Option<u64>,
    /// The link type of its interface (LINKTYPE_ values).
    pub link: u16,
    /// The bytes that were captured.
    pub data: &'a [u8],
    /// Bytes behind these that were not captured.
    pub cut: usize,
    /// A comment; empty for none.
    pub comment: String,
}

/// The count of packets that a program has written at the end of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// Packets that were received.
    pub received: Option<u64>,
    /// Packets that were dropped.
    pub dropped: Option<u64>,
    /// A comment; empty for none.
    pub comment: String,
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item<'a> {
    /// A packet.
    Packet(Captured<'a>),
    /// The statistics of an interface.
    Statistics(Counted),
    /// The comment of a section.
    Comment(String),
    /// A block without meaning here.
    Other,
}

/// The outcome of a look at a piece of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<'a> {
    /// The piece is too short: with so many bytes it goes on. At most [`PIECE_BYTES`].
    Needs(usize),
    /// So many bytes of the piece are done with.
    Took(usize, Item<'a>),
}

/// Bytes that are always enough for a step.
pub const PIECE_BYTES: usize = BLOCK_BYTES;

/// Bytes of the head of a file of the format pcap.
const PCAP_HEAD: usize = 24;
/// Bytes of the head of a packet in such a file.
const PCAP_PACKET: usize = 16;

/// The unit of the times of an interface.
#[derive(Debug, Clone, Copy)]
struct Interface {
    link: u16,
    /// if_tsresol: a negative power of ten, or of two if the highest bit is set.
    resolution: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Unknown,
    Pcapng,
    Pcap { link: u16, nanoseconds: bool },
}

/// Reads a file, piece by piece.
#[derive(Debug)]
pub struct Reader {
    format: Format,
    is_big_endian: bool,
    interfaces: Vec<Interface>,
    /// Bytes of a long block that are still to be skipped.
    skipped: u64,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// Makes a reader at the beginning of a file.
    pub const fn new() -> Self {
        Self { format: Format::Unknown, is_big_endian: false, interfaces: Vec::new(), skipped: 0 }
    }

    /// Looks at the bytes of the file that are not done with.
    ///
    /// # Errors
    /// When the file is no capture, or a block of it has a length that cannot be.
    pub fn step<'a>(&mut self, piece: &'a [u8]) -> Result<Step<'a>, BadFile> {
        if self.skipped > 0 {
            let count = piece.len().min(usize::try_from(self.skipped).unwrap_or(usize::MAX));
            if count == 0 {
                return Ok(Step::Needs(1));
            }
            let taken = u64::try_from(count).unwrap_or(u64::MAX);
            self.skipped = self.skipped.saturating_sub(taken);
            return Ok(Step::Took(count, Item::Other));
        }
        match self.format {
            Format::Unknown => self.head(piece),
            Format::Pcapng => self.block(piece),
            Format::Pcap { link, nanoseconds } => self.pcap_packet(piece, link, nanoseconds),
        }
    }

    /// Finds out the format.
    fn head<'a>(&mut self, piece: &'a [u8]) -> Result<Step<'a>, BadFile> {
        let Some(magic) = piece.first_chunk::<4>() else { return Ok(Step::Needs(4)) };
        let (is_big_endian, nanoseconds) = match u32::from_le_bytes(*magic) {
            SECTION => {
                self.format = Format::Pcapng;
                return self.block(piece);
            }
            0xA1B2_C3D4 => (false, false),
            0xD4C3_B2A1 => (true, false),
            0xA1B2_3C4D => (false, true),
            0x4D3C_B2A1 => (true, true),
            _ => return Err(BadFile("it is no capture: it has neither the form pcapng nor pcap")),
        };
        let Some(head) = piece.get(..PCAP_HEAD) else { return Ok(Step::Needs(PCAP_HEAD)) };
        self.is_big_endian = is_big_endian;
        // The upper bits of the field say how long a checksum behind each packet is.
        let [low, high, ..] = self.u32_at(head, 20).to_le_bytes();
        self.format = Format::Pcap { link: u16::from_le_bytes([low, high]), nanoseconds };
        Ok(Step::Took(PCAP_HEAD, Item::Other))
    }

    fn pcap_packet<'a>(
        &self,
        piece: &'a [u8],
        link: u16,
        nanoseconds: bool,
    ) -> Result<Step<'a>, BadFile> {
        let Some(head) = piece.get(..PCAP_PACKET) else { return Ok(Step::Needs(PCAP_PACKET)) };
        let len = usize::try_from(self.u32_at(head, 8)).unwrap_or(usize::MAX);
        let end = PCAP_PACKET.saturating_add(len);
        if end > BLOCK_BYTES {
            return Err(BadFile("a packet in it is longer than 1 MiB"));
        }
        let Some(data) = piece.get(PCAP_PACKET..end) else { return Ok(Step::Needs(end)) };
        let seconds = u64::from(self.u32_at(head, 0));
        let fraction = u64::from(self.u32_at(head, 4));
        let fraction = if nanoseconds { fraction } else { fraction.saturating_mul(1000) };
        let time_ns = seconds.saturating_mul(1_000_000_000).saturating_add(fraction);
        let cut = cut(self.u32_at(head, 12), data);
        let packet = Captured { time_ns: Some(time_ns), link, data, cut, comment: String::new() };
        Ok(Step::Took(end, Item::Packet(packet)))
    }

    /// Reads a block of the format pcapng.
    fn block<'a>(&mut self, piece: &'a [u8]) -> Result<Step<'a>, BadFile> {
        let Some(head) = piece.get(..12) else { return Ok(Step::Needs(12)) };
        // The type of this block reads the same in both byte orders, and its order counts for its
        // length, too.
        let is_section = self.u32_at(head, 0) == SECTION;
        if is_section {
            self.is_big_endian = match self.little_at(head, 8) {
                BYTE_ORDER => false,
                order if order.swap_bytes() == BYTE_ORDER => true,
                _ => return Err(BadFile("a section in it has no byte order")),
            };
            self.interfaces.clear();
        }
        let len = self.u32_at(head, 4);
        if len < 12 || !len.is_multiple_of(4) {
            return Err(BadFile("a block in it has a length that cannot be"));
        }
        let end = usize::try_from(len).unwrap_or(usize::MAX);
        if end > BLOCK_BYTES {
            self.skipped = u64::from(len).saturating_sub(12);
            return Ok(Step::Took(12, Item::Other));
        }
        let Some(body) = piece.get(8..end.saturating_sub(4)) else { return Ok(Step::Needs(end)) };
        if piece.len() < end {
            return Ok(Step::Needs(end));
        }
        let item = match self.u32_at(head, 0) {
            SECTION => self.section(body),
            INTERFACE => self.interface(body)?,
            PACKET => self.packet(body, self.u32_at(body, 0)),
            // The older block has 16 bits for the interface, and a count of drops behind them.
            OLD_PACKET => self.packet(body, self.u16_at(body, 0).into()),
            SIMPLE_PACKET => self.simple_packet(body),
            STATISTICS => self.statistics(body),
            _ => Item::Other,
        };
        Ok(Step::Took(end, item))
    }

    fn section<'a>(&self, body: &[u8]) -> Item<'a> {
        let comment = self.comment_of(body.get(16..).unwrap_or(&[]));
        if comment.is_empty() { Item::Other } else { Item::Comment(comment) }
    }

    fn interface<'a>(&mut self, body: &[u8]) -> Result<Item<'a>, BadFile> {
        if self.interfaces.len() >= INTERFACES {
            return Err(BadFile("a section in it has more than 256 interfaces"));
        }
        let link = self.u16_at(body, 0);
        let mut resolution = 6;
        for (code, value) in self.options(body.get(8..).unwrap_or(&[])) {
            if code == OPT_RESOLUTION
                && let Some(value) = value.first()
            {
                resolution = *value;
            }
        }
        self.interfaces.push(Interface { link, resolution });
        Ok(Item::Other)
    }

    /// Reads a packet. Those of an interface that was not described are left out.
    fn packet<'a>(&self, body: &'a [u8], interface: u32) -> Item<'a> {
        let number = usize::try_from(interface).unwrap_or(usize::MAX);
        let Some(interface) = self.interfaces.get(number) else { return Item::Other };
        let high = u64::from(self.u32_at(body, 4));
        let low = u64::from(self.u32_at(body, 8));
        let len = usize::try_from(self.u32_at(body, 12)).unwrap_or(usize::MAX);
        let Some(data) = body.get(20..20_usize.saturating_add(len)) else { return Item::Other };
        let options = 20_usize.saturating_add(len.next_multiple_of(4));
        Item::Packet(Captured {
            time_ns: Some(nanoseconds(high << 32 | low, interface.resolution)),
            link: interface.link,
            data,
            cut: cut(self.u32_at(body, 16), data),
            comment: self.comment_of(body.get(options..).unwrap_or(&[])),
        })
    }

    fn simple_packet<'a>(&self, body: &'a [u8]) -> Item<'a> {
        let Some(interface) = self.interfaces.first() else { return Item::Other };
        let len = usize::try_from(self.u32_at(body, 0)).unwrap_or(usize::MAX);
        let data = body.get(4..).unwrap_or(&[]);
        let data = data.get(..len).unwrap_or(data);
        let link = interface.link;
        let cut = cut(self.u32_at(body, 0), data);
        Item::Packet(Captured { time_ns: None, link, data, cut, comment: String::new() })
    }

    fn statistics<'a>(&self, body: &[u8]) -> Item<'a> {
        let options = body.get(12..).unwrap_or(&[]);
        let mut counted = Counted { comment: self.comment_of(options), ..Counted::default() };
        for (code, value) in self.options(options) {
            let value = value.first_chunk().map(|value| self.u64_of(*value));
            match code {
                OPT_RECEIVED => counted.received = value,
                OPT_DROPPED => counted.dropped = value,
                _ => {}
            }
        }
        Item::Statistics(counted)
    }

    /// Returns the comments of a list of options, in one text.
    fn comment_of(&self, options: &[u8]) -> String {
        let mut text = String::new();
        for (code, value) in self.options(options) {
            if code == OPT_COMMENT && text.len() < COMMENT_BYTES {
                if !text.is_empty() {
                    text.push_str("; ");
                }
                let value = value.get(..COMMENT_BYTES).unwrap_or(value);
                text.push_str(&String::from_utf8_lossy(value));
            }
        }
        text
    }

    fn options<'a>(&self, bytes: &'a [u8]) -> Options<'a> {
        Options { bytes, is_big_endian: self.is_big_endian }
    }

    /// Reads a number in the byte order of the file. Bytes beyond the end count as zero.
    fn u32_at(&self, bytes: &[u8], at: usize) -> u32 {
        let little = self.little_at(bytes, at);
        if self.is_big_endian { little.swap_bytes() } else { little }
    }

    fn little_at(&self, bytes: &[u8], at: usize) -> u32 {
        let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
        field.map_or(0, |field| u32::from_le_bytes(*field))
    }

    fn u16_at(&self, bytes: &[u8], at: usize) -> u16 {
        let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
        field.map_or(0, |field| u16_of(*field, self.is_big_endian))
    }

    const fn u64_of(&self, field: [u8; 8]) -> u64 {
        if self.is_big_endian { u64::from_be_bytes(field) } else { u64::from_le_bytes(field) }
    }
}

/// Returns the bytes of a packet of this length that are not in `data`.
fn cut(original: u32, data: &[u8]) -> usize {
    usize::try_from(original).unwrap_or(usize::MAX).saturating_sub(data.len())
}

const fn u16_of(field: [u8; 2], is_big_endian: bool) -> u16 {
    if is_big_endian { u16::from_be_bytes(field) } else { u16::from_le_bytes(field) }
}

/// Iterates over options: code and value. Ends at the first one that does not fit.
struct Options<'a> {
    bytes: &'a [u8],
    is_big_endian: bool,
}

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (code, rest) = self.bytes.split_first_chunk::<2>()?;
        let (len, rest) = rest.split_first_chunk::<2>()?;
        let code = u16_of(*code, self.is_big_endian);
        let len = usize::from(u16_of(*len, self.is_big_endian));
        if code == 0 {
            return None;
        }
        let value = rest.get(..len)?;
        self.bytes = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((code, value))
    }
}

/// Returns the comment of the statistics with which a file of this program ends, of its last bytes.
pub fn last_comment(tail: &[u8]) -> Option<String> {
    let (_, len) = tail.split_last_chunk::<4>()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    let block = tail.get(tail.len().checked_sub(len)?..)?;
    let (kind, body) = block.split_first_chunk::<4>()?;
    let reader = Reader::new();
    let body = body.get(4..body.len().checked_sub(4)?)?;
    (u32::from_le_bytes(*kind) == STATISTICS)
        .then(|| reader.comment_of(body.get(12..).unwrap_or(&[])))
}

/// Returns a time in nanoseconds. A resolution finer than that is cut.
fn nanoseconds(time: u64, resolution: u8) -> u64 {
    let exponent = u32::from(resolution & 0x7F);
    let time = u128::from(time);
    let time = if resolution & 0x80 != 0 {
        time.saturating_mul(1_000_000_000).checked_shr(exponent).unwrap_or(0)
    } else {
        let unit = 10_u128.checked_pow(exponent).unwrap_or(u128::MAX);
        time.saturating_mul(1_000_000_000).checked_div(unit).unwrap_or(0)
    };
    u64::try_from(time).unwrap_or(u64::MAX)
}
