//! Nodes: what the kernel knows by a number.
//!
//! The number is the file's id on the server, so that two links of one file are
//! one node; where there is none, one is made up. A node's path is that of its
//! directory and its name there, so that renaming a directory moves all below.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use frevo_client::{FileType as Type, Metadata, PosixKind, Special};
use frevo_wire::dtyp::FileAttributes;
use frevo_wire::fscc::reparse::ReparseTag;
use fuser::{Errno, FileType};
use parking_lot::Mutex;

use crate::cache::Content;
use crate::errno::Outcome;
use crate::volume::{ListedDir, Locks, Opens};

/// The share's folder that is mounted.
pub(crate) const ROOT: u64 = 1;
/// Where made-up numbers begin.
const MADE_UP: u64 = 1 << 63;

/// More links than this of one file need not be remembered.
const LINKS_KNOWN: usize = 8;

/// No directory is deeper.
const DEPTH_MAX: usize = 4096;

/// What a file or directory is called: its directory, and its name there.
pub(crate) type Name = (Arc<Node>, String);

/// A file, directory or link that the kernel has asked about.
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) kind: FileType,
    /// The path of the mounted folder in the share, for the root.
    base: Option<String>,
    /// All names that were seen, the last one last. None when it was removed.
    names: Mutex<Vec<Name>>,
    /// How often the kernel was told of it and has not forgotten.
    lookups: AtomicU64,
    known: Mutex<Learned>,
    /// The server's Opens of it.
    pub(crate) opens: Mutex<Opens>,
    /// Held while that changes.
    pub(crate) opening: tokio::sync::Mutex<()>,
    /// What is kept of it, if it is a directory.
    pub(crate) listed: ListedDir,
    /// Byte-range locks of programs of this machine.
    pub(crate) locks: tokio::sync::Mutex<Locks>,
    /// Told when one of them is let go of.
    pub(crate) unlocked: tokio::sync::Notify,
    /// What is kept of its data.
    content: Mutex<Option<Arc<Content>>>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({}, {:?})", self.id, self.path())
    }
}

/// What the server said of a node, and when it was asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) metadata: Metadata,
    pub(crate) at: Instant,
}

#[derive(Debug, Default)]
struct Learned {
    known: Option<Known>,
    /// Since when it is otherwise than before.
    changed: Option<Instant>,
}

impl Node {
    fn new(id: u64, kind: FileType, base: Option<String>) -> Arc<Self> {
        Arc::new(Self {
            id,
            kind,
            base,
            names: Mutex::default(),
            lookups: AtomicU64::new(0),
            known: Mutex::default(),
            opens: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            listed: ListedDir::default(),
            locks: tokio::sync::Mutex::default(),
            unlocked: tokio::sync::Notify::new(),
            content: Mutex::new(None),
        })
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Its path in the share.
    ///
    /// # Errors
    /// ENOENT when it has none any more.
    pub(crate) fn path(&self) -> Outcome<String> {
        let mut parts: Vec<String> = Vec::new();
        let mut at: Option<Arc<Self>> = None;
        // A directory cannot be below itself, but names may be of different times.
        for _ in 0..DEPTH_MAX {
            let node = at.as_deref().unwrap_or(self);
            if let Some(base) = &node.base {
                if !base.is_empty() {
                    parts.push(base.clone());
                }
                parts.reverse();
                return Ok(parts.join("/"));
            }
            let (parent, name) = node.names.lock().last().cloned().ok_or(Errno::ENOENT)?;
            parts.push(name);
            at = Some(parent);
        }
        Err(Errno::ELOOP)
    }

    /// The path of `name` in this directory, both as the wire has them.
    pub(crate) fn below(&self, name: &str) -> Outcome<String> {
        let path = self.path()?;
        Ok(if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") })
    }

    /// The directory that it was seen in last, and its name there.
    pub(crate) fn name(&self) -> Option<Name> {
        self.names.lock().last().cloned()
    }

    /// Whether it is known as `name` in `parent`.
    pub(crate) fn is_seen_as(&self, parent: u64, name: &str) -> bool {
        self.names.lock().iter().any(|(at, known)| at.id == parent && known == name)
    }

    /// Whether the directory is, or lies in, the one of that number.
    fn is_within(&self, id: u64) -> bool {
        let mut at: Option<Arc<Self>> = None;
        for _ in 0..DEPTH_MAX {
            let node = at.as_deref().unwrap_or(self);
            if node.id == id {
                return true;
            }
            let Some((parent, _)) = node.name() else { return false };
            at = Some(parent);
        }
        true
    }

    /// Forgets names by which it holds itself: in a directory that was moved below it
    /// meanwhile, or that a hostile server says is. It would never go.
    fn untie(self: &Arc<Self>) {
        if self.is_dir() {
            let known = std::mem::take(&mut *self.names.lock());
            let kept: Vec<Name> =
                known.into_iter().filter(|(parent, _)| !holds(parent, self)).collect();
            *self.names.lock() = kept;
        }
    }

    /// Whether its number is none of the server's.
    pub(crate) const fn is_made_up(&self) -> bool {
        self.id >= MADE_UP
    }

    /// It was seen as `name` in `parent`. Gives a name that is remembered no more.
    fn seen_as(&self, parent: &Arc<Self>, name: &str) -> Option<Name> {
        let mut names = self.names.lock();
        names.retain(|(at, known)| at.id != parent.id || known != name);
        let oldest = (names.len() >= LINKS_KNOWN).then(|| names.remove(0));
        names.push((Arc::clone(parent), name.to_owned()));
        oldest
    }

    /// It is not called `name` in `parent` any more.
    fn not_seen_as(&self, parent: u64, name: &str) {
        self.names.lock().retain(|(at, known)| at.id != parent || known != name);
    }

    /// What is kept of its data, once it was opened.
    pub(crate) fn content(&self) -> Option<Arc<Content>> {
        self.content.lock().clone()
    }

    /// `content` is that from now on, unless it is open with another. The number may
    /// have been another file's before.
    pub(crate) fn keep(&self, content: Content) {
        let is_open = self.is_open();
        let mut kept = self.content.lock();
        if kept.is_none() || !is_open {
            *kept = Some(Arc::new(content));
        }
    }

    /// Whether the server has it open for this mount.
    pub(crate) fn is_open(&self) -> bool {
        self.opens.lock().is_open()
    }

    /// What the server said last.
    pub(crate) fn known(&self) -> Option<Known> {
        self.known.lock().known
    }

    /// The server, asked at `asked`, says so. What was done since then it does not
    /// know of, perhaps.
    pub(crate) fn learn(&self, metadata: Metadata, asked: Instant) {
        if self.content().is_some_and(|content| content.is_ahead_of(asked)) {
            return;
        }
        let mut learned = self.known.lock();
        let is_newer = learned.known.is_none_or(|known| known.at <= asked);
        if is_newer && learned.changed.is_none_or(|changed| changed < asked) {
            learned.known = Some(Known { metadata, at: asked });
        }
    }

    /// The same from a listing, which does not tell how many links there are.
    pub(crate) fn learn_listed(&self, metadata: Metadata, asked: Instant) {
        let links = match metadata.links() {
            0 => self.known().map_or(1, |known| known.metadata.links()),
            // With the POSIX extensions it does.
            told => told,
        };
        self.learn(metadata.with_links(links.max(1)), asked);
    }

    /// What was known is not so any more.
    pub(crate) fn unlearn(&self) {
        *self.known.lock() = Learned { known: None, changed: Some(Instant::now()) };
    }
}

/// All nodes of a mount.
pub(crate) struct Nodes {
    root: Arc<Node>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_id: HashMap<u64, Arc<Node>>,
    /// How many numbers were made up.
    made_up: u64,
    /// Who was seen as a name in a directory: the inverse of the names of all nodes
    /// in `by_id`. Several, when others put a new file in an old one's place.
    seen_as: HashMap<(u64, String), Vec<u64>>,
}

impl Nodes {
    /// With the root alone, which is `base` in the share.
    pub(crate) fn new(base: &str) -> Self {
        let root = Node::new(ROOT, FileType::Directory, Some(base.to_owned()));
        let mut table = Table::default();
        table.by_id.insert(ROOT, Arc::clone(&root));
        Self { root, table: Mutex::new(table) }
    }

    pub(crate) const fn root(&self) -> &Arc<Node> {
        &self.root
    }

    /// The node of a number that the kernel has.
    ///
    /// # Errors
    /// ESTALE when there is none: the kernel has forgotten it itself.
    pub(crate) fn find(&self, id: u64) -> Outcome<Arc<Node>> {
        self.table.lock().by_id.get(&id).cloned().ok_or(Errno::from_i32(libc::ESTALE))
    }

    /// The node for what the server says is `name` in `parent`, of which the
    /// kernel is going to be told.
    pub(crate) fn found(
        &self,
        parent: &Arc<Node>,
        name: &str,
        metadata: Metadata,
        asked: Instant,
    ) -> Arc<Node> {
        let node = self.enter(parent, name, &metadata);
        node.learn(metadata, asked);
        node
    }

    /// The same for an entry of a listing, which knows less: what is open tells
    /// more of itself, and how many links there are stays as it was.
    pub(crate) fn listed(
        &self,
        parent: &Arc<Node>,
        name: &str,
        metadata: Metadata,
        asked: Instant,
    ) -> Arc<Node> {
        let node = self.enter(parent, name, &metadata);
        if !node.is_open() {
            node.learn_listed(metadata, asked);
        }
        node
    }

    fn enter(&self, parent: &Arc<Node>, name: &str, metadata: &Metadata) -> Arc<Node> {
        let kind = kind_of(metadata);
        let mut table = self.table.lock();
        let id = match metadata.file_id() {
            0 => table.id_of(parent.id, name),
            // The root's number is the kernel's to choose.
            ROOT => MADE_UP | ROOT,
            // The top of another file system, which has the number of the one that it is
            // mounted in, or a lie: no directory is below itself.
            id if kind == FileType::Directory && parent.is_within(id) => {
                table.id_of(parent.id, name)
            }
            id => id,
        };
        let known = table.by_id.get(&id).filter(|node| node.kind == kind && id != ROOT).cloned();
        let node = known.unwrap_or_else(|| {
            let node = Node::new(id, kind, None);
            if let Some(old) = table.by_id.insert(id, Arc::clone(&node)) {
                // The kernel forgets both by one number.
                let lookups = old.lookups.load(Ordering::Acquire);
                node.lookups.store(lookups, Ordering::Release);
                table.left(&old);
            }
            node
        });
        node.lookups.fetch_add(1, Ordering::AcqRel);
        table.name(&node, parent, name);
        node
    }

    /// The kernel has forgotten it `count` times. The node, when that was
    /// altogether.
    pub(crate) fn forget(&self, id: u64, count: u64) -> Option<Arc<Node>> {
        let mut table = self.table.lock();
        let node = table.by_id.get(&id)?;
        let before = node.lookups.fetch_update(Ordering::AcqRel, Ordering::Acquire, |lookups| {
            Some(lookups.saturating_sub(count))
        });
        if id == ROOT || before.is_ok_and(|before| before > count) {
            return None;
        }
        let node = table.by_id.remove(&id)?;
        table.left(&node);
        Some(node)
    }

    /// Those that are known as `name` in `parent`.
    pub(crate) fn seen_as(&self, parent: u64, name: &str) -> Vec<Arc<Node>> {
        let table = self.table.lock();
        let ids = table.seen_as.get(&(parent, name.to_owned()));
        ids.into_iter().flatten().filter_map(|id| table.by_id.get(id).cloned()).collect()
    }

    /// `name` in `parent` is no more: who was known so has its other names.
    pub(crate) fn removed(&self, parent: u64, name: &str) {
        for node in self.table.lock().unname(parent, name) {
            node.unlearn();
        }
    }

    /// Who was known as `from` is known as `to`, and what that was is no more.
    pub(crate) fn renamed(&self, from: (u64, &str), to: (&Arc<Node>, &str)) {
        let mut table = self.table.lock();
        for node in table.unname(to.0.id, to.1) {
            node.unlearn();
        }
        for node in table.unname(from.0, from.1) {
            table.name(&node, to.0, to.1);
            node.unlearn();
        }
    }

    /// All that the kernel knows.
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        self.table.lock().by_id.values().cloned().collect()
    }
}

impl Table {
    /// `node`, which is in the table, was seen as `name` in `parent`.
    fn name(&mut self, node: &Arc<Node>, parent: &Arc<Node>, name: &str) {
        if let Some((at, oldest)) = node.seen_as(parent, name) {
            self.forget_name((at.id, oldest), node.id);
        }
        let ids = self.seen_as.entry((parent.id, name.to_owned())).or_default();
        if !ids.contains(&node.id) {
            ids.push(node.id);
        }
    }

    /// Takes a name from all that are known by it.
    fn unname(&mut self, parent: u64, name: &str) -> Vec<Arc<Node>> {
        let ids = self.seen_as.remove(&(parent, name.to_owned())).unwrap_or_default();
        let nodes: Vec<_> = ids.iter().filter_map(|id| self.by_id.get(id).cloned()).collect();
        for node in &nodes {
            node.not_seen_as(parent, name);
        }
        nodes
    }

    /// `node` is not in the table any more.
    fn left(&mut self, node: &Arc<Node>) {
        for (parent, name) in &*node.names.lock() {
            self.forget_name((parent.id, name.clone()), node.id);
        }
        node.untie();
    }

    fn forget_name(&mut self, name: (u64, String), id: u64) {
        if let Entry::Occupied(mut entry) = self.seen_as.entry(name) {
            entry.get_mut().retain(|known| *known != id);
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }

    /// The number that was made up for who is known by a name, on a server that has
    /// no ids; else a new one.
    fn id_of(&mut self, parent: u64, name: &str) -> u64 {
        let known = self.seen_as.get(&(parent, name.to_owned()));
        let known = known.into_iter().flatten().rfind(|id| **id > MADE_UP | ROOT);
        known.copied().unwrap_or_else(|| {
            self.made_up += 1;
            MADE_UP | (ROOT + self.made_up)
        })
    }
}

/// Whether `node` is `at`, or one of the directories that `at` was ever seen below. Yes,
/// too, when they are too many to be looked at.
fn holds(at: &Arc<Node>, node: &Arc<Node>) -> bool {
    let mut seen = HashSet::from([Arc::as_ptr(at)]);
    let mut left = vec![Arc::clone(at)];
    while let Some(at) = left.pop() {
        if Arc::ptr_eq(&at, node) || seen.len() > DEPTH_MAX {
            return true;
        }
        for (parent, _) in &*at.names.lock() {
            if seen.insert(Arc::as_ptr(parent)) {
                left.push(Arc::clone(parent));
            }
        }
    }
    false
}

/// What it is, to POSIX.
pub(crate) fn kind_of(metadata: &Metadata) -> FileType {
    match metadata.posix().map(|posix| posix.kind) {
        Some(PosixKind::Symlink) => return FileType::Symlink,
        Some(PosixKind::CharDevice) => return FileType::CharDevice,
        Some(PosixKind::BlockDevice) => return FileType::BlockDevice,
        Some(PosixKind::Fifo) => return FileType::NamedPipe,
        Some(PosixKind::Socket) => return FileType::Socket,
        Some(PosixKind::Plain) | None => {}
    }
    match metadata.special() {
        Some(Special::Symlink) => return FileType::Symlink,
        Some(Special::CharDevice(..)) => return FileType::CharDevice,
        Some(Special::BlockDevice(..)) => return FileType::BlockDevice,
        Some(Special::Fifo) => return FileType::NamedPipe,
        Some(Special::Socket) => return FileType::Socket,
        None => {}
    }
    match metadata.file_type() {
        Type::Directory => FileType::Directory,
        Type::File => FileType::RegularFile,
        Type::Reparse(tag) => match ReparseTag(tag) {
            ReparseTag::SYMLINK | ReparseTag::LX_SYMLINK | ReparseTag::NFS => FileType::Symlink,
            ReparseTag::AF_UNIX => FileType::Socket,
            ReparseTag::LX_FIFO => FileType::NamedPipe,
            ReparseTag::LX_CHR => FileType::CharDevice,
            ReparseTag::LX_BLK => FileType::BlockDevice,
            // Deduplicated, compressed, kept elsewhere: read like any other.
            _ if metadata.attributes().contains(FileAttributes::DIRECTORY) => FileType::Directory,
            _ => FileType::RegularFile,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory as a server tells of it.
    fn dir(id: u64) -> Metadata {
        Metadata::default().with_file_id(id).with_attributes(FileAttributes::DIRECTORY)
    }

    fn found(nodes: &Nodes, parent: &Arc<Node>, name: &str, metadata: Metadata) -> Arc<Node> {
        nodes.found(parent, name, metadata, Instant::now())
    }

    #[test]
    fn a_directory_that_is_said_to_be_below_itself_has_a_number_of_its_own_and_goes() {
        let nodes = Nodes::new("");
        let top = found(&nodes, nodes.root(), "top", dir(7));
        let middle = found(&nodes, &top, "middle", dir(8));
        let below: Vec<_> = [(&top, 7), (&middle, 8), (&middle, 7)]
            .map(|(at, id)| found(&nodes, at, "x", dir(id)))
            .into();
        for node in &below {
            assert!(node.is_made_up() && ![7, 8].contains(&node.id));
        }
        assert_eq!(below[2].path().unwrap(), "top/middle/x");
        assert_eq!(below[2].id, below[1].id, "asked for again it is the same");
        assert_eq!(found(&nodes, &below[0], "x", dir(7)).path().unwrap(), "top/x/x");
        // What is no directory may have any number; what is elsewhere is what it was.
        assert_eq!(found(&nodes, &top, "file", Metadata::default().with_file_id(7)).id, 7);
        let gone: Vec<_> = below.iter().chain([&top, &middle]).map(Arc::downgrade).collect();
        drop((top, middle, below));
        for node in nodes.all() {
            nodes.forget(node.id, u64::MAX);
        }
        assert_eq!(nodes.all().len(), 1, "the root");
        assert!(gone.iter().all(|node| node.strong_count() == 0));
        assert!(nodes.table.lock().seen_as.is_empty());
    }

    #[test]
    fn directories_that_changed_places_go() {
        let nodes = Nodes::new("");
        let a = found(&nodes, nodes.root(), "a", dir(7));
        let b = found(&nodes, &a, "b", dir(8));
        // Others move b out, and a into it.
        found(&nodes, nodes.root(), "b", dir(8));
        let again = found(&nodes, &b, "a", dir(7));
        assert!(Arc::ptr_eq(&again, &a) && a.path().unwrap() == "b/a");
        let gone = [Arc::downgrade(&a), Arc::downgrade(&b)];
        nodes.forget(7, u64::MAX);
        assert_eq!(a.names.lock().len(), 1, "the name that does not lead back stays");
        drop((a, b, again));
        nodes.forget(8, u64::MAX);
        assert!(gone.iter().all(|node| node.strong_count() == 0));
    }
    #[test]
    fn what_takes_anothers_number_is_forgotten_when_both_are() {
        let nodes = Nodes::new("");
        let file = found(&nodes, nodes.root(), "a", Metadata::default().with_file_id(7));
        found(&nodes, nodes.root(), "a", Metadata::default().with_file_id(7));
        let other = found(&nodes, nodes.root(), "a", dir(7));
        assert!(!Arc::ptr_eq(&file, &other));
        // The kernel knows the first one twice.
        assert!(nodes.forget(7, 2).is_none());
        assert!(Arc::ptr_eq(&nodes.find(7).unwrap(), &other));
        assert!(nodes.forget(7, 1).is_some());
    }
}
