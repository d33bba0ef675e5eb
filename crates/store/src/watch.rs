//! Who waits for changes below which directory: MS-FSA 2.1.5.11 and 2.1.4.1,
//! MS-SMB2 3.3.1.3.
//!
//! A watch belongs to an Open of a directory and begins with its first request.
//! Changes that happen while no request waits are kept for the next one, up to
//! a limit beyond which the client is told to look for itself.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};

use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::fscc::notify::NotifyAction;
use hashbrown::HashMap;

use crate::file::OpenId;
use crate::file_table::FileCell;
use crate::limits::{CHANGE_BYTES_PER_WATCH, CHANGES_PER_WATCH};
use crate::name::{Name, Place};
use crate::observe::{HostChange, Observation};
use crate::order::{Ordered, OrderedRw, rank};
use crate::vfs::FileKey;

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
/// trees, those above it. Lock order: this, then the file of a watched
/// directory, then the watch.
#[derive(Debug, Default)]
pub struct Watches {
    index: OrderedRw<Index, { rank::WATCHES }>,
    /// How many, so that a change that nobody waits for costs one load.
    count: AtomicUsize,
}

type ByName = BTreeMap<String, Vec<(OpenId, Arc<Watch>)>>;

#[derive(Debug, Default)]
struct Index {
    /// With the name under which it is in the other.
    by_open: HashMap<OpenId, (Arc<Watch>, String)>,
    /// By the present name of the directory.
    by_name: HashMap<Place, ByName>,
    by_key: HashMap<FileKey, Vec<OpenId>>,
}

/// One watch.
#[derive(Debug)]
pub struct Watch {
    place: Place,
    directory: Arc<FileCell>,
    wanted: Wanted,
    state: Ordered<State, { rank::LAST }>,
    /// Of what other programs do; lasts as long as the watch.
    observation: parking_lot::Mutex<Option<Box<dyn Observation>>>,
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

#[derive(Debug, Default)]
struct State {
    changes: Vec<Change>,
    /// Of their names.
    bytes: usize,
    too_many: bool,
    deleted: bool,
    /// Requests in the order in which they came.
    waiting: VecDeque<Waiting>,
    last_ticket: u64,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    waker: Option<Waker>,
    /// What it is answered with, from the change on that it waited for: later
    /// ones are for the request behind it (MS-FSA 2.1.4.1).
    told: Option<Reported>,
}

impl Watches {
    /// The watch of an Open, and whether this call began it. Only the first
    /// call says what is watched for: the others find what it made.
    pub fn of(
        &self,
        id: OpenId,
        place: Place,
        directory: &Arc<FileCell>,
        wanted: Wanted,
    ) -> (Arc<Watch>, bool) {
        let mut index = self.index.write();
        if let Some((watch, _)) = index.by_open.get(&id) {
            return (Arc::clone(watch), false);
        }
        let watch = Arc::new(Watch {
            place,
            directory: Arc::clone(directory),
            wanted,
            state: Ordered::default(),
            observation: parking_lot::Mutex::new(None),
        });
        // Under the index's lock: a rename that this misses comes to
        // `report_rename` after it.
        let name = String::from(directory.lock().name_of(id).path());
        index.insert(id, name, Arc::clone(&watch));
        self.count.store(index.by_open.len(), Ordering::Release);
        (watch, true)
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
        if let Some(watch) = forgotten {
            *watch.observation.lock() = None;
        }
    }

    /// Whether nobody watches anything: the quick question of whoever would
    /// have to make up a report.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Reports that `action` was done to `name`, to those who watch for any of
    /// `matches` where it lies. No file may be locked by the caller.
    pub fn report(
        &self,
        place: Place,
        name: &Name,
        action: NotifyAction,
        matches: CompletionFilter,
    ) {
        self.report_all(place, (matches, CompletionFilter::EMPTY), &[(action, name)]);
    }

    /// The same, to those who do not watch for any of `unless`.
    pub fn report_unless(
        &self,
        place: Place,
        name: &Name,
        action: NotifyAction,
        (matches, unless): (CompletionFilter, CompletionFilter),
    ) {
        self.report_all(place, (matches, unless), &[(action, name)]);
    }

    /// Reports that `from` is now called `to`: both names together to those who
    /// watch the directory of both, one going or coming to others.
    pub fn report_rename(&self, place: Place, from: &Name, to: &Name, matches: CompletionFilter) {
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

    /// All reports are of one directory.
    fn report_all(
        &self,
        place: Place,
        (matches, unless): (CompletionFilter, CompletionFilter),
        reports: &[(NotifyAction, &Name)],
    ) {
        let Some((_, name)) = reports.first() else { return };
        if self.is_empty() || name.path().is_empty() {
            return;
        }
        let index = self.index.read();
        let Some(watched) = index.by_name.get(&place) else { return };
        let mut above = name.path();
        let mut is_parent = true;
        while !above.is_empty() {
            above = above.rsplit_once('\\').map_or("", |(parent, _)| parent);
            for (_, watch) in watched.get(above).into_iter().flatten() {
                let filter = watch.wanted.filter;
                let wants = filter.intersects(matches) && !filter.intersects(unless);
                if wants && (is_parent || watch.wanted.is_tree) {
                    watch.add(reports, above);
                }
            }
            is_parent = false;
        }
    }

    /// Tells those who watch the directory `key` that it was marked to go
    /// (MS-FSA 2.1.5.15.3).
    pub fn deleting(&self, key: FileKey) {
        if self.is_empty() {
            return;
        }
        let index = self.index.read();
        let ids = index.by_key.get(&key).into_iter().flatten();
        for (watch, _) in ids.filter_map(|id| index.by_open.get(id)) {
            let mut state = watch.state.lock();
            state.deleted = true;
            state.wake_all();
        }
    }
}

impl Index {
    fn insert(&mut self, id: OpenId, name: String, watch: Arc<Watch>) {
        self.by_key.entry(watch.directory.key()).or_default().push(id);
        let named = self.by_name.entry(watch.place).or_default();
        named.entry(name.clone()).or_default().push((id, Arc::clone(&watch)));
        self.by_open.insert(id, (watch, name));
    }

    fn remove(&mut self, id: OpenId) -> Option<Arc<Watch>> {
        let (watch, name) = self.by_open.remove(&id)?;
        let key = watch.directory.key();
        if let Some(ids) = self.by_key.get_mut(&key) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_key.remove(&key);
            }
        }
        if let Some(named) = self.by_name.get_mut(&watch.place) {
            if let Some(watches) = named.get_mut(&name) {
                watches.retain(|(other, _)| *other != id);
                if watches.is_empty() {
                    named.remove(&name);
                }
            }
            if named.is_empty() {
                self.by_name.remove(&watch.place);
            }
        }
        Some(watch)
    }

    /// A directory, with all that is watched in it, is called otherwise.
    fn rename(&mut self, place: Place, from: &str, to: &str) {
        let Some(named) = self.by_name.get_mut(&place) else { return };
        let below = |name: &str| {
            let rest = name.strip_prefix(from)?;
            (rest.is_empty() || rest.starts_with('\\')).then(|| alloc::format!("{to}{rest}"))
        };
        let moved: Vec<_> =
            named.keys().filter_map(|name| Some((name.clone(), below(name)?))).collect();
        for (old, new) in moved {
            let watches = named.remove(&old).unwrap_or_default();
            for (id, _) in &watches {
                if let Some((_, name)) = self.by_open.get_mut(id) {
                    name.clone_from(&new);
                }
            }
            named.entry(new).or_default().extend(watches);
        }
    }
}

impl Watch {
    /// What it was begun with.
    pub const fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// Waits for changes, behind those who wait already.
    pub fn next(&self) -> Next<'_> {
        let mut state = self.state.lock();
        state.last_ticket = state.last_ticket.wrapping_add(1);
        let ticket = state.last_ticket;
        state.waiting.push_back(Waiting { ticket, waker: None, told: None });
        state.tell_first();
        Next { watch: self, ticket }
    }

    /// Keeps what the file system observes as long as this watch lasts.
    pub fn observed(&self, observation: Box<dyn Observation>) {
        *self.observation.lock() = Some(observation);
    }

    /// Adds what another program did.
    pub fn add_host(&self, change: &HostChange<'_>) {
        let wants = |matches: &CompletionFilter| self.wanted.filter.intersects(*matches);
        let mut state = self.state.lock();
        match *change {
            HostChange::Change { action, name, matches } if wants(&matches) => {
                state.add(Change { action, name: String::from(name) });
            }
            HostChange::Renamed { from, to, matches } if wants(&matches) => {
                let (old, new) = (NotifyAction::RENAMED_OLD_NAME, NotifyAction::RENAMED_NEW_NAME);
                state.add(Change { action: old, name: String::from(from) });
                state.add(Change { action: new, name: String::from(to) });
            }
            HostChange::Lost => state.lose(),
            _ => return,
        }
        state.tell_first();
    }

    /// All reports are of names below `directory`, which is the one watched.
    fn add(&self, reports: &[(NotifyAction, &Name)], directory: &str) {
        let mut state = self.state.lock();
        for (action, name) in reports {
            let below = name.path().strip_prefix(directory).unwrap_or_default();
            let mut told = String::from(below.strip_prefix('\\').unwrap_or(below));
            if let Some(stream) = name.stream().filter(|_| is_of_stream(*action)) {
                // MS-FSA 2.1.5.1.1: Open.FileName, a colon, the stream's name.
                told.push(':');
                told.push_str(stream);
            }
            state.add(Change { action: *action, name: told });
        }
        state.tell_first();
    }
}

const fn is_of_stream(action: NotifyAction) -> bool {
    matches!(
        action,
        NotifyAction::ADDED_STREAM | NotifyAction::REMOVED_STREAM | NotifyAction::MODIFIED_STREAM
    )
}

impl State {
    fn add(&mut self, change: Change) {
        if self.too_many {
            return;
        }
        // A file that is written to a thousand times has changed once.
        let again = change.action == NotifyAction::MODIFIED;
        if again && self.changes.last() == Some(&change) {
            return;
        }
        self.bytes = self.bytes.saturating_add(change.name.len());
        if self.changes.len() >= CHANGES_PER_WATCH || self.bytes > CHANGE_BYTES_PER_WATCH {
            return self.lose();
        }
        self.changes.push(change);
    }

    /// The client is told to look for itself.
    fn lose(&mut self) {
        self.changes = Vec::new();
        self.bytes = 0;
        self.too_many = true;
    }

    fn take(&mut self) -> Option<Reported> {
        if self.deleted {
            Some(Reported::Deleted)
        } else if core::mem::take(&mut self.too_many) {
            Some(Reported::TooMany)
        } else if self.changes.is_empty() {
            None
        } else {
            self.bytes = 0;
            Some(Reported::Changes(core::mem::take(&mut self.changes)))
        }
    }

    /// Gives what there is to the first request that has nothing yet.
    fn tell_first(&mut self) {
        let Some(first) = self.waiting.iter().position(|waiting| waiting.told.is_none()) else {
            return;
        };
        if let Some(reported) = self.take()
            && let Some(waiting) = self.waiting.get_mut(first)
        {
            waiting.told = Some(reported);
            if let Some(waker) = waiting.waker.take() {
                waker.wake();
            }
        }
    }

    /// A request ends without having been answered with this: it is the next
    /// one's.
    fn untell(&mut self, reported: Reported) {
        match reported {
            Reported::Deleted => {}
            Reported::TooMany => self.lose(),
            Reported::Changes(mut changes) if !self.too_many => {
                changes.append(&mut self.changes);
                let bytes = changes.iter().map(|change| change.name.len());
                self.bytes = bytes.fold(0, usize::saturating_add);
                self.changes = changes;
            }
            Reported::Changes(_) => {}
        }
    }

    fn wake_all(&mut self) {
        self.waiting.iter_mut().filter_map(|w| w.waker.take()).for_each(Waker::wake);
    }
}

/// One request that waits. Dropping it gives its turn to the one behind it.
#[derive(Debug)]
#[must_use = "a request waits only while it is polled"]
pub struct Next<'a> {
    watch: &'a Watch,
    ticket: u64,
}

impl Future for Next<'_> {
    type Output = Reported;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reported> {
        let mut state = self.watch.state.lock();
        if state.deleted {
            return Poll::Ready(Reported::Deleted);
        }
        if let Some(own) = state.waiting.iter_mut().find(|w| w.ticket == self.ticket) {
            if let Some(reported) = own.told.take() {
                state.waiting.retain(|w| w.ticket != self.ticket);
                return Poll::Ready(reported);
            }
            own.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Next<'_> {
    fn drop(&mut self) {
        let mut state = self.watch.state.lock();
        let own = state.waiting.iter().position(|w| w.ticket == self.ticket);
        // Those behind it that have been told something were told later, and
        // have it already or are about to: order among answers is all they lose.
        if let Some(told) = own.and_then(|at| state.waiting.remove(at)).and_then(|w| w.told) {
            state.untell(told);
        }
        state.tell_first();
    }
}

#[cfg(test)]
mod tests;
