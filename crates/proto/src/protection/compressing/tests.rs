use super::*;
use core::sync::atomic::{AtomicU64, Ordering};
use frevo_wire::compression::CompressionAlgorithm;
use frevo_wire::header::PROTOCOL_ID;
use frevo_wire::negotiate_context::CompressionCapabilityFlags;
use proptest::prelude::*;
use std::vec;

const MAX: u32 = 8 << 20;
const HEAD: usize = 80;

fn with(ids: &[CompressionAlgorithm], is_chained: bool) -> Compression {
    let flags = if is_chained {
        CompressionCapabilityFlags::CHAINED
    } else {
        CompressionCapabilityFlags::EMPTY
    };
    Compression::common(flags, ids).unwrap()
}

fn message(data: &[u8]) -> Vec<u8> {
    let mut whole = vec![0; HEAD];
    whole[..4].copy_from_slice(&PROTOCOL_ID);
    whole.extend_from_slice(data);
    whole
}

/// Compresses a message as the pipeline does. None if it stays as it is.
fn compressed(compression: Compression, whole: &[u8]) -> Option<Vec<u8>> {
    let old = [&[9; HEADROOM][..], whole].concat();
    let room = |len| vec![0; len];
    let to_compress = ToCompress { compression, head: HEAD, room, thrift: None };
    let Framed { buffer, range } = to_compress.compress(old.clone());
    assert_eq!(range.start, HEADROOM);
    if range.end == old.len() {
        assert_eq!(buffer, old);
        return None;
    }
    Some(buffer[range].to_vec())
}

fn expanded(compression: Compression, frame: &[u8]) -> Vec<u8> {
    let found = compression.look(frame, MAX).unwrap().unwrap();
    let received = crate::protection::Received { frame: frame.to_vec(), verdict: None };
    let room: fn(usize) -> Vec<u8> = |len| vec![0; len];
    let work: crate::protection::Expanding<Vec<u8>> =
        crate::protection::Expanding::new(received, found, room, frevo_crypto::Sender::Client);
    crate::protection::Work::run(work).unwrap().frame
}

const LZ77: CompressionAlgorithm = CompressionAlgorithm::LZ77;
const PATTERN: CompressionAlgorithm = CompressionAlgorithm::PATTERN_V1;

#[test]
fn an_unchained_message_by_its_bytes() {
    // LZ77 of 2,080 times `a`: a literal, and a match of 2,079 bytes one byte before.
    let whole = message(&[b'a'; 2080]);
    let bytes = compressed(with(&[LZ77], false), &whole).unwrap();
    assert_eq!(bytes[..16], *b"\xFCSMB\x20\x08\x00\x00\x02\x00\x00\x00\x50\x00\x00\x00");
    assert_eq!(bytes[16..96], whole[..80], "the header stays as it is");
    // Flags 01 and ones behind, the literal, the match with length 7, 15, 255 and 2079 - 3 = 0x81C.
    assert_eq!(bytes[96..], *b"\xFF\xFF\xFF\x7F\x61\x07\x00\x0F\xFF\x1C\x08");
}

#[test]
fn a_chain_by_its_bytes() {
    let text = b"The quick brown fox. ".repeat(60);
    let data = [&[7; 64][..], &text, &[8; 100]].concat();
    let whole = message(&data);
    let bytes = compressed(with(&[PATTERN, LZ77], true), &whole).unwrap();
    let size = u32::try_from(whole.len()).unwrap();
    assert_eq!(bytes[..8], [b"\xFCSMB", &size.to_le_bytes()[..]].concat());
    // NONE with the header, the flag CHAINED on it alone.
    assert_eq!(bytes[8..16], *b"\x00\x00\x01\x00\x50\x00\x00\x00");
    assert_eq!(bytes[16..96], whole[..80]);
    assert_eq!(
        bytes[96..112],
        *b"\x04\x00\x00\x00\x08\x00\x00\x00\x07\x00\x00\x00\x40\x00\x00\x00"
    );
    // Length includes OriginalPayloadSize.
    let length = u32::try_from(bytes.len() - 16 - 120).unwrap();
    assert_eq!(bytes[112..120], [b"\x02\x00\x00\x00", &length.to_le_bytes()[..]].concat());
    assert_eq!(bytes[120..124], u32::try_from(text.len()).unwrap().to_le_bytes());
    let back = bytes.len() - 16;
    assert_eq!(bytes[back..], *b"\x04\x00\x00\x00\x08\x00\x00\x00\x08\x00\x00\x00\x64\x00\x00\x00");
    assert_eq!(expanded(with(&[PATTERN, LZ77], true), &bytes), whole);
}

#[test]
fn runs_of_one_byte_are_patterns_from_64_on() {
    let both = with(&[PATTERN, LZ77], true);
    let payloads = |data: &[u8]| {
        let bytes = compressed(both, &message(data))?;
        assert_eq!(expanded(both, &bytes), message(data));
        let parsed = frevo_wire::compression::Compressed::parse(&bytes).unwrap();
        let frevo_wire::compression::Compressed::Chained { payloads, .. } = parsed else {
            panic!("not a chain");
        };
        let kind = |payload: Payload<'_>| match payload {
            Payload::Plain(_) => 'n',
            Payload::Compressed { .. } => 'l',
            Payload::Pattern { .. } => 'p',
        };
        Some(payloads.map(kind).collect::<std::string::String>())
    };
    let noise: Vec<u8> = (0..960u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    assert_eq!(
        payloads(&[0; 4096]).as_deref(),
        Some("np"),
        "no backward pattern behind a whole one"
    );
    assert_eq!(payloads(&[&[1; 200][..], &noise].concat()).as_deref(), Some("npn"));
    assert_eq!(payloads(&[&noise, &[1; 200][..]].concat()).as_deref(), Some("nnp"));
    assert_eq!(payloads(&[&[1; 63][..], &noise].concat()), None, "a run of 63");
    assert_eq!(payloads(&b"words ".repeat(400)).as_deref(), Some("nl"));
    assert_eq!(payloads(&b"words ".repeat(170)), None, "1,020 bytes");
    assert_eq!(payloads(&noise), None);
    // Without Pattern_V1 the codec has all.
    let alone = with(&[LZ77], true);
    let bytes = compressed(alone, &message(&[0; 4096])).unwrap();
    assert_eq!(expanded(alone, &bytes), message(&[0; 4096]));
    // Without a codec there are patterns only.
    assert_eq!(compressed(with(&[PATTERN], true), &message(&b"words ".repeat(400))), None);
    assert!(compressed(with(&[PATTERN], true), &message(&[0; 400])).is_some());
    assert_eq!(compressed(with(&[PATTERN], false), &message(&[0; 4000])), None);
}

/// The compressed message is written into the room that the caller makes, and nothing larger.
#[test]
fn a_message_is_compressed_into_the_room_of_the_caller() {
    use core::cell::Cell;
    std::thread_local!(static ASKED: Cell<usize> = const { Cell::new(0) });
    for codec in Codec::ALL {
        for is_chained in [false, true] {
            let whole = message(&b"words ".repeat(40_000));
            let buffer = [&[9; HEADROOM][..], &whole].concat();
            let saved = Arc::<AtomicU64>::default();
            let thrift = Arc::new(Thrift::counting_in(Arc::clone(&saved)));
            let to_compress = ToCompress {
                compression: with(&[codec.id()], is_chained),
                head: HEAD,
                room: |len| {
                    ASKED.set(len);
                    vec![0; len]
                },
                thrift: Some(Arc::clone(&thrift)),
            };
            let Framed { buffer, range } = to_compress.compress(buffer);
            assert!(range.start == HEADROOM && range.len() < whole.len() / 4);
            assert_eq!((buffer.len(), buffer.capacity()), (ASKED.get(), ASKED.get()));
            assert!(ASKED.get() < HEADROOM + whole.len(), "{codec:?}: {}", ASKED.get());
            assert!(!thrift.leaves_out(2000), "it has shrunk");
            assert_eq!(saved.load(Ordering::Relaxed), (whole.len() - range.len()) as u64);
        }
    }
    let mut state = 1u64;
    let noise = core::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    });
    let noise: Vec<u8> = noise.take(3000).collect();
    let buffer = [&[9; HEADROOM][..], &message(&noise)].concat();
    let thrift = Arc::new(Thrift::default());
    let compression = with(&[LZ77], false);
    let told = Some(Arc::clone(&thrift));
    let kept = ToCompress { compression, head: HEAD, room: |len| vec![0; len], thrift: told }
        .compress(buffer.clone());
    assert_eq!(kept, Framed { range: HEADROOM..buffer.len(), buffer });
    assert!(thrift.leaves_out(2000), "it has not shrunk");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_is_compressed_expands_to_the_same_message(
        parts in proptest::collection::vec((any::<u8>(), 1usize..3000, any::<bool>()), 0..6),
        ids in proptest::collection::vec(1u16..6, 1..5), is_chained in any::<bool>(),
    ) {
        let ids: Vec<_> = ids.into_iter().map(CompressionAlgorithm).collect();
        let compression = with(&ids, is_chained);
        let mut data = Vec::new();
        for (byte, count, is_run) in parts {
            let next = |at: usize| if is_run { byte } else { (at as u8).wrapping_mul(byte) % 11 };
            data.extend((0..count).map(next));
        }
        let whole = message(&data);
        if let Some(bytes) = compressed(compression, &whole) {
            prop_assert!(bytes.len() < whole.len());
            prop_assert_eq!(expanded(compression, &bytes), whole);
        }
    }
}
