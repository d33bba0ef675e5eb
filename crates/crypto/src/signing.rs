//! Message signatures, MS-SMB2 3.1.4.1 and 3.1.5.1.

use crate::out_of_memory;
use alloc::boxed::Box;
use alloc::vec::Vec;
use aws_lc_rs::aead::{self, LessSafeKey, UnboundKey};
use aws_lc_rs::{constant_time, hmac};
use cmac::Cmac;
use core::fmt;
use core::ops::Range;

mod cmac;

/// Length of the Signature field, bytes.
pub const SIGNATURE_LEN: usize = 16;

/// Position of the Signature in an SMB2 message.
pub const SIGNATURE_RANGE: Range<usize> = 48..64;

/// Signing algorithms, MS-SMB2 2.2.3.1.7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum SigningAlgorithm {
    /// The algorithm of 2.0.2 and 2.1.
    HmacSha256 = 0,
    /// The algorithm of 3.0 and 3.0.2, and of 3.1.1 without a negotiated one.
    AesCmac = 1,
    /// Only for 3.1.1, and the fastest.
    AesGmac = 2,
}

impl SigningAlgorithm {
    /// Returns the algorithm with this number in a negotiate context, if it is one of these.
    pub const fn from_id(id: u16) -> Option<Self> {
        match id {
            0 => Some(Self::HmacSha256),
            1 => Some(Self::AesCmac),
            2 => Some(Self::AesGmac),
            _ => None,
        }
    }

    /// Returns the algorithm's number in a negotiate context.
    pub const fn id(self) -> u16 {
        self as u16
    }
}

/// The side that sends a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sender {
    /// The sender of requests.
    Client,
    /// The sender of responses and notifications.
    Server,
}

/// The parts of a message's GMAC nonce, MS-SMB2 3.1.4.1. The other algorithms do not use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignatureNonce {
    /// The MessageId of the header.
    pub message_id: u64,
    /// The side that sends the message.
    pub sender: Sender,
    /// True for a CANCEL request, which has the MessageId of the request that it cancels.
    pub is_cancel: bool,
}

impl SignatureNonce {
    fn to_bytes(self) -> [u8; 12] {
        let sender = match self.sender {
            Sender::Client => 0,
            Sender::Server => 1,
        };
        let flags: u32 = sender | if self.is_cancel { 2 } else { 0 };
        let mut nonce = [0; 12];
        if let Some(first) = nonce.first_chunk_mut() {
            *first = self.message_id.to_le_bytes();
        }
        if let Some(last) = nonce.last_chunk_mut() {
            *last = flags.to_le_bytes();
        }
        nonce
    }
}

/// The GMAC nonce of data outside of a message, MS-SMB2 2.2.43.1. It cannot be copied or cloned, and
/// signing takes it, so it is used once.
#[derive(Debug, PartialEq, Eq)]
pub struct DataNonce([u8; Self::LEN]);

impl DataNonce {
    /// Length in bytes.
    pub const LEN: usize = 12;

    /// Bit that no message's nonce has, MS-SMB2 3.1.4.1.
    const DATA: u32 = 4;

    /// Makes a nonce of a number that the sender gives to no other data under its key.
    pub fn new(number: u64, sender: Sender) -> Self {
        let message = SignatureNonce { message_id: number, sender, is_cancel: false };
        let mut nonce = message.to_bytes();
        if let Some(last) = nonce.last_chunk_mut() {
            *last = (u32::from_le_bytes(*last) | Self::DATA).to_le_bytes();
        }
        Self(nonce)
    }

    /// Returns the bytes of the Nonce field.
    pub const fn field(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

/// The message is too short for an SMB2 header, so it cannot be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooShort;

impl fmt::Display for TooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message shorter than its header cannot be signed")
    }
}

impl core::error::Error for TooShort {}

/// A signing key, expanded. Wiped when dropped.
pub struct SigningKey(Key);

enum Key {
    /// Boxed: its context is forty times as large as the other variants.
    Hmac(Box<hmac::Key>),
    Cmac(Box<Cmac>),
    Gmac(LessSafeKey),
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({:?})", self.algorithm())
    }
}

impl SigningKey {
    /// Expands `key` for `algorithm`.
    pub fn new(algorithm: SigningAlgorithm, key: &[u8; 16]) -> Self {
        Self(match algorithm {
            SigningAlgorithm::HmacSha256 => {
                Key::Hmac(Box::new(hmac::Key::new(hmac::HMAC_SHA256, key)))
            }
            SigningAlgorithm::AesCmac => Key::Cmac(Box::new(Cmac::new(key))),
            SigningAlgorithm::AesGmac => match UnboundKey::new(&aead::AES_128_GCM, key) {
                Ok(key) => Key::Gmac(LessSafeKey::new(key)),
                Err(_) => out_of_memory(),
            },
        })
    }

    /// Returns the key's algorithm.
    pub const fn algorithm(&self) -> SigningAlgorithm {
        match self.0 {
            Key::Hmac(_) => SigningAlgorithm::HmacSha256,
            Key::Cmac(_) => SigningAlgorithm::AesCmac,
            Key::Gmac(_) => SigningAlgorithm::AesGmac,
        }
    }

    /// True if several messages at once are faster than one after the other. That needs a processor
    /// with instructions for AES.
    pub fn gains_by_batches(&self) -> bool {
        matches!(self.0, Key::Cmac(_)) && aes::hardware_accelerated()
    }

    /// Signs `message`, which begins with its SMB2 header and ends with its last byte or the
    /// padding before the next one of the compound. Overwrites its Signature field.
    ///
    /// With GMAC two different messages must never be signed with one nonce: interim responses and
    /// notifications stay unsigned (MS-SMB2 3.3.4.1.1).
    pub fn sign(&self, message: &mut [u8], nonce: SignatureNonce) -> Result<(), TooShort> {
        message.get_mut(SIGNATURE_RANGE).ok_or(TooShort)?.fill(0);
        let signature = self.signature(&[message], nonce);
        message.get_mut(SIGNATURE_RANGE).ok_or(TooShort)?.copy_from_slice(&signature);
        Ok(())
    }

    /// Signs each of several messages like [`Self::sign`]. AES-CMAC signs eight of similar length in
    /// little more time than one; the other algorithms gain nothing.
    ///
    /// A message that is too short leaves the later ones unsigned.
    pub fn sign_all(&self, messages: &mut [(&mut [u8], SignatureNonce)]) -> Result<(), TooShort> {
        let Key::Cmac(key) = &self.0 else {
            return messages.iter_mut().try_for_each(|(message, nonce)| self.sign(message, *nonce));
        };
        for (message, _) in &mut *messages {
            message.get_mut(SIGNATURE_RANGE).ok_or(TooShort)?.fill(0);
        }
        let plain: Vec<&[u8]> = messages.iter().map(|(message, _)| &**message).collect();
        let mut signatures = Vec::with_capacity(plain.len());
        key.of_all(&plain, |signature| signatures.push(signature));
        for ((message, _), signature) in messages.iter_mut().zip(&signatures) {
            message.get_mut(SIGNATURE_RANGE).ok_or(TooShort)?.copy_from_slice(signature);
        }
        Ok(())
    }

    /// True if the Signature of `message` is right; takes constant time. The field is zero during
    /// the computation and restored afterwards, because the pre-authentication hash needs the
    /// message as received.
    pub fn verify(&self, message: &mut [u8], nonce: SignatureNonce) -> bool {
        let Some(field) = message.get_mut(SIGNATURE_RANGE) else { return false };
        let mut received = [0; SIGNATURE_LEN];
        received.copy_from_slice(field);
        field.fill(0);
        let signature = self.signature(&[message], nonce);
        if let Some(field) = message.get_mut(SIGNATURE_RANGE) {
            field.copy_from_slice(&received);
        }
        constant_time::verify_slices_are_equal(&signature, &received).is_ok()
    }

    /// Verifies each of several messages like [`Self::verify`]. AES-CMAC verifies eight of similar
    /// length in little more time than one; the other algorithms gain nothing.
    pub fn verify_all(&self, messages: &mut [(&mut [u8], SignatureNonce)]) -> Vec<bool> {
        let Key::Cmac(key) = &self.0 else {
            return messages
                .iter_mut()
                .map(|(message, nonce)| self.verify(message, *nonce))
                .collect();
        };
        let take = |message: &mut [u8]| {
            let field = message.get_mut(SIGNATURE_RANGE)?.first_chunk_mut::<SIGNATURE_LEN>()?;
            Some(core::mem::take(field))
        };
        let received: Vec<Option<[u8; SIGNATURE_LEN]>> =
            messages.iter_mut().map(|(message, _)| take(message)).collect();
        let plain: Vec<&[u8]> = messages.iter().map(|(message, _)| &**message).collect();
        let mut verdicts = Vec::with_capacity(plain.len());
        let mut all = received.iter();
        key.of_all(&plain, |signature| {
            let is_right = all.next().is_some_and(|received| {
                received.is_some_and(|received| {
                    constant_time::verify_slices_are_equal(&signature, &received).is_ok()
                })
            });
            verdicts.push(is_right);
        });
        for ((message, _), received) in messages.iter_mut().zip(received) {
            if let (Some(field), Some(received)) = (message.get_mut(SIGNATURE_RANGE), received) {
                field.copy_from_slice(&received);
            }
        }
        verdicts
    }

    /// Returns the signature of a message in several pieces (a header in one buffer, a payload in
    /// another). Its Signature field must contain zeros.
    ///
    /// GMAC takes its input in one piece, so several pieces that are not empty are copied.
    pub fn signature(&self, parts: &[&[u8]], nonce: SignatureNonce) -> [u8; SIGNATURE_LEN] {
        let mut signature = [0; SIGNATURE_LEN];
        match &self.0 {
            Key::Hmac(key) => {
                let mut context = hmac::Context::with_key(key);
                parts.iter().for_each(|part| context.update(part));
                let tag = context.sign();
                // MS-SMB2 3.1.4.1: the signature has 16 bytes, the first half of the HMAC.
                signature.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
            }
            Key::Cmac(key) => return key.of(parts),
            Key::Gmac(key) => {
                let joined;
                let message = match parts {
                    [] => &[][..],
                    [message] => message,
                    _ => {
                        joined = parts.concat();
                        &joined
                    }
                };
                return gmac(key, nonce.to_bytes(), message);
            }
        }
        signature
    }

    /// Returns the signature of data outside of a message, MS-SMB2 3.2.4.7. `None` if the key's
    /// algorithm is not AES-GMAC: the others have no nonce that tells data from messages, so that
    /// the signature of a file's content could be that of a message which nobody has sent.
    #[allow(clippy::needless_pass_by_value)] // taken by value, so that a nonce is used once
    pub fn data_signature(&self, data: &[u8], nonce: DataNonce) -> Option<[u8; SIGNATURE_LEN]> {
        match &self.0 {
            Key::Gmac(key) => Some(gmac(key, nonce.0, data)),
            _ => None,
        }
    }

    /// True if `signature` is that of `data` outside of a message; takes constant time. `nonce` is
    /// the peer's choice. Always false for a key of another algorithm than AES-GMAC.
    pub fn verifies_data(
        &self,
        data: &[u8],
        nonce: &[u8; DataNonce::LEN],
        signature: &[u8; SIGNATURE_LEN],
    ) -> bool {
        match &self.0 {
            Key::Gmac(key) => {
                let right = gmac(key, *nonce, data);
                constant_time::verify_slices_are_equal(&right, signature).is_ok()
            }
            _ => false,
        }
    }
}

fn gmac(key: &LessSafeKey, nonce: [u8; 12], message: &[u8]) -> [u8; SIGNATURE_LEN] {
    let nonce = aead::Nonce::assume_unique_for_key(nonce);
    let Ok(tag) = key.seal_in_place_separate_tag(nonce, aead::Aad::from(message), &mut []) else {
        out_of_memory()
    };
    let mut signature = [0; SIGNATURE_LEN];
    signature.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
    signature
}

#[cfg(test)]
mod tests;
