//! Sealed messages: MS-SMB2 2.2.41, 3.1.4.3, 3.3.5.2.1.1 and 3.2.5.1.1.1.
//!
//! Sealing and unsealing work in place. A message that is to be sent lies
//! behind [`HEADROOM`] bytes, into which the transform header and the
//! transport's prefix are written; a received frame is opened where it lies.

use crate::Disconnect;
use crate::frame::{FrameLength, PREFIX_LEN};
use core::fmt;
use core::ops::{Deref, Range};
use frevo_crypto::{KeyExhausted, OpeningKey, SealingKey, Sender};
use frevo_wire::compound::Compound;
use frevo_wire::compression::COMPRESSION_PROTOCOL_ID;
use frevo_wire::header::PROTOCOL_ID;
use frevo_wire::transform::{
    AAD_RANGE, TRANSFORM_ENCRYPTED, TRANSFORM_HEADER_LEN, TRANSFORM_PROTOCOL_ID,
    TRANSFORM_SIGNATURE_RANGE, TransformHeader,
};
use frevo_wire::{Header, HeaderFlags};

/// Bytes before a message that the transform header and the transport's prefix
/// go into.
pub const HEADROOM: usize = PREFIX_LEN + TRANSFORM_HEADER_LEN;

/// Why a message cannot be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealError {
    /// The session has to authenticate anew, or the Connection to end.
    Exhausted,
    /// No frame is so long, or the buffer has no headroom.
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

/// Seals the message that lies in `buffer` behind [`HEADROOM`] bytes and writes
/// prefix and transform header before it: the whole buffer is then what goes
/// onto the wire.
pub fn seal_frame(buffer: &mut [u8], key: &SealingKey, session_id: u64) -> Result<(), SealError> {
    let len = buffer.len();
    let wrong = SealError::Length(len);
    let frame_len = len.checked_sub(PREFIX_LEN).ok_or(wrong)?;
    let prefix = FrameLength::prefix(frame_len).ok_or(wrong)?;
    let (head, message) = buffer.split_at_mut_checked(HEADROOM).ok_or(wrong)?;
    let message_len = u32::try_from(message.len()).map_err(|_| wrong)?;
    let nonce = key.next_nonce()?;

    let header = TransformHeader {
        signature: [0; 16],
        nonce: *nonce.field(),
        original_message_size: message_len,
        flags: TRANSFORM_ENCRYPTED,
        session_id,
    };
    let mut bytes = header.to_bytes();
    let tag = key.seal(nonce, bytes.get(AAD_RANGE).unwrap_or(&[]), message);
    if let Some(signature) = bytes.get_mut(TRANSFORM_SIGNATURE_RANGE) {
        signature.copy_from_slice(&tag);
    }
    let (head_prefix, head_transform) = head.split_at_mut(PREFIX_LEN);
    head_prefix.copy_from_slice(&prefix);
    head_transform.copy_from_slice(&bytes);
    Ok(())
}

/// A message that was sealed and is now plain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsealed {
    /// Where it lies in the frame.
    pub message: Range<usize>,
    /// Request.TransformSessionId.
    pub session_id: u64,
    /// Whether it is compressed: it has to be decompressed and then looked at
    /// with [`check_unsealed`], which for a plain one has been done.
    pub is_compressed: bool,
}

/// Whether a frame (without its prefix) claims to be sealed.
pub fn is_sealed(frame: &[u8]) -> bool {
    frame.starts_with(&TRANSFORM_PROTOCOL_ID)
}

/// Opens a sealed frame (without its prefix) in place, with all checks of
/// MS-SMB2 3.3.5.2.1.1 (a request, from the client) or 3.2.5.1.1.1 (a response).
///
/// `key_of` finds the key that opens what the peer seals in a session, or
/// nothing: no such session on this Connection, one without keys (guest,
/// anonymous, still being set up). `may_be_compressed` says whether compression
/// was negotiated.
pub fn unseal_frame<K: Deref<Target = OpeningKey>>(
    frame: &mut [u8],
    from: Sender,
    may_be_compressed: bool,
    key_of: impl FnOnce(u64) -> Option<K>,
) -> Result<Unsealed, Disconnect> {
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
    let key = key_of(header.session_id).ok_or(Disconnect::Sealed("no session with keys"))?;
    let covered = head.get(AAD_RANGE).unwrap_or(&[]);
    key.open(&header.nonce, covered, message, &header.signature)
        .map_err(|_| Disconnect::Sealed("it does not fit its signature"))?;

    let is_compressed = message.starts_with(&COMPRESSION_PROTOCOL_ID);
    if is_compressed {
        if !may_be_compressed {
            return Err(Disconnect::Sealed("compressed, which was not negotiated"));
        }
    } else {
        check_unsealed(message, header.session_id, from)?;
    }
    let end = frame.len();
    Ok(Unsealed {
        message: TRANSFORM_HEADER_LEN..end,
        session_id: header.session_id,
        is_compressed,
    })
}

/// Checks what was sealed, decompressed: that every element of it begins where
/// it may and belongs to the session that it was sealed for.
pub fn check_unsealed(message: &[u8], session_id: u64, from: Sender) -> Result<(), Disconnect> {
    if !message.starts_with(&PROTOCOL_ID) {
        // Sealed or compressed once more, SMB1, or nothing at all.
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
            // Notifications of leases and the like carry SessionId 0, MS-SMB2
            // 3.3.4.7, and are sealed all the same.
            Sender::Server => is_same || (header.message_id == u64::MAX && header.session_id == 0),
        };
        if !is_good {
            return Err(Disconnect::Sealed("SessionId of the message and of its seal differ"));
        }
        is_first = false;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
