//! Named streams, MS-FSA 2.1.1.4 Stream, on a file system without them.
//!
//! A stream is an extended attribute of its file in the layout of Samba's `streams_xattr`:
//! `user.DosStream.NAME:$DATA`, whose value is the data and a NUL. A stream that does not fit moves
//! to the [side folder](side). All Opens of one stream share its [`Body`], so that each knows its
//! present storage and name.

mod body;
mod layout;
mod side;
mod stream_node;
mod table;

use std::any::Any;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use frevo_store::vfs::{Existence, Kind, KindWanted, OpenHow, Opened, StreamStat, Vfs, VfsResult};
use frevo_store::{Fault, FileKey, Name};
use frevo_wire::fscc::{eq_ignore_case, upcase_name};
use hashbrown::HashSet;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::errno::fault_of;
use crate::limits::{STREAM_COPY_BYTES, STREAMS_SHOWN};
use crate::node::PosixNode;
use crate::options::Streams;
use crate::patience;
use crate::share::Share;
use crate::sys;
use crate::vfs::PosixVfs;
use crate::xattr::Handle;
use body::{Body, Where};
use layout::{allocation, attribute, attributes, stat_of, stream_key};
use stream_node::StreamNode;
use table::{alive, remember};

pub(crate) use table::Table;

/// Returns the node of the file for a node of this file system: for a stream its file's.
pub(crate) fn file_node(node: &dyn Any) -> Option<&PosixNode> {
    if let Some(stream) = node.downcast_ref::<StreamNode>() {
        let file: &dyn Any = stream.file();
        return file.downcast_ref();
    }
    node.downcast_ref()
}

/// Gives up a call on a core that would look at so many streams: each takes several system calls.
fn few_for_a_core(streams: usize) -> VfsResult<()> {
    if patience::gives_up(streams) { Err(fault_of(Errno::AGAIN)) } else { Ok(()) }
}

/// A stream on the medium.
struct StoredStream {
    name: String,
    at: Where,
}

impl Share {
    /// Looks a stream up. Data in the side folder is newer than an attribute of that name: both
    /// exist between making the one and removing the other.
    fn find_stream(&self, file: &Handle, wanted: &str) -> VfsResult<Option<StoredStream>> {
        if let Some(name) = self.side_streams(file)?.into_iter().find(|n| eq_ignore_case(n, wanted))
        {
            let at = Where::Side(self.open_side(file, &name)?);
            return Ok(Some(StoredStream { name, at }));
        }
        let name = attributes(file)?.into_iter().find(|n| eq_ignore_case(n, wanted));
        Ok(name.map(|name| StoredStream { name, at: Where::Attribute }))
    }

    pub(crate) fn list_streams(&self, file: &Handle) -> VfsResult<Vec<StreamStat>> {
        if !self.volume.streams {
            return Ok(Vec::new());
        }
        let (beside, inside) = (self.side_streams(file)?, attributes(file)?);
        few_for_a_core(beside.len().saturating_add(inside.len()))?;
        let mut names: HashSet<_> = beside.iter().map(|name| upcase_name(name)).collect();
        let mut found = Vec::new();
        for name in beside {
            let size = self.side_size(file, &name)?;
            found.push(StreamStat { name, size, allocation: allocation(size) });
        }
        for name in inside {
            if !names.insert(upcase_name(&name)) {
                continue;
            }
            let Some(attribute) = attribute(&name) else { continue };
            match file.value_len(&attribute) {
                Ok(len) => {
                    let size = (len as u64).saturating_sub(1);
                    found.push(StreamStat { name, size, allocation: allocation(size) });
                }
                // The attribute was removed since the names were listed.
                Err(Errno::NODATA) => {}
                Err(errno) => return Err(fault_of(errno)),
            }
        }
        found.sort_by_cached_key(|s| upcase_name(&s.name));
        found.truncate(STREAMS_SHOWN);
        Ok(found)
    }

    pub(crate) fn clear_streams(&self, file: &Handle) -> VfsResult<()> {
        if !self.volume.streams {
            return Ok(());
        }
        let stx = sys::stat_fd(file.fd()).map_err(fault_of)?;
        let key = self.marked(crate::stat::key_of(&stx));
        let (beside, inside) = (self.side_streams(file)?, attributes(file)?);
        few_for_a_core(beside.len().saturating_add(inside.len()))?;
        let mut open = self.streams.open.lock();
        for name in inside.into_iter().chain(beside) {
            self.erase(file, &name)?;
            if let Some(body) = open.remove(&stream_key(key, &name)).and_then(|b| b.upgrade()) {
                body.lock().at = Where::Gone;
            }
        }
        self.forget_side(self.side_of(file));
        Ok(())
    }

    /// Removes a stream from its storage.
    fn erase(&self, file: &Handle, name: &str) -> VfsResult<()> {
        self.remove_side(file, name)?;
        let Some(attribute) = attribute(name) else { return Ok(()) };
        match file.remove(&attribute) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(errno) => Err(fault_of(errno)),
        }
    }

    /// Makes an empty stream.
    fn make_stream(&self, file: &Handle, name: &str) -> VfsResult<Where> {
        let attribute = attribute(name).filter(|_| self.options.streams == Streams::Xattr);
        let Some(attribute) = attribute else {
            return Ok(Where::Side(self.make_side(file, name)?));
        };
        match file.set(&attribute, &[0]) {
            Ok(()) => Ok(Where::Attribute),
            Err(errno) if body::is_full(errno) => Ok(Where::Side(self.make_side(file, name)?)),
            Err(errno) => Err(fault_of(errno)),
        }
    }
}

impl PosixVfs {
    /// Opens or makes the stream in `name`, and its file too if necessary.
    pub(crate) fn open_stream(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        let share = self.share();
        let wanted = name.stream().filter(|_| share.volume.streams).ok_or(Fault::NameInvalid)?;
        if how.kind == KindWanted::Directory {
            return Err(Fault::NotADirectory);
        }
        let existence = match how.existence {
            Existence::MustExist => Existence::MustExist,
            _ => Existence::Either,
        };
        let look = OpenHow { existence, kind: KindWanted::Any, read: false, write: false, ..*how };
        let file = self.open(&name.with_stream(None), &look)?;
        let opened = self.open_stream_of(&file, wanted, how);
        if opened.is_err() && file.created {
            // The CREATE made the file only for the stream, so the file is removed.
            let _ = self.remove(&file.name, file.node.key());
        }
        opened
    }

    fn open_stream_of(&self, file: &Opened, wanted: &str, how: &OpenHow) -> VfsResult<Opened> {
        let share = self.share();
        let node: &dyn Any = &*file.node;
        let handle = file_node(node).ok_or(Fault::NotSupported)?.handle().clone();
        if !matches!(file.stat.kind, Kind::File | Kind::Directory) {
            return Err(Fault::NotSupported);
        }
        // A stream needs the same rights as the file's data.
        side::check(&handle, how.read, how.write)?;
        let key = stream_key(file.stat.key, wanted);
        let mut open = share.streams.open.lock();
        let (body, created) = match alive(&open, key) {
            Some(_) if how.existence == Existence::MustNotExist => return Err(Fault::Exists),
            Some(body) => (body, false),
            None => {
                let found = share.find_stream(&handle, wanted)?;
                let (found, created) = match (found, how.existence) {
                    (Some(_), Existence::MustNotExist) => return Err(Fault::Exists),
                    (Some(found), _) => (found, false),
                    (None, Existence::MustExist) => return Err(Fault::NotFound),
                    (None, _) => {
                        share.writable()?;
                        let at = share.make_stream(&handle, wanted)?;
                        (StoredStream { name: wanted.to_owned(), at }, true)
                    }
                };
                let body = Arc::new(Body::new(found.name, found.at));
                remember(&mut open, key, &body);
                (body, created)
            }
        };
        drop(open);
        let stored = body.lock().name.clone();
        let node = StreamNode::new(Arc::clone(share), Arc::clone(&file.node), handle, body, how);
        let stat = stat_of(file.stat, &stored, node.size()?);
        let name = file.name.with_stream(Some(&stored));
        Ok(Opened {
            node: Arc::new(node),
            stat,
            created,
            file_created: file.created,
            is_bare: false,
            name,
        })
    }

    /// Returns the file of a stream, if the stream still is `key`.
    fn file_of_stream(&self, name: &Name, key: FileKey) -> VfsResult<Handle> {
        let look = OpenHow { open_link: true, ..OpenHow::LOOK };
        let file = self.open(&name.with_stream(None), &look)?;
        if file.stat.key != key.file() || name.stream_id() != key.stream {
            return Err(Fault::Stale);
        }
        let node: &dyn Any = &*file.node;
        Ok(file_node(node).ok_or(Fault::NotSupported)?.handle().clone())
    }

    pub(crate) fn remove_stream(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        let file = self.file_of_stream(name, key)?;
        let share = self.share();
        let mut open = share.streams.open.lock();
        let wanted = name.stream().unwrap_or_default();
        let found = share.find_stream(&file, wanted)?.ok_or(Fault::NotFound)?;
        share.erase(&file, &found.name)?;
        if let Some(body) = open.remove(&key).and_then(|body| body.upgrade()) {
            body.lock().at = Where::Gone;
        }
        Ok(())
    }

    pub(crate) fn rename_stream(
        &self,
        from: &Name,
        key: FileKey,
        to: &Name,
        replace: bool,
    ) -> VfsResult<Name> {
        let old = from.stream().ok_or(Fault::NameInvalid)?;
        if !eq_ignore_case(from.path(), to.path()) {
            return Err(Fault::NameInvalid);
        }
        let share = self.share();
        let file = self.file_of_stream(from, key)?;
        let mut open = share.streams.open.lock();
        let found = share.find_stream(&file, old)?.ok_or(Fault::NotFound)?;
        let body = alive(&open, key).unwrap_or_else(|| Arc::new(Body::new(found.name, found.at)));
        let mut state = body.lock();
        let Some(new) = to.stream() else {
            if !replace {
                return Err(Fault::Exists);
            }
            into_file(&file, &state)?;
            share.erase(&file, &state.name)?;
            state.at = Where::Gone;
            open.remove(&key);
            return Ok(to.clone());
        };
        if state.name == new {
            return Ok(to.clone());
        }
        let new_key = stream_key(key, new);
        if new_key != key
            && let Some(target) = share.find_stream(&file, new)?
        {
            if !replace {
                return Err(Fault::Exists);
            }
            share.erase(&file, &target.name)?;
            if let Some(replaced) = open.remove(&new_key).and_then(|body| body.upgrade()) {
                replaced.lock().at = Where::Gone;
            }
        }
        share.move_stream(&file, &mut state, new)?;
        state.name = new.to_owned();
        drop(state);
        open.remove(&key);
        remember(&mut open, new_key, &body);
        Ok(to.clone())
    }
}

/// Makes a stream's data the file's own data.
fn into_file(file: &Handle, state: &body::State) -> VfsResult<()> {
    let target = sys::reopen(file.fd(), OFlags::WRONLY).map_err(|errno| match errno {
        Errno::ISDIR => Fault::NameInvalid,
        other => fault_of(other),
    })?;
    let mut buffer = vec![0; STREAM_COPY_BYTES];
    let mut at = 0;
    loop {
        let len = state.read(file, at, &mut buffer)?;
        if len == 0 {
            break;
        }
        body::write_all(target.as_fd(), at, buffer.get(..len).unwrap_or_default())?;
        at = at.saturating_add(len as u64);
    }
    rustix::fs::ftruncate(&target, at).map_err(fault_of)
}

impl Share {
    /// Renames a stream's data on the medium.
    fn move_stream(&self, file: &Handle, state: &mut body::State, new: &str) -> VfsResult<()> {
        let old = attribute(&state.name);
        match (&state.at, attribute(new), old) {
            (Where::Gone, ..) => Err(Fault::Stale),
            (Where::Side(_), ..) => self.rename_side(file, &state.name, new),
            (Where::Attribute, Some(attribute), Some(old)) => {
                let value = file.whole_value(&old).map_err(fault_of)?;
                file.set(&attribute, &value).map_err(fault_of)?;
                file.remove(&old).map_err(fault_of)
            }
            (Where::Attribute, ..) => Err(Fault::NameTooLong),
        }
    }
}
