//! Expansion of received messages: MS-SMB2 3.1.5.3, 3.2.5.1.1.2 and 3.3.5.2.1.2.
//!
//! A compressed frame becomes the frame that the peer would have sent without compression, in memory of
//! its own: a sealed one, which was decrypted in place before, keeps its transform header, whose
//! OriginalMessageSize is that of the expanded message. Everything behind this step knows nothing of
//! compression.
//!
//! [`Compression::look`] checks all that the headers say before memory is taken, so that the role can
//! charge for it. [`Expanding`] takes long, and any thread may do it.

use alloc::sync::Arc;

use frevo_compress::pattern;
use frevo_crypto::{OpeningKey, Sender, SigningKey};
use frevo_wire::compression::{
    COMPRESSION_PROTOCOL_ID, Compressed, CompressionAlgorithm, Payload, UNCHAINED_HEADER_LEN,
};
use frevo_wire::header::PROTOCOL_ID;
use frevo_wire::transform::{TRANSFORM_HEADER_LEN, TransformHeader};

use super::incoming::{Check, Incoming, Received};
use super::{Algorithm, Codec, Compression, Work, transform};
use crate::Disconnect;
use crate::limits::{EXPANDED_PAYLOAD_BYTES, MESSAGE_OVERHEAD};

/// A compressed frame whose headers were checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expandable {
    /// Bytes of the transform header before the message.
    head: usize,
    /// Bytes of the expanded message.
    len: usize,
    /// Bytes that take as long as the message, whose payloads may cost time beside their bytes.
    effort: usize,
    /// The slowest of its codecs: a peer chooses how much of the message each of them has.
    codec: Option<Codec>,
}

impl Compression {
    /// Checks the headers of a compressed frame. None for a frame that is not compressed: a sealed one
    /// is looked at after it was decrypted in place, with its right tag.
    ///
    /// # Errors
    /// The message is to end the connection: MS-SMB2 3.3.5.2.1.2, and 3.2.5.1.1.2 on a client.
    /// `max_payload` is the largest of the connection's three sizes.
    pub fn look(self, frame: &[u8], max_payload: u32) -> Result<Option<Expandable>, Disconnect> {
        let head = if transform::is_sealed(frame) { TRANSFORM_HEADER_LEN } else { 0 };
        let message = frame.get(head..).unwrap_or_default();
        if !message.starts_with(&COMPRESSION_PROTOCOL_ID) {
            return Ok(None);
        }
        if message.len() < UNCHAINED_HEADER_LEN {
            return Err(Disconnect::Expansion("it is shorter than its header"));
        }
        let parsed = Compressed::parse(message)?;
        let most = u64::from(max_payload)
            .saturating_add(u64::try_from(MESSAGE_OVERHEAD).unwrap_or(0))
            .saturating_add(u64::try_from(UNCHAINED_HEADER_LEN).unwrap_or(0));
        // OriginalCompressedSegmentSize is not larger than this length.
        let len = parsed.decompressed_len();
        if len > most {
            return Err(Disconnect::Expansion("it says that it is longer than any message"));
        }
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let mut found =
            Expandable { head, len, effort: frame.len().saturating_add(len), codec: None };
        match parsed {
            Compressed::Unchained { header, .. } => {
                found.codec = self.negotiated(header.compression_algorithm)?;
            }
            Compressed::Chained { payloads, .. } => {
                if !self.is_chained() {
                    return Err(Disconnect::Expansion("chains were not negotiated"));
                }
                for payload in payloads {
                    let codec = match payload {
                        Payload::Plain(_) => None,
                        Payload::Compressed { algorithm, .. } => self.negotiated(algorithm)?,
                        Payload::Pattern { .. } => {
                            self.negotiated(CompressionAlgorithm::PATTERN_V1)?
                        }
                    };
                    if codec == Some(Codec::Huffman) {
                        found.effort = found.effort.saturating_add(EXPANDED_PAYLOAD_BYTES);
                    }
                    found.codec = slower(found.codec, codec);
                }
            }
        }
        Ok(Some(found))
    }

    /// Fails for an algorithm that was not negotiated.
    fn negotiated(&self, id: CompressionAlgorithm) -> Result<Option<Codec>, Disconnect> {
        match self.has(id) {
            true => Ok(Codec::of(id)),
            false => Err(Disconnect::Expansion("its algorithm was not negotiated")),
        }
    }
}

/// Returns the codec of the two that takes longer to expand.
fn slower(one: Option<Codec>, other: Option<Codec>) -> Option<Codec> {
    let time = |codec: &Codec| Algorithm::Expanding(*codec).longest();
    one.into_iter().chain(other).max_by_key(time)
}

impl Expandable {
    /// Returns bytes that take as long as the frame.
    pub const fn effort(&self) -> usize {
        self.effort
    }

    /// Returns the algorithm that takes the time.
    pub fn algorithm(&self) -> Option<Algorithm> {
        self.codec.map(Algorithm::Expanding)
    }

    /// Returns the bytes of the frame that [`Expanding`] fills.
    pub const fn frame_len(&self) -> usize {
        self.head.saturating_add(self.len)
    }

    /// Expands `frame`, which is that of [`Compression::look`], into all of `room`.
    fn expand(&self, frame: &[u8], room: &mut [u8]) -> Result<(), Disconnect> {
        if room.len() != self.frame_len() {
            return Err(BUG);
        }
        let (head, message) = frame.split_at_checked(self.head).ok_or(BUG)?;
        let (new_head, out) = room.split_at_mut_checked(self.head).ok_or(BUG)?;
        if !head.is_empty() {
            let mut header = TransformHeader::parse(head)?;
            header.original_message_size = u32::try_from(self.len).map_err(|_| BUG)?;
            new_head.copy_from_slice(&header.to_bytes());
        }
        fill_message(message, out)?;
        if !out.starts_with(&PROTOCOL_ID) {
            // MS-SMB2 3.3.5.2.1.2: neither a second compression nor a seal.
            return Err(Disconnect::Expansion("it holds no message"));
        }
        Ok(())
    }
}

/// The memory of an expanded frame has another length than was asked for: a fault of the caller.
const BUG: Disconnect = Disconnect::Expansion("its memory has another length");

/// Fills `out` with the expanded `message`.
fn fill_message(message: &[u8], out: &mut [u8]) -> Result<(), Disconnect> {
    let mut rest = out;
    let payloads = match Compressed::parse(message)? {
        Compressed::Unchained { header, plain, compressed } => {
            let (front, rest) = rest.split_at_mut_checked(plain.len()).ok_or(BUG)?;
            front.copy_from_slice(plain);
            return fill(header.compression_algorithm, compressed, rest);
        }
        Compressed::Chained { payloads, .. } => payloads,
    };
    for payload in payloads {
        let len = usize::try_from(payload.decompressed_len()).map_err(|_| BUG)?;
        let (part, behind) = rest.split_at_mut_checked(len).ok_or(BUG)?;
        match payload {
            Payload::Plain(bytes) => part.copy_from_slice(bytes),
            Payload::Pattern { pattern, .. } => pattern::expand(pattern, part),
            Payload::Compressed { algorithm, data, .. } => fill(algorithm, data, part)?,
        }
        rest = behind;
    }
    // The payloads are the whole message: bytes that none of them filled are never used.
    if rest.is_empty() { Ok(()) } else { Err(BUG) }
}

/// Fills `part` with the expanded `data`.
fn fill(algorithm: CompressionAlgorithm, data: &[u8], part: &mut [u8]) -> Result<(), Disconnect> {
    let codec = Codec::of(algorithm).ok_or(BUG)?;
    let malformed = |_| Disconnect::Expansion("its data does not expand to the size that it says");
    codec.expand(data, part).map_err(malformed)
}

/// The expansion of a frame into memory that was charged. It is taken where the frame is expanded, since
/// that of a large one takes a while to clear.
#[derive(Debug)]
pub struct Expanding<B, S = Arc<SigningKey>, O = Arc<OpeningKey>> {
    received: Received<B>,
    room: fn(usize) -> B,
    found: Expandable,
    check: Option<Check<S, O>>,
    from: Sender,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>, S: AsRef<SigningKey>, O: AsRef<OpeningKey>> Expanding<B, S, O> {
    /// A frame of `from` in which this was `found`. `room` makes a buffer of as many bytes as it
    /// [says](Expandable::frame_len).
    pub const fn new(
        received: Received<B>,
        found: Expandable,
        room: fn(usize) -> B,
        from: Sender,
    ) -> Self {
        Self { received, room, found, check: None, from }
    }

    /// Has the signatures of the expanded messages verified too.
    #[must_use]
    pub fn then(self, check: Option<Check<S, O>>) -> Self {
        Self { check, ..self }
    }
}

impl<B, S, O> Work for Expanding<B, S, O>
where
    B: AsRef<[u8]> + AsMut<[u8]>,
    S: AsRef<SigningKey>,
    O: AsRef<OpeningKey>,
{
    type Done = Result<Received<B>, Disconnect>;

    fn bytes(&self) -> usize {
        self.found.effort
    }

    fn algorithm(&self) -> Option<Algorithm> {
        self.found.algorithm()
    }

    fn run(self) -> Self::Done {
        let Self { received: Received { frame, verdict }, room, found, check, from } = self;
        let mut room = room(found.frame_len());
        found.expand(frame.as_ref(), room.as_mut())?;
        drop(frame);
        let Some(check) = check else { return Ok(Received { frame: room, verdict }) };
        Incoming::new([room], check, from).run().pop().ok_or(BUG)
    }
}

#[cfg(test)]
mod tests;
