//! Prints how fast each algorithm compresses and expands a file, on one core: rates FILE.
#![allow(clippy::print_stdout, reason = "the rates are what it is for")]

use frevo_compress::{huffman, lz4, lz77, lznt1};
use std::time::Instant;

fn rate(bytes: usize, mut work: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..41 {
        let begin = Instant::now();
        work();
        best = best.min(begin.elapsed().as_secs_f64());
    }
    bytes as f64 / best / 1e6
}

fn main() {
    let file = std::env::args().nth(1).expect("a file");
    let data = std::fs::read(file).expect("read");
    let data = &data[..data.len().min(64 << 20)];
    let pieces: Vec<&[u8]> = data.chunks(1 << 20).collect();
    let mut room = vec![0; (1 << 20) * 9 / 8 + 1000];
    let mut expanded = vec![0; 1 << 20];
    let mut plain = lz77::Compressor::default();
    let (mut huffman, mut expander) =
        (huffman::Compressor::default(), huffman::Expander::default());
    let mut chunks = lznt1::Compressor::default();
    type Compress<'a> = Box<dyn FnMut(&[u8], &mut [u8]) -> Option<usize> + 'a>;
    type Expand<'a> = Box<dyn FnMut(&[u8], &mut [u8]) + 'a>;
    let all: [(&str, Compress<'_>, Expand<'_>); 4] = [
        (
            "LZ77",
            Box::new(|i, o| plain.compress(i, o)),
            Box::new(|i, o| lz77::expand(i, o).unwrap()),
        ),
        (
            "LZ77+Huffman",
            Box::new(|i, o| huffman.compress(i, o)),
            Box::new(|i, o| expander.expand(i, o).unwrap()),
        ),
        (
            "LZNT1",
            Box::new(|i, o| chunks.compress(i, o)),
            Box::new(|i, o| lznt1::expand(i, o).unwrap()),
        ),
        ("LZ4", Box::new(lz4::compress), Box::new(|i, o| lz4::expand(i, o).unwrap())),
    ];
    for (name, mut compress, mut expand) in all {
        let mut compressed = Vec::new();
        let into = rate(data.len(), || {
            compressed.clear();
            for piece in &pieces {
                let n = compress(piece, &mut room).unwrap();
                compressed.push(room[..n].to_vec());
            }
        });
        let sum: usize = compressed.iter().map(Vec::len).sum();
        let out = rate(data.len(), || {
            for (piece, from) in pieces.iter().zip(&compressed) {
                expand(from, &mut expanded[..piece.len()]);
            }
        });
        println!(
            "{name:14} {:5.1} %  in {into:6.0} MB/s  out {out:6.0} MB/s",
            100.0 * sum as f64 / data.len() as f64
        );
    }
}
