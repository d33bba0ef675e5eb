//! LZ4, as a block without a frame: MS-SMB2 2.2.3.1.3, by the crate `lz4_flex`.

use alloc::vec;

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

use crate::Malformed;

/// Compresses `input` into `output`. Returns the number of bytes written; None if they would be more
/// than `output` has.
pub fn compress(input: &[u8], output: &mut [u8]) -> Option<usize> {
    let most = get_maximum_output_size(input.len());
    if output.len() >= most {
        return compress_into(input, output).ok();
    }
    // The crate wants room for data that does not shrink.
    let mut room = vec![0; most];
    let count = compress_into(input, &mut room).ok()?;
    output.get_mut(..count)?.copy_from_slice(room.get(..count)?);
    Some(count)
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
