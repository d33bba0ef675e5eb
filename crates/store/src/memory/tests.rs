use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use std::string::{String, ToString as _};
use std::vec;
use std::vec::Vec;

use frevo_wire::dtyp::{FileAttributes, FileTime};
use proptest::prelude::*;

use super::{MemoryOptions, MemoryVfs, Operation};
use crate::conformance::Subject;
use crate::name::Name;
use crate::vfs::{
    BasicChange, Existence, Fault, KindWanted, Node, OpenHow, Opened, Vfs, VfsResult,
};

struct Memory(MemoryVfs);

impl Subject for Memory {
    fn vfs(&self) -> &dyn Vfs {
        &self.0
    }

    fn symlink(&self, at: &str, target: &str) {
        self.0.symlink(&name(at), target).unwrap();
    }
}

crate::conformance_tests!(Memory(memory(MemoryOptions::default())));

fn memory(options: MemoryOptions) -> MemoryVfs {
    let ticks = AtomicU64::new(0x01dc_0000_0000_0000);
    MemoryVfs::new(options, Arc::new(move || FileTime(ticks.fetch_add(1, Ordering::Relaxed))))
}

fn name(text: &str) -> Name {
    Name::from_stored(text.into())
}

const EITHER: OpenHow = OpenHow {
    existence: Existence::Either,
    kind: KindWanted::Any,
    read: true,
    write: true,
    open_link: false,
    attributes: FileAttributes::EMPTY,
    mode: None,
    case_sensitive: false,
};

fn open(vfs: &MemoryVfs, text: &str) -> Arc<dyn Node> {
    vfs.open(&name(text), &EITHER).unwrap().node
}

fn mkdir(vfs: &MemoryVfs, text: &str) -> VfsResult<Opened> {
    vfs.open(&name(text), &OpenHow { kind: KindWanted::Directory, ..EITHER })
}

fn contents(vfs: &MemoryVfs) -> Vec<(String, String)> {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    vfs.contents().into_iter().map(|(n, bytes)| (n.to_string(), text(bytes))).collect()
}

fn rename(vfs: &MemoryVfs, from: &str, to: &str) {
    let key = vfs.stat(&name(from)).unwrap().key;
    vfs.rename(&name(from), key, &name(to), true).unwrap();
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect()
}

#[test]
fn a_crash_leaves_what_was_synced() {
    let vfs = memory(MemoryOptions::default());
    mkdir(&vfs, "d").unwrap();
    let a = open(&vfs, "d\\a");
    a.write_at(0, b"kept").unwrap();
    assert_eq!(contents(&vfs.crash()), [], "nothing was synced");
    a.set_ea("x", b"y").unwrap();
    a.sync().unwrap();
    let key = a.key();
    a.write_at(2, b"lost").unwrap();
    a.set_ea("x", b"z").unwrap();
    open(&vfs, "d\\b").write_at(0, b"lost").unwrap();
    let after = vfs.crash();
    assert_eq!(contents(&after), pairs(&[("d\\a", "kept")]));
    let again = open(&after, "D\\A");
    assert_eq!((again.key(), again.eas().unwrap()), (key, vec![("x".into(), b"y".to_vec())]));
    assert_eq!(again.stat().unwrap().links, 1);
    // The copy after the crash is separate, so writing to it must not change the original.
    assert_eq!(contents(&vfs), pairs(&[("d\\a", "kelost"), ("d\\b", "lost")]));
    open(&after, "new").sync().unwrap();
    assert_ne!(open(&after, "new").key(), open(&vfs, "d\\b").key());
}

#[test]
fn directories_change_in_order() {
    let vfs = memory(MemoryOptions::default());
    let a = open(&vfs, "a");
    a.write_at(0, b"a").unwrap();
    a.sync().unwrap();
    rename(&vfs, "a", "b");
    let c = open(&vfs, "c");
    c.write_at(0, b"c").unwrap();
    vfs.remove(&name("b"), a.key()).unwrap();
    assert_eq!(contents(&vfs.crash()), pairs(&[("a", "a")]));
    // A crash may keep the first 0, 1, 2 or more changes of names, but never a later change without
    // the earlier ones.
    for (count, expected) in [
        (0, pairs(&[("a", "a")])),
        (1, pairs(&[("b", "a")])),
        (2, pairs(&[("b", "a"), ("c", "")])),
        (3, pairs(&[("c", "")])),
    ] {
        let mut left = count;
        let after = vfs.crash_with(&mut || {
            left -= 1;
            left >= 0
        });
        assert_eq!(contents(&after), expected, "{count}");
    }
    // Syncing any file makes all earlier changes of names durable, so a crash keeps them.
    open(&vfs, "d").sync().unwrap();
    assert_eq!(contents(&vfs.crash()), pairs(&[("c", ""), ("d", "")]));
    assert_eq!(contents(&vfs.crash_with(&mut || true)), contents(&vfs));
}

#[test]
fn a_replacing_rename_is_never_seen_by_half() {
    let vfs = memory(MemoryOptions::default());
    let old = open(&vfs, "file");
    old.write_at(0, b"old").unwrap();
    old.sync().unwrap();
    let new = open(&vfs, "temporary");
    new.write_at(0, b"new").unwrap();
    new.sync().unwrap();
    rename(&vfs, "temporary", "FILE");
    assert_eq!(contents(&vfs.crash()), pairs(&[("file", "old"), ("temporary", "new")]));
    new.sync().unwrap();
    assert_eq!(contents(&vfs.crash()), pairs(&[("FILE", "new")]));
    assert_eq!(old.stat().unwrap().links, 0);
}

#[test]
fn a_failed_sync_makes_nothing_stable() {
    let vfs = memory(MemoryOptions::default());
    let a = open(&vfs, "a");
    vfs.faults().fail_next(Operation::Sync, Fault::Io(5));
    assert_eq!(a.sync(), Err(Fault::Io(5)));
    assert_eq!(contents(&vfs.crash()), []);
    a.sync().unwrap();
    assert_eq!(contents(&vfs.crash()), pairs(&[("a", "")]));
}

#[test]
fn the_volume_fills_up_and_gives_space_back() {
    let vfs = memory(MemoryOptions { capacity: 4 * 4096 + 100, ..MemoryOptions::default() });
    let free = || vfs.space().unwrap().free;
    assert_eq!((vfs.space().unwrap().total, free()), (4, 4));
    let a = open(&vfs, "a");
    a.write_at(0, &[1; 3 * 4096]).unwrap();
    let b = open(&vfs, "b");
    assert_eq!(b.write_at(4000, &[2; 4096]), Err(Fault::DiskFull));
    assert_eq!(b.stat().unwrap().end_of_file, 4096, "what fits is written");
    assert_eq!(free(), 0);
    a.write_at(100, &[3; 4096]).unwrap();
    assert_eq!(b.set_allocation(8192), Err(Fault::DiskFull));
    vfs.faults().set_capacity(5 * 4096);
    b.set_allocation(8192).unwrap();
    assert_eq!(free(), 0);
    vfs.remove(&name("a"), a.key()).unwrap();
    assert_eq!(free(), 0, "somebody has it open");
    drop(a);
    assert_eq!(free(), 3);
    b.set_end_of_file(0).unwrap();
    assert_eq!(free(), 5);
    b.write_at(0, b"x").unwrap();
    b.sync().unwrap();
    assert_eq!(vfs.crash().space().unwrap().free, 4);
    vfs.faults().set_capacity(0);
    assert_eq!((vfs.space().unwrap().total, free()), (0, 0));
}

#[test]
fn read_only_stays_as_it_is() {
    let vfs = memory(MemoryOptions { read_only: true, ..MemoryOptions::default() });
    let root = vfs.open(&Name::root(), &OpenHow { write: false, ..EITHER }).unwrap().node;
    assert_eq!(vfs.open(&name("a"), &EITHER).unwrap_err(), Fault::ReadOnly);
    assert_eq!(mkdir(&vfs, "d").unwrap_err(), Fault::ReadOnly);
    let write = OpenHow { existence: Existence::MustExist, ..EITHER };
    assert_eq!(vfs.open(&name("a"), &write).unwrap_err(), Fault::ReadOnly);
    assert_eq!(vfs.remove(&name("a"), root.key()), Err(Fault::ReadOnly));
    assert_eq!(vfs.rename(&name("a"), root.key(), &name("b"), true), Err(Fault::ReadOnly));
    assert_eq!(vfs.link(&*root, &name("b"), true), Err(Fault::ReadOnly));
    assert_eq!(root.set_basic(&BasicChange::default()), Err(Fault::ReadOnly));
    assert_eq!(root.set_ea("a", b"b"), Err(Fault::ReadOnly));
    assert!(!root.host_access().write);
}

#[test]
fn every_operation_can_fail() {
    let vfs = memory(MemoryOptions::default());
    let a = open(&vfs, "a");
    let dir = mkdir(&vfs, "d").unwrap().node;
    let mut listing = dir.directory().unwrap();
    let outcome = |operation| match operation {
        Operation::Open => vfs.open(&name("a"), &EITHER).map(drop),
        Operation::Create => vfs.open(&name("new"), &EITHER).map(drop),
        Operation::Remove => vfs.remove(&name("a"), a.key()),
        Operation::Rename => vfs.rename(&name("a"), a.key(), &name("b"), true).map(drop),
        Operation::Link => vfs.link(&*a, &name("b"), true),
        Operation::Stat => a.stat().map(drop),
        Operation::Space => vfs.space().map(drop),
        Operation::Read => a.read_at(0, &mut [0; 10]).map(drop),
        Operation::Write => a.write_at(0, b"x"),
        Operation::Sync => a.sync(),
        Operation::SetEndOfFile => a.set_end_of_file(10),
        Operation::SetAllocation => a.set_allocation(10),
        Operation::SetBasic => a.set_basic(&BasicChange::default()),
        Operation::List => dir.directory().map(drop),
        Operation::Eas => a.eas().map(drop),
        Operation::SetEa => a.set_ea("a", b"b"),
    };
    let state = || (vfs.contents(), a.stat().unwrap(), vfs.stat(&name("a")).unwrap());
    let before = state();
    for operation in [
        Operation::Open,
        Operation::Create,
        Operation::Remove,
        Operation::Rename,
        Operation::Link,
        Operation::Stat,
        Operation::Space,
        Operation::Read,
        Operation::Write,
        Operation::Sync,
        Operation::SetEndOfFile,
        Operation::SetAllocation,
        Operation::SetBasic,
        Operation::List,
        Operation::Eas,
        Operation::SetEa,
    ] {
        vfs.faults().fail_next(operation, Fault::Io(5));
        assert_eq!(outcome(operation), Err(Fault::Io(5)), "{operation:?}");
        assert!(!vfs.faults().is_pending(), "{operation:?}");
        assert_eq!(state(), before, "{operation:?} changed something");
    }
    vfs.faults().fail_next(Operation::List, Fault::NoMemory);
    assert_eq!(listing.next_name(), Err(Fault::NoMemory));
    assert_eq!(listing.next_name(), Ok(None));
}

#[derive(Debug, Clone)]
enum Step {
    Write(usize, u16, u16, u8),
    Cut(usize, u16),
    Sync(usize),
    Rename(usize, usize),
    Remove(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let file = 0..4usize;
    prop_oneof![
        4 => (file.clone(), 0..12_000u16, 1..6_000u16, any::<u8>())
            .prop_map(|(f, at, len, byte)| Step::Write(f, at, len, byte)),
        1 => (file.clone(), 0..12_000u16).prop_map(|(f, end)| Step::Cut(f, end)),
        2 => file.clone().prop_map(Step::Sync),
        1 => (file.clone(), file.clone()).prop_map(|(a, b)| Step::Rename(a, b)),
        1 => file.prop_map(Step::Remove),
    ]
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[test]
fn a_mount_that_is_refused_changes_nothing() {
    let vfs = memory(MemoryOptions::default());
    let (one, two) = (vfs.mount(), vfs.mount());
    let held = open(&one, "f");
    held.write_at(0, b"one").unwrap();
    let other = open(&two, "f");
    let gone = Fault::Io(107);
    one.faults().refuse(Some(gone));
    assert_eq!(held.write_at(0, b"two"), Err(gone));
    assert_eq!(held.sync(), Err(gone));
    assert!(matches!(one.open(&name("f"), &EITHER), Err(fault) if fault == gone));
    let mut found = [0; 3];
    assert_eq!(other.read_at(0, &mut found), Ok(3));
    assert_eq!(&found, b"one");
    other.write_at(0, b"six").unwrap();
    one.faults().refuse(None);
    held.read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"six");
}

#[test]
fn a_process_that_is_stopped_within_a_write_goes_on_with_it() {
    for is_refused in [false, true] {
        let vfs = memory(MemoryOptions::default());
        let mount = vfs.mount();
        let file = open(&mount, "f");
        file.write_at(0, b"before").unwrap();
        let begun = Arc::new(parking_lot::Mutex::new(None));
        let taken = Arc::clone(&begun);
        mount.faults().stop_in_write(Some(alloc::boxed::Box::new(move |write| {
            *taken.lock() = Some(write);
        })));
        file.write_at(0, b"after!").unwrap();
        let content = || vfs.contents().into_iter().map(|(_, bytes)| bytes).next().unwrap();
        assert_eq!(content(), b"before");
        if is_refused {
            mount.faults().refuse(Some(Fault::Io(107)));
        }
        let write = begun.lock().take().unwrap();
        assert_eq!(write.finish().is_err(), is_refused);
        assert_eq!(content(), if is_refused { b"before" } else { b"after!" });
        mount.faults().refuse(None);
        file.write_at(0, b"later!").unwrap();
        assert_eq!(content(), b"later!", "only one write is stopped");
    }
}

proptest! {
    /// Tests that any crash that the model allows keeps files that were synced and not changed
    /// since, and that a crash right after a crash loses nothing more.
    #[test]
    fn no_crash_takes_what_was_synced(steps in prop::collection::vec(step(), 1..40), seed: u64) {
        let vfs = memory(MemoryOptions::default());
        // `synced` has each file's content at its last sync. A change afterwards makes it None,
        // because a crash may then keep either content.
        let mut synced: [Option<Vec<u8>>; 4] = [None, None, None, None];
        let whole = |vfs: &MemoryVfs, at: usize| {
            vfs.contents().into_iter().find(|(n, _)| n.path() == NAMES[at]).map(|(_, c)| c)
        };
        for step in &steps {
            match *step {
                Step::Write(f, at, len, byte) => {
                    let data = vec![byte; len.into()];
                    open(&vfs, NAMES[f]).write_at(at.into(), &data).unwrap();
                    synced[f] = None;
                }
                Step::Cut(f, end) => {
                    open(&vfs, NAMES[f]).set_end_of_file(end.into()).unwrap();
                    synced[f] = None;
                }
                Step::Sync(f) => {
                    open(&vfs, NAMES[f]).sync().unwrap();
                    synced[f] = whole(&vfs, f);
                    prop_assert_eq!(whole(&vfs.crash(), f), synced[f].clone());
                }
                Step::Rename(a, b) => {
                    if a != b && vfs.stat(&name(NAMES[a])).is_ok() {
                        rename(&vfs, NAMES[a], NAMES[b]);
                        // The rename may be lost in a crash, so the file may then have its old or
                        // its new name.
                        (synced[a], synced[b]) = (None, None);
                    }
                }
                Step::Remove(f) => {
                    if let Ok(stat) = vfs.stat(&name(NAMES[f])) {
                        vfs.remove(&name(NAMES[f]), stat.key).unwrap();
                        synced[f] = None;
                    }
                }
            }
        }
        let mut bits = seed;
        let after = vfs.crash_with(&mut || { bits = bits.rotate_left(1); bits & 1 == 1 });
        for (f, expected) in synced.into_iter().enumerate() {
            if let Some(expected) = expected {
                prop_assert_eq!(whole(&after, f), Some(expected), "{}", NAMES[f]);
            }
        }
        // Each file that survived the crash can be opened and removed.
        let used = after.contents().len();
        for (name, _) in after.contents() {
            let key = after.stat(&name).unwrap().key;
            after.remove(&name, key).unwrap();
        }
        prop_assert!(used <= 4);
        let space = after.space().unwrap();
        prop_assert_eq!(space.free, space.total);
    }
}
