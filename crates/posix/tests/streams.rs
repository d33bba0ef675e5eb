//! Named streams as they are on the medium: Samba's layout, and the side folder.

mod common;

use std::sync::Barrier;

use common::{Share, create, either, how, name, read, share, share_with};
use frevo_posix::limits::XATTR_LIST_FILLED;
use frevo_posix::{PosixOptions, PosixVfs, Streams};
use frevo_store::vfs::{EaChange, OpenHow};
use frevo_store::{Fault, Vfs};
use rustix::fs::XattrFlags;

const ATTRIBUTE: &str = "user.DosStream.Zone.Identifier:$DATA";

fn get(s: &Share, path: &str, attribute: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 65_536];
    let len = rustix::fs::getxattr(s.path(path), attribute, &mut value).ok()?;
    value.truncate(len);
    Some(value)
}

fn set(s: &Share, path: &str, attribute: &str, value: &[u8]) {
    rustix::fs::setxattr(s.path(path), attribute, value, XattrFlags::empty()).unwrap();
}

fn stream(text: &str) -> frevo_store::Name {
    let (path, stream) = text.split_once(':').unwrap();
    name(path).with_stream(Some(stream))
}

fn fill(s: &Share, text: &str, content: &[u8]) {
    s.vfs.open(&stream(text), &either()).unwrap().node.write_at(0, content).unwrap();
}

fn content(s: &Share, text: &str) -> Result<Vec<u8>, Fault> {
    let node = s.vfs.open(&stream(text), &read())?.node;
    let mut buffer = vec![0; 300_000];
    let len = node.read_at(0, &mut buffer)?;
    buffer.truncate(len);
    Ok(buffer)
}

fn listed(s: &Share, path: &str) -> Vec<(String, u64)> {
    let node = s.vfs.open(&name(path), &how()).unwrap().node;
    node.streams().unwrap().into_iter().map(|s| (s.name, s.size)).collect()
}

/// Tests the layout of smbd 4.17 with streams_xattr: the data and a NUL.
#[test]
fn an_attribute_is_the_data_and_a_nul() {
    let s = share();
    s.file("f", "");
    fill(&s, "f:Zone.Identifier", b"[ZoneTransfer]");
    assert_eq!(get(&s, "f", ATTRIBUTE).unwrap(), b"[ZoneTransfer]\0");
    s.vfs.open(&stream("f:empty"), &create()).unwrap();
    assert_eq!(get(&s, "f", "user.DosStream.empty:$DATA").unwrap(), b"\0");
    set(&s, "f", "user.DosStream.Theirs:$DATA", b"of smbd\0");
    assert_eq!(content(&s, "f:theirs").unwrap(), b"of smbd");
    let found = listed(&s, "f");
    assert_eq!(found, [("empty".into(), 0), ("Theirs".into(), 7), ("Zone.Identifier".into(), 14)]);
    // Streams are stored as extended attributes, but must not be shown or set as such.
    let node = s.vfs.open(&name("f"), &how()).unwrap().node;
    assert!(node.eas().unwrap().is_empty());
    assert_eq!(node.set_ea("DosStream.x:$DATA", b"x"), Err(Fault::AccessDenied));
    assert_eq!(node.stat().unwrap().ea_size, 0);
    // Another program removes the stream while a client has it open.
    let held = s.vfs.open(&stream("f:theirs"), &read()).unwrap().node;
    rustix::fs::removexattr(s.path("f"), "user.DosStream.Theirs:$DATA").unwrap();
    assert_eq!(held.read_at(0, &mut [0; 4]), Err(Fault::Stale));
}

#[test]
fn large_streams_are_in_the_side_folder() {
    let s = share();
    s.file("f", "");
    fill(&s, "f:large", &[7; 10]);
    assert!(get(&s, "f", "user.DosStream.large:$DATA").is_some());
    fill(&s, "f:large", &[8; 200_000]);
    assert!(get(&s, "f", "user.DosStream.large:$DATA").is_none());
    let mark = String::from_utf8(get(&s, "f", "user.frevo.streams").unwrap()).unwrap();
    let stored = s.path(&format!(".frevo-streams/{mark}/:large"));
    assert_eq!(std::fs::read(&stored).unwrap(), [8; 200_000]);
    assert_eq!(content(&s, "f:LARGE").unwrap(), [8; 200_000]);
    // Clients can neither list nor open the side folder, whatever the spelling.
    assert_eq!(s.list(""), ["f"]);
    for path in [
        ".frevo-streams",
        ".FREVO-Streams",
        ".frevo-streams\\x",
        "d\\.frevo-streams",
        ".frevo-snapshots",
        ".Frevo-SNAPSHOTS\\x",
        "d\\.frevo-snapshots",
    ] {
        for how in [how(), either(), OpenHow { case_sensitive: true, ..create() }] {
            assert_eq!(s.vfs.open(&name(path), &how).unwrap_err(), Fault::NameInvalid, "{path}");
        }
    }
    // The name is too long for an extended attribute, so the stream is stored in the side folder.
    let long = format!("f:{}", "n".repeat(240));
    fill(&s, &long, b"long");
    assert_eq!(content(&s, &long).unwrap(), b"long");
    let longer = stream(&format!("f:{}", "n".repeat(255)));
    assert_eq!(s.vfs.open(&longer, &create()).unwrap_err(), Fault::NameTooLong);
    // The host copies a file with all attributes. The copy must not share the large streams of the
    // original.
    s.file("copy", "");
    set(&s, "copy", "user.frevo.streams", mark.as_bytes());
    assert_eq!(listed(&s, "copy"), []);
    let other = s.vfs.stat(&name("copy")).unwrap().key;
    s.vfs.remove(&name("copy"), other).unwrap();
    assert!(stored.exists());
    // Another server finds the stream in the side folder. Removing the file must remove its stream.
    let again = PosixVfs::open_root(s.dir.path(), PosixOptions::default()).unwrap();
    let again = Share { dir: tempfile::tempdir().unwrap(), vfs: again };
    assert_eq!(content(&again, "f:large").unwrap().len(), 200_000);
    let key = s.vfs.stat(&name("f")).unwrap().key;
    s.vfs.remove(&name("f"), key).unwrap();
    assert!(!stored.exists() && !stored.parent().unwrap().exists());
}

/// Tests that streams of one file which move to the side folder at once keep their own data, also when
/// two servers move them.
#[test]
fn streams_that_move_at_once_keep_their_data() {
    const ROUNDS: usize = 200;
    let s = share();
    // Both servers know of the side folder.
    s.file("first", "");
    fill(&s, "first:large", &[1; 100_000]);
    let other = PosixVfs::open_root(s.dir.path(), PosixOptions::default()).unwrap();
    for round in 0..ROUNDS {
        let file = format!("f{round}");
        s.file(&file, "");
        let names = ["a", "b"].map(|text| format!("{file}:{text}"));
        names.iter().for_each(|text| fill(&s, text, b"small"));
        let second = if round % 2 == 0 { &s.vfs } else { &other };
        let begin = Barrier::new(2);
        std::thread::scope(|scope| {
            for ((text, vfs), byte) in names.iter().zip([&s.vfs, second]).zip([b'a', b'b']) {
                let node = vfs.open(&stream(text), &either()).unwrap().node;
                let begin = &begin;
                scope.spawn(move || {
                    begin.wait();
                    node.write_at(5, &[byte; 100_000]).unwrap();
                });
            }
        });
        for (text, byte) in names.iter().zip([b'a', b'b']) {
            let expected = [b"small".as_slice(), &[byte; 100_000]].concat();
            assert!(content(&s, text) == Ok(expected), "{text}");
        }
        let entries = std::fs::read_dir(s.path(".frevo-streams")).unwrap();
        assert_eq!(entries.count(), round + 2, "one directory for each file");
    }
}

#[test]
fn a_mark_leads_nowhere_else() {
    let s = share();
    s.file("victim", "secret");
    s.file("f", "");
    fill(&s, "f:large", &[1; 100_000]);
    let inode = rustix::fs::stat(s.path("f")).unwrap().st_ino;
    for mark in [format!("{inode:x}-/../.."), format!("{inode:x}-/../../victim"), "..".into()] {
        set(&s, "f", "user.frevo.streams", mark.as_bytes());
        assert_eq!(listed(&s, "f"), [], "{mark}");
        assert_eq!(content(&s, "f:large"), Err(Fault::NotFound));
    }
    let key = s.vfs.stat(&name("f")).unwrap().key;
    s.vfs.remove(&name("f"), key).unwrap();
    assert_eq!(std::fs::read(s.path("victim")).unwrap(), b"secret");
}

#[test]
fn streams_may_all_be_beside_or_not_at_all() {
    let s = share_with(PosixOptions { streams: Streams::Folder, ..PosixOptions::default() });
    s.file("f", "");
    fill(&s, "f:s", b"beside");
    assert!(get(&s, "f", "user.DosStream.s:$DATA").is_none());
    assert_eq!(content(&s, "f:S").unwrap(), b"beside");
    assert_eq!(listed(&s, "f"), [("s".into(), 6)]);
    let s = share_with(PosixOptions { streams: Streams::Off, ..PosixOptions::default() });
    s.file("f", "");
    set(&s, "f", ATTRIBUTE, b"x\0");
    assert!(!s.vfs.volume().streams);
    assert_eq!(s.vfs.open(&stream("f:s"), &either()).unwrap_err(), Fault::NameInvalid);
    assert_eq!(listed(&s, "f"), []);
    assert_eq!(s.vfs.stat(&name("f")).unwrap().ea_size, 0);
}

/// Tests Stream.AllocationSize (MS-FSA 2.1.5.15.1): a stream in the side folder is a file, in which
/// space can be reserved. For one in an attribute none can, and none is told.
#[test]
fn space_is_reserved_where_a_stream_is_a_file() {
    const RESERVED: u64 = 1 << 20;
    let s = share();
    s.file("f", "");
    let told = |stream: &str| {
        let node = s.vfs.open(&name("f"), &how()).unwrap().node;
        node.streams().unwrap().into_iter().find(|s| s.name == stream).unwrap().allocation
    };
    fill(&s, "f:large", &[b'a'; 100 << 10]);
    let large = s.vfs.open(&stream("f:large"), &either()).unwrap().node;
    assert!(large.stat().unwrap().allocation < RESERVED);
    large.set_allocation(RESERVED).unwrap();
    let stat = large.stat().unwrap();
    assert_eq!(stat.end_of_file, 100 << 10);
    assert!(stat.allocation >= RESERVED, "{}", stat.allocation);
    assert_eq!(told("large"), stat.allocation);
    let opened = s.vfs.open(&stream("f:large"), &read()).unwrap();
    assert_eq!(opened.stat.allocation, stat.allocation);
    assert_eq!(large.set_allocation(1 << 60), Err(Fault::DiskFull));
    assert_eq!(content(&s, "f:large").unwrap(), [b'a'; 100 << 10]);
    large.set_allocation(4096).unwrap();
    assert_eq!(content(&s, "f:large").unwrap(), [b'a'; 4096]);
    fill(&s, "f:small", b"small");
    let small = s.vfs.open(&stream("f:small"), &either()).unwrap().node;
    small.set_allocation(RESERVED).unwrap();
    let stat = small.stat().unwrap();
    assert_eq!((stat.end_of_file, stat.allocation, told("small")), (5, 8, 8));
    assert_eq!(get(&s, "f", "user.DosStream.small:$DATA").unwrap(), b"small\0");
    small.set_allocation(2).unwrap();
    assert_eq!(content(&s, "f:small").unwrap(), b"sm");
    let reader = s.vfs.open(&stream("f:large"), &read()).unwrap().node;
    assert_eq!(reader.set_allocation(RESERVED), Err(Fault::AccessDenied));
}

/// Returns a share in memory, where lists of names may be longer than can be read, as on XFS and Btrfs.
/// None where the kernel keeps no such attributes there.
fn in_memory() -> Option<Share> {
    let dir = tempfile::tempdir_in("/dev/shm").ok()?;
    let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).ok()?;
    let share = Share { dir, vfs };
    share.file("probe", "");
    let probed = rustix::fs::setxattr(share.path("probe"), "user.x", b"x", XattrFlags::empty());
    probed.is_ok().then_some(share)
}

/// Tests that streams for whose names the list has no room are kept beside their file, and that attributes
/// of clients are refused then.
#[test]
fn the_list_of_names_can_always_be_read() {
    let Some(s) = in_memory() else { return };
    let node = s.vfs.open(&name("f"), &create()).unwrap().node;
    for number in 0..2_000 {
        set(&s, "f", &format!("user.DosStream.s{number:05}:$DATA"), b"\0");
    }
    let length = || rustix::fs::listxattr(s.path("f"), &mut [0_u8; 65_536][..]).unwrap();
    let mut made = 2_000;
    while length() + b"user.DosStream.s00000:$DATA\0".len() <= XATTR_LIST_FILLED {
        s.vfs.open(&stream(&format!("f:s{made:05}")), &create()).unwrap();
        made += 1;
    }
    let full = length();
    for number in made..made + 3 {
        s.vfs.open(&stream(&format!("f:s{number:05}")), &create()).unwrap();
    }
    assert!(length() < full + 64, "the mark of the side folder alone has been added");
    assert_eq!(listed(&s, "f").len(), made + 3);
    let long = "n".repeat(200);
    let change = EaChange { name: &long, value: b"1", need: false };
    assert_eq!(node.set_ea(&long, b"1"), Err(Fault::DiskFull));
    assert_eq!(node.set_eas(&[change]), Err(Fault::DiskFull));
    assert_eq!(node.eas(), Ok(Vec::new()));
    // Streams that go leave room for names.
    let first = s.vfs.open(&stream("f:s00000"), &read()).unwrap().stat.key;
    for number in 1..10 {
        let key = s.vfs.open(&stream(&format!("f:s{number:05}")), &read()).unwrap().stat.key;
        s.vfs.remove(&stream(&format!("f:s{number:05}")), key).unwrap();
    }
    s.vfs.remove(&stream("f:s00000"), first).unwrap();
    node.set_eas(&[change]).unwrap();
    node.set_ea(&long, b"2").unwrap();
    assert_eq!(node.eas(), Ok(vec![(long.clone(), b"2".to_vec())]));
}

/// Adds attributes to a file until its list of names has room for `room` more bytes.
fn fill_list(s: &Share, path: &str, room: usize) {
    let left = || {
        let listed = rustix::fs::listxattr(s.path(path), &mut [0_u8; 65_536][..]).unwrap();
        XATTR_LIST_FILLED - listed - room
    };
    for number in 0_u32.. {
        let longest = "user.".len() + 200;
        let bytes = match left() {
            0 => return,
            left if left > 2 * longest => longest,
            left if left > longest => left / 2,
            left => left,
        };
        let number = format!("{number:06}");
        let padding = "p".repeat(bytes - "user.".len() - number.len() - 1);
        set(s, path, &format!("user.{number}{padding}"), b"1");
    }
}

/// Tests that a stream is renamed, also over another one, where the list has no room for both its names.
#[test]
fn a_stream_is_renamed_while_the_list_is_full() {
    let Some(s) = in_memory() else { return };
    for (number, over) in [None, Some("new"), Some("NEW")].into_iter().enumerate() {
        let file = format!("f{number}");
        let of = |text: &str| format!("{file}:{text}");
        fill(&s, &of("old"), b"of the old");
        let target = over.map(|over| {
            fill(&s, &of(over), b"of the other");
            s.vfs.open(&stream(&of(over)), &read()).unwrap().node
        });
        fill_list(&s, &file, 4);
        let key = s.vfs.open(&stream(&of("old")), &read()).unwrap().stat.key;
        if over.is_some() {
            let kept = s.vfs.rename(&stream(&of("old")), key, &stream(&of("new")), false);
            assert_eq!(kept, Err(Fault::Exists));
            assert_eq!(content(&s, &of("new")).unwrap(), b"of the other");
        }
        s.vfs.rename(&stream(&of("old")), key, &stream(&of("new")), true).unwrap();
        assert_eq!(content(&s, &of("new")).unwrap(), b"of the old");
        assert_eq!(listed(&s, &file), [("new".to_owned(), 10)], "{over:?}");
        assert!(target.is_none_or(|target| target.stat() == Err(Fault::Stale)));
    }
}

/// Tests that an attribute whose mark has no room is not set, and that what failed leaves room for others.
#[test]
fn an_attribute_without_room_for_its_mark_is_not_set() {
    let Some(s) = in_memory() else { return };
    let node = s.vfs.open(&name("f"), &create()).unwrap().node;
    fill_list(&s, "f", 30);
    let before = node.eas().unwrap().len();
    let marked = EaChange { name: "n", value: b"1", need: true };
    assert_eq!(node.set_eas(&[marked]), Err(Fault::DiskFull));
    assert_eq!(node.eas().unwrap().len(), before, "no part of the change is left");
    let plain = EaChange { name: "m", value: b"1", need: false };
    assert_eq!(node.set_eas(&[marked, plain]), Err(Fault::DiskFull));
    let names: Vec<_> = node.eas().unwrap().into_iter().map(|(name, _)| name).collect();
    assert!(names.contains(&"m".to_owned()) && !names.contains(&"n".to_owned()));
    assert_eq!(node.needed_eas(), Ok(Vec::new()));
}
