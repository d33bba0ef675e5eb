use std::format;
use std::string::ToString;
use std::vec;

use frevo_wire::codec::Writer;
use frevo_wire::command::{close, create, oplock_break, read, tree_connect, write};
use frevo_wire::create_context::{
    CreateContext, CreateContexts, Lease, LeaseFlags, LeaseKey, LeaseState, ResponseContext,
};
use frevo_wire::dtyp::{AccessMask, FileAttributes, FileTime};
use frevo_wire::{Command, FileId, HeaderFlags, Status, Utf16};

use super::*;
use crate::packet::{Ends, Sender, Stream};

/// Answers come so long after their requests.
const LATENCY_NS: u64 = 2_500_000;
const KEY: LeaseKey = LeaseKey([0xAB; 16]);
const FILE: FileId = FileId { persistent: 1, volatile: 2 };

/// A conversation of a client and a server, as packets.
struct Talk {
    stream: Stream,
    packets: Vec<(u64, Vec<u8>)>,
    time_ns: u64,
}

impl Talk {
    fn new() -> Self {
        let [client, server] = ["10.0.0.1:5000", "10.0.0.2:445"].map(|end| end.parse().unwrap());
        let mut stream = Stream::new(Ends { client, server });
        let packets = stream.open().into_iter().map(|(_, packet)| (0, packet)).collect();
        Self { stream, packets, time_ns: 1_000 }
    }

    fn say(&mut self, header: Header, body: impl FnOnce(&mut Writer<'_>)) {
        let mut message = header.to_bytes().to_vec();
        body(&mut Writer::from(&mut message, 0));
        self.frame(header.is_response(), &message);
    }

    fn frame(&mut self, is_of_server: bool, message: &[u8]) {
        let sender = if is_of_server { Sender::Server } else { Sender::Client };
        let prefix = u32::try_from(message.len()).unwrap().to_be_bytes();
        for part in [&prefix[..], message].concat().chunks(1000) {
            let mut packet = self.stream.data(sender, part.len(), true);
            packet.extend(part);
            self.packets.push((self.time_ns, packet));
        }
        self.time_ns += LATENCY_NS;
    }

    fn lines(&self) -> Vec<Line> {
        let mut decoder = Decoder::new();
        let each = |(time_ns, data): &(u64, Vec<u8>)| decoder.packet(&captured(*time_ns, data));
        self.packets.iter().flat_map(each).collect()
    }
}

fn captured(time_ns: u64, data: &[u8]) -> Captured<'_> {
    Captured { time_ns: Some(time_ns), link: 101, data, cut: 0, comment: String::new() }
}

fn asks(command: Command, message_id: u64) -> Header {
    Header {
        credit_charge: 1,
        status: Status(0),
        command,
        credits: 1,
        flags: HeaderFlags::EMPTY,
        next_command: 0,
        message_id,
        route: Route::Sync { process_id: 0, tree_id: 3 },
        session_id: 7,
        signature: [0; 16],
    }
}

fn answers(command: Command, message_id: u64, status: Status) -> Header {
    Header { status, flags: HeaderFlags::SERVER_TO_REDIR, ..asks(command, message_id) }
}

fn lease(state: u32) -> Lease {
    Lease { lease_key: KEY, lease_state: LeaseState(state), flags: LeaseFlags::EMPTY }
}

fn create_request() -> create::Request<'static> {
    create::Request {
        requested_oplock_level: create::OplockLevel::LEASE,
        impersonation_level: create::ImpersonationLevel::IMPERSONATION,
        desired_access: AccessMask::FILE_ALL,
        file_attributes: FileAttributes::NORMAL,
        share_access: create::ShareAccess::READ,
        create_disposition: create::CreateDisposition::OPEN_IF,
        create_options: create::CreateOptions::EMPTY,
        name: Utf16::from_str("docs\\a.txt"),
        contexts: CreateContexts::from_requests(&[CreateContext::Lease(lease(7))]),
    }
}

fn create_response() -> create::Response<'static> {
    create::Response {
        oplock_level: create::OplockLevel::LEASE,
        flags: create::CreateFlags::EMPTY,
        create_action: create::CreateAction::OPENED,
        creation_time: FileTime(0),
        last_access_time: FileTime(0),
        last_write_time: FileTime(0),
        change_time: FileTime(0),
        allocation_size: 0,
        end_of_file: 1234,
        file_attributes: FileAttributes::NORMAL,
        file_id: FILE,
        contexts: CreateContexts::from_responses(&[ResponseContext::Lease(lease(3))]),
    }
}

/// Connects to a share and opens a file in it.
fn open(talk: &mut Talk) {
    let path = tree_connect::Request::new(Utf16::from_str("\\\\nas\\data"));
    talk.say(asks(Command::TREE_CONNECT, 1), |w| path.encode(w));
    let share = tree_connect::Response {
        share_type: tree_connect::ShareType::DISK,
        share_flags: tree_connect::ShareFlags::EMPTY,
        capabilities: tree_connect::ShareCapabilities::EMPTY,
        maximal_access: AccessMask::FILE_ALL,
    };
    talk.say(answers(Command::TREE_CONNECT, 1, Status::SUCCESS), |w| share.encode(w));
    talk.say(asks(Command::CREATE, 2), |w| create_request().encode(w));
    talk.say(answers(Command::CREATE, 2, Status::SUCCESS), |w| create_response().encode(w));
}

#[test]
fn requests_and_answers_find_each_other() {
    let mut talk = Talk::new();
    open(&mut talk);
    let data = vec![7; 100_000];
    talk.say(asks(Command::READ, 3), |w| read::Request::new(FILE, 4096, 100_000).encode(w));
    talk.say(answers(Command::READ, 3, Status::SUCCESS), |w| read::Response::new(&data).encode(w));
    let flags = close::CloseFlags::EMPTY;
    talk.say(asks(Command::CLOSE, 4), |w| close::Request { flags, file_id: FILE }.encode(w));
    talk.say(answers(Command::CLOSE, 4, Status::SUCCESS), |w| close::Response::default().encode(w));
    let lines = talk.lines();
    let told: Vec<_> = lines
        .iter()
        .map(|line| {
            (line.is_of_server, line.command.as_str(), line.name.as_str(), line.text.as_str())
        })
        .collect();
    let file = "\\\\nas\\data\\docs\\a.txt";
    assert_eq!(
        told,
        [
            (false, "TREE_CONNECT", "\\\\nas\\data", ""),
            (true, "TREE_CONNECT", "\\\\nas\\data", "DISK"),
            (false, "CREATE", file, "open or create, wants a lease RWH (key abababab)"),
            (true, "CREATE", file, "opened, 1234 bytes, lease RH"),
            (false, "READ", file, "100000 bytes at 4096"),
            (true, "READ", file, "100000 bytes"),
            (false, "CLOSE", file, ""),
            (true, "CLOSE", file, ""),
        ]
    );
    for line in &lines {
        let has_status = line.is_of_server.then_some(Status::SUCCESS);
        assert_eq!((line.status, line.connection), (has_status, 1));
        assert_eq!(line.latency_ns, line.is_of_server.then_some(LATENCY_NS));
    }
    assert_eq!(lines[5].data_bytes, Some(100_000));
    let lease = "lease abababab is RH: the client may cache reads and the open file";
    assert_eq!(lines[3].notes, [lease]);
}

#[test]
fn breaks_of_leases_are_explained() {
    let mut talk = Talk::new();
    open(&mut talk);
    let broken = oplock_break::LeaseBreakNotification {
        new_epoch: 0,
        flags: oplock_break::LeaseBreakFlags::ACK_REQUIRED,
        lease_key: KEY,
        current_lease_state: LeaseState(3),
        new_lease_state: LeaseState(1),
    };
    let header = answers(Command::OPLOCK_BREAK, u64::MAX, Status::SUCCESS);
    talk.say(header, |w| oplock_break::Notification::Lease(broken).encode(w));
    let kept = oplock_break::LeaseBreak { lease_key: KEY, lease_state: LeaseState(1) };
    let ack = oplock_break::Request::Lease(kept);
    talk.say(asks(Command::OPLOCK_BREAK, 3), |w| ack.encode(w));
    let done = oplock_break::Response::Lease(kept);
    talk.say(answers(Command::OPLOCK_BREAK, 3, Status::SUCCESS), |w| done.encode(w));
    let lines = talk.lines();
    let lines = &lines[4..];
    assert_eq!(lines[0].text, "lease abababab breaks: RH to R");
    assert_eq!((lines[0].is_of_server, lines[0].is_answer), (true, false));
    assert_eq!(lines[1].text, "keeps R of the lease abababab");
    assert_eq!(lines[2].text, "the lease is R now");
    let file = "\\\\nas\\data\\docs\\a.txt";
    assert!(lines.iter().all(|line| line.name == file), "{lines:?}");
}

#[test]
fn replays_interim_answers_and_credits_are_explained() {
    let mut talk = Talk::new();
    let mut negotiate = asks(Command::NEGOTIATE, 0);
    negotiate.session_id = 0;
    // The body is not whole: the line says so, and its credits count.
    talk.say(negotiate, |w| {
        w.u16(36);
    });
    let mut granted = answers(Command::NEGOTIATE, 0, Status::SUCCESS);
    granted.credits = 1;
    talk.say(granted, |w| {
        w.u16(65);
    });
    let mut again = asks(Command::CREATE, 1);
    again.flags = HeaderFlags::REPLAY_OPERATION;
    again.status = Status(2);
    talk.say(again, |w| create_request().encode(w));
    let mut interim = answers(Command::CREATE, 1, Status::PENDING);
    interim.flags |= HeaderFlags::ASYNC_COMMAND;
    interim.route = Route::Async { async_id: 99 };
    talk.say(interim, |w| {
        w.u16(9).u16(0).u32(0).u8(0);
    });
    let last = Header { status: Status::SUCCESS, credits: 0, ..interim };
    talk.say(last, |w| create_response().encode(w));
    let lines = talk.lines();
    assert!(lines[0].text.contains("malformed"), "{lines:?}");
    let notes = lines[2].notes.join("\n");
    assert!(notes.contains("replay") && notes.contains("channel sequence 2"), "{notes}");
    assert!(notes.contains("credits: none is left"), "{notes}");
    assert_eq!(lines[3].text, "the server will answer later");
    assert_eq!((lines[3].async_id, lines[4].async_id), (Some(99), Some(99)));
    assert_eq!(lines[4].latency_ns, Some(2 * LATENCY_NS));
    assert!(lines[4].notes.iter().any(|note| note.contains("replay")));
}

#[test]
fn compounds_are_split() {
    let mut talk = Talk::new();
    let mut first = asks(Command::CREATE, 1).to_bytes().to_vec();
    create_request().encode(&mut Writer::from(&mut first, 0));
    first.resize(first.len().next_multiple_of(8), 0);
    let next = u32::try_from(first.len()).unwrap();
    first[20..24].copy_from_slice(&next.to_le_bytes());
    let mut second = asks(Command::CLOSE, 2);
    second.flags = HeaderFlags::RELATED_OPERATIONS;
    let mut frame = [first, second.to_bytes().to_vec()].concat();
    let start = frame.len() - 64;
    let request = close::Request { flags: close::CloseFlags::EMPTY, file_id: FileId::ALL_ONES };
    request.encode(&mut Writer::from(&mut frame, start));
    talk.frame(false, &frame);
    let lines = talk.lines();
    assert_eq!([&*lines[0].command, &lines[1].command], ["CREATE", "CLOSE"]);
    assert_eq!(lines[1].name, "docs\\a.txt");
    assert_eq!(lines[0].bytes + lines[1].bytes, frame.len() as u64);
}

/// A compound of these messages.
fn compound(messages: &[(Header, Vec<u8>)]) -> Vec<u8> {
    let mut frame = Vec::new();
    for (at, (header, body)) in messages.iter().enumerate() {
        let mut message = [&header.to_bytes()[..], body].concat();
        if at + 1 < messages.len() {
            message.resize(message.len().next_multiple_of(8), 0);
            let next = u32::try_from(message.len()).unwrap();
            message[20..24].copy_from_slice(&next.to_le_bytes());
        }
        frame.extend(message);
    }
    frame
}

/// A body whose offsets count from its message.
fn body(fill: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut message = vec![0; 64];
    fill(&mut Writer::from(&mut message, 0));
    message.split_off(64)
}

#[test]
fn compounds_of_any_length_are_split() {
    let closed = body(|w| {
        close::Request { flags: close::CloseFlags::EMPTY, file_id: FileId::ALL_ONES }.encode(w);
    });
    for len in [100, 65_536, 200_000, 1_000_000] {
        let mut talk = Talk::new();
        let data = vec![0xFE; len];
        let mut asked = vec![(asks(Command::CREATE, 1), body(|w| create_request().encode(w)))];
        let mut answered = vec![(
            answers(Command::CREATE, 1, Status::SUCCESS),
            body(|w| create_response().encode(w)),
        )];
        // Two writes, as a file that is put in one round trip has them, then two reads.
        for id in [2, 3] {
            let written = body(|w| write::Request::new(FileId::ALL_ONES, 0, &data).encode(w));
            asked.push((asks(Command::WRITE, id), written));
            let count = u32::try_from(len).unwrap();
            let header = answers(Command::WRITE, id, Status::SUCCESS);
            answered.push((header, body(|w| write::Response { count }.encode(w))));
        }
        for id in [4, 5] {
            let read = body(|w| read::Request::new(FileId::ALL_ONES, 0, 1 << 20).encode(w));
            asked.push((asks(Command::READ, id), read));
            let header = answers(Command::READ, id, Status::SUCCESS);
            answered.push((header, body(|w| read::Response::new(&data).encode(w))));
        }
        asked.push((asks(Command::CLOSE, 6), closed.clone()));
        let header = answers(Command::CLOSE, 6, Status::SUCCESS);
        answered.push((header, body(|w| close::Response::default().encode(w))));
        talk.frame(false, &compound(&asked));
        talk.frame(true, &compound(&answered));
        let lines = talk.lines();
        let commands: Vec<_> = lines.iter().map(|line| line.command.as_str()).collect();
        let of_one = ["CREATE", "WRITE", "WRITE", "READ", "READ", "CLOSE"];
        assert_eq!(commands, of_one.repeat(2), "{len}");
        assert!(lines[6..].iter().all(|line| line.name == "docs\\a.txt"), "{lines:?}");
        assert!(lines.iter().all(|line| line.notes.iter().all(|note| !note.contains("not in"))));
        assert_eq!(lines[9].text, format!("{len} bytes"));
        let bytes: u64 = lines.iter().map(|line| line.bytes).sum();
        assert_eq!(bytes, (compound(&asked).len() + compound(&answered).len()) as u64);
    }
}

#[test]
fn packets_in_another_order_are_put_right() {
    let mut talk = Talk::new();
    open(&mut talk);
    let data = vec![7; 20_000];
    talk.say(asks(Command::READ, 3), |w| read::Request::new(FILE, 0, 20_000).encode(w));
    talk.say(answers(Command::READ, 3, Status::SUCCESS), |w| read::Response::new(&data).encode(w));
    let texts = |talk: &Talk| -> Vec<_> {
        talk.lines().into_iter().map(|line| (line.command, line.name, line.text)).collect()
    };
    let expected = texts(&talk);
    // The segments of the long answer come in reverse, and each twice.
    let long = talk.packets.len() - 20..talk.packets.len();
    talk.packets[long.clone()].reverse();
    let again = talk.packets[long].to_vec();
    talk.packets.extend(again);
    assert_eq!(texts(&talk), expected);
}

#[test]
fn a_capture_may_begin_in_the_middle_and_have_holes() {
    let mut talk = Talk::new();
    open(&mut talk);
    for id in 3..600 {
        let data = vec![7; 3_000];
        talk.say(asks(Command::READ, id), |w| read::Request::new(FILE, 0, 3_000).encode(w));
        let header = answers(Command::READ, id, Status::SUCCESS);
        talk.say(header, |w| read::Response::new(&data).encode(w));
    }
    let all = talk.lines().len();
    // The second segment of an answer is missing: it and those after it, until it counts as lost, are too.
    let hole = talk.packets.iter().rposition(|(_, packet)| packet.len() == 1040).unwrap() - 1500;
    talk.packets.remove(hole);
    let lines = talk.lines();
    assert_eq!(lines.iter().filter(|line| line.command == "(lost)").count(), 1);
    assert!(lines.len() > all / 2 && lines.len() <= all, "{} of {all}", lines.len());
    let reads = lines.iter().filter(|line| line.command == "READ" && line.is_of_server);
    assert!(reads.count() > 200);
    talk.packets.drain(..hole + 1);
    assert!(talk.lines().len() > 100);
}

#[test]
fn segments_that_wait_are_bounded() {
    let mut talk = Talk::new();
    open(&mut talk);
    let mut streams = Streams::default();
    let segments: Vec<_> = talk.packets.iter().map(|(_, packet)| packet.clone()).collect();
    for packet in &segments {
        streams.segment(&segment(101, packet, 0).unwrap(), "");
    }
    // Many short segments with gaps, then long ones, which are not let in at their cost.
    let mut template = talk.stream.data(Sender::Client, 1, true);
    let first = u32::from_be_bytes(template[24..28].try_into().unwrap());
    let mut put = |ahead: u32, len: usize| {
        template.truncate(40);
        template[24..28].copy_from_slice(&(first + ahead).to_be_bytes());
        template[2..4].copy_from_slice(&u16::try_from(40 + len).unwrap().to_be_bytes());
        template.resize(40 + len, 7);
        streams.segment(&segment(101, &template, 0).unwrap(), "");
        assert!(streams.waiting_bytes() <= crate::limits::WAITING_BYTES);
    };
    (1..=256).for_each(|at| put(2 * at, 1));
    (1..=256).for_each(|at| put(1_000_000 + 70_000 * at, 60_000));
}

#[test]
fn a_comment_stays_with_the_next_message() {
    let mut talk = Talk::new();
    open(&mut talk);
    let data = vec![7; 3_000];
    let header = answers(Command::READ, 3, Status::SUCCESS);
    talk.say(header, |w| read::Response::new(&data).encode(w));
    let mut decoder = Decoder::new();
    let mut lines = Vec::new();
    let count = talk.packets.len();
    for (at, (time_ns, data)) in talk.packets.iter().enumerate() {
        // The comments on the SYN, and on the first of four segments of the last answer.
        let comment = match at {
            0 => "connection 1",
            at if at == count - 4 => {
                "3 frames were left out before this one: the capture was too slow"
            }
            _ => "",
        };
        let packet = Captured { comment: comment.to_string(), ..captured(*time_ns, data) };
        lines.extend(decoder.packet(&packet));
    }
    assert_eq!(lines[0].notes, ["connection 1"]);
    let last = &lines[lines.len() - 1];
    assert!(last.notes.iter().any(|note| note.contains("3 frames were left out")), "{last:?}");
}

#[test]
fn what_is_remembered_has_a_budget() {
    let mut state = State::default();
    let name = "x".repeat(1_000);
    for id in 0..100_000_u64 {
        state.name_file(7, FileId { persistent: id, volatile: id }, &name);
    }
    let known = (0..100_000_u64)
        .filter(|id| !state.file(7, FileId { persistent: *id, volatile: *id }).is_empty());
    let known = known.count();
    assert!((20_000..40_000).contains(&known), "{known}");
    // A closed file makes room.
    state.close_file(7, FileId { persistent: 0, volatile: 0 });
    state.name_share(7, 1, &name);
    assert_eq!(state.share(7, 1), name);
    // Another server has its own files.
    state.server = Some("10.0.0.9:445".parse().unwrap());
    assert!(state.file(7, FileId { persistent: 5, volatile: 5 }).is_empty());
}

#[test]
fn segments_that_were_cut_keep_their_heads() {
    let mut talk = Talk::new();
    open(&mut talk);
    let data = vec![7; 3_000];
    for id in 3..6 {
        let header = answers(Command::READ, id, Status::SUCCESS);
        talk.say(header, |w| read::Response::new(&data).encode(w));
    }
    let said = |line: Line| match &*line.text {
        "3000 bytes" => String::from("3000 bytes (data cut: 1800 bytes)"),
        text => text.to_string(),
    };
    let expected: Vec<_> = talk.lines().into_iter().map(said).collect();
    talk.packets.iter_mut().for_each(|(_, packet)| packet.truncate(40 + 400));
    let lines: Vec<_> = talk.lines().into_iter().map(|line| line.text).collect();
    assert_eq!(lines, expected);
}

#[test]
fn names_cannot_change_a_terminal() {
    assert_eq!(words::shown("a\u{1b}[2J\u{202e}b\n"), "a\u{FFFD}[2J\u{FFFD}b\u{FFFD}");
    assert_eq!(words::shown(&"x".repeat(5000)).chars().count(), 401);
    assert_eq!("…".to_string().len(), 3);
}

proptest::proptest! {
    #[test]
    fn any_messages_are_taken(
        command in 0u16..24,
        is_response: bool,
        body in proptest::collection::vec(proptest::num::u8::ANY, 0..300),
        flags: u32,
        next: u32,
    ) {
        let mut talk = Talk::new();
        open(&mut talk);
        let mut header = asks(Command(command), 9);
        header.flags = HeaderFlags(flags & !1 | u32::from(is_response));
        header.next_command = next % 400;
        for message_id in [9, 9, u64::MAX] {
            header.message_id = message_id;
            talk.say(header, |w| {
                w.bytes(&body);
            });
        }
        talk.lines();
    }
}

#[test]
fn a_message_that_is_cut_says_so() {
    let mut talk = Talk::new();
    open(&mut talk);
    let data = vec![7; 1 << 20];
    let before = talk.packets.len();
    talk.say(asks(Command::WRITE, 3), |w| write::Request::new(FILE, 0, &data).encode(w));
    talk.say(answers(Command::WRITE, 3, Status::SUCCESS), |w| {
        write::Response { count: 1 << 20 }.encode(w);
    });
    talk.say(asks(Command::READ, 4), |w| read::Request::new(FILE, 0, 1 << 20).encode(w));
    talk.say(answers(Command::READ, 4, Status::SUCCESS), |w| read::Response::new(&data).encode(w));
    let mut decoder = Decoder::new();
    let mut lines = Vec::new();
    for (at, (time_ns, data)) in talk.packets.iter().enumerate() {
        // As tcpdump writes it with -s 300: of each segment the beginning.
        let kept = if at < before { data.len() } else { data.len().min(300) };
        let cut = data.len() - kept;
        let packet = Captured { cut, ..captured(*time_ns, &data[..kept]) };
        lines.extend(decoder.packet(&packet));
    }
    let texts: Vec<_> = lines.iter().rev().take(4).map(|line| line.text.as_str()).collect();
    let cut = lines[lines.len() - 1].cut_bytes;
    assert!(cut > 700_000 && cut < 1 << 20, "{cut}");
    assert_eq!(texts[0], format!("1048576 bytes (data cut: {cut} bytes)"));
    assert!(texts[3].starts_with("1048576 bytes at 0 (data cut: "), "{texts:?}");
    assert_eq!(texts[2], "1048576 bytes");
    assert!(lines.iter().all(|line| !line.command.starts_with('(')), "{lines:?}");
}
