//! [`RecyclingVfs`]: the file system of a share with a recycle bin.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frevo_store::limits::{NAME_COMPONENTS, NAME_UNITS};
use frevo_store::snapshot::Moment;
use frevo_store::vfs::{
    BasicChange, Existence, Kind, KindWanted, Node, OpenHow, Opened, Parent, QuotaLimits,
    QuotaState, Replacement, Space, Stat, UserQuota, VfsResult, Volume,
};
use frevo_store::{Fault, FileKey, HostPlaces, Name, Observation, Observer, Vfs};
use frevo_wire::fscc::eq_ignore_case;

use super::RecycleBin;
use super::naming::{free_number, numbered};
use super::top::Top;
use crate::base::host;
use crate::base::limits::RECYCLE_ATTEMPTS;
use crate::shares::protection::LOOK;

/// A file system whose deleted files go to a bin, as one account uses it.
pub(crate) struct RecyclingVfs {
    inner: Arc<dyn Vfs>,
    bin: Arc<RecycleBin>,
    /// The account's folder in the bin.
    own: String,
    /// The user of the host that the account's folder belongs to, where that is not the server.
    owner: Option<u32>,
    /// The account's folder was found in order, or was made.
    is_ready: AtomicBool,
    /// True for a snapshot, from which nothing is deleted.
    is_past: bool,
}

impl fmt::Debug for RecyclingVfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecyclingVfs").field("inner", &self.inner).field("own", &self.own).finish()
    }
}

/// The relation of a name to the bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Region {
    /// A name outside of the bin.
    Outside,
    /// The folder that holds the bins of all users, or a stream of it.
    Top,
    /// The account's own folder.
    Own,
    /// In the account's own folder.
    Inside,
    /// The bin of another account, or in it.
    Others,
}

/// The existing object alone, whatever `how` would make.
const fn existing(how: &OpenHow) -> OpenHow {
    OpenHow { existence: Existence::MustExist, ..*how }
}

impl RecyclingVfs {
    /// `inner` as `account` uses it. `owner` is the user of the host whose rights the account
    /// has there, where that is not the server's user.
    pub(crate) fn new(
        inner: Arc<dyn Vfs>,
        bin: Arc<RecycleBin>,
        account: &str,
        owner: Option<u32>,
    ) -> Self {
        let own = bin.folder_of(account);
        Self { inner, bin, own, owner, is_ready: AtomicBool::new(false), is_past: false }
    }

    /// The same, of a snapshot if `is_past`: nothing moves to the bin.
    pub(crate) fn in_past(self, is_past: bool) -> Self {
        Self { is_past, ..self }
    }

    fn top(&self) -> Name {
        Name::from_stored(self.bin.folder.clone())
    }

    fn home(&self) -> Name {
        self.top().child(&self.own)
    }

    /// The spelling on the medium of the last component of `name`, which may be a short name.
    fn spelled(&self, name: &Name) -> String {
        let component = name.last();
        let opened = component.contains('~').then(|| self.inner.open(name, &LOOK));
        match opened {
            Some(Ok(opened)) => opened.name.last().to_owned(),
            _ => component.to_owned(),
        }
    }

    fn region(&self, name: &Name) -> Region {
        let mut components = name.components();
        let Some(first) = components.next() else { return Region::Outside };
        let exact = |name: Name| if name.is_exact() { name.into_exact() } else { name };
        let first = exact(Name::root().child(first));
        if !eq_ignore_case(&self.spelled(&first), &self.bin.folder) {
            return Region::Outside;
        }
        let Some(second) = components.next() else { return Region::Top };
        if !eq_ignore_case(&self.spelled(&first.child(second)), &self.own) {
            return Region::Others;
        }
        if components.next().is_some() { Region::Inside } else { Region::Own }
    }

    /// Refuses to move, replace or make the folders of the bin, and all that is in those of
    /// others.
    fn may_change(&self, name: &Name) -> VfsResult<()> {
        match self.region(name) {
            Region::Outside | Region::Inside => Ok(()),
            Region::Top | Region::Own | Region::Others => Err(Fault::AccessDenied),
        }
    }

    /// Opens a folder of the bin, or a name in the bin of another account.
    fn open_in_bin(&self, name: &Name, how: &OpenHow, region: Region) -> VfsResult<Opened> {
        let creates = how.existence != Existence::MustExist;
        let absent = if creates { Fault::AccessDenied } else { Fault::NotFound };
        if region == Region::Others {
            return Err(absent);
        }
        let opened = match self.inner.open(name, &existing(how)) {
            Err(Fault::NotFound) => return Err(absent),
            opened => opened?,
        };
        if how.existence == Existence::MustNotExist {
            return Err(Fault::Exists);
        }
        if region != Region::Top {
            return Ok(opened);
        }
        if name.stream().is_some() {
            return Err(Fault::AccessDenied);
        }
        let node = Top::new(opened.node, &self.own);
        Ok(Opened { node: Arc::new(node), ..opened })
    }

    /// Moves a file to the bin, or removes it for good where the bin does not want it.
    fn recycle(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        let stat = self.inner.open(name, &LOOK)?.stat;
        let is_kept = stat.key == key
            && stat.kind == Kind::File
            && !self.bin.is_excluded(name, stat.end_of_file);
        if !is_kept {
            return self.inner.remove(name, key);
        }
        // The move may create a folder for each component of the path. If that takes too long for a
        // core thread, it runs on a blocking thread.
        if host::gives_up(name.components().count()) {
            return Err(Fault::Busy);
        }
        match self.put(name, key) {
            Ok(()) => {
                self.bin.counts.kept.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            // If the bin is full, the file is deleted for good, so that clients can always free
            // space. CrossDevice means a file system mounted below the share, which has no bin.
            Err(fault @ (Fault::DiskFull | Fault::QuotaExceeded | Fault::CrossDevice)) => {
                tracing::debug!(target: "frevo::recycle", file = %name, %fault,
                    "deleted for good: the recycle bin cannot take the file");
                self.inner.remove(name, key)?;
                self.bin.counts.lost.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(fault @ Fault::Stale) => Err(fault),
            Err(fault) => {
                tracing::warn!(target: "frevo::recycle", file = %name, %fault,
                    "not deleted: the file cannot be moved to the recycle bin");
                Err(fault)
            }
        }
    }

    fn put(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        if !self.is_ready.load(Ordering::Acquire) {
            self.make_home()?;
            self.is_ready.store(true, Ordering::Release);
        }
        let exact = |to: Name| if name.is_exact() { to.into_exact() } else { to };
        let flat = exact(self.home().child(name.last()));
        let to = exact(name.components().fold(self.home(), |way, part| way.child(part)));
        let is_short = to.path().encode_utf16().take(NAME_UNITS + 1).count() <= NAME_UNITS
            && to.components().take(NAME_COMPONENTS + 1).count() <= NAME_COMPONENTS;
        if !is_short {
            return self.move_to(name, key, &flat);
        }
        match self.move_to(name, key, &to) {
            // The path in the bin would be too long, or a file is where a folder is needed. So the
            // file is moved directly into the user's folder of the bin.
            Err(Fault::NameTooLong | Fault::PathNotDirectory | Fault::NotADirectory) => {
                self.move_to(name, key, &flat)
            }
            moved => moved,
        }
    }

    fn move_to(&self, from: &Name, key: FileKey, wanted: &Name) -> VfsResult<()> {
        let there = |name: &Name| match self.inner.open(name, &LOOK) {
            Ok(opened) => Ok(Some(opened.stat.kind)),
            Err(Fault::NotFound | Fault::PathNotFound) => Ok(None),
            Err(fault) => Err(fault),
        };
        let replace = !self.bin.versions && there(wanted)? != Some(Kind::Directory);
        let mut to = wanted.clone();
        for _ in 0..RECYCLE_ATTEMPTS {
            match self.inner.rename(from, key, &to, replace) {
                Err(Fault::PathNotFound) => self.make_folders(&wanted.parent())?,
                Err(Fault::Exists) => {
                    let parent = wanted.parent();
                    let named = |number| parent.child(&numbered(wanted.last(), number));
                    to = named(free_number(|number| Ok(there(&named(number))?.is_some()))?);
                }
                moved => return moved.map(drop),
            }
        }
        Err(Fault::Busy)
    }

    /// Makes the folders of a path in the bin, as the user.
    fn make_folders(&self, folder: &Name) -> VfsResult<()> {
        let top = self.top();
        let mut way = Name::root();
        for component in folder.components() {
            way = way.child(component);
            if way == top || way == self.home() {
                continue;
            }
            let how = OpenHow {
                existence: Existence::Either,
                mode: Some(0o700),
                case_sensitive: folder.is_exact(),
                ..OpenHow::DIRECTORY
            };
            match self.inner.open(&way, &how) {
                Ok(_) => {}
                // Another program has removed the user's folder of the bin meanwhile, so it is made
                // again.
                Err(Fault::PathNotFound) => {
                    self.make_home()?;
                    self.inner.open(&way, &how)?;
                }
                Err(fault) => return Err(fault),
            }
        }
        // A path of at most two components is the bin and the user's folder, so no folder below
        // them is made.
        if folder.components().count() <= 2 { self.make_home() } else { Ok(()) }
    }

    /// Makes the folder of the bins and the account's own one, as the server: users must not be
    /// able to make the folders of others.
    fn make_home(&self) -> VfsResult<()> {
        let _server = host::as_server();
        let server = host::server_ids().0;
        let top = self.folder(&self.top(), 0o755, |_| None)?;
        let is_private = |stat: &Stat| matches!(stat.uid, 0) || stat.uid == server;
        if self.owner.is_some() && (!is_private(&top) || top.mode & 0o022 != 0) {
            return self.refuse(
                &self.top(),
                "it must belong to the server and be writable by its owner only (chmod 755)",
            );
        }
        // The server makes the folder and then gives it to its owner. After a crash in between the
        // folder still belongs to the server, so the change of the owner is tried again.
        let given =
            |stat: &Stat| self.owner.filter(|owner| *owner != stat.uid && stat.uid == server);
        let home = self.folder(&self.home(), 0o700, given)?;
        let is_own = |owner| home.uid == owner && home.mode & 0o077 == 0;
        if self.owner.is_some_and(|owner| !is_own(owner)) {
            return self.refuse(&self.home(), "it must belong to its user alone (chmod 700)");
        }
        Ok(())
    }

    fn refuse(&self, folder: &Name, why: &str) -> VfsResult<()> {
        tracing::error!(target: "frevo::recycle", %folder, "the recycle bin cannot be used: {why}");
        Err(Fault::AccessDenied)
    }

    /// Opens or makes a folder of the bin. A new one gets the mode, and the owner that `given`
    /// tells.
    fn folder(
        &self,
        name: &Name,
        mode: u32,
        given: impl Fn(&Stat) -> Option<u32>,
    ) -> VfsResult<Stat> {
        let how = OpenHow {
            existence: Existence::Either,
            kind: KindWanted::Directory,
            open_link: true,
            mode: Some(mode),
            ..OpenHow::LOOK
        };
        let opened = self.inner.open(name, &how)?;
        if opened.stat.kind != Kind::Directory {
            return Err(Fault::NotADirectory);
        }
        let uid = given(&opened.stat);
        if !opened.created && uid.is_none() {
            return Ok(opened.stat);
        }
        let change = BasicChange { uid, mode: Some(mode), ..BasicChange::default() };
        match opened.node.set_basic(&change) {
            // The file system has no owners or modes. As the caller sets no owner, there is nothing
            // to change.
            Err(Fault::NotSupported) if self.owner.is_none() => {}
            changed => changed?,
        }
        opened.node.stat_without_eas()
    }
}

/// The node of the file system beneath.
fn inner_of(node: &dyn Node) -> &dyn Node {
    let any: &dyn Any = node;
    any.downcast_ref::<Top>().map_or(node, Top::inner)
}

impl Vfs for RecyclingVfs {
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        match self.region(name) {
            Region::Outside | Region::Inside => self.inner.open(name, how),
            region => self.open_in_bin(name, how, region),
        }
    }

    fn open_parent(&self, name: &Name) -> VfsResult<Opened> {
        if self.region(&name.parent()) == Region::Others {
            return Err(Fault::PathNotFound);
        }
        self.inner.open_parent(name)
    }

    fn open_in(&self, parent: Parent<'_>, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        let parent = Parent { node: inner_of(parent.node), ..parent };
        match self.region(name) {
            Region::Outside | Region::Inside => self.inner.open_in(parent, name, how),
            region => self.open_in_bin(name, how, region),
        }
    }

    fn folder_id(&self) -> frevo_store::FolderId {
        self.inner.folder_id()
    }

    fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        match self.region(name) {
            Region::Top | Region::Others => Err(Fault::AccessDenied),
            Region::Outside if name.stream().is_none() && !self.is_past => self.recycle(name, key),
            Region::Outside | Region::Own | Region::Inside => self.inner.remove(name, key),
        }
    }

    fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
        self.may_change(from)?;
        self.may_change(to)?;
        self.inner.rename(from, key, to, replace)
    }

    fn is_one_entry(&self, one: &Name, other: &Name) -> VfsResult<bool> {
        self.inner.is_one_entry(one, other)
    }

    fn link(&self, node: &dyn Node, to: &Name, replace: bool) -> VfsResult<()> {
        self.may_change(to)?;
        self.inner.link(inner_of(node), to, replace)
    }

    fn replace(&self, name: &Name, node: &dyn Node, by: &Replacement<'_>) -> VfsResult<()> {
        self.may_change(name)?;
        self.inner.replace(name, inner_of(node), by)
    }

    fn stat(&self, name: &Name) -> VfsResult<Stat> {
        if self.region(name) == Region::Others {
            return Err(Fault::NotFound);
        }
        self.inner.stat(name)
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
        if self.region(name) == Region::Others {
            return Ok(Vec::new());
        }
        self.inner.snapshots(name)
    }

    fn snapshot(&self, taken: Moment, places: &Arc<HostPlaces>) -> VfsResult<Arc<dyn Vfs>> {
        Ok(Arc::new(Self {
            inner: self.inner.snapshot(taken, places)?,
            bin: Arc::clone(&self.bin),
            own: self.own.clone(),
            owner: self.owner,
            is_ready: AtomicBool::new(false),
            is_past: true,
        }))
    }

    /// Finds nothing that is in the bin of another user, or was.
    fn name_in_snapshot(&self, taken: Moment, name: &Name) -> VfsResult<Option<Name>> {
        if self.region(name) == Region::Others {
            return Ok(None);
        }
        let earlier = self.inner.name_in_snapshot(taken, name)?;
        Ok(earlier.filter(|earlier| self.region(earlier) != Region::Others))
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
