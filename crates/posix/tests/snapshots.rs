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

/// A share with the snapshot that was made before anything was renamed.
struct Renamed {
    _mounted: Mounted,
    root: std::path::PathBuf,
    vfs: PosixVfs,
    then: Arc<dyn Vfs>,
    moment: Moment,
}

impl Renamed {
    fn new() -> Option<Self> {
        let mounted = Mounted::new("btrfs", 128, &["-q"], "loop")?;
        let root = mounted.path().join("share");
        let btrfs = |arguments: &[&str]| {
            let mut command = Command::new("btrfs");
            let done = command.args(arguments).current_dir(mounted.path()).output();
            assert!(done.unwrap().status.success());
        };
        btrfs(&["subvolume", "create", "share"]);
        for folder in [".snapshots", "old folder/sub", "a/b/c"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in ["f", "g", "other", "old folder/sub/deep", "old folder/gone", "a/b/c/last"] {
            std::fs::write(root.join(file), format!("{file} before")).unwrap();
        }
        let token = "@GMT-2024.02.29-12.00.00";
        btrfs(&["subvolume", "snapshot", "-r", "share", &format!("share/.snapshots/{token}")]);
        let snapshots = Some(".snapshots/@GMT-%Y.%m.%d-%H.%M.%S".parse().unwrap());
        let options = PosixOptions { snapshots, ..PosixOptions::default() };
        let vfs = PosixVfs::open_root(&root, options).unwrap();
        let moment = Moment::of_token(token).unwrap();
        let then = vfs.snapshot(moment, &Arc::default()).unwrap();
        Some(Self { _mounted: mounted, root, vfs, then, moment })
    }

    fn rename(&self, from: &str, to: &str) {
        std::fs::rename(self.root.join(from), self.root.join(to)).unwrap();
    }

    /// The content that a name of today had, if the snapshot knows it by another name.
    fn earlier(&self, today: &str) -> Option<String> {
        let earlier = self.vfs.name_in_snapshot(self.moment, &name(today)).unwrap()?;
        let found = self.then.open(&earlier, &common::read());
        Some(found.map_or_else(|fault| format!("{earlier:?}: {fault:?}"), |old| content(&old.node)))
    }
}

#[test]
fn what_was_renamed_since_is_found_in_a_snapshot() {
    let Some(share) = Renamed::new() else { return };
    share.rename("f", "new name");
    std::fs::write(share.root.join("new name"), "after").unwrap();
    assert_eq!(share.earlier("new name").as_deref(), Some("f before"));
    assert_eq!(share.vfs.snapshots(&name("new name")).unwrap(), [share.moment]);
    // A folder, with what is in it today, and what was.
    share.rename("old folder", "new folder");
    share.rename("new folder/sub", "new folder/below");
    std::fs::remove_file(share.root.join("new folder/gone")).unwrap();
    assert_eq!(
        share.earlier("new folder\\below\\deep").as_deref(),
        Some("old folder/sub/deep before")
    );
    assert_eq!(share.earlier("new folder\\gone").as_deref(), Some("old folder/gone before"));
    let named = share.vfs.name_in_snapshot(share.moment, &name("new folder")).unwrap();
    assert_eq!(named.unwrap().path(), "old folder");
    assert_eq!(share.vfs.snapshots(&name("new folder\\below")).unwrap(), [share.moment]);
    // A program has saved a file by a new one in its place, in a folder that was renamed: the folder leads to it.
    std::fs::write(share.root.join("new folder/below/saved"), "after").unwrap();
    share.rename("new folder/below/saved", "new folder/below/deep");
    assert_eq!(
        share.earlier("new folder\\below\\deep").as_deref(),
        Some("old folder/sub/deep before")
    );
    let deep = share.vfs.snapshots(&name("new folder\\below\\deep"));
    assert_eq!(deep.unwrap(), [share.moment]);
    // A file that never was there.
    std::fs::write(share.root.join("young"), "after").unwrap();
    assert_eq!(share.earlier("young"), None);
    assert_eq!(share.earlier("nowhere\\young"), None);
    assert_eq!(share.vfs.snapshots(&name("young")).unwrap(), []);
    std::fs::hard_link(share.root.join("g"), share.root.join("link")).unwrap();
    assert_eq!(share.earlier("link").as_deref(), Some("g before"));
    let none = share
        .vfs
        .name_in_snapshot(Moment::of_token("@GMT-2023.02.28-12.00.00").unwrap(), &name("link"));
    assert_eq!(none, Err(Fault::NotFound));
}

/// n and n + 1 folders that are not there any more.
#[test]
fn so_many_folders_are_looked_for() {
    let Some(share) = Renamed::new() else { return };
    share.rename("a", "z");
    let most = frevo_posix::limits::RENAMED_FOLDERS;
    let deep = |folders: usize| format!("z{}", "\\x".repeat(folders));
    let known = |folders| share.vfs.name_in_snapshot(share.moment, &name(&deep(folders))).unwrap();
    assert_eq!(known(most - 1).unwrap().path(), deep(most - 1).replacen('z', "a", 1));
    assert_eq!(known(most), None);
}
