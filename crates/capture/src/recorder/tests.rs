use std::vec;

use super::*;
use crate::cut::Kept;
use crate::packet::parse::{Segment, segment};
use crate::pcapng::read::{Captured, Item, Reader, Step};

fn settings(bytes: u64) -> Settings {
    let (application, comment) = (String::from("test"), String::from("a test"));
    let data = CaptureData::default();
    Settings { bytes, keeps_secrets: false, data, application, comment }
}

fn origin(connection: u64, client: &str) -> Origin {
    let ends = Ends { client: client.parse().unwrap(), server: "10.0.0.2:4450".parse().unwrap() };
    Origin { connection, ends, is_server: false, comment: String::from("over TCP") }
}

fn packets(file: &[u8]) -> Vec<Captured<'_>> {
    let (mut reader, mut packets, mut at) = (Reader::new(), Vec::new(), 0);
    while at < file.len() {
        match reader.step(&file[at..]).unwrap() {
            Step::Took(count, item) => {
                at += count;
                if let Item::Packet(packet) = item {
                    packets.push(packet);
                }
            }
            Step::Needs(more) => panic!("the file ends too early: {more}"),
        }
    }
    packets
}

/// The stream that the segments of one end make.
fn stream_of(segments: &[Segment<'_>], port: u16) -> Vec<u8> {
    let (mut next, mut stream) = (None, Vec::new());
    for one in segments.iter().filter(|one| one.from.port() == port) {
        let expected = next.unwrap_or(one.sequence);
        assert_eq!(one.sequence, expected);
        assert_eq!(one.payload.len(), one.len);
        let syn = u32::from(one.flags & crate::packet::SYN != 0);
        next = Some(expected + syn + u32::try_from(one.len).unwrap());
        stream.extend(one.payload);
    }
    stream
}

fn frame_of(connection: u64, len: usize) -> Vec<u8> {
    let mut frame = vec![u8::try_from(connection).unwrap(); len];
    frame[..4].copy_from_slice(&[0xFE, b'S', b'M', b'B']);
    frame
}

fn message<'a>(origin: &'a Origin, frame: &'a mut [u8]) -> Message<'a> {
    let (direction, dropped_before) = (Direction::Outbound, 0);
    Message { origin, time_ns: 1, direction, dropped_before, frame, cut: 0, zeroed: 0 }
}

#[test]
fn frames_become_streams_that_have_no_holes() {
    let lens = [64, 65, 1000, SEGMENT_BYTES - 4, SEGMENT_BYTES - 3, SEGMENT_BYTES, 3 << 20];
    let mut out = Vec::new();
    let mut recorder = Recorder::begin(&settings(64 << 20), &mut out);
    let (one, other) = (origin(1, "10.0.0.1:5000"), origin(2, "10.0.0.1:5001"));
    let mut expected: [Vec<u8>; 2] = Default::default();
    for len in lens {
        for (at, origin) in [&one, &other].into_iter().enumerate() {
            let mut frame = frame_of(origin.connection, len);
            expected[at].extend(u32::try_from(len).unwrap().to_be_bytes());
            expected[at].extend(&frame);
            recorder.message(message(origin, &mut frame), &mut out);
        }
    }
    recorder.close(&one, 6, &mut out);
    recorder.end(0, 7, &mut out);
    let packets = packets(&out);
    assert!(packets.iter().all(|packet| packet.data.len() <= 65_535));
    let segments: Vec<_> =
        packets.iter().map(|one| segment(one.link, one.data, one.cut).unwrap()).collect();
    assert!(segments.iter().all(|one| one.from.port() == 445 || one.to.port() == 445));
    assert!(stream_of(&segments, 5000) == expected[0]);
    assert!(stream_of(&segments, 5001) == expected[1]);
    assert_eq!(packets[0].comment, "connection 1: over TCP; the server's port is 4450");
    let outcome = recorder.outcome();
    assert_eq!((outcome.messages, outcome.is_full), (2 * lens.len() as u64, false));
    assert_eq!(outcome.bytes, out.len() as u64);
}

#[test]
fn connections_with_the_same_ends_are_kept_apart() {
    let mut out = Vec::new();
    let mut recorder = Recorder::begin(&settings(1 << 20), &mut out);
    for connection in [1, 2, 3] {
        let origin = origin(connection, "10.0.0.1:5000");
        recorder.message(message(&origin, &mut frame_of(connection, 64)), &mut out);
    }
    let packets = packets(&out);
    let ports: BTreeSet<u16> = packets
        .iter()
        .map(|one| segment(one.link, one.data, one.cut).unwrap().from.port())
        .collect();
    assert_eq!(ports, BTreeSet::from([445, 5000, 5001, 5002]));
}

#[test]
fn a_file_does_not_become_larger_than_its_limit() {
    for limit in [64 << 10, 100_000, 1 << 20] {
        let mut out = Vec::new();
        let mut recorder = Recorder::begin(&settings(limit), &mut out);
        let origin = origin(1, "10.0.0.1:5000");
        let mut count = 0;
        while !recorder.outcome().is_full {
            recorder.message(message(&origin, &mut frame_of(1, 10_000)), &mut out);
            count += 1;
        }
        recorder.close(&origin, 2, &mut out);
        recorder.end(9, 2, &mut out);
        assert!(out.len() as u64 <= limit, "{}", out.len());
        assert!(out.len() as u64 + 20_000 > limit, "{}", out.len());
        let outcome = recorder.outcome();
        assert_eq!((outcome.messages, outcome.dropped), (count - 1, 9));
        packets(&out);
    }
}

#[test]
fn frames_that_were_left_out_are_told() {
    let mut out = Vec::new();
    let mut recorder = Recorder::begin(&settings(1 << 20), &mut out);
    let origin = origin(1, "10.0.0.1:5000");
    for dropped_before in [0, 1, 17] {
        let frame = &mut frame_of(1, 64);
        let message = Message { dropped_before, ..message(&origin, frame) };
        recorder.message(message, &mut out);
    }
    let packets = packets(&out);
    let comments: Vec<_> = packets[3..].iter().map(|packet| packet.comment.as_str()).collect();
    let text = "left out before this one: the capture was too slow";
    assert_eq!(comments, ["", &*format!("1 frame was {text}"), &*format!("17 frames were {text}")]);
    assert_eq!(recorder.outcome().dropped, 18);
}

/// A WRITE request with `len` bytes of data.
fn write_of(len: usize) -> Vec<u8> {
    let mut frame = frame_of(0, 112);
    frame[4..6].copy_from_slice(&[64, 0]);
    frame[12] = 9;
    frame[64..68].copy_from_slice(&[49, 0, 112, 0]);
    frame[68..72].copy_from_slice(&u32::try_from(len).unwrap().to_le_bytes());
    frame.resize(112 + len, 7);
    frame
}

/// A frame that is cut is one packet, whatever its length: its head tells the length that it had, and so does the
/// number of the packet behind it.
#[test]
fn a_frame_that_is_cut_has_its_true_length() {
    let both = [("10.0.0.1:5000", "10.0.0.2:445", 40), ("[fe80::1]:5000", "[fe80::2]:445", 60)];
    for (client, server, head_len) in both {
        let ends = Ends { client: client.parse().unwrap(), server: server.parse().unwrap() };
        let origin = Origin { ends, ..origin(1, "10.0.0.1:1") };
        let mut out = Vec::new();
        let mut recorder = Recorder::begin(&settings(1 << 20), &mut out);
        let lens = [257, 1000, 65_379, 65_380, 70_000, 1 << 20, 8 << 20];
        for len in lens {
            let mut kept = Kept::of(&write_of(len), 0, CaptureData::default());
            let cut = kept.cut;
            recorder.message(Message { cut, ..message(&origin, &mut kept.bytes) }, &mut out);
        }
        let packets = packets(&out);
        assert_eq!(packets.len(), 3 + lens.len());
        let mut next = 1;
        for (one, len) in packets[3..].iter().zip(lens) {
            let found = segment(one.link, one.data, one.cut).unwrap();
            assert_eq!((found.sequence, found.len), (next, 4 + 112 + len));
            assert_eq!(found.payload[..4], u32::try_from(112 + len).unwrap().to_be_bytes());
            assert_eq!(found.payload.len(), 4 + 112 + 256);
            // RFC 2675: 4 + 112 + 65,379 bytes are the most whose length both heads can say.
            let is_long = len > 65_379;
            let is_v6 = head_len == 60;
            let options = if is_long && is_v6 { 8 } else { 0 };
            assert_eq!(one.data.len() + one.cut, head_len + options + found.len);
            let field = if is_v6 { 4..6 } else { 2..4 };
            assert_eq!(one.data[field] == [0, 0], is_long, "{len}");
            if options > 0 {
                assert_eq!(one.data[40..44], [6, 0, 0xC2, 4]);
                let said = u32::from_be_bytes(one.data[44..48].try_into().unwrap());
                assert_eq!(said as usize, 8 + 20 + found.len);
            }
            next += u32::try_from(found.len).unwrap();
        }
    }
}

/// The bytes of the file, for a WRITE of 300 bytes.
#[test]
fn a_packet_that_is_cut_says_how_long_it_was() {
    let mut out = Vec::new();
    let mut recorder = Recorder::begin(&settings(1 << 20), &mut out);
    let origin = origin(1, "10.0.0.1:5000");
    let mut first = frame_of(1, 64);
    recorder.message(message(&origin, &mut first), &mut out);
    out.clear();
    let mut kept = Kept::of(&write_of(300), 0, CaptureData::default());
    let cut = kept.cut;
    recorder.message(Message { cut, ..message(&origin, &mut kept.bytes) }, &mut out);
    // Enhanced Packet Block of 456 bytes, interface 0, the time; 412 of 456 bytes are captured. The IPv4 head says 456
    // bytes, and the prefix of the frame 412.
    assert_eq!(out[..12], [6, 0, 0, 0, 0xC8, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(out[12..28], [0, 0, 0, 0, 1, 0, 0, 0, 0x9C, 1, 0, 0, 0xC8, 1, 0, 0]);
    assert_eq!(out[28..32], [0x45, 0, 1, 0xC8]);
    assert_eq!(out[68..72], [0, 0, 1, 0x9C]);
    assert_eq!(out[72..76], [0xFE, b'S', b'M', b'B']);
    assert_eq!(out.len(), 456);
}
