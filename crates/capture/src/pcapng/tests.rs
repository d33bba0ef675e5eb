use std::string::String;
use std::vec;

use super::read::{Captured, Counted, Item, Reader, Step};
use super::*;

/// Reads a whole file in pieces that are as short as can be.
fn items(file: &[u8]) -> Vec<Item<'_>> {
    let (mut reader, mut items, mut at, mut len) = (Reader::new(), Vec::new(), 0, 0);
    while at < file.len() {
        let end = (at + len).min(file.len());
        match reader.step(&file[at..end]).unwrap() {
            Step::Needs(more) => {
                assert!(more > len, "{more} {len}");
                if at + more > file.len() {
                    break;
                }
                len = more;
            }
            Step::Took(count, item) => {
                assert!(count > 0 && count <= len);
                at += count;
                len = 0;
                if item != Item::Other {
                    items.push(item);
                }
            }
        }
    }
    items
}

fn sample() -> Vec<u8> {
    let mut out = Vec::new();
    begin("frevo 1", "a capture of a test", &mut out);
    for (payload, comment) in [(&b"abc"[..], None), (b"defg", Some("a word"))] {
        let one = Packet {
            time_ns: 1_700_000_000_123_456_789,
            direction: Direction::Outbound,
            head: b"head",
            payload,
            cut: 0,
            comment,
        };
        let before = out.len();
        packet(&one, &mut out);
        assert_eq!(out.len() - before, packet_len(&one));
    }
    let last = Statistics { time_ns: 5, received: 12, dropped: 3, comment: "three are missing" };
    statistics(&last, &mut out);
    out
}

#[test]
fn what_is_written_is_read() {
    let file = sample();
    let captured = |data, comment: &str| {
        let comment = String::from(comment);
        let time_ns = Some(1_700_000_000_123_456_789);
        Item::Packet(Captured { time_ns, link: 101, data, cut: 0, comment })
    };
    let counted = Counted {
        received: Some(12),
        dropped: Some(3),
        comment: String::from("three are missing"),
    };
    let expected = [
        Item::Comment(String::from("a capture of a test")),
        captured(b"headabc", ""),
        captured(b"headdefg", "a word"),
        Item::Statistics(counted),
    ];
    assert_eq!(items(&file), expected);
    assert_eq!(read::last_comment(&file).unwrap(), "three are missing");
    assert_eq!(read::last_comment(&file[..file.len() - 1]), None);
    // A file that ends early has the blocks before its end.
    for end in 0..file.len() {
        assert!(items(&file[..end]).len() < expected.len());
    }
}

#[test]
fn files_of_the_other_byte_order_are_read() {
    let mut file = vec![];
    let mut block = |kind: u32, body: &[u8]| {
        let len = u32::try_from(body.len() + 12).unwrap().to_be_bytes();
        file.extend(kind.to_be_bytes());
        file.extend(len);
        file.extend(body);
        file.extend(len);
    };
    let section = [&BYTE_ORDER.to_be_bytes()[..], &[0, 1, 0, 0], &[0xFF; 8]].concat();
    block(SECTION, &section);
    block(INTERFACE, &[0, 1, 0, 0, 0, 0, 0, 0]);
    let mut body = vec![0; 8];
    body.extend([0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0, 5, 9, 8, 0, 0]);
    block(PACKET, &body);
    let (time_ns, comment) = (Some(7000), String::new());
    let expected = Captured { time_ns, link: 1, data: &[9, 8], cut: 3, comment };
    assert_eq!(items(&file), [Item::Packet(expected)]);
}

#[test]
fn files_of_the_older_format_are_read() {
    for (magic, fraction) in [(0xA1B2_C3D4_u32, 5), (0xA1B2_3C4D, 5000)] {
        let mut file = vec![];
        for word in [magic, 0x0004_0002, 0, 0, 65_535, 1, 3, fraction, 2, 9] {
            file.extend(word.to_le_bytes());
        }
        file.extend([9, 8]);
        let time_ns = Some(3_000_005_000);
        let comment = String::new();
        let expected = Captured { time_ns, link: 1, data: &[9, 8], cut: 7, comment };
        assert_eq!(items(&file), [Item::Packet(expected)]);
    }
    assert!(Reader::new().step(b"GIF89a").is_err());
}

#[test]
fn a_block_that_is_too_long_is_skipped() {
    let mut file = sample();
    let len = (2_u32 << 20).to_le_bytes();
    file.extend([&[9, 9, 9, 9], &len[..]].concat());
    file.extend(vec![0; (2 << 20) - 12]);
    file.extend(len);
    let before = items(&sample()).len();
    let more = sample();
    file.extend(&more);
    assert_eq!(items(&file).len(), 2 * before);
    for len in [0_u32, 8, 11, 13] {
        let block = [&5_u32.to_le_bytes()[..], &len.to_le_bytes(), &[0; 8]].concat();
        let mut reader = Reader::new();
        let file = sample();
        assert!(matches!(reader.step(&file), Ok(Step::Took(..))));
        assert!(reader.step(&block).is_err());
    }
}
