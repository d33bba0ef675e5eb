//! Reparse points as objects of the host and as stored buffers; object ids.

use frevo_wire::dtyp::FileAttributes;

use super::{CREATE, LOOK, READ, Subject};
use crate::vfs::{
    BasicChange, Fault, Kind, KindWanted, ObjectIdChange, OpenHow, Replacement, links,
};

/// Tests that a node follows its file through a replacement by a link, and back.
pub fn files_become_links_and_back(s: &dyn Subject) {
    let vfs = s.vfs();
    let directory = OpenHow { kind: KindWanted::Directory, ..CREATE };
    for (text, how) in [("a", CREATE), ("d", directory)] {
        let at = super::name(text);
        let made = s.open(text, &OpenHow { write: false, read: false, ..how }).unwrap();
        vfs.replace(&at, &*made.node, &Replacement::Symlink("x/y")).unwrap();
        let stat = made.node.stat().unwrap();
        assert_eq!((stat.kind, stat.reparse_tag), (Kind::Symlink, 0xA000_000C), "{text}");
        assert_eq!(stat.attributes, FileAttributes::REPARSE_POINT | FileAttributes::ARCHIVE);
        assert_eq!(made.node.link_target().as_deref(), Ok("x/y"));
        assert_eq!((stat.key, stat.key), (made.node.key(), s.key(text)));
        assert_eq!(s.fault(text, &READ), Fault::Symlink);
        assert_eq!(made.node.write_at(0, b"lost"), Err(Fault::AccessDenied));
        for (by, kind) in [(Replacement::Fifo, Kind::Fifo), (Replacement::Socket, Kind::Socket)] {
            vfs.replace(&at, &*made.node, &by).unwrap();
            let stat = s.stat(text).unwrap();
            assert_eq!((stat.kind, stat.reparse_tag), (kind, 0x8000_0014), "{text}");
            assert_eq!(stat.key, made.node.key());
        }
        assert_eq!(s.fault(text, &READ), Fault::AccessDenied);
        vfs.replace(&at, &*made.node, &Replacement::File).unwrap();
        let stat = s.stat(text).unwrap();
        assert_eq!((stat.kind, stat.reparse_tag, stat.end_of_file), (Kind::File, 0, 0));
        assert_eq!(s.content(text).unwrap(), "");
        s.remove(text, made.node.key()).unwrap();
    }
    s.file("full", "x");
    let full = s.open("full", &LOOK).unwrap();
    let link = Replacement::Symlink("x");
    assert_eq!(vfs.replace(&super::name("full"), &*full.node, &link), Err(Fault::Invalid));
    s.mkdir("p");
    s.file("p\\f", "");
    let parent = s.open("p", &LOOK).unwrap();
    assert_eq!(vfs.replace(&super::name("p"), &*parent.node, &link), Err(Fault::NotEmpty));
    assert_eq!(vfs.replace(&super::name("full"), &*parent.node, &link), Err(Fault::Stale));
    assert_eq!(s.list(""), ["full", "p"]);
    assert_eq!(s.list("p"), ["f"]);
}

/// Tests that a link is a directory's or a file's, as its stored target says.
pub fn links_have_a_kind(s: &dyn Subject) {
    let itself = |kind| OpenHow { kind, open_link: true, ..LOOK };
    let files = (FileAttributes::ARCHIVE, KindWanted::NotDirectory, KindWanted::Directory);
    let folders = (FileAttributes::DIRECTORY, KindWanted::Directory, KindWanted::NotDirectory);
    for (text, directory, told) in [("a", false, files), ("d", true, folders)] {
        let (attribute, fits, other) = told;
        let made = s.open(text, &OpenHow { read: false, write: false, ..CREATE }).unwrap();
        let target = links::stored("x/y", directory);
        s.vfs().replace(&super::name(text), &*made.node, &Replacement::Symlink(&target)).unwrap();
        let attributes = attribute | FileAttributes::REPARSE_POINT;
        let opened = s.open(text, &itself(fits)).unwrap();
        assert_eq!(opened.node.link_target().as_deref(), Ok("x/y"), "{text}");
        for stat in [opened.stat, opened.node.stat().unwrap(), made.node.stat().unwrap()] {
            assert_eq!((stat.kind, stat.attributes), (Kind::Symlink, attributes), "{text}");
        }
        let refused = if directory { Fault::IsADirectory } else { Fault::NotADirectory };
        assert_eq!(s.fault(text, &itself(other)), refused, "{text}");
        assert_eq!(s.fault(text, &OpenHow { kind: fits, ..LOOK }), Fault::Symlink, "{text}");
        let root = s.open("", &LOOK).unwrap();
        let mut listing = root.node.directory().unwrap();
        assert_eq!(listing.next_name().unwrap(), Some(text));
        assert_eq!(listing.entry_stat().unwrap().unwrap().attributes, attributes);
        s.remove(text, made.node.key()).unwrap();
    }
}

/// Tests that a stored buffer stays until it is removed, whatever else changes.
pub fn reparse_buffers_are_kept(s: &dyn Subject) {
    let buffer = *b"\x03\0\0\xA0\x02\0\0\0ab";
    s.file("a", "content");
    s.mkdir("d");
    for (text, kind) in [("a", FileAttributes::ARCHIVE), ("d", FileAttributes::DIRECTORY)] {
        let node = s.open(text, &LOOK).unwrap().node;
        assert_eq!(node.reparse_buffer(), Err(Fault::NotFound));
        node.keep_reparse(Some(&buffer)).unwrap();
        assert_eq!(node.reparse_buffer().as_deref(), Ok(&buffer[..]));
        for stat in [node.stat().unwrap(), s.stat(text).unwrap()] {
            assert_eq!(stat.reparse_tag, 0xA000_0003, "{text}");
            assert_eq!(stat.attributes, kind | FileAttributes::REPARSE_POINT);
            assert_eq!(stat.ea_size, 0);
        }
        assert_eq!(node.eas(), Ok(alloc::vec::Vec::new()));
        let change =
            BasicChange { attributes: Some(FileAttributes::HIDDEN), ..BasicChange::default() };
        node.set_basic(&change).unwrap();
        let stat = s.stat(text).unwrap();
        let hidden = FileAttributes::HIDDEN | FileAttributes::REPARSE_POINT;
        assert!(stat.attributes.contains(hidden), "{:?}", stat.attributes);
    }
    let root = s.open("", &LOOK).unwrap();
    let mut listing = root.node.directory().unwrap();
    while listing.next_name().unwrap().is_some() {
        assert_eq!(listing.entry_stat().unwrap().unwrap().reparse_tag, 0xA000_0003);
    }
    s.file("plain", "content");
    let plain = s.stat("plain").unwrap().key;
    for text in ["a\\f", "d\\f", "D\\f", "d\\e\\f"] {
        for how in [LOOK, CREATE, super::CREATE_DIRECTORY] {
            assert_eq!(s.fault(text, &how), Fault::Symlink, "{text}");
        }
        assert_eq!(s.rename("plain", plain, text, false), Err(Fault::Symlink), "{text}");
    }
    let node = s.open("a", &LOOK).unwrap().node;
    node.keep_reparse(None).unwrap();
    assert_eq!(node.reparse_buffer(), Err(Fault::NotFound));
    let stat = s.stat("a").unwrap();
    assert_eq!(stat.reparse_tag, 0);
    assert!(!stat.attributes.contains(FileAttributes::REPARSE_POINT));
    assert_eq!(s.content("a").unwrap(), "content");
}

/// Tests that a new id needs a file without one, and extended information a file with one.
pub fn object_ids_are_kept(s: &dyn Subject) {
    s.file("a", "content");
    s.mkdir("d");
    for text in ["a", "d"] {
        let node = s.open(text, &LOOK).unwrap().node;
        assert_eq!(node.object_id(), Ok(None));
        let extended = ObjectIdChange::Extended([9; 48]);
        assert_eq!(node.change_object_id(&extended), Err(Fault::NotFound));
        node.change_object_id(&ObjectIdChange::Forget).unwrap();
        node.change_object_id(&ObjectIdChange::New([7; 64])).unwrap();
        assert_eq!(node.change_object_id(&ObjectIdChange::New([8; 64])), Err(Fault::Exists));
        assert_eq!(node.object_id(), Ok(Some([7; 64])));
        node.change_object_id(&extended).unwrap();
        let id = s.open(text, &LOOK).unwrap().node.object_id().unwrap().unwrap();
        assert_eq!((&id[..16], &id[16..]), (&[7; 16][..], &[9; 48][..]), "{text}");
        assert_eq!((node.eas(), s.stat(text).unwrap().ea_size), (Ok(alloc::vec::Vec::new()), 0));
        node.change_object_id(&ObjectIdChange::Forget).unwrap();
        assert_eq!(node.object_id(), Ok(None));
    }
}
