use std::vec;

use super::*;
use crate::packet::parse::{Segment, segment};
use crate::pcapng::read::{Captured, Item, Reader, Step};

fn settings(bytes: u64) -> Settings {
    let (application, comment) = (String::from("test"), String::from("a test"));
    Settings { bytes, keeps_secrets: false, application, comment }
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
            let (time_ns, direction) = (5, Direction::Outbound);
            let frame = frame.as_mut_slice();
            let message = Message { origin, time_ns, direction, dropped_before: 0, frame };
            recorder.message(message, &mut out);
        }
    }
    recorder.close(&one, 6, &mut out);
    recorder.end(0, 7, &mut out);
    let packets = packets(&out);
    assert!(packets.iter().all(|packet| packet.data.len() <= 65_535));
    let segments: Vec<_> =
        packets.iter().map(|packet| segment(packet.link, packet.data).unwrap()).collect();
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
        let (frame, direction) = (&mut frame_of(connection, 64)[..], Direction::Outbound);
        let message = Message { origin: &origin, time_ns: 1, direction, dropped_before: 0, frame };
        recorder.message(message, &mut out);
    }
    let packets = packets(&out);
    let ports: BTreeSet<u16> = packets
        .iter()
        .map(|packet| segment(packet.link, packet.data).unwrap().from.port())
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
            let (frame, direction) = (&mut frame_of(1, 10_000)[..], Direction::Outbound);
            let message =
                Message { origin: &origin, time_ns: 1, direction, dropped_before: 0, frame };
            recorder.message(message, &mut out);
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
        let (frame, direction) = (&mut frame_of(1, 64)[..], Direction::Inbound);
        let message = Message { origin: &origin, time_ns: 1, direction, dropped_before, frame };
        recorder.message(message, &mut out);
    }
    let packets = packets(&out);
    let comments: Vec<_> = packets[3..].iter().map(|packet| packet.comment.as_str()).collect();
    let text = "left out before this one: the capture was too slow";
    assert_eq!(comments, ["", &*format!("1 frame was {text}"), &*format!("17 frames were {text}")]);
    assert_eq!(recorder.outcome().dropped, 18);
}
