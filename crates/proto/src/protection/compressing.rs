//! Compression of messages to send: MS-SMB2 3.1.4.4.
//!
//! Only the data of a message is compressed. Its header and its fixed part stay as they are, so that
//! nothing but the file's own bytes decides on the length of what is sent.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use frevo_compress::pattern;
use frevo_wire::codec::Writer;
use frevo_wire::compression::{
    COMPRESSION_PROTOCOL_ID, CompressionAlgorithm, Payload, UnchainedHeader,
};

use super::transform::HEADROOM;
use super::{Algorithm, Codec, Compression, Framed};
use crate::limits::COMPRESSED_BYTES_MIN;

mod thrift;

pub use thrift::Thrift;

/// The part of a message that has to be saved, as a divisor: for less the peer's time is not worth it.
const SAVED_PART: usize = 16;

/// Position of Length in the header of a payload.
const LENGTH_AT: usize = 4;

/// Bytes of the longest header of a payload, with a pattern.
const PAYLOAD_HEADER_MAX: usize = 16;

/// A message whose data is to be compressed.
#[derive(Debug)]
pub struct ToCompress<B> {
    /// The algorithms of the connection.
    pub compression: Compression,
    /// Bytes before the data.
    pub head: usize,
    /// Makes a buffer of so many zeros, for the compressed message. It is called where the message is
    /// compressed.
    pub room: fn(usize) -> B,
    /// Gets the result, if the data is one message of several.
    pub thrift: Option<Arc<Thrift>>,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> ToCompress<B> {
    /// Returns the algorithm that takes the time. Without a codec the data is searched for runs, which
    /// takes no longer than the fastest one.
    pub(super) fn algorithm(&self) -> Algorithm {
        Algorithm::Compressing(self.compression.codec().unwrap_or(Codec::Lz4))
    }

    /// Compresses the message behind the headroom of `buffer`, which is signed but not sealed. Returns it
    /// in a buffer of its own, with the headroom, or in the old one if it would save too little.
    pub(super) fn compress(self, buffer: B) -> Framed<B> {
        let old = HEADROOM..buffer.as_ref().len();
        let compressed = buffer.as_ref().get(HEADROOM..).and_then(|whole| self.compressed(whole));
        if let Some(thrift) = &self.thrift {
            let shrunk = |new: &Framed<B>| old.len().saturating_sub(new.range.len());
            thrift.note(compressed.as_ref().map(shrunk));
        }
        compressed.unwrap_or(Framed { buffer, range: old })
    }

    /// Returns the compressed form of a message; None if that would save too little.
    fn compressed(&self, whole: &[u8]) -> Option<Framed<B>> {
        let (head, data) = whole.split_at_checked(self.head)?;
        let most = whole.len().saturating_sub((data.len() / SAVED_PART).max(1));
        let mut buffer = (self.room)(HEADROOM.saturating_add(most));
        let out = Out { bytes: buffer.as_mut().get_mut(HEADROOM..)?, at: 0 };
        let len = match self.compression.is_chained() {
            true => chained(self.compression, head, data, out)?,
            false => unchained(self.compression, head, data, out)?,
        };
        let range = HEADROOM..HEADROOM.saturating_add(len);
        Some(Framed { buffer, range })
    }
}

/// The room for a compressed message, and the position of the next byte. Methods return None when it is
/// full.
struct Out<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at.checked_add(bytes.len())?;
        self.bytes.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }

    fn set(&mut self, at: usize, number: u32) -> Option<()> {
        *self.bytes.get_mut(at..)?.first_chunk_mut()? = number.to_le_bytes();
        Some(())
    }

    /// Appends the compressed `data`, if that has at most `most` bytes. Returns their number.
    fn compress(&mut self, codec: Codec, data: &[u8], most: usize) -> Option<usize> {
        let room = self.bytes.get_mut(self.at..)?;
        let most = room.len().min(most);
        let count = codec.compress_into(data, room.get_mut(..most)?)?;
        self.at = self.at.saturating_add(count);
        Some(count)
    }
}

/// Writes a message of one compressed part. Returns its length.
fn unchained(
    compression: Compression,
    head: &[u8],
    data: &[u8],
    mut out: Out<'_>,
) -> Option<usize> {
    let codec = compression.codec()?;
    let header = UnchainedHeader {
        original_compressed_segment_size: u32::try_from(data.len()).ok()?,
        compression_algorithm: codec.id(),
        offset: u32::try_from(head.len()).ok()?,
    };
    let mut bytes = Vec::with_capacity(PAYLOAD_HEADER_MAX);
    header.encode(&mut Writer::new(&mut bytes));
    out.put(&bytes)?;
    out.put(head)?;
    out.compress(codec, data, usize::MAX)?;
    Some(out.at)
}

/// Writes a message of several payloads. Returns its length.
fn chained(compression: Compression, head: &[u8], data: &[u8], out: Out<'_>) -> Option<usize> {
    let mut chain = Chain { out, is_begun: false };
    let size = head.len().checked_add(data.len())?;
    chain.out.put(&COMPRESSION_PROTOCOL_ID)?;
    chain.out.put(&u32::try_from(size).ok()?.to_le_bytes())?;
    chain.plain(head)?;
    let has_patterns = compression.has(CompressionAlgorithm::PATTERN_V1);
    let front = pattern::at_front(data).filter(|_| has_patterns);
    let rest = data.get(front.map_or(0, |run| run.count)..).unwrap_or_default();
    // MS-SMB2 3.1.4.4.1: there is no backward pattern behind one that is the whole buffer.
    let back = pattern::at_back(rest).filter(|_| has_patterns);
    let middle = rest.get(..rest.len().saturating_sub(back.map_or(0, |run| run.count)))?;
    if let Some(run) = front {
        chain.pattern(run)?;
    }
    let codec = compression.codec().filter(|_| middle.len() > COMPRESSED_BYTES_MIN);
    if codec.and_then(|codec| chain.compressed(codec, middle)).is_none() {
        chain.plain(middle)?;
    }
    if let Some(run) = back {
        chain.pattern(run)?;
    }
    // The room is the condition of MS-SMB2 3.1.4.4 and more.
    Some(chain.out.at)
}

/// The payloads of a message that is being compressed. Methods return None when its room is full.
struct Chain<'a> {
    out: Out<'a>,
    /// True behind the first payload, which has the flag of a chain.
    is_begun: bool,
}

impl Chain<'_> {
    /// Appends a payload, or the header of one whose data follows. Returns its place.
    fn payload(&mut self, payload: &Payload<'_>) -> Option<Range<usize>> {
        let mut bytes = Vec::with_capacity(PAYLOAD_HEADER_MAX);
        payload.encode(!self.is_begun, &mut Writer::new(&mut bytes));
        let begin = self.out.at;
        self.out.put(&bytes)?;
        self.is_begun = true;
        Some(begin..self.out.at)
    }

    fn plain(&mut self, bytes: &[u8]) -> Option<()> {
        if bytes.is_empty() {
            return Some(());
        }
        let header = self.payload(&Payload::Plain(&[]))?;
        self.out.put(bytes)?;
        self.out.set(header.start.saturating_add(LENGTH_AT), u32::try_from(bytes.len()).ok()?)
    }

    fn pattern(&mut self, run: pattern::Run) -> Option<()> {
        let repetitions = u32::try_from(run.count).ok()?;
        self.payload(&Payload::Pattern { pattern: run.byte, repetitions }).map(drop)
    }

    /// Appends a payload with the compressed `middle`. If it would save too little, nothing is appended.
    fn compressed(&mut self, codec: Codec, middle: &[u8]) -> Option<()> {
        let original_payload_size = u32::try_from(middle.len()).ok()?;
        let (before, was_begun) = (self.out.at, self.is_begun);
        let empty = Payload::Compressed { algorithm: codec.id(), original_payload_size, data: &[] };
        let most = middle.len().saturating_sub(middle.len() / SAVED_PART);
        let written = self.payload(&empty).and_then(|header| {
            let count = self.out.compress(codec, middle, most)?;
            // Length includes OriginalPayloadSize.
            let length = u32::try_from(count.saturating_add(4)).ok()?;
            self.out.set(header.start.saturating_add(LENGTH_AT), length)
        });
        if written.is_none() {
            (self.out.at, self.is_begun) = (before, was_begun);
        }
        written
    }
}

#[cfg(test)]
mod tests;
