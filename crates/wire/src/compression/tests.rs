use super::{Compressed, CompressionAlgorithm, Payload, UnchainedHeader, encode_chained};
use crate::codec::Writer;
use crate::limits::MAX_COMPRESSION_PAYLOADS;
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

fn chained(payloads: &[Payload<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_chained(payloads, &mut Writer::new(&mut bytes));
    bytes
}

fn unchained(header: UnchainedHeader, plain: &[u8], compressed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    header.encode(&mut Writer::new(&mut bytes));
    bytes.extend_from_slice(plain);
    bytes.extend_from_slice(compressed);
    bytes
}

const HEADER: UnchainedHeader = UnchainedHeader {
    original_compressed_segment_size: 4096,
    compression_algorithm: CompressionAlgorithm::LZ77,
    offset: 3,
};

#[test]
fn unchained_by_its_bytes() {
    let bytes = unchained(HEADER, &[1, 2, 3], &[4, 5]);
    assert_eq!(bytes[..16], *b"\xFCSMB\x00\x10\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00");
    let parsed = Compressed::parse(&bytes).unwrap();
    assert_eq!(parsed.decompressed_len(), 4099);
    assert_eq!(
        parsed,
        Compressed::Unchained { header: HEADER, plain: &[1, 2, 3], compressed: &[4, 5] }
    );
}

#[test]
fn unchained_faults() {
    let good = unchained(HEADER, &[1, 2, 3], &[4, 5]);
    // Each change makes the message invalid: CompressionAlgorithm (offset 8) is NONE, PATTERN_V1 or
    // unknown, Flags (10) have reserved bits, Offset (12) exceeds the message, or ProtocolId (0) is that
    // of encryption.
    let flags = [(10, 2), (10, 3), (10, 0x80), (11, 1)];
    let others = [(8, 0), (8, 4), (8, 6), (9, 1), (12, 6), (15, 0xFF), (0, 0xFD)];
    for (at, value) in flags.into_iter().chain(others) {
        let mut bytes = good.clone();
        bytes[at] = value;
        assert!(Compressed::parse(&bytes).is_err(), "{at} {value}");
    }
    for cut in 0..16 {
        assert!(Compressed::parse(&good[..cut]).is_err(), "{cut}");
    }
    let mut bytes = good;
    bytes[12] = 5;
    assert!(Compressed::parse(&bytes).is_ok());
}

const EXAMPLE: [Payload<'static>; 3] = [
    Payload::Pattern { pattern: 0xAA, repetitions: 100 },
    Payload::Compressed {
        algorithm: CompressionAlgorithm::LZ77_HUFFMAN,
        original_payload_size: 2000,
        data: &[7; 30],
    },
    Payload::Plain(&[8; 20]),
];

#[test]
fn chained_by_its_bytes() {
    let bytes = chained(&EXAMPLE);
    assert_eq!(
        bytes[..28],
        *b"\xFCSMB\x48\x08\x00\x00\x04\x00\x01\x00\x08\x00\x00\x00\xAA\x00\x00\x00\x64\x00\x00\x00\x03\x00\x00\x00"
    );
    let Compressed::Chained { original_size, payloads } = Compressed::parse(&bytes).unwrap() else {
        panic!("not chained");
    };
    assert_eq!(original_size, 2120);
    assert_eq!(payloads.collect::<Vec<_>>(), EXAMPLE);
}

#[test]
fn chains_that_lie() {
    let good = chained(&EXAMPLE);
    // Each case changes one byte: in OriginalCompressedSegmentSize (offset 4), in the first
    // payload's CompressionAlgorithm (8), Length (12) or Repetitions (20), or in the second
    // payload's Length (28) or OriginalPayloadSize (32).
    for (at, value) in
        [(4, 0x49), (12, 7), (12, 9), (20, 0x65), (8, 6), (28, 200), (28, 3), (32, 1), (23, 0xFF)]
    {
        let mut bytes = good.clone();
        bytes[at] = value;
        assert!(Compressed::parse(&bytes).is_err(), "{at} {value}");
    }
    // MS-SMB2 3.1.5.3: bytes after the last payload are ignored if they are no more than a payload
    // header.
    let mut bytes = good;
    bytes.extend([0xFF; 8]);
    assert!(Compressed::parse(&bytes).is_ok());
    bytes.push(0xFF);
    assert!(Compressed::parse(&bytes).is_err());
}

#[test]
fn sums_do_not_wrap() {
    let payload = Payload::Pattern { pattern: 0, repetitions: u32::MAX };
    let mut bytes = chained(&[payload, payload]);
    // OriginalCompressedSegmentSize is the sum of both lengths (2^32 - 1 each) modulo 2^32. The
    // real sum is larger, so the message is refused.
    bytes[4..8].copy_from_slice(&(u32::MAX - 1).to_le_bytes());
    assert!(Compressed::parse(&bytes).is_err());
}

#[test]
fn payload_limit() {
    let payload = Payload::Pattern { pattern: 1, repetitions: 1 };
    for (count, good) in [
        (MAX_COMPRESSION_PAYLOADS - 1, true),
        (MAX_COMPRESSION_PAYLOADS, true),
        (MAX_COMPRESSION_PAYLOADS + 1, false),
    ] {
        let bytes = chained(&vec![payload; count]);
        assert_eq!(Compressed::parse(&bytes).is_ok(), good, "{count}");
    }
}

fn payload(which: u8, size: u32, data: &[u8]) -> Payload<'_> {
    match which {
        0 => Payload::Plain(data),
        1 => Payload::Pattern { pattern: 9, repetitions: size },
        2 => Payload::Compressed {
            algorithm: CompressionAlgorithm::LZNT1,
            original_payload_size: size,
            data,
        },
        _ => Payload::Compressed {
            algorithm: CompressionAlgorithm::LZ4,
            original_payload_size: size,
            data,
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn chains_survive(list in vec((0u8..4, 0u32..100_000, vec(any::<u8>(), 1..40)), 1..8)) {
        let list: Vec<_> =
            list.iter().map(|(which, size, data)| payload(*which, *size, data)).collect();
        let bytes = chained(&list);
        match Compressed::parse(&bytes) {
            Ok(Compressed::Chained { payloads, .. }) => {
                prop_assert_eq!(payloads.collect::<Vec<_>>(), list);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn no_bytes_panic(
        mut bytes in vec(0u8..20, 0..100), edits in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        if let Some(id) = bytes.get_mut(..4) {
            id.copy_from_slice(&super::COMPRESSION_PROTOCOL_ID);
        }
        let mut mutated = chained(&EXAMPLE);
        for (at, value) in edits {
            let at = at.index(mutated.len());
            mutated[at] = value;
        }
        for bytes in [&bytes, &mutated] {
            if let Ok(Compressed::Chained { original_size, payloads }) = Compressed::parse(bytes) {
                let total: u64 = payloads.map(|it| it.decompressed_len()).sum();
                prop_assert_eq!(total, u64::from(original_size));
            }
        }
    }
}
