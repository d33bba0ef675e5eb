//! Times, attributes and extended attributes.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use frevo_wire::dtyp::{FileAttributes, FileTime};

use super::{CREATE, CREATE_DIRECTORY, LOOK, Subject};
use crate::vfs::{BasicChange, Fault, KindWanted, OpenHow};

/// Tests that times are set, and that special values leave a time alone.
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
    // A node that was opened without access to the data can still set times and mode.
    let bare = s.open("a", &LOOK).unwrap();
    let change = BasicChange { written: at(9), mode: Some(0o640), ..BasicChange::default() };
    bare.node.set_basic(&change).unwrap();
    let stat = s.stat("a").unwrap();
    assert_eq!((Some(stat.written), Some(stat.created), stat.mode), (at(9), at(1), 0o640));
    made.node.write_at(0, b"x").unwrap();
    assert_ne!(Some(made.node.stat().unwrap().written), at(9));
}

/// Tests that DOS attributes are kept.
pub fn attributes_are_kept(s: &dyn Subject) {
    let attributes = FileAttributes::ARCHIVE | FileAttributes::HIDDEN;
    // A new file cannot get COMPRESSED or DIRECTORY by its attributes, so the request succeeds
    // without them.
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

/// Tests the case, the sizes and the removal of extended attributes.
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

/// Tests that FILE_NEED_EA stays with its attribute, whatever the case of its name, and goes with
/// it.
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
