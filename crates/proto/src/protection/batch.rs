//! Messages that are protected side by side.
//!
//! AES-CMAC and AES-CCM are chains: each block waits for the one before it. Eight messages of similar
//! length that are signed or sealed together take little longer than one.

use alloc::sync::Arc;
use alloc::vec::Vec;

use frevo_crypto::{SealingKey, SigningKey};

use super::outgoing::{Step, framed, in_buffer};
use super::transform::{HEADROOM, Sealing};
use super::{Framed, Outgoing, ProtectError, Signature, Work, signature};
use crate::limits::{
    CRYPTO_GAINS_BYTES_MIN, PROTECTED_TOGETHER, PROTECTED_TOGETHER_BYTES_MAX, TOGETHER_BYTES_MIN,
};

/// Returns true if a message of `bytes` is better protected or checked together with others, where
/// its key gains by that. The longest ones may be protected or checked elsewhere.
pub fn is_batched(bytes: usize) -> bool {
    (TOGETHER_BYTES_MIN..CRYPTO_GAINS_BYTES_MIN).contains(&bytes)
}

impl<B, S, E> Outgoing<B, S, E>
where
    B: AsRef<[u8]> + AsMut<[u8]>,
    S: AsRef<SigningKey>,
    E: AsRef<SealingKey>,
{
    /// True if the frame is better protected in a [`Batch`]. A signed one is a single message. Those that
    /// are compressed go alone.
    pub fn gains_by_batches(&self) -> bool {
        let gains = match &self.step {
            Step::None => false,
            Step::Sign(messages) => match messages.as_slice() {
                [Signature { range, key }] => {
                    range.start == 0 && range.end == self.bytes() && key.as_ref().gains_by_batches()
                }
                _ => false,
            },
            Step::Seal(key, _) => key.as_ref().gains_by_batches(),
        };
        gains && self.compression.is_none() && is_batched(self.bytes())
    }
}

/// Frames of one key that wait to be protected together. They leave in the order in which they
/// came.
#[derive(Debug)]
pub struct Batch<B> {
    frames: Vec<Outgoing<B>>,
    bytes: usize,
}

impl<B> Default for Batch<B> {
    fn default() -> Self {
        Self { frames: Vec::new(), bytes: 0 }
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Batch<B> {
    /// True without frames.
    pub const fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the number of frames.
    pub const fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns the buffers of the frames.
    pub fn buffers(&self) -> impl Iterator<Item = &B> {
        self.frames.iter().map(Outgoing::buffer)
    }

    /// True if `frame` has the key of the frames that wait, or none waits.
    pub fn accepts(&self, frame: &Outgoing<B>) -> bool {
        let Some(first) = self.frames.first() else { return true };
        match (&first.step, &frame.step) {
            (Step::Sign(first), Step::Sign(other)) => {
                let keys = first.first().zip(other.first());
                keys.is_some_and(|(first, other)| Arc::ptr_eq(&first.key, &other.key))
            }
            (Step::Seal(first, _), Step::Seal(other, _)) => Arc::ptr_eq(first, other),
            _ => false,
        }
    }

    /// Adds a frame that [gains](Outgoing::gains_by_batches) and is [accepted](Self::accepts). Returns
    /// true if the batch is full.
    pub fn push(&mut self, frame: Outgoing<B>) -> bool {
        self.bytes = self.bytes.saturating_add(frame.bytes());
        self.frames.push(frame);
        self.frames.len() >= PROTECTED_TOGETHER || self.bytes >= PROTECTED_TOGETHER_BYTES_MAX
    }

    /// Protects the frames. After an error none may be sent.
    pub fn run(mut self) -> Result<Vec<Framed<B>>, ProtectError> {
        match self.frames.first().map(|first| &first.step) {
            None => return Ok(Vec::new()),
            Some(Step::Sign(_)) => self.sign()?,
            Some(Step::Seal(..)) => return self.seal(),
            Some(Step::None) => {}
        }
        let framed = self.frames.into_iter().map(|frame| {
            let message = HEADROOM..frame.buffer.as_ref().len();
            framed(frame.buffer, message)
        });
        framed.collect()
    }

    fn sign(&mut self) -> Result<(), ProtectError> {
        let mut key = None;
        let mut sender = None;
        let mut messages = Vec::with_capacity(self.frames.len());
        for frame in &mut self.frames {
            let Step::Sign(parts) = &frame.step else { continue };
            let Some(Signature { range, key: signer }) = parts.first() else { continue };
            let message = in_buffer(frame.buffer.as_mut(), range);
            messages.push(message.ok_or(ProtectError::TooShort)?);
            (key, sender) = (Some(&**signer), Some(frame.sender));
        }
        let (Some(key), Some(sender)) = (key, sender) else { return Ok(()) };
        Ok(signature::sign_all(&mut messages, key, sender)?)
    }

    fn seal(self) -> Result<Vec<Framed<B>>, ProtectError> {
        let mut sealer = None;
        let mut sealings: Vec<Sealing> = Vec::with_capacity(self.frames.len());
        let mut buffers = Vec::with_capacity(self.frames.len());
        for frame in self.frames {
            let Step::Seal(key, sealing) = frame.step else { continue };
            sealer.get_or_insert(key);
            sealings.push(sealing);
            buffers.push(frame.buffer);
        }
        let Some(key) = sealer else { return Ok(Vec::new()) };
        let to_seal = sealings.into_iter().zip(buffers.iter_mut().map(AsMut::as_mut));
        Sealing::finish_all(to_seal, &key)?;
        let framed = buffers.into_iter().map(|buffer| {
            let range = 0..buffer.as_ref().len();
            Framed { buffer, range }
        });
        Ok(framed.collect())
    }
}
