use std::string::ToString;
use std::vec;

use super::*;
use crate::decode::Decoder;
use crate::pcapng::read::{Counted, Item, Reader, Step};

fn settings() -> Settings {
    let (application, comment) = ("test".to_string(), "a test".to_string());
    let data = CaptureData::default();
    Settings { bytes: 64 << 20, keeps_secrets: false, data, application, comment }
}

fn ends() -> Ends {
    let [client, server] = ["10.0.0.1:5000", "10.0.0.2:445"].map(|end| end.parse().unwrap());
    Ends { client, server }
}

fn echo(message_id: u8) -> Vec<u8> {
    let mut frame = vec![0; 68];
    frame[..6].copy_from_slice(&[0xFE, b'S', b'M', b'B', 64, 0]);
    frame[12] = 13;
    frame[24] = message_id;
    frame[64] = 4;
    frame
}

/// The number of messages in a file, and its last block.
fn content(file: &[u8]) -> (usize, Counted) {
    let (mut reader, mut decoder, mut at) = (Reader::new(), Decoder::new(), 0);
    let (mut count, mut last) = (0, Counted::default());
    while at < file.len() {
        let Step::Took(taken, item) = reader.step(&file[at..]).unwrap() else { panic!("cut") };
        at += taken;
        match item {
            Item::Packet(packet) => count += decoder.packet(&packet).len(),
            Item::Statistics(counted) => last = counted,
            _ => {}
        }
    }
    (count, last)
}

#[test]
fn the_frames_of_many_threads_reach_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcapng");
    let (capture, writer) = FileWriter::start(create(&path).unwrap(), &settings()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let capture = &capture;
            scope.spawn(move || {
                let tap = capture.tap(ends(), false, "a thread".to_string());
                for id in 0..100 {
                    tap.sent(&echo(id), 0);
                }
            });
        }
    });
    let (outcome, error) = writer.finish();
    assert!(error.is_none());
    let file = std::fs::read(&path).unwrap();
    assert_eq!((outcome.messages, outcome.dropped), (400, 0));
    assert_eq!(outcome.bytes, file.len() as u64);
    let (count, last) = content(&file);
    assert_eq!((count, last.received, last.dropped), (400, Some(400), Some(0)));
    assert_eq!(capture.queued_bytes(), 0);
    assert!(!capture.is_on());
}

#[test]
fn a_file_is_private_and_never_overwritten() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcapng");
    let file = create(&path).unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(create(&path).is_err());
    let link = folder.path().join("link");
    symlink(folder.path().join("elsewhere"), &link).unwrap();
    assert!(create(&link).is_err());
    assert!(!folder.path().join("elsewhere").exists());
}

#[test]
fn a_writer_that_is_too_slow_costs_frames_and_no_memory() {
    let (capture, mut source) = Capture::new(&settings(), 100_000);
    let tap = capture.tap(ends(), false, "a test".to_string());
    for _ in 0..1000 {
        tap.sent(&echo(1), 0);
        assert!(capture.queued_bytes() <= 100_000);
    }
    let fits = 100_000 / (68 + crate::limits::QUEUED_OVERHEAD) as u64;
    let (mut file, mut blocks) = (Vec::new(), Vec::new());
    source.next(&mut blocks);
    file.append(&mut blocks);
    assert_eq!(source.outcome().messages, fits);
    // The next frame that has room tells how many had none.
    tap.sent(&echo(2), 0);
    drop(tap);
    capture.end();
    while source.next(&mut blocks) {
        file.append(&mut blocks);
    }
    assert_eq!(source.outcome().dropped, 1000 - fits);
    assert_eq!(source.outcome().messages, fits + 1);
    let (count, last) = content(&file);
    assert_eq!((count as u64, last.dropped), (fits + 1, Some(1000 - fits)));
}

#[test]
fn a_writer_that_fails_ends_the_capture() {
    // Every write to it fails, as on a disk that is full.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (capture, writer) = FileWriter::start(full, &settings()).unwrap();
    while capture.is_on() {
        std::thread::yield_now();
    }
    let tap = capture.tap(ends(), false, "a test".to_string());
    tap.sent(&echo(1), 0);
    assert_eq!(capture.queued_bytes(), 0);
    assert!(writer.finish().1.is_some());
}

/// A frame of `len` bytes of data costs the queue no more than its head.
#[test]
fn data_that_is_cut_takes_no_room_in_the_queue() {
    let mut frame = echo(1);
    frame.resize(80, 0);
    frame[12] = 8;
    frame[16] = 1;
    frame[64..72].copy_from_slice(&[17, 0, 80, 0, 0, 0, 16, 0]);
    let (capture, mut source) = Capture::new(&settings(), 100_000);
    let tap = capture.tap(ends(), true, "a test".to_string());
    // The data of the first is not in memory.
    tap.sent(&frame, 1 << 20);
    assert_eq!(capture.queued_bytes(), 80 + crate::limits::QUEUED_OVERHEAD);
    frame.resize(80 + (1 << 20), 7);
    tap.sent(&frame, 0);
    assert_eq!(capture.queued_bytes(), 80 + 80 + 256 + 2 * crate::limits::QUEUED_OVERHEAD);
    capture.end();
    let (mut file, mut blocks) = (Vec::new(), Vec::new());
    while source.next(&mut blocks) {
        file.append(&mut blocks);
    }
    assert_eq!(content(&file).0, 2);
    assert!(file.len() < 4000);
}
