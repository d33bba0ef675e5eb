use std::os::unix::fs::symlink;
use std::sync::Arc;

use frevo_dfs::{Namespace, Root, Target};
use frevo_store::name::Rules;
use frevo_store::vfs::{Existence, Fault, Kind, OpenHow, Parent, Replacement};
use frevo_store::{Name, Stat, Vfs};
use frevo_wire::fscc::reparse::ReparseTag;

use super::*;
use crate::shares::folders::testing::{PosixOptions, PosixVfs};

fn name(text: &str) -> Name {
    Name::parse(text, Rules::Windows).unwrap()
}

struct World {
    folder: tempfile::TempDir,
    published: Arc<Published>,
    vfs: SambaVfs,
}

/// A folder with `file`, `sub/file` and links of Samba's: `link`, `sub/Deep`, `Ä`; `plain` leads to `sub`,
/// and `bad` is none.
fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("sub")).unwrap();
    for file in ["file", "sub/file"] {
        std::fs::write(folder.path().join(file), "text").unwrap();
    }
    for (text, at) in [
        ("msdfs:one\\data,two/data", "link"),
        ("msdfs:one/deep", "sub/Deep"),
        ("msdfs:one\\\\umlaut", "Ä"),
        ("sub", "plain"),
        ("msdfs:one", "bad"),
    ] {
        symlink(text, folder.path().join(at)).unwrap();
    }
    let files = PosixVfs::open_root(folder.path(), PosixOptions::default()).unwrap();
    let published = Published::new(Arc::new(Namespace::new("files", Root::Share)));
    published.set_samba_links(true);
    let vfs = SambaVfs::new(Arc::new(files), Arc::clone(&published));
    World { folder, published, vfs }
}

fn listed(vfs: &dyn Vfs, folder: &str) -> Vec<(String, Stat)> {
    let opened = vfs.open(&name(folder), &OpenHow { read: true, ..OpenHow::DIRECTORY }).unwrap();
    let mut listing = opened.node.directory().unwrap();
    while listing.next_name().unwrap().is_some() {}
    listing.rewind().unwrap();
    let mut all = Vec::new();
    while let Some(name) = listing.next_name().unwrap().map(str::to_owned) {
        all.push((name, listing.entry_stat().unwrap().unwrap()));
    }
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

/// The names of a folder that are links of DFS.
fn links(vfs: &dyn Vfs, folder: &str) -> Vec<String> {
    let is_link = |stat: &Stat| stat.reparse_tag == ReparseTag::DFS.0;
    let all = listed(vfs, folder).into_iter().filter(|(_, stat)| is_link(stat));
    all.map(|(name, stat)| {
        assert_eq!((stat.kind, stat.end_of_file), (Kind::Directory, 0), "{name}");
        name
    })
    .collect()
}

fn open(vfs: &dyn Vfs, text: &str) -> Option<Fault> {
    vfs.open(&name(text), &OpenHow::LOOK).err()
}

#[test]
fn links_of_samba_are_folders_that_lead_away() {
    let World { vfs, .. } = &world();
    assert_eq!(links(vfs, ""), ["link", "Ä"]);
    assert_eq!(links(vfs, "SUB"), ["Deep"]);
    assert_eq!(listed(vfs, "").len(), 6);
    for text in ["link", "LINK\\a\\b\\c", "sub\\deep", "Sub\\DEEP\\x", "ä", "link:stream"] {
        assert_eq!(open(vfs, text), Some(Fault::NotCovered), "{text}");
        let made = OpenHow { existence: Existence::Either, write: true, ..OpenHow::LOOK };
        assert_eq!(vfs.open(&name(text), &made).err(), Some(Fault::NotCovered), "{text}");
    }
    let directory = OpenHow::DIRECTORY;
    assert_eq!(vfs.open(&name("link"), &directory).err(), Some(Fault::NotCovered));
    assert_eq!(vfs.open_parent(&name("link\\x")).err(), Some(Fault::NotCovered));
    let parent = vfs.open_parent(&name("sub\\deep")).unwrap();
    let parent = Parent { node: &*parent.node, name: &parent.name };
    let opened = vfs.open_in(parent, &name("sub\\deep"), &OpenHow::LOOK);
    assert_eq!(opened.err(), Some(Fault::NotCovered));
    // Other symbolic links are what they are without.
    for text in ["plain", "plain\\file", "bad", "bad\\x"] {
        assert_eq!(open(vfs, text), Some(Fault::Symlink), "{text}");
    }
    assert_eq!((open(vfs, "sub\\file"), open(vfs, "none")), (None, Some(Fault::NotFound)));
    // The link itself, as its folder lists it.
    let opened = vfs.open(&name("sub\\DEEP"), &LOOK).unwrap();
    let listed = &listed(vfs, "sub")[0];
    let seen = |stat: Stat| (stat.key, stat.kind, stat.attributes, stat.reparse_tag, stat.id);
    assert_eq!((opened.name.path(), seen(opened.stat)), ("sub\\Deep", seen(listed.1)));
    assert_eq!(opened.node.reparse_buffer().unwrap(), [0x0A, 0, 0, 0x80, 0, 0, 0, 0]);
    assert_eq!(seen(vfs.stat(&name("sub\\deep")).unwrap()), seen(listed.1));
    assert_eq!(vfs.stat(&name("link\\x")).err(), Some(Fault::NotCovered));
}

#[test]
fn the_link_on_the_way_is_found() {
    let World { vfs, .. } = &world();
    let found = |text: &str| {
        let link = find(vfs, &name(text))?;
        let targets = link.targets().iter().map(Target::to_string).collect::<Vec<_>>();
        Some((link.path().to_owned(), targets.join(" ")))
    };
    let is = |path: &str, targets: &str| Some((path.to_owned(), targets.to_owned()));
    assert_eq!(found("link"), is("link", r"\\one\data \\two\data"));
    assert_eq!(found("LINK\\a\\b\\c").unwrap().1, r"\\one\data \\two\data");
    assert_eq!(found("sub\\deep\\x").unwrap().1, r"\\one\deep");
    assert_eq!(found("Ä\\x").unwrap().1, r"\\one\umlaut");
    for text in ["", "sub", "sub\\file", "plain", "plain\\x", "bad", "none\\x", "file\\x"] {
        assert_eq!(found(text), None, "{text}");
    }
}

/// Nothing of a link is kept: what the host has at the moment counts.
#[test]
fn changes_of_the_host_are_seen_at_once() {
    let World { vfs, folder, published } = &world();
    let link = folder.path().join("link");
    let target = || find(vfs, &name("link\\x")).map(|link| link.targets()[0].to_string());
    let opened = vfs.open(&name(""), &OpenHow { read: true, ..OpenHow::DIRECTORY }).unwrap();
    let mut listing = opened.node.directory().unwrap();
    while listing.next_name().unwrap().is_some() {}
    for (text, expected) in [
        ("msdfs:three\\data", Some(r"\\three\data".to_owned())),
        ("sub", None),
        ("msdfs:four\\data", Some(r"\\four\data".to_owned())),
    ] {
        std::fs::remove_file(&link).unwrap();
        symlink(text, &link).unwrap();
        assert_eq!(target(), expected, "{text}");
        let fault = if expected.is_some() { Fault::NotCovered } else { Fault::Symlink };
        assert_eq!(open(vfs, "link\\x"), Some(fault), "{text}");
        listing.rewind().unwrap();
        let mut tag = 0;
        while let Some(name) = listing.next_name().unwrap().map(str::to_owned) {
            let stat = listing.entry_stat().unwrap().unwrap();
            if name == "link" {
                tag = stat.reparse_tag;
            }
        }
        assert_eq!(tag == ReparseTag::DFS.0, expected.is_some(), "{text}");
    }
    // A folder that is renamed while it is listed.
    let opened = vfs.open(&name("sub"), &OpenHow { read: true, ..OpenHow::DIRECTORY }).unwrap();
    std::fs::rename(folder.path().join("sub"), folder.path().join("moved")).unwrap();
    let mut listing = opened.node.directory().unwrap();
    let mut tags = Vec::new();
    while listing.next_name().unwrap().is_some() {
        tags.extend(listing.entry_stat().unwrap().map(|stat| stat.reparse_tag));
    }
    assert!(tags.contains(&ReparseTag::DFS.0), "{tags:x?}");
    // Without the key they are symbolic links again, also for those who are connected.
    published.follow(Some(&Published::new(Arc::new(Namespace::new("files", Root::Share)))));
    assert_eq!((open(vfs, "link"), links(vfs, "").len()), (Some(Fault::Symlink), 0));
    assert_eq!(vfs.stat(&name("link")).unwrap().kind, Kind::Symlink);
}

/// Row N8: no change through Frevo makes a link, moves one or removes one.
#[test]
fn links_take_no_change_and_no_client_makes_one() {
    let World { vfs, folder, .. } = &world();
    let key = |text: &str| vfs.stat(&name(text)).unwrap().key;
    let (link, file) = (key("link"), key("file"));
    assert_eq!(vfs.remove(&name("link"), link), Err(Fault::AccessDenied));
    assert_eq!(vfs.rename(&name("LINK"), link, &name("x"), false), Err(Fault::AccessDenied));
    assert_eq!(vfs.rename(&name("file"), file, &name("link"), true), Err(Fault::AccessDenied));
    let onto = vfs.rename(&name("file"), file, &name("link\\x"), false);
    assert_eq!(onto, Err(Fault::NotCovered));
    let node = vfs.open(&name("link"), &LOOK).unwrap().node;
    assert_eq!(vfs.link(&*node, &name("x"), false), Err(Fault::AccessDenied));
    assert!(node.takes_changes().is_err());
    let replaced = vfs.replace(&name("link"), &*node, &Replacement::Symlink("msdfs:eve\\x"));
    assert_eq!(replaced, Err(Fault::AccessDenied));
    let node = vfs.open(&name("file"), &LOOK).unwrap().node;
    assert_eq!(vfs.link(&*node, &name("link"), true), Err(Fault::AccessDenied));
    // A symbolic link of a client's gets no such text, on this share or on another one of the folder.
    let raw = PosixVfs::open_root(folder.path(), PosixOptions::default()).unwrap();
    for vfs in [vfs as &dyn Vfs, &raw] {
        let how = OpenHow { existence: Existence::Either, write: true, ..OpenHow::LOOK };
        let made = vfs.open(&name("made"), &how).unwrap();
        for text in ["msdfs:eve\\x", "msdfs:eve/x", "msdfs:"] {
            let replaced = vfs.replace(&made.name, &*made.node, &Replacement::Symlink(text));
            assert_eq!(replaced, Err(Fault::NotSupported), "{text}");
        }
        let text = Replacement::Symlink("sub/msdfs:");
        vfs.replace(&made.name, &*made.node, &text).unwrap();
        vfs.remove(&made.name, made.node.key()).unwrap();
    }
    assert_eq!(links(vfs, ""), ["link", "Ä"]);
}
