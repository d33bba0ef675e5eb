//! Secrets that lie where others can read them: each sealed with AES-256-GCM under a key of its own, which
//! HKDF-SHA-256 (RFC 5869) makes of a common key and of a salt.

use alloc::vec::Vec;

use aws_lc_rs::hkdf::{self, HKDF_SHA256, KeyType, Salt};
use zeroize::Zeroizing;

use crate::sealing::{Cipher, OpeningKey, SealingKey, TAG_LEN};

/// Bytes of a salt.
pub const STORED_SALT: usize = 32;

/// The length of a key, for HKDF.
struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        32
    }
}

/// Returns the key of one secret.
fn derived(key: &[u8; 32], salt: &[u8; STORED_SALT]) -> Zeroizing<[u8; 32]> {
    let mut derived = Zeroizing::new([0; 32]);
    let extracted = Salt::new(HKDF_SHA256, salt).extract(key);
    let expanded: Result<hkdf::Okm<'_, Length>, _> =
        extracted.expand(&[b"frevo stored secret"], Length);
    if expanded.is_ok_and(|okm| okm.fill(derived.as_mut_slice()).is_ok()) {
        return derived;
    }
    crate::out_of_memory()
}

/// Seals a secret. `aad` tells what it is and where it lies: it opens with the same `aad` alone. `salt` is
/// random, and is used once. The result is the salt, the tag and the sealed bytes.
pub fn seal_stored(key: &[u8; 32], salt: &[u8; STORED_SALT], aad: &[u8], plain: &[u8]) -> Vec<u8> {
    let sealing = SealingKey::new(Cipher::Aes256Gcm, &derived(key, salt));
    let mut bytes = plain.to_vec();
    // The key is new: its first nonce is zero.
    let Ok(nonce) = sealing.next_nonce() else { crate::out_of_memory() };
    let tag = sealing.seal(nonce, aad, &mut bytes);
    [salt.as_slice(), &tag, &bytes].concat()
}

/// Opens the result of [`seal_stored`]. None for other bytes, another key and another `aad`.
pub fn open_stored(key: &[u8; 32], aad: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (salt, rest) = sealed.split_first_chunk::<STORED_SALT>()?;
    let (tag, rest) = rest.split_first_chunk::<TAG_LEN>()?;
    let mut bytes = Zeroizing::new(rest.to_vec());
    let opening = OpeningKey::new(Cipher::Aes256Gcm, &derived(key, salt));
    opening.open(&[0; 16], aad, &mut bytes, tag).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_with_its_key_at_its_place_alone() {
        let (key, other) = ([1; 32], [2; 32]);
        let sealed = seal_stored(&key, &[7; STORED_SALT], b"here", b"secret");
        assert_eq!(sealed.len(), STORED_SALT + TAG_LEN + 6);
        assert_eq!(&**open_stored(&key, b"here", &sealed).unwrap(), b"secret");
        assert!(open_stored(&other, b"here", &sealed).is_none());
        assert!(open_stored(&key, b"there", &sealed).is_none());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(open_stored(&key, b"here", &changed).is_none(), "{at}");
            assert!(open_stored(&key, b"here", &sealed[..at]).is_none(), "{at}");
        }
        let again = seal_stored(&key, &[8; STORED_SALT], b"here", b"secret");
        assert_ne!(again[STORED_SALT..], sealed[STORED_SALT..], "each salt has a key of its own");
    }
}
