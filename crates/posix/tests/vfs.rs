//! Opening, creating, changing and removing.

mod common;

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use common::{content, create, create_dir, either, how, name, read, share, share_with, write};
use frevo_posix::{Case, PosixOptions};
use frevo_store::vfs::{BasicChange, Kind, OpenHow};
use frevo_store::{Fault, Vfs as _};
use frevo_wire::dtyp::{FileAttributes, FileTime};

#[test]
fn files_are_created_written_and_read() {
    let s = share();
    let made = s.open("new.txt", &create()).unwrap();
    assert!(made.created);
    assert_eq!(made.stat.end_of_file, 0);
    made.node.write_at(0, b"hello").unwrap();
    made.node.write_at(8, b"!").unwrap();
    assert_eq!(content(&made.node), "hello\0\0\0!");
    assert_eq!(made.node.stat().unwrap().end_of_file, 9);
    made.node.set_end_of_file(5).unwrap();
    made.node.sync().unwrap();
    assert_eq!(s.content("new.txt").unwrap(), "hello");
    assert_eq!(s.open("new.txt", &create()).unwrap_err(), Fault::Exists);
    assert_eq!(s.open("NEW.TXT", &create()).unwrap_err(), Fault::Exists);
    let again = s.open("NEW.txt", &either()).unwrap();
    assert!(!again.created);
    assert_eq!(again.name, name("new.txt"));
    assert_eq!(again.node.key(), made.node.key());
    assert!(made.node.descriptor().is_some());
}

#[test]
fn allocation_reserves_and_cuts() {
    let s = share();
    let made = s.open("a", &create()).unwrap();
    made.node.set_allocation(1 << 20).unwrap();
    // More than the free space is requested, so the request fails and must reserve nothing.
    let before = made.node.stat().unwrap().allocation;
    assert_eq!(made.node.set_allocation(1 << 60).unwrap_err(), Fault::DiskFull);
    assert_eq!(made.node.stat().unwrap().allocation, before);
    let stat = made.node.stat().unwrap();
    assert_eq!(stat.end_of_file, 0);
    assert!(stat.allocation >= 1 << 20, "{}", stat.allocation);
    made.node.write_at(0, b"0123456789").unwrap();
    made.node.set_allocation(4).unwrap();
    assert_eq!(content(&made.node), "0123");
    let reader = s.open("a", &read()).unwrap();
    assert_eq!(reader.node.set_end_of_file(0).unwrap_err(), Fault::AccessDenied);
    assert_eq!(reader.node.set_allocation(1 << 20).unwrap_err(), Fault::AccessDenied);
    assert_eq!(reader.node.write_at(0, b"x").unwrap_err(), Fault::AccessDenied);
    let attributes_only = s.open("a", &how()).unwrap();
    assert_eq!(attributes_only.node.read_at(0, &mut [0; 4]).unwrap_err(), Fault::AccessDenied);
    assert!(attributes_only.node.descriptor().is_none());
}

#[test]
fn case_is_ignored_and_kept() {
    let s = share();
    s.mkdir("Sub/Größe");
    s.file("Sub/Größe/Datei.TXT", "1");
    let opened = s.open("sub\\GRÖßE\\datei.txt", &read()).unwrap();
    assert_eq!(opened.name, name("Sub\\Größe\\Datei.TXT"));
    assert_eq!(content(&opened.node), "1");
    // An exact match comes first; without one the first name in byte order is opened.
    s.file("Sub/twin", "lower");
    s.file("Sub/TWIN", "upper");
    assert_eq!(s.content("Sub\\twin").unwrap(), "lower");
    assert_eq!(s.content("Sub\\TWIN").unwrap(), "upper");
    assert_eq!(s.content("Sub\\Twin").unwrap(), "upper");
    let exact = OpenHow { case_sensitive: true, ..read() };
    assert_eq!(s.open("Sub\\Twin", &exact).unwrap_err(), Fault::NotFound);
    assert_eq!(s.open("sub\\twin", &exact).unwrap_err(), Fault::PathNotFound);
    let strict = share_with(PosixOptions { case: Case::Sensitive, ..PosixOptions::default() });
    strict.file("a", "");
    assert_eq!(strict.open("A", &how()).unwrap_err(), Fault::NotFound);
    assert!(strict.open("A", &create()).unwrap().created);
}

#[test]
fn directories_are_made_listed_and_removed() {
    let s = share();
    let made = s.open("d", &create_dir()).unwrap();
    assert!(made.created);
    assert_eq!(made.stat.kind, Kind::Directory);
    assert_eq!(made.stat.attributes, FileAttributes::DIRECTORY);
    s.open("D\\one", &create()).unwrap();
    s.open("d\\two", &create()).unwrap();
    assert_eq!(s.list("d"), ["one", "two"]);
    let mut listing = made.node.directory().unwrap();
    assert!(listing.entry_stat().unwrap().is_none());
    let first = listing.next_name().unwrap().unwrap().to_owned();
    let stat = listing.entry_stat().unwrap().unwrap();
    assert_eq!(stat.kind, Kind::File);
    std::fs::remove_file(s.path("d").join(&first)).unwrap();
    assert!(listing.entry_stat().unwrap().is_none(), "it has gone since");
    s.file("d/three", "");
    listing.rewind().unwrap();
    let mut seen = Vec::new();
    while let Some(entry) = listing.next_name().unwrap() {
        seen.push(entry.to_owned());
    }
    assert_eq!(seen.len(), 2);
    assert!(seen.contains(&"three".to_owned()));
    let key = made.node.key();
    assert_eq!(s.vfs.remove(&name("d"), key), Err(Fault::NotEmpty));
    for entry in seen {
        let entry = name(&format!("d\\{entry}"));
        let key = s.vfs.stat(&entry).unwrap().key;
        s.vfs.remove(&entry, key).unwrap();
    }
    s.vfs.remove(&name("d"), key).unwrap();
    assert_eq!(s.vfs.stat(&name("d")).unwrap_err(), Fault::NotFound);
    assert_eq!(listing.next_name().unwrap(), None);
}

#[test]
fn removal_looks_at_the_key() {
    let s = share();
    s.file("a", "");
    s.file("b", "");
    let key = s.vfs.stat(&name("a")).unwrap().key;
    assert_eq!(s.vfs.remove(&name("b"), key), Err(Fault::Stale));
    assert_eq!(s.vfs.remove(&name("c"), key), Err(Fault::NotFound));
    s.vfs.remove(&name("A"), key).unwrap();
    assert_eq!(s.list(""), ["b"]);
}

#[test]
fn renaming() {
    let s = share();
    s.mkdir("d");
    s.file("a", "a");
    s.file("b", "b");
    let key = |text: &str| s.vfs.stat(&name(text)).unwrap().key;
    let a = key("a");
    let rename =
        |from: &str, key, to: &str, replace| s.vfs.rename(&name(from), key, &name(to), replace);
    assert_eq!(rename("a", key("b"), "c", false), Err(Fault::Stale));
    assert_eq!(rename("a", a, "b", false), Err(Fault::Exists));
    assert_eq!(rename("a", a, "no\\b", false), Err(Fault::PathNotFound));
    // Source and target differ only in case, so the entry gets the new spelling.
    assert_eq!(rename("a", a, "A", false), Ok(name("A")));
    assert_eq!(s.list(""), ["A", "b", "d"]);
    assert_eq!(rename("A", a, "A", false), Ok(name("A")));
    // The target directory `d` is named in another case (`D`), but its stored name stays.
    assert_eq!(rename("A", a, "D\\x", false), Ok(name("d\\x")));
    assert_eq!(s.content("d\\x").unwrap(), "a");
    // The replaced entry gets the spelling of the request (`B`).
    assert_eq!(rename("d\\X", a, "B", true), Ok(name("B")));
    assert_eq!(s.list(""), ["B", "d"]);
    assert_eq!(s.content("b").unwrap(), "a");
    // A directory can never be replaced, but may replace a file.
    assert_eq!(rename("B", a, "d", true), Err(Fault::AccessDenied));
    assert_eq!(rename("d", key("d"), "b", false), Err(Fault::Exists));
    assert_eq!(rename("d", key("d"), "b", true), Ok(name("b")));
    assert_eq!(s.list(""), ["b"]);
    s.mkdir("b/c");
    assert_eq!(rename("b", key("b"), "b\\c\\b", false), Err(Fault::Invalid));
    assert_eq!(rename("", key(""), "x", false), Err(Fault::AccessDenied));
}

#[test]
fn links_are_other_names_of_a_file() {
    let s = share();
    s.file("a", "a");
    s.file("c", "c");
    let a = s.open("a", &how()).unwrap();
    s.vfs.link(&*a.node, &name("b"), false).unwrap();
    assert_eq!(a.node.stat().unwrap().links, 2);
    assert_eq!(s.vfs.link(&*a.node, &name("C"), false), Err(Fault::Exists));
    s.vfs.link(&*a.node, &name("C"), true).unwrap();
    assert_eq!(s.content("c").unwrap(), "a");
    assert_eq!(s.list(""), ["a", "b", "c"]);
    // MS-FSA: a rename of a link onto another link of the same file leaves one link, even without
    // ReplaceIfExists.
    let renamed = s.vfs.rename(&name("b"), a.node.key(), &name("C"), false).unwrap();
    assert_eq!(renamed, name("C"));
    assert_eq!(s.list(""), ["C", "a"]);
    let root = s.open("", &how()).unwrap();
    assert_eq!(s.vfs.link(&*root.node, &name("x"), false), Err(Fault::IsADirectory));
}

#[test]
fn names_that_windows_cannot_spell() {
    let s = share();
    s.file("a:b*", "colon");
    s.file("end.", "period");
    std::fs::write(s.dir.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9")), "latin").unwrap();
    assert_eq!(s.list(""), ["a\u{F022}b\u{F021}", "caf\u{EFE9}", "end\u{F029}"].map(String::from));
    assert_eq!(s.content("a\u{F022}b\u{F021}").unwrap(), "colon");
    assert_eq!(s.content("A\u{F022}B\u{F021}").unwrap(), "colon");
    assert_eq!(s.content("caf\u{EFE9}").unwrap(), "latin");
    assert_eq!(s.content("end\u{F029}").unwrap(), "period");
    assert_eq!(s.content("end.").unwrap_err(), Fault::NameInvalid);
    s.open("q\u{F025}", &create()).unwrap();
    assert!(s.path("q?").exists());
}

#[test]
fn long_names_and_paths() {
    let s = share();
    let long = "x".repeat(255);
    s.open(&long, &create()).unwrap();
    assert_eq!(s.open(&"X".repeat(255), &how()).unwrap().name, name(&long));
    assert_eq!(s.open(&"x".repeat(256), &create()).unwrap_err(), Fault::NameTooLong);
    let wide = format!("{}y", "é".repeat(127));
    s.open(&wide, &create()).unwrap();
    assert_eq!(s.open(&"é".repeat(128), &create()).unwrap_err(), Fault::NameTooLong);
    // This path is longer than one system call accepts.
    let mut path = String::new();
    for depth in 0..20 {
        if depth > 0 {
            path.push('\\');
        }
        path.push_str(&long.replace('x', "d"));
        s.open(&path, &create_dir()).unwrap();
    }
    path.push_str("\\file");
    s.open(&path, &create()).unwrap().node.write_at(0, b"deep").unwrap();
    assert_eq!(s.content(&path.to_uppercase()).unwrap(), "deep");
}

#[test]
fn times_are_set_to_100_nanoseconds() {
    let s = share();
    let made = s.open("a", &create()).unwrap();
    let at = |n: u64| Some(FileTime(0x01dd_0000_0000_0000 + n));
    let change =
        BasicChange { created: at(1), accessed: at(2), written: at(3), ..BasicChange::default() };
    made.node.set_basic(&change).unwrap();
    let stat = made.node.stat().unwrap();
    assert_eq!((Some(stat.created), Some(stat.accessed)), (at(1), at(2)));
    assert_eq!(Some(stat.written), at(3));
    // The values 0, -1 and -2 leave a time unchanged.
    for same in [0, u64::MAX, u64::MAX - 1] {
        let same = Some(FileTime(same));
        let change = BasicChange { created: same, accessed: same, written: same, ..change };
        made.node.set_basic(&change).unwrap();
        let after = made.node.stat().unwrap();
        assert_eq!((after.created, after.written), (stat.created, stat.written));
    }
    // This handle was opened without access to data, but can set times and mode.
    let bare = s.open("a", &how()).unwrap();
    let change = BasicChange { written: at(9), mode: Some(0o640), ..BasicChange::default() };
    bare.node.set_basic(&change).unwrap();
    let stat = bare.node.stat().unwrap();
    assert_eq!(Some(stat.written), at(9));
    assert_eq!(stat.mode, 0o640);
    assert_eq!(Some(stat.created), at(1));
}

/// MS-FSA 2.1.5.15.2: ChangeTime can be set, though not on Linux.
#[test]
fn a_change_time_is_stored_until_the_file_changes() {
    let s = share();
    let made = s.open("a", &create()).unwrap();
    let wanted = FileTime(0x01c0_0000_0000_1234);
    let change_time = || s.vfs.stat(&name("a")).unwrap().changed;
    let set = |change: BasicChange| {
        made.node.set_basic(&BasicChange { changed: Some(wanted), ..change }).unwrap();
        assert_eq!(made.node.stat().unwrap().changed, wanted);
        assert_eq!(change_time(), wanted);
        // The pause is longer than the clock's tick and the tolerance for finer clocks, so the
        // facts may be cached.
        std::thread::sleep(std::time::Duration::from_millis(30));
    };
    set(BasicChange::default());
    let mut listing = s.open("", &read()).unwrap().node.directory().unwrap();
    listing.next_name().unwrap();
    assert_eq!(listing.entry_stat().unwrap().unwrap().changed, wanted);
    // Each change must make the cached facts invalid.
    made.node.write_at(0, b"x").unwrap();
    assert_ne!(change_time(), wanted);
    let all = BasicChange {
        created: Some(FileTime(0x01d0_0000_0000_0000)),
        written: Some(FileTime(0x01d0_0000_0000_0001)),
        attributes: Some(FileAttributes::HIDDEN),
        mode: Some(0o600),
        ..BasicChange::default()
    };
    set(all);
    let stat = made.node.stat().unwrap();
    assert_eq!((Some(stat.created), Some(stat.written)), (all.created, all.written));
    assert_eq!(Some(stat.attributes), all.attributes);
    std::fs::set_permissions(s.path("a"), std::fs::Permissions::from_mode(0o640)).unwrap();
    assert_ne!(change_time(), wanted);
    set(BasicChange::default());
    let normal = Some(FileAttributes::NORMAL);
    made.node.set_basic(&BasicChange { attributes: normal, ..BasicChange::default() }).unwrap();
    assert_ne!(change_time(), wanted);
    set(BasicChange::default());
    s.vfs.rename(&name("a"), made.node.key(), &name("b"), false).unwrap();
    assert_ne!(s.vfs.stat(&name("b")).unwrap().changed, wanted);
}

/// MS-FSA 2.1.5.1.1: all of its times are the same.
#[test]
fn a_new_file_was_written_when_it_was_created() {
    let s = share();
    for n in 0..50 {
        let made = s.open(&format!("f{n}"), &create()).unwrap();
        assert_eq!(made.stat.created, made.stat.written);
    }
}

#[test]
fn modes_pass_the_masks() {
    let s = share_with(PosixOptions {
        create_mask: Some(0o640),
        directory_mask: Some(0o750),
        ..PosixOptions::default()
    });
    let file = s.open("f", &OpenHow { mode: Some(0o777), ..create() }).unwrap();
    let dir = s.open("d", &create_dir()).unwrap();
    assert_eq!(file.stat.mode & !0o640, 0);
    assert_eq!(dir.stat.mode & !0o750, 0);
    assert_eq!(file.stat.mode & 0o600, 0o600);
}

#[test]
fn attributes_are_kept() {
    let s = share();
    let attributes = FileAttributes::ARCHIVE | FileAttributes::HIDDEN;
    let made = s.open("a", &OpenHow { attributes, ..create() }).unwrap();
    assert_eq!(made.stat.attributes, attributes);
    assert!(made.stat.created <= made.stat.written, "born before it was written");
    let change = BasicChange {
        attributes: Some(FileAttributes::READONLY | FileAttributes::SYSTEM),
        ..BasicChange::default()
    };
    made.node.set_basic(&change).unwrap();
    let stat = s.vfs.stat(&name("a")).unwrap();
    assert_eq!(stat.attributes, FileAttributes::READONLY | FileAttributes::SYSTEM);
    assert_eq!(stat.created, made.stat.created);
    let normal = BasicChange { attributes: Some(FileAttributes::NORMAL), ..change };
    made.node.set_basic(&normal).unwrap();
    assert_eq!(s.vfs.stat(&name("a")).unwrap().attributes, FileAttributes::NORMAL);
    // A file that the host has made must have the attributes that smbd would show for it.
    s.file("local", "");
    s.file(".dot", "");
    s.mkdir(".hidden");
    let attributes_of = |text: &str| s.vfs.stat(&name(text)).unwrap().attributes;
    assert_eq!(attributes_of("local"), FileAttributes::NORMAL);
    assert_eq!(attributes_of(".dot"), FileAttributes::HIDDEN);
    assert_eq!(attributes_of(".hidden"), FileAttributes::HIDDEN | FileAttributes::DIRECTORY);
    let mut listing = s.open("", &read()).unwrap().node.directory().unwrap();
    while let Some(entry) = listing.next_name().unwrap() {
        let entry = name(entry);
        let listed = listing.entry_stat().unwrap().unwrap();
        assert_eq!(listed, s.vfs.stat(&entry).unwrap(), "{entry}");
    }
}

#[test]
fn attributes_stored_by_smbd_are_shown_and_preserved() {
    let s = share();
    let path = s.file("a", "");
    let value = b"\0\0\x05\0\x05\0\0\0\x11\0\0\0\x21\0\0\0\xfc\xfa\xd0\x80\xfd\x79\xdd\x01";
    rustix::fs::setxattr(&path, "user.DOSATTRIB", value, rustix::fs::XattrFlags::empty()).unwrap();
    let opened = s.open("a", &read()).unwrap();
    assert_eq!(opened.stat.attributes, FileAttributes::READONLY | FileAttributes::ARCHIVE);
    assert_eq!(opened.stat.created, FileTime(0x01dd_79fd_80d0_fafc));
    let change = BasicChange {
        attributes: Some(FileAttributes::READONLY | FileAttributes::ARCHIVE),
        ..BasicChange::default()
    };
    opened.node.set_basic(&change).unwrap();
    let mut stored = [0; 64];
    let len = rustix::fs::getxattr(&path, "user.DOSATTRIB", &mut stored).unwrap();
    assert_eq!(&stored[..len], value);
}

#[test]
fn extended_attributes() {
    let s = share();
    let made = s.open("a", &create()).unwrap();
    assert_eq!(made.node.stat().unwrap().ea_size, 0);
    made.node.set_ea("Color", b"red").unwrap();
    made.node.set_ea("COLOR", b"green").unwrap();
    made.node.set_ea("size", b"1").unwrap();
    let mut eas = made.node.eas().unwrap();
    eas.sort();
    assert_eq!(eas, [("Color".into(), b"green".to_vec()), ("size".into(), b"1".to_vec())]);
    assert_eq!(made.node.stat().unwrap().ea_size, 4 + (5 + 5 + 5) + (5 + 4 + 1));
    made.node.set_ea("SIZE", b"").unwrap();
    made.node.set_ea("absent", b"").unwrap();
    assert_eq!(made.node.eas().unwrap().len(), 1);
    for private in ["DOSATTRIB", "dosattrib", "DosStream.x:$DATA", "NTACL"] {
        assert_eq!(made.node.set_ea(private, b"x").unwrap_err(), Fault::AccessDenied);
    }
    assert_eq!(made.node.set_ea("", b"x").unwrap_err(), Fault::NameInvalid);
    let bare = s.open("a", &how()).unwrap();
    assert_eq!(bare.node.eas().unwrap(), made.node.eas().unwrap());
}

#[test]
fn symbolic_links_lead_nowhere_by_default() {
    let s = share();
    s.mkdir("d");
    s.file("d/f", "inside");
    symlink("d", s.path("in")).unwrap();
    symlink("/etc", s.path("out")).unwrap();
    symlink("../..", s.path("d/up")).unwrap();
    symlink("f", s.path("d/l")).unwrap();
    for text in ["in", "out", "d\\l", "in\\f", "out\\passwd", "OUT\\passwd", "d\\up\\etc"] {
        for how in [how(), read(), write(), either()] {
            assert_eq!(s.open(text, &how).unwrap_err(), Fault::Symlink, "{text}");
        }
    }
    // The fault must be the same whether the target exists or not, as it is outside of the share.
    assert_eq!(s.open("out\\no-such-file", &read()).unwrap_err(), Fault::Symlink);
    assert_eq!(s.open("out\\new", &create()).unwrap_err(), Fault::Symlink);
    let link = s.open("OUT", &OpenHow { open_link: true, ..how() }).unwrap();
    assert_eq!(link.stat.kind, Kind::Symlink);
    assert_eq!(link.stat.attributes, FileAttributes::REPARSE_POINT | FileAttributes::ARCHIVE);
    assert_eq!(link.stat.reparse_tag, 0xA000_000C);
    assert_eq!(link.node.link_target().unwrap(), "/etc");
    s.vfs.remove(&name("out"), link.node.key()).unwrap();
    assert!(!s.path("out").exists());
}

#[test]
fn symbolic_links_inside_are_followed_when_allowed() {
    let options = PosixOptions { follow_symlinks_inside: true, ..PosixOptions::default() };
    let s = share_with(options);
    s.mkdir("d/e");
    s.file("d/f", "inside");
    symlink("d", s.path("in")).unwrap();
    symlink("../d/f", s.path("d/back")).unwrap();
    symlink("../../d", s.path("d/e/UP")).unwrap();
    symlink("/etc", s.path("out")).unwrap();
    symlink("../..", s.path("d/up")).unwrap();
    assert_eq!(s.content("in\\f").unwrap(), "inside");
    assert_eq!(s.content("in\\F").unwrap(), "inside");
    assert_eq!(s.content("d\\back").unwrap(), "inside");
    assert_eq!(s.content("D\\BACK").unwrap(), "inside");
    assert_eq!(s.content("d\\e\\up\\f").unwrap(), "inside");
    for text in ["out\\passwd", "out", "d\\up", "d\\up\\etc\\passwd"] {
        for how in [how(), read()] {
            assert_eq!(s.open(text, &how).unwrap_err(), Fault::Symlink, "{text}");
        }
    }
    let itself = OpenHow { open_link: true, ..how() };
    assert_eq!(s.open("in", &itself).unwrap().stat.kind, Kind::Symlink);
    assert_eq!(s.open("in", &how()).unwrap().stat.kind, Kind::Directory);
}

#[test]
fn special_files_are_never_opened() {
    let s = share();
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, s.path("fifo"), fifo, mode, 0).unwrap();
    let found = s.open("fifo", &how()).unwrap();
    assert_eq!(found.stat.kind, Kind::Fifo);
    assert!(found.node.descriptor().is_none());
    for how in [read(), write(), either()] {
        assert_eq!(s.open("fifo", &how).unwrap_err(), Fault::AccessDenied);
    }
    // Opening the FIFO over SMB must not have opened it for reading, so opening it for writing
    // still fails (NXIO).
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
    let writer = rustix::fs::open(s.path("fifo"), flags, rustix::fs::Mode::empty());
    assert_eq!(writer.unwrap_err(), rustix::io::Errno::NXIO);
}

#[test]
fn read_only_shares_stay_as_they_are() {
    let s = share();
    s.file("a", "a");
    let options = PosixOptions { read_only: true, ..PosixOptions::default() };
    let vfs = frevo_posix::PosixVfs::open_root(s.dir.path(), options).unwrap();
    assert!(vfs.volume().read_only);
    let key = vfs.stat(&name("a")).unwrap().key;
    let a = vfs.open(&name("a"), &read()).unwrap();
    assert_eq!(vfs.open(&name("a"), &write()).unwrap_err(), Fault::ReadOnly);
    assert_eq!(vfs.open(&name("b"), &create()).unwrap_err(), Fault::ReadOnly);
    assert_eq!(vfs.open(&name("b"), &either()).unwrap_err(), Fault::ReadOnly);
    assert_eq!(vfs.open(&name("b"), &create_dir()).unwrap_err(), Fault::ReadOnly);
    assert_eq!(vfs.remove(&name("a"), key).unwrap_err(), Fault::ReadOnly);
    assert_eq!(vfs.rename(&name("a"), key, &name("b"), false).unwrap_err(), Fault::ReadOnly);
    assert_eq!(vfs.link(&*a.node, &name("b"), false).unwrap_err(), Fault::ReadOnly);
    assert_eq!(a.node.set_basic(&BasicChange::default()).unwrap_err(), Fault::ReadOnly);
    assert_eq!(a.node.set_ea("x", b"y").unwrap_err(), Fault::ReadOnly);
    assert!(!a.node.host_access().write);
    assert_eq!(s.list(""), ["a"]);
}

#[test]
fn the_volume_has_facts() {
    let s = share();
    let volume = s.vfs.volume();
    assert_eq!(volume.file_system, "NTFS");
    assert_eq!(volume.max_component, 255);
    assert!(volume.sparse);
    let space = s.vfs.space().unwrap();
    assert!(space.unit >= 512 && space.total >= space.free && space.free >= space.available);
    let other = frevo_posix::PosixVfs::open_root(s.dir.path(), PosixOptions::default()).unwrap();
    assert_eq!(other.volume(), volume);
    let nowhere = s.path("none");
    assert!(frevo_posix::PosixVfs::open_root(&nowhere, PosixOptions::default()).is_err());
    let file = s.file("file", "");
    assert!(frevo_posix::PosixVfs::open_root(&file, PosixOptions::default()).is_err());
}

#[test]
fn stat_returns_the_facts_of_the_host() {
    let s = share();
    let path = s.file("a", "0123456789");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o604)).unwrap();
    let meta = std::fs::metadata(&path).unwrap();
    let stat = s.vfs.stat(&name("a")).unwrap();
    assert_eq!(stat.end_of_file, 10);
    assert_eq!(stat.allocation, meta.blocks() * 512);
    assert_eq!((stat.uid, stat.gid, stat.mode), (meta.uid(), meta.gid(), 0o604));
    assert_eq!(stat.key.inode, meta.ino());
    let written = FileTime::from_unix(meta.mtime(), u32::try_from(meta.mtime_nsec()).unwrap());
    assert_eq!(stat.written, written);
    let root = s.vfs.stat(&name("")).unwrap();
    assert_eq!((root.kind, root.end_of_file, root.allocation), (Kind::Directory, 0, 0));
}
