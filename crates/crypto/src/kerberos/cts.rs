//! AES in CBC mode with ciphertext stealing and an IV of zeros, as RFC 3962 section 5 has it: the
//! last two blocks change places, also when the last one is whole.

use aes::cipher::consts::U16;
use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128Dec, Aes128Enc, Aes256Dec, Aes256Enc, Block};
use alloc::vec::Vec;
use zeroize::Zeroizing;

use super::derive::Derived;

const BLOCK: usize = 16;

/// The initialization vector.
pub(super) const IV: [u8; BLOCK] = [0; BLOCK];

/// Encrypts a message of at least one block.
pub(super) fn encrypt(key: &Derived, message: &[u8]) -> Vec<u8> {
    match key.short() {
        Some(key) => encrypt_with(&Aes128Enc::new(key.into()), message),
        None => encrypt_with(&Aes256Enc::new(key.long().into()), message),
    }
}

/// Decrypts a message. None if it is shorter than a block.
pub(super) fn decrypt(key: &Derived, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    match key.short() {
        Some(key) => decrypt_with(&Aes128Dec::new(key.into()), sealed),
        None => decrypt_with(&Aes256Dec::new(key.long().into()), sealed),
    }
}

fn encrypt_with(aes: &impl BlockCipherEncrypt<BlockSize = U16>, message: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(message.len().next_multiple_of(BLOCK));
    sealed.extend_from_slice(message);
    sealed.resize(message.len().next_multiple_of(BLOCK), 0);
    let mut before = Block::from(IV);
    for block in sealed.chunks_exact_mut(BLOCK) {
        for (chained, byte) in before.iter_mut().zip(block.iter()) {
            *chained ^= byte;
        }
        aes.encrypt_block(&mut before);
        block.copy_from_slice(&before);
    }
    let [.., last_but_one, last] = sealed.as_chunks_mut::<BLOCK>().0 else { return sealed };
    core::mem::swap(last_but_one, last);
    sealed.truncate(message.len());
    sealed
}

fn decrypt_with(
    aes: &impl BlockCipherDecrypt<BlockSize = U16>,
    sealed: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let mut plain = Zeroizing::new(Vec::with_capacity(sealed.len()));
    let mut before = IV;
    let decrypt = |block: [u8; BLOCK]| -> [u8; BLOCK] {
        let mut block = Block::from(block);
        aes.decrypt_block(&mut block);
        block.into()
    };
    let short = match sealed.len() % BLOCK {
        0 => BLOCK,
        rest => rest,
    };
    let Some(chained) = sealed.len().checked_sub(BLOCK.saturating_add(short)) else {
        // A message of a single block is decrypted directly, without ciphertext stealing.
        return Some(Zeroizing::new(decrypt(sealed.try_into().ok()?).to_vec()));
    };
    let (chained, tail) = sealed.split_at_checked(chained)?;
    for block in chained.as_chunks::<BLOCK>().0 {
        let opened = decrypt(*block);
        plain.extend(opened.iter().zip(before).map(|(byte, other)| byte ^ other));
        before = *block;
    }
    let (whole, stolen) = tail.split_first_chunk::<BLOCK>()?;
    let last = decrypt(*whole);
    // The second last block was sent shortened. Its missing bytes ("stolen") are at the end of the
    // decrypted last block.
    let mut rebuilt = last;
    rebuilt.get_mut(..short)?.copy_from_slice(stolen);
    let opened = decrypt(rebuilt);
    plain.extend(opened.iter().zip(before).map(|(byte, other)| byte ^ other));
    plain.extend(last.iter().zip(stolen).map(|(byte, other)| byte ^ other));
    Some(plain)
}
