//! Received frames: unseal -> [expand] -> verify, MS-SMB2 3.1.5.1, 3.2.5.1.1 and 3.3.5.2.1. `expanding`
//! has the step in brackets.
//!
//! A frame may be checked before its turn: together with others, or by another thread. The result,
//! a [`Verdict`], is looked at in the frame's turn, after all that is checked before it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use frevo_crypto::{OpeningKey, Sender, SigningKey};
use frevo_wire::compound::Compound;
use frevo_wire::compression::COMPRESSION_PROTOCOL_ID;
use frevo_wire::header::PROTOCOL_ID;
use frevo_wire::transform::TRANSFORM_PROTOCOL_ID;
use smallvec::SmallVec;

use super::{Algorithm, Work, signature, transform};
use crate::Disconnect;
use crate::limits::VERIFIED_AHEAD;

/// Position of SessionId in the transform header.
const SESSION_ID: Range<usize> = 44..52;

/// The form of a frame (without its prefix) by its ProtocolId.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A message or a compound.
    Message,
    /// A sealed one, with the SessionId in its transform header: 0 if it is too short for that.
    Sealed(u64),
    /// A compressed one that is not sealed.
    Compressed,
    /// Nothing that SMB 2 or 3 sends.
    Unknown,
}

impl Form {
    /// Returns the form of `frame`.
    pub fn of(frame: &[u8]) -> Self {
        match frame.first_chunk() {
            Some(&PROTOCOL_ID) => Self::Message,
            Some(&TRANSFORM_PROTOCOL_ID) => {
                let field = frame.get(SESSION_ID).and_then(<[u8]>::first_chunk);
                Self::Sealed(field.map_or(0, |field| u64::from_le_bytes(*field)))
            }
            Some(&COMPRESSION_PROTOCOL_ID) => Self::Compressed,
            _ => Self::Unknown,
        }
    }
}

/// The way in which a frame proves its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The Signatures of its messages.
    Signature,
    /// The tag in its transform header.
    Seal,
}

/// The check of a frame, with its key.
#[derive(Debug, Clone)]
pub enum Check<S = Arc<SigningKey>, O = Arc<OpeningKey>> {
    /// Verifies each message that is signed, with this key.
    Signature(S),
    /// Decrypts the frame.
    Seal {
        /// Session.DecryptionKey
        key: O,
        /// Session.SessionId. A frame that is sealed for another session is left alone.
        session_id: u64,
    },
}

impl<S: AsRef<SigningKey>, O: AsRef<OpeningKey>> Check<S, O> {
    /// Returns the way of the proof.
    pub const fn proof(&self) -> Proof {
        match self {
            Self::Signature(_) => Proof::Signature,
            Self::Seal { .. } => Proof::Seal,
        }
    }

    /// Returns the algorithm of the key.
    pub fn algorithm(&self) -> Algorithm {
        match self {
            Self::Signature(key) => Algorithm::Signing(key.as_ref().algorithm()),
            Self::Seal { key, .. } => Algorithm::Sealing(key.as_ref().cipher()),
        }
    }

    /// True if several frames at once are faster than one after the other.
    pub fn gains_by_batches(&self) -> bool {
        match self {
            Self::Signature(key) => key.as_ref().gains_by_batches(),
            Self::Seal { key, .. } => key.as_ref().gains_by_batches(),
        }
    }
}

/// The result for one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    proof: Proof,
    /// The bit of each message is set if its signature is right. A sealed frame has one bit.
    right: u128,
}

// `Verdict::right` is an integer of 128 bits, one for each message that is verified ahead.
const _: () = assert!(VERIFIED_AHEAD == 128);

impl Verdict {
    /// True if the signature of the `at`th message is right. None if signatures were not checked.
    pub fn signature(&self, at: u8) -> Option<bool> {
        let is_right = self.right.checked_shr(at.into()).is_some_and(|right| right & 1 == 1);
        (self.proof == Proof::Signature).then_some(is_right)
    }

    /// True if the tag of the frame, which is decrypted, is right. None if it was not decrypted.
    pub fn seal(&self) -> Option<bool> {
        (self.proof == Proof::Seal).then_some(self.right != 0)
    }
}

/// A frame that was received, with its result if it was checked. A malformed frame has none and was
/// left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received<B> {
    /// The frame without its prefix.
    pub frame: B,
    /// The result of its check.
    pub verdict: Option<Verdict>,
}

/// Received frames that are to be checked with one key.
#[derive(Debug)]
pub struct Incoming<B, S = Arc<SigningKey>, O = Arc<OpeningKey>> {
    frames: SmallVec<[Received<B>; 1]>,
    check: Check<S, O>,
    from: Sender,
}

impl<B, S, O> Incoming<B, S, O>
where
    B: AsRef<[u8]> + AsMut<[u8]>,
    S: AsRef<SigningKey>,
    O: AsRef<OpeningKey>,
{
    /// Frames of `from`, in their order.
    pub fn new(frames: impl IntoIterator<Item = B>, check: Check<S, O>, from: Sender) -> Self {
        let frames = frames.into_iter().map(|frame| Received { frame, verdict: None });
        Self { frames: frames.collect(), check, from }
    }

    fn check_one(check: &Check<S, O>, frame: &mut [u8], from: Sender) -> Option<Verdict> {
        let right = match check {
            Check::Signature(key) => verify_messages(frame, key.as_ref(), from),
            Check::Seal { key, session_id } if Form::of(frame) == Form::Sealed(*session_id) => {
                u128::from(transform::decrypt_frame(frame, key.as_ref())?)
            }
            Check::Seal { .. } => return None,
        };
        Some(Verdict { proof: check.proof(), right })
    }

    /// Checks several frames side by side. A compound has a signature for each message, and is not
    /// among them.
    fn check_together(&mut self) {
        let (check, from) = (&self.check, self.from);
        let proof = check.proof();
        let is_covered = |frame: &[u8]| match check {
            Check::Signature(_) => Compound::new(frame).nth(1).is_none(),
            Check::Seal { session_id, .. } => Form::of(frame) == Form::Sealed(*session_id),
        };
        let (mut covered, mut verdicts) = (Vec::new(), Vec::new());
        for Received { frame, verdict } in &mut self.frames {
            let frame = frame.as_mut();
            if is_covered(frame) {
                covered.push(frame);
                verdicts.push(verdict);
            } else {
                *verdict = Self::check_one(check, frame, from);
            }
        }
        let verdict = |is_right| Verdict { proof, right: u128::from(is_right) };
        match check {
            Check::Signature(key) => {
                let right = signature::verify_all(&mut covered, key.as_ref(), from);
                for (place, is_right) in verdicts.into_iter().zip(right) {
                    *place = Some(verdict(is_right));
                }
            }
            Check::Seal { key, .. } => {
                let right = transform::decrypt_frames(&mut covered, key.as_ref());
                for (place, is_right) in verdicts.into_iter().zip(right) {
                    *place = is_right.map(verdict);
                }
            }
        }
    }
}

/// Verifies the messages of a frame. The bit of each that is signed and right is set.
fn verify_messages(frame: &mut [u8], key: &SigningKey, from: Sender) -> u128 {
    let parts = Compound::new(frame).take(VERIFIED_AHEAD).map_while(Result::ok);
    let ranges: SmallVec<[Range<usize>; 4]> =
        parts.map(|(offset, message)| offset..offset.saturating_add(message.len())).collect();
    let mut right = 0;
    for (at, range) in (0..u128::BITS).zip(ranges) {
        let message = frame.get_mut(range).unwrap_or_default();
        let bit = u128::from(signature::verify(message, key, from));
        right |= bit.checked_shl(at).unwrap_or(0);
    }
    right
}

impl<B, S, O> Work for Incoming<B, S, O>
where
    B: AsRef<[u8]> + AsMut<[u8]>,
    S: AsRef<SigningKey>,
    O: AsRef<OpeningKey>,
{
    type Done = SmallVec<[Received<B>; 1]>;

    fn bytes(&self) -> usize {
        let len = |received: &Received<B>| received.frame.as_ref().len();
        self.frames.iter().map(len).fold(0, usize::saturating_add)
    }

    fn algorithm(&self) -> Option<Algorithm> {
        Some(self.check.algorithm())
    }

    fn run(mut self) -> Self::Done {
        if let [Received { frame, verdict }] = self.frames.as_mut_slice() {
            *verdict = Self::check_one(&self.check, frame.as_mut(), self.from);
        } else {
            self.check_together();
        }
        self.frames
    }
}

/// A frame that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The place of the message or the compound in the frame. Its signatures are not looked at yet.
    pub message: Range<usize>,
    /// Request.TransformSessionId; the session whose key has opened the frame.
    pub sealed_for: Option<u64>,
}

/// Opens a frame in its turn: unseals it, unless the `verdict` says that it was decrypted before. All
/// rules of MS-SMB2 3.3.5.2.1 (a request, from the client) and 3.2.5.1.1 (an answer) are checked. A
/// frame that is compressed here still comes over a connection that has negotiated no compression.
///
/// `key_of` returns the key for messages of the peer in a session; None for an unknown session on
/// this Connection, or one without keys (guest, anonymous, still being set up).
pub fn open<O: AsRef<OpeningKey>>(
    frame: &mut [u8],
    verdict: Option<Verdict>,
    from: Sender,
    key_of: impl FnOnce(u64) -> Option<O>,
) -> Result<Opened, Disconnect> {
    match Form::of(frame) {
        Form::Message | Form::Unknown => Ok(Opened { message: 0..frame.len(), sealed_for: None }),
        Form::Compressed => Err(Disconnect::Compressed),
        Form::Sealed(_) => {
            let unsealed = match verdict.and_then(|verdict| verdict.seal()) {
                Some(is_right) => transform::conclude_frame(frame, is_right, from)?,
                None => {
                    let key = |session_id| key_of(session_id).map(ByRef);
                    transform::unseal_frame(frame, from, key)?
                }
            };
            Ok(Opened { message: unsealed.message, sealed_for: Some(unsealed.session_id) })
        }
    }
}

/// A key, however it is held.
struct ByRef<O>(O);

impl<O: AsRef<OpeningKey>> core::ops::Deref for ByRef<O> {
    type Target = OpeningKey;

    fn deref(&self) -> &OpeningKey {
        self.0.as_ref()
    }
}

#[cfg(test)]
mod tests;
