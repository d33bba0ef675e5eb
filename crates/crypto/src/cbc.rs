//! AES-128-CBC with a key of HKDF-SHA-256, as sessions of the Secret Service seal secrets.

use alloc::vec::Vec;

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128Dec, Aes128Enc, Block};
use aws_lc_rs::hkdf::{self, HKDF_SHA256, KeyType, Salt};
use zeroize::Zeroizing;

const BLOCK: usize = 16;

/// The length of a key, for HKDF.
struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        16
    }
}

/// Returns the first 16 bytes of HKDF-SHA-256 of a secret, without salt and information.
pub fn hkdf_key(secret: &[u8]) -> Zeroizing<[u8; 16]> {
    let mut key = Zeroizing::new([0; 16]);
    let extracted = Salt::new(HKDF_SHA256, &[]).extract(secret);
    let expanded: Result<hkdf::Okm<'_, Length>, _> = extracted.expand(&[&[]], Length);
    if expanded.is_ok_and(|okm| okm.fill(key.as_mut_slice()).is_ok()) {
        return key;
    }
    crate::out_of_memory()
}

/// Seals bytes with AES-128-CBC, padded by PKCS #7.
pub fn seal_cbc(key: &[u8; 16], iv: &[u8; 16], plain: &[u8]) -> Vec<u8> {
    let aes = Aes128Enc::new(key.into());
    let padding = BLOCK.saturating_sub(plain.len() % BLOCK);
    let mut sealed = plain.to_vec();
    let length = plain.len().saturating_add(padding);
    sealed.resize(length, u8::try_from(padding).unwrap_or(0));
    let mut before = Block::from(*iv);
    for block in sealed.chunks_exact_mut(BLOCK) {
        for (chained, byte) in before.iter_mut().zip(block.iter()) {
            *chained ^= byte;
        }
        aes.encrypt_block(&mut before);
        block.copy_from_slice(&before);
    }
    sealed
}

/// Opens bytes that [`seal_cbc`] sealed. None if they are not whole blocks or not padded. They are
/// not authenticated.
pub fn open_cbc(key: &[u8; 16], iv: &[u8; 16], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    if !sealed.len().is_multiple_of(BLOCK) {
        return None;
    }
    let aes = Aes128Dec::new(key.into());
    let mut plain = Zeroizing::new(Vec::with_capacity(sealed.len()));
    let mut before = *iv;
    for block in sealed.chunks_exact(BLOCK) {
        let mut opened = Block::from(*block.first_chunk()?);
        aes.decrypt_block(&mut opened);
        plain.extend(opened.iter().zip(before).map(|(byte, other)| byte ^ other));
        before = *block.first_chunk()?;
    }
    let padding = usize::from(*plain.last()?);
    let length = plain.len().checked_sub(padding).filter(|_| (1..=BLOCK).contains(&padding))?;
    let tail = plain.get(length..)?;
    if tail.iter().any(|byte| usize::from(*byte) != padding) {
        return None;
    }
    plain.truncate(length);
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealed_data_is_opened() {
        let (key, iv) = ([1; 16], [2; 16]);
        for length in [0, 1, 15, 16, 17, 32, 100] {
            let plain: Vec<u8> = (0..length).collect();
            let sealed = seal_cbc(&key, &iv, &plain);
            assert_eq!(sealed.len(), (plain.len() / 16 + 1) * 16);
            assert_eq!(*open_cbc(&key, &iv, &sealed).unwrap(), plain);
        }
        for wrong in [&[][..], &[0; 15], &[0; 16]] {
            assert!(open_cbc(&key, &iv, wrong).is_none());
        }
    }

    /// Made with Python's hmac and `openssl enc -aes-128-cbc`.
    #[test]
    fn known_bytes() {
        let key = hkdf_key(b"shared");
        let sealed = seal_cbc(&key, &[7; 16], b"secret");
        let hex: alloc::string::String =
            sealed.iter().map(|byte| alloc::format!("{byte:02x}")).collect();
        assert_eq!(hex, "7599487e86d7b59ba955fe5593a38502");
    }
}
