//! Keys of one usage: RFC 3961 section 5.1 (DK) and RFC 8009 section 3 (KDF-HMAC-SHA2).

use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128Enc, Aes256Enc, Block};
use alloc::vec::Vec;
use aws_lc_rs::{constant_time, hmac};
use zeroize::Zeroizing;

use super::etype::{EncryptionType, KeyUsage};

const BLOCK: usize = 16;

/// The hash of an encryption type of AES.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Hash {
    Sha1,
    Sha256,
    Sha384,
}

/// The purpose of a derived key, as the byte after the usage number.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Checksum = 0x99,
    Encryption = 0xaa,
    Integrity = 0x55,
}

/// A key for one purpose: 16, 24 or 32 bytes.
pub(super) struct Derived {
    bytes: Zeroizing<[u8; 32]>,
    length: usize,
}

impl Derived {
    fn new(length: usize) -> Self {
        Self { bytes: Zeroizing::new([0; 32]), length }
    }

    /// Makes a key of 16 bytes.
    pub(super) fn of(bytes: &[u8; 16]) -> Self {
        let mut derived = Self::new(16);
        derived.bytes.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        derived
    }

    /// Returns the bytes.
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Returns the key of AES-128. None for a longer key.
    pub(super) fn short(&self) -> Option<&[u8; 16]> {
        self.as_bytes().try_into().ok()
    }

    /// Returns the key of AES-256.
    pub(super) fn long(&self) -> &[u8; 32] {
        &self.bytes
    }
}

impl Hash {
    /// Returns the hash of a type of AES.
    pub(super) const fn of(etype: EncryptionType) -> Option<Self> {
        match etype {
            EncryptionType::Aes128Sha1 | EncryptionType::Aes256Sha1 => Some(Self::Sha1),
            EncryptionType::Aes128Sha2 => Some(Self::Sha256),
            EncryptionType::Aes256Sha2 => Some(Self::Sha384),
            EncryptionType::Rc4Hmac => None,
        }
    }

    const fn algorithm(self) -> hmac::Algorithm {
        match self {
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
        }
    }

    /// Derives the key of `base`, which has 16 or 32 bytes, for a usage and a purpose.
    pub(super) fn derive(self, base: &[u8], usage: KeyUsage, purpose: Purpose) -> Derived {
        let [a, b, c, d] = usage.0.to_be_bytes();
        let constant = [a, b, c, d, purpose as u8];
        let length = match (self, purpose) {
            // RFC 8009 section 5: in aes256-cts-hmac-sha384-192 the keys Kc and Ki have 192 bits.
            (Self::Sha384, Purpose::Checksum | Purpose::Integrity) => 24,
            _ => base.len(),
        };
        match self {
            Self::Sha1 => dk(base, &constant),
            Self::Sha256 | Self::Sha384 => self.kdf(base, &constant, length),
        }
    }

    /// Computes the HMAC of all `parts`.
    pub(super) fn sign(self, key: &Derived, parts: &[&[u8]]) -> hmac::Tag {
        self.sign_with(key.as_bytes(), parts)
    }

    fn sign_with(self, key: &[u8], parts: &[&[u8]]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&hmac::Key::new(self.algorithm(), key));
        parts.iter().for_each(|part| context.update(part));
        context.sign()
    }

    /// Computes KDF-HMAC-SHA2 of RFC 8009 section 3, without a context.
    pub(super) fn kdf(self, key: &[u8], label: &[u8], length: usize) -> Derived {
        let mut derived = Derived::new(length);
        let bits = u32::try_from(length).unwrap_or_default().saturating_mul(8).to_be_bytes();
        let tag = self.sign_with(key, &[&[0, 0, 0, 1], label, &[0], &bits]);
        for (to, from) in derived.bytes.iter_mut().zip(tag.as_ref()).take(length) {
            *to = *from;
        }
        derived
    }
}

/// Computes DK of RFC 3961 section 5.1 for AES: random-to-key is the identity.
pub(super) fn dk(base: &[u8], constant: &[u8]) -> Derived {
    let mut derived = Derived::new(base.len());
    let folded = fold(constant);
    match (<&[u8; 16]>::try_from(base), base.first_chunk::<32>()) {
        (Ok(key), _) => dr(&Aes128Enc::new(key.into()), folded, &mut derived),
        (_, Some(key)) => dr(&Aes256Enc::new(key.into()), folded, &mut derived),
        _ => {}
    }
    derived
}

/// Computes DR: each block is the cipher's output of the one before.
fn dr(aes: &impl BlockCipherEncrypt<BlockSize = U16>, folded: [u8; BLOCK], out: &mut Derived) {
    let mut block = Block::from(folded);
    let blocks = out.length / BLOCK;
    for part in out.bytes.chunks_exact_mut(BLOCK).take(blocks) {
        aes.encrypt_block(&mut block);
        part.copy_from_slice(&block);
    }
}

/// Folds `constant` of at most 16 bytes to a block: n-fold of RFC 3961 section 5.1. Copies of the
/// constant, each rotated to the right by 13 more bits than the one before, fill whole blocks, which
/// are added in one's complement.
fn fold(constant: &[u8]) -> [u8; BLOCK] {
    let bits = u32::try_from(constant.len()).unwrap_or_default().saturating_mul(8);
    let Some(before) = BLOCK.checked_sub(constant.len()).filter(|_| bits > 0) else {
        return [0; BLOCK];
    };
    // The constant is copied until whole blocks are full: 16 times, divided by the largest power of
    // two (up to 16) that divides its length.
    let copies = BLOCK.wrapping_shr(constant.len().trailing_zeros().min(4));
    let mut value = constant.iter().fold(0, |value: u128, byte| (value << 8) | u128::from(*byte));
    let mask = u128::MAX.wrapping_shr(128_u32.saturating_sub(bits));
    let mut rows = Vec::with_capacity(copies.saturating_mul(constant.len()));
    for _ in 0..copies {
        rows.extend(value.to_be_bytes().iter().skip(before));
        let high = value.checked_shl(bits.saturating_sub(13)).unwrap_or_default();
        value = ((value >> 13) | high) & mask;
    }
    let sum = rows.as_chunks::<BLOCK>().0.iter().fold(0_u128, |sum, row| {
        let (sum, carry) = sum.overflowing_add(u128::from_be_bytes(*row));
        sum.wrapping_add(u128::from(carry))
    });
    sum.to_be_bytes()
}

/// Returns `Some(())` if the two are equal, in a time that depends only on their lengths.
pub(super) fn same(a: &[u8], b: &[u8]) -> Option<()> {
    constant_time::verify_slices_are_equal(a, b).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3961 appendix A.1, of the vectors with 128 bits, and RFC 3962's "kerberos".
    #[test]
    fn n_fold_of_rfc_3961() {
        assert_eq!(fold(b"kerberos"), *b"kerberos\x7b\x9b\x5b\x2b\x93\x13\x2b\x93");
        for constant in [&b""[..], &[0; 17]] {
            assert_eq!(fold(constant), [0; 16]);
        }
    }
}
