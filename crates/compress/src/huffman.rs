//! LZ77+Huffman: MS-XCA 2.1 and 2.2.

use alloc::vec::Vec;

use crate::Malformed;
use crate::bits::{BitReader, BitWriter};
use crate::codes::{self, Code, Decoder, Lengths, SYMBOLS};
use crate::cursor::{Expanded, Input, Output};
use crate::lz77::INPUT_BYTES_MAX;
use crate::matches::{Positions, Reach};

/// Bytes with one table of codes.
const BLOCK: usize = 1 << 16;

/// The largest distance of a match, in bytes.
const DISTANCE_MAX: usize = (1 << 16) - 1;

/// The shortest match that the format has, in bytes.
const LENGTH_MIN: usize = 3;

/// Bytes of a table of codes: four bits for each symbol.
const TABLE: usize = SYMBOLS / 2;

/// The symbol for the end, which is that of a match of three bytes too.
const END: u32 = 256;

/// A literal or a match, before its bits are known.
#[derive(Debug, Clone, Copy)]
struct Item {
    symbol: u16,
    /// The distance of a match less its highest bit.
    low_distance: u16,
    /// The length of a match less [`LENGTH_MIN`].
    length: u16,
}

/// A compressor, with memory that it uses again.
#[derive(Debug)]
pub struct Compressor {
    positions: Positions<{ 1 << 15 }>,
    items: Vec<Item>,
}

impl Default for Compressor {
    fn default() -> Self {
        Self { positions: Positions::new(), items: Vec::new() }
    }
}

impl Compressor {
    /// Compresses `input` into `output`. Returns the number of bytes written; None if they would be
    /// more than `output` has, or if `input` has more than [`INPUT_BYTES_MAX`].
    pub fn compress(&mut self, input: &[u8], output: &mut [u8]) -> Option<usize> {
        if input.len() > INPUT_BYTES_MAX {
            return None;
        }
        self.positions.clear();
        let mut output = Output::new(output);
        let mut begin = 0usize;
        loop {
            let end = begin.saturating_add(BLOCK).min(input.len());
            let is_last = end == input.len();
            let mut counts = self.find_items(input, begin, end);
            if is_last && let Some(count) = counts.get_mut(END as usize) {
                *count = count.saturating_add(1);
            }
            let lengths = codes::lengths_of(&counts);
            self.write_block(&lengths, is_last, &mut output)?;
            begin = end;
            if is_last {
                return Some(output.at());
            }
        }
    }

    /// Finds the literals and matches of a block. Returns how often each symbol occurs.
    fn find_items(&mut self, input: &[u8], begin: usize, end: usize) -> [u32; SYMBOLS] {
        self.items.clear();
        let input = input.get(..end).unwrap_or(input);
        let mut done = begin;
        let reach = Reach { begin: 0, distance: DISTANCE_MAX };
        while let Some(found) = self.positions.next(input, done, reach) {
            self.literals(input, done, found.at);
            let length = found.length.saturating_sub(LENGTH_MIN);
            let high = found.distance.checked_ilog2().unwrap_or(0);
            let symbol = (END as usize).saturating_add(length.min(15)) | (high as usize) << 4;
            let low_distance = found.distance & !1usize.checked_shl(high).unwrap_or(0);
            let item = (symbol as u16, low_distance as u16, length as u16);
            let (symbol, low_distance, length) = item;
            self.items.push(Item { symbol, low_distance, length });
            done = found.at.saturating_add(found.length);
            self.positions.note(input, done.saturating_sub(2));
        }
        self.literals(input, done, end);
        let mut counts = [0u32; SYMBOLS];
        for item in &self.items {
            if let Some(count) = counts.get_mut(usize::from(item.symbol)) {
                *count = count.saturating_add(1);
            }
        }
        counts
    }

    fn literals(&mut self, input: &[u8], begin: usize, end: usize) {
        let literals = input.get(begin..end).unwrap_or_default();
        let item = |byte: &u8| Item { symbol: u16::from(*byte), low_distance: 0, length: 0 };
        self.items.extend(literals.iter().map(item));
    }

    fn write_block(&self, lengths: &Lengths, is_last: bool, output: &mut Output<'_>) -> Option<()> {
        for [even, odd] in lengths.as_chunks::<2>().0 {
            output.put([even | odd << 4])?;
        }
        let codes = codes::codes_of(lengths);
        let mut bits = BitWriter::new(output)?;
        for item in &self.items {
            let code = codes.get(usize::from(item.symbol))?;
            bits.bits(code.length, code.bits)?;
            if let Some(match_bits) = u32::from(item.symbol).checked_sub(END) {
                write_match(&mut bits, *item, match_bits >> 4)?;
            }
        }
        if is_last {
            let Code { length, bits: end } = *codes.get(END as usize)?;
            bits.bits(length, end)?;
        }
        bits.finish()
    }
}

/// Writes what the symbol of a match does not say.
fn write_match(bits: &mut BitWriter<'_, '_>, item: Item, high_bit: u32) -> Option<()> {
    if let Some(rest) = item.length.checked_sub(15) {
        match u8::try_from(rest) {
            Ok(short) if short < 255 => bits.bytes([short])?,
            _ => {
                bits.bytes([255])?;
                bits.bytes(item.length.to_le_bytes())?;
            }
        }
    }
    bits.bits(high_bit, u32::from(item.low_distance))
}

/// An expander, with memory that it uses again.
#[derive(Debug)]
pub struct Expander {
    decoder: Decoder,
}

impl Default for Expander {
    fn default() -> Self {
        Self { decoder: Decoder::new() }
    }
}

impl Expander {
    /// Expands `input` to exactly the bytes of `output`.
    ///
    /// # Errors
    /// If `input` is not LZ77+Huffman of as many bytes.
    pub fn expand(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), Malformed> {
        let (mut input, mut output) = (Input::new(input), Expanded::new(output));
        let mut is_ended = output.is_full() && input.left() == 0;
        while !output.is_full() {
            self.read_table(&mut input)?;
            let end = output.at().saturating_add(BLOCK);
            let mut bits = BitReader::new(&mut input)?;
            self.block(&mut bits, &mut output, end)?;
            // Behind a whole block the symbol for the end may be in another one.
            if output.is_full() && (output.at() < end || bits.input.left() < TABLE) {
                is_ended = self.is_at_end(&mut bits)?;
                if !is_ended {
                    return Err(Malformed);
                }
            }
        }
        if !is_ended {
            self.read_table(&mut input)?;
            is_ended = self.is_at_end(&mut BitReader::new(&mut input)?)?;
        }
        if is_ended { Ok(()) } else { Err(Malformed) }
    }

    /// Reads the table of codes at the beginning of a block.
    fn read_table(&mut self, input: &mut Input<'_>) -> Result<(), Malformed> {
        let mut lengths = [0; SYMBOLS];
        let table = input.take(TABLE)?;
        for ([even, odd], both) in lengths.as_chunks_mut::<2>().0.iter_mut().zip(table) {
            (*even, *odd) = (both & 15, both >> 4);
        }
        self.decoder.set(&lengths)
    }

    /// Returns true if nothing follows but the symbol for the end, which not every compressor writes, and
    /// zeros up to the end of the last word.
    fn is_at_end(&self, bits: &mut BitReader<'_, '_>) -> Result<bool, Malformed> {
        let is_over = |bits: &BitReader<'_, '_>| bits.is_zero() && bits.input.left() == 0;
        if is_over(bits) {
            return Ok(true);
        }
        let (symbol, length) = self.decoder.symbol(bits.peek())?;
        bits.take(length)?;
        Ok(symbol == END && is_over(bits))
    }

    fn block(
        &self,
        bits: &mut BitReader<'_, '_>,
        output: &mut Expanded<'_>,
        end: usize,
    ) -> Result<(), Malformed> {
        while output.at() < end && !output.is_full() {
            let (symbol, length) = self.decoder.symbol(bits.peek())?;
            bits.take(length)?;
            let Some(match_bits) = symbol.checked_sub(END) else {
                output.push(symbol as u8)?;
                continue;
            };
            let length = match match_bits & 15 {
                15 => long_length(bits.input)?,
                short => short as usize,
            };
            let high_bit = match_bits >> 4;
            let low = bits.take(high_bit)?;
            let distance = 1usize.checked_shl(high_bit).unwrap_or(0).saturating_add(low as usize);
            output.repeat(distance, length.saturating_add(LENGTH_MIN))?;
        }
        Ok(())
    }
}

/// Reads the length of a match, less [`LENGTH_MIN`], that the symbol does not hold.
fn long_length(input: &mut Input<'_>) -> Result<usize, Malformed> {
    match input.u8()? {
        255 => {
            let length = match input.u16()? {
                0 => input.u32()?,
                length => u32::from(length),
            };
            if length < 15 { Err(Malformed) } else { Ok(length as usize) }
        }
        byte => Ok(usize::from(byte).saturating_add(15)),
    }
}
