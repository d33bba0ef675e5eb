//! The state of the cache: directories, the validity of what was read of them, and the effect of
//! notes on it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use frevo_store::FileKey;
use hashbrown::HashMap;
use rustix::fs::Statx;

use super::inotify::{Change, Note};
use super::sketch::Sketch;
use super::table::{Lookup, Table};
use crate::limits::{CACHED_CHANGES, COARSE_TICK_MS, DOUBTFUL_NAMES, TICK_MS};
use crate::stat;

/// Changes of a directory that are entered while the cache is locked.
const FEW_CHANGES: usize = 256;

/// The state of a directory as it was seen just now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) key: FileKey,
    /// The directory's times; None if they were not read again. Without a watch None proves nothing
    /// of what is known about the directory.
    pub(super) times: Option<Times>,
}

impl Seen {
    pub(crate) fn of(stx: &Statx) -> Self {
        Self { key: stat::key_of(stx), times: Some(times_of(stx)) }
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) directories: HashMap<FileKey, Directory>,
    /// The directory of each watch.
    pub(super) watched: HashMap<i32, FileKey>,
    /// Number of names in all tables.
    pub(super) names: usize,
    /// Names that nobody needs any more. To free many takes long, so it is done when the state is no
    /// longer locked.
    pub(super) dropped: Vec<Content>,
}

#[derive(Debug)]
pub(super) struct Directory {
    pub(super) trust: Trust,
    pub(super) content: Content,
    pub(super) moves: Moves,
    pub(super) used: AtomicU64,
}

impl Directory {
    /// Returns the age of the cache at the last use.
    pub(super) fn last_use(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// The moves in the last notes of a directory.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// The name in the last note, if it was moved in.
    pub(super) came: Option<Box<[u8]>>,
    /// The last name that was moved out, while it may come back: the kernel notes RENAME_EXCHANGE as
    /// a move there and a move back, and some of its notes may not be there yet.
    pub(super) went: Option<Box<[u8]>>,
}

/// The reason why a reading is still valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// The kernel notes changes under this watch.
    Watch(i32),
    /// The directory's times are unchanged.
    Times(Proof),
    /// Nothing tells of changes. A name that was read is looked at before it is told, and any other
    /// name is looked for in the directory again.
    Hints,
    /// None: notes of this watch were lost. The names are dropped when the directory is read again,
    /// because dropping all at once would take long.
    Lost(i32),
}

impl Trust {
    /// True if the kernel does not note changes.
    pub(super) const fn is_unwatched(&self) -> bool {
        matches!(self, Self::Times(_) | Self::Hints)
    }

    /// Returns the proof of a reading that depends on one.
    pub(super) const fn proof(&self) -> Option<Proof> {
        match self {
            Self::Times(proof) => Some(*proof),
            _ => None,
        }
    }
}

/// Last modification and last change, in seconds and nanoseconds.
pub(super) type Times = [(i64, u32); 2];

/// The times of a directory, and when they were first seen. They vouch for names that are read one
/// tick of the medium's clock later: every change from then on gets another time. The clock of this
/// machine says nothing of that, since a file server has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Proof {
    pub(super) times: Times,
    since: Instant,
    /// The names were read when a tick had passed.
    holds: bool,
}

impl Proof {
    /// Makes the proof for a reading that begins now; `before` is that of the reading before.
    pub(super) fn of(times: Times, before: Option<Self>) -> Self {
        let before = before.filter(|before| before.times == times);
        let since = before.map_or_else(Instant::now, |before| before.since);
        Self { times, since, holds: since.elapsed() >= tick(times) }
    }

    /// Returns the proof after the reading, at whose end the directory had these times.
    pub(super) fn after(self, times: Times) -> Self {
        Self { holds: self.holds && times == self.times, ..self }
    }
}

#[derive(Debug)]
pub(super) enum Content {
    /// The directory is being read, with the changes meanwhile in order; `None` if there were too
    /// many.
    Reading(Option<Vec<Update>>),
    Names(Table),
    /// The sketch of a directory with too many names.
    Sketch(Sketch),
}

impl Content {
    /// Its weight in the cache's limit, in names.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Reading(_) => 0,
            Self::Names(table) => table.weight(),
            Self::Sketch(sketch) => sketch.weight(),
        }
    }
}

/// The result of a lookup: the stored name, if one matches.
pub(super) type StoredName = Option<Vec<u8>>;

/// An answer without asking the file system.
pub(super) enum Known {
    StoredName(StoredName),
    /// A name that may exist; the caller has to look.
    Doubtful(Vec<u8>),
    /// Like that, in a directory whose changes are not noted.
    Hint(Vec<u8>),
    Unknown,
}

impl State {
    pub(super) fn find(&self, seen: Seen, wanted: &[u8], age: u64) -> Known {
        let Some(directory) = self.directories.get(&seen.key) else {
            return Known::Unknown;
        };
        let is_sure = match directory.trust {
            Trust::Watch(_) => true,
            Trust::Times(proof) => proof.holds && seen.times == Some(proof.times),
            Trust::Hints => false,
            Trust::Lost(_) => return Known::Unknown,
        };
        directory.used.store(age, Ordering::Relaxed);
        let found = match &directory.content {
            Content::Names(table) => table.find(wanted),
            Content::Sketch(sketch) => match sketch.find(wanted) {
                Some(found) => found,
                None => return Known::Unknown,
            },
            Content::Reading(_) => return Known::Unknown,
        };
        match found {
            Lookup::Absent if !is_sure => Known::Unknown,
            Lookup::Present(name) | Lookup::Doubtful(name) if !is_sure => {
                Known::Hint(name.to_vec())
            }
            Lookup::Absent => Known::StoredName(None),
            Lookup::Present(name) => Known::StoredName(Some(name.to_vec())),
            Lookup::Doubtful(name) => Known::Doubtful(name.to_vec()),
        }
    }

    pub(super) fn note(&mut self, note: Note) {
        match note {
            Note::Lost => {
                for directory in self.directories.values_mut() {
                    // Inotify has lost events, so no watched directory is trusted. Each keeps its
                    // watch until it is read again.
                    if let Trust::Watch(watch) = directory.trust {
                        directory.trust = Trust::Lost(watch);
                    }
                }
            }
            Note::Ended(watch) => {
                if let Some(&key) = self.watched.get(&watch) {
                    self.drop_directory(key);
                }
            }
            Note::Change(watch, change) => {
                if let Some(&key) = self.watched.get(&watch) {
                    self.change(key, change);
                }
            }
        }
    }

    pub(super) fn change(&mut self, key: FileKey, change: Change) {
        let Some(directory) = self.directories.get_mut(&key) else { return };
        let Moves { came, went } = std::mem::take(&mut directory.moves);
        let (update, gone) = match change {
            // inotify reports an exchange of two names as two renames, and the second one begins
            // with the name that the first one has just made. A file that is renamed twice looks
            // the same, so the name is only marked as doubtful.
            Change::MovedOut(name) if came.as_ref() == Some(&name) => {
                directory.moves.went = went;
                (Update::Doubt(name), None)
            }
            Change::MovedOut(name) => {
                directory.moves.went = Some(name.clone());
                (Update::Doubt(name), went)
            }
            Change::MovedIn(name) => {
                directory.moves.went = went.filter(|went| *went != name);
                directory.moves.came = Some(name.clone());
                (Update::Insert(name), None)
            }
            Change::Came(name) => (Update::Insert(name), went),
            Change::Went(name) => (Update::Remove(name), went),
        };
        if let Some(gone) = gone {
            self.update(key, Update::Remove(gone));
        }
        self.update(key, update);
    }

    pub(super) fn update(&mut self, key: FileKey, update: Update) {
        let Some(directory) = self.directories.get_mut(&key) else { return };
        match &mut directory.content {
            Content::Names(table) => {
                let before = table.weight();
                update.apply(table);
                self.names = self.names - before + table.weight();
                if table.doubtful() > DOUBTFUL_NAMES {
                    // With so many doubtful names, reading the directory again is cheaper than
                    // looking up each of them.
                    self.names -= table.weight();
                    let names = std::mem::replace(&mut directory.content, Content::Reading(None));
                    self.dropped.push(names);
                }
            }
            Content::Sketch(sketch) => {
                self.names -= sketch.weight();
                update.sketch(sketch);
                self.names += sketch.weight();
            }
            Content::Reading(Some(updates)) if updates.len() < CACHED_CHANGES => {
                updates.push(update);
            }
            Content::Reading(updates) => *updates = None,
        }
    }

    /// Takes the changes that came so far while a directory is read, if they are more than take long to
    /// enter.
    pub(super) fn take_many(&mut self, key: FileKey, watch: i32) -> Vec<Update> {
        match self.directories.get_mut(&key) {
            Some(Directory { trust, content: Content::Reading(Some(updates)), .. })
                if *trust == Trust::Watch(watch) && updates.len() > FEW_CHANGES =>
            {
                std::mem::take(updates)
            }
            _ => Vec::new(),
        }
    }

    /// Returns the changes while a directory was read; None if they are not known.
    pub(super) fn finish(&mut self, key: FileKey, watch: i32) -> Option<Vec<Update>> {
        let directory = self.directories.get_mut(&key)?;
        if directory.trust != Trust::Watch(watch) {
            return None;
        }
        let Content::Reading(updates) = &mut directory.content else { return None };
        updates.take()
    }

    /// Drops a directory, and returns its watch, which the caller ends.
    pub(super) fn drop_directory(&mut self, key: FileKey) -> Option<i32> {
        let directory = self.directories.remove(&key)?;
        self.names -= directory.content.weight();
        self.dropped.push(directory.content);
        match directory.trust {
            Trust::Watch(watch) | Trust::Lost(watch) => {
                self.watched.remove(&watch);
                Some(watch)
            }
            Trust::Times(_) | Trust::Hints => None,
        }
    }

    /// Returns the least recently used directory, except `kept` and those being read.
    pub(super) fn oldest(&self, kept: Option<FileKey>) -> Option<FileKey> {
        let settled = self.directories.iter().filter(|(key, directory)| {
            Some(**key) != kept && !matches!(directory.content, Content::Reading(Some(_)))
        });
        let oldest = settled.min_by_key(|(_, directory)| directory.used.load(Ordering::Relaxed));
        oldest.map(|(key, _)| *key)
    }
}

/// The effect of a note on the names of a directory.
#[derive(Debug)]
pub(super) enum Update {
    Insert(Box<[u8]>),
    Remove(Box<[u8]>),
    Doubt(Box<[u8]>),
}

impl Update {
    pub(super) fn sketch(&self, sketch: &mut Sketch) {
        match self {
            Self::Insert(name) => sketch.insert(name),
            Self::Remove(name) => sketch.remove(name),
            Self::Doubt(name) => sketch.doubt(name),
        }
    }

    pub(super) fn apply(&self, table: &mut Table) {
        match self {
            Self::Insert(name) => table.insert(name),
            Self::Remove(name) => table.remove(name),
            Self::Doubt(name) => table.doubt(name),
        }
    }
}

pub(super) fn times_of(stx: &Statx) -> Times {
    [&stx.stx_mtime, &stx.stx_ctime].map(|t| (t.tv_sec, t.tv_nsec))
}

/// Returns the tick of the clock that these times come from. A medium with whole seconds may have a
/// tick of two, as FAT has.
fn tick(times: Times) -> Duration {
    let is_coarse = times.iter().all(|&(_, nanoseconds)| nanoseconds == 0);
    Duration::from_millis(if is_coarse { COARSE_TICK_MS } else { TICK_MS })
}
