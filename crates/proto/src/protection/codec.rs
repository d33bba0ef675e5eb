//! The algorithms that compress data, MS-SMB2 2.2.3.1.3, by crate `frevo_compress`.

use frevo_compress::{Malformed, huffman, lz4, lz77, lznt1};
use frevo_wire::compression::CompressionAlgorithm;

/// An algorithm that compresses data, and whose payloads say the size of what they expand to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// LZNT1
    Lznt1,
    /// LZ77
    Lz77,
    /// LZ77+Huffman
    Huffman,
    /// LZ4
    Lz4,
}

impl Codec {
    /// All of them, those that compress fastest first.
    pub const ALL: [Self; 4] = [Self::Lz4, Self::Lz77, Self::Huffman, Self::Lznt1];

    /// Returns the codec of an algorithm; None for NONE, Pattern_V1 and unknown ones.
    pub const fn of(algorithm: CompressionAlgorithm) -> Option<Self> {
        match algorithm {
            CompressionAlgorithm::LZNT1 => Some(Self::Lznt1),
            CompressionAlgorithm::LZ77 => Some(Self::Lz77),
            CompressionAlgorithm::LZ77_HUFFMAN => Some(Self::Huffman),
            CompressionAlgorithm::LZ4 => Some(Self::Lz4),
            _ => None,
        }
    }

    /// Returns its number on the wire.
    pub const fn id(self) -> CompressionAlgorithm {
        match self {
            Self::Lznt1 => CompressionAlgorithm::LZNT1,
            Self::Lz77 => CompressionAlgorithm::LZ77,
            Self::Huffman => CompressionAlgorithm::LZ77_HUFFMAN,
            Self::Lz4 => CompressionAlgorithm::LZ4,
        }
    }

    /// Compresses `input` into `output`. Returns the number of bytes; None if they are more than
    /// `output` has.
    pub fn compress_into(self, input: &[u8], output: &mut [u8]) -> Option<usize> {
        match self {
            Self::Lznt1 => lznt1::Compressor::default().compress(input, output),
            Self::Lz77 => lz77::Compressor::default().compress(input, output),
            Self::Huffman => huffman::Compressor::default().compress(input, output),
            Self::Lz4 => lz4::compress(input, output),
        }
    }

    /// Expands `input` to exactly the bytes of `output`.
    pub(super) fn expand(self, input: &[u8], output: &mut [u8]) -> Result<(), Malformed> {
        match self {
            Self::Lznt1 => lznt1::expand(input, output),
            Self::Lz77 => lz77::expand(input, output),
            Self::Huffman => huffman::Expander::default().expand(input, output),
            Self::Lz4 => lz4::expand(input, output),
        }
    }
}
