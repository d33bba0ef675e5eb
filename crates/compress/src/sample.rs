//! A look at a few bytes of data, to tell whether it is worth compressing.

use crate::lz77;
use crate::matches::Positions;

/// Bytes of a piece that is tried.
const PIECE: usize = 2048;

/// Number of pieces at most, spread over the data.
const PIECES: usize = 4;

/// Places of the table of positions: few, since it is cleared for each piece.
const TABLE: usize = 1 << 10;

/// Data of fewer bytes is tried as a whole by whoever compresses it.
pub const DATA_MIN: usize = 2 * PIECE;

/// Memory that the looks use again.
#[derive(Debug)]
pub struct Sampler {
    positions: Positions<TABLE>,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { positions: Positions::new() }
    }
}

impl Sampler {
    /// Returns false if a few pieces of `data` do not become at least a sixteenth smaller: data that was
    /// compressed or encrypted before. Data of less than [`DATA_MIN`] bytes is not looked at.
    pub fn is_worth(&mut self, data: &[u8]) -> bool {
        if data.len() < DATA_MIN {
            return true;
        }
        let mut room = [0; PIECE - PIECE / 16];
        let apart = (data.len() / PIECES).max(PIECE);
        let pieces = data.chunks(apart).filter_map(<[u8]>::first_chunk::<PIECE>);
        pieces
            .take(PIECES)
            .any(|piece| lz77::compress(&mut self.positions, piece, &mut room).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Bytes that do not shrink.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 88_172_645_463_325_252u64;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        };
        core::iter::repeat_with(next).take(len).collect()
    }

    #[test]
    fn data_is_looked_at_from_4_kib_on() {
        let mut sampler = Sampler::default();
        for len in [DATA_MIN, DATA_MIN + 1, 3 * PIECE, 8 * PIECE, 1 << 20] {
            assert!(!sampler.is_worth(&noise(len)), "{len}");
            assert!(sampler.is_worth(&b"words and more of them, ".repeat(len / 24 + 1)), "{len}");
        }
        assert!(sampler.is_worth(&noise(DATA_MIN - 1)), "it is tried as a whole");
        // A piece that shrinks is enough, also a rest of the data.
        let mut mixed = noise(1 << 16);
        mixed[1 << 15..][..PIECE].fill(7);
        assert!(sampler.is_worth(&mixed));
    }
}
