//! The examples of MS-XCA 3.

use frevo_compress::{huffman, lz77, lznt1};

fn from_hex(text: &str) -> Vec<u8> {
    text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz";

fn abc() -> Vec<u8> {
    b"abc".repeat(100)
}

fn by_lz77(input: &[u8]) -> Vec<u8> {
    let mut output = vec![0; 1000];
    let written = lz77::Compressor::default().compress(input, &mut output).unwrap();
    output.truncate(written);
    output
}

#[test]
fn lz77_is_that_of_the_specification() {
    let alphabet = from_hex(
        "3f 00 00 00 61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e 6f 70 71 72 73 74 75 76 77 78 79 7a",
    );
    let repeated = from_hex("ff ff ff 1f 61 62 63 17 00 0f ff 26 01");
    for (input, wanted) in [(ALPHABET, alphabet), (&abc()[..], repeated)] {
        assert_eq!(by_lz77(input), wanted);
        let mut output = vec![0; input.len()];
        lz77::expand(&wanted, &mut output).unwrap();
        assert_eq!(output, input);
    }
}

/// The table of codes with these bytes at these places, and what follows it.
fn with_table(lengths: &[(usize, &str)], rest: &str) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    for (at, text) in lengths {
        let these = from_hex(text);
        bytes[*at..at + these.len()].copy_from_slice(&these);
    }
    bytes.extend(from_hex(rest));
    bytes
}

#[test]
fn huffman_is_that_of_the_specification() {
    let alphabet = with_table(
        &[(48, "50 55 55 55 55 55 55 55 55 55 55 45 44 04"), (128, "04")],
        "d8 52 3e d7 94 11 5b e9 19 5f f9 d6 7c df 8d 04 00 00 00 00",
    );
    let repeated = with_table(&[(48, "30 23"), (128, "02"), (143, "20")], "a8 dc 00 00 ff 26 01");
    for (input, wanted) in [(ALPHABET, alphabet), (&abc()[..], repeated)] {
        let mut output = vec![0; input.len()];
        huffman::Expander::default().expand(&wanted, &mut output).unwrap();
        assert_eq!(output, input);
        let mut output = vec![0; 1000];
        let written = huffman::Compressor::default().compress(input, &mut output).unwrap();
        assert_eq!(written, wanted.len());
        let mut again = vec![0; input.len()];
        huffman::Expander::default().expand(&output[..written], &mut again).unwrap();
        assert_eq!(again, input);
    }
}

#[test]
fn lznt1_is_that_of_the_specification() {
    let text =
        b"F# F# G A A G F# E D D E F# F# E E F# F# G A A G F# E D D E F# E D D E E F# D E F# G \
        F# D E F# G F# E D E A F# F# G A A G F# E D D E F# E D D\0";
    let compressed = from_hex(
        "38 b0 88 46 23 20 00 20 47 20 41 00 10 a2 47 01 a0 45 20 44 00 08 45 01 50 79 00 c0 45 20 05 24 \
         13 88 05 b4 02 4a 44 ef 03 58 02 8c 09 16 01 48 45 00 be 00 9e 00 04 01 18 90 00",
    );
    let mut output = vec![0; text.len()];
    lznt1::expand(&compressed, &mut output).unwrap();
    assert_eq!(output, text);
}

/// Nothing but the symbol for the end, or another block with that alone, may follow a whole block of
/// LZ77+Huffman.
#[test]
fn huffman_reads_no_garbage() {
    for length in [1 << 16, 2 << 16, 100] {
        let input: Vec<u8> =
            b"words and more of them ".iter().copied().cycle().take(length).collect();
        let mut room = vec![0; length + 1000];
        let written = huffman::Compressor::default().compress(&input, &mut room).unwrap();
        room.truncate(written);
        let mut output = vec![0; length];
        let mut expander = huffman::Expander::default();
        expander.expand(&room, &mut output).unwrap();
        assert!(output == input);
        for garbage in [1, 2, 4, 100, 255, 256, 300] {
            let longer = [&*room, &vec![0xA5; garbage]].concat();
            assert!(expander.expand(&longer, &mut output).is_err(), "{length} and {garbage}");
        }
    }
}
