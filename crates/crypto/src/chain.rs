//! The chain of CBC-MAC, which CCM and CMAC have in common: each block goes through the
//! cipher together with what came of the one before it.
//!
//! One message's chain cannot be hurried: a processor has to wait for each of its blocks.
//! So that it waits for nothing else, all of a message goes through one call of the cipher's
//! backend, where the chain stays in registers.

use aes::cipher::consts::U16;
use aes::cipher::{Array, Block, BlockCipherEncBackend};

/// Length of a block, bytes.
pub(crate) const BLOCK_LEN: usize = 16;

/// What has gone through the chain so far.
pub(crate) struct Chain<B: BlockCipherEncBackend<BlockSize = U16>>(Block<B>);

impl<B: BlockCipherEncBackend<BlockSize = U16>> Chain<B> {
    /// Nothing.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self(Array::default())
    }

    /// One block.
    #[inline(always)]
    pub(crate) fn block(&mut self, backend: &B, block: &[u8; BLOCK_LEN]) {
        xor(&mut self.0, block);
        backend.encrypt_block((&mut self.0).into());
    }

    /// All of `data`, with zeros behind it up to the end of its last block.
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

    /// What came of it.
    #[inline(always)]
    pub(crate) fn end(self) -> [u8; BLOCK_LEN] {
        self.0.into()
    }
}

/// `to` ^ `from`, in `to`.
#[inline(always)]
pub(crate) fn xor(to: &mut Array<u8, U16>, from: &[u8; BLOCK_LEN]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to ^= *from);
}
