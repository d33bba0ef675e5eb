//! Change notification: MS-FSA 2.1.5.11 and 2.1.4.1, MS-SMB2 3.3.1.3.
//!
//! A watch belongs to an Open of a directory and begins with its first request.
//! Each watched directory has one log of reports ([`log`]). A watch is a place in
//! that log: a change is written once, however many watch. Changes that happen
//! while no request waits stay in the log up to a limit, beyond which the client is
//! told to list the directory. The client of the watch that has fetched least pays for
//! the log ([`Payer`]).

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

use crate::file::OpenId;
use crate::file_table::FileCell;
use crate::name::{FolderId, Name};
use crate::observe::{HostChange, Observation};
use crate::order::{Ordered, OrderedRw, rank};
use crate::vfs::FileKey;

mod log;
mod next;

use log::{Audience, Log, Report};
pub use next::Next;

/// One change, with its name relative to the watched directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What happened.
    pub action: NotifyAction,
    /// To what.
    pub name: String,
}

/// What a request waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reported {
    /// These changes, oldest first; at least one.
    Changes(Vec<Change>),
    /// More changes than are kept: STATUS_NOTIFY_ENUM_DIR.
    TooMany,
    /// The directory is about to go: STATUS_DELETE_PENDING.
    Deleted,
}

/// All watches of the server, by the directory that they are of, so that a
/// change looks only at those that may be concerned: its directory's and, for
/// trees, those above it. Lock order: this, then a directory's log.
#[derive(Debug, Default)]
pub struct Watches {
    index: OrderedRw<Index, { rank::WATCHES }>,
    /// How many, so that a change that nobody waits for costs one load.
    count: AtomicUsize,
    /// Bytes of all logs.
    bytes: Arc<Bytes>,
}

/// Bytes of all logs, and how many there may be.
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
    /// Changes the bytes of a log that it pays for. False when it may not have so many:
    /// then it pays for as many as before.
    fn pay(&self, bytes: usize) -> bool;
}

/// A forgotten watch, and what observed for it and no other.
type Forgotten = (Arc<Watch>, Option<Box<dyn Observation>>);

type Wakers = SmallVec<[Waker; crate::limits::WAKES_AT_ONCE]>;

#[derive(Debug, Default)]
struct Index {
    by_open: HashMap<OpenId, Arc<Watch>>,
    /// By the present name of the directory. Two objects have one name while a
    /// deleted one is still open.
    by_name: HashMap<FolderId, BTreeMap<String, Vec<Arc<Directory>>>>,
    by_key: HashMap<FileKey, Vec<Arc<Directory>>>,
}

/// A directory that somebody watches.
#[derive(Debug)]
pub struct Directory {
    place: FolderId,
    key: FileKey,
    log: Ordered<Log, { rank::LAST }>,
    /// Changes that other programs make: in the directory, and in its tree. Each
    /// lasts as long as there is a watch of that kind.
    observations: [parking_lot::Mutex<Option<Box<dyn Observation>>>; 2],
}

/// One watch.
#[derive(Debug)]
pub struct Watch {
    id: OpenId,
    directory: Arc<Directory>,
    wanted: Wanted,
}

/// What the first request of an Open asks for, and with it all others
/// (MS-SMB2 3.3.1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Which changes.
    pub filter: CompletionFilter,
    /// Everything below the directory, not just what is in it.
    pub is_tree: bool,
    /// Bytes of an answer. Windows: later ones have no more, whatever they ask.
    pub room: u32,
}

impl Watches {
    /// The watch of an Open, and whether the directory has to be observed for it
    /// ([`Directory::observed`]). Only the first call says what is watched for: the
    /// others find what it made. `payer` gives the account of the client for a watch of
    /// a directory whose path has so many bytes.
    ///
    /// # Errors
    /// Those of `payer`; then there is no watch.
    pub fn begin<E>(
        &self,
        id: OpenId,
        place: FolderId,
        directory: &Arc<FileCell>,
        wanted: Wanted,
        payer: impl FnOnce(usize) -> Result<Box<dyn Payer>, E>,
    ) -> Result<(Arc<Watch>, bool), E> {
        let mut index = self.index.write();
        if let Some(watch) = index.by_open.get(&id) {
            return Ok((Arc::clone(watch), false));
        }
        // Under the index's lock: a rename that this misses comes to
        // `report_rename` after it.
        let name = String::from(directory.lock().name_of(id).path());
        let payer = payer(name.len())?;
        let directory = index.directory(place, directory.key(), name, &self.bytes);
        let is_first = directory.log.lock().begin(id, wanted, payer);
        let watch = Arc::new(Watch { id, directory, wanted });
        index.by_open.insert(id, Arc::clone(&watch));
        self.count.store(index.by_open.len(), Ordering::Release);
        Ok((watch, is_first))
    }

    /// Forgets the watch of an Open that closes.
    pub fn forget(&self, id: OpenId) {
        if self.is_empty() {
            return;
        }
        let mut index = self.index.write();
        let forgotten = index.remove(id);
        self.count.store(index.by_open.len(), Ordering::Release);
        drop(index);
        // Ends an observation, which takes locks of its own.
        drop(forgotten);
    }

    /// Whether nobody watches anything: the quick question of whoever would
    /// have to make up a report.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Bytes of all logs.
    pub fn bytes(&self) -> usize {
        self.bytes.used.load(Ordering::Relaxed)
    }

    /// Sets how many bytes all logs may have.
    pub fn set_limit(&self, bytes: usize) {
        self.bytes.limit.store(bytes, Ordering::Relaxed);
    }

    /// Reports that `action` was done to `name`, to those who watch for any of
    /// `matches` where it lies. No file may be locked by the caller.
    pub fn report(
        &self,
        place: FolderId,
        name: &Name,
        action: NotifyAction,
        matches: CompletionFilter,
    ) {
        self.report_all(place, (matches, CompletionFilter::EMPTY), &[(action, name)]);
    }

    /// The same, to those who do not watch for any of `unless`.
    pub fn report_unless(
        &self,
        place: FolderId,
        name: &Name,
        action: NotifyAction,
        (matches, unless): (CompletionFilter, CompletionFilter),
    ) {
        self.report_all(place, (matches, unless), &[(action, name)]);
    }

    /// Reports that `from` is now called `to`: both names together to those who
    /// watch the directory of both, one going or coming to others.
    pub fn report_rename(
        &self,
        place: FolderId,
        from: &Name,
        to: &Name,
        matches: CompletionFilter,
    ) {
        if self.is_empty() {
            return;
        }
        if matches.intersects(CompletionFilter::DIR_NAME) {
            self.index.write().rename(place, from.path(), to.path());
        }
        let matches = (matches, CompletionFilter::EMPTY);
        if from.parent() == to.parent() {
            let both =
                [(NotifyAction::RENAMED_OLD_NAME, from), (NotifyAction::RENAMED_NEW_NAME, to)];
            self.report_all(place, matches, &both);
        } else {
            self.report_all(place, matches, &[(NotifyAction::REMOVED, from)]);
            self.report_all(place, matches, &[(NotifyAction::ADDED, to)]);
        }
    }

    /// All reports are of one directory. The work is bounded by its depth.
    fn report_all(
        &self,
        place: FolderId,
        (matches, unless): (CompletionFilter, CompletionFilter),
        reports: &[(NotifyAction, &Name)],
    ) {
        let Some((_, name)) = reports.first() else { return };
        if self.is_empty() || name.path().is_empty() {
            return;
        }
        let mut wakers = Wakers::new();
        let index = self.index.read();
        let Some(watched) = index.by_name.get(&place) else { return };
        let mut above = name.path();
        let mut audience = Audience::ALL;
        while !above.is_empty() {
            above = above.rsplit_once('\\').map_or("", |(parent, _)| parent);
            for directory in watched.get(above).into_iter().flatten() {
                let mut log = directory.log.lock();
                if log.is_wanted(audience, matches, unless) {
                    let changes = reports.iter().map(|(action, name)| below(*action, name, above));
                    let report = Report::new(audience, (matches, unless), changes.collect());
                    log.append(report, &mut wakers);
                }
            }
            audience = Audience::TREE;
        }
        drop(index);
        wake(wakers);
    }

    /// Tells those who watch the directory `key` that it was marked to go
    /// (MS-FSA 2.1.5.15.3).
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

/// The change as it is told to those who watch `directory`.
fn below(action: NotifyAction, name: &Name, directory: &str) -> Change {
    let below = name.path().strip_prefix(directory).unwrap_or_default();
    let mut told = String::from(below.strip_prefix('\\').unwrap_or(below));
    if let Some(stream) = name.stream().filter(|_| is_of_stream(action)) {
        // MS-FSA 2.1.5.1.1: Open.FileName, a colon, the stream's name.
        told.push(':');
        told.push_str(stream);
    }
    Change { action, name: told }
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
    /// The directory of that name and key.
    fn directory(
        &mut self,
        place: FolderId,
        key: FileKey,
        name: String,
        bytes: &Arc<Bytes>,
    ) -> Arc<Directory> {
        let named = self.by_name.entry(place).or_default().entry(name.clone()).or_default();
        if let Some(directory) = named.iter().find(|directory| directory.key == key) {
            return Arc::clone(directory);
        }
        let log = Ordered::new(Log::new(name, Arc::clone(bytes)));
        let directory = Arc::new(Directory { place, key, log, observations: Default::default() });
        named.push(Arc::clone(&directory));
        self.by_key.entry(key).or_default().push(Arc::clone(&directory));
        directory
    }

    /// Takes a watch out, and what observed for it and nobody else.
    fn remove(&mut self, id: OpenId) -> Option<Forgotten> {
        let watch = self.by_open.remove(&id)?;
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
            }
        }
        let Some(named) = self.by_name.get_mut(&directory.place) else { return };
        if let Some(directories) = named.get_mut(name) {
            directories.retain(is_other);
            if directories.is_empty() {
                named.remove(name);
            }
        }
        if named.is_empty() {
            self.by_name.remove(&directory.place);
        }
    }

    /// A directory, with all that is watched in it, is called otherwise.
    fn rename(&mut self, place: FolderId, from: &str, to: &str) {
        let Some(named) = self.by_name.get_mut(&place) else { return };
        let below = |name: &str| {
            let rest = name.strip_prefix(from)?;
            (rest.is_empty() || rest.starts_with('\\')).then(|| alloc::format!("{to}{rest}"))
        };
        // Names that begin so lie together.
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

    /// Keeps what the file system observes as long as there is a watch of that kind.
    pub fn observed(&self, is_tree: bool, observation: Box<dyn Observation>) {
        *self.observation(is_tree).lock() = Some(observation);
    }

    /// Adds what another program did, as observed for watches of that kind.
    pub fn add_host(&self, is_tree: bool, change: &HostChange<'_>) {
        let audience = if is_tree { Audience::TREE } else { Audience::FLAT };
        let none = CompletionFilter::EMPTY;
        let told = |action, name| Change { action, name: String::from(name) };
        let report = match *change {
            HostChange::Change { action, name, matches } => {
                Report::new(audience, (matches, none), SmallVec::from_iter([told(action, name)]))
            }
            HostChange::Renamed { from, to, matches } => {
                let (old, new) = (NotifyAction::RENAMED_OLD_NAME, NotifyAction::RENAMED_NEW_NAME);
                let both = [told(old, from), told(new, to)];
                Report::new(audience, (matches, none), SmallVec::from_iter(both))
            }
            HostChange::Lost => Report::of_loss(audience),
        };
        let mut wakers = Wakers::new();
        let mut log = self.log.lock();
        if report.is_loss() || log.is_wanted(audience, report.matches, none) {
            log.append(report, &mut wakers);
        }
        drop(log);
        wake(wakers);
    }
}

impl Watch {
    /// What it was begun with.
    pub const fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// The directory that it is of.
    pub const fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Waits for changes, behind those who wait already.
    pub fn next(&self) -> Next<'_> {
        Next::new(self)
    }
}

#[cfg(test)]
mod tests;
