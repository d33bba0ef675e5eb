//! Plain LZ77: MS-XCA 2.3 and 2.4.

use crate::Malformed;
use crate::cursor::{Expanded, Input, Output};
use crate::matches::{Positions, Reach};

/// The largest distance of a match, in bytes.
const DISTANCE_MAX: usize = 8192;

/// The shortest match that the format has, in bytes.
const LENGTH_MIN: usize = 3;

/// Bytes from which on nothing is compressed: positions are kept in 32 bits.
pub const INPUT_BYTES_MAX: usize = 1 << 30;

/// Places of the table of positions.
const TABLE: usize = 1 << 13;

/// A compressor, with memory that it uses again.
#[derive(Debug)]
pub struct Compressor {
    positions: Positions<TABLE>,
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
        compress(&mut self.positions, input, output)
    }
}

/// Compresses `input`, of at most [`INPUT_BYTES_MAX`], with a table of any size.
pub(crate) fn compress<const N: usize>(
    positions: &mut Positions<N>,
    input: &[u8],
    output: &mut [u8],
) -> Option<usize> {
    positions.clear();
    let mut encoder = Encoder::new(output)?;
    let mut done = 0usize;
    let reach = Reach { begin: 0, distance: DISTANCE_MAX };
    while let Some(found) = positions.next(input, done, reach) {
        encoder.literals(input, done, found.at.saturating_sub(done))?;
        encoder.repeat(found.distance, found.length)?;
        done = found.at.saturating_add(found.length);
        positions.note(input, done.saturating_sub(2));
    }
    encoder.literals(input, done, input.len().saturating_sub(done))?;
    encoder.finish()
}

/// The writer of the format. All methods return None when the output is full.
struct Encoder<'a> {
    output: Output<'a>,
    /// A bit for each literal or match since `flags_at`, the last one lowest.
    flags: u32,
    count: u32,
    /// The place for the flags.
    flags_at: usize,
    /// The byte whose upper half is free for a length.
    half_at: Option<usize>,
}

impl<'a> Encoder<'a> {
    fn new(output: &'a mut [u8]) -> Option<Self> {
        let mut output = Output::new(output);
        let flags_at = output.skip(4)?;
        Some(Self { output, flags: 0, count: 0, flags_at, half_at: None })
    }

    /// Writes `count` bytes of `input` from `at` on as they are.
    #[inline]
    fn literals(&mut self, input: &[u8], at: usize, count: usize) -> Option<()> {
        if count >= 32u32.wrapping_sub(self.count) as usize {
            // A value of its own: else all of `self` would be in memory and not in registers.
            *self = self.taken().many_literals(input, at, count)?;
            return Some(());
        }
        self.output.copy_few(input, at, count)?;
        self.flags = self.flags.wrapping_shl(count as u32);
        self.count = self.count.wrapping_add(count as u32);
        Some(())
    }

    /// Returns its state, and leaves one without bytes.
    #[inline]
    fn taken(&mut self) -> Self {
        Self { output: self.output.taken(), ..*self }
    }

    /// Writes as many as the flags have room for, or more.
    #[inline(never)]
    fn many_literals(mut self, input: &[u8], mut at: usize, mut count: usize) -> Option<Self> {
        while count > 0 {
            let room = 32u32.wrapping_sub(self.count);
            let now = count.min(room as usize);
            self.output.copy_few(input, at, now)?;
            self.flags = self.flags.checked_shl(now as u32).unwrap_or(0);
            self.count = self.count.wrapping_add(now as u32);
            self.end_flags()?;
            at = at.wrapping_add(now);
            count = count.wrapping_sub(now);
        }
        Some(self)
    }

    /// Writes a match of at least [`LENGTH_MIN`] bytes.
    #[inline]
    fn repeat(&mut self, distance: usize, length: usize) -> Option<()> {
        let length = length.saturating_sub(LENGTH_MIN);
        let word = (distance.saturating_sub(1) << 3 | length.min(7)) as u16;
        self.output.put(word.to_le_bytes())?;
        if let Some(more) = length.checked_sub(7) {
            self.half(more.min(15) as u8)?;
            if more >= 15 {
                *self = self.taken().long(more.saturating_sub(15), length)?;
            }
        }
        self.flags = self.flags << 1 | 1;
        self.count = self.count.wrapping_add(1);
        self.end_flags()
    }

    /// Writes four bits of a length: two of them share a byte.
    fn half(&mut self, bits: u8) -> Option<()> {
        match self.half_at.take() {
            Some(at) => self.output.add_bits(at, bits << 4),
            None => {
                self.half_at = Some(self.output.at());
                self.output.put([bits])
            }
        }
    }

    /// Writes the rest of a length that four bits do not hold.
    #[inline(never)]
    fn long(mut self, rest: usize, length: usize) -> Option<Self> {
        if rest < 255 {
            self.output.put([rest as u8])?;
            return Some(self);
        }
        self.output.put([255])?;
        match u16::try_from(length) {
            Ok(short) => self.output.put(short.to_le_bytes())?,
            Err(_) => {
                self.output.put([0, 0])?;
                self.output.put(u32::try_from(length).ok()?.to_le_bytes())?;
            }
        }
        Some(self)
    }

    /// Writes the flags if there are 32.
    #[inline]
    fn end_flags(&mut self) -> Option<()> {
        if self.count == 32 {
            self.output.set(self.flags_at, self.flags.to_le_bytes())?;
            self.flags_at = self.output.skip(4)?;
            (self.flags, self.count) = (0, 0);
        }
        Some(())
    }

    /// Writes the last flags, whose rest is ones. Returns the number of bytes.
    fn finish(mut self) -> Option<usize> {
        let rest = 32u32.wrapping_sub(self.count);
        let ones = u32::MAX.checked_shr(self.count).unwrap_or(0);
        let flags = self.flags.checked_shl(rest).unwrap_or(0) | ones;
        self.output.set(self.flags_at, flags.to_le_bytes())?;
        Some(self.output.at())
    }
}

/// Expands `input` to exactly the bytes of `output`.
///
/// # Errors
/// If `input` is not LZ77 of as many bytes.
pub fn expand(input: &[u8], output: &mut [u8]) -> Result<(), Malformed> {
    let (mut input, mut output) = (Input::new(input), Expanded::new(output));
    let mut half = None;
    loop {
        // Behind the flags stands a bit of one, so that there is always one.
        let mut flags = u64::from(input.u32()?) << 32 | END_OF_FLAGS;
        loop {
            // The literals before the next match are copied together. There may be none, but
            // testing for that would cost more than it saves.
            let literals = flags.leading_zeros();
            output.copy_few(&mut input, literals as usize)?;
            flags = flags.wrapping_shl(literals);
            if flags == 1 << 63 {
                break;
            }
            let Ok(word) = input.u16() else {
                let is_whole = input.left() == 0 && output.is_full();
                return if is_whole { Ok(()) } else { Err(Malformed) };
            };
            let word = usize::from(word);
            let length = match word & 7 {
                7 => long_length(&mut input, &mut half)?,
                short => short.wrapping_add(LENGTH_MIN),
            };
            output.repeat((word >> 3).wrapping_add(1), length)?;
            flags = flags.wrapping_shl(1);
        }
    }
}

/// The bit behind 32 flags.
const END_OF_FLAGS: u64 = 1 << 31;

/// Reads the length of a match whose three bits do not hold it.
fn long_length(input: &mut Input<'_>, half: &mut Option<u8>) -> Result<usize, Malformed> {
    let bits = match half.take() {
        Some(upper) => upper,
        None => {
            let both = input.u8()?;
            *half = Some(both >> 4);
            both & 15
        }
    };
    let length = match bits {
        15 => match input.u8()? {
            255 => {
                let length = match input.u16()? {
                    0 => input.u32()?,
                    length => u32::from(length),
                };
                // Shorter lengths must be in the four bits or in the byte, so the long form is
                // refused for them.
                (length >= 15 + 7).then_some(length as usize).ok_or(Malformed)?
            }
            byte => usize::from(byte).saturating_add(15 + 7),
        },
        bits => usize::from(bits).saturating_add(7),
    };
    Ok(length.saturating_add(LENGTH_MIN))
}
