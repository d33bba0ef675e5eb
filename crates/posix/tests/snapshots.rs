//! Snapshots of btrfs, as its own tool makes them. Left out, with a word, where
//! btrfs cannot be mounted.
#![allow(clippy::print_stdout, unreachable_pub, reason = "tests")]

mod common;
#[path = "common/loops.rs"]
mod loops;

use std::process::Command;
use std::sync::Arc;

use common::{content, name};
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_store::snapshot::Moment;
use frevo_store::{Fault, Name, Vfs};
use loops::Mounted;

#[test]
fn subvolumes_are_snapshots() {
    let Some(mounted) = Mounted::new("btrfs", 128, &["-q"], "loop") else { return };
    let root = mounted.path();
    let btrfs = |arguments: &[&str]| {
        let mut command = Command::new("btrfs");
        assert!(command.args(arguments).current_dir(&root).output().unwrap().status.success());
    };
    btrfs(&["subvolume", "create", "share"]);
    std::fs::create_dir(root.join("share/.snapshots")).unwrap();
    std::fs::write(root.join("share/f"), "before").unwrap();
    let token = "@GMT-2024.02.29-12.00.00";
    let to = format!("share/.snapshots/{token}");
    btrfs(&["subvolume", "snapshot", "-r", "share", &to]);
    std::fs::write(root.join("share/f"), "after").unwrap();
    let snapshots = Some(".snapshots/@GMT-%Y.%m.%d-%H.%M.%S".parse().unwrap());
    let options = PosixOptions { snapshots, ..PosixOptions::default() };
    let vfs = PosixVfs::open_root(&root.join("share"), options).unwrap();
    let moment = Moment::of_token(token).unwrap();
    assert_eq!(vfs.snapshots(&Name::root()).unwrap(), [moment]);
    assert_eq!(vfs.snapshots(&name("none")).unwrap(), []);
    let then = vfs.snapshot(moment, &Arc::default()).unwrap();
    let old = then.open(&name("F"), &common::read()).unwrap();
    let new = vfs.open(&name("f"), &common::read()).unwrap();
    assert_eq!((content(&old.node), content(&new.node)), ("before".into(), "after".into()));
    // The file in the snapshot has the same inode number as the live file, but another key.
    assert_eq!(old.stat.key.inode, new.stat.key.inode);
    assert_ne!(old.stat.key.device, new.stat.key.device);
    assert_eq!(then.open(&name("f"), &common::write()).unwrap_err(), Fault::ReadOnly);
    // While the snapshot is in use, opening it once more must return the same object.
    let again = vfs.snapshot(moment, &Arc::default()).unwrap();
    assert!(std::ptr::eq(Arc::as_ptr(&then).cast::<()>(), Arc::as_ptr(&again).cast()));
    btrfs(&["property", "set", "-ts", &to, "ro", "false"]);
    btrfs(&["subvolume", "delete", &to]);
    assert_eq!(vfs.snapshot(moment, &Arc::default()).unwrap_err(), Fault::NotFound);
    assert!(vfs.snapshots(&Name::root()).unwrap().is_empty());
}
