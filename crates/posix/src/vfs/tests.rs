use std::os::fd::AsRawFd as _;

use super::*;
use frevo_store::vfs::KindWanted;
use frevo_wire::dtyp::FileAttributes;

fn how(existence: Existence) -> OpenHow {
    OpenHow {
        existence,
        kind: KindWanted::Any,
        read: true,
        write: true,
        open_link: false,
        attributes: FileAttributes::ARCHIVE | FileAttributes::HIDDEN,
        mode: None,
        case_sensitive: false,
    }
}

fn name(text: &str) -> Name {
    Name::from_stored(text.into())
}

/// Tests that listings are equal with and without getxattrat(2).
#[test]
fn older_kernels_list_the_same() {
    let host = tempfile::tempdir().unwrap();
    let options = PosixOptions { list_ea_sizes: true, ..PosixOptions::default() };
    let mut vfs = PosixVfs::open_root(host.path(), options).unwrap();
    let made = vfs.open(&name("file"), &how(Existence::MustNotExist)).unwrap();
    made.node.set_ea("Color", b"red").unwrap();
    std::os::unix::fs::symlink("file", host.path().join("link")).unwrap();
    std::fs::create_dir(host.path().join("dir")).unwrap();
    drop(made);
    let list = |vfs: &PosixVfs| {
        let root = OpenHow { write: false, ..how(Existence::MustExist) };
        let mut listing = vfs.open(&Name::root(), &root).unwrap().node.directory().unwrap();
        let mut found = Vec::new();
        while let Some(entry) = listing.next_name().unwrap() {
            let entry = entry.to_owned();
            let mut stat = listing.entry_stat().unwrap().unwrap();
            // Looking up a link may change the access time of its target, so this time is not
            // compared.
            stat.accessed = stat.created;
            found.push((entry, stat));
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    };
    let now = list(&vfs);
    let file = now.iter().find(|(entry, _)| entry == "file").unwrap().1;
    assert_eq!(file.attributes, FileAttributes::ARCHIVE | FileAttributes::HIDDEN);
    assert_eq!(file.ea_size, 4 + 5 + 5 + 3);
    Arc::get_mut(&mut vfs.share).unwrap().entry_xattrs = false;
    assert_eq!(list(&vfs), now);
}

/// Tests that a created file keeps its directory open until the first sync only.
#[test]
fn the_first_sync_covers_the_directory() {
    let host = tempfile::tempdir().unwrap();
    let vfs = PosixVfs::open_root(host.path(), PosixOptions::default()).unwrap();
    let directory = OpenHow { kind: KindWanted::Directory, ..how(Existence::MustNotExist) };
    vfs.open(&name("dir"), &directory).unwrap();
    let is_pending = |opened: &Opened| {
        let node: &dyn Any = &*opened.node;
        node.downcast_ref::<PosixNode>().unwrap().is_entry_pending()
    };
    let made = vfs.open(&name("DIR\\new"), &how(Existence::Either)).unwrap();
    assert!(made.created && is_pending(&made));
    made.node.write_at(0, b"x").unwrap();
    made.node.sync().unwrap();
    assert!(!is_pending(&made));
    made.node.sync().unwrap();
    let again = vfs.open(&name("dir\\new"), &how(Existence::Either)).unwrap();
    assert!(!again.created && !is_pending(&again));
}

/// Tests that an open closes all other descriptors, however it ends.
#[test]
fn no_descriptor_is_left_behind() {
    let host = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(host.path().join("a/b")).unwrap();
    std::fs::write(host.path().join("a/b/file"), "").unwrap();
    std::os::unix::fs::symlink("/", host.path().join("a/out")).unwrap();
    let vfs = PosixVfs::open_root(host.path(), PosixOptions::default()).unwrap();
    let round = |i: u32| {
        for text in ["A\\B\\FILE", "a\\b\\none", "a\\out\\etc", "A\\OUT", "no\\x", "a\\b\\file\\x"]
        {
            let _ = vfs.open(&name(text), &how(Existence::MustExist));
            let _ = vfs.open(&name(text), &how(Existence::MustNotExist));
            let _ = vfs.stat(&name(text));
        }
        let new = name(&format!("A\\new{i}"));
        let key = vfs.open(&new, &how(Existence::MustNotExist)).unwrap().node.key();
        let other = name(&format!("a\\B\\moved{i}"));
        vfs.rename(&new, key, &other, false).unwrap();
        vfs.remove(&other, key).unwrap();
    };
    round(0);
    // The kernel hands out the lowest free descriptor. Other tests open files, too, so only a
    // growth over many rounds counts as a leak.
    let next = || std::fs::File::open("/dev/null").unwrap().as_raw_fd();
    let before = next();
    for i in 1..300 {
        round(i);
    }
    assert!(next() < before + 100, "descriptors are lost");
}

/// Tests that a directory goes back when what it replaced cannot be removed.
#[test]
fn a_replacement_in_steps_is_undone() {
    let host = tempfile::tempdir().unwrap();
    let folder = std::fs::File::open(host.path()).unwrap();
    let at = |name: &'static [u8]| (folder.as_fd(), name);
    let names = || {
        let entries = std::fs::read_dir(host.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    for name in ["from", "to"] {
        std::fs::create_dir(host.path().join(name)).unwrap();
    }
    std::fs::write(host.path().join("to/kept"), "").unwrap();
    // `to` is a directory with a file, which unlinkat(2) without AT_REMOVEDIR cannot remove. So the
    // replacement must be undone.
    replace_in_steps(at(b"from"), at(b"to")).unwrap_err();
    assert_eq!(names(), ["from", "to"]);
    assert!(host.path().join("to/kept").exists());
    std::fs::remove_dir_all(host.path().join("to")).unwrap();
    std::fs::write(host.path().join("to"), "").unwrap();
    replace_in_steps(at(b"from"), at(b"to")).unwrap();
    assert_eq!(names(), ["to"]);
}
