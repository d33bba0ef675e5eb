//! Sealed messages: MS-SMB2 2.2.41, 3.1.4.3, 3.3.5.2.1.1 and 3.2.5.1.1.1.
//!
//! Sealing and unsealing work in place. A message to send lies behind [`HEADROOM`] bytes, into
//! which the transform header and the transport's prefix are written; a received frame is unsealed
//! where it is.

use crate::Disconnect;
use crate::frame::{FrameLength, PREFIX_LEN};
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, Range};
use frevo_crypto::{KeyExhausted, Nonce, OpeningKey, SealingKey, Sender, TAG_LEN, ToOpen, ToSeal};
use frevo_wire::compound::Compound;
use frevo_wire::compression::COMPRESSION_PROTOCOL_ID;
use frevo_wire::header::PROTOCOL_ID;
use frevo_wire::transform::{
    AAD_RANGE, TRANSFORM_ENCRYPTED, TRANSFORM_HEADER_LEN, TRANSFORM_PROTOCOL_ID,
    TRANSFORM_SIGNATURE_RANGE, TransformHeader,
};
use frevo_wire::{Header, HeaderFlags};

/// Bytes before a message for the transform header and the transport's prefix.
pub const HEADROOM: usize = PREFIX_LEN + TRANSFORM_HEADER_LEN;

/// The reason why a message cannot be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealError {
    /// The key is used up: the session has to authenticate again, or the Connection to end.
    Exhausted,
    /// The length is too large for a frame, or the buffer has no headroom.
    Length(usize),
}

impl From<KeyExhausted> for SealError {
    fn from(_: KeyExhausted) -> Self {
        Self::Exhausted
    }
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted => KeyExhausted.fmt(f),
            Self::Length(len) => write!(f, "a buffer of {len} bytes cannot be sealed"),
        }
    }
}

impl core::error::Error for SealError {}

/// Seals the message behind the first [`HEADROOM`] bytes of `buffer`, and writes prefix and
/// transform header before it: the whole buffer is then ready to send.
pub fn seal_frame(buffer: &mut [u8], key: &SealingKey, session_id: u64) -> Result<(), SealError> {
    Sealing::begin(buffer, key, session_id)?.finish(buffer, key)
}

/// A message that is to be sealed: it has its nonce. The nonce cannot be copied, and sealing takes
/// it, so that no two messages have the same.
#[derive(Debug)]
pub struct Sealing {
    nonce: Nonce,
    session_id: u64,
}

impl Sealing {
    /// Begins what [`seal_frame`] does: checks the length and takes the next nonce. The rest, which
    /// takes long, may be done elsewhere.
    pub fn begin(buffer: &[u8], key: &SealingKey, session_id: u64) -> Result<Self, SealError> {
        prefix(buffer)?;
        Ok(Self { nonce: key.next_nonce()?, session_id })
    }

    /// Does the rest of [`seal_frame`] with the buffer and the key of [`Self::begin`]. The message may
    /// have become shorter meanwhile.
    pub fn finish(self, buffer: &mut [u8], key: &SealingKey) -> Result<(), SealError> {
        let Prepared { nonce, mut header, head, message } = self.prepare(buffer)?;
        let tag = key.seal(nonce, header.get(AAD_RANGE).unwrap_or(&[]), message);
        write_head(head, &mut header, &tag);
        Ok(())
    }

    /// Does what [`Self::finish`] does for several messages with one key; some ciphers are faster for
    /// several at once. After an error none of them is sealed.
    pub fn finish_all<'a>(
        messages: impl ExactSizeIterator<Item = (Self, &'a mut [u8])>,
        key: &SealingKey,
    ) -> Result<(), SealError> {
        let mut heads = Vec::with_capacity(messages.len());
        let mut rests = Vec::with_capacity(messages.len());
        for (sealing, buffer) in messages {
            let Prepared { nonce, header, head, message } = sealing.prepare(buffer)?;
            heads.push((head, header));
            rests.push((nonce, message));
        }
        let to_seal = heads.iter().zip(rests).map(|((_, header), (nonce, in_out))| {
            let aad = header.get(AAD_RANGE).unwrap_or(&[]);
            ToSeal { nonce, aad, in_out }
        });
        let tags = key.seal_all(to_seal.collect());
        for ((head, header), tag) in heads.iter_mut().zip(&tags) {
            write_head(head, header, tag);
        }
        Ok(())
    }

    /// Writes the prefix, and makes the transform header without its tag.
    fn prepare(self, buffer: &mut [u8]) -> Result<Prepared<'_>, SealError> {
        let wrong = SealError::Length(buffer.len());
        let prefix = prefix(buffer)?;
        let (head, message) = buffer.split_at_mut_checked(HEADROOM).ok_or(wrong)?;
        let header = TransformHeader {
            signature: [0; 16],
            nonce: *self.nonce.field(),
            original_message_size: u32::try_from(message.len()).map_err(|_| wrong)?,
            flags: TRANSFORM_ENCRYPTED,
            session_id: self.session_id,
        };
        head.split_at_mut(PREFIX_LEN).0.copy_from_slice(&prefix);
        Ok(Prepared { nonce: self.nonce, header: header.to_bytes(), head, message })
    }
}

/// Seals several messages like [`seal_frame`]; some ciphers are faster for several at once. After
/// an error none of them is sealed.
pub fn seal_frames(
    buffers: &mut [&mut [u8]],
    key: &SealingKey,
    session_id: u64,
) -> Result<(), SealError> {
    let mut begun = Vec::with_capacity(buffers.len());
    for buffer in buffers.iter() {
        begun.push(Sealing::begin(buffer, key, session_id)?);
    }
    Sealing::finish_all(begun.into_iter().zip(buffers.iter_mut().map(|buffer| &mut **buffer)), key)
}

/// A message that only its tag is missing from.
struct Prepared<'a> {
    nonce: Nonce,
    header: [u8; TRANSFORM_HEADER_LEN],
    /// Place of the prefix and the transform header.
    head: &'a mut [u8],
    message: &'a mut [u8],
}

/// Returns the prefix of the frame in `buffer`, which begins with [`HEADROOM`].
fn prefix(buffer: &[u8]) -> Result<[u8; PREFIX_LEN], SealError> {
    let frame = buffer.get(PREFIX_LEN..).filter(|frame| frame.len() >= TRANSFORM_HEADER_LEN);
    let prefix = frame.and_then(|frame| FrameLength::prefix(frame.len()));
    prefix.ok_or(SealError::Length(buffer.len()))
}

fn write_head(head: &mut [u8], header: &mut [u8; TRANSFORM_HEADER_LEN], tag: &[u8; TAG_LEN]) {
    if let Some(signature) = header.get_mut(TRANSFORM_SIGNATURE_RANGE) {
        signature.copy_from_slice(tag);
    }
    head.split_at_mut(PREFIX_LEN).1.copy_from_slice(header);
}

/// A message that was unsealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsealed {
    /// Position of the message in the frame.
    pub message: Range<usize>,
    /// Request.TransformSessionId.
    pub session_id: u64,
}

/// True if a frame (without its prefix) begins like a sealed one.
pub fn is_sealed(frame: &[u8]) -> bool {
    frame.starts_with(&TRANSFORM_PROTOCOL_ID)
}

/// Unseals a frame (without its prefix) in place, with all checks of MS-SMB2 3.3.5.2.1.1 (a
/// request, from the client) or 3.2.5.1.1.1 (a response).
///
/// `key_of` returns the key for messages of the peer in a session; None for an unknown session on
/// this Connection, or one without keys (guest, anonymous, still being set up). A frame with a
/// compressed message is to be decrypted by [`decrypt_frame`], and expanded before it is concluded.
pub fn unseal_frame<K: Deref<Target = OpeningKey>>(
    frame: &mut [u8],
    from: Sender,
    key_of: impl FnOnce(u64) -> Option<K>,
) -> Result<Unsealed, Disconnect> {
    let (header, covered, message) = parts(frame)?;
    let key = key_of(header.session_id)
        .ok_or(Disconnect::Sealed("its session has ended or has no keys"))?;
    let opened = key.open(&header.nonce, covered, message, &header.signature);
    conclude(&header, message, opened.is_ok(), from)
}

/// Decrypts a frame in place, as [`unseal_frame`] does. Returns whether its tag is right, which
/// [`conclude_frame`] takes. None is a malformed frame, which was left alone.
pub fn decrypt_frame(frame: &mut [u8], key: &OpeningKey) -> Option<bool> {
    let (header, covered, message) = parts(frame).ok()?;
    Some(key.open(&header.nonce, covered, message, &header.signature).is_ok())
}

/// Decrypts several frames of one session in place, as [`unseal_frame`] does; some ciphers are faster
/// for several at once. Returns whether the tag of each is right, which [`conclude_frame`] takes.
/// None is a malformed frame, which was left alone: [`unseal_frame`] returns its fault.
pub fn decrypt_frames(frames: &mut [&mut [u8]], key: &OpeningKey) -> Vec<Option<bool>> {
    let all: Vec<_> = frames.iter_mut().map(|frame| parts(frame).ok()).collect();
    let (mut well_formed, mut to_open) = (Vec::with_capacity(all.len()), Vec::new());
    let mut headers = Vec::with_capacity(all.len());
    let mut rests = Vec::with_capacity(all.len());
    for parts in all {
        well_formed.push(parts.is_some());
        if let Some((header, covered, message)) = parts {
            headers.push(header);
            rests.push((covered, message));
        }
    }
    for (header, (aad, in_out)) in headers.iter().zip(rests) {
        to_open.push(ToOpen { nonce: &header.nonce, aad, in_out, tag: &header.signature });
    }
    let mut opened = key.open_all(to_open).into_iter();
    let mut next = || opened.next().is_some_and(|opened| opened.is_ok());
    well_formed.into_iter().map(|is_good| is_good.then(&mut next)).collect()
}

/// Continues [`unseal_frame`] after a frame was decrypted by [`decrypt_frames`], and `is_right` is what
/// that returned for it.
pub fn conclude_frame(
    frame: &mut [u8],
    is_right: bool,
    from: Sender,
) -> Result<Unsealed, Disconnect> {
    let (header, _, message) = parts(frame)?;
    conclude(&header, message, is_right, from)
}

/// Checks the form of a sealed frame and splits it into its header, the bytes that its tag covers
/// besides the message, and the message.
fn parts(frame: &mut [u8]) -> Result<(TransformHeader, &[u8], &mut [u8]), Disconnect> {
    let header = TransformHeader::parse(frame)?;
    let Some((head, message)) = frame.split_at_mut_checked(TRANSFORM_HEADER_LEN) else {
        return Err(Disconnect::Sealed("no message"));
    };
    if message.is_empty() {
        return Err(Disconnect::Sealed("no message"));
    }
    if header.flags != TRANSFORM_ENCRYPTED {
        return Err(Disconnect::Sealed("Flags"));
    }
    if usize::try_from(header.original_message_size) != Ok(message.len()) {
        return Err(Disconnect::Sealed("OriginalMessageSize"));
    }
    Ok((header, head.get(AAD_RANGE).unwrap_or(&[]), message))
}

/// Checks a decrypted message.
fn conclude(
    header: &TransformHeader,
    message: &[u8],
    is_right: bool,
    from: Sender,
) -> Result<Unsealed, Disconnect> {
    if !is_right {
        return Err(Disconnect::Sealed("its signature is wrong"));
    }
    if message.starts_with(&COMPRESSION_PROTOCOL_ID) {
        return Err(Disconnect::Sealed("it is compressed, which was not negotiated"));
    }
    check_unsealed(message, header.session_id, from)?;
    let end = TRANSFORM_HEADER_LEN.saturating_add(message.len());
    Ok(Unsealed { message: TRANSFORM_HEADER_LEN..end, session_id: header.session_id })
}

/// Checks a message that was sealed, after decompression: every element begins at a valid offset
/// and belongs to the session that it was sealed for.
pub fn check_unsealed(message: &[u8], session_id: u64, from: Sender) -> Result<(), Disconnect> {
    if !message.starts_with(&PROTOCOL_ID) {
        // After decryption, the content must be plain SMB2 messages: no second encryption or
        // compression, no SMB1, not empty.
        return Err(Disconnect::Sealed("ProtocolId"));
    }
    let mut is_first = true;
    for element in Compound::new(message) {
        let (_, element) = element?;
        let header = Header::parse(element)?;
        let is_related = header.flags.contains(HeaderFlags::RELATED_OPERATIONS);
        let is_same = header.session_id == session_id;
        let is_good = match from {
            Sender::Client if is_first => !is_related && is_same,
            Sender::Client => is_related || is_same,
            // MS-SMB2 3.3.4.7: lease break notifications are encrypted, although their SessionId is
            // 0.
            Sender::Server => is_same || (header.message_id == u64::MAX && header.session_id == 0),
        };
        if !is_good {
            return Err(Disconnect::Sealed(
                "its SessionId differs from that of the transform header",
            ));
        }
        is_first = false;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
