//! Disks that come and go at the path of a share. The tests need root, and say so when they are left
//! out.
#![allow(clippy::print_stdout, reason = "tests")]

use std::process::{Command, Stdio};

use frevo_posix::PosixOptions;
use frevo_store::vfs::Existence;
use tempfile::TempDir;

use super::*;

struct Disk {
    place: TempDir,
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl Disk {
    fn new() -> Self {
        let disk = Self { place: tempfile::tempdir().unwrap() };
        std::fs::create_dir(disk.path()).unwrap();
        disk
    }

    fn path(&self) -> PathBuf {
        self.place.path().join("disk")
    }

    /// Mounts a new file system of 8 MiB. False where that cannot be done.
    fn mount(&self) -> bool {
        let path = self.path();
        let done = run("mount", &["-t", "tmpfs", "-o", "size=8m", "none", path.to_str().unwrap()]);
        if !done {
            println!("left out: nothing can be mounted here");
        }
        done
    }

    /// Unmounts it, not by force.
    fn unmount(&self) -> bool {
        run("umount", &[self.path().to_str().unwrap()])
    }

    fn share(&self) -> ShareFolder {
        let path = self.path();
        let opener = move || PosixVfs::open_root(&path, PosixOptions::default());
        ShareFolder::open(&self.path(), Box::new(opener)).unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        while self.unmount() {}
    }
}

fn create(share: &ShareFolder, name: &str) -> VfsResult<Opened> {
    let how = OpenHow { existence: Existence::Either, write: true, read: true, ..OpenHow::LOOK };
    share.open(&Name::from_stored(name.to_owned()), &how)
}

fn looks(share: &ShareFolder, count: u32) {
    (0..count).for_each(|_| share.look());
}

/// Tests that a folder is closed after a while without use, not sooner, and opened by the next use.
#[test]
fn an_unused_folder_is_closed_and_opened_again() {
    let disk = Disk::new();
    let share = disk.share();
    let id = share.folder_id();
    let is_open = || share.opened.load().is_some();
    looks(&share, FOLDER_IDLE_LOOKS);
    assert!(is_open(), "the first look comes after a use");
    looks(&share, 1);
    assert!(!is_open());
    assert_eq!(share.probe().map(|space| space.total > 0), Ok(true));
    looks(&share, 1);
    assert!(!is_open(), "a look for administrators is no use");
    let file = create(&share, "a").unwrap();
    assert_eq!(share.folder_id(), id);
    looks(&share, 3 * FOLDER_IDLE_LOOKS);
    assert!(is_open(), "a file is open");
    drop(file);
    looks(&share, FOLDER_IDLE_LOOKS);
    assert!(!is_open());
}

/// Tests that a disk is not busy for a share that nobody uses, that clients do not fill the disk
/// below when it has gone, and that the next disk is served by itself.
#[test]
fn a_disk_can_be_unmounted_and_mounted_again() {
    let disk = Disk::new();
    if !disk.mount() {
        return;
    }
    let share = disk.share();
    drop(create(&share, "first").unwrap());
    assert!(!disk.unmount(), "the folder is open");
    looks(&share, FOLDER_IDLE_LOOKS + 1);
    assert!(disk.unmount(), "the folder is closed");
    assert_eq!(create(&share, "below").map(drop), Err(Fault::Dismounted));
    assert!(share.probe().unwrap_err().contains("was unmounted"));
    looks(&share, 3);
    assert_eq!(std::fs::read_dir(disk.path()).unwrap().count(), 0);
    assert!(disk.mount());
    share.look();
    assert!(share.probe().is_ok());
    drop(create(&share, "second").unwrap());
    assert!(disk.path().join("second").exists());
    // A reload takes what is there.
    looks(&share, FOLDER_IDLE_LOOKS + 1);
    assert!(disk.unmount());
    share.look();
    assert!(share.probe().is_err());
    share.accept();
    assert!(share.probe().is_ok());
    drop(create(&share, "below").unwrap());
    assert!(disk.path().join("below").exists());
}

/// Tests that a disk that is mounted on the folder is seen: no new file is made below it while
/// clients have files open there, and the disk is served when they have closed them.
#[test]
fn a_disk_mounted_later_is_seen() {
    let disk = Disk::new();
    let share = disk.share();
    let held = create(&share, "held").unwrap();
    if !disk.mount() {
        return;
    }
    share.look();
    let why = share.probe().unwrap_err();
    assert!(why.contains("another folder or disk") && why.contains("disk"), "{why}");
    assert_eq!(create(&share, "below").map(drop), Err(Fault::Dismounted));
    held.node.write_at(0, b"goes on").unwrap();
    drop(held);
    share.look();
    let total = share.probe().unwrap();
    assert_eq!(total.total * u64::from(total.unit), 8 << 20);
    drop(create(&share, "above").unwrap());
    assert!(disk.path().join("above").exists());
    looks(&share, FOLDER_IDLE_LOOKS + 1);
    assert!(disk.unmount());
    let below: Vec<_> =
        std::fs::read_dir(disk.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(below, ["held"]);
}

/// Tests that a folder which is removed and made again is served again.
#[test]
fn a_removed_folder_is_told_and_comes_back() {
    let disk = Disk::new();
    let share = disk.share();
    std::fs::remove_dir(disk.path()).unwrap();
    share.look();
    assert!(share.probe().unwrap_err().contains("was removed"));
    assert_eq!(create(&share, "a").map(drop), Err(Fault::Dismounted));
    std::fs::create_dir(disk.path()).unwrap();
    share.look();
    drop(create(&share, "a").unwrap());
    assert!(disk.path().join("a").exists());
}

/// Tests that many volumes, one after the other, stay within the limit.
#[test]
fn the_facts_of_volumes_are_bounded() {
    let disk = Disk::new();
    let share = disk.share();
    for serial in 0..2 * FOLDER_VOLUMES as u32 {
        share.keep_volume(&Volume::plain(serial, "NTFS"));
    }
    assert_eq!(share.volume().serial, FOLDER_VOLUMES as u32 - 2);
    share.keep_volume(&Volume::plain(7, "NTFS"));
    assert_eq!(share.volume().serial, FOLDER_VOLUMES as u32 - 2);
}
