//! Named streams: MS-FSA 2.1.1.4 Stream.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use frevo_wire::dtyp::FileAttributes;
use frevo_wire::fscc::{eq_ignore_case, upcase_name};

use super::content::Content;
use super::faults::Operation;
use super::stable::State;
use super::tree::{self, Body, Inode};
use super::vfs::{MemoryVfs, Shared, file_of};
use crate::limits::{MEMORY_PAGE_BYTES, MEMORY_STREAMS};
use crate::name::Name;
use crate::vfs::{
    Existence, Fault, FileKey, Kind, KindWanted, OpenHow, Opened, Stat, StreamStat, VfsResult,
};

/// The number of a stream, which renames do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamId(u64);

#[derive(Debug, Clone)]
pub(super) struct Stream {
    id: StreamId,
    pub(super) name: String,
    pub(super) content: Content,
}

/// The named streams of a file, by name.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    all: Vec<Stream>,
    next: u64,
}

impl Stream {
    /// Returns the file's state with the stream's identity and sizes.
    pub(super) fn stat(&self, file: Stat) -> Stat {
        let mut attributes = file.attributes.without(FileAttributes::DIRECTORY);
        if attributes.is_empty() {
            attributes = FileAttributes::NORMAL;
        }
        Stat {
            key: self.key(file.key),
            kind: Kind::File,
            end_of_file: self.content.end(),
            allocation: self.content.held().saturating_mul(MEMORY_PAGE_BYTES as u64),
            attributes,
            ..file
        }
    }

    pub(super) fn key(&self, file: FileKey) -> FileKey {
        FileKey { stream: Name::root().with_stream(Some(&self.name)).stream_id(), ..file }
    }
}

impl Streams {
    pub(super) const EMPTY: Self = Self { all: Vec::new(), next: 0 };

    pub(super) fn held(&self) -> u64 {
        self.all.iter().map(|s| s.content.held()).fold(0, u64::saturating_add)
    }

    pub(super) fn named(&self, name: &str) -> Option<&Stream> {
        self.all.iter().find(|s| eq_ignore_case(&s.name, name))
    }

    pub(super) fn by_id(&self, id: StreamId) -> Option<&Stream> {
        self.all.iter().find(|s| s.id == id)
    }

    pub(super) fn by_id_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.all.iter_mut().find(|s| s.id == id)
    }

    pub(super) fn list(&self) -> Vec<StreamStat> {
        let one = |s: &Stream| StreamStat {
            name: s.name.clone(),
            size: s.content.end(),
            allocation: s.content.held().saturating_mul(MEMORY_PAGE_BYTES as u64),
        };
        self.all.iter().map(one).collect()
    }

    fn add(&mut self, name: &str, content: Content) -> VfsResult<StreamId> {
        if self.all.len() >= MEMORY_STREAMS {
            return Err(Fault::DiskFull);
        }
        let id = StreamId(self.next);
        self.next = self.next.saturating_add(1);
        self.all.push(Stream { id, name: String::from(name), content });
        self.all.sort_by_cached_key(|s| upcase_name(&s.name));
        Ok(id)
    }

    fn take(&mut self, name: &str) -> Option<Stream> {
        let at = self.all.iter().position(|s| eq_ignore_case(&s.name, name))?;
        Some(self.all.remove(at))
    }
}

impl MemoryVfs {
    /// Opens or makes the stream in `name`, and its file too if necessary.
    pub(super) fn open_stream(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        let stream = name.stream().ok_or(Fault::NameInvalid)?;
        if how.kind == KindWanted::Directory {
            return Err(Fault::NotADirectory);
        }
        let existence = match how.existence {
            Existence::MustExist => Existence::MustExist,
            _ => Existence::Either,
        };
        let file = OpenHow { existence, kind: KindWanted::Any, read: false, write: false, ..*how };
        let ((node, _), path, file_created) = self.open_found(&name.with_stream(None), &file)?;
        let shared = &self.shared;
        let now = shared.now();
        let mut state = shared.state.lock();
        let inode = state.live.0.get_mut(&node.ino()).ok_or(Fault::Stale)?;
        if inode.kind() == Kind::Symlink {
            // Linux keeps no user attributes on links, so links have no streams.
            return Err(Fault::NotSupported);
        }
        let found = inode.streams.named(stream).map(|s| (s.id, s.name.clone()));
        let (id, stored, created) = match (found, how.existence) {
            (Some(_), Existence::MustNotExist) => return Err(Fault::Exists),
            (Some((id, stored)), _) => (id, stored, false),
            (None, Existence::MustExist) => return Err(Fault::NotFound),
            (None, _) => {
                shared.writable()?;
                if !file_created {
                    shared.faults.pass(Operation::Create)?;
                }
                inode.meta.changed = now;
                (inode.streams.add(stream, Content::default())?, String::from(stream), true)
            }
        };
        let inode = state.live.0.get(&node.ino()).ok_or(Fault::Stale)?;
        let hidden = shared.hides(path.last());
        let stat = shared.stat(node.ino(), inode, hidden);
        let stat = inode.streams.by_id(id).ok_or(Fault::Stale)?.stat(stat);
        drop(state);
        let node = Arc::new(node.of_stream(id, how));
        Ok(Opened { node, stat, created, file_created, name: path.with_stream(Some(&stored)) })
    }
}

impl Shared {
    /// Returns the file of a stream if the stream's key still is `key`.
    fn file_of_stream<'s>(
        &self,
        state: &'s mut State,
        name: &Name,
        key: FileKey,
    ) -> VfsResult<&'s mut Inode> {
        let (ino, _) = file_of(&state.live, name)?;
        if self.key(ino) != key.file() || name.stream_id() != key.stream {
            return Err(Fault::Stale);
        }
        state.live.0.get_mut(&ino).ok_or(Fault::Stale)
    }

    pub(super) fn remove_stream(
        &self,
        state: &mut State,
        name: &Name,
        key: FileKey,
    ) -> VfsResult<()> {
        let now = self.now();
        let inode = self.file_of_stream(state, name, key)?;
        let gone = inode.streams.take(name.stream().unwrap_or_default()).ok_or(Fault::NotFound)?;
        inode.meta.changed = now;
        state.used = state.used.saturating_sub(gone.content.held());
        Ok(())
    }

    pub(super) fn rename_stream(
        &self,
        state: &mut State,
        (from, key): (&Name, FileKey),
        to: &Name,
        replace: bool,
    ) -> VfsResult<Name> {
        tree::check_name(to, false)?;
        let Some(old) = from.stream() else { return Err(Fault::NameInvalid) };
        if !eq_ignore_case(from.path(), to.path()) {
            return Err(Fault::NameInvalid);
        }
        let now = self.now();
        let inode = self.file_of_stream(state, from, key)?;
        let before = inode.held();
        let Some(new) = to.stream() else {
            let Body::File(own) = &mut inode.body else { return Err(Fault::NameInvalid) };
            if !replace {
                return Err(Fault::Exists);
            }
            *own = inode.streams.take(old).ok_or(Fault::NotFound)?.content;
            let after = inode.held();
            inode.meta.changed = now;
            state.used = state.used.saturating_sub(before.saturating_sub(after));
            return Ok(to.clone());
        };
        inode.streams.named(old).ok_or(Fault::NotFound)?;
        let same = eq_ignore_case(old, new);
        if !same && inode.streams.named(new).is_some() {
            if !replace {
                return Err(Fault::Exists);
            }
            inode.streams.take(new);
        }
        let mut stream = inode.streams.take(old).ok_or(Fault::NotFound)?;
        stream.name = String::from(new);
        inode.streams.all.push(stream);
        inode.streams.all.sort_by_cached_key(|s| upcase_name(&s.name));
        inode.meta.changed = now;
        let after = inode.held();
        state.used = state.used.saturating_sub(before.saturating_sub(after));
        Ok(to.clone())
    }
}
