//! How names are found, made and listed.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use frevo_wire::dtyp::FileAttributes;

use super::{CREATE, CREATE_DIRECTORY, EITHER, LOOK, READ, Subject, content, name, rest};
use crate::name::{Name, Rules};
use crate::vfs::{Existence, Fault, Kind, KindWanted, OpenHow, Parent};

/// Tests NotFound, PathNotFound and PathNotDirectory.
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

/// Tests [`Existence`] and [`KindWanted`].
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

/// Tests that lookups ignore case and that the medium keeps it.
pub fn case_is_ignored_and_kept(s: &dyn Subject) {
    s.mkdir("Sub");
    s.mkdir("sub\\Größe");
    s.file("SUB\\größe\\Datei.TXT", "1");
    let opened = s.open("sub\\GRÖßE\\datei.txt", &READ).unwrap();
    assert_eq!(opened.name, name("Sub\\Größe\\Datei.TXT"));
    assert_eq!(content(&*opened.node), "1");
    let either = s.open("SUB\\GRÖßE\\DATEI.txt", &EITHER).unwrap();
    assert_eq!((either.created, either.name), (false, name("Sub\\Größe\\Datei.TXT")));
    // Case folding must not change the length of a name (ß does not become SS), and no other letter
    // may equal an ASCII letter.
    for other in ["Sub\\GRÖSSE", "Sub\\GRO\u{308}ßE"] {
        assert_eq!(s.fault(other, &LOOK), Fault::NotFound, "{other}");
    }
    s.file("k", "latin");
    assert_eq!(s.fault("\u{212A}", &LOOK), Fault::NotFound, "the Kelvin sign");
}

/// Tests that POSIX clients compare exactly and can make names that differ in case only.
pub fn exact_names_can_be_asked_for(s: &dyn Subject) {
    let exact = |how| OpenHow { case_sensitive: true, ..how };
    s.mkdir("Sub");
    s.file("Sub\\twin", "lower");
    assert_eq!(s.fault("Sub\\TWIN", &exact(READ)), Fault::NotFound);
    assert_eq!(s.fault("sub\\twin", &exact(READ)), Fault::PathNotFound);
    let upper = s.open("Sub\\TWIN", &exact(CREATE)).unwrap();
    upper.node.write_at(0, b"upper").unwrap();
    // Two names differ only in case. An exact match wins, otherwise the first one in byte order.
    assert_eq!(s.content("Sub\\twin").unwrap(), "lower");
    assert_eq!(s.content("Sub\\TWIN").unwrap(), "upper");
    assert_eq!(s.content("sub\\Twin").unwrap(), "upper");
    assert_eq!(s.list("Sub"), ["TWIN", "twin"]);
    s.remove("sub\\Twin", upper.node.key()).unwrap();
    assert_eq!(s.content("sub\\TWIN").unwrap(), "lower");
}

/// Tests names that demand an exact lookup. With them a directory replaces an empty one, as
/// rename(2) does.
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

/// Tests names that are too long, or that Windows would read as other names.
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

/// Tests that a name is found or made in an opened parent as by a walk from the root.
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

/// Tests that a listing gives every entry once, with its state.
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

/// Tests a listing of a directory that changes meanwhile.
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
