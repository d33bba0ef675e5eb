//! New passwords for SAMR, sealed with AES under the hash of the old one: MS-SAMR 2.2.6.32,
//! 3.2.2.4 and 3.2.2.5.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes256Dec, Aes256Enc, Block};
use aws_lc_rs::pbkdf2::{self, PBKDF2_HMAC_SHA512};
use aws_lc_rs::{constant_time, hmac};
use zeroize::Zeroizing;

use crate::limits::{PASSWORD_ITERATIONS_MAX, PASSWORD_ITERATIONS_MIN};

/// SAM_AES256_ENC_KEY_STRING and SAM_AES256_MAC_KEY_STRING with their NUL, MS-SAMR 2.2.1.18.
const ENC_KEY: &[u8] = b"Microsoft SAM encryption key AEAD-AES-256-CBC-HMAC-SHA512 16\0";
const MAC_KEY: &[u8] = b"Microsoft SAM MAC key AEAD-AES-256-CBC-HMAC-SHA512 16\0";

/// Versionbyte, and its length.
const VERSION: [u8; 1] = [1];

/// Bytes of the field for the password: SAM_MAX_PASSWORD_LENGTH UTF-16 units.
pub const PASSWORD_FIELD: usize = 512;

/// Bytes of SAMPR_USER_PASSWORD_AES.
const CLEAR: usize = PASSWORD_FIELD + 2;

/// Bytes of [`SealedPassword::cipher`]: the structure, padded to whole blocks (PKCS #7).
pub const SEALED_PASSWORD: usize = 528;

/// Bytes of padding, each of this value.
const PADDING: u8 = 14;

const BLOCK: usize = 16;

/// SAMPR_ENCRYPTED_PASSWORD_AES: a password, sealed under the NT hash of another one.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedPassword {
    /// AuthData
    pub auth_data: [u8; 64],
    /// Salt: that of PBKDF2, and the initialization vector.
    pub salt: [u8; 16],
    /// Cipher
    pub cipher: Vec<u8>,
    /// PBKDF2Iterations
    pub iterations: u64,
}

/// The keys of one message.
struct Keys {
    enc: Zeroizing<[u8; 32]>,
    mac: hmac::Key,
}

impl Keys {
    /// Derives the keys. None for a number of iterations that MS-SAMR 3.2.2.5 forbids.
    fn derive(nt_hash: &[u8; 16], salt: &[u8; 16], iterations: u64) -> Option<Self> {
        let iterations = u32::try_from(iterations).ok()?;
        if !(PASSWORD_ITERATIONS_MIN..=PASSWORD_ITERATIONS_MAX).contains(&iterations) {
            return None;
        }
        let mut cek = Zeroizing::new([0; 16]);
        let iterations = NonZeroU32::new(iterations)?;
        pbkdf2::derive(PBKDF2_HMAC_SHA512, iterations, salt, nt_hash, cek.as_mut_slice());
        let cek = hmac::Key::new(hmac::HMAC_SHA512, cek.as_slice());
        let enc = hmac::sign(&cek, ENC_KEY);
        let mac = hmac::sign(&cek, MAC_KEY);
        Some(Self {
            enc: Zeroizing::new(*enc.as_ref().first_chunk()?),
            mac: hmac::Key::new(hmac::HMAC_SHA512, mac.as_ref()),
        })
    }

    fn sign(&self, salt: &[u8; 16], cipher: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.mac);
        context.update(&VERSION);
        context.update(salt);
        context.update(cipher);
        context.update(&[1]);
        context.sign()
    }
}

impl SealedPassword {
    /// Seals `new` under the hash of the old password. `filling` is random bytes for the part of
    /// the field that the password leaves. None for a password longer than the field, or for a
    /// number of iterations outside of the limits.
    pub fn seal(
        old: &[u8; 16],
        new: &str,
        salt: [u8; 16],
        filling: &[u8; PASSWORD_FIELD],
        iterations: u64,
    ) -> Option<Self> {
        let keys = Keys::derive(old, &salt, iterations)?;
        let units: Zeroizing<Vec<u8>> =
            Zeroizing::new(new.encode_utf16().flat_map(u16::to_le_bytes).collect());
        let mut clear = Zeroizing::new(Vec::with_capacity(SEALED_PASSWORD));
        clear.extend(u16::try_from(units.len()).ok()?.to_le_bytes());
        clear.extend(units.iter());
        clear.extend(filling.get(units.len()..)?);
        clear.resize(SEALED_PASSWORD, PADDING);
        Some(Self::seal_padded(&keys, clear, salt, iterations))
    }

    /// Seals whole blocks.
    fn seal_padded(
        keys: &Keys,
        mut clear: Zeroizing<Vec<u8>>,
        salt: [u8; 16],
        iterations: u64,
    ) -> Self {
        let aes = Aes256Enc::new((&*keys.enc).into());
        let mut before = Block::from(salt);
        for block in clear.chunks_exact_mut(BLOCK) {
            for (chained, byte) in before.iter_mut().zip(block.iter()) {
                *chained ^= byte;
            }
            aes.encrypt_block(&mut before);
            block.copy_from_slice(&before);
        }
        let cipher = clear.to_vec();
        let mut auth_data = [0; 64];
        auth_data.copy_from_slice(keys.sign(&salt, &cipher).as_ref());
        Self { auth_data, salt, cipher, iterations }
    }

    /// Returns the password if it was sealed under `old`. It takes as long as the number of
    /// iterations says: up to a second.
    pub fn open(&self, old: &[u8; 16]) -> Option<Zeroizing<String>> {
        let keys = Keys::derive(old, &self.salt, self.iterations)?;
        let tag = keys.sign(&self.salt, &self.cipher);
        constant_time::verify_slices_are_equal(tag.as_ref(), &self.auth_data).ok()?;
        if self.cipher.len() != SEALED_PASSWORD {
            return None;
        }
        let aes = Aes256Dec::new((&*keys.enc).into());
        let mut clear = Zeroizing::new(self.cipher.clone());
        let mut before = self.salt;
        for (block, sealed) in clear.chunks_exact_mut(BLOCK).zip(self.cipher.chunks_exact(BLOCK)) {
            let mut opened = Block::from(*sealed.first_chunk()?);
            aes.decrypt_block(&mut opened);
            for ((to, byte), other) in block.iter_mut().zip(opened).zip(before) {
                *to = byte ^ other;
            }
            before = *sealed.first_chunk()?;
        }
        let (clear, padding) = clear.split_at_checked(CLEAR)?;
        if padding.iter().any(|byte| *byte != PADDING) {
            return None;
        }
        let (length, field) = clear.split_first_chunk()?;
        let length = usize::from(u16::from_le_bytes(*length));
        let units = field.get(..length)?.chunks_exact(2);
        if !units.remainder().is_empty() {
            return None;
        }
        let units = units.map(|pair| pair.try_into().map_or(0, u16::from_le_bytes));
        let mut text = Zeroizing::new(String::with_capacity(3 * PASSWORD_FIELD));
        for unit in char::decode_utf16(units) {
            text.push(unit.ok()?);
        }
        Some(text)
    }
}

impl fmt::Debug for SealedPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealedPassword(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: [u8; 16] = *b"0123456789abcdef";
    const LEAST: u64 = PASSWORD_ITERATIONS_MIN as u64;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| alloc::format!("{byte:02x}")).collect()
    }

    fn sealed(new: &str) -> SealedPassword {
        SealedPassword::seal(&OLD, new, [7; 16], &[0xA5; PASSWORD_FIELD], LEAST).unwrap()
    }

    /// Made from the formulas of MS-SAMR 3.2.2.4 and 3.2.2.5 with Python's hashlib, hmac and
    /// OpenSSL's AES-256-CBC.
    #[test]
    fn a_known_message() {
        let salt = core::array::from_fn(|at| at as u8);
        let made = SealedPassword::seal(&OLD, "P\u{e4}ss 1", salt, &[0xA5; PASSWORD_FIELD], 10_000);
        let made = made.unwrap();
        assert_eq!(
            hex(&made.cipher[..32]),
            "c0985e06c4db3ae17af8c9eb1498984db7394f7b3a953a57466ee3588c5a8f79"
        );
        assert_eq!(hex(&made.cipher[512..]), "a7bb64293498f62a25af2d1b149f8886");
        assert_eq!(
            hex(&made.auth_data),
            "e70301ca5ac648099249c8f7bbfd3deb07f2fbbd7db2cda818b54c40be66237584a871a7a3fbf4ee6b5abdc46872c0b3511da84795a9bc4168b63886e9729dfd"
        );
    }

    #[test]
    fn the_new_password_needs_the_old_one() {
        for new in ["New P\u{e4}ssw\u{f6}rd \u{1f980}", "x", ""] {
            let sealed = sealed(new);
            assert_eq!(sealed.open(&OLD).as_deref().map(String::as_str), Some(new));
            assert!(sealed.open(&[0; 16]).is_none());
        }
        let good = sealed("new");
        for change in [
            |s: &mut SealedPassword| s.auth_data[63] ^= 1,
            |s: &mut SealedPassword| s.salt[0] ^= 1,
            |s: &mut SealedPassword| s.cipher[527] ^= 1,
            |s: &mut SealedPassword| s.iterations += 1,
            |s: &mut SealedPassword| s.cipher.truncate(512),
            |s: &mut SealedPassword| s.cipher.clear(),
        ] {
            let mut forged = good.clone();
            change(&mut forged);
            assert!(forged.open(&OLD).is_none());
        }
    }

    #[test]
    fn passwords_fill_the_field_at_most() {
        let seal = |units: usize| {
            let new: String = core::iter::repeat_n('x', units).collect();
            SealedPassword::seal(&OLD, &new, [7; 16], &[0; PASSWORD_FIELD], LEAST)
        };
        for (units, fits) in [(255, true), (256, true), (257, false)] {
            let opened = seal(units).and_then(|sealed| sealed.open(&OLD));
            assert_eq!(opened.is_some_and(|text| text.len() == units), fits, "{units}");
        }
    }

    #[test]
    fn iterations_are_bounded() {
        let most = u64::from(PASSWORD_ITERATIONS_MAX);
        for (iterations, fits) in
            [(0, false), (LEAST - 1, false), (LEAST, true), (LEAST + 1, true), (most + 1, false)]
        {
            let made = Keys::derive(&OLD, &[7; 16], iterations);
            assert_eq!(made.is_some(), fits, "{iterations}");
        }
        assert!(Keys::derive(&OLD, &[7; 16], u64::MAX).is_none());
        assert!(Keys::derive(&OLD, &[7; 16], (1 << 32) + LEAST).is_none());
    }

    /// Messages that are sealed rightly, with a length or a padding that is wrong.
    #[test]
    fn malformed_password_buffers_are_refused() {
        let keys = Keys::derive(&OLD, &[7; 16], LEAST).unwrap();
        let open = |length: u16, padding: u8, bytes: usize| {
            let mut clear = Zeroizing::new(length.to_le_bytes().to_vec());
            clear.resize(CLEAR, b'x');
            clear.resize(bytes, padding);
            SealedPassword::seal_padded(&keys, clear, [7; 16], LEAST).open(&OLD)
        };
        assert!(open(512, PADDING, SEALED_PASSWORD).is_some());
        for (length, padding, bytes) in [
            (1, PADDING, SEALED_PASSWORD),
            (513, PADDING, SEALED_PASSWORD),
            (514, PADDING, SEALED_PASSWORD),
            (u16::MAX, PADDING, SEALED_PASSWORD),
            (2, PADDING - 1, SEALED_PASSWORD),
            (2, PADDING, SEALED_PASSWORD + 16),
            (2, PADDING, 16),
        ] {
            assert!(open(length, padding, bytes).is_none(), "{length} {padding} {bytes}");
        }
    }
}
