//! The chain of CBC-MAC, which CCM and CMAC use: each block goes through the cipher together with
//! the result of the block before it.
//!
//! The chain of one message cannot run faster than the cipher's latency. So that the processor
//! waits for nothing else, `frevo_aes_lanes::Alone` handles a long message, and one call of the
//! cipher's backend any other, with the chain in registers.

use aes::cipher::consts::U16;
use aes::cipher::{Array, Block, BlockCipherEncBackend};

/// Length of a block, bytes.
pub(crate) const BLOCK_LEN: usize = 16;

/// Blocks from which a message is worth the round keys that `frevo_aes_lanes::Alone` makes.
pub(crate) const ALONE_BLOCKS_MIN: usize = 256;

/// The chain's value after the blocks so far.
pub(crate) struct Chain<B: BlockCipherEncBackend<BlockSize = U16>>(Block<B>);

impl<B: BlockCipherEncBackend<BlockSize = U16>> Chain<B> {
    /// Makes an empty chain.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self(Array::default())
    }

    /// Continues a chain that had this value.
    #[inline(always)]
    pub(crate) fn resume(value: [u8; BLOCK_LEN]) -> Self {
        Self(value.into())
    }

    /// Adds one block of the message to the chain.
    #[inline(always)]
    pub(crate) fn block(&mut self, backend: &B, block: &[u8; BLOCK_LEN]) {
        self.add(block);
        self.encrypt(backend);
    }

    /// The first half of [`Self::block`].
    #[inline(always)]
    pub(crate) fn add(&mut self, block: &[u8; BLOCK_LEN]) {
        xor(&mut self.0, block);
    }

    /// The second half of [`Self::block`].
    #[inline(always)]
    pub(crate) fn encrypt(&mut self, backend: &B) {
        backend.encrypt_block((&mut self.0).into());
    }

    /// Adds all of `data`, with zeros up to the end of its last block.
    #[inline(always)]
    pub(crate) fn padded(&mut self, backend: &B, data: &[u8]) {
        let (blocks, rest) = data.as_chunks::<BLOCK_LEN>();
        for block in blocks {
            self.block(backend, block);
        }
        if !rest.is_empty() {
            let mut block = [0; BLOCK_LEN];
            block.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            self.block(backend, &block);
        }
    }

    /// Returns the chain's final value.
    #[inline(always)]
    pub(crate) fn end(self) -> [u8; BLOCK_LEN] {
        self.0.into()
    }
}

/// Computes `to` ^ `from` into `to`.
#[inline(always)]
pub(crate) fn xor(to: &mut Array<u8, U16>, from: &[u8; BLOCK_LEN]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to ^= *from);
}
