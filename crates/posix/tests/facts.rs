//! Facts that are kept until a file changes: whoever changes it, the next answer is the new one.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{Share, how, name, share};
use frevo_posix::dosattrib;
use frevo_store::vfs::{Existence, Kind, KindWanted, OpenHow, SecurityChange};
use frevo_store::{Fault, Vfs};
use frevo_wire::dtyp::FileAttributes;
use rustix::fs::{CWD, FileType, Mode, XattrFlags};

/// After this time what is read of a file may be kept.
const SETTLED: Duration = Duration::from_millis(60);

/// Sets the attributes as another program does.
fn set(path: &Path, attributes: FileAttributes) {
    let value = format!("0x{:x}", attributes.0);
    rustix::fs::setxattr(path, dosattrib::NAME, value.as_bytes(), XattrFlags::empty()).unwrap();
}

/// The attributes by each way to see them, which agree.
fn attributes_of(share: &Share) -> FileAttributes {
    let by_name = share.vfs.stat(&name("f")).unwrap().attributes;
    let opened = share.vfs.open(&name("f"), &how()).unwrap();
    let by_node = opened.node.stat().unwrap().attributes;
    let root = share.vfs.open(&name(""), &how()).unwrap();
    let mut listing = root.node.directory().unwrap();
    assert_eq!(listing.next_name().unwrap(), Some("f"));
    let listed = listing.entry_stat().unwrap().unwrap().attributes;
    assert_eq!((by_name, opened.stat.attributes, by_node), (listed, listed, listed));
    listed
}

#[test]
fn a_change_of_attributes_by_another_program_is_seen() {
    let share = share();
    let path = share.path("f");
    std::fs::write(&path, "").unwrap();
    let is = |wanted| {
        std::thread::sleep(SETTLED);
        // The first call reads the attributes from the file and the second one from the cache; both
        // must be right.
        assert_eq!([attributes_of(&share), attributes_of(&share)], [wanted; 2]);
    };
    is(FileAttributes::NORMAL);
    for attributes in [FileAttributes::HIDDEN, FileAttributes::READONLY, FileAttributes::SYSTEM] {
        set(&path, attributes);
        assert_eq!(attributes_of(&share), attributes);
        is(attributes);
    }
    rustix::fs::removexattr(&path, dosattrib::NAME).unwrap();
    assert_eq!(attributes_of(&share), FileAttributes::NORMAL);
    is(FileAttributes::NORMAL);
}

/// Changes within one tick of the kernel's clock have one time; each is seen all the same.
#[test]
fn changes_one_after_the_other_are_all_seen() {
    let share = share();
    let path = share.path("f");
    std::fs::write(&path, "").unwrap();
    let attributes = [FileAttributes::HIDDEN, FileAttributes::SYSTEM];
    for change in 0..2_000 {
        set(&path, attributes[change % 2]);
        assert_eq!(attributes_of(&share), attributes[change % 2], "change {change}");
        if change % 200 == 0 {
            std::thread::sleep(SETTLED);
            assert_eq!(attributes_of(&share), attributes[change % 2], "change {change}, later");
        }
    }
}

/// A file that takes the number of a removed one has none of its attributes.
#[test]
fn a_new_file_has_nothing_of_an_old_one() {
    let share = share();
    let path = share.path("f");
    for round in 0..3 {
        std::fs::write(&path, "").unwrap();
        assert_eq!(attributes_of(&share), FileAttributes::NORMAL, "round {round}");
        set(&path, FileAttributes::HIDDEN);
        std::thread::sleep(SETTLED);
        assert_eq!([attributes_of(&share), attributes_of(&share)], [FileAttributes::HIDDEN; 2]);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_descriptor_that_is_set_is_seen() {
    let share = share();
    let path = share.path("f");
    std::fs::write(&path, "").unwrap();
    let stored = || share.vfs.open(&name("f"), &how()).unwrap().stored_security().unwrap();
    for bytes in [&[1; 60][..], &[2; 80]] {
        std::thread::sleep(SETTLED);
        assert_eq!([stored(), stored()], [None, None]);
        let opened = share.vfs.open(&name("f"), &how()).unwrap();
        let change = SecurityChange { descriptor: Some(bytes), ..SecurityChange::default() };
        opened.node.set_security(&change).unwrap();
        assert_eq!(opened.node.stored_security().unwrap().as_deref(), Some(bytes));
        assert_eq!(stored().as_deref(), Some(bytes));
        std::thread::sleep(SETTLED);
        assert_eq!([stored().as_deref(), stored().as_deref()], [Some(bytes); 2]);
        for attribute in ["security.NTACL", "user.NTACL"] {
            let _ = rustix::fs::removexattr(&path, attribute);
        }
        assert_eq!(stored(), None);
    }
}

/// Another program's change of a file that has just been made is seen, also within one tick of the
/// kernel's clock.
#[test]
fn a_change_of_a_new_file_is_seen() {
    let share = share();
    let make = OpenHow { existence: Existence::MustNotExist, ..how() };
    for kind in [KindWanted::NotDirectory, KindWanted::Directory] {
        for round in 0..200 {
            let made = share.vfs.open(&name("f"), &OpenHow { kind, ..make }).unwrap().stat;
            let is_file = kind == KindWanted::NotDirectory;
            assert_eq!(made.created, made.written, "round {round}");
            let path = share.path("f");
            let look = |share: &Share| share.vfs.open(&name("f"), &OpenHow::LOOK).unwrap();
            let again = look(&share).stat;
            assert_eq!((again.created, again.changed), (made.created, made.changed));
            assert_eq!(again.attributes, made.attributes);
            assert_eq!(look(&share).stored_security().unwrap(), None);
            set(&path, FileAttributes::HIDDEN);
            let kind = if is_file { FileAttributes::EMPTY } else { FileAttributes::DIRECTORY };
            assert_eq!(look(&share).stat.attributes, FileAttributes::HIDDEN | kind);
            set(&path, FileAttributes::SYSTEM);
            assert_eq!(look(&share).stat.attributes, FileAttributes::SYSTEM | kind);
            rustix::fs::removexattr(&path, dosattrib::NAME).unwrap();
            let bare = if is_file { FileAttributes::NORMAL } else { kind };
            assert_eq!(look(&share).stat.attributes, bare);
            if is_file { std::fs::remove_file(&path) } else { std::fs::remove_dir(&path) }.unwrap();
        }
    }
}

/// A descriptor that another program stores for a new file is read at once.
#[test]
fn a_descriptor_of_a_new_file_is_seen() {
    let share = share();
    let make = OpenHow { existence: Existence::MustNotExist, ..how() };
    for round in 0..50 {
        let file = format!("f{round}");
        let opened = share.vfs.open(&name(&file), &make).unwrap();
        let change = SecurityChange { descriptor: Some(&[1; 60]), ..SecurityChange::default() };
        opened.node.set_security(&change).unwrap();
        let attribute = ["security.NTACL", "user.NTACL"].into_iter().find_map(|attribute| {
            let mut value = vec![0; 4_096];
            let len = rustix::fs::getxattr(share.path(&file), attribute, &mut value).ok()?;
            value.truncate(len);
            Some((attribute, value))
        });
        let (attribute, value) = attribute.unwrap();
        let other = format!("g{round}");
        drop(share.vfs.open(&name(&other), &make).unwrap());
        let stored = || {
            let opened = share.vfs.open(&name(&other), &OpenHow::LOOK).unwrap();
            opened.stored_security().unwrap()
        };
        assert_eq!(stored(), None);
        let path = share.path(&other);
        rustix::fs::setxattr(&path, attribute, &value, XattrFlags::empty()).unwrap();
        assert_eq!(stored().as_deref(), Some(&[1; 60][..]), "round {round}");
    }
}

/// A FIFO or a link that takes the place of a file that was known is opened as what it is.
#[test]
fn a_replacement_does_not_get_the_facts_of_the_old_file() {
    let share = share();
    let path = share.path("f");
    let known = || {
        std::fs::write(&path, "").unwrap();
        std::thread::sleep(SETTLED);
        (0..4).for_each(|_| {
            let opened = share.vfs.open(&name("f"), &OpenHow::LOOK).unwrap();
            assert_eq!(opened.stored_security().unwrap(), None);
        });
        std::fs::remove_file(&path).unwrap();
    };
    known();
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    assert_eq!(share.vfs.open(&name("f"), &OpenHow::LOOK).unwrap().stat.kind, Kind::Fifo);
    std::fs::remove_file(&path).unwrap();
    known();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    assert_eq!(share.vfs.open(&name("f"), &OpenHow::LOOK).unwrap_err(), Fault::Symlink);
    std::fs::remove_file(&path).unwrap();
    known();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(share.vfs.open(&name("f"), &OpenHow::LOOK).unwrap().stat.kind, Kind::Directory);
}
