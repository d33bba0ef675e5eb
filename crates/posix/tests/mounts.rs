//! File systems that the host mounts below a share. The tests need root, and say so when they
//! are skipped.
#![allow(clippy::print_stdout, reason = "tests")]

use std::ffi::CString;
use std::path::Path;
use std::process::Command;

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
    // SAFETY: a thread may leave the namespace that it shares with others.
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
    // Every tmpfs counts from the beginning.
    assert_eq!(one.key.inode, two.key.inode);
    assert_ne!(one.id, two.id);
    assert_eq!(here.id, here.key.inode, "those of the share's own are the host's");
    // They are the same however they are found.
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
fn what_is_mounted_anew_for_reading_takes_no_changes() {
    let Some(dir) = folder("what_is_mounted_anew_for_reading_takes_no_changes") else { return };
    assert!(mount("share", dir.path(), 0));
    std::fs::write(dir.path().join("f"), "").unwrap();
    let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
    let file = vfs.open(&Name::from_stored("f".to_owned()), &OPEN).unwrap();
    assert_eq!(file.node.takes_changes(), Ok(()));
    assert!(mount("share", dir.path(), libc::MS_REMOUNT | libc::MS_RDONLY));
    assert_eq!(file.node.takes_changes(), Err(Fault::ReadOnly));
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

/// A folder that stays open between requests is not used while something is mounted on it, or on a
/// folder above it, and keeps no file system busy.
#[test]
fn what_is_mounted_on_an_open_folder_is_used() {
    let Some(dir) = folder("what_is_mounted_on_an_open_folder_is_used") else { return };
    std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
    let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
    for path in ["a/b", "a"] {
        let at = dir.path().join(path);
        let made = |entry: &str| make(&vfs, &format!("{path}/{entry}"));
        (0..3).for_each(|n| made(&format!("f{n}")).unwrap());
        assert!(mount("below", &at, 0));
        (0..3).for_each(|n| made(&format!("mounted{n}")).unwrap());
        assert!(unmount(&at, &[]), "{path} is busy");
        assert!(!at.join("mounted0").exists());
        made("below").unwrap();
        assert!(at.join("below").exists());
        // The folder on itself, where it takes no changes: it is the same, in another mount.
        assert!(mount(at.to_str().unwrap(), &at, libc::MS_BIND));
        assert!(mount("none", &at, libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY));
        assert_eq!(made("bound"), Err(Fault::ReadOnly));
        assert!(unmount(&at, &["-l"]));
        made("bound").unwrap();
    }
}
