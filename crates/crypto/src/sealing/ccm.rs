//! AES-CCM with nonces of 11 bytes and tags of 16: RFC 3610, NIST SP 800-38C.
//!
//! The chain of one message leaves the core idle most of the time, so several messages go side by
//! side as far as they have whole blocks (`side_by_side.rs`). What is left of each, or all of it without
//! instructions for AES, goes in batches: as many blocks as the cipher handles at once go through
//! the counter mode, and then through the chain while they are in the nearest cache.

use crate::chain::{BLOCK_LEN, Chain, xor};
use crate::sealing::{BadSeal, TAG_LEN};
use aes::cipher::consts::U16;
use aes::cipher::typenum::Unsigned;
use aes::cipher::{
    Array, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, Key,
    KeyInit, ParBlocks,
};
use aws_lc_rs::constant_time;
use frevo_aes_lanes::{Alone, Direction, Lanes};
use zeroize::Zeroize;

mod side_by_side;

pub(super) use side_by_side::gains_by_batches;

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
pub(super) struct Ccm<C: BlockCipherEncrypt<BlockSize = U16> + KeyInit> {
    cipher: C,
    /// For `lanes` and `alone`, which expand it anew.
    key: Key<C>,
    lanes: Option<Lanes>,
    alone: Option<Alone>,
}

/// One message with its nonce and its additional data.
pub(super) struct Message<'a> {
    nonce: [u8; NONCE_LEN],
    aad: &'a [u8],
    in_out: &'a mut [u8],
    /// Value of the chain after the bytes so far.
    chain: [u8; BLOCK_LEN],
    /// Bytes that both passes have handled, in whole blocks.
    done: usize,
    /// The computed tag.
    pub(super) tag: [u8; TAG_LEN],
}

impl<'a> Message<'a> {
    /// None if it is longer than CCM with such nonces allows, which is 2^32 - 1 bytes.
    pub(super) fn new(nonce: [u8; NONCE_LEN], aad: &'a [u8], in_out: &'a mut [u8]) -> Option<Self> {
        let fits = u32::try_from(in_out.len()).is_ok() && u32::try_from(aad.len()).is_ok();
        let (chain, tag) = ([0; BLOCK_LEN], [0; TAG_LEN]);
        fits.then_some(Self { nonce, aad, in_out, chain, done: 0, tag })
    }

    /// Compares the computed tag with the received one in constant time. If they differ, the
    /// data is wiped.
    pub(super) fn verify(self, tag: &[u8; TAG_LEN]) -> Result<(), BadSeal> {
        constant_time::verify_slices_are_equal(&self.tag, tag).map_err(|_| {
            self.in_out.zeroize();
            BadSeal
        })
    }

    /// Returns a block of flags, nonce and a number: B_0 and the A_i of RFC 3610 2.2 and 2.3.
    #[inline(always)]
    fn block(&self, flags: u8, number: u32) -> [u8; BLOCK_LEN] {
        let [a, b, c, d, e, f, g, h, i, j, k] = self.nonce;
        let [w, x, y, z] = number.to_be_bytes();
        [flags, a, b, c, d, e, f, g, h, i, j, k, w, x, y, z]
    }

    /// Number of the counter block that was used last.
    #[inline(always)]
    fn number(&self) -> u32 {
        // A message has at most 2^32 - 1 bytes, so the number of its blocks fits in u32.
        u32::try_from(self.done / BLOCK_LEN).unwrap_or(u32::MAX)
    }
}

impl<C: BlockCipherEncrypt<BlockSize = U16> + KeyInit> Ccm<C> {
    /// Expands `key`.
    pub(super) fn new(key: &Key<C>) -> Self {
        let (lanes, alone) = (Lanes::detect(), Alone::detect());
        Self { cipher: C::new(key), key: key.clone(), lanes, alone }
    }

    /// Encrypts `in_out`, of at most 2^32 - 1 bytes, in place; None if it is longer.
    pub(super) fn seal(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        in_out: &mut [u8],
    ) -> Option<[u8; TAG_LEN]> {
        let mut message = [Message::new(*nonce, aad, in_out)?];
        self.run(Direction::Seal, &mut message);
        let [message] = message;
        Some(message.tag)
    }

    /// Decrypts `in_out` in place. If the tag does not match, the data is wiped.
    pub(super) fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        in_out: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), BadSeal> {
        let mut message = [Message::new(*nonce, aad, in_out).ok_or(BadSeal)?];
        self.run(Direction::Open, &mut message);
        let [message] = message;
        message.verify(tag)
    }

    /// Encrypts or decrypts all messages in place and computes their tags. Nothing of an opened
    /// message may be used before [`Message::verify`].
    pub(super) fn run(&self, direction: Direction, messages: &mut [Message<'_>]) {
        for group in messages.chunks_mut(frevo_aes_lanes::LANES) {
            for message in &mut *group {
                self.cipher.encrypt_with_backend(Begin(message));
            }
            if gains_by_batches() {
                self.side_by_side(direction, group);
            }
            for message in group {
                self.cipher.encrypt_with_backend(Finish { direction, message });
            }
        }
    }
}

impl<C: BlockCipherEncrypt<BlockSize = U16> + KeyInit> Drop for Ccm<C> {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

/// Adds to the chain what precedes the message.
struct Begin<'a, 'b>(&'a mut Message<'b>);

impl Begin<'_, '_> {
    /// Adds the additional data with its length prefix, RFC 3610 2.2.
    #[inline(always)]
    fn chain_aad<B: BlockCipherEncBackend<BlockSize = U16>>(
        &self,
        chain: &mut Chain<B>,
        backend: &B,
    ) {
        let aad = self.0.aad;
        let len = u32::try_from(aad.len()).unwrap_or(u32::MAX).to_be_bytes();
        let mark = [0xFF, 0xFE].into_iter().chain(len);
        let unneeded = if aad.len() < LONG_AAD { 4 } else { 0 };
        let len_of_len = if unneeded == 0 { 6_usize } else { 2 };
        let beside = BLOCK_LEN.saturating_sub(len_of_len).min(aad.len());
        let (first, rest) = aad.split_at_checked(beside).unwrap_or_default();
        let mut block = [0; BLOCK_LEN];
        let bytes = mark.skip(unneeded).chain(first.iter().copied());
        block.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        chain.block(backend, &block);
        chain.padded(backend, rest);
    }
}

impl BlockSizeUser for Begin<'_, '_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Begin<'_, '_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let mut chain = Chain::new();
        let flags = if self.0.aad.is_empty() { 0 } else { AAD_FLAG } | TAG_FLAG | LENGTH_FLAG;
        let len = u32::try_from(self.0.in_out.len()).unwrap_or(u32::MAX);
        chain.block(backend, &self.0.block(flags, len));
        if !self.0.aad.is_empty() {
            self.chain_aad(&mut chain, backend);
        }
        self.0.chain = chain.end();
    }
}

/// Handles what is left of a message, and computes its tag.
struct Finish<'a, 'b> {
    direction: Direction,
    message: &'a mut Message<'b>,
}

impl BlockSizeUser for Finish<'_, '_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Finish<'_, '_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let Self { direction, message } = self;
        let mut chain = Chain::resume(message.chain);
        let start = message.block(LENGTH_FLAG, 0);
        let mut number = message.number();
        let mut keystream = ParBlocks::<B>::default();
        let batch_len = B::ParBlocksSize::USIZE.saturating_mul(BLOCK_LEN);
        for batch in
            message.in_out.get_mut(message.done..).unwrap_or_default().chunks_mut(batch_len)
        {
            for block in &mut keystream {
                // A message has fewer than 2^28 blocks, so the block number does not wrap around.
                number = number.wrapping_add(1);
                *block = start.into();
                if let Some(place) = block.last_chunk_mut() {
                    *place = number.to_be_bytes();
                }
            }
            backend.encrypt_par_blocks((&mut keystream).into());
            match direction {
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
        message.tag = mask.into();
    }
}

/// Computes `batch` ^ the beginning of `keystream` into `batch`.
#[inline(always)]
fn apply(batch: &mut [u8], keystream: &[aes::Block]) {
    batch.iter_mut().zip(Array::slice_as_flattened(keystream)).for_each(|(to, from)| *to ^= *from);
}

#[cfg(test)]
mod tests;
