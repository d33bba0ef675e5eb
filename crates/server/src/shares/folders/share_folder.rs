//! The folder of a share, which is closed while nobody uses it and compared with what its path leads
//! to.
//!
//! An open folder keeps its disk from being unmounted, and does not see a disk that is mounted for
//! it later: data would be written below the mount. So [`ShareFolder::look`] closes the folder after
//! a while without use, and the next call opens it again, where its path leads then.

mod place;

use std::any::Any;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use frevo_posix::{PosixVfs, Reach, credentials};
use frevo_store::snapshot::Moment;
use frevo_store::vfs::{
    FileKey, OpenHow, Opened, Parent, QuotaLimits, QuotaState, Replacement, Space, Stat, UserQuota,
    VfsResult, Volume,
};
use frevo_store::{Fault, FolderId, HostPlaces, Name, Node, Observation, Observer, Vfs};
use parking_lot::Mutex;

use self::place::{FileSystem, Located, PlaceOpened, Unopened};
use super::folder_lock::{self, FolderLock};
use crate::base::limits::{FOLDER_IDLE_LOOKS, FOLDER_OPENINGS};

/// The reason of a look at a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Its time has come: the looks of a timer count the time without use.
    Timed,
    /// Something has changed on the host.
    Untimed,
}

/// Opens the folder where its path leads now.
type Opener = dyn Fn() -> io::Result<PosixVfs> + Send + Sync;

/// The folder of a share.
pub struct ShareFolder {
    path: PathBuf,
    opener: Box<Opener>,
    /// The open folder; None while nobody uses it.
    opened: ArcSwapOption<PosixVfs>,
    /// Held while the folder is opened and closed.
    state: Mutex<State>,
    /// Facts of the volume that was opened last.
    volume: ArcSwap<Volume>,
    folder_id: AtomicUsize,
    /// False while the folder is open and its calls wait for nobody.
    may_wait: AtomicBool,
    /// True if the folder that was opened last shows locks to other programs.
    shows_locks: AtomicBool,
    /// The access of the process to the first folder.
    first_reach: OnceLock<Reach>,
    /// Set by each use, cleared by each look.
    used: AtomicBool,
    /// The reason why no file is opened; None while all is well.
    fault: ArcSwapOption<String>,
    /// True while there is a fault. Each call asks, at the cost of one load.
    has_fault: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// The place of the folder that was opened last. None: any place is right.
    place: Option<PlaceOpened>,
    /// Looks since the last use.
    idle_looks: u32,
    /// The folder could not be opened: each look tries again.
    has_failed: bool,
    /// The lock on the open folder.
    lock: Option<FolderLock>,
    /// True if other servers are kept out.
    is_claimed: bool,
}

impl ShareFolder {
    /// Opens the folder.
    ///
    /// # Errors
    /// Those of `opener`.
    pub fn open(path: &Path, opener: Box<Opener>) -> io::Result<Self> {
        let folder = Self {
            path: path.to_owned(),
            opener,
            opened: ArcSwapOption::empty(),
            state: Mutex::new(State {
                place: None,
                idle_looks: 0,
                has_failed: false,
                lock: None,
                is_claimed: false,
            }),
            // The first volume is a placeholder. It is replaced before a client uses the share.
            volume: ArcSwap::from_pointee(Volume::plain(0, "NTFS")),
            folder_id: AtomicUsize::new(0),
            may_wait: AtomicBool::new(true),
            shows_locks: AtomicBool::new(false),
            first_reach: OnceLock::new(),
            used: AtomicBool::new(true),
            fault: ArcSwapOption::empty(),
            has_fault: AtomicBool::new(false),
        };
        let opened = folder.open_here(&mut folder.state.lock());
        opened.map_err(|why| match why {
            Unopened::Host(error) => error,
            other => io::Error::new(io::ErrorKind::PermissionDenied, other.sentence(path)),
        })?;
        Ok(folder)
    }

    /// Opens the folder at the place where its path leads.
    fn open_here(&self, state: &mut State) -> Result<Arc<PosixVfs>, Unopened> {
        let opened = self.try_open(state);
        state.has_failed = opened.is_err();
        if opened.is_err() {
            state.lock = None;
        }
        opened
    }

    fn try_open(&self, state: &mut State) -> Result<Arc<PosixVfs>, Unopened> {
        // The folder is opened as the server, because a user may not have the right to open it.
        let _server = credentials::as_server();
        let opened = self.open_settled(state);
        let before = state.place.as_ref();
        let (vfs, located) = opened.map_err(|error| Unopened::of(error, &self.path, before))?;
        if before.is_some_and(|before| before.is_uncovered(&self.path, located)) {
            return Err(Unopened::Unmounted);
        }
        if vfs.is_confined_since(*self.first_reach.get_or_init(|| vfs.reach())) {
            return Err(Unopened::confined(&self.path, before));
        }
        let vfs = Arc::new(vfs);
        if *self.volume.load_full() != *vfs.volume() {
            self.volume.store(vfs.volume());
        }
        self.folder_id.store(vfs.folder_id().0, Ordering::Release);
        let may_wait = FileSystem::of(&self.path).is_ok_and(|at| at.may_wait());
        self.shows_locks.store(vfs.shows_locks(), Ordering::Release);
        state.place = Some(PlaceOpened::of(&self.path, located));
        state.idle_looks = 0;
        self.opened.store(Some(Arc::clone(&vfs)));
        self.may_wait.store(may_wait, Ordering::Release);
        Ok(vfs)
    }

    /// Opens what the path leads to before and after. The opening itself mounts a disk that is
    /// mounted at its first use.
    fn open_settled(&self, state: &mut State) -> io::Result<(PosixVfs, Located)> {
        for _ in 0..FOLDER_OPENINGS {
            let before = Located::of(&self.path)?;
            if state.is_claimed {
                state.lock = folder_lock::take(&self.path)?;
            }
            let vfs = (self.opener)()?;
            if Located::of(&self.path)? == before {
                return Ok((vfs, before));
            }
        }
        Err(io::ErrorKind::StaleNetworkFileHandle.into())
    }

    /// Returns the open folder for a call that finds files by their names.
    fn present(&self) -> VfsResult<Arc<PosixVfs>> {
        if self.has_fault.load(Ordering::Acquire) {
            return Err(Fault::Dismounted);
        }
        self.in_use()
    }

    /// Returns the open folder, also for files that stay open after its disk has gone.
    fn in_use(&self) -> VfsResult<Arc<PosixVfs>> {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        if let Some(vfs) = self.opened.load_full() {
            return Ok(vfs);
        }
        // The folder is looked up as the server, because a user may not have the right to search
        // the folders above it.
        let _server = credentials::as_server();
        let mut state = self.state.lock();
        if let Some(vfs) = self.opened.load_full() {
            return Ok(vfs);
        }
        self.judge(&mut state);
        if self.fault.load().is_some() {
            return Err(Fault::Dismounted);
        }
        if let Some(vfs) = self.opened.load_full() {
            return Ok(vfs);
        }
        self.open_here(&mut state).map_err(|why| {
            self.tell(Some(why.sentence(&self.path)));
            why.fault()
        })
    }

    /// True if a look at the path would keep its disk mounted for nobody: the disk is mounted at its
    /// first use, and the folder is closed.
    fn rests(&self, state: &State) -> bool {
        let is_automounted = state.place.as_ref().is_some_and(|place| place.is_automounted);
        let is_well = !state.has_failed && self.fault.load().is_none();
        is_automounted && is_well && self.opened.load().is_none()
    }

    /// Looks where the path leads, and closes the folder when nobody uses it. May wait for the file
    /// system.
    pub(crate) fn look(&self, why: Look) {
        if self.rests(&self.state.lock()) {
            return;
        }
        let now = Located::of(&self.path);
        let mut state = self.state.lock();
        let Some(vfs) = self.opened.load_full() else {
            if why == Look::Timed {
                self.used.store(false, Ordering::Relaxed);
            }
            self.judge_briefly(&mut state, now);
            return;
        };
        vfs.find_side_folder();
        // Two references are expected here: `vfs` and the one in `opened`. Further references show
        // that a user has the folder in use.
        let is_held = vfs.is_in_use() || Arc::strong_count(&vfs) > 2;
        let here = state.place.as_ref().map(|place| place.located);
        let is_here = now.as_ref().is_ok_and(|now| Some(*now) == here);
        // Only the timed checks count the time without use, because other checks come at irregular
        // times.
        if why == Look::Timed {
            let is_idle = !self.used.swap(false, Ordering::Relaxed) && !is_held;
            state.idle_looks = if is_idle { state.idle_looks + 1 } else { 0 };
        }
        let is_closed = !is_held
            && (!is_here || state.idle_looks >= FOLDER_IDLE_LOOKS)
            && self.close(&mut state, vfs);
        if is_closed {
            self.judge_briefly(&mut state, now);
        } else if is_here {
            self.tell(None);
        } else {
            let path = self.path.display();
            self.tell(Some(match now {
                Ok(_) => format!(
                    "another folder or disk is at {path} now, and clients still have files open in \
                     the one before; it is served when they close them"
                ),
                Err(error) => format!("{path} cannot be looked at: {error}"),
            }));
        }
    }

    /// Closes the folder. False if a call has just begun to use it: it stays open, and locked.
    fn close(&self, state: &mut State, mut vfs: Arc<PosixVfs>) -> bool {
        let may_wait = self.may_wait.swap(true, Ordering::AcqRel);
        self.opened.store(None);
        // New calls wait for the lock of `state`, so no further reference can appear after this
        // check.
        if Arc::get_mut(&mut vfs).is_none_or(|vfs| vfs.is_in_use()) {
            self.opened.store(Some(vfs));
            self.may_wait.store(may_wait, Ordering::Release);
            return false;
        }
        drop(vfs);
        state.lock = None;
        true
    }

    /// Takes whatever the path leads to when the folder is opened next, if nobody holds files in it.
    pub(crate) fn accept(&self) {
        self.look(Look::Untimed);
        let mut state = self.state.lock();
        if self.opened.load().is_none() {
            state.place = None;
            self.judge(&mut state);
        }
    }

    fn judge(&self, state: &mut State) {
        self.judge_as(state, Located::of(&self.path));
    }

    /// Decides if the closed folder may be opened where its path leads: another folder, and one that
    /// could not be opened, is opened to see.
    fn judge_as(&self, state: &mut State, now: io::Result<Located>) {
        let why = match (now, &state.place) {
            (Err(error), _) => Some(Unopened::Host(error)),
            (Ok(now), Some(before))
                if !before.is_automounted && before.is_uncovered(&self.path, now) =>
            {
                Some(Unopened::Unmounted)
            }
            (Ok(now), before)
                if !state.has_failed
                    && before.as_ref().is_none_or(|before| {
                        // An automounted disk is mounted again at its next use. After a fault, a
                        // disk that came back may have its old numbers (mount ids are reused), so
                        // the folder must be opened to find out.
                        before.is_automounted
                            || before.located == now && self.fault.load().is_none()
                    }) =>
            {
                None
            }
            (Ok(_), _) => self.open_here(state).err(),
        };
        self.tell(why.map(|why| why.sentence(&self.path)));
    }

    /// Decides it without a use: a folder that was opened to see is closed, so that its disk can be
    /// unmounted.
    fn judge_briefly(&self, state: &mut State, now: io::Result<Located>) {
        self.judge_as(state, now);
        if let Some(vfs) = self.opened.load_full() {
            self.close(state, vfs);
        }
    }

    /// Sets the fault, and logs it once.
    fn tell(&self, fault: Option<String>) {
        let before = self.fault.load_full();
        if before.as_deref() == fault.as_ref() {
            return;
        }
        match &fault {
            Some(fault) => tracing::error!(target: "frevo::server",
                path = %self.path.display(), "the share's files cannot be opened: {fault}"),
            None => tracing::info!(target: "frevo::server",
                path = %self.path.display(), "the share's files can be opened again"),
        }
        let has_fault = fault.is_some();
        self.fault.store(fault.map(Arc::new));
        self.has_fault.store(has_fault, Ordering::Release);
    }

    /// Keeps other servers out, from now on whenever the folder is open.
    ///
    /// # Errors
    /// When another server has it.
    pub(crate) fn claim(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.is_claimed = true;
        if self.opened.load().is_some() && state.lock.is_none() {
            state.lock = folder_lock::take(&self.path)?;
        }
        Ok(())
    }

    /// Returns the space of the folder's file system, without a use of the folder.
    ///
    /// # Errors
    /// A sentence that says why clients cannot open files.
    pub(crate) fn probe(&self) -> Result<Space, String> {
        if let Some(fault) = self.fault.load_full() {
            return Err(String::clone(&fault));
        }
        // The free space of an idle folder is not queried, because the query would keep its disk
        // mounted.
        if self.state.try_lock().is_some_and(|state| self.rests(&state)) {
            return Ok(Space::FULL);
        }
        let space = FileSystem::of(&self.path).and_then(|at| at.space());
        space.map_err(|error| Unopened::Host(error).sentence(&self.path))
    }
}

impl fmt::Debug for ShareFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShareFolder").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Vfs for ShareFolder {
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        self.present()?.open(name, how)
    }

    fn open_parent(&self, name: &Name) -> VfsResult<Opened> {
        self.present()?.open_parent(name)
    }

    fn folder_id(&self) -> FolderId {
        FolderId(self.folder_id.load(Ordering::Acquire))
    }

    fn open_in(&self, parent: Parent<'_>, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        self.present()?.open_in(parent, name, how)
    }

    fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        self.in_use()?.remove(name, key)
    }

    fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
        self.in_use()?.rename(from, key, to, replace)
    }

    fn is_one_entry(&self, one: &Name, other: &Name) -> VfsResult<bool> {
        self.in_use()?.is_one_entry(one, other)
    }

    fn link(&self, node: &dyn Node, to: &Name, replace: bool) -> VfsResult<()> {
        self.in_use()?.link(node, to, replace)
    }

    fn replace(&self, name: &Name, node: &dyn Node, by: &Replacement<'_>) -> VfsResult<()> {
        self.in_use()?.replace(name, node, by)
    }

    fn stat(&self, name: &Name) -> VfsResult<Stat> {
        self.present()?.stat(name)
    }

    fn parent_key(&self, name: &Name) -> VfsResult<FileKey> {
        self.in_use()?.parent_key(name)
    }

    fn space(&self) -> VfsResult<Space> {
        self.in_use()?.space()
    }

    fn volume(&self) -> Arc<Volume> {
        self.volume.load_full()
    }

    /// The opening may wait, too.
    fn may_wait(&self) -> bool {
        self.may_wait.load(Ordering::Acquire)
    }

    fn quota_state(&self) -> VfsResult<Option<QuotaState>> {
        self.in_use()?.quota_state()
    }

    fn quota(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        self.in_use()?.quota(uid)
    }

    fn quota_from(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        self.in_use()?.quota_from(uid)
    }

    fn set_quota(&self, uid: u32, limits: QuotaLimits) -> VfsResult<()> {
        self.in_use()?.set_quota(uid, limits)
    }

    fn quota_defaults(&self) -> VfsResult<Option<QuotaLimits>> {
        self.in_use()?.quota_defaults()
    }

    fn set_quota_defaults(&self, limits: QuotaLimits) -> VfsResult<()> {
        self.in_use()?.set_quota_defaults(limits)
    }

    fn snapshots(&self, name: &Name) -> VfsResult<Vec<Moment>> {
        self.present()?.snapshots(name)
    }

    fn snapshot(&self, taken: Moment, places: &Arc<HostPlaces>) -> VfsResult<Arc<dyn Vfs>> {
        self.present()?.snapshot(taken, places)
    }

    fn name_in_snapshot(&self, taken: Moment, name: &Name) -> VfsResult<Option<Name>> {
        self.present()?.name_in_snapshot(taken, name)
    }

    fn shows_locks(&self) -> bool {
        self.shows_locks.load(Ordering::Acquire)
    }

    fn observe(
        &self,
        node: &dyn Node,
        is_tree: bool,
        observer: Observer,
    ) -> VfsResult<Box<dyn Observation>> {
        self.in_use()?.observe(node, is_tree, observer)
    }
}

/// Returns the folder of a share as it was opened, if that is one of the host.
fn folder_of(vfs: &dyn Vfs) -> Option<&ShareFolder> {
    let vfs: &dyn Any = vfs;
    vfs.downcast_ref()
}

/// Looks where the path of a share's folder leads; see `ShareFolder::look`.
pub fn look_at_folder(vfs: &dyn Vfs, why: Look) {
    if let Some(folder) = folder_of(vfs) {
        folder.look(why);
    }
}

/// Takes whatever the path of a share's folder leads to; see `ShareFolder::accept`.
pub fn accept_folder(vfs: &dyn Vfs) {
    if let Some(folder) = folder_of(vfs) {
        folder.accept();
    }
}

/// Keeps other servers out of a share's folder.
///
/// # Errors
/// When another server has it.
pub fn claim_folder(vfs: &dyn Vfs) -> io::Result<()> {
    folder_of(vfs).map_or(Ok(()), ShareFolder::claim)
}

/// Looks at a share's folder for administrators; None for a file system of another kind.
pub(crate) fn probe_folder(vfs: &dyn Vfs) -> Option<Result<Space, String>> {
    folder_of(vfs).map(ShareFolder::probe)
}

#[cfg(test)]
mod tests;
