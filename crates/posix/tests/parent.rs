//! A directory that was opened for a name in it, and what others do to it meanwhile.

mod common;

use std::os::unix::fs::symlink;

use common::{Share, create, create_dir, either, name, share, share_with};
use frevo_posix::PosixOptions;
use frevo_store::vfs::{Kind, OpenHow, Opened, Parent, VfsResult};
use frevo_store::{Fault, Vfs as _};

fn open_in(s: &Share, parent: &Opened, text: &str, how: &OpenHow) -> VfsResult<Opened> {
    let parent = Parent { node: &*parent.node, name: &parent.name };
    s.vfs.open_in(parent, &name(text), how)
}

#[test]
fn a_directory_that_moves_takes_the_new_file_along() {
    let s = share();
    s.mkdir("dir");
    let parent = s.vfs.open_parent(&name("dir\\x")).unwrap();
    std::fs::rename(s.path("dir"), s.path("moved")).unwrap();
    let made = open_in(&s, &parent, "dir\\x", &create()).unwrap();
    assert!(made.created);
    assert!(s.path("moved/x").exists());
    assert!(!s.path("dir").exists());
}

#[test]
fn in_a_directory_that_went_nothing_is_made() {
    let s = share();
    for how in [create(), either(), create_dir()] {
        s.mkdir("dir");
        let parent = s.vfs.open_parent(&name("dir\\x")).unwrap();
        std::fs::remove_dir(s.path("dir")).unwrap();
        let fault = open_in(&s, &parent, "dir\\x", &how).unwrap_err();
        assert_eq!(fault, Fault::PathNotFound, "as by walking");
        // The parent handle is of the removed folder, but a new folder of the same name is found by
        // walking the path.
        s.mkdir("dir");
        assert!(open_in(&s, &parent, "dir\\x", &how).unwrap().created);
        assert!(s.path("dir/x").exists());
        std::fs::remove_dir_all(s.path("dir")).unwrap();
    }
}

#[test]
fn a_link_in_its_place_leads_nowhere() {
    let outside = tempfile::tempdir().unwrap();
    let s = share();
    s.mkdir("dir");
    let parent = s.vfs.open_parent(&name("dir\\x")).unwrap();
    std::fs::rename(s.path("dir"), s.path("kept")).unwrap();
    symlink(outside.path(), s.path("dir")).unwrap();
    assert!(open_in(&s, &parent, "dir\\x", &either()).unwrap().created);
    assert!(s.path("kept/x").exists());
    // A link as the last component must not be followed either.
    symlink(outside.path().join("made"), s.path("kept/y")).unwrap();
    for how in [create(), either()] {
        let fault = open_in(&s, &parent, "dir\\y", &how).unwrap_err();
        assert!(matches!(fault, Fault::Symlink | Fault::Exists), "{fault:?}");
    }
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn a_name_that_another_process_has_just_made_is_not_made_again() {
    let s = share();
    s.mkdir("dir");
    assert!(s.open("dir\\first", &create()).unwrap().created);
    for round in 0..20 {
        let parent = s.vfs.open_parent(&name("dir\\x")).unwrap();
        s.file(&format!("dir/Name{round}"), "");
        let fault = open_in(&s, &parent, &format!("dir\\NAME{round}"), &create()).unwrap_err();
        assert_eq!(fault, Fault::Exists);
        std::fs::remove_file(s.path(&format!("dir/Name{round}"))).unwrap();
        assert!(open_in(&s, &parent, &format!("dir\\NAME{round}"), &create()).unwrap().created);
    }
}

#[test]
fn links_that_are_followed_are_followed_to_the_parent() {
    let s = share_with(PosixOptions { follow_symlinks_inside: true, ..PosixOptions::default() });
    s.mkdir("dir");
    symlink("dir", s.path("link")).unwrap();
    let parent = s.vfs.open_parent(&name("link\\x")).unwrap();
    assert_eq!(parent.stat.kind, Kind::Directory);
    assert_eq!(parent.node.key(), s.vfs.stat(&name("dir")).unwrap().key);
    assert!(open_in(&s, &parent, "link\\x", &create()).unwrap().created);
    assert!(s.path("dir/x").exists());
}
