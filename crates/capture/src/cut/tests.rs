use std::vec;

use frevo_wire::codec::Writer;
use frevo_wire::command::{close, read, write};
use frevo_wire::{FileId, Header, HeaderFlags, Route, Status};

use super::*;

const FILE: FileId = FileId { persistent: 1, volatile: 2 };

fn message(command: Command, is_answer: bool, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let flags = if is_answer { HeaderFlags::SERVER_TO_REDIR } else { HeaderFlags::EMPTY };
    let header = Header {
        credit_charge: 1,
        status: Status::SUCCESS,
        command,
        credits: 1,
        flags,
        next_command: 0,
        message_id: 5,
        route: Route::Sync { process_id: 0, tree_id: 3 },
        session_id: 7,
        signature: [0; 16],
    };
    let mut message = header.to_bytes().to_vec();
    body(&mut Writer::from(&mut message, 0));
    message
}

fn written(data: &[u8]) -> Vec<u8> {
    message(Command::WRITE, false, |w| write::Request::new(FILE, 0, data).encode(w))
}

fn answered(data: &[u8]) -> Vec<u8> {
    message(Command::READ, true, |w| read::Response::new(data).encode(w))
}

fn compound(messages: Vec<Vec<u8>>) -> Vec<u8> {
    let (mut frame, last) = (Vec::new(), messages.len() - 1);
    for (at, mut one) in messages.into_iter().enumerate() {
        one.resize(one.len().next_multiple_of(8), 0);
        if at != last {
            let next = u32::try_from(one.len()).unwrap();
            one[20..24].copy_from_slice(&next.to_le_bytes());
        }
        frame.extend(one);
    }
    frame
}

#[test]
fn the_data_at_the_end_of_a_frame_is_cut() {
    for (frame, head) in [(written as fn(&[u8]) -> Vec<u8>, 112), (answered, 80)] {
        for (len, data, left) in [
            (0, CaptureData::default(), 0),
            (256, CaptureData::default(), 256),
            (257, CaptureData::default(), 256),
            (1 << 20, CaptureData::default(), 256),
            (1 << 20, CaptureData::First(0), 0),
            (1 << 20, CaptureData::First(70_000), 70_000),
            (1 << 20, CaptureData::First(usize::MAX), DATA_BYTES_MAX),
            (1 << 20, CaptureData::Whole, 1 << 20),
        ] {
            let whole = frame(&vec![7; len]);
            let kept = Kept::of(&whole, 0, data);
            // A message without data has a byte in the place of it.
            let left = if len == 0 { whole.len() - head } else { left };
            assert_eq!((kept.bytes.len(), kept.zeroed), (head + left, 0), "{len} {data}");
            assert_eq!(kept.cut, whole.len() - kept.bytes.len());
            assert_eq!(kept.bytes, whole[..kept.bytes.len()]);
        }
    }
}

#[test]
fn data_that_is_not_in_memory_is_left_out() {
    let whole = answered(&[7; 1000]);
    for data in [CaptureData::default(), CaptureData::First(0), CaptureData::Whole] {
        let kept = Kept::of(&whole[..80], 1000, data);
        assert_eq!((kept.bytes.len(), kept.cut, kept.zeroed), (80, 1000, 0), "{data}");
    }
    assert!(CaptureData::default().is_brief() && !CaptureData::Whole.is_brief());
    assert!(!CaptureData::First(257).is_brief());
}

#[test]
fn data_before_other_messages_becomes_zeros() {
    let closed = || message(Command::CLOSE, true, |w| close::Response::default().encode(w));
    let (long, short) = (vec![7; 5000], [8; 100]);
    let frame = compound(vec![answered(&long), answered(&short), closed(), answered(&long)]);
    let kept = Kept::of(&frame, 0, CaptureData::default());
    assert_eq!((kept.cut, kept.zeroed), (5000 - 256, 5000 - 256));
    let mut expected = frame[..frame.len() - kept.cut].to_vec();
    expected[80 + 256..80 + 5000].fill(0);
    assert!(kept.bytes == expected);
    // A last message without data keeps its end, and padding goes with the data before it.
    let frame = compound(vec![answered(&long), closed()]);
    let kept = Kept::of(&frame, 0, CaptureData::default());
    assert_eq!((kept.bytes.len(), kept.cut, kept.zeroed), (frame.len(), 0, 5000 - 256));
    let frame = compound(vec![closed(), answered(&[7; 1001])]);
    let kept = Kept::of(&frame, 0, CaptureData::default());
    assert_eq!((kept.cut, kept.zeroed), (1001 - 256 + 7, 0));
}

/// A frame that is cut has to be one packet that readers take.
#[test]
fn a_cut_frame_is_short_and_other_messages_stay_whole() {
    let mut listed = message(Command::QUERY_DIRECTORY, true, |_| {});
    listed.resize(200_000, 9);
    let frame = compound(vec![listed.clone(), listed, answered(&[7; 50_000])]);
    let kept = Kept::of(&frame, 0, CaptureData::default());
    assert_eq!((kept.bytes.len(), kept.cut, kept.zeroed), (frame.len(), 0, 50_000 - 256));
    let data = kept.bytes.len() - 50_000;
    assert!(kept.bytes[data + 256..].iter().all(|byte| *byte == 0));
    assert!(kept.bytes[..data] == frame[..data]);
}

#[test]
fn calls_are_kept_whole() {
    let call = |len: u16| {
        let mut call = vec![5, 0, 0, 3, 0x10, 0, 0, 0];
        call.extend(len.to_le_bytes());
        call.resize(usize::from(len), 1);
        call
    };
    for (data, is_whole) in [
        (call(4000), true),
        ([call(2000), call(300)].concat(), true),
        ([call(2000), vec![1; 300]].concat(), false),
        (call(4000)[..3999].to_vec(), false),
        ((0..40).flat_map(|_| call(4000)).collect(), false),
    ] {
        let kept = Kept::of(&written(&data), 0, CaptureData::default());
        assert_eq!(kept.cut == 0, is_whole, "{}", data.len());
    }
}

proptest::proptest! {
    /// Whatever a peer sends, what is kept has its length, and no byte of another place.
    #[test]
    fn any_frame_is_taken(
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..600),
        fields in proptest::array::uniform8(proptest::num::u8::ANY),
        tail in 0_usize..2000,
    ) {
        let mut frame = answered(&bytes);
        frame[20] = fields[0];
        frame[66] = fields[1];
        frame[68..71].copy_from_slice(&fields[2..5]);
        frame[12] = 8 + (fields[5] & 1);
        frame[16] = fields[6] & 1;
        let kept = Kept::of(&frame, tail, CaptureData::First(fields[7].into()));
        assert_eq!(kept.bytes.len() + kept.cut, frame.len() + tail);
        assert!(kept.cut >= tail || kept.zeroed >= tail);
        let same = |(at, byte): (usize, &u8)| *byte == 0 || frame.get(at) == Some(byte);
        assert!(kept.bytes.iter().enumerate().all(same));
    }
}
