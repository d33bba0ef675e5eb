//! The tests that every implementor of [`Vfs`] passes: checks that panic.
//!
//! They ask for nothing that depends on a host: no owners, no masks, no mapping of names.
//! To run them on a file system of one's own, take this crate with the feature
//! `conformance` as a dev-dependency:
//!
//! ```
//! use std::sync::Arc;
//! use frevo_store::conformance::{self, Subject};
//! use frevo_store::memory::{MemoryOptions, MemoryVfs};
//! use frevo_store::{Name, Vfs};
//!
//! struct Mine(MemoryVfs); // or any other implementor
//!
//! impl Subject for Mine {
//!     fn vfs(&self) -> &dyn Vfs {
//!         &self.0
//!     }
//!
//!     fn symlink(&self, name: &str, target: &str) {
//!         self.0.symlink(&Name::from_stored(name.into()), target).unwrap();
//!     }
//! }
//!
//! fn mine() -> Mine {
//!     Mine(MemoryVfs::new(MemoryOptions::default(), Arc::new(Default::default)))
//! }
//!
//! // A #[test] of each check, on a new and empty file system.
//! mod tests {
//!     frevo_store::conformance_tests!(super::mine());
//! }
//!
//! // Or a single check.
//! conformance::content_is_read_as_written(&mine());
//! ```
//!
//! [`conformance_tests!`](crate::conformance_tests) makes all of them; each check is also a
//! function of this module, for a file system that keeps less (no streams, no attributes)
//! and passes those that it can.
//!
//! A read-only file system passes [`a_read_only_tree`], which changes nothing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    reason = "tests"
)]

use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::any::Any;

use crate::name::Name;
use crate::vfs::{
    BasicChange, Directory, Existence, Fault, FileKey, HostAccess, Kind, KindWanted, Node, OpenHow,
    Opened, Stat, Vfs, VfsResult,
};

mod content;
mod extents;
mod kept;
mod moves;
mod names;
mod reparse;
mod streams;

pub use content::*;
pub use extents::*;
pub use kept::*;
pub use moves::*;
pub use names::*;
pub use reparse::*;
pub use streams::*;

/// An empty, writable file system, with the operations that only its host has.
pub trait Subject {
    /// Returns the file system under test.
    fn vfs(&self) -> &dyn Vfs;

    /// Makes a symbolic link at `name` (with backslashes, as clients spell it).
    fn symlink(&self, name: &str, target: &str);
}

/// A read-only file system with these files: a directory `docs` with the file `Hello.txt`
/// (`hello`), and an empty file `top`.
///
/// Names are found in any case and listed as stored, what is missing is told apart, and
/// nothing can be changed.
pub fn a_read_only_tree(vfs: &dyn Vfs) {
    let open = |text: &str, how: &OpenHow| vfs.open(&name(text), how);
    let fault = |text: &str, how: &OpenHow| open(text, how).map(|o| o.name).expect_err(text);
    let listed = |text: &str| {
        let mut names = rest(&mut *open(text, &LOOK).expect(text).node.directory().expect(text));
        names.sort();
        names
    };
    assert_eq!(
        (listed(""), listed("DOCS")),
        (vec!["docs".into(), "top".into()], vec!["Hello.txt".into()])
    );
    let hello = open("Docs\\HELLO.txt", &READ).unwrap();
    assert_eq!((hello.name.path(), hello.created), ("docs\\Hello.txt", false));
    assert_eq!((content(&*hello.node).as_str(), hello.stat.end_of_file), ("hello", 5));
    assert_eq!(vfs.stat(&name("docs\\hello.txt")).unwrap().key, hello.node.key());
    assert_eq!(hello.node.read_at(5, &mut [0; 4]), Ok(0));
    assert_eq!(open("top", &READ).unwrap().node.read_at(0, &mut [0; 4]), Ok(0));
    assert_ne!(open("top", &READ).unwrap().node.key(), hello.node.key());
    assert_eq!(open("docs", &LOOK).unwrap().stat.kind, Kind::Directory);
    assert!(hello.node.directory().is_err());
    for (missing, why) in [
        ("none", Fault::NotFound),
        ("docs\\none", Fault::NotFound),
        ("none\\x", Fault::PathNotFound),
        ("top\\x", Fault::PathNotDirectory),
    ] {
        assert_eq!(fault(missing, &READ), why, "{missing}");
    }
    assert_eq!(fault("top", &CREATE), Fault::Exists);
    assert_eq!(fault("top", &CREATE_DIRECTORY), Fault::Exists);
    assert_eq!(
        fault("docs", &OpenHow { kind: KindWanted::NotDirectory, ..LOOK }),
        Fault::IsADirectory
    );
    assert_eq!(
        fault("top", &OpenHow { kind: KindWanted::Directory, ..LOOK }),
        Fault::NotADirectory
    );
    for refused in [fault("new", &CREATE), fault("new", &CREATE_DIRECTORY), fault("top", &WRITE)] {
        assert_eq!(refused, Fault::ReadOnly);
    }
    let key = hello.node.key();
    assert!(vfs.remove(&name("docs\\Hello.txt"), key).is_err());
    assert!(vfs.rename(&name("docs\\Hello.txt"), key, &name("x"), false).is_err());
    assert!(vfs.link(&*hello.node, &name("x"), false).is_err());
    assert!(hello.node.write_at(0, b"x").is_err());
    assert!(hello.node.set_end_of_file(0).is_err());
    assert_eq!(content(&*hello.node), "hello");
    assert!(vfs.volume().read_only && vfs.space().unwrap().available == 0);
}

/// Makes a `#[test]` of every check, each on a new subject from `$make`.
#[macro_export]
macro_rules! conformance_tests {
    ($make:expr) => {
        $crate::conformance_tests! { @ $make;
            content_is_read_as_written
            allocation_reserves_and_cuts
            rights_of_a_node_are_what_it_was_opened_for
            missing_names_say_which_part_is_missing
            parents_are_worked_in
            existence_and_kind_are_checked
            case_is_ignored_and_kept
            exact_names_can_be_asked_for
            names_of_posix_clients_are_exact
            names_that_cannot_be_stored
            directories_are_listed
            a_listing_survives_changes
            removal_looks_at_the_key
            removed_files_live_while_open
            renaming_moves_and_replaces
            renaming_keeps_open_files
            links_are_other_names
            renaming_one_link_onto_another
            links_lead_nowhere
            times_are_set
            attributes_are_kept
            extended_attributes_are_kept
            needed_attributes_are_known
            streams_are_data_of_their_own
            streams_go_with_their_file
            streams_are_renamed
            the_root_stays
            space_and_volume
            foreign_nodes_are_refused
            extents_are_shared_or_not_at_all
            extents_need_rights_and_sense
            zeros_are_read_and_holes_are_seen
            files_become_links_and_back
            links_have_a_kind
            reparse_buffers_are_kept
            object_ids_are_kept
        }
    };
    (@ $make:expr; $($check:ident)*) => {
        $(#[test]
        fn $check() {
            let subject = $make;
            $crate::conformance::$check(&subject);
        })*
    };
}

/// Parses a path, which may have a stream after a colon.
fn name(text: &str) -> Name {
    let (path, stream) = text.split_once(':').map_or((text, None), |(p, s)| (p, Some(s)));
    Name::from_stored(path.into()).with_stream(stream)
}

const LOOK: OpenHow = OpenHow::LOOK;
const READ: OpenHow = OpenHow { read: true, ..LOOK };
const WRITE: OpenHow = OpenHow { write: true, ..READ };
const CREATE: OpenHow = OpenHow { existence: Existence::MustNotExist, ..WRITE };
const EITHER: OpenHow = OpenHow { existence: Existence::Either, ..WRITE };
const CREATE_DIRECTORY: OpenHow =
    OpenHow { existence: Existence::MustNotExist, kind: KindWanted::Directory, ..LOOK };

/// Short forms of common calls.
impl dyn Subject + '_ {
    fn open(&self, text: &str, how: &OpenHow) -> VfsResult<Opened> {
        self.vfs().open(&name(text), how)
    }

    fn fault(&self, text: &str, how: &OpenHow) -> Fault {
        self.open(text, how).map(|opened| opened.name).expect_err(text)
    }

    fn file(&self, text: &str, content: &str) -> FileKey {
        let made = self.open(text, &CREATE).expect(text);
        made.node.write_at(0, content.as_bytes()).expect(text);
        made.node.key()
    }

    fn mkdir(&self, text: &str) -> FileKey {
        self.open(text, &CREATE_DIRECTORY).expect(text).node.key()
    }

    fn stat(&self, text: &str) -> VfsResult<Stat> {
        self.vfs().stat(&name(text))
    }

    fn key(&self, text: &str) -> FileKey {
        self.stat(text).expect(text).key
    }

    fn remove(&self, text: &str, key: FileKey) -> VfsResult<()> {
        self.vfs().remove(&name(text), key)
    }

    fn rename(&self, from: &str, key: FileKey, to: &str, replace: bool) -> VfsResult<String> {
        let renamed = self.vfs().rename(&name(from), key, &name(to), replace);
        renamed.map(|name| name.path().into())
    }

    fn content(&self, text: &str) -> VfsResult<String> {
        self.open(text, &READ).map(|opened| content(&*opened.node))
    }

    /// Returns the names in a directory, sorted.
    fn list(&self, text: &str) -> Vec<String> {
        let mut listing = self.open(text, &READ).expect(text).node.directory().expect(text);
        let mut names = rest(&mut *listing);
        names.sort();
        names
    }
}

fn content(node: &dyn Node) -> String {
    let mut buffer = vec![0; 4_096];
    let len = node.read_at(0, &mut buffer).expect("readable");
    buffer.truncate(len);
    String::from_utf8(buffer).expect("text")
}

fn rest(listing: &mut dyn Directory) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(name) = listing.next_name().expect("a name") {
        names.push(name.to_string());
    }
    names
}

/// Tests that the root opens and cannot be moved.
pub fn the_root_stays(s: &dyn Subject) {
    let root = s.open("", &READ).unwrap();
    assert_eq!((root.name.clone(), root.created), (Name::root(), false));
    assert_eq!(root.stat.kind, Kind::Directory);
    assert!(!s.open("", &EITHER).unwrap().created);
    assert_eq!(s.fault("", &CREATE), Fault::Exists);
    let file = OpenHow { kind: KindWanted::NotDirectory, ..LOOK };
    assert_eq!(s.fault("", &file), Fault::IsADirectory);
    let key = root.node.key();
    assert_eq!(s.key(""), key);
    assert_eq!(s.remove("", key), Err(Fault::AccessDenied));
    assert_eq!(s.rename("", key, "x", false), Err(Fault::AccessDenied));
    let a = s.file("a", "");
    assert_eq!(s.rename("a", a, "", true), Err(Fault::AccessDenied));
    assert_eq!(s.list(""), ["a"]);
}

/// Tests that the facts about space and volume agree.
pub fn space_and_volume(s: &dyn Subject) {
    let space = s.vfs().space().unwrap();
    assert!(space.unit >= 512 && space.total >= space.free && space.free >= space.available);
    assert!(space.available > 0);
    let volume = s.vfs().volume();
    assert!(!volume.read_only && volume.xattrs);
    assert_eq!((volume.file_system.as_str(), volume.max_component), ("NTFS", 255));
}

/// Tests that a node of another implementor cannot be linked.
pub fn foreign_nodes_are_refused(s: &dyn Subject) {
    assert_eq!(s.vfs().link(&Foreign, &name("x"), true), Err(Fault::NotSupported));
}

/// A node without a file.
#[derive(Debug)]
struct Foreign;

const REFUSED: Fault = Fault::NotSupported;

impl Node for Foreign {
    fn key(&self) -> FileKey {
        FileKey::of_file(0, 0)
    }
    fn descriptor(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
    fn stat(&self) -> VfsResult<Stat> {
        Err(REFUSED)
    }
    fn read_at(&self, _: u64, _: &mut [u8]) -> VfsResult<usize> {
        Err(REFUSED)
    }
    fn write_at(&self, _: u64, _: &[u8]) -> VfsResult<()> {
        Err(REFUSED)
    }
    fn sync(&self) -> VfsResult<()> {
        Err(REFUSED)
    }
    fn set_end_of_file(&self, _: u64) -> VfsResult<()> {
        Err(REFUSED)
    }
    fn set_allocation(&self, _: u64) -> VfsResult<()> {
        Err(REFUSED)
    }
    fn set_basic(&self, _: &BasicChange) -> VfsResult<()> {
        Err(REFUSED)
    }
    fn directory(&self) -> VfsResult<Box<dyn Directory>> {
        Err(REFUSED)
    }
    fn eas(&self) -> VfsResult<Vec<(String, Vec<u8>)>> {
        Err(REFUSED)
    }
    fn set_ea(&self, _: &str, _: &[u8]) -> VfsResult<()> {
        Err(REFUSED)
    }
    fn link_target(&self) -> VfsResult<String> {
        Err(REFUSED)
    }
    fn host_access(&self) -> HostAccess {
        HostAccess { read: false, write: false, execute: false, owner: false }
    }
}
