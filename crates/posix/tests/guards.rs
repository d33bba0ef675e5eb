//! Folders of snapshots and Frevo's own folders are out of the clients' reach.

#![allow(clippy::print_stdout, unreachable_pub, reason = "tests")]

mod common;
#[path = "common/loops.rs"]
mod loops;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::{Share, create, create_dir, either, how, name, read, share_with, write};
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_store::snapshot::Moment;
use frevo_store::{Fault, Vfs as _};
use loops::Mounted;

const TOKEN: &str = "@GMT-2024.02.29-12.00.00";

/// A share with these snapshots, in which `folder` holds one.
fn share_of(snapshots: &str, folder: &str, options: PosixOptions) -> Share {
    let snapshots = Some(snapshots.parse().unwrap());
    let s = share_with(PosixOptions { snapshots, ..options });
    s.mkdir(&format!("{folder}/{TOKEN}"));
    s.file(&format!("{folder}/{TOKEN}/f"), "before");
    s.file("f", "after");
    s.mkdir("d");
    // The share was opened before the snapshot folder was made, which must work as well.
    s
}

fn is_intact(s: &Share, folder: &str) -> bool {
    std::fs::read_to_string(s.path(&format!("{folder}/{TOKEN}/f"))).unwrap() == "before"
}

/// Every way that changes names or reads, by the given spelling of the folder.
fn is_out_of_reach(s: &Share, folder: &str) {
    let inside = format!("{folder}\\{TOKEN}");
    let file = format!("{inside}\\f");
    for path in [folder, &inside, &file, &format!("{folder}\\new")] {
        for how in [how(), read(), write(), create(), either(), create_dir()] {
            assert_eq!(s.open(path, &how).unwrap_err(), Fault::AccessDenied, "{path} {how:?}");
        }
        let f = s.open("f", &write()).unwrap();
        let moved = s.vfs.rename(&name("f"), f.node.key(), &name(path), true);
        assert_eq!(moved.unwrap_err(), Fault::AccessDenied, "{path}");
        let linked = s.vfs.link(&*f.node, &name(path), true);
        assert_eq!(linked.unwrap_err(), Fault::AccessDenied, "{path}");
        let removed = s.vfs.remove(&name(path), f.node.key());
        assert_eq!(removed.unwrap_err(), Fault::AccessDenied, "{path}");
        let renamed = s.vfs.rename(&name(path), f.node.key(), &name("d\\x"), false);
        assert_eq!(renamed.unwrap_err(), Fault::AccessDenied, "{path}");
        assert_eq!(s.vfs.stat(&name(path)).unwrap_err(), Fault::AccessDenied, "{path}");
    }
    let stream = s.open(&format!("{file}:s"), &either());
    assert!(stream.is_err(), "a stream in {folder}");
}

#[test]
fn snapshots_are_opened_by_their_time_alone() {
    let s = share_of(".snapshots/@GMT-%Y.%m.%d-%H.%M.%S", ".snapshots", PosixOptions::default());
    for folder in [".snapshots", ".SNAPSHOTS", ".Snapshots"] {
        is_out_of_reach(&s, folder);
    }
    assert!(is_intact(&s, ".snapshots"));
    assert_eq!(s.list(""), ["d", "f"]);
    // `.snapshots` is protected only at the configured place, so in `d` a client may use this name.
    s.open("d\\.snapshots", &create_dir()).unwrap();
    assert_eq!(s.list("d"), [".snapshots"]);
    let moment = Moment::of_token(TOKEN).unwrap();
    assert_eq!(s.vfs.snapshots(&name("f")).unwrap(), [moment]);
    let then = s.vfs.snapshot(moment, &Arc::default()).unwrap();
    let old = then.open(&name("f"), &read()).unwrap();
    assert_eq!(common::content(&old.node), "before");
    assert_eq!(then.open(&name("f"), &write()).unwrap_err(), Fault::ReadOnly);
}

#[test]
fn a_folder_of_snapshots_that_is_missing_cannot_be_made() {
    let snapshots = Some("backup/snaps/%Y%m%d".parse().unwrap());
    let s = share_with(PosixOptions { snapshots, ..PosixOptions::default() });
    s.mkdir("backup");
    assert_eq!(s.open("backup\\snaps", &create_dir()).unwrap_err(), Fault::AccessDenied);
    assert_eq!(s.open("BACKUP\\Snaps", &create_dir()).unwrap_err(), Fault::AccessDenied);
}

/// The way to the folder cannot be moved either: it would take the folder along.
#[test]
fn the_way_to_snapshots_stays_where_it_is() {
    let folder = "a/b/snaps";
    let s = share_of("a/b/snaps/@GMT-%Y.%m.%d-%H.%M.%S", folder, PosixOptions::default());
    is_out_of_reach(&s, "a\\b\\snaps");
    is_out_of_reach(&s, "A\\B\\SNAPS");
    assert_eq!(s.list("a\\b"), [""; 0]);
    for way in ["a", "A", "a\\b"] {
        let key = s.open(way, &how()).unwrap().node.key();
        let moved = s.vfs.rename(&name(way), key, &name("free"), false);
        assert_eq!(moved.unwrap_err(), Fault::AccessDenied, "{way}");
        assert!(s.vfs.remove(&name(way), key).is_err(), "{way}");
    }
    assert!(is_intact(&s, folder));
}

#[test]
fn snapshots_beside_files_are_out_of_reach() {
    let s = share_of("@GMT-%Y.%m.%d-%H.%M.%S", "", PosixOptions::default());
    assert_eq!(s.list(""), ["d", "f"]);
    for path in [TOKEN, &format!("{TOKEN}\\f"), "@GMT-2025.01.01-00.00.00"] {
        assert_eq!(s.open(path, &either()).unwrap_err(), Fault::AccessDenied, "{path}");
    }
    s.open("@GMT-x", &create()).unwrap();
    // Case does not matter, because some file systems ignore it.
    let s = share_of("Daily-%Y%m%d", "", PosixOptions::default());
    for path in ["Daily-20240229", "DAILY-20240229", "daily-20240229\\f"] {
        assert_eq!(s.open(path, &either()).unwrap_err(), Fault::AccessDenied, "{path}");
    }
    s.open("daily-x", &create()).unwrap();
}

/// NTFS keeps a short name beside a long one, and finds the file by it without listing it.
#[test]
fn short_names_of_the_disk_do_not_lead_to_hidden_files() {
    let Some(mounted) = Mounted::new("ntfs", 16, &["-F", "-q"], "noatime") else { return };
    let root = mounted.path();
    std::fs::create_dir(root.join("d")).unwrap();
    for (long, short) in
        [("secret folder.key", "SECRET~1.KEY"), ("an open file.txt", "ANOPEN~1.TXT")]
    {
        let path = root.join("d").join(long);
        std::fs::write(&path, "content").unwrap();
        let mut named = Command::new("setfattr");
        let named = named.args(["-n", "system.ntfs_dos_name", "-v", short]).arg(&path).status();
        if !named.is_ok_and(|status| status.success()) {
            println!("left out: no short name can be set on NTFS");
            return;
        }
        assert!(root.join("d").join(short).exists(), "the disk finds it");
    }
    std::fs::write(root.join("d/plain~1"), "").unwrap();
    let options = PosixOptions { veto: vec![String::from("*folder*")], ..PosixOptions::default() };
    let vfs = PosixVfs::open_root(&root, options).unwrap();
    let open = |path: &str| vfs.open(&name(path), &read()).map(drop);
    assert_eq!(open("d\\secret folder.key"), Err(Fault::AccessDenied));
    // The pattern does not match these names, which the disk finds and does not list.
    for path in ["d\\SECRET~1.KEY", "d\\ANOPEN~1.TXT", "d\\ANOPEN~1.TXT\\x"] {
        assert_eq!(open(path), Err(Fault::NotFound), "{path}");
    }
    // A listed name of this form is reached, and one that does not exist can be made.
    open("d\\plain~1").unwrap();
    open("d\\an open file.txt").unwrap();
    vfs.open(&name("d\\new~1"), &create()).unwrap();
    // Without anything to hide, short names lead to their files.
    let vfs = PosixVfs::open_root(&root, PosixOptions::default()).unwrap();
    vfs.open(&name("d\\ANOPEN~1.TXT"), &read()).unwrap();
}

#[test]
fn short_names_do_not_lead_to_hidden_folders() {
    let options = PosixOptions { short_names: true, ..PosixOptions::default() };
    let s = share_of("folder of snapshots/@GMT-%Y.%m.%d-%H.%M.%S", "folder of snapshots", options);
    s.mkdir(".frevo-streams");
    for long in ["folder of snapshots", ".frevo-streams"] {
        let short = frevo_store::short_name::short_name(long).unwrap();
        for path in [short.to_string(), format!("{short}\\{TOKEN}\\f"), format!("{short}\\new")] {
            let opened = s.open(&path, &either());
            assert_eq!(opened.unwrap_err(), Fault::AccessDenied, "{path}");
        }
    }
    let way = share_of(
        "long folder name/snaps/%Y%m%d",
        "long folder name/snaps",
        PosixOptions { short_names: true, ..PosixOptions::default() },
    );
    let short = frevo_store::short_name::short_name("long folder name").unwrap();
    is_out_of_reach(&way, &format!("{short}\\snaps"));
}

/// Links that lead to a hidden folder are not followed there, however they are called.
#[test]
fn links_do_not_lead_to_hidden_folders() {
    let options = PosixOptions { follow_symlinks_inside: true, ..PosixOptions::default() };
    let s = share_of(".snapshots/@GMT-%Y.%m.%d-%H.%M.%S", ".snapshots", options);
    s.mkdir(".frevo-streams/x");
    symlink(".snapshots", s.path("one")).unwrap();
    symlink(format!("../.snapshots/{TOKEN}"), s.path("d/two")).unwrap();
    symlink(".frevo-streams", s.path("three")).unwrap();
    symlink("d", s.path("four")).unwrap();
    for path in
        ["one", "one\\new", &format!("one\\{TOKEN}\\f"), "d\\two\\f", "d\\two\\new", "three\\x"]
    {
        assert_eq!(s.open(path, &either()).unwrap_err(), Fault::AccessDenied, "{path}");
    }
    assert!(is_intact(&s, ".snapshots"));
    // Links to other folders are still followed, although links to snapshots are not.
    s.open("four\\g", &create()).unwrap();
    assert_eq!(s.list("four"), ["g", "two"]);
}

/// The snapshots of a share that is another folder for each user, seen from shares around it.
#[test]
fn snapshots_of_every_user_are_out_of_reach() {
    let dir = tempfile::tempdir().unwrap();
    for user in ["ann", "bob"] {
        let folder = dir.path().join("home/of-").display().to_string() + user + "/files/.snapshots";
        std::fs::create_dir_all(Path::new(&folder).join(TOKEN)).unwrap();
    }
    std::fs::create_dir_all(dir.path().join("home/of-carl/files")).unwrap();
    std::fs::create_dir_all(dir.path().join("home/docs/files/.snapshots")).unwrap();
    std::fs::write(dir.path().join("home/of-all"), "").unwrap();
    let open = |root: &str| {
        let snapshots = ".snapshots/@GMT-%Y.%m.%d-%H.%M.%S".parse().unwrap();
        let guarded = vec![(snapshots, dir.path().join("home/of-{user}/files"))];
        let options = PosixOptions { guarded, ..PosixOptions::default() };
        PosixVfs::open_root(&dir.path().join(root), options).unwrap()
    };
    for (root, way) in [
        ("", "home\\of-ann\\files\\"),
        ("home", "OF-Ann\\files\\"),
        ("home/of-ann", "files\\"),
        ("home/of-ann/files", ""),
    ] {
        let share = open(root);
        let reach = share.open(&name(&format!("{way}.snapshots")), &how());
        assert_eq!(reach.unwrap_err(), Fault::AccessDenied, "{root}");
        let reach = share.open(&name(&format!("{way}.snapshots\\{TOKEN}")), &create_dir());
        assert_eq!(reach.unwrap_err(), Fault::AccessDenied, "{root}");
    }
    let home = open("home");
    // A folder that contains snapshots cannot be renamed, but other folders and files can.
    let rename = |from: &str, to: &str| {
        let key = home.open(&name(from), &how()).unwrap().node.key();
        home.rename(&name(from), key, &name(to), false)
    };
    assert_eq!(rename("of-bob", "other").unwrap_err(), Fault::AccessDenied);
    assert_eq!(rename("of-bob\\files", "other").unwrap_err(), Fault::AccessDenied);
    rename("of-carl", "of-dora").unwrap();
    rename("of-all", "of-none").unwrap();
    home.open(&name("docs\\files\\.snapshots"), &how()).unwrap();
    // The folder of a user who has not connected yet must be protected, too.
    let early = home.open(&name("of-dora\\files\\.snapshots"), &create_dir());
    assert_eq!(early.unwrap_err(), Fault::AccessDenied);
}

/// The snapshots of one share are in the folder of another.
#[test]
fn snapshots_of_other_shares_are_out_of_reach() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("data/.snapshots").join(TOKEN);
    std::fs::create_dir_all(&folder).unwrap();
    let open = |root: &Path, snapshots: &str| {
        let snapshots = snapshots.parse().unwrap();
        let guarded = vec![(snapshots, dir.path().join("data"))];
        let options = PosixOptions { guarded, ..PosixOptions::default() };
        PosixVfs::open_root(root, options).unwrap()
    };
    let absolute = format!("{}/data/.snapshots/%Y", dir.path().display());
    for snapshots in [".snapshots/@GMT-%Y.%m.%d-%H.%M.%S", &absolute.replace("%Y", "%Y%m%d")] {
        let above = open(dir.path(), snapshots);
        let reach = above.open(&name("data\\.snapshots"), &how());
        assert_eq!(reach.unwrap_err(), Fault::AccessDenied, "{snapshots}");
        let key = above.open(&name("data"), &how()).unwrap().node.key();
        let moved = above.rename(&name("data"), key, &name("other"), false);
        assert_eq!(moved.unwrap_err(), Fault::AccessDenied, "{snapshots}");
        let same = open(&dir.path().join("data"), snapshots);
        let reach = same.open(&name(".snapshots"), &create_dir());
        assert_eq!(reach.unwrap_err(), Fault::AccessDenied, "{snapshots}");
        // The folder that contains the snapshots is this share itself. So `data` stays reachable,
        // and only the snapshots in it are protected.
        let beside = open(dir.path(), &format!("{}/snap-%Y%m%d", dir.path().display()));
        beside.open(&name("data"), &how()).unwrap();
        let reach = beside.open(&name("snap-20260101"), &create_dir());
        assert_eq!(reach.unwrap_err(), Fault::AccessDenied);
    }
}

/// FAT and exFAT drop periods and spaces at the end of a name.
#[test]
fn periods_at_the_end_do_not_lead_to_hidden_names() {
    let options = PosixOptions {
        veto: vec![String::from("*.key"), String::from(".ssh")],
        ..Default::default()
    };
    let s = share_of("@GMT-%Y.%m.%d-%H.%M.%S", "", options.clone());
    let named = share_of(".snapshots/@GMT-%Y.%m.%d-%H.%M.%S", ".snapshots", options);
    for tail in ["\u{F029}", "\u{F028}", ".\u{F029}", ". \u{F029}"] {
        for path in ["x.key", "d\\.SSH", TOKEN, ".frevo-Streams"] {
            for how in [how(), create(), create_dir()] {
                let path = format!("{path}{tail}");
                let refused = s.open(&path, &how).unwrap_err();
                assert!(
                    refused == Fault::AccessDenied || refused == Fault::NameInvalid,
                    "{path:?} {refused:?}"
                );
            }
            let f = s.open("f", &write()).unwrap();
            let moved =
                s.vfs.rename(&name("f"), f.node.key(), &name(&format!("{path}{tail}")), true);
            assert!(moved.is_err(), "{path}");
        }
        for path in [format!(".snapshots{tail}"), format!(".snapshots{tail}\\{TOKEN}\\f")] {
            assert_eq!(named.open(&path, &how()).unwrap_err(), Fault::AccessDenied, "{path:?}");
            assert_eq!(named.open(&path, &create()).unwrap_err(), Fault::AccessDenied, "{path:?}");
        }
        s.open(&format!("d\\x.keys{tail}"), &create()).unwrap();
    }
}

#[test]
fn names_that_are_vetoed_are_out_of_reach() {
    let veto = vec![String::from("*.key"), String::from(".ssh")];
    let options = PosixOptions {
        veto,
        follow_symlinks_inside: true,
        short_names: true,
        ..Default::default()
    };
    let s = share_with(options);
    s.mkdir("d/.ssh");
    s.file("d/.ssh/id", "secret");
    s.file("d/a.KEY", "secret");
    s.file("d/b", "");
    symlink("d/.ssh", s.path("link")).unwrap();
    symlink("a.KEY", s.path("d/open")).unwrap();
    assert_eq!(s.list("d"), ["b", "open"]);
    let short = frevo_store::short_name::short_name(".ssh").map(|short| format!("d\\{short}"));
    let paths = ["d\\.SSH", "d\\.ssh\\id", "D\\A.key", "new.key", "link\\id", "link", "d\\open"];
    for path in paths.into_iter().chain(short.as_deref()) {
        let opened = s.open(path, &either());
        assert_eq!(opened.unwrap_err(), Fault::AccessDenied, "{path}");
    }
    let b = s.open("d\\b", &write()).unwrap();
    for path in ["d\\b.key", "d\\.ssh\\b"] {
        let moved = s.vfs.rename(&name("d\\b"), b.node.key(), &name(path), true);
        assert_eq!(moved.unwrap_err(), Fault::AccessDenied, "{path}");
        assert!(s.vfs.link(&*b.node, &name(path), true).is_err(), "{path}");
    }
    let d = s.open("d", &how()).unwrap().node.key();
    assert!(s.vfs.remove(&name("d"), d).is_err());
    s.mkdir("e");
    assert!(!s.open("e", &how()).unwrap().node.has_entries().unwrap());
    s.mkdir("e/.ssh");
    assert!(s.list("e").is_empty());
    assert!(s.open("e", &how()).unwrap().node.has_entries().unwrap());
    assert_eq!(std::fs::read_to_string(s.path("d/.ssh/id")).unwrap(), "secret");
}

/// A snapshot holds the recycle bins of shares inside of this one, and copies of folders of snapshots.
#[test]
fn what_is_out_of_reach_is_so_in_snapshots_too() {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["inner/.recycle/bob", "inner/docs", ".snapshots"] {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        let then = dir.path().join(".snapshots").join(TOKEN).join(folder);
        std::fs::create_dir_all(then).unwrap();
    }
    let snapshots = Some(".snapshots/@GMT-%Y.%m.%d-%H.%M.%S".parse().unwrap());
    let bins = vec![(String::from(".recycle"), dir.path().join("inner"))];
    let options = PosixOptions { snapshots, bins, ..PosixOptions::default() };
    let live = PosixVfs::open_root(dir.path(), options).unwrap();
    let then = live.snapshot(Moment::of_token(TOKEN).unwrap(), &Arc::default()).unwrap();
    then.open(&name("inner\\docs"), &how()).unwrap();
    for path in ["inner\\.recycle\\bob", "INNER\\.Recycle", ".snapshots"] {
        assert_eq!(live.open(&name(path), &how()).unwrap_err(), Fault::AccessDenied, "{path}");
        assert_eq!(then.open(&name(path), &how()).unwrap_err(), Fault::AccessDenied, "{path}");
    }
}
