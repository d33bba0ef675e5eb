//! Compresses or expands its input by one algorithm, to compare it with other programs:
//! codec lz77|huffman|lznt1|lz4 compress, or codec ... expand BYTES.

use std::io::{Error, Read as _, Result, Write as _};

use frevo_compress::{huffman, lz4, lz77, lznt1};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input)?;
    let output = match words[..] {
        [algorithm, "compress"] => {
            let mut output = vec![0; input.len() * 9 / 8 + 1000];
            let written = match algorithm {
                "lz77" => lz77::Compressor::default().compress(&input, &mut output),
                "huffman" => huffman::Compressor::default().compress(&input, &mut output),
                "lznt1" => lznt1::Compressor::default().compress(&input, &mut output),
                "lz4" => lz4::compress(&input, &mut output),
                _ => return Err(Error::other("no such algorithm")),
            };
            output.truncate(written.ok_or_else(|| Error::other("it does not fit"))?);
            output
        }
        [algorithm, "expand", bytes] => {
            let mut output = vec![0; bytes.parse().map_err(Error::other)?];
            let expanded = match algorithm {
                "lz77" => lz77::expand(&input, &mut output),
                "huffman" => huffman::Expander::default().expand(&input, &mut output),
                "lznt1" => lznt1::expand(&input, &mut output),
                "lz4" => lz4::expand(&input, &mut output),
                _ => return Err(Error::other("no such algorithm")),
            };
            expanded.map_err(Error::other)?;
            output
        }
        _ => return Err(Error::other("codec ALGORITHM compress, or codec ALGORITHM expand BYTES")),
    };
    std::io::stdout().write_all(&output)
}
