//! Long paths: each component costs about the same, and a long walk leaves the core.

mod common;

use common::{create_dir, how, share, share_with};
use frevo_posix::{PosixOptions, patience};
use frevo_store::{Fault, Vfs as _};

/// A share with a path of `count` folders, and the path.
fn deep(s: common::Share, folder: &str, count: usize) -> (common::Share, String) {
    let mut path = String::new();
    for _ in 0..count {
        path.push_str(if path.is_empty() { "" } else { "\\" });
        path.push_str(folder);
        s.open(&path, &create_dir()).unwrap();
    }
    (s, path)
}

/// True if the call gave up on the core; on a thread it ends well.
fn leaves_core(s: &common::Share, path: &str) -> bool {
    let (opened, gave_up) = patience::short(|| s.open(path, &how()).is_ok());
    assert_ne!(opened, gave_up);
    assert!(s.open(path, &how()).is_ok());
    gave_up
}

#[test]
fn long_walks_go_to_a_thread() {
    // One system call does not accept this path, so it is walked component by component. That takes
    // too many steps for a core thread.
    let (s, path) = deep(share(), "Some-Folder", 500);
    assert!(leaves_core(&s, &path));
    assert!(leaves_core(&s, &path.to_lowercase()));
    let (s, path) = deep(share(), "A", 100);
    assert!(!leaves_core(&s, &path));
    assert!(!leaves_core(&s, &path.to_lowercase()));
}

#[test]
fn a_way_that_is_known_stays_on_the_core() {
    let (s, path) = deep(share(), "a", 400);
    assert!(!leaves_core(&s, &path), "its folders were looked at when they were made");
    s.mkdir("other");
    let other = s.open("other", &how()).unwrap();
    let key = other.node.key();
    s.vfs.rename(&common::name("other"), key, &common::name("moved"), false).unwrap();
    assert!(leaves_core(&s, &path), "nothing is known after the rename of a folder");
    assert!(!leaves_core(&s, &path));
}

/// Links are followed inside the share, but never to what is guarded.
#[test]
fn a_link_in_a_long_path_is_judged_all_the_way() {
    let options = PosixOptions {
        follow_symlinks_inside: true,
        veto: vec!["hidden".into()],
        ..PosixOptions::default()
    };
    let s = share_with(options);
    s.mkdir("Folder/Below/hidden");
    std::os::unix::fs::symlink("Folder", s.path("link")).unwrap();
    for spelled in ["link\\Below", "LINK\\below"] {
        assert!(s.open(spelled, &how()).is_ok(), "{spelled}");
        let hidden = format!("{spelled}\\hidden");
        assert_eq!(s.open(&hidden, &how()).unwrap_err(), Fault::AccessDenied);
    }
}

#[test]
fn a_reparse_point_stops_a_long_walk() {
    for (folder, count) in [("Some-Folder", 450), ("a", 300)] {
        let (s, path) = deep(share(), folder, count);
        let middle = path.split('\\').take(280).collect::<Vec<_>>().join("\\");
        let node = s.open(&middle, &how()).unwrap().node;
        node.keep_reparse(Some(b"\x03\0\0\xA0\x02\0\0\0ab")).unwrap();
        for path in [&path, &path.to_lowercase()] {
            assert_eq!(s.open(path, &how()).unwrap_err(), Fault::Symlink, "{folder}");
        }
        assert!(s.open(&middle, &how()).is_ok());
        node.keep_reparse(None).unwrap();
        assert!(s.open(&path, &how()).is_ok());
    }
}
