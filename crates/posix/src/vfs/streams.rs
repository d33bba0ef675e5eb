//! Opening, removing and renaming named streams, which [`crate::share::streams`] stores.

use std::any::Any;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use frevo_store::vfs::{Existence, Kind, KindWanted, OpenHow, Opened, Vfs, VfsResult};
use frevo_store::{Fault, FileKey, Name};
use frevo_wire::fscc::eq_ignore_case;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::PosixVfs;
use super::stream_node::StreamNode;
use crate::errno::fault_of;
use crate::limits::STREAM_COPY_BYTES;
use crate::node::PosixNode;
use crate::patience;
use crate::share::streams::body::{self, Body, Where};
use crate::share::streams::layout::{stat_of, stream_key};
use crate::share::streams::table::{alive, remember};
use crate::share::streams::{StoredStream, side};
use crate::sys;
use crate::xattr::Handle;

/// Returns the node of the file for a node of this file system: for a stream its file's.
pub(crate) fn file_node(node: &dyn Any) -> Option<&PosixNode> {
    if let Some(stream) = node.downcast_ref::<StreamNode>() {
        let file: &dyn Any = stream.file();
        return file.downcast_ref();
    }
    node.downcast_ref()
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
            // This CREATE has made the file only for the stream, which failed, so the file is
            // removed again.
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
        // A stream is opened with the same rights as the file's data, so these rights are checked
        // on the file.
        side::check(&handle, how.read, how.write)?;
        let key = stream_key(file.stat.key, wanted);
        let mut open = share.streams.lock_soon()?;
        let (body, stored, extent) = match alive(&open, key) {
            Some(_) if how.existence == Existence::MustNotExist => return Err(Fault::Exists),
            Some(body) => {
                drop(open);
                let state = body.lock_soon()?;
                let (stored, extent) = (state.name.clone(), Some(state.extent(&handle)?));
                drop(state);
                (body, stored, extent)
            }
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
                let stored = found.name.clone();
                let body = Arc::new(Body::new(found.name, found.at));
                // A core that has made a stream does not wait for the lock, and must not give up.
                let extent = if created { None } else { Some(body.lock_soon()?.extent(&handle)?) };
                remember(&mut open, key, &body);
                drop(open);
                (body, stored, extent)
            }
        };
        let node = StreamNode::new(Arc::clone(share), Arc::clone(&file.node), handle, body, how);
        let stat = stat_of(file.stat, &stored, extent.unwrap_or_default());
        let name = file.name.with_stream(Some(&stored));
        Ok(Opened {
            node: Arc::new(node),
            stat,
            created: extent.is_none(),
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
        let mut open = share.streams.lock_soon()?;
        let wanted = name.stream().unwrap_or_default();
        let found = share.find_stream(&file, wanted)?.ok_or(Fault::NotFound)?;
        if matches!(found.at, Where::Side(_)) && patience::is_short() {
            // Its blocks are freed here.
            return Err(fault_of(patience::give_up()));
        }
        let body = alive(&open, key);
        let mut state = body.as_ref().map(|body| body.lock_soon()).transpose()?;
        share.erase(&file, &found.name)?;
        let ended = state.as_mut().map(|state| state.end());
        drop(state);
        open.remove(&key);
        // The last descriptor is closed without the lock, for which cores wait.
        drop(open);
        drop((found, ended));
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
        if patience::is_short() {
            // The data may be copied, and that of another stream be freed.
            return Err(fault_of(patience::give_up()));
        }
        let share = self.share();
        let file = self.file_of_stream(from, key)?;
        let mut open = share.streams.lock_soon()?;
        let found = share.find_stream(&file, old)?.ok_or(Fault::NotFound)?;
        let body = alive(&open, key).unwrap_or_else(|| Arc::new(Body::new(found.name, found.at)));
        let mut state = body.lock_soon()?;
        let Some(new) = to.stream() else {
            if !replace {
                return Err(Fault::Exists);
            }
            drop(state);
            // The table is not locked while data is copied, so that others must find this stream in it.
            remember(&mut open, key, &body);
            drop(open);
            return self.stream_into_file(&file, key, &body).map(|()| to.clone());
        };
        if state.name == new {
            return Ok(to.clone());
        }
        let new_key = stream_key(key, new);
        let target = if new_key == key { None } else { share.find_stream(&file, new)? };
        if target.is_some() && !replace {
            return Err(Fault::Exists);
        }
        let other = target.as_ref().and_then(|_| alive(&open, new_key));
        let mut replaced = other.as_ref().map(|body| body.lock_soon()).transpose()?;
        share.move_stream(&file, &mut state, new, target.as_ref())?;
        let ended = replaced.as_mut().map(|state| state.end());
        drop(replaced);
        body.set_name(&mut state, new);
        drop(state);
        open.remove(&key);
        remember(&mut open, new_key, &body);
        drop(open);
        // The stream that is replaced is closed last, without the lock, for which cores wait.
        drop((target, ended));
        Ok(to.clone())
    }

    /// Makes a stream's data the file's own data, and removes the stream. Nobody changes the stream
    /// meanwhile; others may read it.
    fn stream_into_file(&self, file: &Handle, key: FileKey, body: &Body) -> VfsResult<()> {
        let share = self.share();
        let _unchanged = body.stop_writes();
        into_file(file, body)?;
        let mut open = share.streams.lock_soon()?;
        let mut state = body.lock_soon()?;
        share.erase(file, &state.name)?;
        let ended = state.end();
        drop(state);
        open.remove(&key);
        drop(open);
        drop(ended);
        Ok(())
    }
}

/// Makes a stream's data the file's own data.
fn into_file(file: &Handle, stream: &Body) -> VfsResult<()> {
    let target = sys::reopen(file.fd(), OFlags::WRONLY).map_err(|errno| match errno {
        Errno::ISDIR => Fault::NameInvalid,
        other => fault_of(other),
    })?;
    let mut buffer = vec![0; STREAM_COPY_BYTES];
    let mut at = 0;
    loop {
        let len = stream.read(file, at, &mut buffer)?;
        if len == 0 {
            break;
        }
        body::write_all(target.as_fd(), at, buffer.get(..len).unwrap_or_default())?;
        at = at.saturating_add(len as u64);
    }
    rustix::fs::ftruncate(&target, at).map_err(fault_of)
}
