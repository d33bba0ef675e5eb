//! A read-only tree of files that the program lists.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use frevo_store::Name;
use frevo_store::vfs::{
    Directory, Existence, Fault, FileKey, Kind, Node, OpenHow, Opened, Stat, Vfs, VfsResult, Volume,
};
use frevo_wire::dtyp::{FileAttributes, FileTime};
use frevo_wire::fscc::upcase_name;
use parking_lot::RwLock;

use crate::base::ambient::{Ambient, Host};

/// The bytes of a file in a [`ReadOnlyTree`].
pub trait Content: Send + Sync + fmt::Debug {
    /// Returns the number of bytes.
    fn length(&self) -> u64;

    /// Reads at `offset`; fewer bytes than `into` has room for mean the end. A call should
    /// return within milliseconds, because it may hold up other clients.
    ///
    /// # Errors
    /// When the bytes cannot be read. The client is told of an input/output error.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
}

impl Content for Vec<u8> {
    fn length(&self) -> u64 {
        u64::try_from(self.len()).unwrap_or(u64::MAX)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let from = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or_default();
        let count = from.len().min(into.len());
        for (to, byte) in into.iter_mut().zip(from) {
            *to = *byte;
        }
        Ok(count)
    }
}

/// A range of a file of the host, such as a member of an archive that is not compressed.
#[derive(Debug, Clone)]
pub struct FileRange {
    file: Arc<File>,
    offset: u64,
    length: u64,
}

impl FileRange {
    /// Takes `length` bytes of `file` from `offset` on.
    pub const fn new(file: Arc<File>, offset: u64, length: u64) -> Self {
        Self { file, offset, length }
    }
}

impl Content for FileRange {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = left.min(into.len());
        let into = into.get_mut(..count).unwrap_or_default();
        let at = self.offset.checked_add(offset).ok_or(io::ErrorKind::InvalidInput)?;
        self.file.read_at(into, at)
    }
}

/// A read-only file system of entries that the program lists.
///
/// Folders above an entry need not be listed. Upper and lower case of names are one, as
/// clients expect; of two entries with one name the later counts. Names that clients could
/// not ask for (`..`, a backslash, control characters) are refused.
///
/// ```
/// use frevo_server::vfs::ReadOnlyTree;
/// use std::time::SystemTime;
///
/// let mut tree = ReadOnlyTree::new("ARCHIVE");
/// tree.file("docs/hello.txt", b"hello".to_vec(), SystemTime::now())?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ReadOnlyTree {
    /// By path in upper case.
    entries: BTreeMap<String, Arc<Entry>>,
    device: u64,
    /// The number of the entry that was added last.
    last: u64,
    volume: Arc<Volume>,
}

#[derive(Debug)]
struct Entry {
    key: FileKey,
    /// The path as listed, with backslashes.
    path: String,
    written: FileTime,
    body: Body,
}

#[derive(Debug)]
enum Body {
    File(Box<dyn Content>),
    /// Its entries by name in upper case.
    Folder(RwLock<BTreeMap<String, Arc<Entry>>>),
}

impl ReadOnlyTree {
    /// Returns an empty tree. Clients see `file_system` as the kind of its file system.
    pub fn new(file_system: &str) -> Self {
        let random = Host.random_u64();
        let serial = u32::try_from(random >> 32).unwrap_or(0);
        let volume = Volume { read_only: true, ..Volume::plain(serial, file_system) };
        let volume = Arc::new(volume);
        // The device number distinguishes memory trees by its random bits, and begins with 0xFFFE,
        // which the host gives to no device.
        let device = 0xFFFE << 48 | random >> 16;
        let mut tree = Self { entries: BTreeMap::new(), device, last: 0, volume };
        tree.insert(String::new(), FileTime::ZERO, Body::folder());
        tree
    }

    /// Adds a file. `path` has slashes between its components.
    ///
    /// # Errors
    /// `InvalidInput` for a path that no client could ask for.
    pub fn file(
        &mut self,
        path: &str,
        content: impl Content + 'static,
        modified: SystemTime,
    ) -> io::Result<()> {
        let path = checked(path)?;
        self.add_parents(&path, modified);
        self.insert(path, file_time(modified), Body::File(Box::new(content)));
        Ok(())
    }

    /// Adds a folder, which may stay empty.
    ///
    /// # Errors
    /// `InvalidInput` for a path that no client could ask for.
    pub fn directory(&mut self, path: &str, modified: SystemTime) -> io::Result<()> {
        let path = checked(path)?;
        self.add_parents(&path, modified);
        if !self.is_folder(&path) {
            self.insert(path, file_time(modified), Body::folder());
        }
        Ok(())
    }

    fn is_folder(&self, path: &str) -> bool {
        let entry = self.entries.get(&upcase_name(path));
        entry.is_some_and(|entry| matches!(entry.body, Body::Folder(_)))
    }

    fn add_parents(&mut self, path: &str, modified: SystemTime) {
        for (at, _) in path.match_indices('\\') {
            let parent = path.get(..at).unwrap_or_default();
            if !self.is_folder(parent) {
                self.insert(parent.to_owned(), file_time(modified), Body::folder());
            }
        }
    }

    fn insert(&mut self, path: String, written: FileTime, body: Body) {
        let folded = upcase_name(&path);
        if matches!(body, Body::File(_)) && self.is_folder(&path) {
            // If a file replaces a folder, all entries below the folder are removed.
            let below = format!("{folded}\\");
            self.entries.retain(|path, _| !path.starts_with(&below));
        }
        self.last = self.last.saturating_add(1);
        let key = FileKey::of_file(self.device, self.last);
        let (parent, name) = folded.rsplit_once('\\').unwrap_or(("", &folded));
        let entry = Arc::new(Entry { key, path, written, body });
        if let Some(Body::Folder(entries)) = self.entries.get(parent).map(|parent| &parent.body)
            && !name.is_empty()
        {
            entries.write().insert(name.to_owned(), Arc::clone(&entry));
        }
        self.entries.insert(folded, entry);
    }

    fn find(&self, name: &Name) -> VfsResult<&Arc<Entry>> {
        if name.stream().is_some() {
            return Err(Fault::NameInvalid);
        }
        let found = self.entries.get(&upcase_name(name.path()));
        if let Some(entry) = found.filter(|entry| !name.is_exact() || entry.path == name.path()) {
            return Ok(entry);
        }
        match self.entries.get(&upcase_name(name.parent().path())) {
            Some(parent) if matches!(parent.body, Body::Folder(_)) => Err(Fault::NotFound),
            Some(_) => Err(Fault::PathNotDirectory),
            None => Err(Fault::PathNotFound),
        }
    }
}

/// The path with backslashes, if a client could ask for it.
fn checked(path: &str) -> io::Result<String> {
    let is_separated = !path.contains('\\') && !path.trim_matches('/').contains("//");
    let path = path.trim_start_matches("./").trim_matches('/').replace('/', "\\");
    let name = Name::parse(&path, frevo_store::name::Rules::Windows);
    match name {
        // A path with `..` is refused, because `Name` would resolve it to another entry.
        Ok(name) if is_separated && name.path() == path && !name.is_root() => Ok(path),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("no client could open an entry named {path:?}"),
        )),
    }
}

fn file_time(time: SystemTime) -> FileTime {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    FileTime::from_unix(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}

impl Body {
    fn folder() -> Self {
        Self::Folder(RwLock::default())
    }
}

impl Entry {
    fn stat(&self) -> Stat {
        let (kind, attributes, length) = match &self.body {
            Body::File(content) => (Kind::File, FileAttributes::READONLY, content.length()),
            Body::Folder(_) => (Kind::Directory, FileAttributes::DIRECTORY, 0),
        };
        Stat {
            attributes,
            end_of_file: length,
            allocation: length,
            mode: if kind == Kind::File { 0o444 } else { 0o555 },
            ..Stat::new(self.key, kind, self.written)
        }
    }
}

impl Vfs for ReadOnlyTree {
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        let entry = match self.find(name) {
            Ok(_) if how.existence == Existence::MustNotExist => return Err(Fault::Exists),
            Ok(entry) => entry,
            Err(Fault::NotFound) if how.existence != Existence::MustExist => {
                return Err(Fault::ReadOnly);
            }
            Err(fault) => return Err(fault),
        };
        let stat = entry.stat();
        how.check(stat.kind)?;
        if how.write {
            return Err(Fault::ReadOnly);
        }
        let node = TreeNode(Arc::clone(entry));
        let name = Name::from_stored(entry.path.clone());
        Ok(Opened::existing(Arc::new(node), stat, name))
    }

    fn volume(&self) -> Arc<Volume> {
        Arc::clone(&self.volume)
    }
}

/// A file or directory of the tree that a client has open.
#[derive(Debug)]
struct TreeNode(Arc<Entry>);

impl Node for TreeNode {
    fn key(&self) -> FileKey {
        self.0.key
    }

    fn stat(&self) -> VfsResult<Stat> {
        Ok(self.0.stat())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> VfsResult<usize> {
        let Body::File(content) = &self.0.body else { return Err(Fault::IsADirectory) };
        content.read_at(offset, into).map_err(|error| Fault::Io(error.raw_os_error().unwrap_or(0)))
    }

    fn directory(&self) -> VfsResult<Box<dyn Directory>> {
        let Body::Folder(entries) = &self.0.body else { return Err(Fault::NotADirectory) };
        let children = entries.read().values().map(Arc::clone).collect();
        Ok(Box::new(Listing { children, next: 0 }))
    }
}

/// A folder being listed, as it was when the listing began: a shared tree does not change.
#[derive(Debug)]
struct Listing {
    children: Vec<Arc<Entry>>,
    next: usize,
}

impl Directory for Listing {
    fn next_name(&mut self) -> VfsResult<Option<&str>> {
        let Some(entry) = self.children.get(self.next) else { return Ok(None) };
        self.next += 1;
        Ok(Some(entry.path.rsplit_once('\\').map_or(&*entry.path, |(_, last)| last)))
    }

    fn entry_stat(&mut self) -> VfsResult<Option<Stat>> {
        let last = self.next.checked_sub(1).and_then(|at| self.children.get(at));
        Ok(last.map(|entry| entry.stat()))
    }

    fn rewind(&mut self) -> VfsResult<()> {
        self.next = 0;
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.children.len().saturating_mul(size_of::<Arc<Entry>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> ReadOnlyTree {
        let mut tree = ReadOnlyTree::new("TAR");
        let now = SystemTime::now();
        tree.file("Docs/Hello.txt", b"hello".to_vec(), now).unwrap();
        tree.file("docs/Ünder/deep", b"x".to_vec(), now).unwrap();
        tree.file("docs2", Vec::new(), now).unwrap();
        tree.directory("empty/", now).unwrap();
        tree
    }

    fn open(tree: &ReadOnlyTree, path: &str, how: &OpenHow) -> VfsResult<Opened> {
        tree.open(&Name::from_stored(path.to_owned()), how)
    }

    fn list(tree: &ReadOnlyTree, path: &str) -> Vec<String> {
        let opened = open(tree, path, &OpenHow::DIRECTORY).unwrap();
        let mut listing = opened.node.directory().unwrap();
        let mut names = Vec::new();
        while let Some(name) = listing.next_name().unwrap() {
            names.push(name.to_owned());
            assert!(listing.entry_stat().unwrap().is_some());
        }
        names
    }

    #[test]
    fn entries_are_found_in_any_case_and_listed_as_spelled() {
        let tree = tree();
        assert_eq!(list(&tree, ""), ["Docs", "docs2", "empty"]);
        assert_eq!(list(&tree, "DOCS"), ["Hello.txt", "Ünder"]);
        assert_eq!(list(&tree, "docs\\ünder"), ["deep"]);
        assert!(list(&tree, "empty").is_empty());
        let opened = open(&tree, "docs\\HELLO.TXT", &OpenHow::LOOK).unwrap();
        assert_eq!(opened.name.path(), "Docs\\Hello.txt");
        let mut bytes = [0; 9];
        assert_eq!(opened.node.read_at(1, &mut bytes), Ok(4));
        assert_eq!(&bytes[..4], b"ello");
        assert_eq!(opened.node.read_at(99, &mut bytes), Ok(0));
    }

    #[test]
    fn it_is_a_read_only_file_system() {
        let mut tree = ReadOnlyTree::new("TAR");
        tree.file("docs/Hello.txt", b"hello".to_vec(), UNIX_EPOCH).unwrap();
        tree.file("top", Vec::new(), UNIX_EPOCH).unwrap();
        frevo_store::conformance::a_read_only_tree(&tree);
    }

    #[test]
    fn paths_that_no_client_can_ask_for_are_refused() {
        let mut tree = tree();
        for path in ["", "/", "../x", "a/../b", "a\\b", "a:b", "a*b", "a//b"] {
            assert!(tree.file(path, Vec::new(), UNIX_EPOCH).is_err(), "{path}");
        }
    }

    #[test]
    fn a_file_replaces_a_folder_and_the_other_way_round() {
        let mut tree = tree();
        tree.file("DOCS", b"file".to_vec(), UNIX_EPOCH).unwrap();
        assert_eq!(list(&tree, ""), ["DOCS", "docs2", "empty"]);
        let fault = |tree: &ReadOnlyTree, path| open(tree, path, &OpenHow::LOOK).map(drop);
        assert_eq!(fault(&tree, "docs\\Hello.txt").unwrap_err(), Fault::PathNotDirectory);
        tree.file("docs/new", Vec::new(), UNIX_EPOCH).unwrap();
        assert_eq!(list(&tree, "docs"), ["new"]);
    }

    #[test]
    fn a_range_ends_where_it_was_told_to() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, b"0123456789").unwrap();
        let range = FileRange::new(Arc::new(file), 3, 4);
        let mut bytes = [0; 9];
        assert_eq!(range.read_at(1, &mut bytes).unwrap(), 3);
        assert_eq!(&bytes[..3], b"456");
        assert_eq!(range.read_at(4, &mut bytes).unwrap(), 0);
    }
}
