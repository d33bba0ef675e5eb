//! Content of files, and access to it.

use alloc::vec;
use alloc::vec::Vec;

use super::{CREATE, EITHER, LOOK, READ, Subject, WRITE, content, name};
use crate::vfs::{Fault, HostAccess, Kind, OpenHow};

/// Tests writes, holes and ends of file.
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
    // The data begins inside of a page and covers several pages.
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

/// Tests allocation sizes. MS-FSA 2.1.5.15.1.
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

/// Tests that a node can read or write only if it was opened for that.
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
