//! Facts that are kept until a file changes: whoever changes it, the next answer is the new one.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{Share, how, name, share};
use frevo_posix::dosattrib;
use frevo_store::Vfs;
use frevo_store::vfs::SecurityChange;
use frevo_wire::dtyp::FileAttributes;
use rustix::fs::XattrFlags;

/// After this time what is read of a file may be kept.
const SETTLED: Duration = Duration::from_millis(60);

/// Sets the attributes as another program does.
fn set(path: &Path, attributes: FileAttributes) {
    let value = format!("0x{:x}", attributes.0);
    rustix::fs::setxattr(path, dosattrib::NAME, value.as_bytes(), XattrFlags::empty()).unwrap();
}

/// The attributes by each way to see them, which agree.
fn shown(share: &Share) -> FileAttributes {
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
        // Read, then known.
        assert_eq!([shown(&share), shown(&share)], [wanted; 2]);
    };
    is(FileAttributes::NORMAL);
    for attributes in [FileAttributes::HIDDEN, FileAttributes::READONLY, FileAttributes::SYSTEM] {
        set(&path, attributes);
        assert_eq!(shown(&share), attributes);
        is(attributes);
    }
    rustix::fs::removexattr(&path, dosattrib::NAME).unwrap();
    assert_eq!(shown(&share), FileAttributes::NORMAL);
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
        assert_eq!(shown(&share), attributes[change % 2], "change {change}");
        if change % 200 == 0 {
            std::thread::sleep(SETTLED);
            assert_eq!(shown(&share), attributes[change % 2], "change {change}, later");
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
        assert_eq!(shown(&share), FileAttributes::NORMAL, "round {round}");
        set(&path, FileAttributes::HIDDEN);
        std::thread::sleep(SETTLED);
        assert_eq!([shown(&share), shown(&share)], [FileAttributes::HIDDEN; 2]);
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
        let change = SecurityChange { descriptor: Some(bytes), uid: None, gid: None, mode: None };
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
