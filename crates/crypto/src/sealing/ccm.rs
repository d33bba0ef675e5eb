//! AES-CCM with nonces of 11 bytes and tags of 16: RFC 3610, NIST SP 800-38C.
//!
//! One pass: each batch of blocks, as many as the processor handles at once, goes through the
//! counter mode and through the chain while it is in the nearest cache.

use crate::chain::{BLOCK_LEN, Chain, xor};
use crate::sealing::{BadSeal, TAG_LEN};
use aes::cipher::consts::U16;
use aes::cipher::typenum::Unsigned;
use aes::cipher::{
    Array, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser,
    ParBlocks,
};
use aws_lc_rs::constant_time;
use zeroize::Zeroize;

/// Bytes of the nonce.
pub(super) const NONCE_LEN: usize = 11;

/// Octets of the message length, less one: the part of a block beside the nonce and the flags.
const LENGTH_FLAG: u8 = 3;
/// `(TAG_LEN - 2) / 2` at its position in the flags.
const TAG_FLAG: u8 = 7 << 3;
/// Flag for additional data.
const AAD_FLAG: u8 = 1 << 6;
/// Length from which additional data has a longer length prefix.
const LONG_AAD: usize = 0xFF00;

/// A cipher with an expanded key.
pub(super) struct Ccm<C>(pub(super) C);

impl<C: BlockCipherEncrypt<BlockSize = U16>> Ccm<C> {
    /// Encrypts `in_out`, of at most 2^32 - 1 bytes, in place; None if it is longer.
    pub(super) fn seal(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        in_out: &mut [u8],
    ) -> Option<[u8; TAG_LEN]> {
        self.pass(Direction::Seal, nonce, aad, in_out)
    }

    /// Decrypts `in_out` in place. If the tag does not match, the data is wiped.
    pub(super) fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        in_out: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), BadSeal> {
        let made = self.pass(Direction::Open, nonce, aad, in_out).ok_or(BadSeal)?;
        constant_time::verify_slices_are_equal(&made, tag).map_err(|_| {
            in_out.zeroize();
            BadSeal
        })
    }

    fn pass(
        &self,
        direction: Direction,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        in_out: &mut [u8],
    ) -> Option<[u8; TAG_LEN]> {
        let (len, aad_len) = (u32::try_from(in_out.len()).ok()?, u32::try_from(aad.len()).ok()?);
        let mut tag = [0; TAG_LEN];
        let pass = Pass { direction, nonce, len, aad, aad_len, in_out, tag: &mut tag };
        self.0.encrypt_with_backend(pass);
        Some(tag)
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Seal,
    Open,
}

/// The encryption or decryption of one message.
struct Pass<'a> {
    direction: Direction,
    nonce: &'a [u8; NONCE_LEN],
    len: u32,
    aad: &'a [u8],
    aad_len: u32,
    in_out: &'a mut [u8],
    tag: &'a mut [u8; TAG_LEN],
}

impl Pass<'_> {
    /// Returns a block of flags, nonce and a number: B_0 and the A_i of RFC 3610 2.2 and 2.3.
    #[inline(always)]
    fn block(&self, flags: u8, number: u32) -> [u8; BLOCK_LEN] {
        let [a, b, c, d, e, f, g, h, i, j, k] = *self.nonce;
        let [w, x, y, z] = number.to_be_bytes();
        [flags, a, b, c, d, e, f, g, h, i, j, k, w, x, y, z]
    }

    /// Adds the additional data with its length prefix, RFC 3610 2.2.
    #[inline(always)]
    fn chain_aad<B: BlockCipherEncBackend<BlockSize = U16>>(
        &self,
        chain: &mut Chain<B>,
        backend: &B,
    ) {
        let len = self.aad_len.to_be_bytes();
        let mark = [0xFF, 0xFE].into_iter().chain(len);
        let unneeded = if self.aad.len() < LONG_AAD { 4 } else { 0 };
        let len_of_len = if unneeded == 0 { 6_usize } else { 2 };
        let beside = BLOCK_LEN.saturating_sub(len_of_len).min(self.aad.len());
        let (first, rest) = self.aad.split_at_checked(beside).unwrap_or_default();
        let mut block = [0; BLOCK_LEN];
        let bytes = mark.skip(unneeded).chain(first.iter().copied());
        block.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        chain.block(backend, &block);
        chain.padded(backend, rest);
    }
}

impl BlockSizeUser for Pass<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Pass<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let mut chain = Chain::new();
        let flags = if self.aad.is_empty() { 0 } else { AAD_FLAG } | TAG_FLAG | LENGTH_FLAG;
        chain.block(backend, &self.block(flags, self.len));
        if !self.aad.is_empty() {
            self.chain_aad(&mut chain, backend);
        }
        let start = self.block(LENGTH_FLAG, 0);
        let mut number = 0_u32;
        let mut keystream = ParBlocks::<B>::default();
        let batch_len = B::ParBlocksSize::USIZE.saturating_mul(BLOCK_LEN);
        for batch in self.in_out.chunks_mut(batch_len) {
            for block in &mut keystream {
                // There are fewer than 2^28 blocks, so it does not wrap.
                number = number.wrapping_add(1);
                *block = start.into();
                if let Some(place) = block.last_chunk_mut() {
                    *place = number.to_be_bytes();
                }
            }
            backend.encrypt_par_blocks((&mut keystream).into());
            match self.direction {
                Direction::Seal => {
                    chain.padded(backend, batch);
                    apply(batch, &keystream);
                }
                Direction::Open => {
                    apply(batch, &keystream);
                    chain.padded(backend, batch);
                }
            }
        }
        let mut mask: aes::Block = start.into();
        backend.encrypt_block((&mut mask).into());
        xor(&mut mask, &chain.end());
        *self.tag = mask.into();
    }
}

/// Computes `batch` ^ the beginning of `keystream` into `batch`.
#[inline(always)]
fn apply(batch: &mut [u8], keystream: &[aes::Block]) {
    batch.iter_mut().zip(Array::slice_as_flattened(keystream)).for_each(|(to, from)| *to ^= *from);
}

#[cfg(test)]
mod tests;
