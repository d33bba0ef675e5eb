//! Encryption of whole messages in place, MS-SMB2 3.1.4.3.

use crate::nonce::{KeyExhausted, Nonce, NonceSequence};
use crate::out_of_memory;
use aes::{Aes128Enc, Aes256Enc};
use alloc::boxed::Box;
use alloc::vec::Vec;
use aws_lc_rs::aead::{self, Aad, LessSafeKey, UnboundKey};
use ccm::{Ccm, Message, NONCE_LEN};
use core::fmt;
use frevo_aes_lanes::Direction;

mod ccm;

/// Length of the tag, the Signature field of a transform header, bytes.
pub const TAG_LEN: usize = 16;

/// Encryption algorithms, MS-SMB2 2.2.3.1.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Cipher {
    /// The only cipher of 3.0 and 3.0.2.
    Aes128Ccm = 1,
    /// Since 3.1.1, on all systems.
    Aes128Gcm = 2,
    /// Since 3.1.1 in Windows Server 2022.
    Aes256Ccm = 3,
    /// Since 3.1.1 in Windows Server 2022.
    Aes256Gcm = 4,
}

impl Cipher {
    /// Returns the cipher with this number in a negotiate context, if it is one of these.
    pub const fn from_id(id: u16) -> Option<Self> {
        match id {
            1 => Some(Self::Aes128Ccm),
            2 => Some(Self::Aes128Gcm),
            3 => Some(Self::Aes256Ccm),
            4 => Some(Self::Aes256Gcm),
            _ => None,
        }
    }

    /// Returns the cipher's number in a negotiate context.
    pub const fn id(self) -> u16 {
        self as u16
    }

    /// Returns the length of its keys in bytes.
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Ccm | Self::Aes128Gcm => 16,
            Self::Aes256Ccm | Self::Aes256Gcm => 32,
        }
    }

    /// Returns the number of bytes of the 16-byte Nonce field that it uses; the rest is zero.
    pub const fn nonce_len(self) -> usize {
        match self {
            Self::Aes128Ccm | Self::Aes256Ccm => 11,
            Self::Aes128Gcm | Self::Aes256Gcm => 12,
        }
    }
}

/// The tag does not match the message: it is damaged, forged, or sealed with another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadSeal;

impl fmt::Display for BadSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the tag does not match the message")
    }
}

impl core::error::Error for BadSeal {}

/// A cipher with an expanded key. Boxed, because the key schedules differ in size and a session
/// holds two for its life.
enum Key {
    Gcm(LessSafeKey),
    Ccm128(Box<Ccm<Aes128Enc>>),
    Ccm256(Box<Ccm<Aes256Enc>>),
}

impl Key {
    /// Expands the first `cipher.key_len()` bytes of `key`.
    fn new(cipher: Cipher, key: &[u8; 32]) -> Self {
        let (short, _) = key.split_at(16);
        let gcm = |algorithm, key| match UnboundKey::new(algorithm, key) {
            Ok(key) => Self::Gcm(LessSafeKey::new(key)),
            Err(_) => out_of_memory(),
        };
        match cipher {
            Cipher::Aes128Gcm => gcm(&aead::AES_128_GCM, short),
            Cipher::Aes256Gcm => gcm(&aead::AES_256_GCM, key),
            Cipher::Aes128Ccm => match short.first_chunk() {
                Some(short) => Self::Ccm128(Box::new(Ccm::new(short.into()))),
                None => out_of_memory(),
            },
            Cipher::Aes256Ccm => Self::Ccm256(Box::new(Ccm::new(key.into()))),
        }
    }

    fn gains_by_batches(&self) -> bool {
        !matches!(self, Self::Gcm(_)) && ccm::gains_by_batches()
    }

    fn seal(&self, nonce: &[u8; 16], aad: &[u8], in_out: &mut [u8]) -> [u8; TAG_LEN] {
        let (gcm, ccm) = split(nonce);
        // The length is always allowed, because a frame has at most 16 MiB, GCM takes 64 GiB, and
        // CCM with nonces of 11 bytes takes 4 GiB.
        let tag = match self {
            Self::Gcm(key) => {
                let nonce = aead::Nonce::assume_unique_for_key(gcm);
                return match key.seal_in_place_separate_tag(nonce, Aad::from(aad), in_out) {
                    Ok(tag) => {
                        let mut bytes = [0; TAG_LEN];
                        bytes.iter_mut().zip(tag.as_ref()).for_each(|(to, from)| *to = *from);
                        bytes
                    }
                    Err(_) => out_of_memory(),
                };
            }
            Self::Ccm128(key) => key.seal(&ccm, aad, in_out),
            Self::Ccm256(key) => key.seal(&ccm, aad, in_out),
        };
        tag.unwrap_or_else(|| out_of_memory())
    }

    fn seal_all(&self, messages: &mut [ToSeal<'_>]) -> Vec<[u8; TAG_LEN]> {
        if let Self::Gcm(_) = self {
            let seal = |m: &mut ToSeal<'_>| self.seal(m.nonce.field(), m.aad, m.in_out);
            return messages.iter_mut().map(seal).collect();
        }
        let message = |m| {
            let ToSeal { nonce, aad, in_out }: &mut ToSeal<'_> = m;
            Message::new(split(nonce.field()).1, aad, in_out).unwrap_or_else(|| out_of_memory())
        };
        let mut all: Vec<Message<'_>> = messages.iter_mut().map(message).collect();
        self.run_ccm(Direction::Seal, &mut all);
        all.into_iter().map(|message| message.tag).collect()
    }

    fn open_all(&self, messages: &mut [ToOpen<'_>]) -> Vec<Result<(), BadSeal>> {
        if let Self::Gcm(_) = self {
            let open = |m: &mut ToOpen<'_>| self.open(m.nonce, m.aad, m.in_out, m.tag);
            return messages.iter_mut().map(open).collect();
        }
        let tags: Vec<&[u8; TAG_LEN]> = messages.iter().map(|m| m.tag).collect();
        let message = |m| {
            let ToOpen { nonce, aad, in_out, .. }: &mut ToOpen<'_> = m;
            Message::new(split(nonce).1, aad, in_out).unwrap_or_else(|| out_of_memory())
        };
        let mut all: Vec<Message<'_>> = messages.iter_mut().map(message).collect();
        self.run_ccm(Direction::Open, &mut all);
        all.into_iter().zip(tags).map(|(message, tag)| message.verify(tag)).collect()
    }

    fn run_ccm(&self, direction: Direction, messages: &mut [Message<'_>]) {
        match self {
            Self::Gcm(_) => {}
            Self::Ccm128(key) => key.run(direction, messages),
            Self::Ccm256(key) => key.run(direction, messages),
        }
    }

    fn open(
        &self,
        nonce: &[u8; 16],
        aad: &[u8],
        in_out: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), BadSeal> {
        let (gcm, ccm) = split(nonce);
        match self {
            Self::Gcm(key) => {
                let nonce = aead::Nonce::assume_unique_for_key(gcm);
                key.open_in_place_separate_tag(nonce, Aad::from(aad), tag, in_out)
                    .map(|_| ())
                    .map_err(|_| BadSeal)
            }
            Self::Ccm128(key) => key.open(&ccm, aad, in_out, tag),
            Self::Ccm256(key) => key.open(&ccm, aad, in_out, tag),
        }
    }
}

/// Returns the parts of the Nonce field that GCM and CCM use.
fn split(nonce: &[u8; 16]) -> ([u8; 12], [u8; NONCE_LEN]) {
    let mut gcm = [0; 12];
    gcm.iter_mut().zip(nonce).for_each(|(to, from)| *to = *from);
    let mut ccm = [0; NONCE_LEN];
    ccm.iter_mut().zip(nonce).for_each(|(to, from)| *to = *from);
    (gcm, ccm)
}

/// A message to be sealed together with others.
pub struct ToSeal<'a> {
    /// A nonce of the key that seals it.
    pub nonce: Nonce,
    /// The data that its tag covers besides itself.
    pub aad: &'a [u8],
    /// The message, which is encrypted in place.
    pub in_out: &'a mut [u8],
}

/// A message to be opened together with others.
pub struct ToOpen<'a> {
    /// The whole Nonce field.
    pub nonce: &'a [u8; 16],
    /// The data that its tag covers besides itself.
    pub aad: &'a [u8],
    /// The message, which is decrypted in place.
    pub in_out: &'a mut [u8],
    /// The received tag.
    pub tag: &'a [u8; TAG_LEN],
}

/// The key with which one side seals all its messages of a session, and its nonces. All channels of
/// the session use it.
pub struct SealingKey {
    key: Key,
    cipher: Cipher,
    nonces: NonceSequence,
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealingKey({:?})", self.cipher)
    }
}

impl SealingKey {
    /// Expands the first [`Cipher::key_len`] bytes of `key`.
    ///
    /// Only one SealingKey may ever be made of a key: its nonces begin again with it.
    pub fn new(cipher: Cipher, key: &[u8; 32]) -> Self {
        Self { key: Key::new(cipher, key), cipher, nonces: NonceSequence::new() }
    }

    /// Returns the cipher of the key.
    pub const fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// True if several messages at once are faster than one after the other. That needs a processor
    /// with instructions for AES.
    pub fn gains_by_batches(&self) -> bool {
        self.key.gains_by_batches()
    }

    /// Returns the nonce of the next message. It goes into the transform header, which
    /// [`Self::seal`] authenticates.
    pub fn next_nonce(&self) -> Result<Nonce, KeyExhausted> {
        self.nonces.next_nonce()
    }

    /// Returns the number of messages that may still be sealed.
    pub fn remaining(&self) -> u64 {
        self.nonces.remaining()
    }

    /// Encrypts `in_out` in place and returns the tag, which covers it and `aad`. `nonce` comes
    /// from this key's [`Self::next_nonce`].
    #[allow(clippy::needless_pass_by_value)] // taken by value, so that a nonce is used once
    pub fn seal(&self, nonce: Nonce, aad: &[u8], in_out: &mut [u8]) -> [u8; TAG_LEN] {
        self.key.seal(nonce.field(), aad, in_out)
    }

    /// Seals each of several messages like [`Self::seal`] and returns their tags. CCM seals eight of
    /// similar length in little more time than one; GCM gains nothing.
    pub fn seal_all(&self, mut messages: Vec<ToSeal<'_>>) -> Vec<[u8; TAG_LEN]> {
        self.key.seal_all(&mut messages)
    }
}

/// The key that opens messages of the peer.
pub struct OpeningKey {
    key: Key,
    cipher: Cipher,
}

impl fmt::Debug for OpeningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpeningKey({:?})", self.cipher)
    }
}

impl OpeningKey {
    /// Expands the first [`Cipher::key_len`] bytes of `key`.
    pub fn new(cipher: Cipher, key: &[u8; 32]) -> Self {
        Self { key: Key::new(cipher, key), cipher }
    }

    /// Returns the cipher of the key.
    pub const fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// True if several messages at once are faster than one after the other. That needs a processor
    /// with instructions for AES.
    pub fn gains_by_batches(&self) -> bool {
        self.key.gains_by_batches()
    }

    /// Decrypts `in_out` in place if `tag` matches it and `aad`; compares in constant time. `nonce`
    /// is the whole Nonce field. After [`BadSeal`] the contents of `in_out` are unspecified and
    /// must not be used.
    pub fn open(
        &self,
        nonce: &[u8; 16],
        aad: &[u8],
        in_out: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), BadSeal> {
        self.key.open(nonce, aad, in_out, tag)
    }

    /// Opens each of several messages like [`Self::open`], each with its own result. CCM opens eight of
    /// similar length in little more time than one; GCM gains nothing.
    pub fn open_all(&self, mut messages: Vec<ToOpen<'_>>) -> Vec<Result<(), BadSeal>> {
        self.key.open_all(&mut messages)
    }
}

#[cfg(test)]
mod tests;
