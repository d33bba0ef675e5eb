//! SMB2 COMPRESSION_TRANSFORM_HEADER, MS-SMB2 2.2.42, which precedes a compressed message (3.1.1).
//! The algorithms are not in this crate; here every length is checked before any allocation.

use crate::bit_set;
use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::command::field_u32;
use crate::limits::MAX_COMPRESSION_PAYLOADS;
pub use crate::negotiate_context::CompressionAlgorithm;

/// The first four bytes: 0xFC 'S' 'M' 'B'.
pub const COMPRESSION_PROTOCOL_ID: [u8; 4] = [0xFC, b'S', b'M', b'B'];

/// Bytes of the unchained header.
pub const UNCHAINED_HEADER_LEN: usize = 16;

/// Bytes of the chained header before the first payload header.
pub const CHAINED_HEADER_LEN: usize = 8;

bit_set! {
    /// Flags of the unchained header and of the first payload header.
    CompressionFlags(u16) {
        /// The message is a chain of payloads.
        CHAINED = 0x0001,
    }
}

/// SMB2_COMPRESSION_TRANSFORM_HEADER_UNCHAINED, 2.2.42.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnchainedHeader {
    /// Claimed size of the decompressed part in bytes. The receiver compares it with the limits of
    /// the connection before it allocates (MS-SMB2 3.3.5.2.1.2).
    pub original_compressed_segment_size: u32,
    /// The algorithm: never NONE, and never PATTERN_V1.
    pub compression_algorithm: CompressionAlgorithm,
    /// Bytes between the header and the compressed part, which are not compressed.
    pub offset: u32,
}

impl UnchainedHeader {
    /// Appends the 16 bytes.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&COMPRESSION_PROTOCOL_ID).u32(self.original_compressed_segment_size);
        w.u16(self.compression_algorithm.0).u16(0).u32(self.offset);
    }
}

/// The parts of a compressed message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compressed<'a> {
    /// One compressed part behind an uncompressed one.
    Unchained {
        /// The header of the unchained form.
        header: UnchainedHeader,
        /// The uncompressed beginning of the message.
        plain: &'a [u8],
        /// The compressed rest of the message.
        compressed: &'a [u8],
    },
    /// A chain of payloads.
    Chained {
        /// Claimed size of the decompressed message in bytes, equal to the sum of the payloads'
        /// claims.
        original_size: u32,
        /// The payloads, which form the message one after the other.
        payloads: Payloads<'a>,
    },
}

impl<'a> Compressed<'a> {
    /// Parses a whole compressed message. Besides wrong bounds it refuses an algorithm that the
    /// form does not allow, payloads whose sum differs from the declared size, and more payloads
    /// than the limit.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        let r = &mut Reader::new(message);
        if r.array::<4>("compression ProtocolId")? != COMPRESSION_PROTOCOL_ID {
            return Err(Malformed::new("compression ProtocolId"));
        }
        let size = r.u32("OriginalCompressedSegmentSize")?;
        let mut ahead = r.clone();
        let compression_algorithm = CompressionAlgorithm(ahead.u16("CompressionAlgorithm")?);
        let flags = CompressionFlags(ahead.u16("compression Flags")?);
        if !CompressionFlags::CHAINED.contains(flags) {
            return Err(Malformed::new("compression Flags"));
        }
        let offset = ahead.u32("compression Offset")?;
        if flags.contains(CompressionFlags::CHAINED) {
            let payloads = Payloads { rest: r.rest() };
            payloads.clone().check(size)?;
            return Ok(Self::Chained { original_size: size, payloads });
        }
        if !is_codec(compression_algorithm) {
            return Err(Malformed::new("CompressionAlgorithm"));
        }
        let plain = usize::try_from(offset).unwrap_or(usize::MAX);
        let plain = ahead.take(plain, "compression Offset")?;
        let header = UnchainedHeader {
            original_compressed_segment_size: size,
            compression_algorithm,
            offset,
        };
        Ok(Self::Unchained { header, plain, compressed: ahead.rest() })
    }

    /// Returns the claimed size of the decompressed message in bytes.
    pub fn decompressed_len(&self) -> u64 {
        match self {
            Self::Unchained { header, plain, .. } => {
                let plain = u64::try_from(plain.len()).unwrap_or(u64::MAX);
                plain.saturating_add(header.original_compressed_segment_size.into())
            }
            Self::Chained { original_size, .. } => u64::from(*original_size),
        }
    }
}

/// One payload of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// NONE: uncompressed bytes.
    Plain(&'a [u8]),
    /// LZNT1, LZ77, LZ77_HUFFMAN or LZ4.
    Compressed {
        /// The algorithm of the compressed bytes.
        algorithm: CompressionAlgorithm,
        /// Claimed size of the decompressed payload in bytes.
        original_payload_size: u32,
        /// The compressed bytes of this payload.
        data: &'a [u8],
    },
    /// SMB2_COMPRESSION_PATTERN_PAYLOAD_V1, 2.2.42.2.2.
    Pattern {
        /// The byte that is repeated.
        pattern: u8,
        /// Number of repetitions of the byte.
        repetitions: u32,
    },
}

impl Payload<'_> {
    /// Returns the claimed size of the decompressed payload in bytes.
    pub fn decompressed_len(&self) -> u64 {
        match self {
            Self::Plain(data) => u64::try_from(data.len()).unwrap_or(u64::MAX),
            Self::Compressed { original_payload_size, .. } => u64::from(*original_payload_size),
            Self::Pattern { repetitions, .. } => u64::from(*repetitions),
        }
    }

    /// Appends the payload header and the payload. `first` sets the flag that marks the chained
    /// form.
    pub fn encode(&self, first: bool, w: &mut Writer<'_>) {
        let flags = if first { CompressionFlags::CHAINED } else { CompressionFlags::EMPTY };
        match self {
            Self::Plain(data) => {
                w.u16(CompressionAlgorithm::NONE.0).u16(flags.0);
                w.u32(field_u32(data.len())).bytes(data);
            }
            Self::Compressed { algorithm, original_payload_size, data } => {
                w.u16(algorithm.0).u16(flags.0).u32(field_u32(data.len().saturating_add(4)));
                w.u32(*original_payload_size).bytes(data);
            }
            Self::Pattern { pattern, repetitions } => {
                w.u16(CompressionAlgorithm::PATTERN_V1.0).u16(flags.0).u32(PATTERN_V1_LEN);
                w.u8(*pattern).u8(0).u16(0).u32(*repetitions);
            }
        }
    }
}

/// Appends a chained message: header and payloads.
pub fn encode_chained(payloads: &[Payload<'_>], w: &mut Writer<'_>) {
    let size = payloads.iter().map(Payload::decompressed_len).fold(0, u64::saturating_add);
    w.bytes(&COMPRESSION_PROTOCOL_ID).u32(u32::try_from(size).unwrap_or(u32::MAX));
    for (i, payload) in payloads.iter().enumerate() {
        payload.encode(i == 0, w);
    }
}

/// Bytes of a payload header without OriginalPayloadSize.
const PAYLOAD_HEADER_LEN: usize = 8;
/// Bytes of SMB2_COMPRESSION_PATTERN_PAYLOAD_V1.
const PATTERN_V1_LEN: u32 = 8;

/// True for an algorithm that compresses and has OriginalPayloadSize.
const fn is_codec(algorithm: CompressionAlgorithm) -> bool {
    matches!(
        algorithm,
        CompressionAlgorithm::LZNT1
            | CompressionAlgorithm::LZ77
            | CompressionAlgorithm::LZ77_HUFFMAN
            | CompressionAlgorithm::LZ4
    )
}

/// Iterates over the payloads of a valid chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payloads<'a> {
    rest: &'a [u8],
}

impl<'a> Payloads<'a> {
    fn check(mut self, size: u32) -> Parsed<()> {
        let mut total = 0u64;
        for _ in 0..MAX_COMPRESSION_PAYLOADS {
            if self.is_done() {
                break;
            }
            total = total.saturating_add(self.split()?.decompressed_len());
        }
        if !self.is_done() {
            return Err(Malformed::new("number of compressed payloads"));
        }
        if total != u64::from(size) {
            return Err(Malformed::new("OriginalCompressedSegmentSize"));
        }
        Ok(())
    }

    /// MS-SMB2 3.1.5.3: a rest that is no longer than a payload header is ignored.
    const fn is_done(&self) -> bool {
        self.rest.len() <= PAYLOAD_HEADER_LEN
    }

    fn split(&mut self) -> Parsed<Payload<'a>> {
        let r = &mut Reader::new(self.rest);
        let algorithm = CompressionAlgorithm(r.u16("payload CompressionAlgorithm")?);
        // Only the flag of the first payload says that a message is chained, so those of later
        // payloads are ignored.
        r.skip(2, "payload Flags")?;
        let length = r.u32("payload Length")?;
        let data = r.take(usize::try_from(length).unwrap_or(usize::MAX), "payload Length")?;
        self.rest = r.rest();
        let r = &mut Reader::new(data);
        match algorithm {
            CompressionAlgorithm::NONE => Ok(Payload::Plain(data)),
            CompressionAlgorithm::PATTERN_V1 => {
                let pattern = r.u8("Pattern")?;
                r.skip(3, "pattern Reserved")?;
                let repetitions = r.u32("Repetitions")?;
                r.end("pattern Length")?;
                Ok(Payload::Pattern { pattern, repetitions })
            }
            algorithm if is_codec(algorithm) => {
                let original_payload_size = r.u32("OriginalPayloadSize")?;
                Ok(Payload::Compressed { algorithm, original_payload_size, data: r.rest() })
            }
            _ => Err(Malformed::new("payload CompressionAlgorithm")),
        }
    }
}

impl<'a> Iterator for Payloads<'a> {
    type Item = Payload<'a>;

    fn next(&mut self) -> Option<Payload<'a>> {
        if self.is_done() {
            return None;
        }
        // The constructor has checked the whole chain, so `split` cannot fail here.
        self.split().ok()
    }
}

#[cfg(test)]
mod tests;
