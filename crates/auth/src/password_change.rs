//! Change of a password by somebody who knows the old one, as SamrUnicodeChangePasswordUser2
//! carries it (MS-SAMR 3.1.5.10.3).

use crate::NtHash;
use crate::hash::same;
use crate::limits::MAX_NEW_PASSWORD_UNITS;
use alloc::{boxed::Box, string::String, vec::Vec};
use core::fmt;
use des::Des;
use des::cipher::{BlockCipherEncrypt, KeyInit};
use rc4::{Rc4, StreamCipher};
use zeroize::{Zeroize, Zeroizing};

/// Bytes of SAMPR_ENCRYPTED_USER_PASSWORD: 256 UTF-16 units and a length.
pub const ENCRYPTED_PASSWORD_LEN: usize = 516;

/// Bytes of the password's field before its length.
const BUFFER_LEN: usize = 512;

/// The new password and the proof that the sender knows the old one.
#[derive(Clone, PartialEq, Eq)]
pub struct EncryptedChange {
    /// NewPasswordEncryptedWithOldNt
    pub password: Box<[u8; ENCRYPTED_PASSWORD_LEN]>,
    /// OldNtOwfPasswordEncryptedWithNewNt
    pub proof: [u8; 16],
}

impl EncryptedChange {
    /// Encrypts a change. `padding` is random bytes, which become the part of the field that the
    /// password leaves. `None` for a password that is longer than the field.
    pub fn new(old: &NtHash, new: &str, padding: &[u8; ENCRYPTED_PASSWORD_LEN]) -> Option<Self> {
        let units: Zeroizing<Vec<u8>> =
            Zeroizing::new(new.encode_utf16().flat_map(u16::to_le_bytes).collect());
        let mut password = Box::new(*padding);
        let start = BUFFER_LEN.checked_sub(units.len())?;
        password.get_mut(start..BUFFER_LEN)?.copy_from_slice(&units);
        let length = u32::try_from(units.len()).ok()?;
        password.get_mut(BUFFER_LEN..)?.copy_from_slice(&length.to_le_bytes());
        rc4(old).apply_keystream(password.as_mut_slice());
        let mut proof = *old.as_bytes();
        des_hash(&NtHash::from_password(new), &mut proof);
        Some(Self { password, proof })
    }

    /// Returns the new password if the sender knows the old one, whose hash is `old`. The work is
    /// equal for right and wrong hashes.
    pub fn open(&self, old: &NtHash) -> Option<Zeroizing<String>> {
        let mut clear = Zeroizing::new(*self.password);
        rc4(old).apply_keystream(clear.as_mut_slice());
        let (buffer, length) = clear.split_at(BUFFER_LEN);
        let length = length.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let is_long = length > BUFFER_LEN || length % 2 != 0;
        let start = if is_long { BUFFER_LEN } else { BUFFER_LEN.saturating_sub(length) };
        let units: Zeroizing<Vec<u16>> = Zeroizing::new(
            buffer
                .get(start..)
                .unwrap_or_default()
                .chunks_exact(2)
                .map(|pair| pair.try_into().map_or(0, u16::from_le_bytes))
                .collect(),
        );
        // The old password is hashed as it was sent, even if it is not valid UTF-16.
        let mut bytes = Zeroizing::new(Vec::with_capacity(BUFFER_LEN));
        bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        let mut proof = *old.as_bytes();
        des_hash(&NtHash::from_utf16(&bytes), &mut proof);
        let is_right = same(&proof, &self.proof);
        proof.zeroize();
        if !is_right || is_long || units.len() > MAX_NEW_PASSWORD_UNITS {
            return None;
        }
        let mut text = Zeroizing::new(String::with_capacity(3 * MAX_NEW_PASSWORD_UNITS));
        for unit in char::decode_utf16(units.iter().copied()) {
            text.push(unit.ok()?);
        }
        Some(text)
    }
}

impl fmt::Debug for EncryptedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncryptedChange(..)")
    }
}

/// Makes RC4 with a 16-byte key; the doubled key is equivalent.
fn rc4(key: &NtHash) -> Rc4 {
    let mut twice = Zeroizing::new([0u8; 32]);
    for (to, from) in twice.iter_mut().zip(key.as_bytes().iter().cycle()) {
        *to = *from;
    }
    Rc4::new((&*twice).into())
}

/// DES-ECB-LM: encrypts a hash with two 7-byte keys (MS-SAMR 2.2.11.1.1, 2.2.11.1.4).
fn des_hash(key: &NtHash, hash: &mut [u8; 16]) {
    let keys = key.as_bytes().chunks_exact(7);
    for (key, block) in keys.zip(hash.chunks_exact_mut(8)) {
        let (Ok(key), Ok(plain)) = (<&[u8; 7]>::try_from(key), <[u8; 8]>::try_from(&*block)) else {
            return;
        };
        let cipher = Des::new(&(*spread(key)).into());
        let mut sealed = plain.into();
        cipher.encrypt_block(&mut sealed);
        block.copy_from_slice(&sealed);
    }
}

/// Spreads 56 bits over eight bytes, whose lowest bits are parity that DES ignores.
fn spread(key: &[u8; 7]) -> Zeroizing<[u8; 8]> {
    let bits = key.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    let mut out = Zeroizing::new([0; 8]);
    for (at, byte) in (0u32..8).rev().zip(out.iter_mut()) {
        let seven = bits.wrapping_shr(at.wrapping_mul(7)) & 0x7F;
        *byte = u8::try_from(seven).unwrap_or(0) << 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(password: &str) -> NtHash {
        NtHash::from_password(password)
    }

    fn change(old: &str, new: &str) -> EncryptedChange {
        EncryptedChange::new(&hash(old), new, &[0xA5; ENCRYPTED_PASSWORD_LEN]).unwrap()
    }

    /// The DES example of FIPS 81: key 0123456789abcdef, "Now is t".
    #[test]
    fn a_known_block() {
        let mut sealed = (*b"Now is t").into();
        Des::new(&[0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef].into())
            .encrypt_block(&mut sealed);
        assert_eq!(sealed[..], [0x3f, 0xa4, 0x0e, 0x8a, 0x98, 0x4d, 0x48, 0x15]);
        let spread = spread(&[0xFF, 0x01, 0x80, 0x00, 0xFF, 0x55, 0xAA]);
        let bits: Vec<u8> = spread.iter().map(|byte| byte >> 1).collect();
        assert_eq!(bits, [0x7F, 0x40, 0x30, 0, 0x07, 0x7D, 0x2B, 0x2A]);
    }

    #[test]
    fn the_new_password_needs_the_old_one() {
        for new in ["New Pässwörd 🦀", "x", ""] {
            let change = change("old", new);
            assert_eq!(change.open(&hash("old")).as_deref().map(String::as_str), Some(new));
            assert!(change.open(&hash("other")).is_none());
        }
        let mut forged = change("old", "new");
        forged.proof[15] ^= 1;
        assert!(forged.open(&hash("old")).is_none());
        let mut forged = change("old", "new");
        forged.password[510] ^= 1;
        assert!(forged.open(&hash("old")).is_none(), "another password than the proof's");
    }

    #[test]
    fn passwords_fill_the_field_at_most() {
        for (units, fits) in [(255, true), (256, true), (257, false)] {
            let new = "x".repeat(units);
            let padding = [0; ENCRYPTED_PASSWORD_LEN];
            let made = EncryptedChange::new(&hash("old"), &new, &padding);
            assert_eq!(made.is_some(), fits, "{units}");
            let opened = made.and_then(|made| made.open(&hash("old")));
            assert_eq!(opened.as_deref() == Some(&new), fits, "{units}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(0u8.., 516), proof in 0u128..) {
            let password = Box::new(bytes.try_into().unwrap());
            let change = EncryptedChange { password, proof: proof.to_le_bytes() };
            assert!(change.open(&hash("old")).is_none());
        }
    }
}
