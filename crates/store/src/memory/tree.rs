//! Files by number, and the names that lead to them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Bound;

use frevo_wire::dtyp::{FileAttributes, FileTime};
use frevo_wire::fscc::upcase;

use super::content::Content;
use super::stream_set::Streams;
use crate::limits::MEMORY_COMPONENT_BYTES;
use crate::name::Name;
use crate::vfs::{Fault, FileKey, Kind, ObjectId, Stat, VfsResult, links};

/// IO_REPARSE_TAG_SYMLINK, MS-FSCC 2.1.2.1.
const TAG_SYMLINK: u32 = 0xA000_000C;
/// IO_REPARSE_TAG_NFS, MS-FSCC 2.1.2.6: FIFOs and sockets.
const TAG_NFS: u32 = 0x8000_0014;

/// The number of a file. No number is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ino(pub(super) u64);

/// The root directory.
pub(super) const ROOT: Ino = Ino(1);

/// The sort key of an entry: names that differ in case only are adjacent, in byte order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryKey {
    folded: String,
    pub(super) name: String,
}

impl EntryKey {
    pub(super) fn of(name: &str) -> Self {
        Self { folded: name.chars().map(upcase).collect(), name: String::from(name) }
    }
}

/// The entries of a directory.
#[derive(Debug, Clone, Default)]
pub(super) struct Entries(BTreeMap<EntryKey, Ino>);

impl Entries {
    /// Finds an exact match, else (unless `exact`) the first in byte order that differs in case
    /// only.
    pub(super) fn find(&self, name: &str, exact: bool) -> Option<(&str, Ino)> {
        let wanted = EntryKey::of(name);
        if let Some((key, ino)) = self.0.get_key_value(&wanted) {
            return Some((&key.name, *ino));
        }
        let from = EntryKey { name: String::new(), ..wanted };
        let (key, ino) = self.0.range(&from..).next()?;
        (!exact && key.folded == from.folded).then_some((key.name.as_str(), *ino))
    }

    /// Returns the first entry, or the first behind `last`.
    pub(super) fn after(&self, last: Option<&EntryKey>) -> Option<&EntryKey> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.0.range((from, Bound::Unbounded)).next().map(|(key, _)| key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The kind of a file, with its content.
#[derive(Debug, Clone)]
pub(super) enum Body {
    File(Content),
    Directory(Entries),
    Symlink(String),
    /// A FIFO or a socket.
    Special(Kind),
}

/// The metadata of a file or directory.
#[derive(Debug, Clone)]
pub(super) struct Meta {
    /// The stored DOS attributes only.
    pub(super) attributes: FileAttributes,
    pub(super) created: FileTime,
    pub(super) accessed: FileTime,
    pub(super) written: FileTime,
    pub(super) changed: FileTime,
    pub(super) mode: u32,
    pub(super) eas: Vec<(String, Vec<u8>)>,
    /// Names of the extended attributes with FILE_NEED_EA.
    pub(super) needed_eas: Vec<String>,
    /// The security descriptor, and the mode that was set with it.
    pub(super) security: Option<(Vec<u8>, u32)>,
    /// The reparse buffer, with its header.
    pub(super) reparse: Option<Vec<u8>>,
    /// The object id with its extended information.
    pub(super) object_id: Option<ObjectId>,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) links: u32,
}

#[derive(Debug, Clone)]
pub(super) struct Inode {
    pub(super) meta: Meta,
    pub(super) body: Body,
    pub(super) streams: Streams,
}

impl Inode {
    /// Makes a file without a name.
    pub(super) const fn new(body: Body, mode: u32, now: FileTime) -> Self {
        let meta = Meta {
            attributes: FileAttributes::EMPTY,
            created: now,
            accessed: now,
            written: now,
            changed: now,
            mode,
            eas: Vec::new(),
            needed_eas: Vec::new(),
            security: None,
            reparse: None,
            object_id: None,
            uid: 0,
            gid: 0,
            links: 0,
        };
        Self { meta, body, streams: Streams::EMPTY }
    }

    pub(super) const fn kind(&self) -> Kind {
        match self.body {
            Body::File(_) => Kind::File,
            Body::Directory(_) => Kind::Directory,
            Body::Symlink(_) => Kind::Symlink,
            Body::Special(kind) => kind,
        }
    }

    /// Returns the number of pages that the file takes of the volume.
    pub(super) fn held(&self) -> u64 {
        let own = match &self.body {
            Body::File(content) => content.held(),
            _ => 0,
        };
        own.saturating_add(self.streams.held())
    }

    /// Returns the file's state; `hidden` is true if its name makes it HIDDEN.
    pub(super) fn stat(&self, key: FileKey, unit: u64, hidden: bool) -> Stat {
        let mut attributes = self.meta.attributes;
        let (mut end_of_file, mut pages, mut reparse_tag) = (0, 0, 0);
        match &self.body {
            Body::File(content) => (end_of_file, pages) = (content.end(), content.held()),
            Body::Directory(_) => attributes |= FileAttributes::DIRECTORY,
            Body::Symlink(target) => {
                attributes |= match links::is_of_directory(target.as_bytes()) {
                    true => FileAttributes::DIRECTORY,
                    false => FileAttributes::ARCHIVE,
                };
                attributes |= FileAttributes::REPARSE_POINT;
                reparse_tag = TAG_SYMLINK;
            }
            Body::Special(_) => {
                attributes |= FileAttributes::REPARSE_POINT;
                reparse_tag = TAG_NFS;
            }
        }
        if let Some(tag) = self.meta.reparse.as_ref().and_then(|kept| kept.first_chunk()) {
            attributes |= FileAttributes::REPARSE_POINT;
            reparse_tag = u32::from_le_bytes(*tag);
        }
        if hidden {
            attributes |= FileAttributes::HIDDEN;
        }
        if attributes.is_empty() {
            attributes = FileAttributes::NORMAL;
        }
        Stat {
            key,
            id: key.inode,
            kind: self.kind(),
            end_of_file,
            allocation: pages.saturating_mul(unit),
            links: self.meta.links,
            attributes,
            created: self.meta.created,
            accessed: self.meta.accessed,
            written: self.meta.written,
            changed: self.meta.changed,
            mode: self.meta.mode,
            uid: self.meta.uid,
            gid: self.meta.gid,
            reparse_tag,
            ea_size: self.ea_size(),
        }
    }

    /// Returns the size of the extended attributes as FileEaInformation counts them, MS-FSA
    /// 2.1.5.12.10.
    fn ea_size(&self) -> u32 {
        let each = |(name, value): &(String, Vec<u8>)| {
            name.len().saturating_add(value.len()).saturating_add(5)
        };
        let total = self.meta.eas.iter().map(each).fold(0, usize::saturating_add);
        if total == 0 { 0 } else { u32::try_from(total.saturating_add(4)).unwrap_or(u32::MAX) }
    }
}

/// One entry that is set, or (with `None`) removed.
#[derive(Debug, Clone)]
pub(super) struct Edit {
    pub(super) dir: Ino,
    pub(super) name: String,
    pub(super) to: Option<Ino>,
}

/// Edits that take effect together, and the file that they create.
#[derive(Debug, Clone, Default)]
pub(super) struct Change {
    pub(super) edits: Vec<Edit>,
    pub(super) made: Option<(Ino, Arc<Inode>)>,
}

/// The place of a name's last component, whether it exists or not.
#[derive(Debug)]
pub(super) struct Location {
    pub(super) dir: Ino,
    /// The directories from the root to `dir`, included.
    pub(super) chain: Vec<Ino>,
    /// The name of `dir` as it is stored.
    pub(super) parent: Name,
    /// The last component as it was asked for.
    pub(super) wanted: String,
}

/// All files that have a name or are open.
#[derive(Debug, Clone)]
pub(super) struct Tree(pub(super) BTreeMap<Ino, Inode>);

impl Tree {
    /// Makes a tree of an empty root.
    pub(super) fn new(now: FileTime) -> Self {
        let mut root = Inode::new(Body::Directory(Entries::default()), 0o755, now);
        root.meta.links = 1;
        Self(BTreeMap::from([(ROOT, root)]))
    }

    /// Returns the entries of a directory; None for any other file.
    pub(super) fn entries(&self, dir: Ino) -> Option<&Entries> {
        match &self.0.get(&dir)?.body {
            Body::Directory(entries) => Some(entries),
            _ => None,
        }
    }

    pub(super) fn find(&self, dir: Ino, name: &str, exact: bool) -> Option<(&str, Ino, &Inode)> {
        let (stored, ino) = self.entries(dir)?.find(name, exact)?;
        Some((stored, ino, self.0.get(&ino)?))
    }

    /// Finds the location of `name`; its parent must exist. The root has no location, since no
    /// directory contains it.
    pub(super) fn place(&self, name: &Name, exact: bool) -> VfsResult<Location> {
        check_name(name, exact)?;
        let mut components = name.components();
        let wanted = String::from(components.next_back().ok_or(Fault::AccessDenied)?);
        let (mut dir, mut chain, mut parent) = (ROOT, vec![ROOT], Name::root());
        for component in components {
            let (stored, ino, inode) =
                self.find(dir, component, exact).ok_or(Fault::PathNotFound)?;
            if inode.meta.reparse.is_some() {
                // MS-FSA 2.1.5.1: a path cannot go through a reparse point, so the client has to
                // resolve it.
                return Err(Fault::Symlink);
            }
            match inode.kind() {
                Kind::Directory => {}
                Kind::Symlink => return Err(Fault::Symlink),
                _ => return Err(Fault::PathNotDirectory),
            }
            parent = parent.child(stored);
            dir = ino;
            chain.push(ino);
        }
        Ok(Location { dir, chain, parent, wanted })
    }

    /// Applies a change. Returns the files that lost their last name; they still exist.
    pub(super) fn apply(&mut self, change: &Change) -> Vec<Ino> {
        if let Some((ino, inode)) = &change.made {
            self.0.insert(*ino, Inode::clone(inode));
        }
        let mut touched = Vec::new();
        for edit in &change.edits {
            let Some(Body::Directory(entries)) = self.0.get_mut(&edit.dir).map(|d| &mut d.body)
            else {
                continue;
            };
            let key = EntryKey::of(&edit.name);
            let before = match edit.to {
                Some(ino) => entries.0.insert(key, ino),
                None => entries.0.remove(&key),
            };
            if let Some(inode) = edit.to.and_then(|ino| self.0.get_mut(&ino)) {
                inode.meta.links = inode.meta.links.saturating_add(1);
            }
            if let Some(inode) = before.and_then(|ino| self.0.get_mut(&ino)) {
                inode.meta.links = inode.meta.links.saturating_sub(1);
            }
            touched.extend(before);
        }
        touched.retain(|ino| self.0.get(ino).is_some_and(|inode| inode.meta.links == 0));
        touched
    }
}

/// Refuses a name with a component that cannot be stored.
pub(super) fn check_name(name: &Name, posix: bool) -> VfsResult<()> {
    if name.stream().is_some_and(|stream| stream.len() > MEMORY_COMPONENT_BYTES) {
        return Err(Fault::NameTooLong);
    }
    name.components().try_for_each(|component| {
        let special = matches!(component, "." | "..") || component.contains(['\0', '/']);
        // Windows drops a dot or a space at the end of a name, so such a name would become another
        // one.
        let dropped = !posix && component.ends_with([' ', '.']);
        if special || dropped {
            return Err(Fault::NameInvalid);
        }
        if component.len() > MEMORY_COMPONENT_BYTES {
            return Err(Fault::NameTooLong);
        }
        Ok(())
    })
}
