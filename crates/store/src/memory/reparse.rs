//! Replacing files by links or special files, and back.

use alloc::string::String;
use core::any::Any;

use super::content::Content;
use super::faults::Operation;
use super::node::MemoryNode;
use super::stream_set::Streams;
use super::tree::Body;
use super::vfs::{MemoryVfs, file_of};
use crate::name::Name;
use crate::vfs::{Fault, Kind, Node, Replacement, VfsResult};

impl MemoryVfs {
    /// Replaces the object; see [`crate::Vfs::replace`]. The inode stays: in memory its kind can
    /// change.
    pub(super) fn replace_body(
        &self,
        name: &Name,
        node: &dyn Node,
        by: &Replacement<'_>,
    ) -> VfsResult<()> {
        let shared = &self.shared;
        shared.faults.pass(Operation::Create)?;
        shared.writable()?;
        let node: &dyn Any = node;
        let node: &MemoryNode = node.downcast_ref().ok_or(Fault::NotSupported)?;
        if !node.is_of(shared) {
            return Err(Fault::CrossDevice);
        }
        let now = shared.now();
        let mut state = shared.state.lock();
        let (ino, _) = file_of(&state.live, name)?;
        if name.stream().is_some() || ino != node.ino() {
            return Err(Fault::Stale);
        }
        let inode = state.live.0.get_mut(&ino).ok_or(Fault::Stale)?;
        match &inode.body {
            Body::Directory(entries) if !entries.is_empty() => return Err(Fault::NotEmpty),
            Body::File(content) if content.end() != 0 => return Err(Fault::Invalid),
            _ => {}
        }
        let before = inode.held();
        inode.body = match *by {
            Replacement::File => Body::File(Content::default()),
            Replacement::Symlink(target) => Body::Symlink(String::from(target)),
            Replacement::Fifo => Body::Special(Kind::Fifo),
            Replacement::Socket => Body::Special(Kind::Socket),
        };
        let meta = &mut inode.meta;
        (meta.reparse, meta.written, meta.changed) = (None, now, now);
        if *by != Replacement::File {
            // As on Linux, a link or a special file has no attributes, no extended attributes and
            // no streams.
            meta.attributes = frevo_wire::dtyp::FileAttributes::EMPTY;
            meta.eas.clear();
            meta.needed_eas.clear();
            meta.object_id = None;
            inode.streams = Streams::EMPTY;
        }
        let after = inode.held();
        state.used = state.used.saturating_sub(before).saturating_add(after);
        Ok(())
    }
}
