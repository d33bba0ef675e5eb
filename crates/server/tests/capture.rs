//! Captures of messages that an administrator asks for.
#![allow(unreachable_pub, dead_code, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::collections::BTreeSet;
use std::net::IpAddr;

use client::draft::{Draft, Via};
use client::files::{Want, data, lock_draft, read_draft};
use client::logon::Setup;
use client::world::{in_own_world, settings};
use client::{Offer, World};
use frevo_capture::decode::{Decoder, Line};
use frevo_capture::pcapng::read::{Counted, Item, Reader, Step};
use frevo_server::internal::state::Kind;
use frevo_server::settings::Signing;
use frevo_server::{CaptureData, CaptureStream, CaptureTarget, NotCaptured, Settings};
use frevo_wire::Command;
use frevo_wire::command::lock::LockFlags;

/// Bytes of a READ of one credit.
const LONG: u32 = 65_536;

/// A world without other sessions than those of the test.
fn in_world(test: impl AsyncFnOnce(&World)) {
    in_own_world(false, &World::new(settings()), test);
}

fn begin(world: &World, target: CaptureTarget) -> CaptureStream {
    begin_with(world, target, CaptureData::default())
}

fn begin_with(world: &World, target: CaptureTarget, data: CaptureData) -> CaptureStream {
    world.embedded.capture(target, 64 << 20, data, false, "a test").unwrap()
}

fn everything() -> CaptureTarget {
    CaptureTarget::default()
}

/// Ends a capture and returns its file.
fn file_of(mut stream: CaptureStream) -> Vec<u8> {
    stream.end();
    let (mut file, mut blocks) = (Vec::new(), Vec::new());
    while stream.next(&mut blocks) {
        file.append(&mut blocks);
    }
    file
}

/// The messages of a file, and its last block.
fn content(file: &[u8]) -> (Vec<Line>, Counted) {
    let (mut reader, mut decoder, mut at) = (Reader::new(), Decoder::new(), 0);
    let (mut lines, mut last) = (Vec::new(), Counted::default());
    while at < file.len() {
        let Step::Took(taken, item) = reader.step(&file[at..]).unwrap() else { panic!("cut") };
        at += taken;
        match item {
            Item::Packet(packet) => lines.extend(decoder.packet(&packet)),
            Item::Statistics(counted) => last = counted,
            _ => {}
        }
    }
    (lines, last)
}

/// The messages of a capture.
fn lines_of(stream: CaptureStream) -> Vec<Line> {
    content(&file_of(stream)).0
}

fn commands(lines: &[Line]) -> Vec<(&str, bool)> {
    lines.iter().map(|line| (line.command.as_str(), line.is_answer)).collect()
}

#[test]
fn a_capture_has_requests_and_answers_decrypted() {
    in_world(async |world| {
        let stream = begin_with(world, everything(), CaptureData::Whole);
        let data: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
        world.file("big", &data);
        for is_sealed in [false, true] {
            let (mut ann, hers) = world.session("ann", &Offer::default()).await;
            let hers = if is_sealed { hers.sealed() } else { hers };
            let file = ann.open_file(&hers, &Want::existing("big")).await;
            assert_eq!(ann.read(&hers, file, 0, LONG).await, data[..LONG as usize]);
            ann.close(&hers, file).await;
        }
        let file = file_of(stream);
        let (lines, counted) = content(&file);
        let ways = ["SESSION_SETUP", "TREE_CONNECT", "CREATE", "READ", "CLOSE"];
        for (command, times) in ways.into_iter().zip([4, 2, 2, 2, 2]) {
            for is_answer in [false, true] {
                let found = commands(&lines).into_iter().filter(|one| *one == (command, is_answer));
                assert_eq!(found.count(), times, "{command}");
            }
        }
        let reads: Vec<_> = lines.iter().filter(|line| line.command == "READ").collect();
        assert!(reads.iter().all(|line| line.data_bytes == Some(LONG.into())), "{reads:?}");
        assert!(lines.iter().all(|line| !line.is_answer || line.latency_ns.is_some()));
        let (received, dropped) = (counted.received.unwrap(), counted.dropped.unwrap());
        assert_eq!((received, dropped), (lines.len() as u64, 0));
        // The data is there twice, though the second session is sealed.
        let part = &data[40_000..40_200];
        assert_eq!(file.windows(part.len()).filter(|window| *window == part).count(), 2);
        assert_eq!(world.server.ledger.count(Kind::Capture), 0);
    });
}

#[test]
fn a_capture_has_what_it_names() {
    in_world(async |world| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        let (mut bob, his) = world.session("bob", &Offer::default()).await;
        let address: IpAddr = "192.0.2.7".parse().unwrap();
        let mut far = world.connect_from(address).unwrap();
        far.negotiate(&Offer::default()).await;
        let logon = far.log_on("ann").await;
        let theirs = far.mount(&logon, "data").await;
        let session = Some(his.logon.id);
        let user = Some(String::from("ANN"));
        let share = |name: &str| Some(String::from(name));
        let none = everything();
        let sessions = |lines: &[Line]| -> BTreeSet<u64> {
            lines.iter().map(|line| line.session_id).collect()
        };
        let ids = [&hers, &his, &theirs].map(|mount| mount.logon.id);
        for (target, expected) in [
            (everything(), vec![ids[0], ids[1], ids[2]]),
            (CaptureTarget { session, ..none.clone() }, vec![ids[1]]),
            (CaptureTarget { user: user.clone(), ..none.clone() }, vec![ids[0], ids[2]]),
            (CaptureTarget { address: Some(address), ..none.clone() }, vec![ids[2]]),
            (CaptureTarget { user, address: Some(address), ..none.clone() }, vec![ids[2]]),
            (CaptureTarget { share: share("DATA"), ..none.clone() }, vec![ids[0], ids[1], ids[2]]),
            (CaptureTarget { share: share("other"), ..none.clone() }, vec![]),
            (CaptureTarget { session, address: Some(address), ..none }, vec![]),
        ] {
            let shown = target.to_string();
            let stream = begin(world, target);
            for (peer, mount) in [(&mut ann, &hers), (&mut bob, &his), (&mut far, &theirs)] {
                let file = peer.open_file(mount, &Want::file("f")).await;
                peer.close(mount, file).await;
            }
            let lines = lines_of(stream);
            assert_eq!(sessions(&lines), expected.iter().copied().collect(), "{shown}");
            assert_eq!(lines.len(), 4 * expected.len(), "{shown}");
        }
    });
}

#[test]
fn a_capture_of_a_share_begins_with_its_tree_connect() {
    in_world(async |world| {
        let share = Some(String::from("Data"));
        let stream = begin(world, CaptureTarget { share, ..everything() });
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        ann.on(&hers, Draft::empty(Command::TREE_DISCONNECT)).await.ok();
        let lines = lines_of(stream);
        let expected =
            ["TREE_CONNECT", "TREE_DISCONNECT"].map(|name| [(name, false), (name, true)]);
        assert_eq!(commands(&lines), expected.concat());
    });
}

#[test]
fn interim_answers_and_compounds_are_captured() {
    in_world(async |world| {
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        let (mut bob, his) = world.session("bob", &Offer::default()).await;
        let (one, other) = (
            ann.open_file(&hers, &Want::file("f")).await,
            bob.open_file(&his, &Want::file("f")).await,
        );
        ann.on(&hers, lock_draft(one, &[(0, 1, LockFlags::EXCLUSIVE_LOCK)])).await.ok();
        let stream = begin(world, everything());
        let draft = his.put(lock_draft(other, &[(0, 1, LockFlags::EXCLUSIVE_LOCK)]));
        bob.send(vec![draft], his.via()).await;
        bob.interim().await;
        ann.close(&hers, one).await;
        bob.reply().await.ok();
        let lines = lines_of(stream);
        let lock: Vec<_> = lines.iter().filter(|line| line.command == "LOCK").collect();
        let texts: Vec<&str> = lock.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts.len(), 3, "{texts:?}");
        assert_eq!(texts[1], "the server will answer later");
        assert!(lock[1].async_id.is_some() && lock[2].latency_ns.is_some());
    });
}

#[test]
fn a_server_makes_one_capture_at_a_time_and_it_costs_memory() {
    in_world(async |world| {
        let stream = begin(world, everything());
        assert_eq!(world.server.ledger.count(Kind::Capture), 1);
        let again =
            world.embedded.capture(everything(), 1 << 20, CaptureData::Whole, false, "a test");
        assert_eq!(again.err(), Some(NotCaptured::UnderWay));
        drop(stream);
        assert_eq!(world.server.ledger.count(Kind::Capture), 0);
        // The end of an earlier capture does not end a later one.
        assert!(!world.embedded.end_capture());
        let mut first = begin(world, everything());
        assert!(world.embedded.end_capture());
        // Frames that wait are paid for until they are fetched.
        assert_eq!(world.server.ledger.count(Kind::Capture), 1);
        let mut blocks = Vec::new();
        while first.next(&mut blocks) {}
        drop(first);
        let first = begin(world, everything());
        first.end();
        let second = begin(world, everything());
        drop(first);
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        ann.expect_alive_in(&hers).await;
        assert!(lines_of(second).len() > 4);
        world.server.ledger.set_limit(1 << 20);
        let refused =
            world.embedded.capture(everything(), 1 << 20, CaptureData::Whole, false, "a test");
        assert_eq!(refused.err(), Some(NotCaptured::NoMemory));
        world.server.ledger.set_limit(usize::MAX);
        drop(begin(world, everything()));
    });
}

#[test]
fn nobody_waits_for_a_capture_that_is_not_fetched() {
    in_world(async |world| {
        let stream = begin_with(world, everything(), CaptureData::Whole);
        let (mut ann, hers) = world.session("ann", &Offer::default()).await;
        let file = ann.open_file(&hers, &Want::file("f")).await;
        let data = vec![7; 65_536];
        for _ in 0..400 {
            ann.write(&hers, file, 0, &data).await;
        }
        assert_eq!(ann.on(&hers, read_draft(file, 0, 4)).await.ok().status().0, 0);
        let (lines, counted) = content(&file_of(stream));
        let dropped = counted.dropped.unwrap();
        assert!(dropped > 250, "{dropped}");
        assert_eq!(counted.received.unwrap(), lines.len() as u64 + dropped);
    });
}

#[test]
fn the_content_of_files_is_left_out() {
    in_world(async |world| {
        let text: Vec<u8> = (0..20_000_u32).flat_map(u32::to_le_bytes).collect();
        for (data, kept) in [(CaptureData::default(), 256), (CaptureData::First(0), 0)] {
            let stream = begin_with(world, everything(), data);
            let (mut ann, hers) = world.session("ann", &Offer::default()).await;
            let file = ann.open_file(&hers, &Want::file("f")).await;
            ann.write(&hers, file, 0, &text).await;
            assert_eq!(ann.read(&hers, file, 0, LONG).await, text[..LONG as usize]);
            ann.close(&hers, file).await;
            let file = file_of(stream);
            let found = |part: &[u8]| file.windows(part.len()).filter(|one| *one == part).count();
            assert_eq!(found(&text[..256]), if kept == 0 { 0 } else { 2 });
            assert_eq!(found(&text[256..288]), 0);
            let (lines, _) = content(&file);
            let cut: Vec<u64> = lines.iter().map(|one| one.cut_bytes).filter(|n| *n > 0).collect();
            assert_eq!(cut, [80_000 - kept, u64::from(LONG) - kept]);
            let closed = lines.iter().find(|line| line.command == "CLOSE" && line.is_answer);
            assert!(closed.is_some_and(|line| line.name.ends_with('f')));
        }
    });
}

/// The connection takes the beginning of a long READ, then the file changes: data that goes without a copy is
/// read from it only when it is sent.
#[test]
fn data_of_other_sessions_is_not_copied_during_a_capture() {
    const LEN: u32 = 2 << 20;
    let unsigned = Settings { signing: Signing::Offered, ..settings() };
    in_own_world(false, &World::new(unsigned), async |world| {
        let few = CaptureData::default();
        for (user, captured, last) in
            [("ann", CaptureData::Whole, 2), ("bob", CaptureData::Whole, 1), ("bob", few, 2)]
        {
            let target = CaptureTarget { user: Some(String::from("bob")), ..everything() };
            let stream = begin_with(world, target, captured);
            world.file("big", vec![1; LEN as usize]);
            let mut peer = world.connect_from("192.0.2.7".parse().unwrap()).unwrap();
            peer.negotiate(&Offer::default()).await;
            let logon = peer.log_on(user).await;
            let mount = peer.mount(&logon, "data").await;
            let file = peer.open_file(&mount, &Want::existing("big")).await;
            let ids = peer.send(vec![mount.put(read_draft(file, 0, LEN))], Via::Plain).await;
            peer.stream.readable().await.unwrap();
            world.file("big", vec![2; LEN as usize]);
            let replies = peer.collect(&ids).await;
            let found = data(&replies[0]);
            assert_eq!((found.len(), found[0]), (LEN as usize, 1));
            assert_eq!(found[LEN as usize - 1], last, "{user} {captured}");
            let lines = lines_of(stream);
            let answer = lines.iter().find(|line| line.command == "READ" && line.is_answer);
            assert_eq!(answer.is_some(), user == "bob");
            if let Some(answer) = answer {
                assert_eq!(answer.data_bytes, Some(LEN.into()));
                let cut = if captured == few { LEN.into() } else { 0 };
                assert_eq!(answer.cut_bytes, cut, "{captured}");
            }
        }
    });
}

#[test]
fn a_capture_holds_no_answer_of_a_logon() {
    in_world(async |world| {
        for keeps_secrets in [false, true] {
            let stream = world.embedded.capture(
                everything(),
                1 << 20,
                CaptureData::default(),
                keeps_secrets,
                "a test",
            );
            let (_ann, _hers) = world.session("ann", &Offer::default()).await;
            let mut peer = world.connect();
            peer.negotiate(&Offer::default()).await;
            let wrong = Setup { password: String::from("wrong"), ..Setup::of("ann") };
            assert!(peer.try_log_on(wrong).await.is_err());
            let file = file_of(stream.unwrap());
            let pattern = b"NTLMSSP\0\x03\0\0\0";
            let found = file.windows(pattern.len()).enumerate();
            let found: Vec<usize> =
                found.filter(|(_, window)| window == pattern).map(|(at, _)| at).collect();
            assert_eq!(found.len(), 2);
            for at in found {
                let len = usize::from(u16::from_le_bytes([file[at + 20], file[at + 21]]));
                let offset = u32::from_le_bytes(file[at + 24..at + 28].try_into().unwrap());
                let start = at + offset as usize;
                let is_blank = file[start..start + len].iter().all(|byte| *byte == 0);
                assert_eq!(is_blank, !keeps_secrets);
            }
        }
    });
}
