//! The thread of an index: walks through the share, and looks at what has changed.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use frevo_index::{Facts, Refused, Slot};
use frevo_store::vfs::{OpenHow, VfsResult};
use frevo_store::{Fault, HostPlaces, Name, Observation, Observer};
use frevo_wire::fscc::eq_ignore_case;
use parking_lot::Mutex;

use super::inbox::{Change, Inbox, Woken};
use super::search::facts_of;
use super::{Indexed, ShareIndex};
use crate::shares::protection::LOOK;

/// Time in which changes gather before they are looked at together.
const GATHER: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 200 });

/// Work of an index's thread between two pauses.
const SLICE: Duration = Duration::from_millis(20);

/// Pause of an index's thread.
const PAUSE: Duration = Duration::from_millis(5);

/// Longest wait for the walk through another share.
const TURN: Duration = Duration::from_secs(1);

/// Files that are put into an index together, for which searches wait: about 1 ms.
const BATCH: usize = 256;

/// Time after which a share is walked through again, whatever was heard of changes.
const REWALK: Duration = Duration::from_secs(24 * 3_600);

/// The same of a share whose changes by other programs are not heard of.
const REWALK_UNWATCHED: Duration = Duration::from_secs(3_600);

/// Time from a loss of changes to the walk that finds them.
const REWALK_LOST: Duration = Duration::from_secs(60);

/// Walks take at most one part in so many of the time.
const REWALK_SHARE: u32 = 10;

/// Time between two looks if this server serves the share, which another one has.
const WAIT_FOR_SHARE: Duration = Duration::from_secs(2);

/// One walk goes on at a time in a process, so that the walks of many shares take one core.
static WALKING: Mutex<()> = Mutex::new(());

/// Opens a folder to list it.
pub(super) const LIST: OpenHow = OpenHow { read: true, ..OpenHow::DIRECTORY };

/// The reason why the thread ends or begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The index is not needed any more.
    Stop,
    /// The share is not served by this server now.
    Elsewhere,
}

/// The thread of an index.
pub(super) struct Walker {
    index: Weak<ShareIndex>,
    inbox: Arc<Inbox>,
    share: Indexed,
    /// The folders that are to be listed.
    folders: Vec<Slot>,
    /// Folders that were not at their path any more, with this path.
    moved: HashMap<Slot, String>,
    /// Tells of changes by other programs.
    observation: Option<Box<dyn Observation>>,
    places: Arc<HostPlaces>,
    /// The beginning of the work since the last pause.
    busy_since: Instant,
    /// The walk that goes on.
    walk_since: Option<Instant>,
    next_walk: Instant,
    /// Changes were lost since the walk has begun.
    is_behind: bool,
    is_full_told: bool,
}

impl Walker {
    pub(super) fn new(index: &Arc<ShareIndex>, share: Indexed) -> Self {
        let now = Instant::now();
        Self {
            index: Arc::downgrade(index),
            inbox: Arc::clone(&index.inbox),
            share,
            folders: Vec::new(),
            moved: HashMap::new(),
            observation: None,
            places: Arc::default(),
            busy_since: now,
            walk_since: None,
            next_walk: now,
            is_behind: false,
            is_full_told: false,
        }
    }

    /// Works until the index is not needed any more.
    pub(super) fn run(mut self) {
        loop {
            match self.work() {
                Ended::Stop => return,
                Ended::Elsewhere => {
                    self.observation = None;
                    self.next_walk = Instant::now();
                    if !self.inbox.pause(Instant::now() + WAIT_FOR_SHARE) {
                        return;
                    }
                }
            }
        }
    }

    /// Keeps the index true while the share is served.
    fn work(&mut self) -> Ended {
        loop {
            if !self.share.life.takes_new() {
                return Ended::Elsewhere;
            }
            if Instant::now() >= self.next_walk && self.folders.is_empty() {
                self.begin_walk();
            }
            let until = if self.folders.is_empty() { self.next_walk } else { Instant::now() };
            match self.inbox.wait(until) {
                Woken::Stop => return Ended::Stop,
                Woken::Changes => {
                    // Changes come in crowds: one look serves many of them.
                    if self.folders.is_empty() && !self.inbox.pause(Instant::now() + GATHER) {
                        return Ended::Stop;
                    }
                    self.take_changes();
                }
                Woken::Time => {}
            }
            if !self.list_some() {
                return Ended::Stop;
            }
        }
    }

    /// Begins a walk through the whole share.
    fn begin_walk(&mut self) {
        let now = Instant::now();
        self.next_walk = now + REWALK;
        let Some(index) = self.index.upgrade() else { return };
        // A new observation also tells of later losses: each tells of one.
        self.observation = None;
        self.observation = self.observe();
        self.inbox.belongs_to(self.share.files.folder_id());
        // Changes from here on are heard of, and those before are found by the walk.
        self.inbox.take();
        index.progress.watched.store(self.observation.is_some(), Ordering::Relaxed);
        index.progress.walking.store(true, Ordering::Relaxed);
        index.progress.full.store(false, Ordering::Relaxed);
        self.walk_since = Some(now);
        self.is_behind = false;
        self.folders.push(Slot::ROOT);
    }

    /// Has the host tell of changes by other programs in the whole share. None if it cannot.
    fn observe(&self) -> Option<Box<dyn Observation>> {
        let opened = self.share.files.open(&Name::root(), &LIST).ok()?;
        let inbox = Arc::downgrade(&self.inbox);
        let observer = Observer::new(&self.places, move |change| {
            if let Some(inbox) = inbox.upgrade() {
                inbox.hear(change);
            }
        });
        match self.share.files.observe(&*opened.node, true, observer) {
            Ok(observation) => Some(observation),
            Err(Fault::NotSupported) => None,
            Err(fault) => {
                tracing::warn!(target: "frevo::index", share = %self.share.name, %fault,
                    "cannot watch the share; changes by other programs are found by the next walk");
                None
            }
        }
    }

    /// Ends the walk, if all folders were listed.
    fn end_walk(&mut self) {
        let Some(since) = self.walk_since.take() else { return };
        let Some(index) = self.index.upgrade() else { return };
        let took = since.elapsed();
        let progress = &index.progress;
        progress.walking.store(false, Ordering::Relaxed);
        *progress.last_walk.lock() = took;
        let walks = progress.walks.fetch_add(1, Ordering::Relaxed) + 1;
        let rest =
            match (std::mem::take(&mut self.is_behind), progress.watched.load(Ordering::Relaxed)) {
                (true, _) => REWALK_LOST,
                (false, true) => REWALK,
                (false, false) => REWALK_UNWATCHED,
            };
        self.next_walk = Instant::now() + rest.max(took.saturating_mul(REWALK_SHARE));
        let state = index.state();
        if walks == 1 {
            tracing::info!(target: "frevo::index", share = %self.share.name, files = state.files,
                bytes = state.bytes, seconds = took.as_secs_f64(), watched = state.watched,
                "the index of the share is complete");
        }
    }

    /// Takes the changes that were heard of, and looks at each.
    fn take_changes(&mut self) {
        let taken = self.inbox.take();
        if taken.is_unwatched
            && let Some(index) = self.index.upgrade()
        {
            index.progress.watched.store(false, Ordering::Relaxed);
        }
        // A tree that is too large to be watched is found out in a walk, and the next walk comes in its time.
        if taken.is_lost || (taken.is_unwatched && self.walk_since.is_none()) {
            self.begin_again();
        }
        for change in taken.changes {
            if self.inbox.is_stopped() {
                return;
            }
            match change {
                Change::Look(path) => self.look(&path),
                Change::Renamed { from, to } => {
                    self.rename(&from, &to);
                    self.look(&from);
                    self.look(&to);
                }
            }
            self.rest();
        }
        let Some(index) = self.index.upgrade() else { return };
        let known = index.index.read();
        // A file that was made in a folder before the folder was renamed was not found at its old path.
        for (slot, path) in self.moved.drain() {
            if known.path(slot).is_some_and(|now| now != path) {
                self.folders.push(slot);
            }
        }
    }

    /// Has the next walk begin soon: some changes are not known.
    fn begin_again(&mut self) {
        let Some(index) = self.index.upgrade() else { return };
        let last = *index.progress.last_walk.lock();
        let soon = Instant::now() + REWALK_LOST.max(last.saturating_mul(REWALK_SHARE));
        self.is_behind = true;
        if soon < self.next_walk {
            tracing::info!(target: "frevo::index", share = %self.share.name,
                "there were more changes than the index heard of; the share is walked through again");
            self.next_walk = soon;
        }
    }

    /// Looks at a path, whatever has happened to it.
    fn look(&mut self, path: &str) {
        // Deeper files are not told.
        let is_deep = path.split('\\').count() >= frevo_index::limits::DEPTH;
        if path.is_empty() || is_deep || self.is_in_bin(path) {
            return;
        }
        let Some(index) = self.index.upgrade() else { return };
        let found = self.share.files.open(&Name::from_stored(path.to_owned()), &LOOK);
        match found {
            Ok(opened) if opened.name.path() == path => {
                self.put(&index, path, &facts_of(&opened.stat));
            }
            Ok(opened) => {
                // The name of a change is not always the stored spelling.
                remove(&index, path);
                let stored = opened.name.path().to_owned();
                self.put(&index, &stored, &facts_of(&opened.stat));
            }
            Err(fault) if is_gone(fault) => {
                remove(&index, path);
                let folder = parent(path);
                let found = index.index.read().find(folder);
                if let Some(slot) = found {
                    self.moved.insert(slot, folder.to_owned());
                }
            }
            // It stays as it is known; the next walk looks again.
            Err(_) => {}
        }
    }

    /// Puts a file that was looked at into the index, and its folders if they are not known.
    fn put(&mut self, index: &ShareIndex, path: &str, facts: &Facts) {
        let folder = parent(path);
        let known = index.index.read().find(folder);
        // A full index takes no folder: one that it lacks is not looked for up to the root.
        let has_room = !index.progress.full.load(Ordering::Relaxed);
        let slot = known.or_else(|| {
            if !has_room {
                return None;
            }
            self.look(folder);
            index.index.read().find(folder)
        });
        let Some(slot) = slot else { return };
        let name = path.rsplit('\\').next().unwrap_or(path);
        let mut files = index.index.write();
        let was_there = files.child(slot, name);
        let put = files.put(slot, name, facts);
        drop(files);
        match put {
            Ok(slot) if facts.kind == frevo_index::Kind::Folder && was_there != Some(slot) => {
                self.folders.push(slot);
            }
            Ok(_) => {}
            Err(refused) => self.tell_refused(index, refused),
        }
    }

    /// Renames a file or a folder with all that is known of it.
    fn rename(&mut self, from: &str, to: &str) {
        let Some(index) = self.index.upgrade() else { return };
        let mut files = index.index.write();
        let Some(slot) = files.find(from).filter(|slot| *slot != Slot::ROOT) else { return };
        if self.is_in_bin(to) {
            files.remove(slot);
            return;
        }
        let name = to.rsplit('\\').next().unwrap_or(to);
        let Some(folder) = files.find(parent(to)) else { return };
        // Looking at both paths finds what could not be renamed.
        let _ = files.rename(slot, folder, name);
    }

    fn is_in_bin(&self, path: &str) -> bool {
        let top = path.split('\\').next().unwrap_or_default();
        self.share.bin.as_ref().is_some_and(|bin| eq_ignore_case(top, bin))
    }

    fn tell_refused(&mut self, index: &ShareIndex, refused: Refused) {
        if refused != Refused::Full {
            return;
        }
        index.progress.full.store(true, Ordering::Relaxed);
        if !std::mem::replace(&mut self.is_full_told, true) {
            tracing::warn!(target: "frevo::index", share = %self.share.name,
                files = index.state().files, bytes = index.state().bytes,
                "the index has no room for more files; further ones are not found: raise `index_files`");
        }
    }

    /// Lists some folders that are to be listed. False once the index is not needed any more.
    fn list_some(&mut self) -> bool {
        let Some(index) = self.index.upgrade() else { return false };
        while index.index.write().tidy(BATCH) {
            self.rest();
        }
        if let Some(folder) = self.folders.pop() {
            // A disk that does not answer keeps no other share waiting.
            let turn = WALKING.try_lock_for(TURN);
            self.list(&index, folder);
            drop(turn);
            self.rest();
        }
        if self.folders.is_empty() {
            self.folders = Vec::new();
            self.end_walk();
        }
        !self.inbox.is_stopped()
    }

    /// Lists a folder: what it has is put into the index, and what it has not is removed.
    fn list(&mut self, index: &ShareIndex, folder: Slot) {
        let known = index.index.read();
        // The place may be another one's by now.
        let is_folder =
            known.facts(folder).is_some_and(|facts| facts.kind == frevo_index::Kind::Folder);
        let Some(path) = known.path(folder).filter(|_| is_folder) else { return };
        drop(known);
        match self.read(index, folder, &path) {
            Ok(()) => {
                index.index.write().end_listing(folder);
            }
            Err(fault) if is_gone(fault) && folder != Slot::ROOT => {
                index.index.write().remove(folder);
            }
            Err(fault) => {
                index.index.write().forget_listing(folder);
                if folder == Slot::ROOT {
                    // The disk is not there now, for instance: what is known stays.
                    self.walk_since = None;
                    self.next_walk = Instant::now() + REWALK_LOST;
                    index.progress.walking.store(false, Ordering::Relaxed);
                    tracing::warn!(target: "frevo::index", share = %self.share.name, %fault,
                        "cannot list the share's folder for its index");
                }
            }
        }
    }

    /// Reads the entries of a folder, some at a time: searches go on between them.
    fn read(&mut self, index: &ShareIndex, folder: Slot, path: &str) -> VfsResult<()> {
        let name = Name::from_stored(path.to_owned());
        let opened = self.share.files.open(&name, &LIST)?;
        let mut listing = opened.node.directory()?;
        let mut entries: Vec<Entry> = Vec::with_capacity(BATCH);
        loop {
            let next = listing.next_name()?.map(str::to_owned);
            let is_end = next.is_none();
            if let Some(name) = next.filter(|name| !(path.is_empty() && self.is_in_bin(name)))
                && let Some(stat) = listing.entry_stat()?
            {
                entries.push(Entry { name, facts: facts_of(&stat) });
            }
            if is_end || entries.len() >= BATCH {
                self.put_all(index, folder, &mut entries);
                self.rest();
            }
            if is_end {
                return Ok(());
            }
            if self.inbox.is_stopped() {
                return Err(Fault::NotServed);
            }
        }
    }

    fn put_all(&mut self, index: &ShareIndex, folder: Slot, entries: &mut Vec<Entry>) {
        let is_walk = self.walk_since.is_some();
        let mut files = index.index.write();
        let mut refused = None;
        for Entry { name, facts } in entries.drain(..) {
            let was_there = files.child(folder, &name);
            match files.put(folder, &name, &facts) {
                Ok(slot) => {
                    files.set_listed(slot);
                    let is_new = was_there != Some(slot);
                    if facts.kind == frevo_index::Kind::Folder && (is_walk || is_new) {
                        self.folders.push(slot);
                    }
                }
                Err(why) => refused = Some(why),
            }
        }
        drop(files);
        if let Some(refused) = refused {
            self.tell_refused(index, refused);
        }
    }

    /// Pauses after some work: others need the core and the disk more.
    fn rest(&mut self) {
        if self.busy_since.elapsed() >= SLICE {
            std::thread::sleep(PAUSE);
            self.busy_since = Instant::now();
        }
    }
}

/// Steps of a thread that tests make themselves.
#[cfg(test)]
impl Walker {
    /// Walks if it is time, and looks at all changes.
    pub(super) fn settle(&mut self) {
        loop {
            if Instant::now() >= self.next_walk && self.folders.is_empty() {
                self.begin_walk();
            }
            self.take_changes_now();
            if self.folders.is_empty() && self.inbox.wait(Instant::now()) == Woken::Time {
                return;
            }
        }
    }

    /// Takes the changes that were heard of, and lists the folders that they name.
    pub(super) fn take_changes_now(&mut self) {
        self.take_changes();
        while self.list_some() && !self.folders.is_empty() {}
    }

    /// Walks through the share at once.
    pub(super) fn walk_now(&mut self) {
        self.next_walk = Instant::now();
        self.settle();
    }
}

/// An entry of a folder.
struct Entry {
    name: String,
    facts: Facts,
}

fn remove(index: &ShareIndex, path: &str) {
    let mut files = index.index.write();
    if let Some(slot) = files.find(path) {
        files.remove(slot);
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('\\').map_or("", |(folder, _)| folder)
}

const fn is_gone(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::NotFound
            | Fault::PathNotFound
            | Fault::PathNotDirectory
            | Fault::NotADirectory
            | Fault::Stale
    )
}
