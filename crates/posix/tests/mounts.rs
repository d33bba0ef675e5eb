//! File systems that the host mounts below a share. The tests need root, and say so when they
//! are skipped.
#![allow(clippy::print_stdout, reason = "tests")]

use std::ffi::CString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use frevo_posix::{PosixOptions, PosixVfs};
use frevo_store::vfs::{Existence, OpenHow, Parent, VfsResult};
use frevo_store::{Fault, Name, Vfs};

const OPEN: OpenHow = OpenHow { read: true, ..OpenHow::LOOK };

fn mount(source: &str, at: &Path, flags: libc::c_ulong) -> bool {
    let [source, kind] = [source, "tmpfs"].map(|text| CString::new(text).unwrap());
    let at = CString::new(at.to_str().unwrap()).unwrap();
    // SAFETY: the strings are NUL-terminated and outlive the call, which takes no data.
    unsafe {
        libc::mount(source.as_ptr(), at.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) == 0
    }
}

/// A folder in a mount namespace of the thread's own; mounts in it go with the thread.
fn folder(test: &str) -> Option<tempfile::TempDir> {
    // SAFETY: a thread may always leave the namespace that it shares with other threads.
    let alone = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0
        && mount("none", Path::new("/"), libc::MS_REC | libc::MS_PRIVATE);
    if !alone {
        println!("{test}: skipped, no mount namespace can be made");
        return None;
    }
    Some(tempfile::tempdir().unwrap())
}

#[test]
fn files_of_other_file_systems_have_numbers_of_their_own() {
    let Some(dir) = folder("files_of_other_file_systems_have_numbers_of_their_own") else { return };
    for name in ["one", "two"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
        assert!(mount("below", &dir.path().join(name), 0));
        std::fs::write(dir.path().join(name).join("f"), "").unwrap();
    }
    std::fs::write(dir.path().join("f"), "").unwrap();
    let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
    let stat = |name: &str| vfs.stat(&Name::from_stored(name.to_owned())).unwrap();
    let [here, one, two] = ["f", "one\\f", "two\\f"].map(stat);
    // Each tmpfs counts its inodes from the beginning, so these inode numbers are equal and the
    // file ids must differ.
    assert_eq!(one.key.inode, two.key.inode);
    assert_ne!(one.id, two.id);
    assert_eq!(here.id, here.key.inode, "those of the share's own are the host's");
    // A listing must show the same file ids as an open.
    let folder = vfs.open(&Name::from_stored("one".to_owned()), &OPEN).unwrap();
    let mut listing = folder.node.directory().unwrap();
    while let Some(name) = listing.next_name().unwrap().map(str::to_owned) {
        let listed = listing.entry_stat().unwrap().unwrap();
        assert_eq!((name.as_str(), listed.id), ("f", one.id));
    }
    let file = vfs.open(&Name::from_stored("one\\f".to_owned()), &OPEN).unwrap();
    assert_eq!((file.stat.id, file.node.stat().unwrap().id), (one.id, one.id));
}

#[test]
fn a_read_only_remount_refuses_changes() {
    let Some(dir) = folder("a_read_only_remount_refuses_changes") else { return };
    assert!(mount("share", dir.path(), 0));
    std::fs::write(dir.path().join("f"), "").unwrap();
    let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
    let file = vfs.open(&Name::from_stored("f".to_owned()), &OPEN).unwrap();
    assert_eq!(file.node.takes_changes(), Ok(()));
    assert!(mount("share", dir.path(), libc::MS_REMOUNT | libc::MS_RDONLY));
    // A mount of another test may have had the same number and taken a change a moment ago.
    let began = Instant::now();
    while file.node.takes_changes() != Err(Fault::ReadOnly) {
        assert!(began.elapsed() < Duration::from_secs(10), "the remount is not noticed");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(mount("share", dir.path(), libc::MS_REMOUNT));
    assert_eq!(file.node.takes_changes(), Ok(()));
}

/// Makes a file as the server does: in its directory, which it opens first.
fn make(vfs: &PosixVfs, path: &str) -> VfsResult<()> {
    let name = Name::from_stored(path.replace('/', "\\"));
    let parent = vfs.open_parent(&name)?;
    let within = Parent { node: &*parent.node, name: &parent.name };
    let how = OpenHow { existence: Existence::MustNotExist, write: true, ..OPEN };
    vfs.open_in(within, &name, &how).map(drop)
}

fn unmount(at: &Path, how: &[&str]) -> bool {
    Command::new("umount").args(how).arg(at).status().is_ok_and(|status| status.success())
}

/// Unmounts it as soon as this process holds nothing of it. A program that another test starts has the
/// descriptors of this process for a moment, between `fork` and `exec`, and they keep the mount busy.
fn is_released(at: &Path) -> bool {
    let begun = Instant::now();
    loop {
        if unmount(at, &[]) {
            return true;
        }
        if begun.elapsed() > Duration::from_secs(5) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A folder that stays open between requests is not used while something is mounted on it, or on a
/// folder above it, and keeps no file system busy.
#[test]
fn a_mount_on_an_open_folder_is_used() {
    let Some(dir) = folder("a_mount_on_an_open_folder_is_used") else { return };
    std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
    let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
    for path in ["a/b", "a"] {
        let at = dir.path().join(path);
        let made = |entry: &str| make(&vfs, &format!("{path}/{entry}"));
        (0..3).for_each(|n| made(&format!("f{n}")).unwrap());
        assert!(mount("below", &at, 0));
        (0..3).for_each(|n| made(&format!("mounted{n}")).unwrap());
        assert!(is_released(&at), "{path} is busy");
        assert!(!at.join("mounted0").exists());
        made("below").unwrap();
        assert!(at.join("below").exists());
        // The folder is mounted on itself read-only, so the same files are in a second mount, where
        // writing must fail.
        assert!(mount(at.to_str().unwrap(), &at, libc::MS_BIND));
        assert!(mount("none", &at, libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY));
        assert_eq!(made("bound"), Err(Fault::ReadOnly));
        assert!(unmount(&at, &["-l"]));
        made("bound").unwrap();
    }
}

/// MS-FSA 2.1.5.13.3 and 2.1.5.13.7 tell the space of the file's volume.
#[test]
fn files_below_a_mount_have_its_space() {
    let Some(dir) = folder("files_below_a_mount_have_its_space") else { return };
    let at = dir.path().join("below");
    std::fs::create_dir(&at).unwrap();
    std::fs::write(dir.path().join("f"), "").unwrap();
    let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
    let space = |name: &str| {
        let opened = vfs.open(&Name::from_stored(name.to_owned()), &OPEN).unwrap();
        opened.node.volume_space(Some(0)).unwrap().map(|volume| volume.space)
    };
    assert_eq!((space("f"), space("below")), (None, None));
    assert!(mount("below", &at, 0));
    std::fs::write(at.join("g"), "").unwrap();
    let (folder, file) = (space("below").unwrap(), space("below\\g").unwrap());
    let expected = rustix::fs::statvfs(&at).unwrap();
    assert_eq!((file.total, file.unit), (expected.f_blocks, expected.f_frsize as u32));
    assert_eq!(folder.total, file.total);
    assert_eq!((space("f"), space("")), (None, None));
}

/// An exFAT of 64 MiB by FUSE at `at`, until it is dropped.
struct ExFat {
    device: String,
    at: std::path::PathBuf,
}

impl ExFat {
    fn mount(image: &Path, at: &Path) -> Option<Self> {
        std::fs::File::create(image).and_then(|file| file.set_len(64 << 20)).ok()?;
        let output = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output().ok()?;
            output
                .status
                .success()
                .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let image = image.to_str()?;
        output("mkfs.exfat", &[image])?;
        let device = output("losetup", &["-f", "--show", image])?;
        let exfat = Self { device, at: at.to_owned() };
        output("mount.exfat-fuse", &[&exfat.device, at.to_str()?])?;
        Some(exfat)
    }
}

impl Drop for ExFat {
    fn drop(&mut self) {
        unmount(&self.at, &["-l"]);
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}

/// Tests that a file system without holes and hard links is told so, that trying leaves nothing on it,
/// and that a file gets a name in another case there (MS-FSA 2.1.5.15.12).
#[test]
fn exfat_has_no_sparse_files_and_no_links() {
    let Some(dir) = folder("exfat_has_no_sparse_files_and_no_links") else { return };
    let at = dir.path().join("exfat");
    std::fs::create_dir(&at).unwrap();
    let Some(_exfat) = ExFat::mount(&dir.path().join("image"), &at) else {
        println!("exfat_has_no_sparse_files_and_no_links: skipped, no exFAT can be mounted");
        return;
    };
    let vfs = PosixVfs::open_root(&at, PosixOptions::default()).unwrap();
    assert_eq!((vfs.volume().sparse, vfs.volume().hard_links), (false, false));
    let listed = || {
        let names = std::fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().file_name());
        names.collect::<Vec<_>>()
    };
    assert!(listed().is_empty(), "{:?}", listed());
    make(&vfs, "report").unwrap();
    let [name, other] = ["report", "Report"].map(|name| Name::from_stored(name.to_owned()));
    let file = vfs.open(&name, &OPEN).unwrap();
    assert_eq!(vfs.is_one_entry(&name, &other), Ok(true));
    let renamed = vfs.rename(&name, file.stat.key, &other, false);
    assert_eq!(renamed.map(|name| name.path().to_owned()), Ok(String::from("Report")));
    assert_eq!(listed(), ["Report"]);
    let here = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
    assert!(here.volume().sparse && here.volume().hard_links);
}

/// A file system behind FUSE; it is unmounted at the end.
struct OnFuse(std::path::PathBuf);

impl OnFuse {
    /// Mounts `source` at `at` too. None where there is no bindfs or no FUSE.
    fn mount(source: &Path, at: &Path) -> Option<Self> {
        let mounted = Command::new("bindfs").arg(source).arg(at).status();
        if !mounted.is_ok_and(|status| status.success()) {
            println!("skipped: no bindfs, or no FUSE");
            return None;
        }
        Some(Self(at.to_owned()))
    }
}

impl Drop for OnFuse {
    fn drop(&mut self) {
        unmount(&self.0, &["-l"]);
    }
}

/// A node of a cluster takes a share over while the kernel still has the lengths from before: it has
/// listed the folder a moment ago.
#[test]
fn a_file_that_another_node_has_written_is_opened_with_its_length() {
    let Some(dir) = folder("a_file_that_another_node_has_written_is_opened_with_its_length") else {
        return;
    };
    let [source, at] = ["source", "mount"].map(|name| dir.path().join(name));
    for folder in [&source, &at] {
        std::fs::create_dir(folder).unwrap();
    }
    let Some(_mounted) = OnFuse::mount(&source, &at) else { return };
    let options = PosixOptions { shared_storage: true, ..PosixOptions::default() };
    let vfs = PosixVfs::open_root(&at, options).unwrap();
    let name = Name::from_stored("f".to_owned());
    for how in [OPEN, OpenHow::LOOK] {
        std::fs::write(source.join("f"), "short").unwrap();
        drop(vfs.open(&name, &how).unwrap());
        assert_eq!(std::fs::metadata(at.join("f")).unwrap().len(), 5);
        std::fs::write(source.join("f"), "of another node").unwrap();
        let opened = vfs.open(&name, &how).unwrap();
        let ends = [opened.stat, opened.node.stat().unwrap()].map(|stat| stat.end_of_file);
        assert_eq!(ends, [15, 15]);
        // The kernel has learnt the length too.
        assert_eq!(std::fs::metadata(at.join("f")).unwrap().len(), 15);
    }
}
