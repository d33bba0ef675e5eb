//! Tests of named streams.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use frevo_wire::dtyp::{FileAttributes, FileTime};

use super::{CREATE, CREATE_DIRECTORY, EITHER, LOOK, READ, Subject, WRITE, content, name};
use crate::vfs::{BasicChange, Fault, FileKey, Kind};

/// Returns the names of a file's streams.
fn names(s: &dyn Subject, text: &str) -> Vec<String> {
    let node = s.open(text, &LOOK).expect(text).node;
    node.streams().expect(text).into_iter().map(|stream| stream.name).collect()
}

/// Tests that a stream has data, sizes and a name of its own, and shares the rest with its file.
pub fn streams_are_data_of_their_own(s: &dyn Subject) {
    assert!(s.vfs().volume().streams);
    s.file("f", "own");
    assert_eq!(s.fault("f:One", &READ), Fault::NotFound);
    let made = s.open("f:One", &CREATE).unwrap();
    assert!(made.created && !made.file_created);
    assert_eq!(made.name, name("f:One"));
    assert_eq!((made.stat.kind, made.stat.end_of_file), (Kind::File, 0));
    assert_eq!(made.stat.key, made.node.key());
    assert_eq!(made.node.key(), FileKey { stream: name("f:ONE").stream_id(), ..s.key("f") });
    made.node.write_at(3, b"stream").unwrap();
    assert_eq!(content(&*made.node), "\0\0\0stream");
    assert_eq!(s.content("F:oNE").unwrap(), "\0\0\0stream");
    assert_eq!(s.content("f").unwrap(), "own");
    assert_eq!(s.stat("f:one").unwrap().end_of_file, 9);
    assert_eq!(s.stat("f").unwrap().end_of_file, 3);
    assert_eq!(s.fault("f:ONE", &CREATE), Fault::Exists);
    let both = s.open("f:ONE", &EITHER).unwrap();
    assert!(!both.created);
    assert_eq!(both.name, name("f:One"), "as stored");
    both.node.set_end_of_file(5).unwrap();
    assert_eq!(content(&*made.node), "\0\0\0st");
    both.node.set_end_of_file(7).unwrap();
    assert_eq!(content(&*both.node), "\0\0\0st\0\0");
    let mut some = [0; 4];
    assert_eq!(both.node.read_at(5, &mut some), Ok(2));
    assert_eq!(both.node.read_at(7, &mut some), Ok(0));
    both.node.set_allocation(2).unwrap();
    assert_eq!(both.node.stat().unwrap().end_of_file, 2);
    let reader = s.open("f:one", &READ).unwrap().node;
    assert_eq!(reader.write_at(0, b"x"), Err(Fault::AccessDenied));
    assert_eq!(reader.set_end_of_file(0), Err(Fault::AccessDenied));
    // The name of a stream may have unusual characters, and a stream may be empty or larger than an
    // extended attribute of the host.
    s.open("f:\u{5}Odd\n *?", &CREATE).unwrap();
    let large = s.open("f:Large", &CREATE).unwrap().node;
    let bytes: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
    large.write_at(0, &bytes[..1_000]).unwrap();
    let other = s.open("f:large", &WRITE).unwrap().node;
    large.write_at(1_000, &bytes[1_000..]).unwrap();
    let mut back = vec![0; 200_001];
    assert_eq!(other.read_at(0, &mut back), Ok(200_000));
    assert_eq!(&back[..200_000], &bytes[..]);
    other.write_at(200_000, b"!").unwrap();
    other.sync().unwrap();
    assert_eq!(large.stat().unwrap().end_of_file, 200_001);
    let found = s.open("f", &LOOK).unwrap().node.streams().unwrap();
    let found: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.size)).collect();
    assert_eq!(found, [("\u{5}Odd\n *?", 0), ("Large", 200_001), ("One", 2)]);
    assert_eq!(s.open("f:one", &LOOK).unwrap().node.streams().unwrap().len(), 3);
    // Times and attributes that are set through a stream's node belong to the file.
    let node = both.node;
    let change = BasicChange {
        created: Some(FileTime(0x01D0_0000_0000_0000)),
        attributes: Some(FileAttributes::HIDDEN),
        ..BasicChange::default()
    };
    node.set_basic(&change).unwrap();
    let (stream, file) = (s.stat("f:One").unwrap(), s.stat("f").unwrap());
    assert_eq!((stream.created, stream.attributes), (file.created, file.attributes));
    assert_eq!(file.attributes, FileAttributes::HIDDEN);
    node.set_ea("k", b"v").unwrap();
    assert_eq!(s.open("f", &LOOK).unwrap().node.eas().unwrap(), [("k".into(), b"v".to_vec())]);
}

/// Tests files that are made for a stream, streams of directories, removal and overwriting.
pub fn streams_go_with_their_file(s: &dyn Subject) {
    assert_eq!(s.fault("n:s", &READ), Fault::NotFound);
    assert_eq!(s.fault("no\\n:s", &CREATE), Fault::PathNotFound);
    assert!(s.stat("n").is_err(), "looking makes nothing");
    let made = s.open("n:s", &EITHER).unwrap();
    assert!(made.created && made.file_created);
    made.node.write_at(0, &[7; 100_000]).unwrap();
    drop(made);
    assert_eq!(s.stat("n").unwrap().end_of_file, 0);
    // A stream of a directory has data, so its kind is that of a file.
    let dir = s.mkdir("d");
    let of_directory = s.open("d:s", &CREATE).unwrap();
    assert_eq!(of_directory.stat.kind, Kind::File);
    assert!(!of_directory.stat.attributes.contains(FileAttributes::DIRECTORY));
    of_directory.node.write_at(0, b"on a directory").unwrap();
    assert_eq!(s.content("d:S").unwrap(), "on a directory");
    assert!(s.list("d").is_empty());
    assert_eq!(s.fault("d:s", &CREATE_DIRECTORY), Fault::NotADirectory);
    // A file keeps its streams when it is renamed or gets another link.
    let key = s.key("n");
    s.rename("n", key, "d\\m", false).unwrap();
    s.vfs().link(&*s.open("d\\m:s", &LOOK).unwrap().node, &name("l"), false).unwrap();
    assert_eq!(s.stat("l:s").unwrap().end_of_file, 100_000);
    // A stream is removed by its own key; the key of its file does not fit.
    let stream = s.key("l:s");
    assert_eq!(s.remove("l:s", key), Err(Fault::Stale));
    let held = s.open("d\\m:s", &READ).unwrap().node;
    s.remove("l:s", stream).unwrap();
    assert_eq!(held.read_at(0, &mut [0; 4]), Err(Fault::Stale));
    assert!(held.stat().is_err());
    assert_eq!(s.remove("l:s", stream), Err(Fault::NotFound));
    assert_eq!(names(s, "l"), [""; 0]);
    assert!(s.stat("l").is_ok());
    // `clear_streams` removes all streams of the file, small and large ones.
    s.open("l:small", &CREATE).unwrap().node.write_at(0, b"x").unwrap();
    s.open("l:large", &CREATE).unwrap().node.write_at(150_000, b"x").unwrap();
    assert_eq!(names(s, "d\\m"), ["large", "small"]);
    s.open("l", &LOOK).unwrap().node.clear_streams().unwrap();
    assert_eq!(names(s, "l"), [""; 0]);
    // The file is removed with its streams, so a new file of the same name must not have them.
    s.open("l:large", &CREATE).unwrap().node.write_at(150_000, b"x").unwrap();
    s.remove("l", key).unwrap();
    s.remove("d\\m", key).unwrap();
    s.file("l", "");
    assert_eq!(names(s, "l"), [""; 0]);
    s.remove("d", dir).unwrap();
    assert_eq!(s.list(""), ["l"]);
}

/// Tests renaming of streams. MS-FSA 2.1.5.15.12.1.
pub fn streams_are_renamed(s: &dyn Subject) {
    s.file("f", "own");
    let one = s.open("f:one", &CREATE).unwrap().node;
    one.write_at(0, b"first").unwrap();
    s.open("f:two", &CREATE).unwrap().node.write_at(0, b"second").unwrap();
    let rename = |from: &str, to: &str, replace: bool| {
        let key = s.key(from);
        s.vfs().rename(&name(from), key, &name(to), replace)
    };
    assert_eq!(rename("f:one", "f:TWO", false), Err(Fault::Exists));
    assert_eq!(rename("f:one", "f:ONE", false), Ok(name("f:ONE")));
    assert_eq!(names(s, "f"), ["ONE", "two"]);
    assert_eq!(rename("f:one", "f:two", true), Ok(name("f:two")));
    assert_eq!(names(s, "f"), ["two"]);
    assert_eq!(content(&*one), "first");
    assert_eq!(one.key(), s.key("f:two"));
    s.file("g", "");
    assert_eq!(rename("f:two", "g:two", true), Err(Fault::NameInvalid));
    let large = s.open("f:large", &CREATE).unwrap().node;
    large.write_at(99_999, b"!").unwrap();
    rename("f:large", "f:longer", false).unwrap();
    large.write_at(0, b"x").unwrap();
    assert_eq!(s.stat("f:longer").unwrap().end_of_file, 100_000);
    // The stream becomes the file's main data, and its old name is gone.
    assert_eq!(rename("f:two", "f", true), Ok(name("f")));
    assert_eq!(s.content("f").unwrap(), "first");
    assert_eq!(names(s, "f"), ["longer"]);
}
