//! The names of directories, so that a name in another case is found, and a new name known to be
//! new, without reading the directory each time.
//!
//! A directory that was read is watched with inotify. The kernel queues a note of every change
//! before the call that made it returns, and every lookup first reads the queued notes. So an
//! answer is as good as reading the directory again, whoever changes it: this process, its other
//! threads, other processes. One change costs one update, not one reading of the directory.
//!
//! On a network file system inotify does not see all changes, and watches can run out. Then a
//! reading is valid only as long as the directory's times stay unchanged, if they had been seen one
//! tick of the medium's clock before. Otherwise, and on FUSE, whose file systems may give a directory
//! any times, it only gives hints: a name is looked at before it is told, and the directory is read
//! again before a name counts as absent.

mod inotify;
mod shorts;
mod sketch;
mod state;
mod table;

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use frevo_store::FileKey;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustix::fs::{Mode, OFlags, RawDir, Statx};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::fold::Folded;
use crate::limits::{
    CACHE_PATIENCE, CACHED_DIRECTORIES, CACHED_NAME_BYTES, CACHED_NAMES, CACHED_NAMES_LOOKS,
    CACHED_NAMES_PER_DIRECTORY, CACHED_NAMES_UNUSED, DIRECTORY_ON_CORE, LARGE_DIRECTORIES,
    LIST_BUFFER_BYTES, NAMES_READ_ON_CORE, NAMING_LOCKS, NAMING_PATIENCE, RETRIES,
};
use crate::memory::Counted;
use crate::{patience, sys, volume};
use inotify::Watches;
pub(crate) use shorts::ShortNames;
use sketch::{Hashes, Seeking, Sketch};
pub(crate) use state::Seen;
use state::{Content, Directory, Known, Moves, Proof, State, StoredName, Trust, Update, times_of};
use table::{Lookup, Table};

/// The cache of one share.
#[derive(Debug)]
pub(crate) struct NameCache {
    watches: Option<Watches>,
    state: RwLock<State>,
    /// Held while a directory is read. Threads that need the same reading wait for it instead of
    /// repeating it.
    reading: [Mutex<()>; 8],
    /// Held from looking a name up to creating it.
    naming: [Mutex<()>; NAMING_LOCKS],
    /// Number of readings; a directory's last use is this number at that time.
    age: AtomicU64,
    /// This process has changed names: there are notes, and the kernel need not be asked.
    stirred: AtomicBool,
    /// Names were kept of a directory that is not watched.
    keeps_unwatched: AtomicBool,
    /// Directories that a core began to read and gave up, the last one last: a core does not begin
    /// again.
    large: Mutex<VecDeque<FileKey>>,
    /// Large directories that other threads read now. The kernel holds the lock of such a directory for
    /// long, so that a core makes no names in it.
    read_beside: Mutex<Vec<FileKey>>,
    /// Number of the directories in `read_beside`.
    readers_beside: AtomicUsize,
    limits: Limits,
    looks: Mutex<Looks>,
    short_names: ShortNames,
    counted: Counted,
    /// The kind of file system that tests pretend to have, by f_type.
    #[cfg(test)]
    pretended: Option<u64>,
}

/// The state while it is changed; its bytes are counted afterwards.
struct Writing<'a> {
    state: RwLockWriteGuard<'a, State>,
    counted: &'a Counted,
    /// [`State::dropped`], which goes after the lock.
    dropped: Vec<Content>,
}

impl Deref for Writing<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Writing<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.counted.set(self.state.names * CACHED_NAME_BYTES);
        self.dropped = std::mem::take(&mut self.state.dropped);
    }
}

/// [`CACHED_NAMES`] and [`CACHED_DIRECTORIES`], smaller in tests.
#[derive(Debug, Clone, Copy)]
struct Limits {
    names: usize,
    directories: usize,
    /// [`CACHED_NAMES_UNUSED`]
    unused: usize,
    /// [`CACHED_NAMES_PER_DIRECTORY`]
    per_directory: usize,
    /// [`NAMES_READ_ON_CORE`]
    on_core: usize,
}

/// The looks for directories that nobody uses.
#[derive(Debug, Default)]
struct Looks {
    count: u32,
    /// The age at the last look.
    last: u64,
    /// The ages at the last look of which the number is a multiple of [`CACHED_NAMES_LOOKS`], and at the one
    /// before it.
    late: [u64; 2],
}

/// The way in which a share learns of changes in the directories that it has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watching {
    /// By inotify, as far as the file system's changes all go through this kernel.
    Inotify,
    /// By the times of directories alone.
    Times,
}

/// A directory in [`NameCache::read_beside`], until it is dropped.
struct ReadBeside<'a> {
    cache: &'a NameCache,
    key: FileKey,
}

impl Drop for ReadBeside<'_> {
    fn drop(&mut self) {
        let mut directories = self.cache.read_beside.lock();
        if let Some(at) = directories.iter().position(|key| *key == self.key) {
            directories.swap_remove(at);
        }
        self.cache.readers_beside.store(directories.len(), Ordering::Relaxed);
    }
}

/// File systems whose changes all go through this kernel, by f_type.
const LOCAL: [u64; 12] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0x0102_1994, // tmpfs
    0xF2F5_2010, // f2fs
    0xCA45_1A4E, // bcachefs
    0x2FC1_2FC1, // zfs
    0x794C_7630, // overlay
    0x8584_58F6, // ramfs
    0x4D44,      // vfat
    0x2011_BAB0, // exfat
    0x7366_746E, // ntfs3
];

impl NameCache {
    pub(crate) fn new(short_names: ShortNames, watching: Watching) -> Self {
        Self {
            short_names,
            watches: (watching == Watching::Inotify).then(|| Watches::new().ok()).flatten(),
            state: RwLock::default(),
            reading: Default::default(),
            naming: [const { Mutex::new(()) }; NAMING_LOCKS],
            age: AtomicU64::new(0),
            stirred: AtomicBool::new(false),
            keeps_unwatched: AtomicBool::new(false),
            large: Mutex::default(),
            read_beside: Mutex::default(),
            readers_beside: AtomicUsize::new(0),
            limits: Limits {
                names: CACHED_NAMES,
                unused: CACHED_NAMES_UNUSED,
                directories: CACHED_DIRECTORIES,
                per_directory: CACHED_NAMES_PER_DIRECTORY,
                // Reading a directory for short names takes twice the time for each name, so a core
                // thread may read only half as many names.
                on_core: match short_names {
                    ShortNames::Off => NAMES_READ_ON_CORE,
                    ShortNames::On(_) => NAMES_READ_ON_CORE / 2,
                },
            },
            counted: Counted::default(),
            looks: Mutex::default(),
            #[cfg(test)]
            pretended: None,
        }
    }

    fn write(&self) -> Writing<'_> {
        self.writing(self.state.write())
    }

    const fn writing<'a>(&'a self, state: RwLockWriteGuard<'a, State>) -> Writing<'a> {
        Writing { state, counted: &self.counted, dropped: Vec::new() }
    }

    /// Like [`Self::write`] before anything is changed. A core waits for a limited time, since the
    /// lock's holder may enter the changes of a large directory, or have no processor.
    fn write_soon(&self) -> Result<Writing<'_>, Errno> {
        if !patience::is_short() {
            return Ok(self.write());
        }
        let state = self.state.try_write_for(CACHE_PATIENCE).ok_or_else(patience::give_up)?;
        Ok(self.writing(state))
    }

    /// Returns the state for reading; see [`Self::write_soon`].
    fn read_soon(&self) -> Result<RwLockReadGuard<'_, State>, Errno> {
        if !patience::is_short() {
            return Ok(self.state.read());
        }
        self.state.try_read_for(CACHE_PATIENCE).ok_or_else(patience::give_up)
    }

    /// Gives up a call in a directory that another thread reads for long, if calls must not take long:
    /// the kernel lets nobody make a name in it meanwhile.
    pub(crate) fn yield_to_readers(&self, key: FileKey) -> Result<(), Errno> {
        let is_read = self.readers_beside.load(Ordering::Relaxed) > 0
            && patience::is_short()
            && self.read_beside.lock().contains(&key);
        if is_read { Err(patience::give_up()) } else { Ok(()) }
    }

    /// Notes that this thread, which is no core, reads a large directory.
    fn reads_beside(&self, key: FileKey) -> ReadBeside<'_> {
        let mut directories = self.read_beside.lock();
        directories.push(key);
        self.readers_beside.store(directories.len(), Ordering::Relaxed);
        ReadBeside { cache: self, key }
    }

    /// Forgets all names, except those that are being read.
    pub(crate) fn clear(&self) {
        let count = self.state.read().directories.len();
        // The lock is taken and released for each directory, so that a look-up waits for the
        // removal of one directory at most.
        for _ in 0..count {
            let mut state = self.write();
            let Some(oldest) = state.oldest(None) else { break };
            self.forget(&mut state, oldest);
        }
    }

    /// Forgets directories that nobody has used since the last looks. To be called each
    /// [`CACHED_NAMES_LOOK`](crate::limits::CACHED_NAMES_LOOK), by no core: many names are freed.
    pub(crate) fn forget_unused(&self) {
        let now = self.age.fetch_add(1, Ordering::Relaxed) + 1;
        let (recent, late) = {
            let mut looks = self.looks.lock();
            let recent = std::mem::replace(&mut looks.last, now);
            looks.count = (looks.count + 1) % CACHED_NAMES_LOOKS;
            if looks.count == 0 {
                looks.late = [looks.late[1], now];
            }
            (recent, looks.late[0])
        };
        // The lock is taken and released for each directory; see `clear`.
        loop {
            let mut state = self.write();
            let Some(oldest) = state.oldest(None) else { break };
            let used = state.directories.get(&oldest).map_or(now, Directory::last_use);
            let is_unused = used < late || used < recent && state.names > self.limits.unused;
            if !is_unused {
                break;
            }
            self.forget(&mut state, oldest);
        }
    }

    /// Keeps other threads from creating a name that folds as `wanted` in this directory.
    pub(crate) fn naming(&self, dir: FileKey, wanted: &[u8]) -> Result<MutexGuard<'_, ()>, Errno> {
        let hash = table::hash_of((dir, Folded::of(wanted).as_bytes()));
        let naming = &self.naming[hash as usize % NAMING_LOCKS];
        if patience::is_short() {
            // The thread that has the lock may be reading a large directory, so the wait for it is
            // limited.
            return naming.try_lock_for(NAMING_PATIENCE).ok_or_else(patience::give_up);
        }
        Ok(naming.lock())
    }

    /// Records that this process has created, removed or moved an entry.
    pub(crate) fn stirred(&self) {
        self.stirred.store(true, Ordering::Release);
    }

    /// Records an entry that this process has just made in the directory `key`. A watch tells of it
    /// by itself.
    pub(crate) fn came(&self, key: FileKey, stored: &[u8]) {
        self.stirred();
        if !self.keeps_unwatched.load(Ordering::Relaxed) {
            return;
        }
        // A core that cannot have the lock soon leaves the name out: the entry is made already, and the call
        // cannot give up. The directory has another time now, and where times say nothing it is read
        // before a name counts as absent.
        let state = if patience::is_short() {
            self.state.try_write_for(CACHE_PATIENCE)
        } else {
            Some(self.state.write())
        };
        let Some(mut state) = state.map(|state| self.writing(state)) else { return };
        if state.directories.get(&key).is_some_and(|known| known.trust.is_unwatched()) {
            state.update(key, Update::Insert(stored.into()));
            self.make_room(&mut state, 0, None);
        }
    }

    /// Records that an entry which was told of was not there when it was used.
    pub(crate) fn missed(&self, key: FileKey, stored: &[u8]) {
        // A core that cannot have the lock soon leaves the name, which the next look-up finds missing. It
        // does not give up: the call goes on and may change something.
        let state = if patience::is_short() {
            self.state.try_write_for(CACHE_PATIENCE)
        } else {
            Some(self.state.write())
        };
        let Some(mut state) = state.map(|state| self.writing(state)) else { return };
        let Some(known) = state.directories.get(&key) else { return };
        // If no inotify watch covers the directory, the name is removed. Otherwise the name is only
        // marked as doubtful, because inotify will report what has happened to it.
        let is_unwatched = known.trust.is_unwatched();
        let name = stored.into();
        let update = if is_unwatched { Update::Remove(name) } else { Update::Doubt(name) };
        state.update(key, update);
    }

    /// Returns the directory `key` without looking at it, if it is watched.
    pub(crate) fn watched(&self, key: FileKey) -> Option<Seen> {
        // A core that cannot have the lock soon does not give up: the call goes on without the answer.
        let state = if patience::is_short() {
            self.state.try_read_for(CACHE_PATIENCE)?
        } else {
            self.state.read()
        };
        let is_watched = matches!(state.directories.get(&key)?.trust, Trust::Watch(_));
        is_watched.then_some(Seen { key, times: None })
    }

    /// Returns the entry of `dir` called `wanted`, else the first in byte order that folds alike, else
    /// one whose short name is `wanted`, on a share with short names.
    /// `seen` is the directory's state as the caller saw it just now.
    pub(crate) fn find(&self, dir: &Dir, seen: Seen, wanted: &[u8]) -> Result<StoredName, Errno> {
        let key = seen.key;
        if let Some(found) = self.known(dir, seen, wanted)? {
            return Ok(found);
        }
        let reading = &self.reading[key.inode as usize % self.reading.len()];
        let _reading = if patience::is_short() {
            reading.try_lock().ok_or_else(patience::give_up)?
        } else {
            reading.lock()
        };
        // Another thread may have read the directory while this one waited for the lock.
        if let Some(found) = self.known(dir, seen, wanted)? {
            return Ok(found);
        }
        if self.seek(key, wanted)? {
            return self.look_through(dir, key, wanted);
        }
        self.read(dir, key, wanted)
    }

    /// Returns the answer if the directory is known. A hint counts if the entry is there.
    fn known(&self, dir: &Dir, seen: Seen, wanted: &[u8]) -> Result<Option<StoredName>, Errno> {
        let hint = match self.remembered(dir, seen, wanted)? {
            Known::StoredName(found) => return Ok(Some(found)),
            Known::Doubtful(name) => return Ok(Some(Some(name))),
            Known::Unknown => return Ok(None),
            Known::Hint(name) => name,
        };
        if let Err(Errno::NOENT) = sys::stat_at(dir.fd(), &hint) {
            self.missed(seen.key, &hint);
            return Ok(None);
        }
        // The hint is used unless the entry is missing, because any other error is reported by the
        // open that follows.
        Ok(Some(Some(hint)))
    }

    /// Returns what is known of a name. Doubts are settled: a name that stays doubtful comes and goes
    /// all the time, and the open will see its state.
    fn remembered(&self, dir: &Dir, seen: Seen, wanted: &[u8]) -> Result<Known, Errno> {
        let age = self.age.load(Ordering::Relaxed);
        // If this process has changed names (`stirred`), notifications are waiting and the kernel
        // need not be asked. Otherwise it is asked, and without notifications the read lock is
        // enough.
        if !self.stirred.swap(false, Ordering::AcqRel) {
            let state = self.read_soon()?;
            if !self.pending() {
                let known = state.find(seen, wanted, age);
                if !matches!(known, Known::Doubtful(_)) {
                    return Ok(known);
                }
            }
        }
        // A call that gives up leaves the notes to the next one.
        let mut state = self.write_soon().inspect_err(|_| self.stirred())?;
        let mut asked = 0;
        loop {
            self.take_notes(&mut state);
            let doubtful = match state.find(seen, wanted, age) {
                Known::Doubtful(name) => name,
                known => return Ok(known),
            };
            asked += 1;
            if asked > RETRIES {
                return Ok(Known::Doubtful(doubtful));
            }
            // The stat comes after the watch has begun, so the kernel reports all later changes of
            // this name.
            match sys::stat_at(dir.fd(), &doubtful) {
                Ok(_) => state.update(seen.key, Update::Insert(doubtful.into())),
                Err(Errno::NOENT) => state.update(seen.key, Update::Remove(doubtful.into())),
                // The open that follows will report this error, so the name stays doubtful.
                Err(_) => return Ok(Known::Doubtful(doubtful)),
            }
        }
    }

    /// True if directories are watched with inotify.
    #[cfg(test)]
    pub(crate) const fn has_watches(&self) -> bool {
        self.watches.is_some()
    }

    fn pending(&self) -> bool {
        self.watches.as_ref().is_some_and(Watches::pending)
    }

    fn take_notes(&self, state: &mut State) {
        if let Some(watches) = &self.watches {
            watches.take(|note| state.note(note));
            self.make_room(state, 0, None);
        }
    }

    /// True when a sketch of the directory is kept: the directory is read for one name only.
    fn seek(&self, key: FileKey, wanted: &[u8]) -> Result<bool, Errno> {
        let mut state = self.write_soon()?;
        self.take_notes(&mut state);
        let State { directories, names, .. } = &mut *state;
        let Some(directory) = directories.get_mut(&key) else { return Ok(false) };
        let Content::Sketch(sketch) = &mut directory.content else { return Ok(false) };
        if sketch.is_worn() || !matches!(directory.trust, Trust::Watch(_)) {
            return Ok(false);
        }
        if !patience::is_short() {
            *names -= sketch.weight();
            sketch.seek(wanted);
            *names += sketch.weight();
        }
        Ok(true)
    }

    /// Reads a large directory for one name, and remembers the result.
    fn look_through(&self, dir: &Dir, key: FileKey, wanted: &[u8]) -> Result<StoredName, Errno> {
        if patience::is_short() {
            return Err(patience::give_up());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = sys::open_beneath(dir.fd(), b".", flags, Mode::empty(), false)?;
        let mut seeking = Seeking::new(wanted, self.short_names);
        let reading = self.reads_beside(key);
        each_name(fd.as_fd(), |name| {
            seeking.see(name);
            Ok(())
        })?;
        drop(reading);
        let mut state = self.write();
        self.take_notes(&mut state);
        let directory = state.directories.get_mut(&key);
        if let Some(Directory { content: Content::Sketch(sketch), .. }) = directory {
            sketch.found(&seeking);
        }
        Ok(seeking.into_found())
    }

    /// Reads a directory, keeps the names if they can be trusted, and answers from them.
    fn read(&self, dir: &Dir, key: FileKey, wanted: &[u8]) -> Result<StoredName, Errno> {
        if patience::is_short() && self.large.lock().contains(&key) {
            return Err(patience::give_up());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = sys::open_beneath(dir.fd(), b".", flags, Mode::empty(), false)?;
        let before = sys::stat_fd(fd.as_fd())?;
        let is_large = before.stx_size > DIRECTORY_ON_CORE;
        if is_large && patience::is_short() {
            return Err(patience::give_up());
        }
        let reading = is_large.then(|| self.reads_beside(key));
        let trust = self.begin(dir, key, &before)?;
        let mut read = self.read_names(fd.as_fd(), wanted);
        drop(reading);
        if let (Ok(read), Trust::Watch(watch)) = (&mut read, trust) {
            self.catch_up(key, watch, read);
        }
        let after = match trust {
            Trust::Times(_) => Some(times_of(&sys::stat_fd(fd.as_fd())?)),
            _ => None,
        };
        self.learn_size(key, read.as_ref().map(Read::names));
        let mut state = self.write();
        self.take_notes(&mut state);
        let mut read = match read {
            Ok(read) => read,
            Err(errno) => {
                if !trust.is_unwatched() {
                    self.forget(&mut state, key);
                }
                return Err(errno);
            }
        };
        let kept = match trust {
            Trust::Watch(watch) => {
                let updates = state.finish(key, watch);
                updates.iter().flatten().for_each(|update| read.apply(update));
                updates.map(|_| trust)
            }
            Trust::Times(proof) => after.map(|after| Trust::Times(proof.after(after))),
            Trust::Hints => Some(trust),
            Trust::Lost(_) => None,
        };
        let (found, content) = match read {
            Read::Few(mut table) => {
                let found = settled(dir, &mut table, wanted);
                (found, Content::Names(table))
            }
            Read::Many(mut sketch, seeking) => {
                sketch.found(&seeking);
                (seeking.into_found(), Content::Sketch(sketch))
            }
        };
        match kept.filter(|_| content.weight() <= self.limits.names) {
            Some(trust) => self.keep(&mut state, key, trust, content),
            None => self.forget(&mut state, key),
        }
        Ok(found)
    }

    /// Enters most of the changes that came while a directory was read, without the lock: they are many
    /// in a large directory, and cores wait for the lock.
    fn catch_up(&self, key: FileKey, watch: i32, read: &mut Read<'_>) {
        for _ in 0..RETRIES {
            let changes = {
                let mut state = self.write();
                self.take_notes(&mut state);
                state.take_many(key, watch)
            };
            if changes.is_empty() {
                break;
            }
            changes.iter().for_each(|update| read.apply(update));
        }
    }

    /// Remembers if a core can read a directory, which has so many names, or gave up.
    fn learn_size(&self, key: FileKey, names: Result<usize, &Errno>) {
        let is_large = match names {
            Ok(names) => names > self.limits.on_core,
            Err(_) => patience::has_given_up(),
        };
        let mut large = self.large.lock();
        large.retain(|known| *known != key);
        if is_large {
            large.push_back(key);
        }
        if large.len() > LARGE_DIRECTORIES {
            large.pop_front();
        }
    }

    /// Reads the names of a directory, or makes a sketch of a large one.
    fn read_names<'a>(&self, fd: BorrowedFd<'_>, wanted: &'a [u8]) -> Result<Read<'a>, Errno> {
        let mut table = Table::new(self.short_names);
        let mut many: Option<(Hashes, Seeking<'a>)> = None;
        let mut count = 0usize;
        each_name(fd, |name| {
            count += 1;
            if count > self.limits.on_core && patience::is_short() {
                return Err(patience::give_up());
            }
            if let Some((hashes, seeking)) = &mut many {
                hashes.add(name);
                seeking.see(name);
                return Ok(());
            }
            table.insert(name);
            if table.len() > self.limits.per_directory {
                let mut hashes = Hashes::new(self.short_names);
                let mut seeking = Seeking::new(wanted, self.short_names);
                for name in std::mem::take(&mut table).names() {
                    hashes.add(name);
                    seeking.see(name);
                }
                many = Some((hashes, seeking));
            }
            Ok(())
        })?;
        Ok(match many {
            None => Read::Few(table),
            Some((hashes, seeking)) => {
                let mut sketch = Sketch::of(&hashes);
                sketch.seek(wanted);
                Read::Many(sketch, seeking)
            }
        })
    }

    /// Returns the kind of file system that a directory is in, by f_type.
    fn kind_of(&self, dir: &Dir) -> u64 {
        #[cfg(test)]
        if let Some(kind) = self.pretended {
            return kind;
        }
        rustix::fs::fstatfs(dir.fd()).map_or(0, |fs| fs.f_type as u64)
    }

    /// Begins to watch a directory if possible.
    fn begin(&self, dir: &Dir, key: FileKey, stx: &Statx) -> Result<Trust, Errno> {
        let kind = self.kind_of(dir);
        let is_local = LOCAL.contains(&kind);
        let mut state = self.write_soon()?;
        let before = state.directories.get(&key).map(|known| known.trust);
        // If the directory is unwatched, its names are kept as hints until it has been read again.
        // Otherwise all its names are dropped now.
        if !before.is_some_and(|trust| trust.is_unwatched()) {
            self.forget(&mut state, key);
        }
        if let Some(watches) = self.watches.as_ref().filter(|_| is_local)
            && let Ok(watch) = watches.add(dir)
        {
            let trust = Trust::Watch(watch);
            let content = Content::Reading(Some(Vec::new()));
            let used = AtomicU64::new(self.age.load(Ordering::Relaxed));
            state.drop_directory(key);
            // In some stacked file systems one directory has two keys but only one watch. So the
            // older key is dropped.
            if let Some(other) = state.watched.insert(watch, key) {
                state.drop_directory(other);
                state.watched.insert(watch, key);
            }
            state
                .directories
                .insert(key, Directory { trust, content, moves: Moves::default(), used });
            return Ok(trust);
        }
        if kind == volume::FUSE {
            return Ok(Trust::Hints);
        }
        Ok(Trust::Times(Proof::of(times_of(stx), before.and_then(|trust| trust.proof()))))
    }

    fn keep(&self, state: &mut State, key: FileKey, trust: Trust, content: Content) {
        let age = self.age.fetch_add(1, Ordering::Relaxed);
        self.make_room(state, content.weight(), Some(key));
        state.names += content.weight();
        let known = state.directories.remove(&key);
        state.names -= known.as_ref().map_or(0, |known| known.content.weight());
        let moves = known.map(|known| {
            state.dropped.push(known.content);
            known.moves
        });
        let moves = moves.unwrap_or_default();
        let used = AtomicU64::new(age);
        if trust.is_unwatched() {
            self.keeps_unwatched.store(true, Ordering::Relaxed);
        }
        state.directories.insert(key, Directory { trust, content, moves, used });
    }

    /// Drops directories, least recently used first, until `more` names have room.
    fn make_room(&self, state: &mut State, more: usize, kept: Option<FileKey>) {
        while state.names.saturating_add(more) > self.limits.names
            || state.directories.len() > self.limits.directories
        {
            let Some(oldest) = state.oldest(kept) else { break };
            self.forget(state, oldest);
        }
    }

    fn forget(&self, state: &mut State, key: FileKey) {
        if let Some(watch) = state.drop_directory(key)
            && let Some(watches) = &self.watches
        {
            watches.remove(watch);
        }
    }
}

/// The result of reading a directory.
enum Read<'a> {
    Few(Table),
    Many(Sketch, Seeking<'a>),
}

impl Read<'_> {
    /// Returns the number of names; of many, at least more than a core reads.
    fn names(&self) -> usize {
        match self {
            Self::Few(table) => table.len(),
            Self::Many(..) => usize::MAX,
        }
    }

    fn apply(&mut self, update: &Update) {
        match self {
            Self::Few(table) => update.apply(table),
            Self::Many(sketch, _) => update.sketch(sketch),
        }
    }
}

/// Returns the answer of a table, and looks at doubtful names.
fn settled(dir: &Dir, table: &mut Table, wanted: &[u8]) -> StoredName {
    loop {
        let doubtful = match table.find(wanted) {
            Lookup::Present(name) => return Some(name.to_vec()),
            Lookup::Absent => return None,
            Lookup::Doubtful(name) => name.to_vec(),
        };
        match sys::stat_at(dir.fd(), &doubtful) {
            Err(Errno::NOENT) => table.remove(&doubtful),
            _ => table.insert(&doubtful),
        }
    }
}

pub(crate) fn each_name(
    fd: BorrowedFd<'_>,
    mut tell: impl FnMut(&[u8]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut buffer = vec![std::mem::MaybeUninit::uninit(); LIST_BUFFER_BYTES];
    let mut entries = RawDir::new(fd, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            tell(name)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
