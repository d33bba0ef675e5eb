//! Extents that XFS and btrfs share. Left out, with a word, where neither can
//! be mounted.
#![allow(clippy::print_stdout, unreachable_pub, reason = "tests")]

mod common;
#[path = "common/loops.rs"]
mod loops;

use std::path::Path;

use common::name;
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_store::conformance::{self, Subject};
use frevo_store::vfs::{DiskExtents, ExtentCopy, KindWanted, OpenHow};
use frevo_store::{Fault, Node, Vfs};
use frevo_wire::dtyp::FileAttributes;
use loops::Mounted;

struct Volume<'a> {
    vfs: PosixVfs,
    root: &'a Path,
}

impl Subject for Volume<'_> {
    fn vfs(&self) -> &dyn Vfs {
        &self.vfs
    }

    fn symlink(&self, name: &str, target: &str) {
        std::os::unix::fs::symlink(target, self.root.join(name.replace('\\', "/"))).unwrap();
    }
}

fn conforms(kind: &str, megabytes: u64) {
    let Some(mounted) = Mounted::new(kind, megabytes, &["-q"], "loop") else { return };
    type Check = fn(&dyn Subject);
    let checks: [Check; 3] = [
        conformance::extents_are_shared_or_not_at_all,
        conformance::extents_need_rights_and_sense,
        conformance::zeros_are_read_and_holes_are_seen,
    ];
    for (number, check) in checks.into_iter().enumerate() {
        let root = mounted.path().join(format!("share{number}"));
        std::fs::create_dir(&root).unwrap();
        let vfs = PosixVfs::open_root(&root, PosixOptions::default()).unwrap();
        assert!(vfs.volume().shares_extents, "{kind} can");
        check(&Volume { vfs, root: &root });
    }
    extents_have_places(&mounted.path());
    shared_blocks_are_taken_once(&mounted.path());
    compression_is_kept_and_inherited(&mounted.path(), kind == "btrfs");
}

fn compression_is_kept_and_inherited(path: &Path, able: bool) {
    let vfs = PosixVfs::open_root(path, PosixOptions::default()).unwrap();
    assert_eq!(vfs.volume().compresses, able);
    let is_compressed =
        |node: &dyn Node| node.stat().unwrap().attributes.contains(FileAttributes::COMPRESSED);
    let how = OpenHow { kind: KindWanted::Directory, ..common::create() };
    let directory = vfs.open(&name("compressed"), &how).unwrap().node;
    assert!(!is_compressed(&*directory));
    if !able {
        assert_eq!(directory.set_compressed(true), Err(Fault::NotSupported));
        return;
    }
    directory.set_compressed(true).unwrap();
    assert!(is_compressed(&*directory));
    let file = vfs.open(&name("compressed\\file"), &common::create()).unwrap().node;
    assert!(is_compressed(&*file), "as its directory");
    file.set_compressed(false).unwrap();
    assert!(!is_compressed(&*file) && is_compressed(&*directory));
}

/// Data that is on the disk has places that do not overlap, and holes have none.
fn extents_have_places(path: &Path) {
    let vfs = PosixVfs::open_root(path, PosixOptions::default()).unwrap();
    let file = vfs.open(&name("pieces"), &common::create()).unwrap().node;
    assert_eq!(file.extents_on_disk(0, 10), Ok(DiskExtents::default()));
    // More pieces than one call to the kernel returns.
    let (piece, count) = (64 * 1024, 150);
    for at in 0..count {
        file.write_at(2 * at * piece, &vec![1; piece as usize]).unwrap();
    }
    file.sync().unwrap();
    let found = file.extents_on_disk(0, 1_000).unwrap();
    assert!(!found.has_more && found.extents.len() >= 150, "{found:?}");
    let mut places: Vec<_> =
        found.extents.iter().map(|e| (e.place.unwrap(), e.beyond - e.first)).collect();
    places.sort_unstable();
    assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{places:?}");
    let bytes: u64 = places.iter().map(|(_, length)| length).sum();
    assert_eq!(bytes, count * piece);
    // The look begins with the extent that the byte is in, and ends at the limit.
    let some = file.extents_on_disk(200 * piece, 3).unwrap();
    assert!(some.has_more && some.extents.len() == 3, "{some:?}");
    assert_eq!(some.extents[0].first, 200 * piece);
    // Also for a handle that may not read the data.
    let looks = OpenHow { read: false, write: false, ..OpenHow::LOOK };
    let looks = vfs.open(&name("pieces"), &looks).unwrap().node;
    assert_eq!(looks.extents_on_disk(0, 1_000), Ok(found));
}

/// ext4 and what the test's own folder is on; tmpfs cannot tell.
#[test]
fn extents_have_places_on_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
    let file = vfs.open(&name("f"), &common::create()).unwrap().node;
    if file.extents_on_disk(0, 1) == Err(Fault::NotSupported) {
        println!("left out: {} does not tell places", dir.path().display());
        return;
    }
    extents_have_places(dir.path());
}

/// Half of a volume, copied ten times, fits.
fn shared_blocks_are_taken_once(path: &Path) {
    let vfs = PosixVfs::open_root(path, PosixOptions::default()).unwrap();
    let space = vfs.space().unwrap();
    let length = (space.available * u64::from(space.unit) / 2).min(64 << 20) >> 20 << 20;
    let source = vfs.open(&name("large"), &common::create()).unwrap().node;
    for at in (0..length).step_by(1 << 20) {
        source.write_at(at, &vec![at as u8 | 1; 1 << 20]).unwrap();
    }
    source.sync().unwrap();
    let before = vfs.space().unwrap().available;
    for number in 0..10 {
        let copy = vfs.open(&name(&format!("copy{number}")), &common::create()).unwrap().node;
        let all = ExtentCopy { source_offset: 0, target_offset: 0, length, is_atomic: true };
        copy.share_extents(&*source, &all).unwrap();
        copy.sync().unwrap();
        let mut last = [0; 4];
        copy.read_at(length - 4, &mut last).unwrap();
        assert_ne!(last, [0; 4]);
    }
    let taken = (before - vfs.space().unwrap().available) * u64::from(space.unit);
    assert!(taken < length / 2, "{taken} of {length} bytes");
}

#[test]
fn xfs_shares() {
    conforms("xfs", 512);
}

#[test]
fn btrfs_shares() {
    conforms("btrfs", 256);
}

#[test]
fn two_volumes_share_nothing() {
    let Some(one) = Mounted::new("btrfs", 128, &["-q"], "loop") else { return };
    let Some(other) = Mounted::new("btrfs", 128, &["-q"], "loop") else { return };
    let [one, other] = [one.path(), other.path()].map(|path| {
        let vfs = PosixVfs::open_root(&path, PosixOptions::default()).unwrap();
        vfs.open(&name("f"), &common::create()).unwrap().node
    });
    one.write_at(0, &[1; 4096]).unwrap();
    let all = ExtentCopy { source_offset: 0, target_offset: 0, length: 4096, is_atomic: false };
    assert_eq!(other.share_extents(&*one, &all), Err(Fault::CrossDevice));
}

/// Tests that zeros take no space, and that what is refused leaves none taken, on a small disk with a
/// file of 4 TiB.
fn refusals_leave_nothing(kind: &str, megabytes: u64, make: &[&str]) {
    let Some(mounted) = Mounted::new(kind, megabytes, make, "loop") else { return };
    let vfs = PosixVfs::open_root(&mounted.path(), PosixOptions::default()).unwrap();
    let node = vfs.open(&name("f"), &common::create()).unwrap().node;
    let (end, far) = (1 << 42, 1 << 41);
    node.set_end_of_file(end).unwrap();
    for at in [1 << 20, far] {
        node.write_at(at, &[1; 1 << 16]).unwrap();
    }
    node.sync().unwrap();
    let free = || {
        let space = vfs.space().unwrap();
        space.available * u64::from(space.unit)
    };
    let byte = |at: u64| {
        let mut byte = [9];
        node.read_at(at, &mut byte).unwrap();
        byte[0]
    };
    let before = free();
    node.zero(0, end, false).unwrap();
    assert_eq!([byte(1 << 20), byte(far), byte(far + 65_535)], [0; 3], "{kind}");
    node.sync().unwrap();
    assert!(before.saturating_sub(free()) < 1 << 20, "{kind}: {before} {}", free());
    // The range begins and ends inside of existing data, whose bytes outside of the range must
    // stay.
    node.write_at(0, &[7; 16_384]).unwrap();
    node.zero(100, 12_000, false).unwrap();
    assert_eq!([byte(99), byte(100), byte(12_099), byte(12_100)], [7, 0, 0, 7], "{kind}");
    let before = free();
    assert_eq!(node.set_allocation(3 * end), Err(Fault::DiskFull), "{kind}");
    assert_eq!(free(), before, "{kind}");
    assert_eq!(node.stat().unwrap().end_of_file, end);
    node.zero(0, end, true).unwrap();
    assert_eq!(node.stat().unwrap().allocation, 0, "{kind}");
}

#[test]
fn refused_requests_leave_no_space_taken() {
    // Blocks of 4,096 bytes are requested, because smaller ones limit a file on ext4 to less than 4
    // TiB.
    refusals_leave_nothing("ext4", 64, &["-q", "-b", "4096"]);
    refusals_leave_nothing("xfs", 512, &["-q"]);
    refusals_leave_nothing("btrfs", 256, &["-q"]);
}
