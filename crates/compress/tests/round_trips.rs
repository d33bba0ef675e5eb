//! Each algorithm expands what it has compressed, fits into what it is given, and refuses anything else.

use frevo_compress::{Malformed, huffman, lz4, lz77, lznt1};
use proptest::prelude::*;

type Compress = Box<dyn FnMut(&[u8], &mut [u8]) -> Option<usize>>;
type Expand = Box<dyn FnMut(&[u8], &mut [u8]) -> Result<(), Malformed>>;

/// One algorithm, with its memory.
struct Codec {
    name: &'static str,
    compress: Compress,
    expand: Expand,
}

fn codecs() -> [Codec; 4] {
    let mut plain = lz77::Compressor::default();
    let (mut huffman, mut expander) =
        (huffman::Compressor::default(), huffman::Expander::default());
    let mut chunks = lznt1::Compressor::default();
    [
        Codec {
            name: "LZ77",
            compress: Box::new(move |input, output| plain.compress(input, output)),
            expand: Box::new(lz77::expand),
        },
        Codec {
            name: "LZ77+Huffman",
            compress: Box::new(move |input, output| huffman.compress(input, output)),
            expand: Box::new(move |input, output| expander.expand(input, output)),
        },
        Codec {
            name: "LZNT1",
            compress: Box::new(move |input, output| chunks.compress(input, output)),
            expand: Box::new(lznt1::expand),
        },
        Codec { name: "LZ4", compress: Box::new(lz4::compress), expand: Box::new(lz4::expand) },
    ]
}

/// Compresses and expands `input` with each algorithm, also into fewer bytes than that needs.
fn round_trip(input: &[u8]) {
    for mut codec in codecs() {
        let mut room = vec![0xA5; input.len() * 9 / 8 + 1000];
        let written = (codec.compress)(input, &mut room).expect(codec.name);
        let compressed = room[..written].to_vec();
        let mut output = vec![0x5A; input.len()];
        assert_eq!((codec.expand)(&compressed, &mut output), Ok(()), "{}", codec.name);
        assert!(output == input, "{}", codec.name);
        // A shortened input is refused, and so is an output buffer of another size.
        if !input.is_empty() {
            let half = &compressed[..compressed.len() / 2];
            assert!((codec.expand)(half, &mut output).is_err(), "{}", codec.name);
            for length in [0, input.len() - 1, input.len() + 1] {
                let mut other = vec![0; length];
                let name = codec.name;
                assert!((codec.expand)(&compressed, &mut other).is_err(), "{name}, {length}");
            }
        }
        if written > 0 {
            let mut less = vec![0; written - 1];
            let fits = (codec.compress)(input, &mut less);
            assert_eq!(fits, None, "{}", codec.name);
        }
    }
}

/// Bytes with repetitions near and far: pieces of what came before, runs, and bytes of an alphabet.
fn repetitive(pieces: usize) -> impl Strategy<Value = Vec<u8>> {
    let piece = (0..4u8, any::<u16>(), any::<u16>(), any::<u8>());
    proptest::collection::vec(piece, 0..pieces).prop_map(|pieces| {
        let mut bytes = Vec::new();
        for (kind, place, length, byte) in pieces {
            let length = usize::from(length) >> (byte % 14);
            match kind {
                0 if !bytes.is_empty() => {
                    let from = bytes.len() - 1 - usize::from(place) % bytes.len();
                    for at in from..from + length {
                        bytes.push(bytes[at]);
                    }
                }
                1 => bytes.extend(std::iter::repeat_n(byte, length)),
                2 => {
                    bytes.extend((0..length).map(|at| ((at * usize::from(place)) >> 7) as u8 % 26))
                }
                _ => bytes.extend((0..length % 300).map(|at| (at as u8).wrapping_mul(byte | 1))),
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_was_compressed_expands(input in repetitive(40)) {
        round_trip(&input);
    }

    #[test]
    fn few_bytes_expand(input in proptest::collection::vec(0..4u8, 0..80)) {
        round_trip(&input);
    }

    /// Any bytes are refused, or expand to the bytes that were asked for.
    #[test]
    fn any_bytes_are_read(input in proptest::collection::vec(any::<u8>(), 0..600), count in 0usize..5000) {
        for mut codec in codecs() {
            let mut output = vec![0; count];
            let _ = (codec.expand)(&input, &mut output);
        }
    }

    /// Compressed bytes with a few changes are refused, or expand to as many bytes.
    #[test]
    fn changed_bytes_are_read(
        input in repetitive(12),
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6),
    ) {
        for mut codec in codecs() {
            let mut room = vec![0; input.len() * 9 / 8 + 1000];
            let written = (codec.compress)(&input, &mut room).unwrap();
            for (at, byte) in &changes {
                room[at % written.max(1)] = *byte;
            }
            let mut output = vec![0; input.len()];
            let _ = (codec.expand)(&room[..written], &mut output);
        }
    }
}

/// Lengths around the places where the formats need more bytes for them.
#[test]
fn runs_of_all_lengths_expand() {
    let around =
        [3, 4, 9, 10, 18, 24, 25, 26, 279, 280, 281, 300, 4095, 4096, 4097, 65_535, 65_536];
    let lengths = around.into_iter().chain([65_537, 65_538, 65_561, 65_562, 131_072, 200_000]);
    for length in lengths {
        let mut input = b"ab".to_vec();
        input.extend(std::iter::repeat_n(b'c', length));
        round_trip(&input);
        input.extend(b"xyzabcc");
        round_trip(&input);
    }
}

/// Pieces of all lengths that are repeated up to the end, whole and in part.
#[test]
fn repeated_pieces_expand() {
    for length in 1..40u8 {
        for more in 4..80 {
            let piece = (0..length).map(|at| at.wrapping_mul(37) ^ length);
            let input: Vec<u8> = piece.cycle().take(usize::from(length) + more).collect();
            round_trip(&input);
        }
    }
}

/// Counts as in Fibonacci's numbers would give codes of more than 15 bits.
#[test]
fn codes_stay_within_their_bits() {
    let mut input = Vec::new();
    let (mut one, mut other) = (1usize, 1usize);
    for byte in 0..22u8 {
        // Other bytes stand before each one, so that equal bytes do not form a match.
        input.extend(
            (0..one).flat_map(|at| [byte, 128 | (at * 37 % 101) as u8, (at * 11 % 89) as u8]),
        );
        (one, other) = (other, one + other);
    }
    round_trip(&input);
}

/// Tests what ends with a block of LZ77+Huffman or a chunk of LZNT1, and what begins with one.
#[test]
fn blocks_of_all_lengths_expand() {
    for length in [4095, 4096, 4097, 8192, 65_535, 65_536, 65_537, 131_071, 131_072, 131_073] {
        let mixed = (0..length).map(|at: usize| (at.wrapping_mul(2_654_435_761) >> 11) as u8);
        round_trip(&mixed.collect::<Vec<_>>());
        round_trip(&(0..length).map(|at| (at % 7) as u8).collect::<Vec<_>>());
    }
}

/// Distances to the largest of each format, and one more.
#[test]
fn far_repetitions_expand() {
    for distance in [4095, 4096, 4097, 8191, 8192, 8193, 65_534, 65_535, 65_536] {
        let mut input = b"a piece of text that comes again".to_vec();
        let piece = input.clone();
        input.extend((0..distance - piece.len()).map(|at| ((at * 2_654_435_761) >> 13) as u8));
        input.extend(&piece);
        round_trip(&input);
    }
}
