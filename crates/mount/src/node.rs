//! Nodes: files and directories that the kernel knows by a number.
//!
//! The number is the file's id on the server, so that two links of one file are one node. A server
//! without ids gets generated numbers. A node's path is the path of its directory plus its name, so
//! that renaming a directory moves everything below it.

mod directory;
mod locks;
mod opens;
mod promise;

pub(crate) use directory::{DirectoryListing, KEEPING, LeasedDirectory};
pub(crate) use locks::{HeldLock, Range};
pub(crate) use opens::Opened;
pub(crate) use promise::Seen;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use frevo_client::internal::{AtClose, Special};
use frevo_client::{FileAttributes, FileType as Type, Metadata, PosixFileType};
use frevo_wire::fscc::reparse::ReparseTag;
use fuser::{Errno, FileType};
use parking_lot::Mutex;

use crate::cache::FileCache;
use crate::errno::Outcome;
use crate::limits::PATH_BYTES;
use directory::DirectoryCache;
use locks::Locks;
use opens::Opens;
use promise::Promise;

/// The number of the mounted folder.
pub(crate) const ROOT: u64 = 1;
/// The first generated number.
const MADE_UP: u64 = 1 << 63;

/// Most names remembered for one file.
const LINKS_KNOWN: usize = 8;

/// Greatest depth of a directory.
const DEPTH_MAX: usize = 4096;

/// The name of a node: its directory, and its name there.
pub(crate) type Name = (Arc<Node>, String);

/// A file, directory or link that the kernel has looked up.
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) kind: FileType,
    /// The path of the mounted folder in the share; only the root has one.
    base: Option<String>,
    /// All known names, the latest last. Empty after removal.
    names: Mutex<Vec<Name>>,
    /// The kernel's lookup count: replies about this node minus forgets.
    lookups: AtomicU64,
    known: Mutex<MetadataState>,
    /// The server's Opens of the node.
    pub(crate) opens: Mutex<Opens>,
    /// Held while `opens` changes.
    pub(crate) opening: tokio::sync::Mutex<()>,
    /// The directory's cache; unused for files.
    pub(crate) directory: DirectoryCache,
    /// Byte-range locks of local programs.
    pub(crate) locks: tokio::sync::Mutex<Locks>,
    /// Notified when a lock is released.
    pub(crate) unlocked: tokio::sync::Notify,
    /// The data cache, once the file was opened.
    content: Mutex<Option<Arc<FileCache>>>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({}, {:?})", self.id, self.path())
    }
}

/// Metadata from the server, and when it was requested.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimedMetadata {
    pub(crate) metadata: Metadata,
    pub(crate) at: Instant,
}

#[derive(Debug, Default)]
struct MetadataState {
    known: Option<TimedMetadata>,
    /// The metadata before this mount's writes since, which change size and times only: the CLOSE
    /// tells these.
    before_writes: Option<TimedMetadata>,
    /// The time of the last local change.
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
            directory: DirectoryCache::default(),
            locks: tokio::sync::Mutex::default(),
            unlocked: tokio::sync::Notify::new(),
            content: Mutex::new(None),
        })
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Returns the path in the share.
    ///
    /// # Errors
    /// ENOENT for a node without a name.
    pub(crate) fn path(&self) -> Outcome<String> {
        let mut parts: Vec<String> = Vec::new();
        let mut at: Option<Arc<Self>> = None;
        // Names that were recorded at different times may form a circle, so at most DEPTH_MAX
        // parents are visited.
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

    /// Returns the path of `name` in this directory; both are in wire spelling.
    ///
    /// # Errors
    /// ENAMETOOLONG for a path that no request can have.
    pub(crate) fn below(&self, name: &str) -> Outcome<String> {
        let path = self.path()?;
        if path.len() + 1 + name.len() > PATH_BYTES {
            return Err(Errno::ENAMETOOLONG);
        }
        Ok(if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") })
    }

    /// Returns all known directories and names of the node, the latest last.
    pub(crate) fn names(&self) -> Vec<Name> {
        self.names.lock().clone()
    }

    /// Returns the latest directory and name of the node.
    pub(crate) fn name(&self) -> Option<Name> {
        self.names.lock().last().cloned()
    }

    /// Returns true if the node is known as `name` in `parent`.
    pub(crate) fn has_name(&self, parent: u64, name: &str) -> bool {
        self.names.lock().iter().any(|(at, known)| at.id == parent && known == name)
    }

    /// Returns true if this directory is the directory `id`, or is below it.
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

    /// Forgets names that form a reference cycle: in a directory that moved below this one, or that
    /// a hostile server reports so. The cycle would never be freed.
    fn untie(self: &Arc<Self>) {
        if self.is_dir() {
            let known = std::mem::take(&mut *self.names.lock());
            let kept: Vec<Name> =
                known.into_iter().filter(|(parent, _)| !holds(parent, self)).collect();
            *self.names.lock() = kept;
        }
    }

    /// Returns true if the number was generated by the mount.
    pub(crate) const fn is_made_up(&self) -> bool {
        self.id >= MADE_UP
    }

    /// Adds the name `name` in `parent`. Returns the oldest name if there are too many.
    fn seen_as(&self, parent: &Arc<Self>, name: &str) -> Option<Name> {
        let mut names = self.names.lock();
        names.retain(|(at, known)| at.id != parent.id || known != name);
        let oldest = (names.len() >= LINKS_KNOWN).then(|| names.remove(0));
        names.push((Arc::clone(parent), name.to_owned()));
        oldest
    }

    /// Removes the name `name` in `parent`.
    fn not_seen_as(&self, parent: u64, name: &str) {
        self.names.lock().retain(|(at, known)| at.id != parent || known != name);
    }

    /// Returns the data cache, once the file was opened.
    pub(crate) fn content(&self) -> Option<Arc<FileCache>> {
        self.content.lock().clone()
    }

    /// Sets the data cache, unless the node is open with another one. The number may have belonged
    /// to another file before.
    pub(crate) fn keep(&self, content: FileCache) {
        let is_open = self.is_open();
        let mut kept = self.content.lock();
        if kept.is_none() || !is_open {
            *kept = Some(Arc::new(content));
        }
    }

    /// Returns true if this mount has the file open on the server.
    pub(crate) fn is_open(&self) -> bool {
        self.opens.lock().is_open()
    }

    /// Returns the latest metadata from the server.
    pub(crate) fn known(&self) -> Option<TimedMetadata> {
        self.known.lock().known
    }

    /// Returns the latest metadata from the server, also if this mount has changed size and times
    /// since by writes.
    pub(crate) fn known_before_writes(&self) -> Option<TimedMetadata> {
        let learned = self.known.lock();
        learned.known.or(learned.before_writes)
    }

    /// Stores metadata that was requested at `asked`, unless local changes since then may be
    /// missing from it.
    pub(crate) fn set_metadata(&self, metadata: Metadata, asked: Instant) {
        let is_ahead = self.content().is_some_and(|content| content.is_ahead_of(asked));
        let mut learned = self.known.lock();
        let is_newer = learned.known.is_none_or(|known| known.at <= asked);
        if !is_newer || learned.changed.is_some_and(|changed| changed >= asked) {
            return;
        }
        let found = Some(TimedMetadata { metadata, at: asked });
        if is_ahead {
            // This answer does not include the unsent data, so it is stored apart from the metadata
            // that does.
            learned.before_writes = found.filter(has_plain_mode);
        } else {
            (learned.known, learned.before_writes) = (found, None);
        }
    }

    /// Stores metadata of a listing, which may lack the link count.
    pub(crate) fn set_listed_metadata(&self, metadata: Metadata, asked: Instant) {
        let links = match metadata.links() {
            0 => self.known().map_or(1, |known| known.metadata.links()),
            // A link count other than 0 comes from a server with the POSIX extensions and is
            // correct.
            links => links,
        };
        self.set_metadata(metadata.with_links(links.max(1)), asked);
    }

    /// Discards the metadata after a local change.
    pub(crate) fn invalidate(&self) {
        let changed = Some(Instant::now());
        *self.known.lock() = MetadataState { known: None, before_writes: None, changed };
    }

    /// Discards the metadata after a local change of the data.
    pub(crate) fn written(&self) {
        let mut learned = self.known.lock();
        let before = learned.known.take().or(learned.before_writes);
        learned.before_writes = before.filter(has_plain_mode);
        learned.changed = Some(Instant::now());
    }

    /// Stores what the CLOSE of a file, sent at `asked`, told of it. The rest is as old as it was, so
    /// all of it counts as that old.
    pub(crate) fn closed(&self, told: &AtClose, asked: Instant) {
        let mut learned = self.known.lock();
        let known = learned.known.filter(|known| known.at < asked);
        let before = learned.before_writes.take().or(known);
        if let Some(before) = before
            && learned.changed.is_none_or(|changed| changed < asked)
        {
            learned.known =
                Some(TimedMetadata { metadata: before.metadata.closed(told), ..before });
        }
    }
}

/// Returns true if writes leave the mode as it is: a server takes set-user-ID and set-group-ID from a
/// file that is written.
fn has_plain_mode(of: &TimedMetadata) -> bool {
    of.metadata.posix().is_none_or(|posix| posix.mode & 0o6000 == 0)
}

/// All nodes of a mount.
pub(crate) struct Nodes {
    root: Arc<Node>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_id: HashMap<u64, Arc<Node>>,
    /// Count of generated numbers.
    made_up: u64,
    /// The nodes known by a name in a directory: the inverse of the names of all nodes in `by_id`.
    /// Several, if another client replaced the file under that name.
    seen_as: HashMap<(u64, String), Vec<SeenAs>>,
}

/// A node that is known by some name in some directory.
struct SeenAs {
    id: u64,
    /// The promise under which the name is the node's: while it is kept, the server need not be
    /// asked.
    promise: Option<Promise>,
}

impl Nodes {
    /// Returns the nodes with only the root, which is `base` in the share.
    pub(crate) fn new(base: &str) -> Self {
        let root = Node::new(ROOT, FileType::Directory, Some(base.to_owned()));
        let mut table = Table::default();
        table.by_id.insert(ROOT, Arc::clone(&root));
        Self { root, table: Mutex::new(table) }
    }

    pub(crate) const fn root(&self) -> &Arc<Node> {
        &self.root
    }

    /// Returns the node of a number that the kernel has.
    ///
    /// # Errors
    /// ESTALE if there is none: the kernel has forgotten it.
    pub(crate) fn find(&self, id: u64) -> Outcome<Arc<Node>> {
        self.table.lock().by_id.get(&id).cloned().ok_or(Errno::from_i32(libc::ESTALE))
    }

    /// Returns the node for `name` in `parent` with fresh metadata, and counts one lookup for the
    /// kernel.
    pub(crate) fn found(
        &self,
        parent: &Arc<Node>,
        name: &str,
        metadata: Metadata,
        asked: Instant,
    ) -> Arc<Node> {
        let node = self.enter(parent, name, &metadata);
        node.set_metadata(metadata, asked);
        node
    }

    /// Returns the node for an entry of a listing, and counts one lookup. The metadata of an open
    /// node and the link count stay, since a listing knows less.
    pub(crate) fn listed(
        &self,
        parent: &Arc<Node>,
        name: &str,
        metadata: Metadata,
        asked: Instant,
    ) -> Arc<Node> {
        let node = self.enter(parent, name, &metadata);
        if !node.is_open() {
            node.set_listed_metadata(metadata, asked);
        }
        node
    }

    fn enter(&self, parent: &Arc<Node>, name: &str, metadata: &Metadata) -> Arc<Node> {
        let kind = kind_of(metadata);
        let mut table = self.table.lock();
        let id = match metadata.file_id() {
            0 => table.id_of(parent.id, name),
            // The number ROOT belongs to the root of the mount, so another file with this number
            // gets another one.
            ROOT => MADE_UP | ROOT,
            // The number of a parent cannot be that of a directory below it. Another file system
            // may be mounted there on the server, or the server lies. So the directory gets a
            // number from its name.
            id if kind == FileType::Directory && parent.is_within(id) => {
                table.id_of(parent.id, name)
            }
            id => id,
        };
        let known = table.by_id.get(&id).filter(|node| node.kind == kind && id != ROOT).cloned();
        let node = known.unwrap_or_else(|| {
            let node = Node::new(id, kind, None);
            if let Some(old) = table.by_id.insert(id, Arc::clone(&node)) {
                // The kernel counts look-ups by number and will forget both nodes together, so the
                // look-ups of the old node are added to the new one.
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

    /// Subtracts `count` from the lookup count. Returns the node if the kernel has forgotten it
    /// completely.
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

    /// Returns the nodes known as `name` in `parent`.
    pub(crate) fn seen_as(&self, parent: u64, name: &str) -> Vec<Arc<Node>> {
        let table = self.table.lock();
        let ids = table.seen_as.get(&(parent, name.to_owned()));
        ids.into_iter().flatten().filter_map(|seen| table.by_id.get(&seen.id).cloned()).collect()
    }

    /// Removes the name `name` in `parent` from all its nodes; they keep their other names.
    pub(crate) fn removed(&self, parent: u64, name: &str) {
        for node in self.table.lock().unname(parent, name) {
            node.invalidate();
        }
    }

    /// Takes the name `name` in `parent` from a node: another client has removed it or given it to
    /// another file.
    pub(crate) fn lost_name(&self, node: &Node, parent: &Node, name: &str) {
        let mut table = self.table.lock();
        node.not_seen_as(parent.id, name);
        table.forget_name((parent.id, name.to_owned()), node.id);
    }

    /// Moves a name from `from` to `to`, and takes `to` from the nodes that had it.
    pub(crate) fn renamed(&self, from: (u64, &str), to: (&Arc<Node>, &str)) {
        let mut table = self.table.lock();
        for node in table.unname(to.0.id, to.1) {
            node.invalidate();
        }
        for node in table.unname(from.0, from.1) {
            table.name(&node, to.0, to.1);
            node.invalidate();
        }
    }

    /// Returns all nodes that the kernel knows.
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        self.table.lock().by_id.values().cloned().collect()
    }
}

impl Table {
    /// Records the name of `node`, which is in the table.
    fn name(&mut self, node: &Arc<Node>, parent: &Arc<Node>, name: &str) {
        if let Some((at, oldest)) = node.seen_as(parent, name) {
            self.forget_name((at.id, oldest), node.id);
        }
        let ids = self.seen_as.entry((parent.id, name.to_owned())).or_default();
        if ids.iter().all(|seen| seen.id != node.id) {
            // The name leads to this node now, so a look-up of the name must not return other nodes
            // any more without a request.
            ids.iter_mut().for_each(|seen| seen.promise = None);
            ids.push(SeenAs { id: node.id, promise: None });
        }
    }

    /// Removes a name from all nodes that have it; returns these nodes.
    fn unname(&mut self, parent: u64, name: &str) -> Vec<Arc<Node>> {
        let ids = self.seen_as.remove(&(parent, name.to_owned())).unwrap_or_default();
        let nodes: Vec<_> =
            ids.iter().filter_map(|seen| self.by_id.get(&seen.id).cloned()).collect();
        for node in &nodes {
            node.not_seen_as(parent, name);
        }
        nodes
    }

    /// Cleans up after `node` was removed from the table.
    fn left(&mut self, node: &Arc<Node>) {
        for (parent, name) in &*node.names.lock() {
            self.forget_name((parent.id, name.clone()), node.id);
        }
        node.untie();
    }

    fn forget_name(&mut self, name: (u64, String), id: u64) {
        if let Entry::Occupied(mut entry) = self.seen_as.entry(name) {
            entry.get_mut().retain(|seen| seen.id != id);
            if entry.get().is_empty() {
                entry.remove();
            }
        }
    }

    /// Returns the generated number of the node with this name, on a server without ids; a new
    /// number if there is none.
    fn id_of(&mut self, parent: u64, name: &str) -> u64 {
        let known = self.seen_as.get(&(parent, name.to_owned()));
        let mut known = known.into_iter().flatten().map(|seen| seen.id);
        known.rfind(|id| *id > MADE_UP | ROOT).unwrap_or_else(|| {
            self.made_up += 1;
            MADE_UP | (ROOT + self.made_up)
        })
    }
}

/// Returns true if `node` is `at`, or one of the directories above any name of `at`; also if there
/// are too many to visit.
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

/// Returns the POSIX file type.
pub(crate) fn kind_of(metadata: &Metadata) -> FileType {
    match metadata.posix().map(|posix| posix.kind) {
        Some(PosixFileType::Symlink) => return FileType::Symlink,
        Some(PosixFileType::CharDevice) => return FileType::CharDevice,
        Some(PosixFileType::BlockDevice) => return FileType::BlockDevice,
        Some(PosixFileType::Fifo) => return FileType::NamedPipe,
        Some(PosixFileType::Socket) => return FileType::Socket,
        Some(_) | None => {}
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
        Type::Reparse(tag) => match ReparseTag(tag) {
            ReparseTag::SYMLINK | ReparseTag::LX_SYMLINK | ReparseTag::NFS => FileType::Symlink,
            ReparseTag::AF_UNIX => FileType::Socket,
            ReparseTag::LX_FIFO => FileType::NamedPipe,
            ReparseTag::LX_CHR => FileType::CharDevice,
            ReparseTag::LX_BLK => FileType::BlockDevice,
            // Deduplicated, compressed or offline files are read like any other file.
            _ if metadata.attributes().contains(FileAttributes::DIRECTORY) => FileType::Directory,
            _ => FileType::RegularFile,
        },
        _ => FileType::RegularFile,
    }
}

#[cfg(test)]
mod tests;
