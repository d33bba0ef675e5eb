//! Frames on their way out: sign -> [compress] -> seal -> frame, MS-SMB2 3.1.4.1, 3.1.4.3, 3.1.4.4.

use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;

use frevo_crypto::{SealingKey, Sender, SigningKey, TooShort};
use frevo_wire::transform::TRANSFORM_HEADER_LEN;
use smallvec::{SmallVec, smallvec};

use super::transform::{HEADROOM, SealError, Sealing};
use super::{Algorithm, Protection, ToCompress, Work, signature};
use crate::frame::{FrameLength, PREFIX_LEN};

/// A message that is to be signed.
#[derive(Debug, Clone)]
pub struct Signature<S = Arc<SigningKey>> {
    /// Its place in the frame, with the padding before the next message.
    pub range: Range<usize>,
    /// The key that signs it.
    pub key: S,
}

/// The messages of a frame that are to be signed: nearly always one.
pub type Signatures<S = Arc<SigningKey>> = SmallVec<[Signature<S>; 1]>;

/// The protection of a frame, with its keys.
#[derive(Debug, Clone)]
pub enum Guard<S = Arc<SigningKey>, E = Arc<SealingKey>> {
    /// The frame is neither signed nor encrypted.
    None,
    /// These messages are signed.
    Signed(Signatures<S>),
    /// The frame is encrypted.
    Sealed {
        /// Session.EncryptionKey
        key: E,
        /// Session.SessionId
        session_id: u64,
    },
}

impl<S, E> Guard<S, E> {
    /// Returns the guard of a frame of `len` bytes that is one message, signed with `key`.
    pub fn signed(key: S, len: usize) -> Self {
        Self::Signed(smallvec![Signature { range: 0..len, key }])
    }

    /// Returns the kind of protection.
    pub const fn protection(&self) -> Protection {
        match self {
            Self::None => Protection::None,
            Self::Signed(_) => Protection::Signed,
            Self::Sealed { .. } => Protection::Sealed,
        }
    }
}

/// The reason why a frame cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectError {
    /// The key is used up: the session has to authenticate again, or the Connection to end.
    Exhausted,
    /// The length is too large for a frame, or the buffer has no headroom.
    Length(usize),
    /// A message that is to be signed has no header.
    TooShort,
}

impl From<SealError> for ProtectError {
    fn from(error: SealError) -> Self {
        match error {
            SealError::Exhausted => Self::Exhausted,
            SealError::Length(len) => Self::Length(len),
        }
    }
}

impl From<TooShort> for ProtectError {
    fn from(TooShort: TooShort) -> Self {
        Self::TooShort
    }
}

impl fmt::Display for ProtectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exhausted => SealError::Exhausted.fmt(f),
            Self::Length(len) => write!(f, "a buffer of {len} bytes cannot be sent"),
            Self::TooShort => TooShort.fmt(f),
        }
    }
}

impl core::error::Error for ProtectError {}

/// A frame whose protection is decided, and which has its nonce if it is to be sealed. Nonces are so
/// in the order in which frames take their places, whichever thread seals them, and none is used
/// twice.
#[derive(Debug)]
pub struct Outgoing<B, S = Arc<SigningKey>, E = Arc<SealingKey>> {
    /// [`HEADROOM`] bytes, then the message or the compound.
    pub(super) buffer: B,
    pub(super) sender: Sender,
    pub(super) step: Step<S, E>,
    pub(super) compression: Option<ToCompress<B>>,
}

/// The step that takes long.
#[derive(Debug)]
pub(super) enum Step<S, E> {
    None,
    Sign(Signatures<S>),
    Seal(E, Sealing),
}

/// A frame that is ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Framed<B> {
    /// The buffer with the frame.
    pub buffer: B,
    /// The place of the frame in it, prefix included.
    pub range: Range<usize>,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>, S: AsRef<SigningKey>, E: AsRef<SealingKey>> Outgoing<B, S, E> {
    /// Takes the nonce of a frame that is to be sealed. `buffer` has [`HEADROOM`] bytes before the
    /// message.
    pub fn new(
        buffer: B,
        guard: Guard<S, E>,
        sender: Sender,
        compression: Option<ToCompress<B>>,
    ) -> Result<Self, ProtectError> {
        let step = match guard {
            Guard::None => Step::None,
            Guard::Signed(messages) => Step::Sign(messages),
            Guard::Sealed { key, session_id } => {
                let sealing = Sealing::begin(buffer.as_ref(), key.as_ref(), session_id)?;
                Step::Seal(key, sealing)
            }
        };
        Ok(Self { buffer, sender, step, compression })
    }

    /// Returns the buffer as it is now.
    pub const fn buffer(&self) -> &B {
        &self.buffer
    }

    /// True if the message is to be compressed, into a further buffer of no more bytes.
    pub const fn is_compressed(&self) -> bool {
        self.compression.is_some()
    }

    /// Returns the bytes of the frame, prefix included, if it is not compressed.
    pub fn frame_bytes(&self) -> usize {
        let buffer = self.buffer.as_ref().len();
        match self.step {
            Step::Seal(..) => buffer,
            Step::None | Step::Sign(_) => buffer.saturating_sub(TRANSFORM_HEADER_LEN),
        }
    }

    /// Signs the messages of the frame.
    fn sign(&mut self) -> Result<(), ProtectError> {
        let Step::Sign(messages) = &self.step else { return Ok(()) };
        let messages = messages.iter();
        let keys = messages.map(|Signature { range, key }| Signature { range: range.clone(), key });
        sign_each(self.buffer.as_mut(), keys, self.sender)
    }
}

/// Protects a frame that is not sealed at once: the steps of [`Outgoing`], without a list of its messages.
/// For a short frame, for which neither a batch nor another thread is faster. `messages` are signed;
/// `buffer` has [`HEADROOM`] bytes before them.
pub fn signed_at_once<B, S>(
    mut buffer: B,
    messages: impl IntoIterator<Item = Signature<S>>,
    sender: Sender,
    compression: Option<ToCompress<B>>,
) -> Result<Framed<B>, ProtectError>
where
    B: AsRef<[u8]> + AsMut<[u8]>,
    S: AsRef<SigningKey>,
{
    // MS-SMB2 3.1.4.1: a message is signed first and then compressed.
    sign_each(buffer.as_mut(), messages, sender)?;
    let Framed { buffer, range } = compressed(buffer, compression);
    framed(buffer, range)
}

fn sign_each<S: AsRef<SigningKey>>(
    frame: &mut [u8],
    messages: impl IntoIterator<Item = Signature<S>>,
    sender: Sender,
) -> Result<(), ProtectError> {
    for Signature { range, key } in messages {
        let message = in_buffer(frame, &range).ok_or(ProtectError::TooShort)?;
        signature::sign(message, key.as_ref(), sender)?;
    }
    Ok(())
}

/// Returns the message of a frame that lies behind [`HEADROOM`] bytes of `buffer`.
pub(super) fn in_buffer<'a>(buffer: &'a mut [u8], range: &Range<usize>) -> Option<&'a mut [u8]> {
    buffer.get_mut(HEADROOM..)?.get_mut(range.clone())
}

impl<B> Outgoing<B, &Arc<SigningKey>, &Arc<SealingKey>> {
    /// Makes it work for another thread, for which its keys live on whatever becomes of the session.
    pub fn shared(self) -> Outgoing<B> {
        let Self { buffer, sender, step, compression } = self;
        let step = match step {
            Step::None => Step::None,
            Step::Seal(key, sealing) => Step::Seal(Arc::clone(key), sealing),
            Step::Sign(messages) => {
                let shared = messages
                    .into_iter()
                    .map(|Signature { range, key }| Signature { range, key: Arc::clone(key) });
                Step::Sign(shared.collect())
            }
        };
        Outgoing { buffer, sender, step, compression }
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>, S: AsRef<SigningKey>, E: AsRef<SealingKey>> Work
    for Outgoing<B, S, E>
{
    type Done = Result<Framed<B>, ProtectError>;

    fn bytes(&self) -> usize {
        self.buffer.as_ref().len().saturating_sub(HEADROOM)
    }

    fn algorithm(&self) -> Option<Algorithm> {
        // Compression takes longer than either.
        if let Some(compression) = &self.compression {
            return Some(compression.algorithm());
        }
        match &self.step {
            Step::None => None,
            // All messages of a connection have one signing algorithm, so the first key names it.
            Step::Sign(messages) => {
                let key = &messages.first()?.key;
                Some(Algorithm::Signing(key.as_ref().algorithm()))
            }
            Step::Seal(key, _) => Some(Algorithm::Sealing(key.as_ref().cipher())),
        }
    }

    fn run(mut self) -> Self::Done {
        // MS-SMB2 3.1.4.1: a message is signed first and then compressed.
        self.sign()?;
        let Self { buffer, step, compression, .. } = self;
        let Framed { mut buffer, range: message } = compressed(buffer, compression);
        if let Step::Seal(key, sealing) = step {
            // MS-SMB2 3.1.4.3: a message is compressed first and then encrypted.
            let whole = buffer.as_mut().get_mut(..message.end);
            let whole = whole.ok_or(ProtectError::Length(message.end))?;
            sealing.finish(whole, key.as_ref())?;
            return Ok(Framed { buffer, range: 0..message.end });
        }
        framed(buffer, message)
    }
}

/// Compresses the message behind the headroom, if it is to be; returns its place, which has no prefix yet.
fn compressed<B>(buffer: B, compression: Option<ToCompress<B>>) -> Framed<B>
where
    B: AsRef<[u8]> + AsMut<[u8]>,
{
    match compression {
        None => Framed { range: HEADROOM..buffer.as_ref().len(), buffer },
        Some(compression) => compression.compress(buffer),
    }
}

/// Writes the prefix before a message that is not sealed.
pub(super) fn framed<B: AsRef<[u8]> + AsMut<[u8]>>(
    mut buffer: B,
    message: Range<usize>,
) -> Result<Framed<B>, ProtectError> {
    let wrong = ProtectError::Length(buffer.as_ref().len());
    let prefix = FrameLength::prefix(message.len()).ok_or(wrong)?;
    let start = message.start.checked_sub(PREFIX_LEN).ok_or(wrong)?;
    let place = buffer.as_mut().get_mut(start..message.start).ok_or(wrong)?;
    place.copy_from_slice(&prefix);
    Ok(Framed { buffer, range: start..message.end })
}

#[cfg(test)]
mod tests;
