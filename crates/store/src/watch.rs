//! Who waits for changes below which directory: MS-FSA 2.1.5.11 and 2.1.4.1,
//! MS-SMB2 3.3.1.3.
//!
//! A watch belongs to an Open of a directory and begins with its first request.
//! Changes that happen while no request waits are kept for the next one, up to
//! a limit beyond which the client is told to look for itself.

use alloc::collections::VecDeque;
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
use parking_lot::Mutex;

use crate::file::OpenId;
use crate::file_table::FileCell;
use crate::limits::{CHANGE_BYTES_PER_WATCH, CHANGES_PER_WATCH};
use crate::name::Name;
use crate::vfs::FileKey;

/// Tells file systems apart: names of one mean nothing in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(pub usize);

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

/// All watches of the server. Lock order: this, then the file of a watched
/// directory, then the watch.
#[derive(Debug, Default)]
pub struct Watches {
    watches: Mutex<HashMap<OpenId, Arc<Watch>>>,
    /// How many, so that a change that nobody waits for costs one load.
    count: AtomicUsize,
}

/// One watch.
#[derive(Debug)]
pub struct Watch {
    place: Place,
    directory: Arc<FileCell>,
    wanted: Wanted,
    state: Mutex<State>,
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
}

impl Watches {
    /// The watch of an Open. Only the first call says what is watched for: the
    /// others find what it made.
    pub fn of(
        &self,
        id: OpenId,
        place: Place,
        directory: &Arc<FileCell>,
        wanted: Wanted,
    ) -> Arc<Watch> {
        let mut watches = self.watches.lock();
        let watch = watches.entry(id).or_insert_with(|| {
            let directory = Arc::clone(directory);
            let state = Mutex::default();
            Arc::new(Watch { place, directory, wanted, state })
        });
        let watch = Arc::clone(watch);
        self.count.store(watches.len(), Ordering::Release);
        watch
    }

    /// Forgets the watch of an Open that closes.
    pub fn forget(&self, id: OpenId) {
        if self.is_empty() {
            return;
        }
        let mut watches = self.watches.lock();
        watches.remove(&id);
        self.count.store(watches.len(), Ordering::Release);
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
        self.report_all(place, matches, &[(action, name)]);
    }

    /// Reports that `from` is now called `to`: both names together to those who
    /// watch the directory of both, one going or coming to others.
    pub fn report_rename(&self, place: Place, from: &Name, to: &Name, matches: CompletionFilter) {
        if from.parent() == to.parent() {
            let both =
                [(NotifyAction::RENAMED_OLD_NAME, from), (NotifyAction::RENAMED_NEW_NAME, to)];
            self.report_all(place, matches, &both);
        } else {
            self.report_all(place, matches, &[(NotifyAction::REMOVED, from)]);
            self.report_all(place, matches, &[(NotifyAction::ADDED, to)]);
        }
    }

    fn report_all(
        &self,
        place: Place,
        matches: CompletionFilter,
        reports: &[(NotifyAction, &Name)],
    ) {
        if self.is_empty() {
            return;
        }
        let watches = self.watches.lock();
        let concerned = |w: &&Arc<Watch>| w.place == place && w.wanted.filter.intersects(matches);
        for watch in watches.values().filter(concerned) {
            watch.add(reports);
        }
    }

    /// Tells those who watch the directory `key` that it was marked to go
    /// (MS-FSA 2.1.5.15.3).
    pub fn deleting(&self, key: FileKey) {
        if self.is_empty() {
            return;
        }
        let watches = self.watches.lock();
        for watch in watches.values().filter(|w| w.directory.key() == key) {
            let mut state = watch.state.lock();
            state.deleted = true;
            state.wake_all();
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
        state.waiting.push_back(Waiting { ticket, waker: None });
        Next { watch: self, ticket }
    }

    fn add(&self, reports: &[(NotifyAction, &Name)]) {
        let directory = self.directory.lock().name().clone();
        let mut state = self.state.lock();
        for (action, name) in reports {
            if let Some(name) = self.relative(&directory, name) {
                state.add(Change { action: *action, name: String::from(name) });
            }
        }
        state.wake_first();
    }

    /// The name as it is told, when it lies where the watch looks.
    fn relative<'n>(&self, directory: &Name, name: &'n Name) -> Option<&'n str> {
        if !name.is_below(directory) {
            return None;
        }
        let below = name.path().strip_prefix(directory.path())?;
        let relative = below.strip_prefix('\\').unwrap_or(below);
        (self.wanted.is_tree || !relative.contains('\\')).then_some(relative)
    }
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
            self.changes = Vec::new();
            self.bytes = 0;
            self.too_many = true;
            return;
        }
        self.changes.push(change);
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

    fn has_something(&self) -> bool {
        self.deleted || self.too_many || !self.changes.is_empty()
    }

    fn wake_first(&mut self) {
        if self.has_something()
            && let Some(waker) = self.waiting.front_mut().and_then(|first| first.waker.take())
        {
            waker.wake();
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
        let is_first = state.waiting.front().is_some_and(|first| first.ticket == self.ticket);
        if (is_first || state.deleted)
            && let Some(reported) = state.take()
        {
            return Poll::Ready(reported);
        }
        if let Some(own) = state.waiting.iter_mut().find(|w| w.ticket == self.ticket) {
            own.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Next<'_> {
    fn drop(&mut self) {
        let mut state = self.watch.state.lock();
        state.waiting.retain(|w| w.ticket != self.ticket);
        state.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Admission;
    use crate::file_table::FileTable;
    use crate::share_mode::Sharing;
    use frevo_wire::dtyp::AccessMask;

    const HERE: Place = Place(1);
    const NAMES: CompletionFilter =
        CompletionFilter(CompletionFilter::FILE_NAME.0 | CompletionFilter::DIR_NAME.0);

    const FLAT: Wanted = Wanted { filter: NAMES, is_tree: false, room: 4096 };
    const TREE: Wanted = Wanted { is_tree: true, ..FLAT };

    fn name(path: &str) -> Name {
        Name::from_stored(String::from(path))
    }

    fn directory(path: &str, inode: u64) -> Arc<FileCell> {
        let sharing = Sharing { read: true, write: true, delete: true };
        let id = OpenId(inode);
        let access = AccessMask::READ_DATA;
        let admission = Admission { id, access, sharing, delete_on_close: false };
        let key = FileKey::of_file(1, inode);
        FileTable::default().admit(key, &name(path), admission).unwrap()
    }

    fn poll(next: &mut Next<'_>) -> Poll<Reported> {
        Pin::new(next).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn told(watch: &Watch) -> Vec<(u32, String)> {
        match poll(&mut watch.next()) {
            Poll::Ready(Reported::Changes(changes)) => {
                changes.into_iter().map(|c| (c.action.0, c.name)).collect()
            }
            Poll::Pending => Vec::new(),
            other => panic!("{other:?}"),
        }
    }

    fn pairs(expected: &[(u32, &str)]) -> Vec<(u32, String)> {
        expected.iter().map(|(action, name)| (*action, String::from(*name))).collect()
    }

    #[test]
    fn only_what_lies_where_the_watch_looks_is_told() {
        let watches = Watches::default();
        let d = directory("d", 7);
        let flat = watches.of(OpenId(1), HERE, &d, FLAT);
        let tree = watches.of(OpenId(2), HERE, &d, TREE);
        let root = watches.of(OpenId(3), HERE, &directory("", 8), FLAT);
        for path in ["d\\a", "d\\b\\c", "d", "da", "e\\d\\a"] {
            let added = NotifyAction::ADDED;
            watches.report(HERE, &name(path), added, CompletionFilter::FILE_NAME);
            watches.report(Place(2), &name(path), added, CompletionFilter::FILE_NAME);
            watches.report(HERE, &name(path), added, CompletionFilter::SIZE);
        }
        assert_eq!(told(&flat), pairs(&[(1, "a")]));
        assert_eq!(told(&tree), pairs(&[(1, "a"), (1, "b\\c")]));
        assert_eq!(told(&root), pairs(&[(1, "d"), (1, "da")]));
        assert!(told(&flat).is_empty(), "once");
    }

    #[test]
    fn the_first_request_says_what_is_watched() {
        let watches = Watches::default();
        let d = directory("d", 7);
        let one =
            watches.of(OpenId(1), HERE, &d, Wanted { filter: CompletionFilter::SIZE, ..FLAT });
        let two = watches.of(OpenId(1), HERE, &d, TREE);
        assert!(Arc::ptr_eq(&one, &two));
        let added = NotifyAction::ADDED;
        watches.report(HERE, &name("d\\a"), added, CompletionFilter::FILE_NAME);
        assert!(told(&two).is_empty());
        watches.forget(OpenId(1));
        assert!(watches.is_empty());
    }

    #[test]
    fn renames_are_told_together_or_as_going_and_coming() {
        let watches = Watches::default();
        let watch = watches.of(OpenId(1), HERE, &directory("d", 7), TREE);
        let matches = CompletionFilter::FILE_NAME;
        watches.report_rename(HERE, &name("d\\a"), &name("d\\b"), matches);
        watches.report_rename(HERE, &name("d\\b"), &name("d\\e\\b"), matches);
        watches.report_rename(HERE, &name("d\\c"), &name("e\\c"), matches);
        let expected = [(4, "a"), (5, "b"), (2, "b"), (1, "e\\b"), (2, "c")];
        assert_eq!(told(&watch), pairs(&expected));
    }

    #[test]
    fn requests_are_answered_in_the_order_they_came() {
        let watches = Watches::default();
        let watch = watches.of(OpenId(1), HERE, &directory("d", 7), FLAT);
        let (mut one, mut two, mut three) = (watch.next(), watch.next(), watch.next());
        let add = |path| {
            let matches = CompletionFilter::FILE_NAME;
            watches.report(HERE, &name(path), NotifyAction::ADDED, matches);
        };
        add("d\\a");
        assert!(poll(&mut two).is_pending() && poll(&mut three).is_pending());
        assert!(poll(&mut one).is_ready());
        drop(one);
        assert!(poll(&mut two).is_pending());
        drop(two);
        add("d\\b");
        assert!(poll(&mut three).is_ready(), "who gives up makes room");
    }

    #[test]
    fn changes_that_nobody_fetches_are_bounded() {
        let watches = Watches::default();
        let watch = watches.of(OpenId(1), HERE, &directory("", 7), FLAT);
        let add = |path: &str, action| {
            watches.report(HERE, &name(path), action, CompletionFilter::FILE_NAME);
        };
        for count in [CHANGES_PER_WATCH - 1, CHANGES_PER_WATCH] {
            (0..count).for_each(|i| add(&alloc::format!("{i}"), NotifyAction::ADDED));
            assert_eq!(told(&watch).len(), count);
        }
        (0..=CHANGES_PER_WATCH).for_each(|i| add(&alloc::format!("{i}"), NotifyAction::ADDED));
        assert_eq!(poll(&mut watch.next()), Poll::Ready(Reported::TooMany));
        assert!(poll(&mut watch.next()).is_pending(), "told once");
        (0..CHANGES_PER_WATCH * 2).for_each(|_| add("same", NotifyAction::MODIFIED));
        assert_eq!(told(&watch), pairs(&[(3, "same")]));
        for (bytes, fits) in [(0, true), (1, false)] {
            let long = "x".repeat(CHANGE_BYTES_PER_WATCH / 2 + bytes);
            add(&long, NotifyAction::ADDED);
            add(&long, NotifyAction::REMOVED);
            let expected = poll(&mut watch.next());
            assert_eq!(matches!(expected, Poll::Ready(Reported::Changes(_))), fits);
        }
    }

    #[test]
    fn a_directory_that_goes_ends_every_request() {
        let watches = Watches::default();
        let d = directory("d", 7);
        let watch = watches.of(OpenId(1), HERE, &d, FLAT);
        let (mut one, mut two) = (watch.next(), watch.next());
        watches.deleting(FileKey::of_file(1, 8));
        assert!(poll(&mut one).is_pending() && poll(&mut two).is_pending());
        watches.deleting(d.key());
        assert_eq!(poll(&mut two), Poll::Ready(Reported::Deleted));
        assert_eq!(poll(&mut one), Poll::Ready(Reported::Deleted));
        assert_eq!(poll(&mut watch.next()), Poll::Ready(Reported::Deleted));
    }
}
