use super::*;
use alloc::vec::Vec;
use frevo_wire::codec::Writer;
use frevo_wire::compression::{UnchainedHeader, encode_chained};
use frevo_wire::negotiate_context::CompressionCapabilityFlags;
use proptest::prelude::*;
use std::vec;

const MAX: u32 = 65_536;
const LZ77: CompressionAlgorithm = CompressionAlgorithm::LZ77;
const LZ4: CompressionAlgorithm = CompressionAlgorithm::LZ4;
const PATTERN: CompressionAlgorithm = CompressionAlgorithm::PATTERN_V1;

fn negotiated() -> Compression {
    Compression::common(CompressionCapabilityFlags::CHAINED, &[LZ77, PATTERN]).unwrap()
}

fn expand(frame: &[u8]) -> Result<Vec<u8>, Disconnect> {
    let found = negotiated().look(frame, MAX)?.expect("it is compressed");
    let room: fn(usize) -> Vec<u8> = |len| vec![0x55; len];
    let received = Received { frame: frame.to_vec(), verdict: None };
    let work: Expanding<Vec<u8>> = Expanding::new(received, found, room, Sender::Client);
    assert!(work.bytes() >= found.frame_len());
    work.run().map(|received| received.frame)
}

/// Memory for a frame that waits for its turn, or for another thread, is not taken yet.
#[test]
fn memory_is_taken_where_a_frame_is_expanded() {
    use core::cell::Cell;
    std::thread_local!(static TAKEN: Cell<usize> = const { Cell::new(0) });
    let frame = unchained(|_| {});
    let found = negotiated().look(&frame, MAX).unwrap().unwrap();
    let received = Received { frame, verdict: None };
    let room: fn(usize) -> Vec<u8> = |len| {
        TAKEN.set(TAKEN.get() + len);
        vec![0; len]
    };
    let work: Expanding<Vec<u8>> = Expanding::new(received, found, room, Sender::Client);
    assert_eq!(TAKEN.get(), 0);
    assert_eq!(work.run().unwrap().frame.len(), 3064);
    assert_eq!(TAKEN.get(), 3064);
}

/// A message of 64 KiB with a pattern, compressed with the codec.
fn unchained(change: impl FnOnce(&mut UnchainedHeader)) -> Vec<u8> {
    let data = b"abc".repeat(1000);
    let mut header = UnchainedHeader {
        original_compressed_segment_size: 3000,
        compression_algorithm: LZ77,
        offset: 64,
    };
    change(&mut header);
    let mut frame = Vec::new();
    header.encode(&mut Writer::new(&mut frame));
    frame.extend_from_slice(&PROTOCOL_ID);
    frame.resize(16 + 64, 7);
    let mut room = vec![0; 3000];
    let count = Codec::Lz77.compress_into(&data, &mut room).unwrap();
    frame.extend_from_slice(&room[..count]);
    frame
}

fn chained(payloads: &[Payload<'_>]) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_chained(payloads, &mut Writer::new(&mut frame));
    frame
}

fn refused(frame: &[u8]) -> Disconnect {
    expand(frame).expect_err("a refusal")
}

#[test]
fn an_unchained_message_and_each_of_its_lies() {
    let whole = expand(&unchained(|_| {})).unwrap();
    assert_eq!((whole.len(), &whole[..4]), (3064, &PROTOCOL_ID[..]));
    assert_eq!(whole[64..], b"abc".repeat(1000));
    // Data that is shorter or longer than the header says: SMBleed was the shorter one.
    for size in [0, 2999, 3001, 60_000] {
        let lie = unchained(|header| header.original_compressed_segment_size = size);
        assert!(matches!(refused(&lie), Disconnect::Expansion(_)), "{size}");
    }
    // SMBGhost: the sum of size and Offset was computed in 32 bits.
    let limit = 65_536 + 256 + 16;
    for size in [u32::MAX, u32::MAX - 63, limit + 1, limit - 63] {
        let lie = unchained(|header| header.original_compressed_segment_size = size);
        assert_eq!(
            negotiated().look(&lie, MAX).map(|_| ()),
            Err(Disconnect::Expansion("it says that it is longer than any message"))
        );
    }
    let most = unchained(|header| header.original_compressed_segment_size = limit - 64);
    assert_eq!(negotiated().look(&most, MAX).unwrap().unwrap().frame_len(), limit as usize);
    for offset in [3081, u32::MAX] {
        let lie = unchained(|header| header.offset = offset);
        assert!(matches!(refused(&lie), Disconnect::Malformed(_)), "{offset}");
    }
    for algorithm in [0, 1, 3, 4, 5, 6] {
        let other =
            unchained(|header| header.compression_algorithm = CompressionAlgorithm(algorithm));
        let _ = refused(&other);
    }
    for cut in 4..16 {
        let _ = refused(&unchained(|_| {})[..cut]);
    }
}

#[test]
fn an_expanded_message_is_a_message() {
    // Neither compressed again, nor sealed, nor SMB1, nor anything else.
    for first in [0xFC, 0xFD, 0xFF, 0] {
        let mut frame = unchained(|_| {});
        frame[16] = first;
        assert_eq!(refused(&frame), Disconnect::Expansion("it holds no message"));
    }
    let inner = unchained(|_| {});
    let nested = chained(&[Payload::Plain(&inner)]);
    assert_eq!(refused(&nested), Disconnect::Expansion("it holds no message"));
    let empty = chained(&[Payload::Pattern { pattern: 0, repetitions: 0 }]);
    let _ = refused(&empty);
}

#[test]
fn chains_have_negotiated_algorithms_only() {
    let head = Payload::Plain(&PROTOCOL_ID);
    let run = Payload::Pattern { pattern: 3, repetitions: 5 };
    assert_eq!(expand(&chained(&[head, run])).unwrap(), b"\xFESMB\x03\x03\x03\x03\x03");
    let other = Payload::Compressed { algorithm: LZ4, original_payload_size: 5, data: &[0; 9] };
    let not_negotiated = Disconnect::Expansion("its algorithm was not negotiated");
    assert_eq!(refused(&chained(&[head, other])), not_negotiated);
    let without = Compression::common(CompressionCapabilityFlags::CHAINED, &[LZ77]).unwrap();
    assert_eq!(without.look(&chained(&[head, run]), MAX), Err(not_negotiated));
    let unchained =
        Compression::common(CompressionCapabilityFlags::EMPTY, &[LZ77, PATTERN]).unwrap();
    let no_chains = Disconnect::Expansion("chains were not negotiated");
    assert_eq!(unchained.look(&chained(&[head, run]), MAX), Err(no_chains));
}

#[test]
fn chains_that_lie_about_their_sizes_take_no_memory() {
    let head = Payload::Plain(&PROTOCOL_ID);
    for repetitions in [65_536 + 256 + 16 - 3, 0x7FFF_FFFF, u32::MAX] {
        let run = Payload::Pattern { pattern: 3, repetitions };
        assert!(negotiated().look(&chained(&[head, run]), MAX).is_err(), "{repetitions}");
    }
    // A payload that expands to less or more than it says, although the sum is right.
    let mut room = [0; 200];
    let count = Codec::Lz77.compress_into(&[9; 100], &mut room).unwrap();
    for size in [0, 99, 101] {
        let lie = Payload::Compressed {
            algorithm: LZ77,
            original_payload_size: size,
            data: &room[..count],
        };
        assert!(matches!(refused(&chained(&[head, lie])), Disconnect::Expansion(_)), "{size}");
    }
}

#[test]
fn the_slowest_codec_of_a_chain_takes_the_time() {
    let ids = [LZ4, LZ77, CompressionAlgorithm::LZ77_HUFFMAN, CompressionAlgorithm::LZNT1, PATTERN];
    let all = Compression::common(CompressionCapabilityFlags::CHAINED, &ids).unwrap();
    let payload =
        |algorithm| Payload::Compressed { algorithm, original_payload_size: 0, data: &[] };
    let of = |algorithms: &[CompressionAlgorithm]| {
        let payloads: Vec<_> = algorithms.iter().copied().map(payload).collect();
        let frame = chained(&[&[Payload::Plain(&PROTOCOL_ID)], &payloads[..]].concat());
        let found = all.look(&frame, MAX).unwrap().unwrap();
        (found.algorithm(), found.effort() - frame.len() - 4)
    };
    let huffman = Some(Algorithm::Expanding(Codec::Huffman));
    assert_eq!(of(&[ids[2], LZ77, LZ4, LZ4]), (huffman, EXPANDED_PAYLOAD_BYTES));
    assert_eq!(of(&[LZ4, ids[2], ids[2]]), (huffman, 2 * EXPANDED_PAYLOAD_BYTES));
    // Empty payloads of the others are no more than their bytes.
    assert_eq!(of(&[LZ77; 1000]), (Some(Algorithm::Expanding(Codec::Lz77)), 0));
    assert_eq!(of(&[ids[3], LZ77, LZ4]), (Some(Algorithm::Expanding(Codec::Lznt1)), 0));
    assert_eq!(of(&[]), (None, 0));
}

#[test]
fn a_sealed_frame_keeps_its_header() {
    let inner = unchained(|_| {});
    let header = TransformHeader {
        signature: [1; 16],
        nonce: [2; 16],
        original_message_size: inner.len() as u32,
        flags: 1,
        session_id: 77,
    };
    let frame = [&header.to_bytes()[..], &inner].concat();
    let whole = expand(&frame).unwrap();
    let expected = TransformHeader { original_message_size: 3064, ..header };
    assert_eq!(TransformHeader::parse(&whole), Ok(expected));
    assert_eq!(whole[52..], expand(&inner).unwrap());
    // A sealed frame without compression is left alone, and so is one that is too short.
    assert_eq!(negotiated().look(&whole, MAX), Ok(None));
    assert_eq!(negotiated().look(&frame[..52], MAX), Ok(None));
    assert_eq!(negotiated().look(b"\xFESMB", MAX), Ok(None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_bytes_panic(
        is_chained in any::<bool>(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let data = unchained(|_| {});
        let mut frame = match is_chained {
            false => data,
            true => chained(&[
                Payload::Plain(&PROTOCOL_ID),
                Payload::Compressed { algorithm: LZ77, original_payload_size: 3000, data: &data[80..] },
                Payload::Pattern { pattern: 1, repetitions: 70 },
            ]),
        };
        prop_assert!(expand(&frame).is_ok());
        for (at, value) in edits {
            let at = 4 + at.index(frame.len() - 4);
            frame[at] = value;
        }
        if let Ok(whole) = expand(&frame) {
            prop_assert!(whole.starts_with(&PROTOCOL_ID));
        }
    }
}
