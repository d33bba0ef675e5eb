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

/// Where the Signature lies in an SMB2 message.
pub const SIGNATURE_RANGE: Range<usize> = 48..64;

/// How messages are signed, MS-SMB2 2.2.3.1.7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum SigningAlgorithm {
    /// What 2.0.2 and 2.1 sign with.
    HmacSha256 = 0,
    /// What 3.0 and 3.0.2 sign with, and 3.1.1 where nothing is negotiated.
    AesCmac = 1,
    /// 3.1.1 only, and the fastest.
    AesGmac = 2,
}

impl SigningAlgorithm {
    /// The algorithm that a negotiate context names, if it is one of these.
    pub const fn from_id(id: u16) -> Option<Self> {
        match id {
            0 => Some(Self::HmacSha256),
            1 => Some(Self::AesCmac),
            2 => Some(Self::AesGmac),
            _ => None,
        }
    }

    /// Its number in a negotiate context.
    pub const fn id(self) -> u16 {
        self as u16
    }
}

/// Which side a message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sender {
    /// Requests.
    Client,
    /// Responses and notifications.
    Server,
}

/// What makes the GMAC nonce of a message, MS-SMB2 3.1.4.1. The other
/// algorithms do not look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignatureNonce {
    /// The MessageId of the header.
    pub message_id: u64,
    /// Who sends the message.
    pub sender: Sender,
    /// Whether it is a CANCEL request, which shares the MessageId of what it
    /// cancels.
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
        let bytes = self.message_id.to_le_bytes().into_iter().chain(flags.to_le_bytes());
        for (to, from) in nonce.iter_mut().zip(bytes) {
            *to = from;
        }
        nonce
    }
}

/// A message too short to hold an SMB2 header cannot be signed.
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
    /// Boxed: its context is forty times the size of the others'.
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

    /// What it signs with.
    pub const fn algorithm(&self) -> SigningAlgorithm {
        match self.0 {
            Key::Hmac(_) => SigningAlgorithm::HmacSha256,
            Key::Cmac(_) => SigningAlgorithm::AesCmac,
            Key::Gmac(_) => SigningAlgorithm::AesGmac,
        }
    }

    /// Signs `message`, which begins with its SMB2 header and ends with its
    /// last byte or the padding before the next one of the compound: writes
    /// the signature over whatever its Signature field holds.
    ///
    /// With GMAC two different messages must never be signed with one nonce:
    /// interim responses and notifications go unsigned (MS-SMB2 3.3.4.1.1).
    pub fn sign(&self, message: &mut [u8], nonce: SignatureNonce) -> Result<(), TooShort> {
        message.get_mut(SIGNATURE_RANGE).ok_or(TooShort)?.fill(0);
        let signature = self.signature(&[message], nonce);
        message.get_mut(SIGNATURE_RANGE).ok_or(TooShort)?.copy_from_slice(&signature);
        Ok(())
    }

    /// Signs each of several messages as [`Self::sign`] does. AES-CMAC signs four of about
    /// the same length in hardly more time than one of them; the others gain nothing.
    ///
    /// One that is too short leaves the rest unsigned.
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

    /// Whether the Signature of `message` is right, in time that does not
    /// depend on where it differs. The field is zero while it is computed and
    /// then as it was: the pre-authentication hash may still want the message
    /// as it was received.
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

    /// The signature of a message that lies in several pieces (a header in one
    /// buffer, a payload in another); its Signature field must hold zeros.
    ///
    /// GMAC takes its input in one piece only, so that it copies when there
    /// is more than one that is not empty.
    pub fn signature(&self, parts: &[&[u8]], nonce: SignatureNonce) -> [u8; SIGNATURE_LEN] {
        let mut signature = [0; SIGNATURE_LEN];
        match &self.0 {
            Key::Hmac(key) => {
                let mut context = hmac::Context::with_key(key);
                parts.iter().for_each(|part| context.update(part));
                let tag = context.sign();
                // The first half of the 32 bytes, MS-SMB2 3.1.4.1.
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
                let nonce = aead::Nonce::assume_unique_for_key(nonce.to_bytes());
                let aad = aead::Aad::from(message);
                let Ok(tag) = key.seal_in_place_separate_tag(nonce, aad, &mut []) else {
                    out_of_memory()
                };
                signature.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
            }
        }
        signature
    }
}

#[cfg(test)]
mod tests;
