//! What every implementor of [`Vfs`] does alike, as checks that panic.
//!
//! [`conformance_tests!`](crate::conformance_tests) makes a test of each. They
//! ask for nothing that depends on a host: no owners, no masks, no mapping of
//! names.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    reason = "tests"
)]

use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::any::Any;

use frevo_wire::dtyp::{FileAttributes, FileTime};

use crate::name::{Name, Rules};
use crate::vfs::{
    BasicChange, Directory, Existence, Fault, FileKey, HostAccess, Kind, KindWanted, Node, OpenHow,
    Opened, Parent, Stat, Vfs, VfsResult,
};

mod extents;
mod reparse;

pub use extents::{
    extents_are_shared_or_not_at_all, extents_need_rights_and_sense,
    zeros_are_read_and_holes_are_seen,
};
pub use reparse::{files_become_links_and_back, object_ids_are_kept, reparse_buffers_are_kept};

/// An empty, writable file system, and what only its host can do to it.
pub trait Subject {
    /// The file system.
    fn vfs(&self) -> &dyn Vfs;

    /// Makes a symbolic link at `name` (with backslashes, as clients spell it).
    fn symlink(&self, name: &str, target: &str);
}

/// Makes a `#[test]` of every check, each on a new subject that `$make` gives.
#[macro_export]
macro_rules! conformance_tests {
    ($make:expr) => {
        $crate::conformance_tests! { @ $make;
            content_is_read_as_written
            allocation_reserves_and_cuts
            rights_of_a_node_are_what_it_was_opened_for
            missing_names_say_which_part_is_missing
            parents_are_worked_in
            existence_and_kind_are_checked
            case_is_ignored_and_kept
            exact_names_can_be_asked_for
            names_of_posix_clients_are_exact
            names_that_cannot_be_stored
            directories_are_listed
            a_listing_survives_changes
            removal_looks_at_the_key
            removed_files_live_while_open
            renaming_moves_and_replaces
            renaming_keeps_open_files
            links_are_other_names
            renaming_one_link_onto_another
            links_lead_nowhere
            times_are_set
            attributes_are_kept
            extended_attributes_are_kept
            needed_attributes_are_known
            streams_are_data_of_their_own
            streams_go_with_their_file
            streams_are_renamed
            the_root_stays
            space_and_volume
            foreign_nodes_are_refused
            extents_are_shared_or_not_at_all
            extents_need_rights_and_sense
            zeros_are_read_and_holes_are_seen
            files_become_links_and_back
            reparse_buffers_are_kept
            object_ids_are_kept
        }
    };
    (@ $make:expr; $($check:ident)*) => {
        $(#[test]
        fn $check() {
            let subject = $make;
            $crate::conformance::$check(&subject);
        })*
    };
}

/// A path, perhaps with a stream after a colon.
fn name(text: &str) -> Name {
    let (path, stream) = text.split_once(':').map_or((text, None), |(p, s)| (p, Some(s)));
    Name::from_stored(path.into()).with_stream(stream)
}

const LOOK: OpenHow = OpenHow {
    existence: Existence::MustExist,
    kind: KindWanted::Any,
    read: false,
    write: false,
    open_link: false,
    attributes: FileAttributes::EMPTY,
    mode: None,
    case_sensitive: false,
};
const READ: OpenHow = OpenHow { read: true, ..LOOK };
const WRITE: OpenHow = OpenHow { write: true, ..READ };
const CREATE: OpenHow = OpenHow { existence: Existence::MustNotExist, ..WRITE };
const EITHER: OpenHow = OpenHow { existence: Existence::Either, ..WRITE };
const CREATE_DIRECTORY: OpenHow =
    OpenHow { existence: Existence::MustNotExist, kind: KindWanted::Directory, ..LOOK };

/// Short ways to use a file system.
impl dyn Subject + '_ {
    fn open(&self, text: &str, how: &OpenHow) -> VfsResult<Opened> {
        self.vfs().open(&name(text), how)
    }

    fn fault(&self, text: &str, how: &OpenHow) -> Fault {
        self.open(text, how).map(|opened| opened.name).expect_err(text)
    }

    fn file(&self, text: &str, content: &str) -> FileKey {
        let made = self.open(text, &CREATE).expect(text);
        made.node.write_at(0, content.as_bytes()).expect(text);
        made.node.key()
    }

    fn mkdir(&self, text: &str) -> FileKey {
        self.open(text, &CREATE_DIRECTORY).expect(text).node.key()
    }

    fn stat(&self, text: &str) -> VfsResult<Stat> {
        self.vfs().stat(&name(text))
    }

    fn key(&self, text: &str) -> FileKey {
        self.stat(text).expect(text).key
    }

    fn remove(&self, text: &str, key: FileKey) -> VfsResult<()> {
        self.vfs().remove(&name(text), key)
    }

    fn rename(&self, from: &str, key: FileKey, to: &str, replace: bool) -> VfsResult<String> {
        let renamed = self.vfs().rename(&name(from), key, &name(to), replace);
        renamed.map(|name| name.path().into())
    }

    fn content(&self, text: &str) -> VfsResult<String> {
        self.open(text, &READ).map(|opened| content(&*opened.node))
    }

    /// The names in a directory, sorted.
    fn list(&self, text: &str) -> Vec<String> {
        let mut listing = self.open(text, &READ).expect(text).node.directory().expect(text);
        let mut names = rest(&mut *listing);
        names.sort();
        names
    }
}

mod streams;
pub use streams::{streams_are_data_of_their_own, streams_are_renamed, streams_go_with_their_file};

fn content(node: &dyn Node) -> String {
    let mut buffer = vec![0; 4_096];
    let len = node.read_at(0, &mut buffer).expect("readable");
    buffer.truncate(len);
    String::from_utf8(buffer).expect("text")
}

fn rest(listing: &mut dyn Directory) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(name) = listing.next_name().expect("a name") {
        names.push(name.to_string());
    }
    names
}

/// Writes, holes, ends of file.
pub fn content_is_read_as_written(s: &dyn Subject) {
    let made = s.open("new.txt", &CREATE).unwrap();
    assert!(made.created);
    assert_eq!(made.name, name("new.txt"));
    assert_eq!((made.stat.kind, made.stat.end_of_file, made.stat.links), (Kind::File, 0, 1));
    let node = made.node;
    assert_eq!(made.stat.key, node.key());
    node.write_at(0, b"hello").unwrap();
    node.write_at(8, b"!").unwrap();
    assert_eq!(content(&*node), "hello\0\0\0!");
    let mut some = [0; 4];
    assert_eq!(node.read_at(6, &mut some), Ok(3));
    assert_eq!(node.read_at(9, &mut some), Ok(0));
    assert_eq!(node.read_at(1 << 40, &mut some), Ok(0));
    node.set_end_of_file(4).unwrap();
    node.set_end_of_file(6).unwrap();
    assert_eq!(content(&*node), "hell\0\0");
    node.write_at(10, b"").unwrap();
    assert_eq!(node.stat().unwrap().end_of_file, 6, "writing nothing changes nothing");
    assert_eq!(node.set_end_of_file(1 << 63), Err(Fault::Invalid));
    // Over several pages, and far away.
    let long: Vec<u8> = (0..20_000u32).map(|n| (n % 251) as u8).collect();
    node.write_at(4_090, &long).unwrap();
    let mut back = vec![0; 30_000];
    assert_eq!(node.read_at(4_000, &mut back), Ok(20_090));
    assert_eq!((&back[..90], &back[90..20_090]), (&[0; 90][..], &long[..]));
    node.write_at(1 << 40, b"far").unwrap();
    assert_eq!(node.stat().unwrap().end_of_file, (1 << 40) + 3);
    node.sync().unwrap();
    let again = s.open("new.txt", &EITHER).unwrap();
    assert!(!again.created);
    assert_eq!(again.node.key(), node.key());
    assert_eq!(again.stat.end_of_file, (1 << 40) + 3);
}

/// MS-FSA 2.1.5.15.1.
pub fn allocation_reserves_and_cuts(s: &dyn Subject) {
    let node = s.open("a", &CREATE).unwrap().node;
    node.set_allocation(1 << 20).unwrap();
    let stat = node.stat().unwrap();
    assert_eq!(stat.end_of_file, 0);
    assert!(stat.allocation >= 1 << 20, "{}", stat.allocation);
    node.write_at(0, b"0123456789").unwrap();
    node.set_allocation(10).unwrap();
    assert_eq!(content(&*node), "0123456789");
    node.set_allocation(4).unwrap();
    assert_eq!(content(&*node), "0123");
}

/// Reading and writing need what was asked for.
pub fn rights_of_a_node_are_what_it_was_opened_for(s: &dyn Subject) {
    s.file("a", "a");
    s.mkdir("d");
    let reader = s.open("a", &READ).unwrap().node;
    assert_eq!(reader.set_end_of_file(0), Err(Fault::AccessDenied));
    assert_eq!(reader.set_allocation(1 << 20), Err(Fault::AccessDenied));
    assert_eq!(reader.write_at(0, b"x"), Err(Fault::AccessDenied));
    let writer = s.open("a", &OpenHow { write: true, ..LOOK }).unwrap().node;
    assert_eq!(writer.read_at(0, &mut [0; 4]), Err(Fault::AccessDenied));
    writer.write_at(0, b"b").unwrap();
    let looker = s.open("a", &LOOK).unwrap().node;
    assert_eq!(looker.read_at(0, &mut [0; 4]), Err(Fault::AccessDenied));
    assert!(looker.descriptor().is_none());
    looker.sync().unwrap();
    assert_eq!(looker.directory().map(|_| ()), Err(Fault::NotADirectory));
    assert_eq!(looker.link_target(), Err(Fault::Invalid));
    let dir = s.open("d", &WRITE).unwrap().node;
    assert_eq!(dir.read_at(0, &mut [0; 4]), Err(Fault::IsADirectory));
    assert_eq!(dir.write_at(0, b"x"), Err(Fault::IsADirectory));
    assert_eq!(dir.set_end_of_file(0), Err(Fault::IsADirectory));
    dir.sync().unwrap();
    assert_eq!(content(&*reader), "b");
    let access = reader.host_access();
    assert_eq!(access, HostAccess { read: true, write: true, execute: false, owner: true });
}

/// NotFound, PathNotFound, PathNotDirectory.
pub fn missing_names_say_which_part_is_missing(s: &dyn Subject) {
    s.mkdir("dir");
    s.file("dir\\file", "x");
    for (text, fault) in [
        ("nothing", Fault::NotFound),
        ("dir\\nothing", Fault::NotFound),
        ("nothing\\file", Fault::PathNotFound),
        ("dir\\nothing\\file", Fault::PathNotFound),
        ("dir\\file\\below", Fault::PathNotDirectory),
        ("DIR\\FILE\\below", Fault::PathNotDirectory),
    ] {
        assert_eq!(s.fault(text, &LOOK), fault, "{text}");
        assert_eq!(s.fault(text, &READ), fault, "{text} for data");
        assert_eq!(s.stat(text).unwrap_err(), fault, "{text}");
        assert_eq!(s.remove(text, s.key("dir")), Err(fault), "{text}");
    }
    assert_eq!(s.fault("no\\new", &CREATE), Fault::PathNotFound);
    assert_eq!(s.fault("dir\\file\\new", &CREATE), Fault::PathNotDirectory);
    assert_eq!(s.fault("no\\new", &CREATE_DIRECTORY), Fault::PathNotFound);
}

/// [`Existence`] and [`KindWanted`].
pub fn existence_and_kind_are_checked(s: &dyn Subject) {
    s.mkdir("dir");
    s.file("file", "x");
    let wants = |kind| OpenHow { kind, ..LOOK };
    assert_eq!(s.fault("dir", &wants(KindWanted::NotDirectory)), Fault::IsADirectory);
    assert_eq!(s.fault("file", &wants(KindWanted::Directory)), Fault::NotADirectory);
    s.open("dir", &wants(KindWanted::Directory)).unwrap();
    s.open("file", &wants(KindWanted::NotDirectory)).unwrap();
    for text in ["file", "FILE", "dir", "Dir"] {
        assert_eq!(s.fault(text, &CREATE), Fault::Exists, "{text}");
        assert_eq!(s.fault(text, &CREATE_DIRECTORY), Fault::Exists, "{text}");
    }
    let either_directory = OpenHow { existence: Existence::Either, ..CREATE_DIRECTORY };
    assert_eq!(s.fault("file", &either_directory), Fault::NotADirectory);
    assert!(!s.open("DIR", &either_directory).unwrap().created);
    let made = s.open("dir\\new", &either_directory).unwrap();
    assert!(made.created);
    assert_eq!(made.stat.kind, Kind::Directory);
    assert!(s.open("dir\\NEW\\x", &EITHER).unwrap().created);
    assert_eq!(s.list("dir\\new"), ["x"]);
}

/// Looking up ignores case; the medium keeps it.
pub fn case_is_ignored_and_kept(s: &dyn Subject) {
    s.mkdir("Sub");
    s.mkdir("sub\\Größe");
    s.file("SUB\\größe\\Datei.TXT", "1");
    let opened = s.open("sub\\GRÖßE\\datei.txt", &READ).unwrap();
    assert_eq!(opened.name, name("Sub\\Größe\\Datei.TXT"));
    assert_eq!(content(&*opened.node), "1");
    let either = s.open("SUB\\GRÖßE\\DATEI.txt", &EITHER).unwrap();
    assert_eq!((either.created, either.name), (false, name("Sub\\Größe\\Datei.TXT")));
    // No folding that changes the length or leads into ASCII.
    for other in ["Sub\\GRÖSSE", "Sub\\GRO\u{308}ßE"] {
        assert_eq!(s.fault(other, &LOOK), Fault::NotFound, "{other}");
    }
    s.file("k", "latin");
    assert_eq!(s.fault("\u{212A}", &LOOK), Fault::NotFound, "the Kelvin sign");
}

/// POSIX clients compare exactly, and so can make names that fold alike.
pub fn exact_names_can_be_asked_for(s: &dyn Subject) {
    let exact = |how| OpenHow { case_sensitive: true, ..how };
    s.mkdir("Sub");
    s.file("Sub\\twin", "lower");
    assert_eq!(s.fault("Sub\\TWIN", &exact(READ)), Fault::NotFound);
    assert_eq!(s.fault("sub\\twin", &exact(READ)), Fault::PathNotFound);
    let upper = s.open("Sub\\TWIN", &exact(CREATE)).unwrap();
    upper.node.write_at(0, b"upper").unwrap();
    // An exact match wins; otherwise the first in byte order.
    assert_eq!(s.content("Sub\\twin").unwrap(), "lower");
    assert_eq!(s.content("Sub\\TWIN").unwrap(), "upper");
    assert_eq!(s.content("sub\\Twin").unwrap(), "upper");
    assert_eq!(s.list("Sub"), ["TWIN", "twin"]);
    s.remove("sub\\Twin", upper.node.key()).unwrap();
    assert_eq!(s.content("sub\\TWIN").unwrap(), "lower");
}

/// A name can say itself that case counts, for what has no other way to say so;
/// and a directory then replaces an empty one, as rename(2) does.
pub fn names_of_posix_clients_are_exact(s: &dyn Subject) {
    let posix = |text: &str| Name::parse(text, Rules::Posix).unwrap();
    let vfs = s.vfs();
    s.mkdir("Sub");
    s.file("Sub\\twin", "lower");
    s.file("other", "upper");
    let key = |name: &str| vfs.stat(&posix(name)).unwrap().key;
    assert_eq!(vfs.stat(&posix("sub/twin")).unwrap_err(), Fault::PathNotFound);
    assert_eq!(vfs.stat(&posix("Sub/TWIN")).unwrap_err(), Fault::NotFound);
    let stored = vfs.rename(&posix("other"), key("other"), &posix("Sub/TWIN"), false).unwrap();
    assert!(!stored.is_exact());
    assert_eq!(s.list("Sub"), ["TWIN", "twin"]);
    assert_eq!(vfs.remove(&posix("Sub/Twin"), key("Sub/twin")), Err(Fault::NotFound));

    vfs.rename(&posix("Sub/TWIN"), key("Sub/TWIN"), &posix("a:b?."), false).unwrap();
    assert_eq!(s.content("a\u{F022}b\u{F025}\u{F029}").unwrap(), "upper");
    vfs.open(&posix("a:b?."), &READ).unwrap();

    s.mkdir("empty");
    let sub = key("Sub");
    vfs.rename(&posix("Sub"), sub, &posix("empty"), true).unwrap();
    assert_eq!(s.content("empty\\twin").unwrap(), "lower");
    s.mkdir("more");
    let full = vfs.rename(&posix("more"), key("more"), &posix("empty"), true);
    assert_eq!(full.unwrap_err(), Fault::NotEmpty);
}

/// Names that are too long, or that Windows would read as others.
pub fn names_that_cannot_be_stored(s: &dyn Subject) {
    let long = "x".repeat(255);
    s.file(&long, "");
    assert_eq!(s.open(&"X".repeat(255), &LOOK).unwrap().name, name(&long));
    for text in ["x".repeat(256), "é".repeat(128)] {
        assert_eq!(s.fault(&text, &CREATE), Fault::NameTooLong);
        assert_eq!(s.fault(&text, &LOOK), Fault::NameTooLong);
    }
    for text in ["end.", "end ", "a\0", "a\\end.", "end \\a", "..", "a\\..", "."] {
        assert_eq!(s.fault(text, &LOOK), Fault::NameInvalid, "{text:?}");
        assert_eq!(s.fault(text, &CREATE), Fault::NameInvalid, "{text:?}");
    }
    let mut path = String::from("d");
    for _ in 0..20 {
        s.mkdir(&path);
        path = path + "\\" + &"d".repeat(255);
    }
    s.file(&path, "deep");
    assert_eq!(s.content(&path.to_uppercase()).unwrap(), "deep");
}

/// Listings give every entry once, with its state.
pub fn directories_are_listed(s: &dyn Subject) {
    let made = s.open("d", &CREATE_DIRECTORY).unwrap();
    assert_eq!(made.stat.attributes, FileAttributes::DIRECTORY);
    assert_eq!((made.stat.end_of_file, made.stat.allocation), (0, 0));
    let mut expected = Vec::new();
    for n in 0..300 {
        let entry = alloc::format!("entry {n:03}");
        s.file(&alloc::format!("d\\{entry}"), "1234567890");
        expected.push(entry);
    }
    assert_eq!(s.list("d"), expected);
    assert_eq!(s.list(""), ["d"]);
    s.mkdir("d\\sub");
    let mut listing = made.node.directory().unwrap();
    assert_eq!(listing.entry_stat(), Ok(None), "before the first");
    let mut seen = 0;
    while let Some(entry) = listing.next_name().unwrap().map(String::from) {
        let stat = listing.entry_stat().unwrap().expect(&entry);
        assert_eq!(stat, s.stat(&alloc::format!("d\\{entry}")).unwrap());
        seen += 1;
    }
    assert_eq!(seen, 301);
    assert_eq!(listing.entry_stat(), Ok(None), "after the last");
    assert_eq!(listing.next_name(), Ok(None));
    listing.rewind().unwrap();
    assert_eq!(rest(&mut *listing).len(), 301);
}

/// What happens under a listing.
pub fn a_listing_survives_changes(s: &dyn Subject) {
    let dir = s.open("d", &CREATE_DIRECTORY).unwrap().node;
    s.file("d\\one", "");
    s.file("d\\two", "");
    let mut listing = dir.directory().unwrap();
    let first = alloc::format!("d\\{}", listing.next_name().unwrap().unwrap());
    s.remove(&first, s.key(&first)).unwrap();
    assert_eq!(listing.entry_stat(), Ok(None), "it has gone since");
    s.file("d\\three", "");
    listing.rewind().unwrap();
    let seen = rest(&mut *listing);
    assert_eq!(seen.len(), 2);
    assert!(seen.contains(&"three".to_string()));
    assert_eq!(s.remove("d", dir.key()), Err(Fault::NotEmpty));
    for entry in seen {
        let entry = alloc::format!("d\\{entry}");
        s.remove(&entry, s.key(&entry)).unwrap();
    }
    s.remove("d", dir.key()).unwrap();
    listing.rewind().unwrap();
    assert_eq!(listing.next_name(), Ok(None));
    assert_eq!(dir.stat().unwrap().links, 0);
}

/// A name that leads elsewhere by now is left alone.
pub fn removal_looks_at_the_key(s: &dyn Subject) {
    let a = s.file("a", "");
    s.file("b", "");
    assert_eq!(s.remove("b", a), Err(Fault::Stale));
    assert_eq!(s.remove("c", a), Err(Fault::NotFound));
    s.remove("A", a).unwrap();
    assert_eq!(s.remove("a", a), Err(Fault::NotFound));
    assert_eq!(s.list(""), ["b"]);
}

/// What is open is there, whatever became of its name.
pub fn removed_files_live_while_open(s: &dyn Subject) {
    let node = s.open("a", &CREATE).unwrap().node;
    node.write_at(0, b"first").unwrap();
    s.remove("a", node.key()).unwrap();
    assert_eq!(s.fault("a", &LOOK), Fault::NotFound);
    let second = s.file("a", "second");
    assert_ne!(second, node.key(), "a key is not used again while somebody has it");
    node.write_at(5, b" and last").unwrap();
    node.sync().unwrap();
    assert_eq!(content(&*node), "first and last");
    assert_eq!(node.stat().unwrap().links, 0);
    assert_eq!(s.remove("a", node.key()), Err(Fault::Stale));
    assert_eq!(s.vfs().link(&*node, &name("b"), false), Err(Fault::NotFound));
    drop(node);
    assert_eq!(s.content("a").unwrap(), "second");
    assert_eq!(s.list(""), ["a"]);
}

/// MS-FSA 2.1.5.15.12.
pub fn renaming_moves_and_replaces(s: &dyn Subject) {
    let dir = s.mkdir("d");
    let a = s.file("a", "a");
    let b = s.file("b", "b");
    assert_eq!(s.rename("a", b, "c", false), Err(Fault::Stale));
    assert_eq!(s.rename("x", a, "c", false), Err(Fault::NotFound));
    assert_eq!(s.rename("a", a, "B", false), Err(Fault::Exists));
    assert_eq!(s.rename("a", a, "no\\b", false), Err(Fault::PathNotFound));
    assert_eq!(s.rename("a", a, "b\\c", false), Err(Fault::PathNotDirectory));
    // Only the case.
    assert_eq!(s.rename("a", a, "A", false).as_deref(), Ok("A"));
    assert_eq!(s.list(""), ["A", "b", "d"]);
    assert_eq!(s.rename("a", a, "A", false).as_deref(), Ok("A"));
    assert_eq!(s.rename("D", dir, "D", false).as_deref(), Ok("D"));
    // Into another directory, spelled in another case.
    assert_eq!(s.rename("A", a, "d\\x", false).as_deref(), Ok("D\\x"));
    assert_eq!(s.content("d\\x").unwrap(), "a");
    // A replaced file leaves its place but not its spelling.
    assert_eq!(s.rename("d\\X", a, "B", true).as_deref(), Ok("B"));
    assert_eq!(s.list(""), ["B", "D"]);
    assert_eq!(s.content("b").unwrap(), "a");
    // A directory is never replaced; it may replace a file.
    assert_eq!(s.rename("B", a, "d", true), Err(Fault::AccessDenied));
    assert_eq!(s.rename("d", dir, "b", false), Err(Fault::Exists));
    assert_eq!(s.rename("d", dir, "b", true).as_deref(), Ok("b"));
    assert_eq!(s.list(""), ["b"]);
    // Never into itself, and nothing is lost in the attempt.
    s.mkdir("b\\c");
    s.file("b\\f", "f");
    assert_eq!(s.rename("b", dir, "b\\c\\b", false), Err(Fault::Invalid));
    assert_eq!(s.rename("b", dir, "b\\x", false), Err(Fault::Invalid));
    assert_eq!(s.rename("b", dir, "B\\F", true), Err(Fault::Invalid));
    assert_eq!(s.rename("b\\c", s.key("b\\c"), "b", true), Err(Fault::AccessDenied));
    assert_eq!(s.content("b\\f").unwrap(), "f");
    assert_eq!(s.list("b"), ["c", "f"]);
}

/// Nodes go by file, not by name.
pub fn renaming_keeps_open_files(s: &dyn Subject) {
    s.mkdir("d");
    let a = s.open("d\\a", &CREATE).unwrap().node;
    let b = s.open("b", &CREATE).unwrap().node;
    a.write_at(0, b"a").unwrap();
    b.write_at(0, b"b").unwrap();
    s.rename("d", s.key("d"), "e", false).unwrap();
    s.rename("e\\a", a.key(), "b", true).unwrap();
    a.write_at(1, b"A").unwrap();
    b.write_at(1, b"B").unwrap();
    assert_eq!((content(&*a), content(&*b)), ("aA".into(), "bB".into()));
    assert_eq!((a.stat().unwrap().links, b.stat().unwrap().links), (1, 0));
    assert_eq!(s.content("b").unwrap(), "aA");
    assert_eq!(s.list("e"), [""; 0]);
}

/// Hard links.
pub fn links_are_other_names(s: &dyn Subject) {
    s.file("a", "a");
    let c = s.open("c", &CREATE).unwrap().node;
    s.mkdir("d");
    let a = s.open("a", &LOOK).unwrap().node;
    let link = |to: &str, replace| s.vfs().link(&*a, &name(to), replace);
    link("b", false).unwrap();
    link("D\\b", false).unwrap();
    assert_eq!(a.stat().unwrap().links, 3);
    assert_eq!(s.key("d\\B"), a.key());
    assert_eq!(link("C", false), Err(Fault::Exists));
    link("C", true).unwrap();
    assert_eq!(c.stat().unwrap().links, 0);
    assert_eq!(s.content("c").unwrap(), "a");
    assert_eq!(link("c", true), Ok(()), "its own name");
    assert_eq!(s.list(""), ["a", "b", "c", "d"]);
    assert_eq!(link("d", true), Err(Fault::AccessDenied));
    assert_eq!(link("no\\x", true), Err(Fault::PathNotFound));
    assert_eq!(a.stat().unwrap().links, 4);
    s.remove("a", a.key()).unwrap();
    s.remove("b", a.key()).unwrap();
    assert_eq!(a.stat().unwrap().links, 2);
    assert_eq!(s.content("d\\b").unwrap(), "a");
    let root = s.open("", &LOOK).unwrap().node;
    assert_eq!(s.vfs().link(&*root, &name("x"), false), Err(Fault::IsADirectory));
}

/// It leaves one, and MS-FSA wants no leave to replace.
pub fn renaming_one_link_onto_another(s: &dyn Subject) {
    let key = s.file("a", "a");
    s.mkdir("d");
    let a = s.open("a", &LOOK).unwrap().node;
    s.vfs().link(&*a, &name("b"), false).unwrap();
    s.vfs().link(&*a, &name("d\\a"), false).unwrap();
    assert_eq!(s.rename("b", key, "A", false).as_deref(), Ok("A"));
    assert_eq!(s.list(""), ["A", "d"]);
    assert_eq!(s.rename("d\\a", key, "a", false).as_deref(), Ok("a"));
    assert_eq!(s.list(""), ["a", "d"]);
    assert_eq!(s.list("d"), [""; 0]);
    assert_eq!(a.stat().unwrap().links, 1);
    assert_eq!(s.content("a").unwrap(), "a");
}

/// Symbolic links are objects.
pub fn links_lead_nowhere(s: &dyn Subject) {
    s.mkdir("d");
    s.file("d\\f", "inside");
    s.symlink("in", "d");
    s.symlink("d\\out", "/no/such/thing");
    for text in ["in", "IN", "d\\out", "in\\f", "in\\none", "d\\OUT\\x"] {
        for how in [LOOK, READ, WRITE, EITHER] {
            assert_eq!(s.fault(text, &how), Fault::Symlink, "{text}");
        }
    }
    assert_eq!(s.fault("in", &CREATE), Fault::Exists);
    let open_link = OpenHow { open_link: true, ..LOOK };
    assert_eq!(s.fault("in\\f", &open_link), Fault::Symlink);
    let directory = OpenHow { kind: KindWanted::Directory, ..open_link };
    assert_eq!(s.fault("in", &directory), Fault::NotADirectory);
    let link = s.open("IN", &open_link).unwrap();
    assert_eq!((link.stat.kind, link.stat.reparse_tag), (Kind::Symlink, 0xA000_000C));
    assert_eq!(link.stat.attributes, FileAttributes::REPARSE_POINT);
    assert_eq!((link.stat.end_of_file, link.stat.allocation), (0, 0));
    assert_eq!(link.node.link_target().as_deref(), Ok("d"));
    assert_eq!(link.node.read_at(0, &mut [0; 4]), Err(Fault::AccessDenied));
    assert_eq!(link.node.eas(), Ok(Vec::new()));
    assert_eq!(link.node.set_ea("a", b"b"), Err(Fault::NotSupported));
    let mode = BasicChange { mode: Some(0o600), ..BasicChange::default() };
    assert_eq!(link.node.set_basic(&mode), Err(Fault::NotSupported));
    assert_eq!(s.rename("in", link.node.key(), "d\\IN", false).as_deref(), Ok("d\\IN"));
    assert_eq!(s.stat("d\\in").unwrap().kind, Kind::Symlink);
    s.remove("d\\in", link.node.key()).unwrap();
    assert_eq!(s.list("d"), ["f", "out"]);
}

/// In a directory that was opened for a name the name is found or made as by walking.
pub fn parents_are_worked_in(s: &dyn Subject) {
    s.mkdir("Dir");
    s.symlink("link", "Dir");
    let vfs = s.vfs();
    let parent = vfs.open_parent(&name("dir\\New")).unwrap();
    assert_eq!((parent.stat.kind, &parent.name), (Kind::Directory, &name("Dir")));
    assert_eq!(parent.node.key(), s.stat("Dir").unwrap().key);
    let inside = Parent { node: &*parent.node, name: &parent.name };
    let open = |text: &str, how: &OpenHow| vfs.open_in(inside, &name(text), how);
    let made = open("dir\\New", &CREATE).unwrap();
    assert!(made.created && made.file_created);
    assert_eq!(made.name, name("Dir\\New"));
    assert_eq!(open("dir\\NEW", &CREATE).unwrap_err(), Fault::Exists);
    for how in [LOOK, READ, EITHER] {
        for text in ["dir\\NEW", "Dir\\New"] {
            let found = open(text, &how).unwrap();
            assert_eq!((found.created, found.name), (false, name("Dir\\New")), "{text}");
            assert_eq!(found.node.key(), made.node.key());
        }
    }
    assert_eq!(open("dir\\none", &LOOK).unwrap_err(), Fault::NotFound);
    assert!(open("dir\\below", &CREATE_DIRECTORY).unwrap().created);
    assert!(open("dir\\other", &EITHER).unwrap().created);
    assert!(open("dir\\new:s", &EITHER).unwrap().created);
    assert_eq!(s.list("Dir"), ["New", "below", "other"]);
    assert_eq!(s.stat("Dir\\New").unwrap().key, made.node.key());

    let root = vfs.open_parent(&name("x")).unwrap();
    assert!(root.name.is_root());
    let inside = Parent { node: &*root.node, name: &root.name };
    assert_eq!(vfs.open_in(inside, &name("x"), &CREATE).unwrap().name, name("x"));
    assert!(s.stat("x").is_ok());

    for (text, fault) in [
        ("none\\x", Fault::NotFound),
        ("none\\none\\x", Fault::PathNotFound),
        ("dir\\new\\x", Fault::NotADirectory),
        ("link\\x", Fault::Symlink),
    ] {
        assert_eq!(vfs.open_parent(&name(text)).unwrap_err(), fault, "{text}");
    }
}

/// Times are set; what is no time is left alone.
pub fn times_are_set(s: &dyn Subject) {
    let made = s.open("a", &CREATE).unwrap();
    let at = |n: u64| Some(FileTime(0x01dd_0000_0000_0000 + n));
    let change =
        BasicChange { created: at(1), accessed: at(2), written: at(3), ..BasicChange::default() };
    made.node.set_basic(&change).unwrap();
    let stat = made.node.stat().unwrap();
    let times = (Some(stat.created), Some(stat.accessed), Some(stat.written));
    assert_eq!(times, (at(1), at(2), at(3)));
    for same in [0, u64::MAX, u64::MAX - 1] {
        let same = Some(FileTime(same));
        let change = BasicChange { created: same, accessed: same, written: same, ..change };
        made.node.set_basic(&change).unwrap();
        let after = made.node.stat().unwrap();
        assert_eq!((after.created, after.accessed), (stat.created, stat.accessed));
        assert_eq!(after.written, stat.written);
    }
    // Through a node that can do nothing else.
    let bare = s.open("a", &LOOK).unwrap();
    let change = BasicChange { written: at(9), mode: Some(0o640), ..BasicChange::default() };
    bare.node.set_basic(&change).unwrap();
    let stat = s.stat("a").unwrap();
    assert_eq!((Some(stat.written), Some(stat.created), stat.mode), (at(9), at(1), 0o640));
    made.node.write_at(0, b"x").unwrap();
    assert_ne!(Some(made.node.stat().unwrap().written), at(9));
}

/// DOS attributes.
pub fn attributes_are_kept(s: &dyn Subject) {
    let attributes = FileAttributes::ARCHIVE | FileAttributes::HIDDEN;
    // What cannot be set is ignored.
    let asked = attributes | FileAttributes::COMPRESSED | FileAttributes::DIRECTORY;
    let made = s.open("a", &OpenHow { attributes: asked, ..CREATE }).unwrap();
    assert_eq!(made.stat.attributes, attributes);
    let set = |attributes| {
        let change = BasicChange { attributes: Some(attributes), ..BasicChange::default() };
        made.node.set_basic(&change).unwrap();
        s.stat("a").unwrap().attributes
    };
    let other = FileAttributes::READONLY | FileAttributes::SYSTEM;
    assert_eq!(set(other | FileAttributes::ENCRYPTED), other);
    assert_eq!(s.stat("a").unwrap().created, made.stat.created);
    assert_eq!(set(FileAttributes::NORMAL), FileAttributes::NORMAL);
    s.file(".dot", "");
    s.mkdir(".hidden");
    assert_eq!(s.stat(".dot").unwrap().attributes, FileAttributes::HIDDEN);
    let hidden = FileAttributes::HIDDEN | FileAttributes::DIRECTORY;
    assert_eq!(s.stat(".hidden").unwrap().attributes, hidden);
}

/// Extended attributes: their case, their sizes, their removal.
pub fn extended_attributes_are_kept(s: &dyn Subject) {
    let made = s.open("a", &CREATE).unwrap();
    let node = &made.node;
    assert_eq!(node.stat().unwrap().ea_size, 0);
    node.set_ea("Color", b"red").unwrap();
    node.set_ea("COLOR", b"green").unwrap();
    node.set_ea("size", b"1").unwrap();
    let mut eas = node.eas().unwrap();
    eas.sort();
    assert_eq!(eas, [("Color".into(), b"green".to_vec()), ("size".into(), b"1".to_vec())]);
    assert_eq!(node.stat().unwrap().ea_size, 4 + (5 + 5 + 5) + (5 + 4 + 1));
    node.set_ea("SIZE", b"").unwrap();
    node.set_ea("absent", b"").unwrap();
    assert_eq!(node.eas().unwrap().len(), 1);
    assert_eq!(node.set_ea("", b"x"), Err(Fault::NameInvalid));
    assert_eq!(node.set_ea(&"n".repeat(251), b"x"), Err(Fault::NameInvalid));
    assert_eq!(node.set_ea("large", &vec![0; 65_537]), Err(Fault::FileTooLarge));
    let bare = s.open("a", &LOOK).unwrap();
    assert_eq!(bare.node.eas().unwrap(), node.eas().unwrap());
    let dir = s.open("d", &CREATE_DIRECTORY).unwrap();
    dir.node.set_ea("x", b"y").unwrap();
    assert_eq!(s.stat("d").unwrap().ea_size, 4 + 5 + 1 + 1);
}

/// FILE_NEED_EA stays with its attribute, in whatever case that is named, and
/// goes with it.
pub fn needed_attributes_are_known(s: &dyn Subject) {
    let long = "n".repeat(250);
    for want in [CREATE, CREATE_DIRECTORY] {
        let name = if want.kind == KindWanted::Directory { "d" } else { "f" };
        let node = s.open(name, &want).unwrap().node;
        assert_eq!(node.needed_eas(), Ok(Vec::new()));
        assert_eq!(node.set_ea_needed("Color", true), Err(Fault::NotFound));
        node.set_ea_needed("Color", false).unwrap();
        for ea in ["Color", "size", &long] {
            node.set_ea(ea, b"1").unwrap();
        }
        let size = node.stat().unwrap().ea_size;
        node.set_ea_needed("COLOR", true).unwrap();
        node.set_ea_needed(&long, true).unwrap();
        let needed = || {
            let mut needed = s.open(name, &LOOK).unwrap().node.needed_eas().unwrap();
            needed.sort();
            needed
        };
        assert_eq!(needed(), [String::from("Color"), long.clone()]);
        assert_eq!(node.eas().unwrap().len(), 3, "nothing else is shown");
        assert_eq!(node.stat().unwrap().ea_size, size);
        node.set_ea("color", b"2").unwrap();
        node.set_ea_needed(&long, false).unwrap();
        assert_eq!(needed(), ["Color"], "another value is still needed");
        node.set_ea("color", b"").unwrap();
        node.set_ea("Color", b"3").unwrap();
        assert_eq!(needed(), Vec::<String>::new(), "a new attribute is one of its own");
    }
}

/// The root opens, and does not move.
pub fn the_root_stays(s: &dyn Subject) {
    let root = s.open("", &READ).unwrap();
    assert_eq!((root.name.clone(), root.created), (Name::root(), false));
    assert_eq!(root.stat.kind, Kind::Directory);
    assert!(!s.open("", &EITHER).unwrap().created);
    assert_eq!(s.fault("", &CREATE), Fault::Exists);
    let file = OpenHow { kind: KindWanted::NotDirectory, ..LOOK };
    assert_eq!(s.fault("", &file), Fault::IsADirectory);
    let key = root.node.key();
    assert_eq!(s.key(""), key);
    assert_eq!(s.remove("", key), Err(Fault::AccessDenied));
    assert_eq!(s.rename("", key, "x", false), Err(Fault::AccessDenied));
    let a = s.file("a", "");
    assert_eq!(s.rename("a", a, "", true), Err(Fault::AccessDenied));
    assert_eq!(s.list(""), ["a"]);
}

/// Facts that hold together.
pub fn space_and_volume(s: &dyn Subject) {
    let space = s.vfs().space().unwrap();
    assert!(space.unit >= 512 && space.total >= space.free && space.free >= space.available);
    assert!(space.available > 0);
    let volume = s.vfs().volume();
    assert!(!volume.read_only && volume.xattrs);
    assert_eq!((volume.file_system.as_str(), volume.max_component), ("NTFS", 255));
}

/// A node of another implementor cannot get a name here.
pub fn foreign_nodes_are_refused(s: &dyn Subject) {
    assert_eq!(s.vfs().link(&Foreign, &name("x"), true), Err(Fault::NotSupported));
}

/// A node of nothing.
#[derive(Debug)]
struct Foreign;

const REFUSED: Fault = Fault::NotSupported;

impl Node for Foreign {
    fn key(&self) -> FileKey {
        FileKey::of_file(0, 0)
    }
    fn descriptor(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
    fn stat(&self) -> VfsResult<Stat> {
        Err(REFUSED)
    }
    fn read_at(&self, _: u64, _: &mut [u8]) -> VfsResult<usize> {
        Err(REFUSED)
    }
    fn write_at(&self, _: u64, _: &[u8]) -> VfsResult<()> {
        Err(REFUSED)
    }
    fn sync(&self) -> VfsResult<()> {
        Err(REFUSED)
    }
    fn set_end_of_file(&self, _: u64) -> VfsResult<()> {
        Err(REFUSED)
    }
    fn set_allocation(&self, _: u64) -> VfsResult<()> {
        Err(REFUSED)
    }
    fn set_basic(&self, _: &BasicChange) -> VfsResult<()> {
        Err(REFUSED)
    }
    fn directory(&self) -> VfsResult<Box<dyn Directory>> {
        Err(REFUSED)
    }
    fn eas(&self) -> VfsResult<Vec<(String, Vec<u8>)>> {
        Err(REFUSED)
    }
    fn set_ea(&self, _: &str, _: &[u8]) -> VfsResult<()> {
        Err(REFUSED)
    }
    fn link_target(&self) -> VfsResult<String> {
        Err(REFUSED)
    }
    fn host_access(&self) -> HostAccess {
        HostAccess { read: false, write: false, execute: false, owner: false }
    }
}
