//! The two passes of AES-CCM: counter mode, and the chain of CBC-MAC, which CMAC has too. Several
//! messages go side by side ([`Lanes`]), and one in a loop of its own ([`Alone`]).
//!
//! Each block of a chain waits for the block before it, so that one message uses a fraction of a
//! core. Here each 512-bit register has one block of each of four messages, and a second register
//! those of four more. Both passes take about as long as the chain of one message alone.
//!
//! For several messages the processor must have AVX-512 and VAES, for one AES-NI and AVX;
//! [`Lanes::detect`] and [`Alone::detect`] look. Callers have other code for other processors.
//!
//! This crate exists because `crypto` forbids unsafe code. Its only unsafe operation is the call of
//! functions that need those instructions.
#![no_std]

#[cfg(test)]
extern crate std;

#[cfg(target_arch = "x86_64")]
mod alone;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod keys;

/// Length of a block, bytes.
pub const BLOCK_LEN: usize = 16;

/// Messages that are handled side by side at most.
pub const LANES: usize = 8;

/// A block of a message, of its keystream or of its chain.
pub type Block = [u8; BLOCK_LEN];

/// A cipher with its key. Its round keys are made anew in each call, which takes less time than
/// twenty blocks.
#[derive(Clone, Copy)]
pub enum Key<'a> {
    /// AES-128
    Aes128(&'a [u8; 16]),
    /// AES-256
    Aes256(&'a [u8; 32]),
}

/// The side of a message that its chain covers, which is the plaintext.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The blocks are plaintext and become ciphertext.
    Seal,
    /// The blocks are ciphertext and become plaintext.
    Open,
}

/// The whole blocks of one message, and the state of both passes.
pub struct Lane<'a> {
    /// Value of the chain after the blocks so far.
    pub chain: Block,
    /// The last counter block that was used, RFC 3610 2.3; its last four bytes are a number.
    pub counter: Block,
    /// The blocks that come next.
    pub blocks: &'a mut [Block],
}

/// The proof that this processor has the instructions.
#[derive(Debug, Clone, Copy)]
pub struct Lanes(());

impl Lanes {
    /// Returns None if the processor, or the operating system, lacks the instructions.
    pub fn detect() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        {
            avx512::is_there().then_some(Self(()))
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            None
        }
    }

    /// Encrypts or decrypts as many blocks of each lane as the shortest lane has, and adds the
    /// plaintext to the chains. Returns that number of blocks. Lanes after the first [`LANES`] are
    /// left alone.
    ///
    /// Three lanes take as long as four, and five as long as eight.
    pub fn ccm(self, key: Key<'_>, direction: Direction, lanes: &mut [Lane<'_>]) -> usize {
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: `self` exists only if `detect` has found the instructions on this processor.
            unsafe { avx512::ccm(key, direction, lanes) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = (key, direction, lanes);
            0
        }
    }
}

/// The proof that this processor has the instructions for one message.
#[derive(Debug, Clone, Copy)]
pub struct Alone(());

impl Alone {
    /// Returns None if the processor, or the operating system, lacks the instructions.
    pub fn detect() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        {
            alone::is_there().then_some(Self(()))
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            None
        }
    }

    /// Adds `blocks` to a chain of CBC-MAC.
    pub fn mac(self, key: Key<'_>, chain: &mut Block, blocks: &[Block]) {
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: `self` exists only if `detect` has found the instructions on this processor.
            unsafe { alone::mac(key, chain, blocks) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = (key, chain, blocks);
        }
    }

    /// Encrypts or decrypts all blocks of `lane`, and adds the plaintext to its chain.
    pub fn ccm(self, key: Key<'_>, direction: Direction, lane: &mut Lane<'_>) {
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: `self` exists only if `detect` has found the instructions on this processor.
            unsafe { alone::ccm(key, direction, lane) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = (key, direction, lane);
        }
    }
}

#[cfg(test)]
mod tests;
