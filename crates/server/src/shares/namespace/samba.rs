//! Links that programs of the host made: symbolic links with a text such as `msdfs:server\share`, as
//! Samba has them. Nothing of them is kept: each call looks at the host's link as it is then.
//!
//! Clients make none. The only way by which a client makes a symbolic link, [`Vfs::replace`], refuses such a
//! text on every share (see `frevo_store::vfs::links`), and what has it already is not changed here.

use std::sync::Arc;

use frevo_dfs::{Link, samba_link};
use frevo_store::snapshot::Moment;
use frevo_store::vfs::{
    Directory, Existence, HostAccess, Kind, Node, OpenHow, Opened, Parent, QuotaLimits, QuotaState,
    Replacement, Space, Stat, UserQuota, VfsResult, Volume,
};
use frevo_store::{Fault, FileKey, FolderId, HostPlaces, Name, Observation, Observer, Vfs};

use super::node::{Entries, Merged, Virtual, inner_of, link_stat};
use super::published::{Published, leads_away};
use crate::shares::protection::LOOK;

/// A path that stands for a link whose own path is of no importance.
const ANY: &str = "x";

/// A file system in which symbolic links of the host with the text of Samba's are links of DFS.
#[derive(Debug)]
pub(crate) struct SambaVfs {
    files: Arc<dyn Vfs>,
    published: Arc<Published>,
}

/// Returns the text of an opened symbolic link that is a link of DFS. None for any other object.
fn text_of(opened: &Opened) -> Option<String> {
    if opened.stat.kind != Kind::Symlink {
        return None;
    }
    let text = opened.node.link_target().ok()?;
    samba_link(ANY, &text).is_some().then_some(text)
}

/// Returns the link at `name`, or the link that `name` leads through. None for all other names, and for those
/// that the caller does not reach.
pub(crate) fn find(vfs: &dyn Vfs, name: &Name) -> Option<Link> {
    let at = |name: &Name| -> Option<Link> {
        let opened = vfs.open(name, &LOOK).ok()?;
        // The node of such a link alone is a folder with a target.
        let text =
            opened.node.link_target().ok().filter(|_| opened.stat.kind == Kind::Directory)?;
        samba_link(name.path(), &text)
    };
    match vfs.open(name, &LOOK) {
        Ok(_) => at(name),
        Err(Fault::NotCovered) => {
            let last = last_open(name, |way| vfs.open(way, &LOOK).is_ok());
            last.and_then(|way| at(&way))
        }
        Err(_) => None,
    }
}

/// Returns the longest beginning of `name` that can be opened: names before a link can, and those behind it
/// cannot, so a binary search finds it.
fn last_open(name: &Name, opens: impl Fn(&Name) -> bool) -> Option<Name> {
    let components: Vec<&str> = name.components().collect();
    let beginning = |count: usize| {
        let way = Name::from_stored(components.get(..count)?.join("\\"));
        Some(if name.is_exact() { way.into_exact() } else { way })
    };
    let (mut found, mut first, mut last) = (None, 1, components.len());
    while first <= last {
        let middle = usize::midpoint(first, last);
        let way = beginning(middle)?;
        if opens(&way) {
            (found, first) = (Some(way), middle + 1);
        } else {
            last = middle - 1;
        }
    }
    found
}

impl SambaVfs {
    /// Returns `files` with these links, while `published` says that they are some.
    pub(crate) fn new(files: Arc<dyn Vfs>, published: Arc<Published>) -> Self {
        Self { files, published }
    }

    /// Returns the text of the link at `name`, which has no stream.
    fn text_at(&self, name: &Name) -> Option<String> {
        let opened = self.files.open(name, &LOOK).ok()?;
        text_of(&opened).filter(|_| self.published.has_samba_links())
    }

    /// The fault of a path that leads through a link.
    fn away(&self) -> Fault {
        leads_away(&self.published.namespace(), None)
    }

    /// Returns `fault`, or the one of a link at `name` or on the way to it that is the reason of it.
    fn reason(&self, name: &Name, fault: Fault) -> Fault {
        if !self.published.has_samba_links() {
            return fault;
        }
        let file = name.with_stream(None);
        let is_link = match fault {
            Fault::Symlink | Fault::PathNotDirectory => {
                let opens = |way: &Name| self.files.open(way, &LOOK).is_ok();
                last_open(&file, opens).is_some_and(|way| self.text_at(&way).is_some())
            }
            Fault::Exists | Fault::NotADirectory | Fault::IsADirectory => {
                self.text_at(&file).is_some()
            }
            _ => false,
        };
        if is_link { self.away() } else { fault }
    }

    /// Returns what was opened as clients see it.
    fn seen(&self, name: &Name, how: &OpenHow, found: VfsResult<Opened>) -> VfsResult<Opened> {
        let opened = found.map_err(|fault| self.reason(name, fault))?;
        match opened.stat.kind {
            Kind::Symlink if self.published.has_samba_links() => match text_of(&opened) {
                Some(text) => self.itself(opened, text, how),
                None => Ok(opened),
            },
            Kind::Directory if name.stream().is_none() => Ok(self.folder(opened)),
            _ => Ok(opened),
        }
    }

    /// A link itself, for its attributes.
    fn itself(&self, opened: Opened, text: String, how: &OpenHow) -> VfsResult<Opened> {
        if !how.open_link {
            return Err(self.away());
        }
        if how.existence == Existence::MustNotExist {
            return Err(Fault::Exists);
        }
        how.check(Kind::Directory)?;
        let stat = link_stat(opened.stat);
        let node = Virtual::samba_link(stat, text);
        Ok(Opened::existing(Arc::new(node), stat, opened.name))
    }

    /// A folder whose listings have links.
    fn folder(&self, opened: Opened) -> Opened {
        let entries = Folder {
            files: Arc::clone(&self.files),
            published: Arc::clone(&self.published),
            node: Arc::clone(&opened.node),
            name: opened.name.clone(),
        };
        Opened { node: Arc::new(Merged::new(opened.node, Entries::Samba(entries))), ..opened }
    }

    /// Refuses a change of a link, and gives the reason why `name` cannot be reached.
    fn may_change(&self, name: &Name) -> VfsResult<()> {
        match name.stream() {
            None if self.text_at(name).is_some() => Err(Fault::AccessDenied),
            _ => Ok(()),
        }
    }
}

/// A folder of the share.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    files: Arc<dyn Vfs>,
    published: Arc<Published>,
    node: Arc<dyn Node>,
    name: Name,
}

impl Folder {
    /// Returns the listing `own` of the folder with links in it.
    pub(super) fn listing(&self, own: Box<dyn Directory>) -> Listing {
        Listing { folder: self.clone(), own, name: String::new() }
    }
}

/// A listing in which symbolic links with a text of Samba's are links of DFS. Others cost what they cost
/// without: only the texts of symbolic links are read.
#[derive(Debug)]
pub(super) struct Listing {
    folder: Folder,
    own: Box<dyn Directory>,
    /// The entry at hand.
    name: String,
}

impl Directory for Listing {
    fn next_name(&mut self) -> VfsResult<Option<&str>> {
        let Some(next) = self.own.next_name()? else { return Ok(None) };
        self.name.replace_range(.., next);
        Ok(Some(&self.name))
    }

    fn entry_stat(&mut self) -> VfsResult<Option<Stat>> {
        let stat = self.own.entry_stat()?;
        let Some(link) = stat.filter(|stat| stat.kind == Kind::Symlink) else { return Ok(stat) };
        let Folder { files, published, node, name } = &self.folder;
        if !published.has_samba_links() {
            return Ok(stat);
        }
        let parent = Parent { node: &**node, name };
        let opened = files.open_in(parent, &name.child(&self.name), &LOOK);
        let is_it = |opened: &Opened| opened.stat.key == link.key && text_of(opened).is_some();
        Ok(Some(if opened.is_ok_and(|opened| is_it(&opened)) { link_stat(link) } else { link }))
    }

    fn plain_access(&mut self) -> Option<HostAccess> {
        self.own.plain_access()
    }

    fn rewind(&mut self) -> VfsResult<()> {
        self.own.rewind()
    }

    fn bytes(&self) -> usize {
        let own = self.own.bytes().saturating_add(size_of::<Self>());
        own.saturating_add(self.name.capacity())
    }
}

impl Vfs for SambaVfs {
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        self.seen(name, how, self.files.open(name, how))
    }

    fn open_parent(&self, name: &Name) -> VfsResult<Opened> {
        self.seen(&name.parent(), &OpenHow::DIRECTORY, self.files.open_parent(name))
    }

    fn open_in(&self, parent: Parent<'_>, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        let Some(node) = inner_of(parent.node) else { return self.open(name, how) };
        self.seen(name, how, self.files.open_in(Parent { node, ..parent }, name, how))
    }

    fn folder_id(&self) -> FolderId {
        self.files.folder_id()
    }

    fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        self.may_change(name)?;
        self.files.remove(name, key).map_err(|fault| self.reason(name, fault))
    }

    fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
        self.may_change(from)?;
        if replace {
            self.may_change(to)?;
        }
        let renamed = self.files.rename(from, key, to, replace);
        renamed
            .map_err(|fault| if fault == Fault::Symlink { self.reason(to, fault) } else { fault })
    }

    fn is_one_entry(&self, one: &Name, other: &Name) -> VfsResult<bool> {
        self.files.is_one_entry(one, other)
    }

    fn link(&self, node: &dyn Node, to: &Name, replace: bool) -> VfsResult<()> {
        if replace {
            self.may_change(to)?;
        }
        let node = inner_of(node).ok_or(Fault::AccessDenied)?;
        let linked = self.files.link(node, to, replace);
        linked.map_err(|fault| if fault == Fault::Symlink { self.reason(to, fault) } else { fault })
    }

    fn replace(&self, name: &Name, node: &dyn Node, by: &Replacement<'_>) -> VfsResult<()> {
        self.may_change(name)?;
        let node = inner_of(node).ok_or(Fault::AccessDenied)?;
        self.files.replace(name, node, by)
    }

    fn stat(&self, name: &Name) -> VfsResult<Stat> {
        let stat = self.files.stat(name).map_err(|fault| self.reason(name, fault))?;
        let is_link = stat.kind == Kind::Symlink && self.text_at(name).is_some();
        Ok(if is_link { link_stat(stat) } else { stat })
    }

    fn parent_key(&self, name: &Name) -> VfsResult<FileKey> {
        self.files.parent_key(name)
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

#[cfg(test)]
mod tests;
