//! The named streams of one file: MS-FSA 2.1.1.4 Stream.

use alloc::string::String;
use alloc::vec::Vec;

use frevo_wire::dtyp::FileAttributes;
use frevo_wire::fscc::{eq_ignore_case, upcase_name};

use super::content::Content;
use crate::limits::{MEMORY_PAGE_BYTES, MEMORY_STREAMS};
use crate::name::Name;
use crate::vfs::{Fault, FileKey, Kind, Stat, StreamStat, VfsResult};

/// The number of a stream, which renames do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamId(u64);

#[derive(Debug, Clone)]
pub(super) struct Stream {
    pub(super) id: StreamId,
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

    pub(super) fn add(&mut self, name: &str, content: Content) -> VfsResult<StreamId> {
        if self.all.len() >= MEMORY_STREAMS {
            return Err(Fault::DiskFull);
        }
        let id = StreamId(self.next);
        self.next = self.next.saturating_add(1);
        self.put(Stream { id, name: String::from(name), content });
        Ok(id)
    }

    /// Adds a stream, which keeps its number.
    pub(super) fn put(&mut self, stream: Stream) {
        self.all.push(stream);
        self.all.sort_by_cached_key(|s| upcase_name(&s.name));
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Stream> {
        let at = self.all.iter().position(|s| eq_ignore_case(&s.name, name))?;
        Some(self.all.remove(at))
    }
}
