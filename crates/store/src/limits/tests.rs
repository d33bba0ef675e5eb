//! Limits at n - 1, n and n + 1.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use frevo_wire::Status;
use frevo_wire::create_context::LeaseKey;
use frevo_wire::dtyp::{AccessMask, FileTime, Guid};

use super::*;
use crate::byte_range::{ByteRanges, Mode, Range};
use crate::file::Admission;
use crate::lease::LeaseOwner;
use crate::lease::table::LeaseTable;
use crate::memory::{MemoryOptions, MemoryVfs};
use crate::name::{FolderId, Name, Rules};
use crate::open_id::OpenId;
use crate::share_mode::Sharing;
use crate::vfs::{Existence, Fault, KindWanted, Node, OpenHow};
use crate::{FileKey, FileTable, Vfs as _};

#[test]
fn names_are_as_long_as_they_may_be() {
    let components = |n: usize| (0..n).map(|_| "c").collect::<Vec<_>>().join("\\");
    let component = |n: usize| "é".repeat(n);
    let units = |n: usize| String::from(&["x".repeat(200).as_str(); 165].join("\\")[..n]);
    for (limit, make) in [
        (NAME_COMPONENTS, &components as &dyn Fn(usize) -> String),
        (COMPONENT_UNITS, &component),
        (NAME_UNITS, &units),
    ] {
        for n in [limit - 1, limit] {
            assert!(Name::parse(&make(n), Rules::Windows).is_ok(), "{n} of {limit}");
        }
        let refused = Name::parse(&make(limit + 1), Rules::Windows);
        assert_eq!(refused.unwrap_err(), Status::OBJECT_NAME_INVALID, "{limit}");
    }
}

/// Tests that the locks of a file are counted over all of its Opens, and that an unlock makes room.
#[test]
fn a_file_has_so_many_locks() {
    let mut ranges = ByteRanges::default();
    let lock = |ranges: &mut ByteRanges, n: usize| {
        let owner = OpenId((n / LOCKS_PER_OPEN) as u64);
        ranges.lock(owner, Range { offset: n as u64, length: 1 }, Mode::Exclusive)
    };
    for n in 0..LOCKS_PER_FILE {
        assert_eq!(lock(&mut ranges, n), Ok(()), "{n}");
    }
    assert_eq!(lock(&mut ranges, LOCKS_PER_FILE), Err(Status::INSUFFICIENT_RESOURCES));
    ranges.unlock(OpenId(0), Range { offset: 0, length: 1 }).unwrap();
    assert_eq!(lock(&mut ranges, LOCKS_PER_FILE), Ok(()));
}

#[test]
fn a_file_has_so_many_opens() {
    let (table, name) = (FileTable::default(), Name::from_stored("f".into()));
    let admit = |id: usize, inode| {
        let admission = Admission {
            id: OpenId(id as u64),
            folder_id: FolderId(1),
            access: AccessMask::READ_DATA,
            granted: AccessMask::READ_DATA,
            sharing: Sharing::ALL,
            delete_on_close: false,
            lease: None,
            overwrites: false,
        };
        table.admit(FileKey::of_file(1, inode), &name, admission).map(|admitted| admitted.cell)
    };
    let cells: Vec<_> = (0..OPENS_PER_FILE).map(|id| admit(id, 7).unwrap()).collect();
    assert_eq!(admit(OPENS_PER_FILE, 7).unwrap_err(), Status::INSUFFICIENT_RESOURCES);
    assert!(admit(OPENS_PER_FILE, 8).is_ok(), "another file");
    let vfs: Arc<dyn crate::Vfs> = Arc::new(memory());
    table.leave(&cells[0], OpenId(0), &vfs);
    assert!(admit(OPENS_PER_FILE + 1, 7).is_ok(), "one has gone");
}

#[test]
fn there_are_so_many_leases() {
    let table = LeaseTable::default();
    let owner = |n: usize| {
        let key = LeaseKey(u128::try_from(n).unwrap().to_le_bytes());
        LeaseOwner { client: Guid::default(), key }
    };
    let enter = |n: usize| table.enter(owner(n), FileKey::of_file(1, n as u64));
    for n in 0..LEASES {
        assert_eq!(enter(n), Ok(()), "{n}");
    }
    assert_eq!(enter(LEASES), Err(Status::INSUFFICIENT_RESOURCES));
    assert_eq!(enter(0), Ok(()), "a further Open of a lease");
    table.leave(owner(1));
    assert_eq!(enter(LEASES), Ok(()));
}

fn memory() -> MemoryVfs {
    MemoryVfs::new(MemoryOptions::default(), Arc::new(|| FileTime(1)))
}

fn make(vfs: &MemoryVfs, name: &Name) -> Result<Arc<dyn Node>, Fault> {
    let existence = Existence::Either;
    let kind = KindWanted::NotDirectory;
    let how = OpenHow { existence, kind, read: true, write: true, ..OpenHow::LOOK };
    vfs.open(name, &how).map(|opened| opened.node)
}

#[test]
fn files_in_memory_are_as_large_as_they_may_be() {
    let vfs = memory();
    let file = Name::from_stored("f".into());
    let node = make(&vfs, &file).unwrap();
    let stream = |n: usize| make(&vfs, &file.with_stream(Some(&alloc::format!("{n}")))).map(drop);
    (0..MEMORY_STREAMS).for_each(|n| stream(n).unwrap());
    assert_eq!(stream(MEMORY_STREAMS).unwrap_err(), Fault::DiskFull);

    let component = |n| make(&vfs, &Name::from_stored("c".repeat(n))).map(drop);
    let ea_name = |n| node.set_ea(&"n".repeat(n), b"v");
    let ea_value = |n| node.set_ea("n", &alloc::vec![1; n]);
    let end = |n| node.set_end_of_file(n as u64);
    type Take<'a> = &'a dyn Fn(usize) -> Result<(), Fault>;
    for (limit, take, fault) in [
        (MEMORY_COMPONENT_BYTES, &component as Take<'_>, Fault::NameTooLong),
        (MEMORY_EA_NAME_BYTES, &ea_name, Fault::NameInvalid),
        (MEMORY_EA_VALUE_BYTES, &ea_value, Fault::FileTooLarge),
        (MEMORY_FILE_BYTES as usize, &end, Fault::FileTooLarge),
    ] {
        assert_eq!(take(limit - 1), Ok(()), "{limit}");
        assert_eq!(take(limit), Ok(()), "{limit}");
        assert_eq!(take(limit + 1), Err(fault), "{limit}");
    }
}
