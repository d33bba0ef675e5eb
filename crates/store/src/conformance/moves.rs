//! Removing, renaming and linking.

use alloc::vec::Vec;

use frevo_wire::dtyp::FileAttributes;

use super::{CREATE, EITHER, LOOK, READ, Subject, WRITE, content, name};
use crate::vfs::{BasicChange, Fault, Kind, KindWanted, OpenHow};

/// Tests that a name is not removed when it means another file by now.
pub fn removal_looks_at_the_key(s: &dyn Subject) {
    let a = s.file("a", "");
    s.file("b", "");
    assert_eq!(s.remove("b", a), Err(Fault::Stale));
    assert_eq!(s.remove("c", a), Err(Fault::NotFound));
    s.remove("A", a).unwrap();
    assert_eq!(s.remove("a", a), Err(Fault::NotFound));
    assert_eq!(s.list(""), ["b"]);
}

/// Tests that an open file lives on, whatever happens to its name.
pub fn removed_files_live_while_open(s: &dyn Subject) {
    let node = s.open("a", &CREATE).unwrap().node;
    node.write_at(0, b"first").unwrap();
    s.remove("a", node.key()).unwrap();
    assert_eq!(s.fault("a", &LOOK), Fault::NotFound);
    let second = s.file("a", "second");
    assert_ne!(second, node.key(), "a key is not used again while somebody has it");
    node.write_at(5, b" and last").unwrap();
    node.sync().unwrap();
    assert_eq!(content(&*node), "first and last");
    assert_eq!(node.stat().unwrap().links, 0);
    assert_eq!(s.remove("a", node.key()), Err(Fault::Stale));
    assert_eq!(s.vfs().link(&*node, &name("b"), false), Err(Fault::NotFound));
    drop(node);
    assert_eq!(s.content("a").unwrap(), "second");
    assert_eq!(s.list(""), ["a"]);
}

/// Tests renaming and replacing. MS-FSA 2.1.5.15.12.
pub fn renaming_moves_and_replaces(s: &dyn Subject) {
    let dir = s.mkdir("d");
    let a = s.file("a", "a");
    let b = s.file("b", "b");
    assert_eq!(s.rename("a", b, "c", false), Err(Fault::Stale));
    assert_eq!(s.rename("x", a, "c", false), Err(Fault::NotFound));
    assert_eq!(s.rename("a", a, "B", false), Err(Fault::Exists));
    assert_eq!(s.rename("a", a, "no\\b", false), Err(Fault::PathNotFound));
    assert_eq!(s.rename("a", a, "b\\c", false), Err(Fault::PathNotDirectory));
    // A rename may change only the case of the name.
    assert_eq!(s.rename("a", a, "A", false).as_deref(), Ok("A"));
    assert_eq!(s.list(""), ["A", "b", "d"]);
    assert_eq!(s.rename("a", a, "A", false).as_deref(), Ok("A"));
    assert_eq!(s.rename("D", dir, "D", false).as_deref(), Ok("D"));
    // The request names the target directory "D" in another case. The result has the directory's
    // own spelling.
    assert_eq!(s.rename("A", a, "d\\x", false).as_deref(), Ok("D\\x"));
    assert_eq!(s.content("d\\x").unwrap(), "a");
    // A rename that replaces an entry gives it the spelling of the request.
    assert_eq!(s.rename("d\\X", a, "B", true).as_deref(), Ok("B"));
    assert_eq!(s.list(""), ["B", "D"]);
    assert_eq!(s.content("b").unwrap(), "a");
    // A rename never replaces a directory, but a directory may replace a file.
    assert_eq!(s.rename("B", a, "d", true), Err(Fault::AccessDenied));
    assert_eq!(s.rename("d", dir, "b", false), Err(Fault::Exists));
    assert_eq!(s.rename("d", dir, "b", true).as_deref(), Ok("b"));
    assert_eq!(s.list(""), ["b"]);
    // A directory cannot be moved into itself. The failed attempts must change nothing.
    s.mkdir("b\\c");
    s.file("b\\f", "f");
    assert_eq!(s.rename("b", dir, "b\\c\\b", false), Err(Fault::Invalid));
    assert_eq!(s.rename("b", dir, "b\\x", false), Err(Fault::Invalid));
    assert_eq!(s.rename("b", dir, "B\\F", true), Err(Fault::Invalid));
    assert_eq!(s.rename("b\\c", s.key("b\\c"), "b", true), Err(Fault::AccessDenied));
    assert_eq!(s.content("b\\f").unwrap(), "f");
    assert_eq!(s.list("b"), ["c", "f"]);
}

/// Tests that a node keeps its file through renames.
pub fn renaming_keeps_open_files(s: &dyn Subject) {
    s.mkdir("d");
    let a = s.open("d\\a", &CREATE).unwrap().node;
    let b = s.open("b", &CREATE).unwrap().node;
    a.write_at(0, b"a").unwrap();
    b.write_at(0, b"b").unwrap();
    s.rename("d", s.key("d"), "e", false).unwrap();
    s.rename("e\\a", a.key(), "b", true).unwrap();
    a.write_at(1, b"A").unwrap();
    b.write_at(1, b"B").unwrap();
    assert_eq!((content(&*a), content(&*b)), ("aA".into(), "bB".into()));
    assert_eq!((a.stat().unwrap().links, b.stat().unwrap().links), (1, 0));
    assert_eq!(s.content("b").unwrap(), "aA");
    assert_eq!(s.list("e"), [""; 0]);
}

/// Tests hard links.
pub fn links_are_other_names(s: &dyn Subject) {
    s.file("a", "a");
    let c = s.open("c", &CREATE).unwrap().node;
    s.mkdir("d");
    let a = s.open("a", &LOOK).unwrap().node;
    let link = |to: &str, replace| s.vfs().link(&*a, &name(to), replace);
    link("b", false).unwrap();
    link("D\\b", false).unwrap();
    assert_eq!(a.stat().unwrap().links, 3);
    assert_eq!(s.key("d\\B"), a.key());
    assert_eq!(link("C", false), Err(Fault::Exists));
    link("C", true).unwrap();
    assert_eq!(c.stat().unwrap().links, 0);
    assert_eq!(s.content("c").unwrap(), "a");
    assert_eq!(link("c", true), Ok(()), "its own name");
    assert_eq!(s.list(""), ["a", "b", "c", "d"]);
    assert_eq!(link("d", true), Err(Fault::AccessDenied));
    assert_eq!(link("no\\x", true), Err(Fault::PathNotFound));
    assert_eq!(a.stat().unwrap().links, 4);
    s.remove("a", a.key()).unwrap();
    s.remove("b", a.key()).unwrap();
    assert_eq!(a.stat().unwrap().links, 2);
    assert_eq!(s.content("d\\b").unwrap(), "a");
    let root = s.open("", &LOOK).unwrap().node;
    assert_eq!(s.vfs().link(&*root, &name("x"), false), Err(Fault::IsADirectory));
}

/// Tests that renaming a link onto another link of its file leaves one, without permission to
/// replace. MS-FSA 2.1.5.15.12.
pub fn renaming_one_link_onto_another(s: &dyn Subject) {
    let key = s.file("a", "a");
    s.mkdir("d");
    let a = s.open("a", &LOOK).unwrap().node;
    s.vfs().link(&*a, &name("b"), false).unwrap();
    s.vfs().link(&*a, &name("d\\a"), false).unwrap();
    assert_eq!(s.rename("b", key, "A", false).as_deref(), Ok("A"));
    assert_eq!(s.list(""), ["A", "d"]);
    assert_eq!(s.rename("d\\a", key, "a", false).as_deref(), Ok("a"));
    assert_eq!(s.list(""), ["a", "d"]);
    assert_eq!(s.list("d"), [""; 0]);
    assert_eq!(a.stat().unwrap().links, 1);
    assert_eq!(s.content("a").unwrap(), "a");
}

/// Tests that symbolic links are objects and are not followed.
pub fn links_lead_nowhere(s: &dyn Subject) {
    s.mkdir("d");
    s.file("d\\f", "inside");
    s.symlink("in", "d");
    s.symlink("d\\out", "/no/such/thing");
    for text in ["in", "IN", "d\\out", "in\\f", "in\\none", "d\\OUT\\x"] {
        for how in [LOOK, READ, WRITE, EITHER] {
            assert_eq!(s.fault(text, &how), Fault::Symlink, "{text}");
        }
    }
    assert_eq!(s.fault("in", &CREATE), Fault::Exists);
    let open_link = OpenHow { open_link: true, ..LOOK };
    assert_eq!(s.fault("in\\f", &open_link), Fault::Symlink);
    let directory = OpenHow { kind: KindWanted::Directory, ..open_link };
    assert_eq!(s.fault("in", &directory), Fault::NotADirectory);
    let link = s.open("IN", &open_link).unwrap();
    assert_eq!((link.stat.kind, link.stat.reparse_tag), (Kind::Symlink, 0xA000_000C));
    assert_eq!(link.stat.attributes, FileAttributes::REPARSE_POINT | FileAttributes::ARCHIVE);
    assert_eq!((link.stat.end_of_file, link.stat.allocation), (0, 0));
    assert_eq!(link.node.link_target().as_deref(), Ok("d"));
    assert_eq!(link.node.read_at(0, &mut [0; 4]), Err(Fault::AccessDenied));
    assert_eq!(link.node.eas(), Ok(Vec::new()));
    assert_eq!(link.node.set_ea("a", b"b"), Err(Fault::NotSupported));
    let mode = BasicChange { mode: Some(0o600), ..BasicChange::default() };
    assert_eq!(link.node.set_basic(&mode), Err(Fault::NotSupported));
    assert_eq!(s.rename("in", link.node.key(), "d\\IN", false).as_deref(), Ok("d\\IN"));
    assert_eq!(s.stat("d\\in").unwrap().kind, Kind::Symlink);
    s.remove("d\\in", link.node.key()).unwrap();
    assert_eq!(s.list("d"), ["f", "out"]);
}
