//! Compresses or expands its input by one algorithm, to compare it with other programs:
//! codec lz77|huffman|lznt1|lz4 compress, or codec ... expand BYTES, or codec serve, which answers
//! requests of `dev/interop/compression-differential`.

use std::io::{BufReader, BufWriter, Error, ErrorKind, Read, Result, Write};

use frevo_compress::{huffman, lz4, lz77, lznt1};

/// The algorithms by their numbers in requests.
const ALGORITHMS: [&str; 4] = ["lz77", "huffman", "lznt1", "lz4"];

/// The codecs, with their memory.
#[derive(Default)]
struct Codecs {
    lz77: lz77::Compressor,
    huffman: huffman::Compressor,
    expander: huffman::Expander,
    lznt1: lznt1::Compressor,
}

impl Codecs {
    fn compress(&mut self, algorithm: &str, input: &[u8]) -> Result<Vec<u8>> {
        let mut output = vec![0; input.len() * 9 / 8 + 1000];
        let written = match algorithm {
            "lz77" => self.lz77.compress(input, &mut output),
            "huffman" => self.huffman.compress(input, &mut output),
            "lznt1" => self.lznt1.compress(input, &mut output),
            "lz4" => lz4::compress(input, &mut output),
            _ => return Err(Error::other("no such algorithm")),
        };
        output.truncate(written.ok_or_else(|| Error::other("it does not fit"))?);
        Ok(output)
    }

    fn expand(&mut self, algorithm: &str, input: &[u8], bytes: usize) -> Result<Vec<u8>> {
        let mut output = vec![0; bytes];
        let expanded = match algorithm {
            "lz77" => lz77::expand(input, &mut output),
            "huffman" => self.expander.expand(input, &mut output),
            "lznt1" => lznt1::expand(input, &mut output),
            "lz4" => lz4::expand(input, &mut output),
            _ => return Err(Error::other("no such algorithm")),
        };
        expanded.map_err(Error::other)?;
        Ok(output)
    }
}

/// Answers requests until the input ends. A request is a byte for the algorithm, one that is 1 to expand,
/// and in 32 bits the bytes to expand to and those of the data that follows; an answer is the number of
/// bytes in 32 bits, or -1, and the bytes. An algorithm of 255 is answered by nothing, and flushes.
fn serve() -> Result<()> {
    let (mut input, mut output) =
        (BufReader::new(std::io::stdin().lock()), BufWriter::new(std::io::stdout().lock()));
    let mut codecs = Codecs::default();
    loop {
        let mut head = [0; 10];
        match input.read_exact(&mut head) {
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let number = |at: usize| {
            u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize
        };
        let Some(algorithm) = ALGORITHMS.get(usize::from(head[0])) else {
            output.flush()?;
            continue;
        };
        let mut data = vec![0; number(6)];
        input.read_exact(&mut data)?;
        let answer = match head[1] {
            1 => codecs.expand(algorithm, &data, number(2)),
            _ => codecs.compress(algorithm, &data),
        };
        match answer {
            Ok(answer) => {
                let len = u32::try_from(answer.len()).map_err(Error::other)?;
                output.write_all(&len.to_le_bytes())?;
                output.write_all(&answer)?;
            }
            Err(_) => output.write_all(&u32::MAX.to_le_bytes())?,
        }
    }
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if words == ["serve"] {
        return serve();
    }
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input)?;
    let output = match words[..] {
        [algorithm, "compress"] => Codecs::default().compress(algorithm, &input)?,
        [algorithm, "expand", bytes] => {
            Codecs::default().expand(algorithm, &input, bytes.parse().map_err(Error::other)?)?
        }
        _ => {
            return Err(Error::other(
                "codec ALGORITHM compress, codec ALGORITHM expand BYTES, codec serve",
            ));
        }
    };
    std::io::stdout().write_all(&output)
}
