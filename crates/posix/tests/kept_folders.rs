//! Folders that stay open between requests: whatever other programs do with them, a new file is
//! where its path leads now, and never outside of the share.
#![allow(clippy::print_stdout, reason = "tests")]

mod common;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Share, create, how, name, share};
use frevo_posix::limits::{KEPT_FOLDERS, KEPT_FOLDERS_PER_SHARE};
use frevo_store::vfs::{Parent, VfsResult};
use frevo_store::{Fault, Vfs};

/// Written by the test that opens as many folders as may be: others are alone without it.
static FULL: RwLock<()> = RwLock::new(());

/// Makes a file as the server does: in its directory, whose security it reads first.
fn make(share: &Share, path: &str) -> VfsResult<()> {
    let name = name(path);
    // If the folder cannot be opened, opening the whole path reports the fault.
    let Ok(parent) = share.vfs.open_parent(&name) else {
        return share.vfs.open(&name, &create()).map(drop);
    };
    let within = Parent { node: &*parent.node, name: &parent.name };
    share.vfs.open_in(within, &name, &create()).map(drop)
}

/// The descriptors of this process on folders at or below `path`.
fn open_below(path: &Path) -> usize {
    let path = path.canonicalize().unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    targets.filter(|target| *target != path && target.starts_with(&path)).count()
}

/// A share whose folder `a`, and `b` in it, are open.
fn used() -> Share {
    let share = share();
    std::fs::create_dir_all(share.path("a/b")).unwrap();
    // Each folder is used three times before the next one, because both may share a cache slot.
    for folder in ["a", "a\\b"] {
        for n in 0..3 {
            make(&share, &format!("{folder}\\f{n}")).unwrap();
        }
    }
    assert!(open_below(share.dir.path()) >= 2, "they are open");
    share
}

#[test]
fn a_folder_that_was_replaced_gets_no_files() {
    let _others = FULL.read().unwrap();
    for path in ["a", "a/b"] {
        let share = used();
        std::fs::rename(share.path(path), share.path("moved")).unwrap();
        let new = format!("{}\\new", path.replace('/', "\\"));
        assert_eq!(make(&share, &new), Err(Fault::PathNotFound));
        std::fs::create_dir(share.path(path)).unwrap();
        make(&share, &new).unwrap();
        assert!(share.path(path).join("new").exists());
        assert!(!share.path("moved/new").exists());
        if path == "a" {
            std::fs::create_dir(share.path("a/b")).unwrap();
            make(&share, "a\\b\\new").unwrap();
            assert!(share.path("a/b/new").exists() && !share.path("moved/b/new").exists());
        }
    }
}

#[test]
fn the_key_of_a_parent_is_that_of_the_folder_at_the_path() {
    let _others = FULL.read().unwrap();
    let share = used();
    let key = |path: &str| share.vfs.stat(&name(path)).map(|stat| stat.key);
    for (file, folder) in [("a\\new", "a"), ("a\\b\\new", "a\\b"), ("A\\new", "a"), ("new", "")] {
        assert_eq!(share.vfs.parent_key(&name(file)), key(folder), "{file}");
    }
    let before = key("a");
    std::fs::rename(share.path("a"), share.path("moved")).unwrap();
    assert_eq!(share.vfs.parent_key(&name("a\\new")), Err(Fault::NotFound));
    std::fs::create_dir(share.path("a")).unwrap();
    assert_eq!(share.vfs.parent_key(&name("a\\new")), key("a"));
    assert_ne!(key("a"), before);
}

#[test]
fn a_removal_is_in_the_folder_of_the_path() {
    let _others = FULL.read().unwrap();
    let share = used();
    let file = share.vfs.open(&name("a\\f1"), &how()).unwrap();
    std::fs::rename(share.path("a"), share.path("moved")).unwrap();
    assert!(share.vfs.remove(&name("a\\f1"), file.node.key()).is_err());
    std::fs::create_dir(share.path("a")).unwrap();
    std::fs::write(share.path("a/f1"), "").unwrap();
    assert_eq!(share.vfs.remove(&name("a\\f1"), file.node.key()), Err(Fault::Stale));
    assert!(share.path("moved/f1").exists() && share.path("a/f1").exists());
    std::fs::remove_dir_all(share.path("a")).unwrap();
    std::fs::rename(share.path("moved"), share.path("a")).unwrap();
    share.vfs.remove(&name("a\\f1"), file.node.key()).unwrap();
    assert!(!share.path("a/f1").exists());
}

/// Also where the link leads to the same folder, inside the share or outside.
#[test]
fn a_link_in_the_place_of_a_folder_is_not_followed() {
    let _others = FULL.read().unwrap();
    let outside = tempfile::tempdir().unwrap();
    for moved in ["away", "outside"] {
        for path in ["a", "a/b"] {
            let share = used();
            let to = match moved {
                "outside" => outside.path().join(path.replace('/', "-")),
                _ => share.path(moved),
            };
            std::fs::rename(share.path(path), &to).unwrap();
            symlink(&to, share.path(path)).unwrap();
            assert_eq!(make(&share, "a\\b\\new"), Err(Fault::Symlink), "{path} {moved}");
            let in_path = format!("{}\\new", path.replace('/', "\\"));
            assert_eq!(make(&share, &in_path), Err(Fault::Symlink), "{path} {moved}");
            assert!(!to.join("new").exists() && !to.join("b/new").exists());
        }
    }
}

#[test]
fn a_removed_folder_is_closed() {
    let _others = FULL.read().unwrap();
    let share = share();
    std::fs::create_dir(share.path("a")).unwrap();
    for n in 0..3 {
        make(&share, &format!("a\\f{n}")).unwrap();
        std::fs::remove_file(share.path(&format!("a/f{n}"))).unwrap();
    }
    assert_eq!(open_below(share.dir.path()), 1);
    let key = share.vfs.stat(&name("a")).unwrap().key;
    share.vfs.remove(&name("a"), key).unwrap();
    assert_eq!(open_below(share.dir.path()), 0);
    // Although a descriptor of the removed folder is cached, the folder counts as missing.
    assert_eq!(make(&share, "a\\new"), Err(Fault::PathNotFound));
}

/// At n - 1, n and n + 1 folders of one share, and of all.
#[test]
fn the_folders_are_bounded() {
    let _alone = FULL.write().unwrap();
    let shares: Vec<Share> = (0..=KEPT_FOLDERS / KEPT_FOLDERS_PER_SHARE).map(|_| share()).collect();
    for (at, share) in shares.iter().enumerate() {
        for n in 0..=KEPT_FOLDERS_PER_SHARE {
            std::fs::create_dir(share.path(&format!("d{n}"))).unwrap();
            for file in 0..2 {
                make(share, &format!("d{n}\\{file}")).unwrap();
            }
            let most = KEPT_FOLDERS.saturating_sub(at * KEPT_FOLDERS_PER_SHARE);
            let most = most.min(KEPT_FOLDERS_PER_SHARE).min(n + 1);
            assert_eq!(open_below(share.dir.path()), most, "share {at}, folder {n}");
        }
    }
}

/// A program replaces the folder by a link out of the share, and back, all the time.
#[test]
fn no_file_leaves_the_share_while_its_folder_is_exchanged() {
    let _others = FULL.read().unwrap();
    let share = used();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), share.path("link")).unwrap();
    let [a, link] = ["a", "link"].map(|entry| share.path(entry));
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let cwd = rustix::fs::CWD;
                rustix::fs::renameat_with(cwd, &a, cwd, &link, flags).unwrap();
            }
        });
        let (mut made, mut refused) = (0, 0);
        for n in 0..5_000 {
            let path = if n % 2 == 0 { format!("a\\n{n}") } else { format!("a\\b\\n{n}") };
            match make(&share, &path) {
                Ok(()) => made += 1,
                Err(_) => refused += 1,
            }
        }
        ends.store(true, Ordering::Relaxed);
        println!("{made} made, {refused} refused");
    });
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}
