//! Change notification: MS-FSA 2.1.5.11 and 2.1.4.1, MS-SMB2 3.3.1.3.
//!
//! A watch belongs to an Open of a directory and begins with its first request. Each watched
//! directory has one log of reports ([`log`]), and a watch is a read position in that log: a change
//! is stored once, however many watches there are. Changes that happen while no request waits stay
//! in the log up to a limit; beyond it the client is told to list the directory. The client of the
//! watch that has read least pays for the log ([`Payer`]).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Bound;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::Waker;

use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::fscc::notify::NotifyAction;
use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::file_cell::FileCell;
use crate::name::{FolderId, Name};
use crate::observe::{HostChange, Observation};
use crate::open_id::OpenId;
use crate::order::{Ordered, OrderedRw, rank};
use crate::surplus::return_surplus;
use crate::vfs::FileKey;

mod log;
mod next;

use log::{Audience, Log, Report};

/// The watches that a report is for, by the filters of their requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filters {
    /// A watch has to ask for one of these.
    pub matches: CompletionFilter,
    /// A watch must ask for none of these.
    pub unless: CompletionFilter,
}

impl Filters {
    /// All watches for any of `matches`.
    pub const fn of(matches: CompletionFilter) -> Self {
        Self { matches, unless: CompletionFilter::EMPTY }
    }
}
pub use next::Next;

/// One change, with its name relative to the watched directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The kind of change.
    pub action: NotifyAction,
    /// The name that changed, relative to the watched directory.
    pub name: String,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reported {
    /// These changes, oldest first; at least one.
    Changes(Vec<Change>),
    /// More changes than are kept: STATUS_NOTIFY_ENUM_DIR.
    TooMany,
    /// The directory is about to be deleted: STATUS_DELETE_PENDING.
    Deleted,
}

/// A callback for all changes that the server makes, whichever watches there are. It is called with locks held: it
/// must be quick, and must not look at files.
#[derive(Clone)]
pub struct Listener(Arc<Tell>);

type Tell = dyn Fn(FolderId, &HostChange<'_>) + Send + Sync;

impl Listener {
    /// Returns a listener that is told the folder that names are relative to, and the change.
    pub fn new(tell: impl Fn(FolderId, &HostChange<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").finish_non_exhaustive()
    }
}

/// All watches of the server, by directory. A change looks only at its own directory and, for
/// trees, at the directories above. Lock order: this index, then a directory's log.
#[derive(Debug, Default)]
pub struct Watches {
    index: OrderedRw<Index, { rank::WATCHES }>,
    /// Number of watches and listeners, so that a change without them costs one load.
    count: AtomicUsize,
    /// Bytes of all logs.
    bytes: Arc<Bytes>,
}

/// Bytes of all logs, with their limit.
#[derive(Debug)]
struct Bytes {
    used: AtomicUsize,
    limit: AtomicUsize,
}

impl Default for Bytes {
    fn default() -> Self {
        let limit = AtomicUsize::new(crate::limits::REPORT_BYTES);
        Self { used: AtomicUsize::new(0), limit }
    }
}

/// The account of a watch's client. Dropping it ends the payment.
pub trait Payer: fmt::Debug + Send + Sync {
    /// Changes the bytes of a log that it pays for. False if they are more than its limit; then
    /// it pays for as many as before.
    fn pay(&self, bytes: usize) -> bool;
}

/// A forgotten watch, with the observation that only it needed.
type Forgotten = (Arc<Watch>, Option<Box<dyn Observation>>);

type Wakers = SmallVec<[Waker; crate::limits::WAKES_AT_ONCE]>;

#[derive(Debug, Default)]
struct Index {
    by_open: HashMap<OpenId, Arc<Watch>>,
    /// Directories by their present name. Two objects can have one name while a deleted one is
    /// still open.
    by_name: HashMap<FolderId, BTreeMap<String, Vec<Arc<Directory>>>>,
    by_key: HashMap<FileKey, Vec<Arc<Directory>>>,
    /// Listeners to the changes of all directories.
    listeners: Vec<Listener>,
}

/// A directory that an Open watches.
#[derive(Debug)]
pub struct Directory {
    folder_id: FolderId,
    key: FileKey,
    log: Ordered<Log, { rank::LAST }>,
    /// Observations of changes by other programs: in the directory, and in its tree. Each lasts as
    /// long as there is a watch of that kind.
    observations: [parking_lot::Mutex<Option<Box<dyn Observation>>>; 2],
}

/// A watch of one Open.
#[derive(Debug)]
pub struct Watch {
    id: OpenId,
    directory: Arc<Directory>,
    wanted: Wanted,
}

/// The parameters of an Open's first request, which hold for all its later ones (MS-SMB2 3.3.1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The kinds of changes.
    pub filter: CompletionFilter,
    /// True for everything below the directory, not only its own entries.
    pub is_tree: bool,
    /// Bytes of an answer. Windows: later requests get no more, whatever they ask for.
    pub room: u32,
}

impl Watches {
    /// Returns the watch of an Open, and true if the directory has to be observed for it
    /// ([`Directory::observed`]): nobody observes it yet, or one whose account had no room. Only the first call uses `wanted`; later calls return the watch
    /// that it made. `payer` returns the account of the client for a watch of a directory whose
    /// path has so many bytes.
    ///
    /// # Errors
    /// Those of `payer`; then there is no watch.
    pub fn begin<E>(
        &self,
        id: OpenId,
        folder_id: FolderId,
        directory: &Arc<FileCell>,
        wanted: Wanted,
        payer: impl FnOnce(usize) -> Result<Box<dyn Payer>, E>,
    ) -> Result<(Arc<Watch>, bool), E> {
        let mut index = self.index.write();
        if let Some(watch) = index.by_open.get(&id) {
            return Ok((Arc::clone(watch), false));
        }
        // The name is read while the index is locked. A rename that happens later waits for the
        // index and then reports the new name.
        let name = String::from(directory.lock().name_of(id).path());
        let payer = payer(name.len())?;
        let directory = index.directory(folder_id, directory.key(), name, &self.bytes);
        directory.log.lock().begin(id, wanted, payer);
        let is_observed = directory.is_observed(wanted.is_tree);
        let watch = Arc::new(Watch { id, directory, wanted });
        index.by_open.insert(id, Arc::clone(&watch));
        self.count.store(index.audience(), Ordering::Release);
        Ok((watch, !is_observed))
    }

    /// Forgets the watch of an Open that closes.
    pub fn forget(&self, id: OpenId) {
        if self.is_empty() {
            return;
        }
        let mut index = self.index.write();
        let forgotten = index.remove(id);
        self.count.store(index.audience(), Ordering::Release);
        drop(index);
        // The watch is dropped here, after the index is unlocked, because its drop takes other
        // locks.
        drop(forgotten);
    }

    /// Sets the listeners to all changes, in place of those before.
    pub fn set_listeners(&self, listeners: Vec<Listener>) {
        let mut index = self.index.write();
        let before = core::mem::replace(&mut index.listeners, listeners);
        self.count.store(index.audience(), Ordering::Release);
        drop(index);
        drop(before);
    }

    /// True if there are no watches and no listeners. Asked before a report is made.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Returns the bytes of all logs.
    pub fn bytes(&self) -> usize {
        self.bytes.used.load(Ordering::Relaxed)
    }

    /// Sets the limit of the bytes of all logs.
    pub fn set_limit(&self, bytes: usize) {
        self.bytes.limit.store(bytes, Ordering::Relaxed);
    }

    /// Reports that `action` was done to `name`, to watches of its directory for any of `matches`.
    /// The caller must not hold a file's lock.
    pub fn report(
        &self,
        folder_id: FolderId,
        name: &Name,
        action: NotifyAction,
        matches: CompletionFilter,
    ) {
        self.report_unless(folder_id, name, action, Filters::of(matches));
    }

    /// Reports as [`Self::report`] does, to the watches of this filters.
    pub fn report_unless(
        &self,
        folder_id: FolderId,
        name: &Name,
        action: NotifyAction,
        filters: Filters,
    ) {
        if self.is_empty() {
            return;
        }
        let change = HostChange::Change { action, name: name.path(), matches: filters.matches };
        self.index.read().tell(folder_id, &change);
        self.report_all(folder_id, filters, &[(action, name)]);
    }

    /// Reports that `from` is now called `to`: both names to watches of both directories, a removed
    /// or an added name to watches of one.
    pub fn report_rename(
        &self,
        folder_id: FolderId,
        from: &Name,
        to: &Name,
        matches: CompletionFilter,
    ) {
        if self.is_empty() {
            return;
        }
        let change = HostChange::Renamed { from: from.path(), to: to.path(), matches };
        self.index.read().tell(folder_id, &change);
        if matches.intersects(CompletionFilter::DIR_NAME) {
            self.index.write().rename(folder_id, from.path(), to.path());
        }
        let filters = Filters::of(matches);
        if from.parent() == to.parent() {
            let both =
                [(NotifyAction::RENAMED_OLD_NAME, from), (NotifyAction::RENAMED_NEW_NAME, to)];
            self.report_all(folder_id, filters, &both);
        } else {
            self.report_all(folder_id, filters, &[(NotifyAction::REMOVED, from)]);
            self.report_all(folder_id, filters, &[(NotifyAction::ADDED, to)]);
        }
    }

    /// Writes reports, all of one directory. The work is bounded by its depth.
    fn report_all(&self, folder_id: FolderId, filters: Filters, reports: &[(NotifyAction, &Name)]) {
        let Some((_, name)) = reports.first() else { return };
        if self.is_empty() || name.path().is_empty() {
            return;
        }
        let mut wakers = Wakers::new();
        let index = self.index.read();
        let Some(watched) = index.by_name.get(&folder_id) else { return };
        let mut above = name.path();
        let mut audience = Audience::ALL;
        while !above.is_empty() {
            above = above.rsplit_once('\\').map_or("", |(parent, _)| parent);
            for directory in watched.get(above).into_iter().flatten() {
                let mut log = directory.log.lock();
                if log.is_wanted(audience, filters) {
                    let changes = reports.iter().map(|(action, name)| below(*action, name, above));
                    let report = Report::new(audience, filters, changes.collect());
                    log.append(report, &mut wakers);
                }
            }
            audience = Audience::TREE;
        }
        drop(index);
        wake(wakers);
    }

    /// Ends the requests that watch the directory `key`, which was marked for deletion (MS-FSA
    /// 2.1.5.15.3).
    pub fn deleting(&self, key: FileKey) {
        if self.is_empty() {
            return;
        }
        let mut wakers = Wakers::new();
        let index = self.index.read();
        for directory in index.by_key.get(&key).into_iter().flatten() {
            directory.log.lock().delete(&mut wakers);
        }
        drop(index);
        wake(wakers);
    }
}

/// Returns the change relative to the watched `directory`.
fn below(action: NotifyAction, name: &Name, directory: &str) -> Change {
    let below = name.path().strip_prefix(directory).unwrap_or_default();
    let mut path = String::from(below.strip_prefix('\\').unwrap_or(below));
    if let Some(stream) = name.stream().filter(|_| is_of_stream(action)) {
        // MS-FSA 2.1.5.1.1: a stream is reported as the file's path, a colon and the stream's name.
        path.push(':');
        path.push_str(stream);
    }
    Change { action, name: path }
}

const fn is_of_stream(action: NotifyAction) -> bool {
    matches!(
        action,
        NotifyAction::ADDED_STREAM | NotifyAction::REMOVED_STREAM | NotifyAction::MODIFIED_STREAM
    )
}

fn wake(wakers: Wakers) {
    wakers.into_iter().for_each(Waker::wake);
}

impl Index {
    /// The number of watches and listeners.
    fn audience(&self) -> usize {
        self.by_open.len().saturating_add(self.listeners.len())
    }

    fn tell(&self, folder_id: FolderId, change: &HostChange<'_>) {
        for Listener(tell) in &self.listeners {
            tell(folder_id, change);
        }
    }

    /// Returns the watched directory of that name and key.
    fn directory(
        &mut self,
        folder_id: FolderId,
        key: FileKey,
        name: String,
        bytes: &Arc<Bytes>,
    ) -> Arc<Directory> {
        let named = self.by_name.entry(folder_id).or_default().entry(name.clone()).or_default();
        if let Some(directory) = named.iter().find(|directory| directory.key == key) {
            return Arc::clone(directory);
        }
        let log = Ordered::new(Log::new(name, Arc::clone(bytes)));
        let directory =
            Arc::new(Directory { folder_id, key, log, observations: Default::default() });
        named.push(Arc::clone(&directory));
        self.by_key.entry(key).or_default().push(Arc::clone(&directory));
        directory
    }

    /// Removes a watch, and the observation that only it needed.
    fn remove(&mut self, id: OpenId) -> Option<Forgotten> {
        let watch = self.by_open.remove(&id)?;
        return_surplus(&mut self.by_open);
        let directory = &watch.directory;
        let mut log = directory.log.lock();
        let was_last = log.end(id);
        let is_empty = log.is_unwatched();
        let name = if is_empty { log.name.clone() } else { String::new() };
        drop(log);
        if is_empty {
            self.remove_directory(directory, &name);
        }
        let observation =
            if was_last { directory.observation(watch.wanted.is_tree).lock().take() } else { None };
        Some((watch, observation))
    }

    fn remove_directory(&mut self, directory: &Arc<Directory>, name: &str) {
        let is_other = |other: &Arc<Directory>| !Arc::ptr_eq(other, directory);
        if let Some(keyed) = self.by_key.get_mut(&directory.key) {
            keyed.retain(is_other);
            if keyed.is_empty() {
                self.by_key.remove(&directory.key);
                return_surplus(&mut self.by_key);
            }
        }
        let Some(named) = self.by_name.get_mut(&directory.folder_id) else { return };
        if let Some(directories) = named.get_mut(name) {
            directories.retain(is_other);
            if directories.is_empty() {
                named.remove(name);
            }
        }
        if named.is_empty() {
            self.by_name.remove(&directory.folder_id);
        }
    }

    /// Updates the names of a renamed directory and of the watched directories below it.
    fn rename(&mut self, folder_id: FolderId, from: &str, to: &str) {
        let Some(named) = self.by_name.get_mut(&folder_id) else { return };
        let below = |name: &str| {
            let rest = name.strip_prefix(from)?;
            (rest.is_empty() || rest.starts_with('\\')).then(|| alloc::format!("{to}{rest}"))
        };
        // The map is sorted by name, so the names below a directory follow each other and the
        // search ends at the first other name.
        let candidates =
            named.range::<str, _>((Bound::Included(from), Bound::Unbounded)).map(|(name, _)| name);
        let candidates = candidates.take_while(|name| name.starts_with(from));
        let moved: Vec<_> =
            candidates.filter_map(|name| Some((name.clone(), below(name)?))).collect();
        for (old, new) in moved {
            let directories = named.remove(&old).unwrap_or_default();
            for directory in &directories {
                directory.log.lock().name.clone_from(&new);
            }
            named.entry(new).or_default().extend(directories);
        }
    }
}

impl Directory {
    const fn observation(
        &self,
        is_tree: bool,
    ) -> &parking_lot::Mutex<Option<Box<dyn Observation>>> {
        let [flat, tree] = &self.observations;
        if is_tree { tree } else { flat }
    }

    /// Keeps an observation as long as there is a watch of that kind.
    pub fn observed(&self, is_tree: bool, observation: Box<dyn Observation>) {
        let before = self.observation(is_tree).lock().replace(observation);
        // An observation asks the host when it ends, so that happens without the lock.
        drop(before);
    }

    fn is_observed(&self, is_tree: bool) -> bool {
        let observation = self.observation(is_tree).lock();
        observation.as_ref().is_some_and(|observation| !observation.lacks_room())
    }

    /// Adds a change by another program, as observed for watches of that kind.
    pub fn add_host(&self, is_tree: bool, change: &HostChange<'_>) {
        let audience = if is_tree { Audience::TREE } else { Audience::FLAT };
        let changed = |action, name| Change { action, name: String::from(name) };
        let report = match *change {
            HostChange::Change { action, name, matches } => Report::new(
                audience,
                Filters::of(matches),
                SmallVec::from_iter([changed(action, name)]),
            ),
            HostChange::Renamed { from, to, matches } => {
                let (old, new) = (NotifyAction::RENAMED_OLD_NAME, NotifyAction::RENAMED_NEW_NAME);
                let both = [changed(old, from), changed(new, to)];
                Report::new(audience, Filters::of(matches), SmallVec::from_iter(both))
            }
            HostChange::Lost => Report::of_loss(audience),
        };
        let mut wakers = Wakers::new();
        let mut log = self.log.lock();
        if report.is_loss() || log.is_wanted(audience, Filters::of(report.filters.matches)) {
            log.append(report, &mut wakers);
        }
        drop(log);
        wake(wakers);
    }
}

impl Watch {
    /// Returns the watch's parameters.
    pub const fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// Returns the watched directory.
    pub const fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Waits for changes, behind the requests that wait already.
    pub fn next(&self) -> Next<'_> {
        Next::new(self)
    }
}

#[cfg(test)]
mod tests;
