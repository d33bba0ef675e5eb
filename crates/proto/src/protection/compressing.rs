//! Compression of messages to send: MS-SMB2 3.1.4.4.
//!
//! Only the data of a message is compressed. Its header and its fixed part stay as they are, so that
//! nothing but the file's own bytes decides on the length of what is sent.

use alloc::vec::Vec;
use core::ops::Range;

use frevo_compress::{lz77, pattern, sample};
use frevo_wire::codec::Writer;
use frevo_wire::compression::{
    COMPRESSION_PROTOCOL_ID, CompressionAlgorithm, Payload, UnchainedHeader,
};

use super::{Algorithm, Codec, Compression};
use crate::limits::COMPRESSED_BYTES_MIN;

/// The part of a message that has to be saved, as a divisor: for less the peer's time is not worth it.
const SAVED_PART: usize = 16;

/// Position of OriginalCompressedSegmentSize in the header of a chain.
const SIZE_AT: usize = 4;

/// Position of Length in the header of a payload.
const LENGTH_AT: usize = 4;

/// A message whose data is to be compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToCompress {
    /// The algorithms of the connection.
    pub compression: Compression,
    /// Bytes before the data.
    pub head: usize,
}

impl ToCompress {
    /// Returns the algorithm that takes the time. Without a codec the data is searched for runs, which
    /// takes no longer than the fastest one.
    pub(super) fn algorithm(self) -> Algorithm {
        Algorithm::Compressing(self.compression.codec().unwrap_or(Codec::Lz4))
    }

    /// Compresses the message at `message` of `buffer`, which is signed but not sealed. Returns its new
    /// place, or the old one if it would save too little.
    pub(super) fn compress(self, buffer: &mut [u8], message: Range<usize>) -> Range<usize> {
        let Some(compressed) = buffer.get(message.clone()).and_then(|whole| self.compressed(whole))
        else {
            return message;
        };
        let end = message.start.saturating_add(compressed.len());
        let Some(place) = buffer.get_mut(message.start..end) else { return message };
        place.copy_from_slice(&compressed);
        message.start..end
    }

    /// Returns the compressed form of a message; None if that would save too little.
    fn compressed(self, whole: &[u8]) -> Option<Vec<u8>> {
        let (head, data) = whole.split_at_checked(self.head)?;
        let most = whole.len().saturating_sub((data.len() / SAVED_PART).max(1));
        let out = Vec::with_capacity(most);
        match self.compression.is_chained() {
            true => self.chained(head, data, most, out),
            false => self.unchained(head, data, most, out),
        }
    }

    fn unchained(self, head: &[u8], data: &[u8], most: usize, mut out: Vec<u8>) -> Option<Vec<u8>> {
        let codec = self.compression.codec()?;
        let header = UnchainedHeader {
            original_compressed_segment_size: u32::try_from(data.len()).ok()?,
            compression_algorithm: codec.id(),
            offset: u32::try_from(head.len()).ok()?,
        };
        header.encode(&mut Writer::new(&mut out));
        out.extend_from_slice(head);
        append(&mut out, most, |room| codec.compress_into(data, room))?;
        Some(out)
    }

    fn chained(self, head: &[u8], data: &[u8], most: usize, out: Vec<u8>) -> Option<Vec<u8>> {
        let mut chain = Chain { out, most, is_begun: false };
        let size = head.len().checked_add(data.len())?;
        chain.out.extend_from_slice(&COMPRESSION_PROTOCOL_ID);
        chain.out.extend_from_slice(&u32::try_from(size).ok()?.to_le_bytes());
        debug_assert_eq!(chain.out.len(), SIZE_AT.saturating_add(4));
        chain.plain(head)?;
        let has_patterns = self.compression.has(CompressionAlgorithm::PATTERN_V1);
        let front = pattern::at_front(data).filter(|_| has_patterns);
        let rest = data.get(front.map_or(0, |run| run.count)..).unwrap_or_default();
        // MS-SMB2 3.1.4.4.1: there is no backward pattern behind one that is the whole buffer.
        let back = pattern::at_back(rest).filter(|_| has_patterns);
        let middle = rest.get(..rest.len().saturating_sub(back.map_or(0, |run| run.count)))?;
        if let Some(run) = front {
            chain.pattern(run)?;
        }
        let is_shrunk = middle.len() > COMPRESSED_BYTES_MIN && self.middle(&mut chain, middle);
        if !is_shrunk {
            chain.plain(middle)?;
        }
        if let Some(run) = back {
            chain.pattern(run)?;
        }
        // `most` is the condition of MS-SMB2 3.1.4.4 and more.
        Some(chain.out)
    }

    /// Appends a payload with the compressed `middle`. False if it would save too little.
    fn middle(self, chain: &mut Chain, middle: &[u8]) -> bool {
        let Some(codec) = self.compression.codec() else { return false };
        let Ok(original_payload_size) = u32::try_from(middle.len()) else { return false };
        let before = chain.out.len();
        let empty = Payload::Compressed { algorithm: codec.id(), original_payload_size, data: &[] };
        chain.payload(&empty);
        let data_at = chain.out.len();
        let most = data_at.saturating_add(middle.len().saturating_sub(middle.len() / SAVED_PART));
        let most = most.min(chain.most);
        let written = append(&mut chain.out, most, |room| codec.compress_into(middle, room));
        // Length includes OriginalPayloadSize.
        let length = written.and_then(|count| u32::try_from(count.saturating_add(4)).ok());
        let Some(length) = length else {
            chain.out.truncate(before);
            return false;
        };
        let at = before.saturating_add(LENGTH_AT);
        Writer::from(&mut chain.out, 0).patch_u32(at, length);
        true
    }
}

/// The payloads of a message that is being compressed. Methods return None when it has more than `most`
/// bytes.
struct Chain {
    out: Vec<u8>,
    most: usize,
    /// True behind the first payload, which has the flag of a chain.
    is_begun: bool,
}

impl Chain {
    fn payload(&mut self, payload: &Payload<'_>) {
        payload.encode(!self.is_begun, &mut Writer::from(&mut self.out, 0));
        self.is_begun = true;
    }

    fn plain(&mut self, bytes: &[u8]) -> Option<()> {
        let room = self.most.saturating_sub(self.out.len());
        if bytes.is_empty() {
            return Some(());
        }
        if bytes.len() > room {
            return None;
        }
        self.payload(&Payload::Plain(bytes));
        (self.out.len() <= self.most).then_some(())
    }

    fn pattern(&mut self, run: pattern::Run) -> Option<()> {
        let repetitions = u32::try_from(run.count).ok()?;
        self.payload(&Payload::Pattern { pattern: run.byte, repetitions });
        (self.out.len() <= self.most).then_some(())
    }
}

/// Appends the bytes that `write` makes, up to `most` bytes in all. Returns their number.
fn append(
    out: &mut Vec<u8>,
    most: usize,
    write: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> Option<usize> {
    let at = out.len();
    out.resize(most.max(at), 0);
    let count = write(out.get_mut(at..)?)?;
    out.truncate(at.saturating_add(count));
    Some(count)
}

/// Data of one file, one message after the other: after messages that did not shrink fewer are tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Thrift {
    /// Binary logarithm of the messages that are left out next.
    misses: u8,
    /// Messages that are still left out.
    left_out: u8,
}

impl Thrift {
    /// The most that `misses` becomes.
    const MISSES_MAX: u8 = 6;

    /// Returns true if `data` of a message is worth compressing.
    pub fn tries(&mut self, data: &[u8]) -> bool {
        if data.len() <= COMPRESSED_BYTES_MIN {
            return false;
        }
        if let Some(left) = self.left_out.checked_sub(1) {
            self.left_out = left;
            return false;
        }
        let is_worth = is_worth(data);
        if is_worth {
            self.misses = 0;
        } else {
            self.left_out = 1u8.checked_shl(self.misses.into()).unwrap_or(0);
            self.misses = self.misses.saturating_add(1).min(Self::MISSES_MAX);
        }
        is_worth
    }

    /// Returns the value as two bytes.
    pub const fn to_bits(self) -> u16 {
        u16::from_le_bytes([self.misses, self.left_out])
    }

    /// Returns the value of [`Self::to_bits`].
    pub const fn from_bits(bits: u16) -> Self {
        let [misses, left_out] = bits.to_le_bytes();
        Self { misses, left_out }
    }
}

/// Looks at a few pieces of data. Runs of one byte need no look.
fn is_worth(data: &[u8]) -> bool {
    let has_run = || pattern::at_front(data).or_else(|| pattern::at_back(data)).is_some();
    sample::is_worth(&mut lz77::Compressor::default(), data) || has_run()
}

#[cfg(test)]
mod tests;
