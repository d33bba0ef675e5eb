//! [`WriteOnceVfs`]: the file system of a share whose files are written once.

use std::any::Any;
use std::sync::Arc;

use frevo_store::snapshot::Moment;
use frevo_store::vfs::{
    Existence, Kind, Node, OpenHow, Opened, Parent, QuotaLimits, QuotaState, Replacement, Space,
    Stat, UserQuota, VfsResult, Volume,
};
use frevo_store::{Fault, FileKey, FolderId, HostPlaces, Name, Observation, Observer, Vfs};

use super::node::{WriteOnceNode, marked};
use super::{Hold, WriteOnce};
use crate::shares::protection::LOOK;

/// A file system whose committed files do not change.
#[derive(Debug)]
pub(crate) struct WriteOnceVfs {
    inner: Arc<dyn Vfs>,
    rules: Arc<WriteOnce>,
}

/// The node of the file system beneath.
fn inner_of(node: &dyn Node) -> &dyn Node {
    let any: &dyn Any = node;
    any.downcast_ref::<WriteOnceNode>().map_or(node, WriteOnceNode::inner)
}

impl WriteOnceVfs {
    pub(crate) fn new(inner: Arc<dyn Vfs>, rules: Arc<WriteOnce>) -> Self {
        Self { inner, rules }
    }

    /// The hold on what a name stands for, with its node. None for a name without an object.
    fn held(&self, name: &Name) -> VfsResult<Option<(Hold, Opened)>> {
        match self.inner.open(&name.with_stream(None), &LOOK) {
            Ok(opened) if opened.stat.kind == Kind::File => {
                let hold = self.rules.hold_on(&*opened.node)?;
                Ok(Some((hold, opened)))
            }
            Ok(opened) => Ok(Some((Hold::Open, opened))),
            Err(Fault::NotFound | Fault::PathNotFound) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Fails for the name of a committed file.
    fn may_change(&self, name: &Name) -> VfsResult<()> {
        match self.held(name)? {
            None | Some((Hold::Open, _)) => Ok(()),
            Some((Hold::Retained | Hold::Expired, _)) => Err(Fault::AccessDenied),
        }
    }

    /// How a name is opened: a committed file gets no further stream.
    fn how(&self, name: &Name, how: &OpenHow) -> VfsResult<OpenHow> {
        let makes_stream = name.stream().is_some() && how.existence != Existence::MustExist;
        if !makes_stream || self.may_change(name).is_ok() {
            return Ok(*how);
        }
        match how.existence {
            Existence::MustNotExist => Err(Fault::AccessDenied),
            _ => Ok(OpenHow { existence: Existence::MustExist, ..*how }),
        }
    }

    /// The opened file, which is shown as read-only while it is retained.
    fn kept(&self, opened: Opened) -> VfsResult<Opened> {
        if opened.stat.kind != Kind::File {
            return Ok(opened);
        }
        let hold = if opened.created { Hold::Open } else { self.rules.note(&*opened.node)? };
        let stat = if hold == Hold::Retained { marked(opened.stat) } else { opened.stat };
        let node = WriteOnceNode::new(opened.node, Arc::clone(&self.rules));
        Ok(Opened { node: Arc::new(node), stat, ..opened })
    }
}

impl Vfs for WriteOnceVfs {
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        let how = self.how(name, how)?;
        self.kept(self.inner.open(name, &how)?)
    }

    fn open_parent(&self, name: &Name) -> VfsResult<Opened> {
        self.inner.open_parent(name)
    }

    fn open_in(&self, parent: Parent<'_>, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        let how = self.how(name, how)?;
        let parent = Parent { node: inner_of(parent.node), ..parent };
        self.kept(self.inner.open_in(parent, name, &how)?)
    }

    fn folder_id(&self) -> FolderId {
        self.inner.folder_id()
    }

    fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        match self.held(name)? {
            None | Some((Hold::Open, _)) => {}
            Some((Hold::Expired, opened)) if name.stream().is_none() => {
                if let Err(fault) = opened.node.release()
                    && fault != Fault::NotSupported
                {
                    return Err(fault);
                }
            }
            Some((Hold::Retained | Hold::Expired, _)) => return Err(Fault::AccessDenied),
        }
        self.inner.remove(name, key)
    }

    fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
        match self.held(from)? {
            Some((Hold::Retained | Hold::Expired, _)) => return Err(Fault::AccessDenied),
            Some((Hold::Open, opened)) if opened.stat.kind == Kind::Directory => {
                // The files of a folder would move with it.
                if opened.node.has_entries()? {
                    return Err(Fault::AccessDenied);
                }
            }
            None | Some((Hold::Open, _)) => {}
        }
        self.may_change(to)?;
        self.inner.rename(from, key, to, replace)
    }

    fn is_one_entry(&self, one: &Name, other: &Name) -> VfsResult<bool> {
        self.inner.is_one_entry(one, other)
    }

    fn link(&self, node: &dyn Node, to: &Name, replace: bool) -> VfsResult<()> {
        let node = inner_of(node);
        if self.rules.hold_on(node)? != Hold::Open {
            return Err(Fault::AccessDenied);
        }
        self.may_change(to)?;
        self.inner.link(node, to, replace)
    }

    fn replace(&self, name: &Name, node: &dyn Node, by: &Replacement<'_>) -> VfsResult<()> {
        self.may_change(name)?;
        self.inner.replace(name, inner_of(node), by)
    }

    fn stat(&self, name: &Name) -> VfsResult<Stat> {
        self.inner.stat(name)
    }

    fn parent_key(&self, name: &Name) -> VfsResult<FileKey> {
        self.inner.parent_key(name)
    }

    fn space(&self) -> VfsResult<Space> {
        self.inner.space()
    }

    fn volume(&self) -> Arc<Volume> {
        self.inner.volume()
    }

    fn may_wait(&self) -> bool {
        self.inner.may_wait()
    }

    fn quota_state(&self) -> VfsResult<Option<QuotaState>> {
        self.inner.quota_state()
    }

    fn quota(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        self.inner.quota(uid)
    }

    fn quota_from(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        self.inner.quota_from(uid)
    }

    fn set_quota(&self, uid: u32, limits: QuotaLimits) -> VfsResult<()> {
        self.inner.set_quota(uid, limits)
    }

    fn quota_defaults(&self) -> VfsResult<Option<QuotaLimits>> {
        self.inner.quota_defaults()
    }

    fn set_quota_defaults(&self, limits: QuotaLimits) -> VfsResult<()> {
        self.inner.set_quota_defaults(limits)
    }

    fn snapshots(&self, name: &Name) -> VfsResult<Vec<Moment>> {
        self.inner.snapshots(name)
    }

    /// Nothing is changed in a snapshot.
    fn snapshot(&self, taken: Moment, places: &Arc<HostPlaces>) -> VfsResult<Arc<dyn Vfs>> {
        self.inner.snapshot(taken, places)
    }

    fn name_in_snapshot(&self, taken: Moment, name: &Name) -> VfsResult<Option<Name>> {
        self.inner.name_in_snapshot(taken, name)
    }

    fn shows_locks(&self) -> bool {
        self.inner.shows_locks()
    }

    fn observe(
        &self,
        node: &dyn Node,
        is_tree: bool,
        observer: Observer,
    ) -> VfsResult<Box<dyn Observation>> {
        self.inner.observe(inner_of(node), is_tree, observer)
    }
}
