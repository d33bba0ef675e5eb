//! Sealed messages: MS-SMB2 2.2.41, 3.1.4.3, 3.3.5.2.1.1 and 3.2.5.1.1.1.
//!
//! Sealing and unsealing work in place. A message that is to be sent lies
//! behind [`HEADROOM`] bytes, into which the transform header and the
//! transport's prefix are written; a received frame is opened where it lies.

use crate::Disconnect;
use crate::frame::{FrameLength, PREFIX_LEN};
use crate::limits::TRANSFORM_HEADER;
use core::fmt;
use core::ops::{Deref, Range};
use frevo_crypto::{KeyExhausted, OpeningKey, SealingKey, Sender};
use frevo_wire::codec::{Parsed, Reader};
use frevo_wire::header::{HEADER_LEN, PROTOCOL_ID};
use frevo_wire::{Header, HeaderFlags, Malformed};

/// Bytes before a message that the transform header and the transport's prefix
/// go into.
pub const HEADROOM: usize = PREFIX_LEN + TRANSFORM_HEADER;

/// The first four bytes of a sealed message.
pub const SEALED_ID: [u8; 4] = [0xFD, b'S', b'M', b'B'];

/// The first four bytes of a compressed message.
pub const COMPRESSED_ID: [u8; 4] = [0xFC, b'S', b'M', b'B'];

/// Flags: encrypted. In 3.0 the same bits name AES-128-CCM.
const ENCRYPTED: u16 = 0x0001;
/// Where the Signature ends and what it covers besides the message begins.
const SIGNATURE_END: usize = 20;

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
        flags: ENCRYPTED,
        session_id,
    };
    let mut bytes = header.to_bytes();
    let (front, covered) = bytes.split_at_mut(SIGNATURE_END);
    let tag = key.seal(nonce, covered, message);
    if let Some(signature) = front.get_mut(4..) {
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
    frame.starts_with(&SEALED_ID)
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
    let Some((head, message)) = frame.split_at_mut_checked(TRANSFORM_HEADER) else {
        return Err(Disconnect::Sealed("no message"));
    };
    if message.is_empty() {
        return Err(Disconnect::Sealed("no message"));
    }
    if header.flags != ENCRYPTED {
        return Err(Disconnect::Sealed("Flags"));
    }
    if usize::try_from(header.original_message_size) != Ok(message.len()) {
        return Err(Disconnect::Sealed("OriginalMessageSize"));
    }
    let key = key_of(header.session_id).ok_or(Disconnect::Sealed("no session with keys"))?;
    let covered = head.get(SIGNATURE_END..).unwrap_or(&[]);
    key.open(&header.nonce, covered, message, &header.signature)
        .map_err(|_| Disconnect::Sealed("it does not fit its signature"))?;

    let is_compressed = message.starts_with(&COMPRESSED_ID);
    if is_compressed {
        if !may_be_compressed {
            return Err(Disconnect::Sealed("compressed, which was not negotiated"));
        }
    } else {
        check_unsealed(message, header.session_id, from)?;
    }
    let end = frame.len();
    Ok(Unsealed { message: TRANSFORM_HEADER..end, session_id: header.session_id, is_compressed })
}

/// Checks what was sealed, decompressed: that every element of it begins where
/// it may and belongs to the session that it was sealed for.
pub fn check_unsealed(message: &[u8], session_id: u64, from: Sender) -> Result<(), Disconnect> {
    if !message.starts_with(&PROTOCOL_ID) {
        // Sealed or compressed once more, SMB1, or nothing at all.
        return Err(Disconnect::Sealed("ProtocolId"));
    }
    let mut is_first = true;
    for element in elements(message) {
        let header = Header::parse(element?)?;
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

/// The elements of a chain.
fn elements(chain: &[u8]) -> impl Iterator<Item = Parsed<&[u8]>> {
    let mut rest = Some(chain);
    core::iter::from_fn(move || {
        let chain = rest.take()?;
        Some(first_element(chain).map(|(element, after)| {
            rest = after;
            element
        }))
    })
}

fn first_element(chain: &[u8]) -> Parsed<(&[u8], Option<&[u8]>)> {
    let next = Header::parse(chain)?.next_command;
    if next == 0 {
        return Ok((chain, None));
    }
    let wrong = Malformed::new("NextCommand");
    let next = usize::try_from(next).map_err(|_| wrong)?;
    if next < HEADER_LEN || !next.is_multiple_of(8) {
        return Err(wrong);
    }
    chain.split_at_checked(next).map(|(element, after)| (element, Some(after))).ok_or(wrong)
}

/// The transform header, MS-SMB2 2.2.41.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TransformHeader {
    signature: [u8; 16],
    nonce: [u8; 16],
    original_message_size: u32,
    flags: u16,
    session_id: u64,
}

impl TransformHeader {
    fn parse(frame: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(frame);
        if r.array::<4>("ProtocolId")? != SEALED_ID {
            return Err(Malformed::new("ProtocolId"));
        }
        let signature = r.array("Signature")?;
        let nonce = r.array("Nonce")?;
        let original_message_size = r.u32("OriginalMessageSize")?;
        r.skip(2, "Reserved")?;
        let flags = r.u16("Flags")?;
        let session_id = r.u64("SessionId")?;
        Ok(Self { signature, nonce, original_message_size, flags, session_id })
    }

    fn to_bytes(self) -> [u8; TRANSFORM_HEADER] {
        let mut bytes = [0; TRANSFORM_HEADER];
        let fields = SEALED_ID
            .into_iter()
            .chain(self.signature)
            .chain(self.nonce)
            .chain(self.original_message_size.to_le_bytes())
            .chain([0; 2])
            .chain(self.flags.to_le_bytes())
            .chain(self.session_id.to_le_bytes());
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }
}

#[cfg(test)]
mod tests;
