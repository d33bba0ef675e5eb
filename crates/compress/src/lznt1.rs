//! LZNT1: MS-XCA 2.5.

use crate::Malformed;
use crate::cursor::{Expanded, Input, Output};
use crate::lz77::INPUT_BYTES_MAX;
use crate::matches::{Match, Positions, Reach};

/// Bytes that one chunk expands to; the last one may have fewer.
const CHUNK: usize = 4096;

/// The shortest match that the format has, in bytes.
const LENGTH_MIN: usize = 3;

/// Bits of a chunk's header that say that it is compressed.
const COMPRESSED: u16 = 0x8000;

/// The signature in a chunk's header.
const SIGNATURE: u16 = 0x3000;

/// A compressor, with memory that it uses again.
#[derive(Debug)]
pub struct Compressor {
    positions: Positions<{ 1 << 12 }>,
}

impl Default for Compressor {
    fn default() -> Self {
        Self { positions: Positions::new() }
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
        for begin in (0..input.len()).step_by(CHUNK) {
            let end = begin.saturating_add(CHUNK).min(input.len());
            let header_at = output.skip(2)?;
            let before = output.at();
            let so_far = input.get(..end)?;
            if self.chunk(so_far, begin, &mut output).is_none()
                || output.at().saturating_sub(before) >= end.saturating_sub(begin)
            {
                output.rewind(before);
                output.copy(input.get(begin..end)?)?;
                let header = SIGNATURE | end.wrapping_sub(begin).wrapping_sub(1) as u16;
                output.set(header_at, header.to_le_bytes())?;
                continue;
            }
            // The size with the header, less three.
            let size = output.at().wrapping_sub(before).wrapping_sub(1) as u16;
            output.set(header_at, (COMPRESSED | SIGNATURE | size).to_le_bytes())?;
        }
        Some(output.at())
    }

    /// Compresses one chunk, which is what `input` has from `begin` on; None if it does not become smaller.
    fn chunk(&mut self, input: &[u8], begin: usize, output: &mut Output<'_>) -> Option<()> {
        let end = input.len();
        let most = output.at().saturating_add(end.saturating_sub(begin));
        let mut group = Group { output, flags_at: 0, flags: 0, count: 8 };
        let mut done = begin;
        let reach = Reach { begin, distance: CHUNK };
        while let Some(found) = self.positions.next(input, done, reach) {
            for byte in input.get(done..found.at)? {
                group.literal(*byte)?;
            }
            if group.output.at() >= most {
                return None;
            }
            let length = group.repeat(found.at.saturating_sub(begin), found)?;
            done = found.at.saturating_add(length);
            self.positions.note(input, done.saturating_sub(2));
        }
        for byte in input.get(done..end)? {
            group.literal(*byte)?;
        }
        group.finish()
    }
}

/// Up to eight literals and matches with their flags.
struct Group<'a, 'o> {
    output: &'o mut Output<'a>,
    flags_at: usize,
    /// A bit for each of them, the first one lowest.
    flags: u8,
    count: u32,
}

impl Group<'_, '_> {
    /// Adds the flag of the next one.
    fn flag(&mut self, bit: u8) -> Option<()> {
        if self.count == 8 {
            self.finish()?;
            self.flags_at = self.output.skip(1)?;
            (self.flags, self.count) = (0, 0);
        }
        self.flags |= bit << self.count;
        self.count = self.count.wrapping_add(1);
        Some(())
    }

    fn literal(&mut self, byte: u8) -> Option<()> {
        self.flag(0)?;
        self.output.put([byte])
    }

    /// Writes a match that begins `at` bytes behind the beginning of the chunk, as long as the format
    /// allows. Returns its length.
    fn repeat(&mut self, at: usize, found: Match) -> Option<usize> {
        let length_bits = length_bits(at);
        let most = (1usize << length_bits).saturating_add(LENGTH_MIN).saturating_sub(1);
        let length = found.length.min(most);
        let distance = found.distance.saturating_sub(1) << length_bits;
        let word = (distance | length.saturating_sub(LENGTH_MIN)) as u16;
        self.flag(1)?;
        self.output.put(word.to_le_bytes())?;
        Some(length)
    }

    /// Writes the flags.
    fn finish(&mut self) -> Option<()> {
        if self.flags_at > 0 { self.output.set(self.flags_at, [self.flags]) } else { Some(()) }
    }
}

/// Returns the bits of a length in a match that begins `at` bytes behind the beginning of the chunk;
/// the others are the distance.
fn length_bits(at: usize) -> u32 {
    // The distance has M bits, the largest M of 4 to 12 with 2^(M-1) < at.
    let bits = at.saturating_sub(1).checked_ilog2().unwrap_or(0).saturating_add(1);
    16u32.saturating_sub(bits.clamp(4, 12))
}

/// Expands `input` to exactly the bytes of `output`.
///
/// # Errors
/// If `input` is not LZNT1 of as many bytes.
pub fn expand(input: &[u8], output: &mut [u8]) -> Result<(), Malformed> {
    let (mut input, mut output) = (Input::new(input), Expanded::new(output));
    while !output.is_full() {
        let header = input.u16()?;
        let size = usize::from(header & 0x0FFF).saturating_add(1);
        if header & 0x7000 != SIGNATURE {
            return Err(Malformed);
        }
        let chunk = input.take(size)?;
        let begin = output.at();
        if header & COMPRESSED == 0 {
            output.copy(chunk)?;
        } else {
            expand_chunk(Input::new(chunk), &mut output, begin)?;
        }
        let length = output.at().saturating_sub(begin);
        // A chunk that is shorter is the last one.
        if length > CHUNK || length < CHUNK && !output.is_full() {
            return Err(Malformed);
        }
    }
    // If bytes are left, a header of zero marks the end.
    match input.left() {
        0 => Ok(()),
        _ if input.u16()? == 0 => Ok(()),
        _ => Err(Malformed),
    }
}

fn expand_chunk(
    mut input: Input<'_>,
    output: &mut Expanded<'_>,
    begin: usize,
) -> Result<(), Malformed> {
    while input.left() > 0 {
        let mut flags = input.u8()?;
        for _ in 0..8 {
            if input.left() == 0 {
                break;
            }
            if flags & 1 == 0 {
                output.push(input.u8()?)?;
            } else {
                let word = usize::from(input.u16()?);
                let at = output.at().saturating_sub(begin);
                let length_bits = length_bits(at);
                let length = word & !(usize::MAX << length_bits);
                let distance = (word >> length_bits).saturating_add(1);
                if distance > at {
                    return Err(Malformed);
                }
                output.repeat(distance, length.saturating_add(LENGTH_MIN))?;
            }
            flags >>= 1;
        }
    }
    Ok(())
}
