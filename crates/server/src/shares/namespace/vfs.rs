//! [`LinkedVfs`]: the file system of a share that is the root of a namespace.

use std::sync::Arc;

use frevo_dfs::{Link, Namespace, Resolution};
use frevo_store::snapshot::Moment;
use frevo_store::vfs::{
    Existence, Kind, Node, OpenHow, Opened, Parent, QuotaLimits, QuotaState, Replacement, Space,
    Stat, UserQuota, VfsResult, Volume,
};
use frevo_store::{Fault, FileKey, FolderId, HostPlaces, Name, Observation, Observer, Vfs};

use super::directory::Linked;
use super::node::{Entries, Merged, Virtual, inner_of, stat};
use super::published::{Published, leads_away};
use crate::shares::protection::LOOK;

/// A file system with the links of a namespace in it, and with the folders on the way to them. Nobody can
/// change these; a link hides what the share has at its path.
#[derive(Debug)]
pub(crate) struct LinkedVfs {
    files: Arc<dyn Vfs>,
    published: Arc<Published>,
}

/// The object at a name.
enum At<'a> {
    /// One of the share's own, or nothing.
    Files,
    /// A folder of the namespace.
    Folder,
    /// A link itself.
    Link,
    /// A path through a link, with the fault of its use.
    Beyond(&'a Link),
}

fn at<'a>(namespace: &'a Namespace, name: &Name) -> At<'a> {
    match namespace.resolve(name.path()) {
        Resolution::Nothing => At::Files,
        Resolution::Folder => At::Folder,
        Resolution::Link { consumed, .. } if consumed == name.components().count() => At::Link,
        Resolution::Link { link, .. } => At::Beyond(link),
    }
}

/// Returns a name of the namespace as it was written.
fn spelled(namespace: &Namespace, name: &Name) -> Name {
    namespace
        .spelled(name.path())
        .map_or_else(|| name.clone(), |path| Name::from_stored(path.into()))
}

impl LinkedVfs {
    /// Returns `files` with the links of a namespace.
    pub(crate) fn new(files: Arc<dyn Vfs>, published: Arc<Published>) -> Self {
        Self { files, published }
    }

    /// Opens a folder that the namespace has: the share's one with the links in it, or one that has
    /// nothing else.
    fn open_folder(
        &self,
        namespace: Arc<Namespace>,
        name: &Name,
        how: &OpenHow,
    ) -> VfsResult<Opened> {
        if name.stream().is_some() {
            return self.files.open(name, how);
        }
        if how.existence == Existence::MustNotExist {
            return Err(Fault::Exists);
        }
        how.check(Kind::Directory)?;
        let existing = OpenHow { existence: Existence::MustExist, ..*how };
        let opened = match self.files.open(name, &existing) {
            Ok(opened) if opened.stat.kind == Kind::Directory => Some(opened),
            Ok(_)
            | Err(
                Fault::NotFound
                | Fault::PathNotFound
                | Fault::PathNotDirectory
                | Fault::NotADirectory
                | Fault::Symlink
                // A link of Samba's, which the namespace's own folder hides.
                | Fault::NotCovered,
            ) => None,
            Err(fault) => return Err(fault),
        };
        let time = match &opened {
            Some(opened) => opened.stat.created,
            None => self.files.stat(&Name::root()).map(|stat| stat.created)?,
        };
        let (files, folder) = (Arc::clone(&self.files), name.with_stream(None));
        let state = stat(namespace.name(), name.path(), false, time);
        let stored = spelled(&namespace, name);
        let entries = Linked { namespace, files, folder, time };
        Ok(match opened {
            Some(opened) => {
                let node = Arc::new(Merged::new(opened.node, Entries::Linked(entries)));
                Opened { node, ..opened }
            }
            None => {
                let node: Arc<dyn Node> = Arc::new(Virtual::with_entries(state, entries));
                Opened::existing(node, state, stored)
            }
        })
    }

    /// Opens a link itself, for its attributes.
    fn open_link(&self, namespace: &Namespace, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        let Resolution::Link { link, .. } = namespace.resolve(name.path()) else {
            return Err(Fault::NotFound);
        };
        if !how.open_link || name.stream().is_some() {
            return Err(leads_away(namespace, Some(link)));
        }
        if how.existence == Existence::MustNotExist {
            return Err(Fault::Exists);
        }
        how.check(Kind::Directory)?;
        let time = self.files.stat(&Name::root()).map(|stat| stat.created)?;
        let state = stat(namespace.name(), name.path(), true, time);
        let stored = spelled(namespace, name);
        let beneath = self.files.open(name, &LOOK).ok();
        let beneath = beneath.filter(|opened| opened.stat.kind == Kind::Directory);
        let node = Virtual::link(state, beneath);
        let state = node.stat()?;
        Ok(Opened::existing(Arc::new(node), state, stored))
    }

    /// Refuses a change of what the namespace has.
    fn may_change(&self, name: &Name) -> VfsResult<()> {
        let namespace = self.published.namespace();
        match at(&namespace, name) {
            At::Files => Ok(()),
            // A stream of a folder of the share, and the root, which nobody renames.
            At::Folder if name.stream().is_some() => Ok(()),
            At::Folder | At::Link => Err(Fault::AccessDenied),
            At::Beyond(link) => Err(leads_away(&namespace, Some(link))),
        }
    }

    /// The fault of a name in a folder that the namespace alone has.
    fn missing(&self, name: &Name, how: &OpenHow, fault: Fault) -> Fault {
        let namespace = self.published.namespace();
        let is_in_folder =
            fault == Fault::PathNotFound && matches!(at(&namespace, &name.parent()), At::Folder);
        match how.existence {
            _ if !is_in_folder => fault,
            Existence::MustExist => Fault::NotFound,
            // There is no folder of the host in which a file could be made.
            Existence::MustNotExist | Existence::Either => Fault::AccessDenied,
        }
    }
}

impl Vfs for LinkedVfs {
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        let namespace = self.published.namespace();
        match at(&namespace, name) {
            At::Files => self.files.open(name, how).map_err(|fault| self.missing(name, how, fault)),
            At::Folder => self.open_folder(Arc::clone(&namespace), name, how),
            At::Link => self.open_link(&namespace, name, how),
            At::Beyond(link) => Err(leads_away(&namespace, Some(link))),
        }
    }

    fn open_parent(&self, name: &Name) -> VfsResult<Opened> {
        let parent = name.parent();
        let namespace = self.published.namespace();
        match at(&namespace, &parent) {
            At::Files => self.files.open_parent(name),
            At::Folder => self.open_folder(Arc::clone(&namespace), &parent, &OpenHow::DIRECTORY),
            At::Link => Err(leads_away(&namespace, namespace.link(parent.path()))),
            At::Beyond(link) => Err(leads_away(&namespace, Some(link))),
        }
    }

    fn open_in(&self, parent: Parent<'_>, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        let namespace = self.published.namespace();
        match (at(&namespace, name), inner_of(parent.node)) {
            (At::Files, Some(node)) => self.files.open_in(Parent { node, ..parent }, name, how),
            _ => self.open(name, how),
        }
    }

    fn folder_id(&self) -> FolderId {
        self.files.folder_id()
    }

    fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        self.may_change(name)?;
        self.files.remove(name, key)
    }

    fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
        self.may_change(from)?;
        self.may_change(to)?;
        self.files.rename(from, key, to, replace)
    }

    fn is_one_entry(&self, one: &Name, other: &Name) -> VfsResult<bool> {
        self.files.is_one_entry(one, other)
    }

    fn link(&self, node: &dyn Node, to: &Name, replace: bool) -> VfsResult<()> {
        self.may_change(to)?;
        let node = inner_of(node).ok_or(Fault::AccessDenied)?;
        self.files.link(node, to, replace)
    }

    fn replace(&self, name: &Name, node: &dyn Node, by: &Replacement<'_>) -> VfsResult<()> {
        self.may_change(name)?;
        let node = inner_of(node).ok_or(Fault::AccessDenied)?;
        self.files.replace(name, node, by)
    }

    fn stat(&self, name: &Name) -> VfsResult<Stat> {
        let namespace = self.published.namespace();
        match at(&namespace, name) {
            At::Files => self.files.stat(name).map_err(|fault| self.missing(name, &LOOK, fault)),
            At::Folder | At::Link | At::Beyond(_) => {
                self.open(name, &LOOK).map(|opened| opened.stat)
            }
        }
    }

    fn space(&self) -> VfsResult<Space> {
        self.files.space()
    }

    fn volume(&self) -> Arc<Volume> {
        self.files.volume()
    }

    fn may_wait(&self) -> bool {
        self.files.may_wait()
    }

    fn quota_state(&self) -> VfsResult<Option<QuotaState>> {
        self.files.quota_state()
    }

    fn quota(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        self.files.quota(uid)
    }

    fn quota_from(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        self.files.quota_from(uid)
    }

    fn set_quota(&self, uid: u32, limits: QuotaLimits) -> VfsResult<()> {
        self.files.set_quota(uid, limits)
    }

    fn quota_defaults(&self) -> VfsResult<Option<QuotaLimits>> {
        self.files.quota_defaults()
    }

    fn set_quota_defaults(&self, limits: QuotaLimits) -> VfsResult<()> {
        self.files.set_quota_defaults(limits)
    }

    fn snapshots(&self, name: &Name) -> VfsResult<Vec<Moment>> {
        self.files.snapshots(name)
    }

    /// Returns the share's own files: snapshots know of no links.
    fn snapshot(&self, taken: Moment, places: &Arc<HostPlaces>) -> VfsResult<Arc<dyn Vfs>> {
        self.files.snapshot(taken, places)
    }

    fn name_in_snapshot(&self, taken: Moment, name: &Name) -> VfsResult<Option<Name>> {
        self.files.name_in_snapshot(taken, name)
    }

    fn shows_locks(&self) -> bool {
        self.files.shows_locks()
    }

    fn observe(
        &self,
        node: &dyn Node,
        is_tree: bool,
        observer: Observer,
    ) -> VfsResult<Box<dyn Observation>> {
        let node = inner_of(node).ok_or(Fault::NotSupported)?;
        self.files.observe(node, is_tree, observer)
    }
}
