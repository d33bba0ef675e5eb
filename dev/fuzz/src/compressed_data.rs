//! Compressed data of each algorithm, and data to compress.

use frevo_compress::{Malformed, huffman, lz4, lz77, lznt1, pattern, sample};

use crate::allocation;
use crate::choices::Choices;

/// Bytes that an input is expanded to at most.
const EXPANDED_MAX: usize = 1 << 20;

/// Expands the input to as many bytes as it says, and compresses it: what is compressed expands again,
/// and fits into what it was given.
pub fn compressed_data(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (algorithm, count) = (choices.u8() % 4, usize::from(choices.u8()) << (choices.u8() % 13));
    let data = choices.take(usize::MAX);
    let count = count.min(EXPANDED_MAX);
    // The caller gives this memory: the data itself cannot take more than a parser may.
    allocation::raise(count);
    let mut output = vec![0; count];
    let _ = expand(algorithm, data, &mut output);
    let most = data.len() - data.len() / 8;
    let mut room = vec![0; most];
    if let Some(written) = compress(algorithm, data, &mut room) {
        assert!(written <= most);
        let mut again = vec![0; data.len()];
        assert_eq!(expand(algorithm, &room[..written], &mut again), Ok(()));
        assert!(again == data, "what was compressed expands");
    }
    let _ = sample::Sampler::default().is_worth(data);
    for run in [pattern::at_front(data), pattern::at_back(data)].into_iter().flatten() {
        assert!(run.count >= pattern::RUN_MIN && run.count <= data.len());
    }
}

fn compress(algorithm: u8, input: &[u8], output: &mut [u8]) -> Option<usize> {
    match algorithm {
        0 => lz77::Compressor::default().compress(input, output),
        1 => huffman::Compressor::default().compress(input, output),
        2 => lznt1::Compressor::default().compress(input, output),
        _ => lz4::compress(input, output),
    }
}

fn expand(algorithm: u8, input: &[u8], output: &mut [u8]) -> Result<(), Malformed> {
    match algorithm {
        0 => lz77::expand(input, output),
        1 => huffman::Expander::default().expand(input, output),
        2 => lznt1::expand(input, output),
        _ => lz4::expand(input, output),
    }
}
