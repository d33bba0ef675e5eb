//! The bit stream of LZ77+Huffman: words of 16 bits, the first bit highest, between which whole bytes
//! lie (MS-XCA 2.1.4.3 and 2.2.4).

use crate::Malformed;
use crate::cursor::{Input, Output};

/// The writer. All methods return None when the output is full.
///
/// Two words are kept ahead, since a reader has always read two: bytes lie behind them.
#[derive(Debug)]
pub(crate) struct BitWriter<'a, 'o> {
    output: &'o mut Output<'a>,
    /// Places of the words that come next.
    next: usize,
    second: usize,
    /// Bits that the next word has room for.
    free: u32,
    word: u32,
}

impl<'a, 'o> BitWriter<'a, 'o> {
    pub(crate) fn new(output: &'o mut Output<'a>) -> Option<Self> {
        let (next, second) = (output.skip(2)?, output.skip(2)?);
        Some(Self { output, next, second, free: 16, word: 0 })
    }

    /// Writes the lowest `count` bits of `bits`, at most 16, whose other bits are zero.
    pub(crate) fn bits(&mut self, count: u32, bits: u32) -> Option<()> {
        if let Some(free) = self.free.checked_sub(count) {
            self.free = free;
            self.word = self.word << count | bits;
            return Some(());
        }
        let rest = count.wrapping_sub(self.free);
        self.word = self.word << self.free | bits >> rest;
        self.output.set(self.next, (self.word as u16).to_le_bytes())?;
        self.next = self.second;
        self.second = self.output.skip(2)?;
        self.free = 16u32.wrapping_sub(rest);
        self.word = bits;
        Some(())
    }

    /// Writes whole bytes, which the reader takes before its next word.
    pub(crate) fn bytes<const N: usize>(&mut self, bytes: [u8; N]) -> Option<()> {
        self.output.put(bytes)
    }

    /// Fills the last words with zeros.
    pub(crate) fn finish(self) -> Option<()> {
        let word = self.word << self.free;
        self.output.set(self.next, (word as u16).to_le_bytes())?;
        self.output.set(self.second, [0, 0])
    }
}

/// The reader.
#[derive(Debug)]
pub(crate) struct BitReader<'a, 'i> {
    pub(crate) input: &'i mut Input<'a>,
    /// The next bits, the first one highest.
    next: u32,
    /// Bits in `next` beyond 16.
    more: i32,
}

impl<'a, 'i> BitReader<'a, 'i> {
    pub(crate) fn new(input: &'i mut Input<'a>) -> Result<Self, Malformed> {
        let first = u32::from(input.u16()?);
        let next = first << 16 | u32::from(input.u16()?);
        Ok(Self { input, next, more: 16 })
    }

    /// Returns the next 15 bits, which stay.
    pub(crate) const fn peek(&self) -> u32 {
        self.next >> 17
    }

    /// True if the bits that were read ahead are zero.
    pub(crate) const fn is_zero(&self) -> bool {
        self.next == 0
    }

    /// Takes `count` bits, at most 15. None of them are read after the end of the input.
    pub(crate) fn take(&mut self, count: u32) -> Result<u32, Malformed> {
        let taken = self.next.checked_shr(32u32.wrapping_sub(count)).unwrap_or(0);
        self.next = self.next.checked_shl(count).unwrap_or(0);
        self.more = self.more.wrapping_sub(count as i32);
        if self.more < 0 {
            let word = u32::from(self.input.u16()?);
            self.next |= word << self.more.unsigned_abs();
            self.more = self.more.wrapping_add(16);
        }
        Ok(taken)
    }
}
