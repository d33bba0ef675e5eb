//! LZ4, as a block without a frame: MS-SMB2 2.2.3.1.3, by the crate `lz4_flex`.

use crate::Malformed;

/// Compresses `input` into `output`. Returns the number of bytes written; None if they would be more
/// than `output` has.
pub fn compress(input: &[u8], output: &mut [u8]) -> Option<usize> {
    lz4_flex::block::compress_into(input, output).ok()
}

/// Expands `input` to exactly the bytes of `output`.
///
/// # Errors
/// If `input` is not LZ4 of as many bytes.
pub fn expand(input: &[u8], output: &mut [u8]) -> Result<(), Malformed> {
    match lz4_flex::block::decompress_into(input, output) {
        Ok(count) if count == output.len() => Ok(()),
        _ => Err(Malformed),
    }
}
