//! AES-CMAC with 128-bit keys: RFC 4493, NIST SP 800-38B.
//!
//! Each block of a message waits for the one before it, so that a core is idle most of the time.
//! Signing several messages together uses that time: eight take little longer than one.

use crate::chain::{ALONE_BLOCKS_MIN, BLOCK_LEN, Chain};
use aes::Aes128Enc;
use aes::cipher::consts::U16;
use aes::cipher::{
    BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, KeyInit,
};
use frevo_aes_lanes::{Alone, Key};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Messages that are signed together: more take longer, and fewer leave the core waiting.
const LANES: usize = 8;

/// An expanded key with its subkeys.
pub(super) struct Cmac {
    cipher: Aes128Enc,
    /// For `alone`, which expands it anew.
    key: [u8; 16],
    alone: Option<Alone>,
    subkeys: Subkeys,
}

/// K1 and K2 of RFC 4493 2.3: the masks of the last block, for a whole one and for a padded one.
#[derive(Clone, Copy, Zeroize)]
struct Subkeys {
    whole: [u8; BLOCK_LEN],
    padded: [u8; BLOCK_LEN],
}

impl Cmac {
    /// Expands `key`.
    pub(super) fn new(key: &[u8; 16]) -> Self {
        let cipher = Aes128Enc::new(key.into());
        let mut zero = aes::Block::default();
        cipher.encrypt_block(&mut zero);
        let whole = doubled(zero.into());
        zero.zeroize();
        let subkeys = Subkeys { whole, padded: doubled(whole) };
        Self { cipher, key: *key, alone: Alone::detect(), subkeys }
    }

    /// Returns the code of one message in several pieces.
    pub(super) fn of(&self, parts: &[&[u8]]) -> [u8; BLOCK_LEN] {
        let mut code = [0; BLOCK_LEN];
        self.cipher.encrypt_with_backend(One { cmac: self, parts, code: &mut code });
        code
    }

    /// Passes the codes of several messages to `code`, in their order.
    pub(super) fn of_all(&self, messages: &[&[u8]], mut code: impl FnMut([u8; BLOCK_LEN])) {
        let mut rest = messages;
        while !rest.is_empty() {
            // Code for each number of messages would be too large: 3 and 5 to 7 messages are split,
            // and the rest follows in the next turn.
            let count = match rest.len() {
                1 => 1,
                2 | 3 => 2,
                4..LANES => 4,
                _ => LANES,
            };
            let (group, behind) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            match count {
                2 => self.beside::<2>(group, &mut code),
                4 => self.beside::<4>(group, &mut code),
                LANES => self.beside::<LANES>(group, &mut code),
                _ => group.iter().for_each(|message| code(self.of(&[message]))),
            }
            rest = behind;
        }
    }

    /// Passes the codes of `N` messages to `code`.
    fn beside<const N: usize>(&self, group: &[&[u8]], code: impl FnMut([u8; BLOCK_LEN])) {
        let Ok(messages) = <[&[u8]; N]>::try_from(group) else { return };
        let mut codes = [[0; BLOCK_LEN]; N];
        let beside = Beside { subkeys: &self.subkeys, messages, codes: &mut codes };
        self.cipher.encrypt_with_backend(beside);
        codes.into_iter().for_each(code);
    }
}

impl Drop for Cmac {
    fn drop(&mut self) {
        self.key.zeroize();
        self.subkeys.zeroize();
    }
}

impl ZeroizeOnDrop for Cmac {}

/// Doubles `block` in the field of 2^128 elements, in constant time.
fn doubled(block: [u8; BLOCK_LEN]) -> [u8; BLOCK_LEN] {
    let number = u128::from_be_bytes(block);
    let carry = 0_u128.wrapping_sub(number >> 127);
    ((number << 1) ^ (carry & 0x87)).to_be_bytes()
}

/// Adds the last one to sixteen bytes of a message (none for an empty one) to the chain.
#[inline(always)]
fn finish<B: BlockCipherEncBackend<BlockSize = U16>>(
    mut chain: Chain<B>,
    backend: &B,
    subkeys: &Subkeys,
    last: &[u8],
) -> [u8; BLOCK_LEN] {
    let is_whole = last.len() == BLOCK_LEN;
    let mut block = if is_whole { subkeys.whole } else { subkeys.padded };
    let padding = (!is_whole).then_some(&0x80);
    block.iter_mut().zip(last.iter().chain(padding)).for_each(|(to, from)| *to ^= *from);
    chain.block(backend, &block);
    chain.end()
}

/// Splits `message` into all but its last one to sixteen bytes, and those.
#[inline(always)]
fn split_last(message: &[u8]) -> (&[[u8; BLOCK_LEN]], &[u8]) {
    let (blocks, rest) = message.as_chunks();
    match blocks.split_last() {
        Some((last, before)) if rest.is_empty() => (before, last),
        _ => (blocks, rest),
    }
}

struct One<'a> {
    cmac: &'a Cmac,
    parts: &'a [&'a [u8]],
    code: &'a mut [u8; BLOCK_LEN],
}

impl BlockSizeUser for One<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for One<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let mut chain = Chain::new();
        // The last bytes of each part are kept until more bytes follow, because the last block of a
        // message is processed differently.
        let mut kept = [0; BLOCK_LEN];
        let mut count = 0_usize;
        for part in self.parts {
            let room = BLOCK_LEN.saturating_sub(count);
            let (first, rest) = part.split_at_checked(room).unwrap_or((part, &[]));
            kept.iter_mut().skip(count).zip(first).for_each(|(to, from)| *to = *from);
            count = count.saturating_add(first.len());
            if rest.is_empty() {
                continue;
            }
            chain.block(backend, &kept);
            let (blocks, last) = split_last(rest);
            match self.cmac.alone {
                Some(alone) if blocks.len() >= ALONE_BLOCKS_MIN => {
                    let mut value = chain.end();
                    alone.mac(Key::Aes128(&self.cmac.key), &mut value, blocks);
                    chain = Chain::resume(value);
                }
                _ => {
                    for block in blocks {
                        chain.block(backend, block);
                    }
                }
            }
            kept.iter_mut().zip(last).for_each(|(to, from)| *to = *from);
            count = last.len();
        }
        let last = kept.get(..count).unwrap_or(&kept);
        *self.code = finish(chain, backend, &self.cmac.subkeys, last);
    }
}

struct Beside<'a, const N: usize> {
    subkeys: &'a Subkeys,
    messages: [&'a [u8]; N],
    codes: &'a mut [[u8; BLOCK_LEN]; N],
}

impl<const N: usize> BlockSizeUser for Beside<'_, N> {
    type BlockSize = U16;
}

impl<const N: usize> BlockCipherEncClosure for Beside<'_, N> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let mut chains = [(); N].map(|()| Chain::new());
        let messages = self.messages.map(split_last);
        let common = messages.iter().map(|(blocks, _)| blocks.len()).min().unwrap_or(0);
        // One block of each message is processed in turn, because the blocks do not depend on each
        // other, so the processor works on all messages at once.
        for at in 0..common {
            for (chain, (blocks, _)) in chains.iter_mut().zip(&messages) {
                if let Some(block) = blocks.get(at) {
                    chain.block(backend, block);
                }
            }
        }
        for ((mut chain, (blocks, last)), code) in chains.into_iter().zip(messages).zip(self.codes)
        {
            for block in blocks.iter().skip(common) {
                chain.block(backend, block);
            }
            *code = finish(chain, backend, self.subkeys, last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn theirs(key: &[u8; 16], message: &[u8]) -> Vec<u8> {
        let key = aws_lc_rs::cmac::Key::new(aws_lc_rs::cmac::AES_128, key).unwrap();
        aws_lc_rs::cmac::sign(&key, message).unwrap().as_ref().to_vec()
    }

    proptest! {
        #[test]
        fn another_implementation_agrees(
            key: [u8; 16],
            messages in vec(vec(any::<u8>(), 0..9000), 0..20),
            cuts in vec(any::<proptest::sample::Index>(), 0..5),
        ) {
            let cmac = Cmac::new(&key);
            let slices: Vec<&[u8]> = messages.iter().map(|message| &message[..]).collect();
            let mut codes = Vec::new();
            cmac.of_all(&slices, |code| codes.push(code));
            prop_assert_eq!(codes.len(), messages.len());
            for (message, code) in slices.iter().zip(&codes) {
                prop_assert_eq!(&code[..], &theirs(&key, message)[..]);
                let mut cuts: Vec<usize> =
                    cuts.iter().map(|cut| cut.index(message.len() + 1)).collect();
                cuts.sort_unstable();
                let mut parts = Vec::new();
                let mut from = 0;
                for cut in cuts {
                    parts.push(&message[from..cut]);
                    from = cut;
                }
                parts.push(&message[from..]);
                prop_assert_eq!(cmac.of(&parts), *code);
            }
        }
    }

    #[test]
    fn every_length_around_a_block() {
        let message: Vec<u8> = (0..100).collect();
        let cmac = Cmac::new(&[9; 16]);
        for len in 0..message.len() {
            assert_eq!(cmac.of(&[&message[..len]])[..], theirs(&[9; 16], &message[..len])[..]);
        }
    }
}
