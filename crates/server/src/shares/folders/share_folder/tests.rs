//! Disks that come and go at the path of a share. The tests need root, and say so when they are left
//! out.
#![allow(clippy::print_stdout, reason = "tests")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use frevo_posix::PosixOptions;
use frevo_posix::credentials::Credentials;
use frevo_store::vfs::Existence;
use rustix::thread::CapabilitySet;
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
            let held = rustix::thread::capabilities(None).unwrap();
            assert!(!held.effective.contains(CapabilitySet::SYS_ADMIN), "root cannot mount");
            println!("left out: nothing can be mounted here");
        }
        done
    }

    /// Unmounts it, not by force.
    fn unmount(&self) -> bool {
        run("umount", &[self.path().to_str().unwrap()])
    }

    /// Unmounts it as soon as this process holds nothing of it. A program that another test starts has
    /// the descriptors of this process for a moment, between `fork` and `exec`, and they keep the disk
    /// busy.
    fn is_released(&self) -> bool {
        let begun = Instant::now();
        loop {
            if self.unmount() {
                return true;
            }
            if begun.elapsed() > Duration::from_secs(5) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn share(&self) -> ShareFolder {
        share_of(&self.path())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        while self.unmount() {}
    }
}

fn share_of(path: &Path) -> ShareFolder {
    let folder = path.to_owned();
    let opener = move || PosixVfs::open_root(&folder, PosixOptions::default());
    ShareFolder::open(path, Box::new(opener)).unwrap()
}

fn create(share: &ShareFolder, name: &str) -> VfsResult<Opened> {
    let how = OpenHow { existence: Existence::Either, write: true, read: true, ..OpenHow::LOOK };
    share.open(&Name::from_stored(name.to_owned()), &how)
}

fn looks(share: &ShareFolder, count: u32) {
    (0..count).for_each(|_| share.look(Look::Timed));
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
    assert!(disk.is_released(), "the folder is closed");
    assert_eq!(create(&share, "below").map(drop), Err(Fault::Dismounted));
    assert!(share.probe().unwrap_err().contains("was unmounted"));
    looks(&share, 3);
    assert_eq!(std::fs::read_dir(disk.path()).unwrap().count(), 0);
    assert!(disk.mount());
    share.look(Look::Timed);
    assert!(share.probe().is_ok());
    drop(create(&share, "second").unwrap());
    assert!(disk.path().join("second").exists());
    // After an unmount the share fails, until `accept` (a change of the share) takes the folder
    // that is now at the path.
    looks(&share, FOLDER_IDLE_LOOKS + 1);
    assert!(disk.is_released());
    share.look(Look::Timed);
    assert!(share.probe().is_err());
    share.look(Look::Untimed);
    assert!(share.probe().unwrap_err().contains("was unmounted"), "a reload for another reason");
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
    share.look(Look::Timed);
    let why = share.probe().unwrap_err();
    assert!(why.contains("another folder or disk") && why.contains("disk"), "{why}");
    assert_eq!(create(&share, "below").map(drop), Err(Fault::Dismounted));
    held.node.write_at(0, b"goes on").unwrap();
    drop(held);
    share.look(Look::Timed);
    let total = share.probe().unwrap();
    assert_eq!(total.total * u64::from(total.unit), 8 << 20);
    drop(create(&share, "above").unwrap());
    assert!(disk.path().join("above").exists());
    looks(&share, FOLDER_IDLE_LOOKS + 1);
    assert!(disk.is_released());
    let below: Vec<_> =
        std::fs::read_dir(disk.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(below, ["held"]);
}

/// Tests that clients do not fill a folder of the same name on the disk above, when the disk of a
/// share's folder has gone, and that a link which leads elsewhere is followed.
#[test]
fn a_folder_on_a_disk_is_not_that_of_the_disk_above() {
    let disk = Disk::new();
    let (folder, link) = (disk.path().join("data"), disk.place.path().join("link"));
    std::fs::create_dir(&folder).unwrap();
    if !disk.mount() {
        return;
    }
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::symlink(&folder, &link).unwrap();
    let (share, linked) = (share_of(&folder), share_of(&link));
    looks(&share, FOLDER_IDLE_LOOKS + 1);
    looks(&linked, FOLDER_IDLE_LOOKS + 1);
    assert!(disk.is_released());
    for share in [&share, &linked] {
        assert_eq!(create(share, "below").map(drop), Err(Fault::Dismounted));
        share.look(Look::Timed);
        assert!(share.probe().unwrap_err().contains("was unmounted"));
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    let other = disk.place.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&other, &link).unwrap();
    linked.look(Look::Timed);
    drop(create(&linked, "moved").unwrap());
    assert!(other.join("moved").exists());
    assert!(disk.mount());
    std::fs::create_dir(&folder).unwrap();
    share.look(Look::Timed);
    drop(create(&share, "above").unwrap());
    assert!(folder.join("above").exists());
}

/// Tests that a user opens a closed folder below one that the user may not search.
#[test]
fn a_user_needs_no_right_on_the_folders_above() {
    use std::os::unix::fs::PermissionsExt;
    if let Err(why) = credentials::check() {
        println!("left out: {why}");
        return;
    }
    let disk = Disk::new();
    let mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode));
    mode(disk.place.path(), 0o700).unwrap();
    mode(&disk.path(), 0o777).unwrap();
    let share = disk.share();
    looks(&share, FOLDER_IDLE_LOOKS + 1);
    assert!(share.opened.load().is_none());
    let user = Arc::new(Credentials::new(12_345, 12_345, &[]).unwrap());
    let acting = user.assume().unwrap();
    let file = create(&share, "a").map(drop);
    drop(acting);
    assert_eq!(file, Ok(()));
    assert!(share.probe().is_ok());
}

/// Tests that a disk is served at once which the opening of its folder mounts, as an automounter
/// does.
#[test]
fn a_disk_mounted_by_the_opening_is_served() {
    let disk = Arc::new(Disk::new());
    let is_wanted = Arc::new(AtomicBool::new(false));
    let (opened, mounts) = (Arc::clone(&disk), Arc::clone(&is_wanted));
    let opener = move || {
        if mounts.swap(false, Ordering::Relaxed) {
            opened.mount();
        }
        PosixVfs::open_root(&opened.path(), PosixOptions::default())
    };
    let share = ShareFolder::open(&disk.path(), Box::new(opener)).unwrap();
    looks(&share, FOLDER_IDLE_LOOKS + 1);
    is_wanted.store(true, Ordering::Relaxed);
    let file = create(&share, "a").map(drop);
    assert_eq!(file, Ok(()));
    assert!(disk.path().join("a").exists());
    looks(&share, FOLDER_IDLE_LOOKS + 1);
    assert!(share.opened.load().is_none());
}

/// Tests that mounts elsewhere on the host do not make a folder look idle.
#[test]
fn only_looks_of_the_timer_count_as_idle() {
    let disk = Disk::new();
    let share = disk.share();
    looks(&share, FOLDER_IDLE_LOOKS);
    (0..10).for_each(|_| share.look(Look::Untimed));
    assert!(share.opened.load().is_some());
    drop(create(&share, "a").unwrap());
    share.look(Look::Untimed);
    looks(&share, FOLDER_IDLE_LOOKS);
    assert!(share.opened.load().is_some(), "the use counts for the first look of the timer");
    looks(&share, 1);
    assert!(share.opened.load().is_none());
}

/// Tests that a folder stays open and locked when a call takes it while it is being closed.
#[test]
fn a_call_in_the_middle_of_the_closing_keeps_the_folder() {
    let disk = Disk::new();
    let share = disk.share();
    share.claim().unwrap();
    let taken = share.in_use().unwrap();
    let mut state = share.state.lock();
    assert!(!share.close(&mut state, Arc::clone(&taken)));
    assert!(state.lock.is_some() && share.opened.load().is_some());
    let how = OpenHow { existence: Existence::Either, write: true, ..OpenHow::LOOK };
    let file = taken.open(&Name::from_stored(String::from("a")), &how).unwrap();
    assert!(!share.close(&mut state, taken));
    assert!(state.lock.is_some() && share.opened.load().is_some());
    drop(file);
    let vfs = share.opened.load_full().unwrap();
    assert!(share.close(&mut state, vfs));
    assert!(state.lock.is_none() && share.opened.load().is_none());
}

/// Tests that a folder which is removed and made again is served again.
#[test]
fn a_removed_folder_is_told_and_comes_back() {
    let disk = Disk::new();
    let share = disk.share();
    std::fs::remove_dir(disk.path()).unwrap();
    share.look(Look::Timed);
    assert!(share.probe().unwrap_err().contains("was removed"));
    assert_eq!(create(&share, "a").map(drop), Err(Fault::Dismounted));
    std::fs::create_dir(disk.path()).unwrap();
    share.look(Look::Timed);
    drop(create(&share, "a").unwrap());
    assert!(disk.path().join("a").exists());
}

/// Tests that clients are told the facts of each disk that is mounted, however many there were.
#[test]
fn the_facts_are_those_of_the_last_disk() {
    let disk = Disk::new();
    let share = disk.share();
    let below = share.volume().serial;
    for _ in 0..40 {
        if !disk.mount() {
            return;
        }
        share.look(Look::Untimed);
        drop(create(&share, "a").unwrap());
        let mounted = PosixVfs::open_root(&disk.path(), PosixOptions::default()).unwrap();
        assert_eq!(share.volume(), mounted.volume());
        assert_ne!(share.volume().serial, below);
        drop(mounted);
        looks(&share, FOLDER_IDLE_LOOKS + 1);
        assert!(disk.is_released());
        share.accept();
    }
    drop(create(&share, "a").unwrap());
    assert_eq!(share.volume().serial, below);
}

/// Tests that a disk which is mounted for a closed folder does not stay busy by the look that sees
/// it, and that requests leave the core while the folder is closed.
#[test]
fn a_look_at_another_disk_leaves_it_closed() {
    let disk = Disk::new();
    let share = disk.share();
    assert!(!share.may_wait(), "the folder is open, on a disk of this host");
    looks(&share, FOLDER_IDLE_LOOKS + 1);
    assert!(share.opened.load().is_none() && share.may_wait());
    if !disk.mount() {
        return;
    }
    share.look(Look::Untimed);
    assert!(share.probe().is_ok() && share.opened.load().is_none());
    assert!(disk.is_released());
}

/// Tests the sentences for a process that is confined to the folder of its start, which an opener
/// without rights stands for: the state fails by a look, before a client comes, and it is well again
/// when the old folder is back.
#[test]
fn a_confined_process_tells_that_it_needs_a_restart() {
    let disk = Disk::new();
    let (folder, first) = (disk.path(), Located::of(&disk.path()).unwrap());
    let opener = move || {
        if Located::of(&folder)? == first {
            PosixVfs::open_root(&folder, PosixOptions::default())
        } else {
            Err(io::Error::from_raw_os_error(rustix::io::Errno::ACCESS.raw_os_error()))
        }
    };
    let share = ShareFolder::open(&disk.path(), Box::new(opener)).unwrap();
    looks(&share, FOLDER_IDLE_LOOKS + 1);
    if !disk.mount() {
        return;
    }
    share.look(Look::Untimed);
    let why = share.probe().unwrap_err();
    assert!(why.contains("a disk was mounted") && why.contains("restart frevo"), "{why}");
    assert_eq!(create(&share, "a").map(drop), Err(Fault::Dismounted));
    assert!(disk.is_released());
    share.look(Look::Untimed);
    assert!(share.probe().is_ok());
    drop(create(&share, "a").unwrap());
    looks(&share, FOLDER_IDLE_LOOKS + 1);
    std::fs::rename(disk.path(), disk.place.path().join("old")).unwrap();
    std::fs::create_dir(disk.path()).unwrap();
    assert_eq!(create(&share, "a").map(drop), Err(Fault::Dismounted), "the first to see it");
    let why = share.probe().unwrap_err();
    assert!(why.contains("was made after") && why.contains("restart frevo"), "{why}");
}

/// Tests that a disk which comes back under a confined process is opened to see, also if its numbers
/// are those of before, which the kernel uses again: a look tells the fault before a client comes.
#[test]
fn a_confined_process_does_not_trust_the_numbers_of_a_disk_that_came_back() {
    let disk = Disk::new();
    if !disk.mount() {
        return;
    }
    let folder = disk.path();
    let has_lost_it = Arc::new(AtomicBool::new(false));
    let refuses = Arc::clone(&has_lost_it);
    let opener = move || match refuses.load(Ordering::Relaxed) {
        false => PosixVfs::open_root(&folder, PosixOptions::default()),
        true => Err(io::Error::from_raw_os_error(rustix::io::Errno::ACCESS.raw_os_error())),
    };
    let share = ShareFolder::open(&disk.path(), Box::new(opener)).unwrap();
    let at_first = Located::of(&disk.path()).unwrap();
    looks(&share, FOLDER_IDLE_LOOKS + 1);
    assert!(disk.is_released());
    share.look(Look::Timed);
    assert!(share.probe().unwrap_err().contains("was unmounted"));
    has_lost_it.store(true, Ordering::Relaxed);
    assert!(disk.mount());
    share.look(Look::Timed);
    println!("same numbers: {}", Located::of(&disk.path()).unwrap() == at_first);
    let why = share.probe().unwrap_err();
    assert!(why.contains("restart frevo to serve"), "{why}");
    assert_eq!(create(&share, "a").map(drop), Err(Fault::Dismounted));
}

/// Tests that a folder which an automounter has unmounted is well: no look mounts it again, and the
/// next use opens it. Its place is marked by hand, since no automounter runs here.
#[test]
fn an_expired_automount_has_not_failed() {
    let disk = Disk::new();
    if !disk.mount() {
        return;
    }
    let mounting = disk.path();
    let opener = move || {
        let path = mounting.to_str().unwrap();
        if !run("mountpoint", &["-q", path]) {
            assert!(run("mount", &["-t", "tmpfs", "-o", "size=8m", "none", path]));
        }
        PosixVfs::open_root(&mounting, PosixOptions::default())
    };
    let share = ShareFolder::open(&disk.path(), Box::new(opener)).unwrap();
    let mark = || share.state.lock().place.as_mut().unwrap().is_automounted = true;
    mark();
    looks(&share, FOLDER_IDLE_LOOKS + 1);
    for _ in 0..3 {
        assert!(disk.is_released());
        looks(&share, 2);
        share.look(Look::Untimed);
        assert!(!run("mountpoint", &["-q", disk.path().to_str().unwrap()]), "a look mounted it");
        assert!(share.probe().is_ok());
        drop(create(&share, "a").unwrap());
        assert!(disk.path().join("a").exists());
        mark();
        looks(&share, FOLDER_IDLE_LOOKS + 1);
    }
}
