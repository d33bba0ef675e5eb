//! File systems that the host mounts below a share. The tests need root, and say so when they
//! are skipped.
#![allow(clippy::print_stdout, reason = "tests")]

use std::ffi::CString;
use std::path::Path;

use frevo_posix::{PosixOptions, PosixVfs};
use frevo_store::vfs::OpenHow;
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
