//! Canonical Huffman codes of 512 symbols, at most 15 bits long: MS-XCA 2.1.4.2 and 2.2.4.

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::Malformed;

/// Number of symbols.
pub(crate) const SYMBOLS: usize = 512;

/// Bits of the longest code.
const BITS_MAX: u32 = 15;

/// Number of entries of a table by the next 15 bits.
const ENTRIES: usize = 1 << BITS_MAX;

/// The bits of each symbol's code; zero for a symbol without one.
pub(crate) type Lengths = [u8; SYMBOLS];

/// Returns the lengths of the codes for symbols that occur as often as `counts` says. At least two
/// symbols have one, so that the codes are complete.
pub(crate) fn lengths_of(counts: &[u32; SYMBOLS]) -> Lengths {
    let mut counts = *counts;
    let used = counts.iter().filter(|count| **count > 0).count();
    let unused = counts.iter_mut().filter(|count| **count == 0);
    unused.take(2usize.saturating_sub(used)).for_each(|count| *count = 1);
    loop {
        let lengths = unlimited(&counts);
        if lengths.iter().all(|length| u32::from(*length) <= BITS_MAX) {
            return lengths;
        }
        // If the counts differ less, the lengths of the codes differ less, too.
        counts.iter_mut().for_each(|count| *count = count.div_ceil(2));
    }
}

fn unlimited(counts: &[u32; SYMBOLS]) -> Lengths {
    let mut lengths = [0u8; SYMBOLS];
    let mut trees: BinaryHeap<_> = (0u32..)
        .zip(counts)
        .filter(|(_, count)| **count > 0)
        .map(|(symbol, count)| Reverse((*count, symbol, vec![symbol])))
        .collect();
    while let (Some(Reverse(mut lighter)), Some(Reverse(heavier))) = (trees.pop(), trees.pop()) {
        let (mut symbols, more) = (core::mem::take(&mut lighter.2), heavier.2);
        symbols.extend(more);
        for symbol in &symbols {
            if let Some(length) = lengths.get_mut(*symbol as usize) {
                *length = length.saturating_add(1);
            }
        }
        if trees.is_empty() {
            break;
        }
        trees.push(Reverse((lighter.0.saturating_add(heavier.0), heavier.1, symbols)));
    }
    lengths
}

/// The symbols that have codes, in the order of the codes: by length, then by value.
fn in_order(lengths: &Lengths) -> Vec<(u32, u32)> {
    let with_codes = (0u32..).zip(lengths).filter(|(_, length)| **length > 0);
    let mut order: Vec<_> =
        with_codes.map(|(symbol, length)| (u32::from(*length), symbol)).collect();
    order.sort_unstable();
    order
}

/// A code: its length and its bits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Code {
    pub(crate) length: u32,
    pub(crate) bits: u32,
}

/// The code of each symbol.
pub(crate) fn codes_of(lengths: &Lengths) -> [Code; SYMBOLS] {
    let mut codes = [Code::default(); SYMBOLS];
    let mut bits = 0u32;
    let mut before = 0u32;
    for (length, symbol) in in_order(lengths) {
        bits <<= length.wrapping_sub(before).min(BITS_MAX);
        before = length;
        if let Some(code) = codes.get_mut(symbol as usize) {
            *code = Code { length, bits };
        }
        bits = bits.wrapping_add(1);
    }
    codes
}

/// A table of the symbols by the next 15 bits, with memory that is used again.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// The symbol, and the length of its code in the lowest four bits.
    entries: Box<[u16]>,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self { entries: vec![0; ENTRIES].into_boxed_slice() }
    }

    /// Sets the codes.
    ///
    /// # Errors
    /// If the codes are not complete, or not free of prefixes.
    pub(crate) fn set(&mut self, lengths: &Lengths) -> Result<(), Malformed> {
        let mut rest = &mut *self.entries;
        for (length, symbol) in in_order(lengths) {
            let count = 1usize.checked_shl(BITS_MAX.saturating_sub(length)).ok_or(Malformed)?;
            let (now, later) = rest.split_at_mut_checked(count).ok_or(Malformed)?;
            now.fill((symbol << 4 | length) as u16);
            rest = later;
        }
        if rest.is_empty() { Ok(()) } else { Err(Malformed) }
    }

    /// Returns the symbol that begins with these 15 bits, and the length of its code.
    pub(crate) fn symbol(&self, next: u32) -> Result<(u32, u32), Malformed> {
        let entry = u32::from(*self.entries.get(next as usize).ok_or(Malformed)?);
        Ok((entry >> 4, entry & 15))
    }
}
