//! Capture files, and files that are made of any frames.

use frevo_capture::cut::{CaptureData, Kept};
use frevo_capture::decode::Decoder;
use frevo_capture::packet::Ends;
use frevo_capture::pcapng::Direction;
use frevo_capture::pcapng::read::{BadFile, Counted, Item, PIECE_BYTES, Reader, Step};
use frevo_capture::recorder::{Message, Origin, Recorder, Settings};

use crate::chunk;

/// The content of a file.
#[derive(Default)]
struct Content {
    messages: usize,
    counted: Option<Counted>,
}

/// One byte that says if the rest is a file, or frames of which one is made.
pub fn captures(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    if kind & 1 == 0 {
        let _ = read(rest);
        return;
    }
    let (count, file) = recorded(rest, kind & 2 != 0);
    let content = read(&file).expect("a file that was made can be read");
    assert!(content.messages >= count, "{} of {count}", content.messages);
    let counted = content.counted.expect("its last block");
    assert_eq!((counted.received, counted.dropped), (Some(count as u64), Some(0)));
}

/// Reads a whole file, as a program does that reads it in pieces.
fn read(file: &[u8]) -> Result<Content, BadFile> {
    let (mut reader, mut decoder, mut content) =
        (Reader::new(), Decoder::new(), Content::default());
    let mut at = 0;
    loop {
        let piece = &file[at..file.len().min(at + PIECE_BYTES)];
        match reader.step(piece)? {
            Step::Needs(bytes) => {
                assert!(bytes > piece.len() && bytes <= PIECE_BYTES);
                return Ok(content);
            }
            Step::Took(count, item) => {
                assert!(count > 0 && count <= piece.len());
                at += count;
                match item {
                    Item::Packet(packet) => {
                        for line in decoder.packet(&packet) {
                            content.messages += 1;
                            assert!(line.name.len() + line.text.len() < 8192);
                        }
                    }
                    Item::Statistics(counted) => content.counted = Some(counted),
                    Item::Comment(_) | Item::Other => {}
                }
            }
        }
    }
}

/// Makes a file of frames, each of which has a byte with its way before it.
fn recorded(mut data: &[u8], keeps_secrets: bool) -> (usize, Vec<u8>) {
    let (application, comment) = (String::from("fuzz"), String::from("fuzz"));
    let settings =
        Settings { bytes: 1 << 30, keeps_secrets, data: CaptureData::Whole, application, comment };
    let mut file = Vec::new();
    let mut recorder = Recorder::begin(&settings, &mut file);
    let (mut count, mut origins) = (0, Vec::new());
    while let Some((&way, rest)) = data.split_first() {
        data = rest;
        let Some(part) = chunk(&mut data) else { break };
        let mut frame = vec![0xFE, b'S', b'M', b'B', 64, 0];
        frame.extend(part);
        let connection = u64::from(way >> 4);
        let ends = Ends {
            client: "10.0.0.1:5000".parse().unwrap(),
            server: "10.0.0.2:445".parse().unwrap(),
        };
        let comment = String::new();
        let origin = Origin { connection, ends, is_server: way & 2 != 0, comment };
        let direction = if way & 1 == 0 { Direction::Inbound } else { Direction::Outbound };
        let kept = if way & 4 == 0 { CaptureData::Whole } else { CaptureData::First(8) };
        let Kept { mut bytes, cut, zeroed } = Kept::of(&frame, 0, kept);
        assert!(bytes.len() + cut == frame.len());
        let message = Message {
            origin: &origin,
            time_ns: count as u64,
            direction,
            dropped_before: 0,
            frame: &mut bytes,
            cut,
            zeroed,
        };
        recorder.message(message, &mut file);
        count += 1;
        origins.push(origin);
    }
    for origin in &origins {
        recorder.close(origin, 0, &mut file);
    }
    recorder.end(0, 0, &mut file);
    assert_eq!(recorder.outcome().bytes, file.len() as u64);
    (count, file)
}
