//! Several messages side by side, as far as they have whole blocks: with AVX-512 by the crate
//! `frevo-aes-lanes`, and with other AES instructions here, one block of each message in turn.

use super::{Ccm, LENGTH_FLAG, Message};
use crate::chain::{ALONE_BLOCKS_MIN, BLOCK_LEN, Chain, xor};
use aes::cipher::consts::U16;
use aes::cipher::{
    BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, KeyInit,
};
use frevo_aes_lanes::{Direction, Key, LANES, Lane, Lanes};

/// Messages from which AVX-512 is faster: its registers take as long for one as for four.
const WIDE: usize = 3;

/// True if the processor has instructions for AES. Without them a cipher works on several blocks of
/// one message at once, and is slower block by block.
pub(in crate::sealing) fn gains_by_batches() -> bool {
    aes::hardware_accelerated()
}

impl Message<'_> {
    /// The whole blocks that are left.
    fn blocks(&mut self) -> &mut [[u8; BLOCK_LEN]] {
        let (blocks, _) = self.in_out.get_mut(self.done..).unwrap_or_default().as_chunks_mut();
        blocks
    }

    fn has_blocks(&self) -> bool {
        self.in_out.len().saturating_sub(self.done) >= BLOCK_LEN
    }

    fn skip(&mut self, blocks: usize) {
        self.done = self.done.saturating_add(blocks.saturating_mul(BLOCK_LEN));
    }
}

impl<C: BlockCipherEncrypt<BlockSize = U16> + KeyInit> Ccm<C> {
    /// Handles all whole blocks. Messages that have none left leave the group.
    pub(super) fn side_by_side(&self, direction: Direction, group: &mut [Message<'_>]) {
        loop {
            let count = group.iter().filter(|message| message.has_blocks()).count();
            let wide = self.lanes.filter(|_| count >= WIDE);
            let is_done = match (wide, count) {
                (_, 0) => true,
                (Some(lanes), _) => self.wide(lanes, direction, group),
                (None, 1) if self.alone(direction, group) => false,
                // Code for each number of messages would be too large. So groups of 3 and of 5 to 7
                // are split, and their remaining messages follow in the next turns.
                (None, 1) => self.beside::<1>(direction, group),
                (None, 2 | 3) => self.beside::<2>(direction, group),
                (None, 4..LANES) => self.beside::<4>(direction, group),
                (None, _) => self.beside::<LANES>(direction, group),
            };
            if is_done {
                return;
            }
        }
    }

    fn key(&self) -> Option<Key<'_>> {
        match (self.key.first_chunk(), self.key.first_chunk()) {
            (_, Some(key)) => Some(Key::Aes256(key)),
            (Some(key), None) => Some(Key::Aes128(key)),
            (None, None) => None,
        }
    }

    /// Handles all blocks of the only message that has some, if it is long. False if it did nothing.
    fn alone(&self, direction: Direction, group: &mut [Message<'_>]) -> bool {
        let Some((alone, key)) = self.alone.zip(self.key()) else { return false };
        let Some(message) = group.iter_mut().find(|message| message.has_blocks()) else {
            return false;
        };
        let (chain, counter) = (message.chain, message.block(LENGTH_FLAG, message.number()));
        let blocks = message.blocks();
        let count = blocks.len();
        if count < ALONE_BLOCKS_MIN {
            return false;
        }
        let mut lane = Lane { chain, counter, blocks };
        alone.ccm(key, direction, &mut lane);
        message.chain = lane.chain;
        message.skip(count);
        true
    }

    /// Handles blocks of all messages until the first has none left. True if nothing was to do.
    fn wide(&self, lanes: Lanes, direction: Direction, group: &mut [Message<'_>]) -> bool {
        let Some(key) = self.key() else { return true };
        let mut chosen = [const { None }; LANES];
        let with_blocks = group.iter_mut().filter(|message| message.has_blocks());
        let mut count = 0_usize;
        for (place, message) in chosen.iter_mut().zip(with_blocks) {
            *place = Some(message);
            count = count.saturating_add(1);
        }
        let mut places = [(); LANES].map(|()| Lane {
            chain: [0; BLOCK_LEN],
            counter: [0; BLOCK_LEN],
            blocks: &mut [],
        });
        for (place, message) in places.iter_mut().zip(chosen.iter_mut().flatten()) {
            let counter = message.block(LENGTH_FLAG, message.number());
            *place = Lane { chain: message.chain, counter, blocks: message.blocks() };
        }
        let blocks = lanes.ccm(key, direction, places.get_mut(..count).unwrap_or_default());
        let chains = places.map(|place| place.chain);
        for (message, chain) in chosen.into_iter().flatten().zip(chains) {
            message.chain = chain;
            message.skip(blocks);
        }
        blocks == 0
    }

    /// The same for `N` messages without AVX-512.
    fn beside<const N: usize>(&self, direction: Direction, group: &mut [Message<'_>]) -> bool {
        let mut with_blocks = group.iter_mut().filter(|message| message.has_blocks());
        let mut chosen = [const { None }; N];
        chosen.iter_mut().for_each(|place| *place = with_blocks.next());
        let mut blocks = 0;
        let count = &mut blocks;
        let pass =
            Beside { direction, messages: chosen.each_mut().map(Option::as_deref_mut), count };
        self.cipher.encrypt_with_backend(pass);
        for message in chosen.into_iter().flatten() {
            message.skip(blocks);
        }
        blocks == 0
    }
}

struct Beside<'a, 'b, const N: usize> {
    direction: Direction,
    messages: [Option<&'a mut Message<'b>>; N],
    /// The number of blocks that were handled of each message.
    count: &'a mut usize,
}

impl<const N: usize> BlockSizeUser for Beside<'_, '_, N> {
    type BlockSize = U16;
}

impl<const N: usize> BlockCipherEncClosure for Beside<'_, '_, N> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        match self.direction {
            Direction::Seal => self.pass::<B, true>(backend),
            Direction::Open => self.pass::<B, false>(backend),
        }
    }
}

impl<const N: usize> Beside<'_, '_, N> {
    /// While the processor encrypts the blocks of the chains, it also encrypts the next counter
    /// blocks.
    #[inline(always)]
    fn pass<B: BlockCipherEncBackend<BlockSize = U16>, const SEAL: bool>(mut self, backend: &B) {
        let mut chains = [(); N].map(|()| Chain::new());
        let mut starts = [0; N];
        let mut numbers = [0_u32; N];
        for (at, message) in self.messages.iter().enumerate() {
            let Some(message) = message else { return };
            let place = chains.get_mut(at).zip(starts.get_mut(at)).zip(numbers.get_mut(at));
            let Some(((chain, start), number)) = place else { return };
            *chain = Chain::resume(message.chain);
            *start = u128::from_be_bytes(message.block(LENGTH_FLAG, 0));
            *number = message.number();
        }
        let mut data = self.messages.each_mut().map(|message| match message {
            Some(message) => message.blocks(),
            None => &mut [],
        });
        let common = data.iter().map(|blocks| blocks.len()).min().unwrap_or(0);
        let mut streams = [aes::Block::default(); N];
        let next = |streams: &mut [aes::Block; N], numbers: &mut [u32; N]| {
            for ((stream, start), number) in streams.iter_mut().zip(starts).zip(numbers) {
                // A message has fewer than 2^28 blocks, so the block number does not wrap around.
                *number = number.wrapping_add(1);
                *stream = (start | u128::from(*number)).to_be_bytes().into();
            }
        };
        next(&mut streams, &mut numbers);
        streams.iter_mut().for_each(|stream| backend.encrypt_block(stream.into()));
        for at in 0..common {
            for ((blocks, stream), chain) in data.iter_mut().zip(&streams).zip(&mut chains) {
                let Some(block) = blocks.get_mut(at) else { return };
                let mut out: aes::Block = (*block).into();
                let stream: &[u8; BLOCK_LEN] = stream.as_ref();
                xor(&mut out, stream);
                chain.add(if SEAL { block } else { out.as_ref() });
                *block = out.into();
            }
            next(&mut streams, &mut numbers);
            for (stream, chain) in streams.iter_mut().zip(&mut chains) {
                backend.encrypt_block(stream.into());
                chain.encrypt(backend);
            }
        }
        for (message, chain) in self.messages.into_iter().flatten().zip(chains) {
            message.chain = chain.end();
        }
        *self.count = common;
    }
}
