use std::sync::Arc;

use frevo_dfs::{Link, State, Target};
use frevo_store::name::Rules;
use frevo_store::vfs::{Existence, Fault, OpenHow};
use frevo_store::{Name, Stat};
use frevo_wire::Status;
use frevo_wire::dtyp::FileAttributes;

use super::*;
use crate::shares::folders::testing::{PosixOptions, PosixVfs};
use crate::shares::protection::LOOK;

fn name(text: &str) -> Name {
    Name::parse(text, Rules::Windows).unwrap()
}

fn link(path: &str) -> Link {
    Link::new(path, vec![Target::new("\\\\one\\data").unwrap()]).unwrap()
}

fn namespace(links: Vec<Link>) -> Arc<Namespace> {
    Arc::new(Namespace::new("files", Root::Share).with_links(links).unwrap())
}

fn listed(vfs: &dyn Vfs, folder: &str) -> Vec<(String, Stat)> {
    let opened = vfs.open(&name(folder), &OpenHow { read: true, ..OpenHow::DIRECTORY }).unwrap();
    let mut listing = opened.node.directory().unwrap();
    for _ in 0..2 {
        while listing.next_name().unwrap().is_some() {}
        listing.rewind().unwrap();
    }
    let mut all = Vec::new();
    while let Some(name) = listing.next_name().unwrap().map(str::to_owned) {
        all.push((name, listing.entry_stat().unwrap().unwrap()));
    }
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

fn names(vfs: &dyn Vfs, folder: &str) -> Vec<String> {
    let shown = |(name, stat): (String, Stat)| match stat.attributes {
        links if links.contains(FileAttributes::REPARSE_POINT) => format!("{name}@"),
        folders if folders.contains(FileAttributes::DIRECTORY) => format!("{name}/"),
        _ => name,
    };
    listed(vfs, folder).into_iter().map(shown).collect()
}

struct World {
    folder: tempfile::TempDir,
    published: Arc<Published>,
    vfs: LinkedVfs,
}

/// A folder with `own/sub/file`, `hidden/file` and `top`, and links over and beside them.
fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    for (dir, file) in [("own/sub", "own/sub/file"), ("hidden", "hidden/file"), ("", "top")] {
        std::fs::create_dir_all(folder.path().join(dir)).unwrap();
        std::fs::write(folder.path().join(file), "text").unwrap();
    }
    let files = PosixVfs::open_root(folder.path(), PosixOptions::default()).unwrap();
    let links = ["own\\link", "Own\\new\\deep", "HIDDEN", "top\\x"].map(link).to_vec();
    let published = Published::new(namespace(links));
    let vfs = LinkedVfs::new(Arc::new(files), Arc::clone(&published));
    World { folder, published, vfs }
}

fn fault(opened: Result<frevo_store::vfs::Opened, Fault>) -> Option<Fault> {
    opened.err()
}

#[test]
fn links_are_listed_among_the_files_of_the_share() {
    let World { vfs, .. } = &world();
    assert_eq!(names(vfs, ""), ["HIDDEN@", "own/", "top/"]);
    assert_eq!(names(vfs, "OWN"), ["link@", "new/", "sub/"]);
    assert_eq!(names(vfs, "own\\new"), ["deep@"]);
    assert_eq!(names(vfs, "own\\sub"), ["file"]);
    assert_eq!(names(vfs, "top"), ["x@"]);
    let root = listed(vfs, "");
    let tag = frevo_wire::fscc::reparse::ReparseTag::DFS.0;
    assert_eq!((root[0].1.reparse_tag, root[1].1.reparse_tag), (tag, 0));
    // The numbers of links are those of their opened nodes, and equal for each spelling.
    let opened = vfs.open(&name("hidden"), &LOOK).unwrap();
    assert_eq!((opened.stat.key, opened.name.path()), (root[0].1.key, "HIDDEN"));
    assert_eq!(opened.node.reparse_buffer().unwrap(), [0x0A, 0, 0, 0x80, 0, 0, 0, 0]);
    assert_ne!(opened.stat.key, vfs.stat(&name("own\\link")).unwrap().key);
}

#[test]
fn links_lead_away_and_folders_of_the_namespace_take_no_change() {
    let World { vfs, .. } = &world();
    let open = |text: &str| fault(vfs.open(&name(text), &OpenHow::LOOK));
    for text in ["hidden", "hidden\\file", "own\\LINK\\a\\b", "own\\new\\deep"] {
        assert_eq!(open(text), Some(Fault::NotCovered), "{text}");
    }
    assert_eq!(fault(vfs.open(&name("hidden\\file"), &LOOK)), Some(Fault::NotCovered));
    assert_eq!(open("own\\new\\none"), Some(Fault::NotFound));
    assert_eq!(open("own\\none"), Some(Fault::NotFound));
    assert_eq!(open("own\\none\\x"), Some(Fault::PathNotFound));
    assert_eq!(open("own\\sub\\file"), None);
    let making = |existence| OpenHow { existence, write: true, ..OpenHow::LOOK };
    for (text, expected) in [
        ("own\\new\\made", Fault::AccessDenied),
        ("own\\new", Fault::Exists),
        ("own\\link", Fault::NotCovered),
        ("hidden\\made", Fault::NotCovered),
    ] {
        let made = fault(vfs.open(&name(text), &making(Existence::MustNotExist)));
        assert_eq!(made, Some(expected), "{text}");
    }
    assert!(vfs.open(&name("own\\made"), &making(Existence::MustNotExist)).unwrap().created);
    let key = |text: &str| vfs.stat(&name(text)).unwrap().key;
    for text in ["own", "own\\new", "own\\link", "hidden"] {
        assert_eq!(vfs.remove(&name(text), key(text)), Err(Fault::AccessDenied), "{text}");
        let moved = vfs.rename(&name(text), key(text), &name("else"), false);
        assert_eq!(moved, Err(Fault::AccessDenied), "{text}");
        let moved = vfs.rename(&name("own\\sub\\file"), key("own\\sub\\file"), &name(text), true);
        assert_eq!(moved, Err(Fault::AccessDenied), "{text}");
    }
    let moved = vfs.rename(&name("own\\made"), key("own\\made"), &name("hidden\\x"), false);
    assert_eq!(moved, Err(Fault::NotCovered));
    let moved = vfs.rename(&name("own\\made"), key("own\\made"), &name("own\\sub\\x"), false);
    assert_eq!(moved.unwrap().path(), "own\\sub\\x");
    // A file is made in an opened folder that a link is in.
    let to = name("own\\second");
    let parent = vfs.open_parent(&to).unwrap();
    let parent = frevo_store::vfs::Parent { node: &*parent.node, name: &parent.name };
    assert!(vfs.open_in(parent, &to, &making(Existence::Either)).unwrap().created);
    assert_eq!(fault(vfs.open_parent(&name("hidden\\x"))), Some(Fault::NotCovered));
}

#[test]
fn a_reload_changes_the_links_of_those_who_are_connected() {
    let World { vfs, published, folder } = &world();
    let mut offline = link("own\\link");
    offline.state = State::Offline;
    published.follow(Some(&Published::new(namespace(vec![offline]))));
    let opened = vfs.open(&name("own\\link\\x"), &OpenHow::LOOK);
    assert_eq!(fault(opened), Some(Fault::DfsUnavailable));
    assert_eq!(published.normalize("s\\files\\own\\link"), Err(Status::DFS_UNAVAILABLE));
    assert_eq!(names(vfs, ""), ["hidden/", "own/", "top"]);
    published.follow(None);
    std::fs::write(folder.path().join("own/link"), "").unwrap();
    assert_eq!(names(vfs, "own"), ["link", "sub/"]);
}

/// MS-SMB2 2.2.13 and 3.3.5.9, MS-DFSC 3.2.4.1
#[test]
fn exactly_two_components_are_stripped() {
    let World { published, .. } = &world();
    for (path, name) in [
        ("", ""),
        ("server", ""),
        ("server\\files", ""),
        ("other\\else\\own", "own"),
        ("server\\files\\own\\sub\\file", "own\\sub\\file"),
        ("server\\files\\server\\files", "server\\files"),
    ] {
        assert_eq!(published.normalize(path), Ok(name), "{path}");
    }
    for path in ["s\\files\\HIDDEN", "s\\files\\own\\link\\x", "s\\files\\own\\new\\deep"] {
        assert_eq!(published.normalize(path), Err(Status::PATH_NOT_COVERED), "{path}");
    }
    assert_eq!(published.normalize("\\s\\files\\own"), Ok("own"));
    let mut closed = Namespace::new("files", Root::Share);
    closed.state = State::Offline;
    published.follow(Some(&Published::new(Arc::new(closed))));
    assert_eq!(published.normalize("s\\files"), Err(Status::DFS_UNAVAILABLE));
}

#[test]
fn a_root_of_its_own_has_links_and_nothing_else() {
    let share = Share::of_namespace(Namespace::clone(&namespace(vec![link("a\\b"), link("c")])));
    let files = Arc::clone(share.vfs().unwrap());
    let vfs = &LinkedVfs::new(files, share.namespace.unwrap());
    assert_eq!(
        (names(vfs, ""), names(vfs, "a")),
        (vec!["a/".into(), "c@".into()], vec!["b@".into()])
    );
    assert!(vfs.volume().read_only && share.read_only);
    assert_eq!(fault(vfs.open(&name("none"), &OpenHow::LOOK)), Some(Fault::NotFound));
    assert_eq!(fault(vfs.open(&name("x\\y"), &OpenHow::LOOK)), Some(Fault::PathNotFound));
    let root = vfs.stat(&Name::root()).unwrap();
    assert!(root.kind == frevo_store::vfs::Kind::Directory && root.reparse_tag == 0);
}
