//! The contract between the server and a file system.
//!
//! Implementors are `frevo-posix` (a folder of the host), [`crate::memory`] (files in
//! memory, with fault injection) and any program that embeds the server.
//!
//! # The least that an implementor writes
//!
//! - [`Vfs::open`] and [`Vfs::volume`],
//! - [`Node::key`], [`Node::stat`] and [`Node::read_at`],
//! - [`Node::directory`] and a [`Directory`] for folders.
//!
//! Together they make a read-only store. Every other method has a default that refuses
//! ([`Fault::ReadOnly`], [`Fault::NotSupported`]) or says that there is nothing. A store
//! that can be written adds [`Vfs::remove`], [`Vfs::rename`], [`Node::write_at`],
//! [`Node::set_end_of_file`], [`Node::set_basic`] and [`Node::sync`].
//!
//! # Rules
//!
//! - A method returns within milliseconds: the caller holds a core that other clients wait
//!   for. A slow store is shared with a blocking pool (`off_core`).
//! - Methods are called from several threads at one time, also on one node.
//! - [`FileKey`] names a file for as long as it exists, on the whole server: two file
//!   systems never have one `device`. Share modes, byte ranges and leases stand on it.
//! - An open node stays usable when its name is removed or moved.
//! - No name leads out of the share; links are never followed out of it.
//! - Sizes, offsets and lengths are bytes. Offsets are below 2^63.
//! - Whatever a client sends has been checked: a [`Name`] has no `..`, no separator within
//!   a component, no NUL.
//!
//! Data I/O that may block has a second way: when [`Node::descriptor`] names a host
//! descriptor, the caller may move data through it (io_uring, sendfile) instead of
//! [`Node::read_at`] and [`Node::write_at`].
//!
//! # Tests of an implementor
//!
//! `conformance` (feature `conformance`) has the checks that all implementors pass; see its
//! documentation.

mod change;
mod directory;
mod fault;
pub mod links;
mod node;
mod opening;
mod protection;
mod stat;
mod volume;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;

use crate::name::{FolderId, Name};
use crate::observe::{HostPlaces, Observation, Observer};
use crate::snapshot::Moment;

pub use change::{
    Allocated, BasicChange, Commitment, DiskExtent, DiskExtents, EaChange, ExtentCopy, HostLock,
    ObjectId, ObjectIdChange,
};
pub use directory::Directory;
pub use fault::{Fault, VfsResult};
pub use node::Node;
pub use opening::{Existence, KindWanted, OpenHow, Opened, Parent, Replacement};
pub use protection::{HostAccess, Security, SecurityChange};
pub use stat::{FileKey, Kind, STORED_ATTRIBUTES, Stat, StreamStat};
pub use volume::{QuotaLimits, QuotaState, Space, UserQuota, Volume, VolumeIdentity, VolumeSpace};

/// A file system, or the part of one that a share shows. Names are relative to the share's root and
/// cannot leave it.
pub trait Vfs: Any + Send + Sync + fmt::Debug {
    /// Finds or makes `name` and opens it. Case is ignored unless `how` says otherwise: an exact
    /// match wins, else the first name that differs in case only.
    ///
    /// A name with a stream means that stream: its node reads and writes the stream's data, and all
    /// other state is the file's. A stream of a file that does not exist is created with its file.
    /// Without support for streams the name is [`Fault::NameInvalid`].
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened>;

    /// Opens the parent directory of `name`, to read its security and to work in it. Stored
    /// attributes and times may be missing in its state.
    fn open_parent(&self, name: &Name) -> VfsResult<Opened> {
        self.open(&name.parent(), &OpenHow::DIRECTORY)
    }

    /// Returns the identity of the folder that names are relative to. Two file systems of one
    /// folder return the same.
    fn folder_id(&self) -> FolderId {
        FolderId(core::ptr::from_ref(self).cast::<()>().addr())
    }

    /// Opens `name` as [`Self::open`] does, in the directory that [`Self::open_parent`] has just
    /// opened for it, without a lookup of the directory.
    fn open_in(&self, parent: Parent<'_>, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        let _ = parent;
        self.open(name, how)
    }

    /// Removes the file or empty directory `name` if it still is `key`, else fails with
    /// [`Fault::Stale`]. Removes only the stream if `name` has one.
    fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        let _ = (name, key);
        Err(Fault::ReadOnly)
    }

    /// Moves `from` (still `key`, else [`Fault::Stale`]) to `to`, whose parent must exist. An
    /// existing `to` is replaced if `replace` is set, else the call fails with [`Fault::Exists`];
    /// renaming to another case of `from` works. Returns the new name as stored. If `from` has a
    /// stream, `to` is another stream of that file, or its own data: the old content of `to` is
    /// lost.
    fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
        let _ = (from, key, to, replace);
        Err(Fault::ReadOnly)
    }

    /// True if two names that differ in case only are one entry of a directory, as on file systems
    /// that ignore case. There a file may have another key by each spelling.
    fn is_one_entry(&self, one: &Name, other: &Name) -> VfsResult<bool> {
        let _ = (one, other);
        Ok(false)
    }

    /// Makes `to` a further name of the open file `node`.
    fn link(&self, node: &dyn Node, to: &Name, replace: bool) -> VfsResult<()> {
        let _ = (node, to, replace);
        Err(Fault::NotSupported)
    }

    /// Replaces the empty file or directory `name`, opened as `node` (else [`Fault::Stale`]), by
    /// another kind of empty object. A directory with entries fails with [`Fault::NotEmpty`].
    /// Afterwards `node` and its key are the new object's.
    ///
    /// Fails with [`Fault::NotSupported`] on a file system without such objects.
    fn replace(&self, name: &Name, node: &dyn Node, by: &Replacement<'_>) -> VfsResult<()> {
        let _ = (name, node, by);
        Err(Fault::NotSupported)
    }

    /// Returns the state of `name` without opening it; links are not followed.
    fn stat(&self, name: &Name) -> VfsResult<Stat> {
        let how = OpenHow { open_link: true, ..OpenHow::LOOK };
        self.open(name, &how).map(|opened| opened.stat)
    }

    /// Returns the key of the parent directory of `name`.
    fn parent_key(&self, name: &Name) -> VfsResult<FileKey> {
        self.stat(&name.parent()).map(|stat| stat.key)
    }

    /// Returns free and total space.
    fn space(&self) -> VfsResult<Space> {
        Ok(Space::FULL)
    }

    /// Returns facts about the file system. They change when another disk is mounted for it.
    fn volume(&self) -> Arc<Volume>;

    /// Returns true if a call may wait for a server or another program, now or at the next call: the
    /// caller then makes calls where nobody else waits for them.
    fn may_wait(&self) -> bool {
        false
    }

    // The following methods are about the quotas of users.

    /// Returns the state of quotas; None on a file system without quotas. It can change at any
    /// time.
    fn quota_state(&self) -> VfsResult<Option<QuotaState>> {
        Ok(None)
    }

    /// Returns the quota of a user; None for a user without files and limits.
    fn quota(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        let _ = uid;
        Ok(None)
    }

    /// Returns the quota of the user with the lowest number at or behind `uid`.
    fn quota_from(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        let _ = uid;
        Ok(None)
    }

    /// Sets the limits of a user. A number that the file system cannot store becomes the next lower
    /// one, but never "no limit"; a threshold beyond the limit becomes the limit.
    fn set_quota(&self, uid: u32, limits: QuotaLimits) -> VfsResult<()> {
        let _ = (uid, limits);
        Err(Fault::NotSupported)
    }

    /// Returns the limits of new users; None if the file system cannot store any.
    fn quota_defaults(&self) -> VfsResult<Option<QuotaLimits>> {
        Ok(None)
    }

    /// Sets the limits of new users, as [`Self::set_quota`] does.
    fn set_quota_defaults(&self, limits: QuotaLimits) -> VfsResult<()> {
        let _ = limits;
        Err(Fault::NotSupported)
    }

    // The following methods are about snapshots of the share.

    /// Returns the times of the snapshots that contain a file of this name, newest first.
    fn snapshots(&self, name: &Name) -> VfsResult<Vec<Moment>> {
        let _ = name;
        Ok(Vec::new())
    }

    /// Returns the file system at the time of a snapshot, read-only; [`Fault::NotFound`] without a
    /// snapshot of that second. Its file keys differ from all keys of this file system. If it stays
    /// open after its last use, that takes one of the places of the account that asks.
    fn snapshot(&self, taken: Moment, places: &Arc<HostPlaces>) -> VfsResult<Arc<dyn Vfs>> {
        let _ = (taken, places);
        Err(Fault::NotFound)
    }

    /// Returns the name that an object of today has in a snapshot which has nothing of the name of today: the object
    /// was renamed since, or a folder above it. None if the snapshot does not know it.
    fn name_in_snapshot(&self, taken: Moment, name: &Name) -> VfsResult<Option<Name>> {
        let _ = (taken, name);
        Ok(None)
    }

    /// True if byte-range locks are to be shown to other programs by [`Node::show_lock`].
    fn shows_locks(&self) -> bool {
        false
    }

    /// Reports to `observer` the changes by other programs in the open directory `node` (for a
    /// tree: in everything below it), until the result is dropped. For any other object: its
    /// changes, without names. Fails with [`Fault::NotSupported`] if the host cannot tell.
    fn observe(
        &self,
        node: &dyn Node,
        is_tree: bool,
        observer: Observer,
    ) -> VfsResult<Box<dyn Observation>> {
        let _ = (node, is_tree, observer);
        Err(Fault::NotSupported)
    }
}
