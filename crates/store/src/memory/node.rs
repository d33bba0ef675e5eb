//! An open file, directory or link.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;

use frevo_wire::dtyp::{FileAttributes, FileTime};
use frevo_wire::fscc::eq_ignore_case;

use super::content::{Content, SharedPages};
use super::directory::MemoryDirectory;
use super::faults::{BegunWrite, Operation};
use super::shared::{Shared, storable};
use super::stream_set::{StreamId, Streams};
use super::tree::{Body, Ino, Inode};
use crate::limits::{MEMORY_EA_NAME_BYTES, MEMORY_EA_VALUE_BYTES, MEMORY_FILE_BYTES};
use crate::security::HostAcl;
use crate::vfs::{
    Allocated, BasicChange, Directory, ExtentCopy, Fault, FileKey, HostAccess, Kind, Node,
    ObjectId, ObjectIdChange, OpenHow, Security, SecurityChange, Stat, StreamStat, VfsResult,
    links,
};

/// A use of a file. The file exists until this is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) shared: Arc<Shared>,
    pub(super) ino: Ino,
}

impl Hold {
    fn again(&self) -> Self {
        self.shared.state.lock().open(self.ino);
        Self { shared: Arc::clone(&self.shared), ino: self.ino }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.shared.state.lock().close(self.ino);
    }
}

/// An open object of a [`super::MemoryVfs`].
#[derive(Debug)]
pub(super) struct MemoryNode {
    hold: Hold,
    kind: Kind,
    read: bool,
    write: bool,
    /// HIDDEN because of the name by which it was opened.
    hidden_name: bool,
    /// The named stream whose data the node reads and writes.
    stream: Option<StreamId>,
}

impl MemoryNode {
    /// Makes a node. The caller counts it among the file's nodes.
    pub(super) const fn new(
        shared: Arc<Shared>,
        ino: Ino,
        kind: Kind,
        how: &OpenHow,
        hidden_name: bool,
    ) -> Self {
        let hold = Hold { shared, ino };
        Self { hold, kind, read: how.read, write: how.write, hidden_name, stream: None }
    }

    /// Makes this node one of a stream of the file.
    pub(super) fn of_stream(self, stream: StreamId, how: &OpenHow) -> Self {
        let (read, write) = (how.read, how.write);
        Self { kind: Kind::File, read, write, stream: Some(stream), ..self }
    }

    pub(super) const fn ino(&self) -> Ino {
        self.hold.ino
    }

    pub(super) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        self.hold.shared.has_files_of(shared)
    }

    /// Returns another node of the same open, for a write that goes on later.
    fn again(&self) -> Self {
        Self { hold: self.hold.again(), ..*self }
    }

    fn pass(&self, operation: Operation) -> VfsResult<()> {
        self.hold.shared.faults.pass(operation)
    }

    /// Refuses reads or writes of an object without data, or a node that was not opened for them
    /// (`allowed`).
    fn check_data(&self, allowed: bool) -> VfsResult<()> {
        match self.kind {
            // An open directory may have been replaced by a symbolic link. Then its data is refused
            // with AccessDenied.
            Kind::Directory if self.look(|inode| Ok(inode.kind())) == Ok(Kind::Directory) => {
                Err(Fault::IsADirectory)
            }
            Kind::File if allowed => Ok(()),
            _ => Err(Fault::AccessDenied),
        }
    }

    /// Reads the file's state.
    fn look<T>(&self, at: impl FnOnce(&Inode) -> VfsResult<T>) -> VfsResult<T> {
        let state = self.hold.shared.state.lock();
        at(state.live.0.get(&self.hold.ino).ok_or(Fault::Stale)?)
    }

    /// Changes the file's state; the clock gives the time.
    fn alter<T>(&self, how: impl FnOnce(&mut Inode, FileTime) -> VfsResult<T>) -> VfsResult<T> {
        self.hold.shared.writable()?;
        let now = self.hold.shared.now();
        let mut state = self.hold.shared.state.lock();
        how(state.live.0.get_mut(&self.hold.ino).ok_or(Fault::Stale)?, now)
    }

    /// Changes the content, which may take as many pages as are free.
    fn alter_content(&self, how: impl FnOnce(&mut Content, u64) -> VfsResult<()>) -> VfsResult<()> {
        self.check_data(self.write)?;
        self.hold.shared.writable()?;
        let now = self.hold.shared.now();
        let mut state = self.hold.shared.state.lock();
        let room = self.hold.shared.room(&state);
        let inode = state.live.0.get_mut(&self.hold.ino).ok_or(Fault::Stale)?;
        let content = content_mut(inode, self.stream)?;
        let before = content.held();
        let outcome = how(content, room);
        let after = content.held();
        (inode.meta.written, inode.meta.changed) = (now, now);
        state.used = state.used.saturating_sub(before).saturating_add(after);
        outcome
    }
}

/// Returns the data that a node reads and writes: the file's own, or a stream's.
fn content(inode: &Inode, stream: Option<StreamId>) -> VfsResult<&Content> {
    match (stream, &inode.body) {
        (Some(id), _) => Ok(&inode.streams.by_id(id).ok_or(Fault::Stale)?.content),
        (None, Body::File(content)) => Ok(content),
        _ => Err(Fault::AccessDenied),
    }
}

fn content_mut(inode: &mut Inode, stream: Option<StreamId>) -> VfsResult<&mut Content> {
    match (stream, &mut inode.body) {
        (Some(id), _) => Ok(&mut inode.streams.by_id_mut(id).ok_or(Fault::Stale)?.content),
        (None, Body::File(content)) => Ok(content),
        _ => Err(Fault::AccessDenied),
    }
}

/// Refuses an end behind the largest file.
fn check_end(end: u64) -> VfsResult<()> {
    if i64::try_from(end).is_err() {
        return Err(Fault::Invalid);
    }
    if end > MEMORY_FILE_BYTES { Err(Fault::FileTooLarge) } else { Ok(()) }
}

/// Returns the time to set, or None for the values of MS-FSCC 2.4.7 that leave a time alone.
fn settable(time: Option<FileTime>) -> Option<FileTime> {
    time.filter(|t| t.0 != 0 && t.0 < u64::MAX - 1)
}

impl Node for MemoryNode {
    fn takes_changes(&self) -> VfsResult<()> {
        self.hold.shared.writable()
    }

    fn key(&self) -> FileKey {
        let key = self.hold.shared.key(self.hold.ino);
        let Some(id) = self.stream else { return key };
        // The stream was removed, so its node gets a key that no other stream has.
        let removed = || FileKey { stream: u64::MAX, ..key };
        self.look(|inode| Ok(inode.streams.by_id(id).map_or_else(removed, |s| s.key(key))))
            .unwrap_or_else(|_| removed())
    }

    fn descriptor(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    fn stat(&self) -> VfsResult<Stat> {
        self.pass(Operation::Stat)?;
        let shared = &self.hold.shared;
        self.look(|inode| {
            let stat = shared.stat(self.hold.ino, inode, self.hidden_name);
            match self.stream {
                Some(id) => Ok(inode.streams.by_id(id).ok_or(Fault::Stale)?.stat(stat)),
                None => Ok(stat),
            }
        })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> VfsResult<usize> {
        self.check_data(self.read)?;
        self.pass(Operation::Read)?;
        self.look(|inode| Ok(content(inode, self.stream)?.read(offset, into)))
    }

    /// Writes as much as fits when the volume is full.
    fn write_at(&self, offset: u64, data: &[u8]) -> VfsResult<()> {
        self.check_data(self.write)?;
        self.pass(Operation::Write)?;
        check_end(offset.saturating_add(data.len() as u64))?;
        if let Some(stopped) = self.hold.shared.faults.take_stop() {
            let (node, data) = (self.again(), Vec::from(data));
            stopped(BegunWrite::new(move || node.write_at(offset, &data)));
            return Ok(());
        }
        self.alter_content(|content, room| content.write(offset, data, room))
    }

    fn sync(&self) -> VfsResult<()> {
        self.pass(Operation::Sync)?;
        self.hold.shared.state.lock().sync(self.hold.ino);
        Ok(())
    }

    fn set_end_of_file(&self, end: u64) -> VfsResult<()> {
        self.check_data(self.write)?;
        self.pass(Operation::SetEndOfFile)?;
        check_end(end)?;
        self.alter_content(|content, _| {
            content.set_end(end);
            Ok(())
        })
    }

    fn set_allocation(&self, bytes: u64) -> VfsResult<()> {
        self.check_data(self.write)?;
        self.pass(Operation::SetAllocation)?;
        check_end(bytes)?;
        self.alter_content(|content, room| {
            if bytes < content.end() {
                content.set_end(bytes);
                return Ok(());
            }
            content.reserve(bytes, room)
        })
    }

    fn set_basic(&self, change: &BasicChange) -> VfsResult<()> {
        self.pass(Operation::SetBasic)?;
        self.alter(|inode, now| {
            let is_link = inode.kind() == Kind::Symlink;
            if change.mode.is_some() && is_link {
                return Err(Fault::NotSupported);
            }
            let meta = &mut inode.meta;
            meta.uid = change.uid.unwrap_or(meta.uid);
            meta.gid = change.gid.unwrap_or(meta.gid);
            if let Some(mode) = change.mode {
                meta.mode = mode & 0o7777;
            }
            // As on Linux, a symbolic link cannot store attributes and a creation time.
            if !is_link {
                if let Some(attributes) = change.attributes {
                    meta.attributes = storable(attributes);
                }
                meta.created = settable(change.created).unwrap_or(meta.created);
            }
            meta.accessed = settable(change.accessed).unwrap_or(meta.accessed);
            meta.written = settable(change.written).unwrap_or(meta.written);
            meta.changed = settable(change.changed).unwrap_or(now);
            Ok(())
        })
    }

    fn streams(&self) -> VfsResult<Vec<StreamStat>> {
        self.pass(Operation::List)?;
        self.look(|inode| Ok(inode.streams.list()))
    }

    fn clear_streams(&self) -> VfsResult<()> {
        self.pass(Operation::Remove)?;
        self.hold.shared.writable()?;
        let mut state = self.hold.shared.state.lock();
        let inode = state.live.0.get_mut(&self.hold.ino).ok_or(Fault::Stale)?;
        let freed = inode.streams.held();
        inode.streams = Streams::EMPTY;
        state.used = state.used.saturating_sub(freed);
        Ok(())
    }

    fn directory(&self) -> VfsResult<Box<dyn Directory>> {
        if self.look(|inode| Ok(inode.kind()))? != Kind::Directory {
            return Err(Fault::NotADirectory);
        }
        self.pass(Operation::List)?;
        Ok(Box::new(MemoryDirectory::new(self.hold.again())))
    }

    fn eas(&self) -> VfsResult<Vec<(String, Vec<u8>)>> {
        self.pass(Operation::Eas)?;
        self.look(|inode| Ok(inode.meta.eas.clone()))
    }

    /// Sets an attribute. A name that differs only in case means the present attribute, which keeps
    /// its spelling.
    fn set_ea(&self, name: &str, value: &[u8]) -> VfsResult<()> {
        self.pass(Operation::SetEa)?;
        self.hold.shared.writable()?;
        if self.look(|inode| Ok(inode.kind()))? == Kind::Symlink {
            return Err(Fault::NotSupported);
        }
        if name.is_empty() || name.len() > MEMORY_EA_NAME_BYTES || name.contains('\0') {
            return Err(Fault::NameInvalid);
        }
        if value.len() > MEMORY_EA_VALUE_BYTES {
            return Err(Fault::FileTooLarge);
        }
        self.alter(|inode, now| {
            let eas = &mut inode.meta.eas;
            if value.is_empty() {
                eas.retain(|(stored, _)| !eq_ignore_case(stored, name));
                inode.meta.needed_eas.retain(|stored| !eq_ignore_case(stored, name));
            } else if let Some((_, old)) = eas.iter_mut().find(|(n, _)| eq_ignore_case(n, name)) {
                *old = Vec::from(value);
            } else {
                eas.push((String::from(name), Vec::from(value)));
            }
            inode.meta.changed = now;
            Ok(())
        })
    }

    fn needed_eas(&self) -> VfsResult<Vec<String>> {
        self.pass(Operation::Eas)?;
        self.look(|inode| Ok(inode.meta.needed_eas.clone()))
    }

    fn set_ea_needed(&self, name: &str, needed: bool) -> VfsResult<()> {
        self.pass(Operation::SetEa)?;
        self.hold.shared.writable()?;
        self.alter(|inode, now| {
            let meta = &mut inode.meta;
            let stored = meta.eas.iter().find(|(stored, _)| eq_ignore_case(stored, name));
            meta.needed_eas.retain(|stored| !eq_ignore_case(stored, name));
            if needed {
                let (stored, _) = stored.ok_or(Fault::NotFound)?;
                meta.needed_eas.push(stored.clone());
            }
            meta.changed = now;
            Ok(())
        })
    }

    fn link_target(&self) -> VfsResult<String> {
        self.look(|inode| match &inode.body {
            Body::Symlink(target) => Ok(links::told(target.clone())),
            _ => Err(Fault::Invalid),
        })
    }

    fn reparse_buffer(&self) -> VfsResult<Vec<u8>> {
        self.look(|inode| inode.meta.reparse.clone().ok_or(Fault::NotFound))
    }

    fn object_id(&self) -> VfsResult<Option<ObjectId>> {
        self.look(|inode| match inode.kind() {
            Kind::File | Kind::Directory => Ok(inode.meta.object_id),
            _ => Err(Fault::NotSupported),
        })
    }

    fn change_object_id(&self, change: &ObjectIdChange) -> VfsResult<()> {
        self.pass(Operation::SetEa)?;
        self.alter(|inode, now| {
            if !matches!(inode.kind(), Kind::File | Kind::Directory) {
                return Err(Fault::NotSupported);
            }
            let meta = &mut inode.meta;
            meta.object_id = match (*change, meta.object_id) {
                (ObjectIdChange::New(_), Some(_)) => return Err(Fault::Exists),
                (ObjectIdChange::New(id), None) => Some(id),
                (ObjectIdChange::Extended(_), None) => return Err(Fault::NotFound),
                (ObjectIdChange::Extended(extended), Some(mut id)) => {
                    if let Some(old) = id.last_chunk_mut() {
                        *old = extended;
                    }
                    Some(id)
                }
                (ObjectIdChange::Forget, None) => return Ok(()),
                (ObjectIdChange::Forget, Some(_)) => None,
            };
            meta.changed = now;
            Ok(())
        })
    }

    fn keep_reparse(&self, buffer: Option<&[u8]>) -> VfsResult<()> {
        self.pass(Operation::SetEa)?;
        self.alter(|inode, now| {
            if !matches!(inode.kind(), Kind::File | Kind::Directory) {
                return Err(Fault::NotSupported);
            }
            if inode.kind() == Kind::File {
                inode.meta.attributes |= FileAttributes::ARCHIVE;
            }
            inode.meta.reparse = buffer.map(Vec::from);
            inode.meta.changed = now;
            Ok(())
        })
    }

    fn security(&self) -> VfsResult<Security> {
        self.pass(Operation::Stat)?;
        self.look(|inode| {
            let meta = &inode.meta;
            let stored = meta.security.as_ref().filter(|(_, mode)| *mode == meta.mode);
            Ok(stored.map_or_else(
                || Security::Host(HostAcl::default()),
                |(descriptor, _)| Security::Stored(descriptor.clone()),
            ))
        })
    }

    fn set_security(&self, change: &SecurityChange<'_>) -> VfsResult<()> {
        self.pass(Operation::SetBasic)?;
        self.alter(|inode, now| {
            let is_directory = inode.kind() == Kind::Directory;
            let names_others = change.lists.is_some_and(HostAcl::names_others);
            if inode.kind() == Kind::Symlink || names_others {
                return Err(Fault::NotSupported);
            }
            let meta = &mut inode.meta;
            meta.uid = change.uid.unwrap_or(meta.uid);
            meta.gid = change.gid.unwrap_or(meta.gid);
            let special_bits = meta.mode & if is_directory { 0o3000 } else { 0o1000 };
            meta.mode = change.mode.map_or(meta.mode, |mode| mode & 0o777 | special_bits);
            meta.security = change.descriptor.map(|bytes| (Vec::from(bytes), meta.mode));
            meta.changed = now;
            Ok(())
        })
    }

    /// Allows everything, as if the process were root's.
    fn host_access(&self) -> HostAccess {
        let runs = self.look(|i| Ok(i.kind() != Kind::File || i.meta.mode & 0o111 != 0));
        HostAccess {
            read: true,
            write: self.hold.shared.writable().is_ok(),
            execute: runs.unwrap_or(false),
            owner: true,
        }
    }

    /// Shares pages. A range that ends within a page must end with both files, as on the host.
    fn share_extents(&self, source: &dyn Node, copy: &ExtentCopy) -> VfsResult<()> {
        let source: &dyn Any = source;
        let source: &Self = source.downcast_ref().ok_or(Fault::CrossDevice)?;
        if !source.is_of(&self.hold.shared) {
            return Err(Fault::CrossDevice);
        }
        self.check_data(self.write)?;
        source.check_data(source.read)?;
        self.pass(Operation::Write)?;
        let length = copy.length;
        let (from, count) = whole_pages(copy.source_offset, length)?;
        let (to, _) = whole_pages(copy.target_offset, length)?;
        let source_end = copy.source_offset.checked_add(length).ok_or(Fault::Invalid)?;
        let target_end = copy.target_offset.checked_add(length).ok_or(Fault::Invalid)?;
        check_end(target_end)?;
        let same = source.hold.ino == self.hold.ino && source.stream == self.stream;
        if same && from.abs_diff(to) < count {
            return Err(Fault::Invalid);
        }
        let source_content = source.look(|inode| content(inode, source.stream).cloned())?;
        if source_end > source_content.end() {
            return Err(Fault::Invalid);
        }
        let is_ragged = !length.is_multiple_of(crate::limits::MEMORY_PAGE_BYTES as u64);
        self.alter_content(|content, room| {
            if is_ragged && (source_end < source_content.end() || target_end < content.end()) {
                return Err(Fault::Invalid);
            }
            content.share(&source_content, SharedPages { from, to, count }, room)?;
            if target_end > content.end() {
                content.set_end(target_end);
            }
            Ok(())
        })
    }

    fn zero(&self, first: u64, length: u64, _punch: bool) -> VfsResult<()> {
        self.check_data(self.write)?;
        self.pass(Operation::Write)?;
        self.alter_content(|content, _| {
            content.zero(first, length);
            Ok(())
        })
    }

    fn allocated(&self, first: u64, beyond: u64, limit: usize) -> VfsResult<Allocated> {
        self.check_data(self.read)?;
        self.pass(Operation::Read)?;
        self.look(|inode| {
            let (ranges, has_more) = content(inode, self.stream)?.allocated(first, beyond, limit);
            Ok(Allocated { ranges, has_more })
        })
    }
}

/// Returns the first page and the number of pages; [`Fault::Invalid`] for a range that is not made
/// of whole pages.
fn whole_pages(offset: u64, length: u64) -> VfsResult<(u64, u64)> {
    let page = crate::limits::MEMORY_PAGE_BYTES as u64;
    if !offset.is_multiple_of(page) {
        return Err(Fault::Invalid);
    }
    let first = offset.checked_div(page).ok_or(Fault::Invalid)?;
    Ok((first, length.div_ceil(page)))
}
