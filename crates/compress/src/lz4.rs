//! LZ4, as a block without a frame: MS-SMB2 2.2.3.1.3. The crate `lz4_flex` expands it; the compressor
//! here writes into any bytes, and ends as soon as they are full.

use lz4_flex::block::decompress_into;

use crate::Malformed;
use crate::cursor::Output;
use crate::lz77::INPUT_BYTES_MAX;
use crate::matches::{Match, Positions, Reach};

/// The largest distance of a match, in bytes.
const DISTANCE_MAX: usize = 65_535;

/// The shortest match that the format has, in bytes.
const LENGTH_MIN: usize = 4;

/// Bytes at the end that no match may begin in.
const TAIL_BEGIN: usize = 12;

/// Bytes at the end that no match may cover.
const TAIL: usize = 5;

/// Compresses `input` into `output`. Returns the number of bytes written; None if they would be more
/// than `output` has, or if `input` has more than [`INPUT_BYTES_MAX`].
pub fn compress(input: &[u8], output: &mut [u8]) -> Option<usize> {
    if input.len() > INPUT_BYTES_MAX {
        return None;
    }
    let mut positions = Positions::<{ 1 << 12 }>::new();
    let mut output = Output::new(output);
    let mut done = 0usize;
    let covered = input.get(..input.len().saturating_sub(TAIL)).unwrap_or_default();
    let last_begin = input.len().saturating_sub(TAIL_BEGIN);
    let reach = Reach { begin: 0, distance: DISTANCE_MAX };
    while let Some(found) = positions.next(covered, done, reach) {
        if found.at > last_begin {
            break;
        }
        repeat(&mut output, input, done, found)?;
        done = found.at.saturating_add(found.length);
        positions.note(covered, done.saturating_sub(2));
    }
    let literals = input.len().saturating_sub(done);
    token(&mut output, literals, 0)?;
    output.copy(input.get(done..)?)?;
    Some(output.at())
}

/// Writes the bytes from `done` up to a match as they are, and the match.
#[inline]
fn repeat(output: &mut Output<'_>, input: &[u8], done: usize, found: Match) -> Option<()> {
    let literals = found.at.saturating_sub(done);
    let length = found.length.saturating_sub(LENGTH_MIN);
    token(output, literals, length)?;
    output.copy_few(input, done, literals)?;
    output.put((found.distance as u16).to_le_bytes())?;
    match length.checked_sub(15) {
        Some(rest) => more(output, rest),
        None => Some(()),
    }
}

/// Writes the byte before literals and a match, with the rest of the number of literals.
#[inline]
fn token(output: &mut Output<'_>, literals: usize, length: usize) -> Option<()> {
    output.put([(literals.min(15) << 4 | length.min(15)) as u8])?;
    match literals.checked_sub(15) {
        Some(rest) => more(output, rest),
        None => Some(()),
    }
}

/// Writes the rest of a number that four bits do not hold.
#[inline(never)]
fn more(output: &mut Output<'_>, mut rest: usize) -> Option<()> {
    while let Some(less) = rest.checked_sub(255) {
        output.put([255])?;
        rest = less;
    }
    output.put([rest as u8])
}

/// Expands `input` to exactly the bytes of `output`.
///
/// # Errors
/// If `input` is not LZ4 of as many bytes.
pub fn expand(input: &[u8], output: &mut [u8]) -> Result<(), Malformed> {
    match decompress_into(input, output) {
        Ok(count) if count == output.len() => Ok(()),
        _ => Err(Malformed),
    }
}
