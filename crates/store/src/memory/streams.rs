//! Opening, removing and renaming named streams.

use alloc::string::String;
use alloc::sync::Arc;

use frevo_wire::fscc::eq_ignore_case;

use super::content::Content;
use super::faults::Operation;
use super::shared::Shared;
use super::stable::State;
use super::tree::{self, Body, Inode};
use super::vfs::{MemoryVfs, file_of};
use crate::name::Name;
use crate::vfs::{Existence, Fault, FileKey, Kind, KindWanted, OpenHow, Opened, VfsResult};

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
            // On Linux a symbolic link has no user attributes, so it cannot have streams.
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
        let name = path.with_stream(Some(&stored));
        Ok(Opened { node, stat, created, file_created, is_bare: false, name })
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
        let removed =
            inode.streams.take(name.stream().unwrap_or_default()).ok_or(Fault::NotFound)?;
        inode.meta.changed = now;
        state.used = state.used.saturating_sub(removed.content.held());
        Ok(())
    }

    pub(super) fn rename_stream(
        &self,
        state: &mut State,
        from: &Name,
        key: FileKey,
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
        inode.streams.put(stream);
        inode.meta.changed = now;
        let after = inode.held();
        state.used = state.used.saturating_sub(before.saturating_sub(after));
        Ok(to.clone())
    }
}
