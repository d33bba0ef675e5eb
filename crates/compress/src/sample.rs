//! A look at a few bytes of data, to tell whether it is worth compressing.

use crate::lz77;

/// Bytes of a piece that is tried.
const PIECE: usize = 2048;

/// Number of pieces, spread over the data.
const PIECES: usize = 4;

/// Data of fewer bytes is tried as a whole by whoever compresses it.
pub const DATA_MIN: usize = 4 * PIECE * PIECES;

/// Returns false if a few pieces of `data` do not become at least a sixteenth smaller: data that was
/// compressed or encrypted before. Data of less than [`DATA_MIN`] bytes is not looked at.
pub fn is_worth(compressor: &mut lz77::Compressor, data: &[u8]) -> bool {
    if data.len() < DATA_MIN {
        return true;
    }
    let mut room = [0; PIECE - PIECE / 16];
    let apart = data.len() / PIECES;
    data.chunks(apart.max(PIECE)).take(PIECES).any(|part| {
        let piece = part.first_chunk::<PIECE>().map_or(part, <[u8; PIECE]>::as_slice);
        compressor.compress(piece, &mut room).is_some()
    })
}
