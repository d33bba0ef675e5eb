//! Snapshots: folders that hold the share as it was earlier. Their names or birth times tell when
//! they were taken; the program that makes them (btrfs, snapper, a copying job) is not asked.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Instant;

use frevo_store::snapshot::{Moment, Taken};
use frevo_store::vfs::VfsResult;
use frevo_store::{Fault, FileKey, HostPlace, HostPlaces, Observed, Vfs};
use hashbrown::HashMap;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::credentials;
use crate::errno::{fault_of, walk_fault};
use crate::limits::{KEPT_SNAPSHOTS, SNAPSHOT_KEPT_FOR, SNAPSHOTS};
use crate::names::DiskPath;
use crate::options::PosixOptions;
use crate::patience;
use crate::renamed::{self, Known};
use crate::snapshot_folders::SnapshotFolders;
use crate::stat::{self, Extra};
use crate::sys::{self, ProcPath};

/// The snapshots of one share, which are searched each time, and those that are open.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    open: Arc<Mutex<OpenSnapshots>>,
}

/// The open snapshots.
#[derive(Debug, Default)]
struct OpenSnapshots {
    /// By their second.
    all: HashMap<Moment, OpenSnapshot>,
    /// Those that stay open for a while without a user, the least recently used one first.
    kept: VecDeque<Kept>,
    /// A thread looks after `kept`.
    is_looked_after: bool,
}

/// An open snapshot.
#[derive(Debug)]
struct OpenSnapshot {
    /// The key of its folder.
    key: FileKey,
    vfs: Weak<dyn Vfs>,
}

/// A snapshot that was used a short time ago.
#[derive(Debug)]
struct Kept {
    taken: Moment,
    used: Instant,
    /// Open while this lasts.
    vfs: Arc<dyn Vfs>,
    /// The place of the account that used it last.
    place: HostPlace,
}

/// A snapshot that somebody asks for.
pub(crate) struct Wanted<'a> {
    pub(crate) taken: Moment,
    /// The places of the account that asks.
    pub(crate) places: &'a Arc<HostPlaces>,
}

impl OpenSnapshots {
    /// Returns the snapshot of that second, if it is open and its folder is `key`: its name may belong
    /// to another folder by now.
    fn find(&self, taken: Moment, key: FileKey) -> Option<Arc<dyn Vfs>> {
        self.all.get(&taken).filter(|known| known.key == key)?.vfs.upgrade()
    }

    /// Keeps a snapshot open, which was used just now, if its account may keep so many. Returns those
    /// that are kept no more.
    fn keep(&mut self, wanted: &Wanted<'_>, key: FileKey, vfs: &Arc<dyn Vfs>) -> Vec<Kept> {
        let taken = wanted.taken;
        self.all.insert(taken, OpenSnapshot { key, vfs: Arc::downgrade(vfs) });
        let mut dropped = Vec::new();
        if let Some(at) = self.kept.iter().position(|kept| kept.taken == taken) {
            let again = self.kept.remove(at);
            let is_same =
                |kept: &Kept| Arc::ptr_eq(&kept.vfs, vfs) && kept.place.is_of(wanted.places);
            match again {
                Some(kept) if is_same(&kept) => {
                    self.kept.push_back(Kept { used: Instant::now(), ..kept });
                    return dropped;
                }
                other => dropped.extend(other),
            }
        }
        let place = self.place_for(wanted.places, &mut dropped);
        if let Some(place) = place {
            let used = Instant::now();
            self.kept.push_back(Kept { taken, used, vfs: Arc::clone(vfs), place });
        }
        if self.all.len() > 2 * KEPT_SNAPSHOTS {
            self.forget_closed();
        }
        dropped
    }

    /// Returns a place for a snapshot of an account. Without a free one its own least recently used
    /// snapshot makes room; for an account that has few, that of an account with many, or the oldest.
    fn place_for(
        &mut self,
        places: &Arc<HostPlaces>,
        dropped: &mut Vec<Kept>,
    ) -> Option<HostPlace> {
        let take =
            |kept: &VecDeque<Kept>| places.take(Observed::Snapshot, kept.len(), KEPT_SNAPSHOTS);
        if let Some(place) = take(&self.kept) {
            return Some(place);
        }
        let has_many = |places: &HostPlaces| places.count(Observed::Snapshot) >= KEPT_SNAPSHOTS / 4;
        let goes = if has_many(places) {
            self.kept.iter().position(|kept| kept.place.is_of(places))?
        } else {
            self.kept.iter().position(|kept| has_many(kept.place.places())).unwrap_or(0)
        };
        dropped.extend(self.kept.remove(goes));
        let freed = dropped.last().filter(|kept| kept.place.is_of(places));
        match freed {
            // The account takes the place that it has just freed. The place is given back when
            // `dropped` is dropped.
            Some(_) => Some(places.retake(Observed::Snapshot)),
            None => take(&self.kept),
        }
    }

    /// Takes out the snapshots that nobody has used for a while.
    fn take_unused(&mut self) -> Vec<Kept> {
        let is_unused = |kept: &Kept| kept.used.elapsed() >= SNAPSHOT_KEPT_FOR;
        let count = self.kept.iter().take_while(|kept| is_unused(kept)).count();
        self.kept.drain(..count).collect()
    }

    fn forget_closed(&mut self) {
        self.all.retain(|_, known| known.vfs.strong_count() != 0);
    }
}

/// Lets go of snapshots that nobody uses any more, until none is kept: while one is open, the program
/// that made it may be unable to remove it.
fn look_after(open: &Weak<Mutex<OpenSnapshots>>) {
    loop {
        std::thread::sleep(SNAPSHOT_KEPT_FOR / 2);
        let Some(open) = open.upgrade() else { return };
        let mut snapshots = open.lock();
        let unused = snapshots.take_unused();
        let is_over = snapshots.kept.is_empty();
        snapshots.is_looked_after = !is_over;
        drop(snapshots);
        // Snapshots are closed without the lock.
        drop(unused);
        open.lock().forget_closed();
        if is_over {
            return;
        }
    }
}

/// A snapshot's folder, by its path in the folder of snapshots.
struct SnapshotFolder {
    taken: Moment,
    path: PathBuf,
}

impl SnapshotFolders {
    /// Opens the folder of snapshots. Links below the share's root are not followed, because
    /// clients can make them.
    fn open(&self, root: BorrowedFd<'_>) -> VfsResult<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if self.folder.is_absolute() {
            return rustix::fs::open(&self.folder, flags, Mode::empty()).map_err(fault_of);
        }
        let path = if self.folder.as_os_str().is_empty() { Path::new(".") } else { &self.folder };
        let path = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
        sys::open_beneath(root, path, flags, Mode::empty(), false).map_err(walk_fault)
    }

    /// Finds all snapshots, newest first, one for each second. A missing folder has none.
    fn find(&self, folder: BorrowedFd<'_>) -> VfsResult<Vec<SnapshotFolder>> {
        let path = ProcPath::of(folder);
        let path = Path::new(path.as_c_str().to_str().unwrap_or_default());
        let listing = std::fs::read_dir(path).map_err(|error| io_fault(&error))?;
        let mut found = Vec::new();
        for (at, entry) in listing.enumerate() {
            // Each entry may need a system call for its birth time. In a large folder that takes
            // too long for a core thread.
            if patience::gives_up(at) {
                return Err(fault_of(Errno::AGAIN));
            }
            if found.len() >= 2 * SNAPSHOTS {
                keep_newest(&mut found);
            }
            let name = entry.map_err(|error| io_fault(&error))?.file_name();
            // FAT may show a name in another case than the one that it was made with.
            let Some(taken) = name.to_str().and_then(|text| self.pattern.matches_any_case(text))
            else {
                continue;
            };
            let path = Path::new(&name).join(&self.inner);
            let taken = match taken {
                Taken::At(moment) => Some(moment),
                Taken::Unsaid => born(folder, Path::new(&name)),
            };
            found.extend(taken.map(|taken| SnapshotFolder { taken, path }));
        }
        keep_newest(&mut found);
        Ok(found)
    }
}

/// Sorts snapshots, newest first, and drops those of the same second and those beyond the limit.
fn keep_newest(found: &mut Vec<SnapshotFolder>) {
    found.sort_by(|a, b| b.taken.cmp(&a.taken).then_with(|| a.path.cmp(&b.path)));
    found.dedup_by_key(|found| found.taken);
    found.truncate(SNAPSHOTS);
}

fn bytes(path: &Path) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())
}

fn io_fault(error: &std::io::Error) -> Fault {
    Errno::from_io_error(error).map_or(Fault::Io(0), fault_of)
}

/// Returns the birth time of an entry, for a folder with only a number.
fn born(folder: BorrowedFd<'_>, entry: &Path) -> Option<Moment> {
    let stx = sys::stat_at(folder, bytes(entry)).ok()?;
    Moment::of(stat::stat_of(&stx, &Extra::default()).created)
}

fn enter(folder: BorrowedFd<'_>, path: &Path) -> VfsResult<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    // Joining an empty path adds a slash at the end, which is removed.
    let path = bytes(path);
    let path = path.strip_suffix(b"/").unwrap_or(path);
    sys::open_beneath(folder, path, flags, Mode::empty(), false).map_err(walk_fault)
}

impl Snapshots {
    /// Returns the snapshots of a path, and of what has the path today where they know that by its identity; see
    /// [`frevo_store::Vfs::snapshots`].
    pub(crate) fn of(
        root: BorrowedFd<'_>,
        folders: &SnapshotFolders,
        wanted: &DiskPath,
        today: impl FnOnce() -> Vec<Known>,
    ) -> VfsResult<Vec<Moment>> {
        // The server opens the folder of the snapshots with its own rights, even if the user has
        // none to it. Inside of a snapshot the user's rights apply.
        let (folder, all) = {
            let _server = credentials::as_server();
            let folder = match folders.open(root) {
                Err(Fault::NotFound | Fault::PathNotDirectory) => return Ok(Vec::new()),
                folder => folder?,
            };
            let all = folders.find(folder.as_fd())?;
            (folder, all)
        };
        // Each snapshot is opened to look for the file, which may take too long for a core thread.
        if patience::gives_up(all.len()) {
            return Err(fault_of(Errno::AGAIN));
        }
        let today = today();
        let has = |found: &SnapshotFolder| {
            let snapshot = {
                let _server = credentials::as_server();
                enter(folder.as_fd(), &found.path)?
            };
            let flags = OFlags::PATH | OFlags::NOFOLLOW;
            let open = |path: &[u8]| {
                sys::open_beneath(snapshot.as_fd(), path, flags, Mode::empty(), false)
                    .map_err(walk_fault)
            };
            open(wanted.as_bytes()).or_else(|fault| {
                let earlier = {
                    let _server = credentials::as_server();
                    renamed::earlier(snapshot.as_fd(), &today, wanted.as_bytes())
                };
                earlier.map_or(Err(fault), |path| open(&path))
            })
        };
        Ok(all.iter().filter(|found| has(found).is_ok()).map(|found| found.taken).collect())
    }

    /// Returns the path that what has `path` today has in a snapshot. None if the snapshot has nothing of what is known.
    pub(crate) fn earlier_path(
        root: BorrowedFd<'_>,
        folders: &SnapshotFolders,
        taken: Moment,
        known: &[Known],
        path: &DiskPath,
    ) -> VfsResult<Option<Vec<u8>>> {
        let _server = credentials::as_server();
        let folder = folders.open(root)?;
        let all = folders.find(folder.as_fd())?;
        let found = all.iter().find(|found| found.taken == taken).ok_or(Fault::NotFound)?;
        let snapshot = enter(folder.as_fd(), &found.path)?;
        Ok(renamed::earlier(snapshot.as_fd(), known, path.as_bytes()))
    }

    /// Opens a snapshot; see [`frevo_store::Vfs::snapshot`]. `begin` makes a share of the
    /// snapshot's folder, with options and a mark for its file keys.
    pub(crate) fn at(
        &self,
        root: BorrowedFd<'_>,
        options: &PosixOptions,
        wanted: &Wanted<'_>,
        begin: impl FnOnce(OwnedFd, PosixOptions, u64) -> std::io::Result<Arc<dyn Vfs>>,
    ) -> VfsResult<Arc<dyn Vfs>> {
        let taken = wanted.taken;
        let folders = options.snapshots.as_ref().ok_or(Fault::NotFound)?;
        let folder = folders.open(root)?;
        let all = folders.find(folder.as_fd())?;
        let found = all.iter().find(|found| found.taken == taken).ok_or(Fault::NotFound)?;
        let snapshot = enter(folder.as_fd(), &found.path)?;
        let key = stat::key_of(&sys::stat_fd(snapshot.as_fd()).map_err(fault_of)?);
        // The name may lead to another snapshot than before, so an open snapshot is used only if
        // its key is the same.
        let known = self.open.lock().find(taken, key);
        let vfs = match known {
            Some(vfs) => vfs,
            None => {
                let options = PosixOptions {
                    read_only: true,
                    snapshots: None,
                    guarded: Vec::new(),
                    ..options.clone()
                };
                begin(snapshot, options, mark(taken)).map_err(|error| io_fault(&error))?
            }
        };
        let mut open = self.open.lock();
        // Two threads may open it at one time: both use the first one's.
        let vfs = open.find(taken, key).unwrap_or(vfs);
        let dropped = open.keep(wanted, key, &vfs);
        let begins = !std::mem::replace(&mut open.is_looked_after, true);
        drop(open);
        // Snapshots are closed without the lock.
        drop(dropped);
        if begins {
            self.begin_to_look_after();
        }
        Ok(vfs)
    }

    /// Starts the thread that lets go of unused snapshots. Without it none is kept.
    fn begin_to_look_after(&self) {
        let open = Arc::downgrade(&self.open);
        let thread = std::thread::Builder::new().name(String::from("snapshots"));
        let started = thread.spawn(move || {
            credentials::begin_thread();
            look_after(&open);
        });
        if started.is_err() {
            let mut open = self.open.lock();
            open.is_looked_after = false;
            let dropped = std::mem::take(&mut open.kept);
            drop(open);
            drop(dropped);
        }
    }
}

/// Returns the mark in the keys of a snapshot's files. Devices of the host have no top bit. A file
/// that several snapshots share as a hard link is another file in each.
fn mark(taken: Moment) -> u64 {
    taken.time().0.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 << 63
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PosixVfs;

    fn moment(second: u32) -> Moment {
        Moment::of_token(&format!("@GMT-2024.02.29-12.{:02}.{:02}", second / 60, second % 60))
            .unwrap()
    }

    /// Tests n - 1, n and n + 1 snapshots, and that the least recently used one goes first.
    #[test]
    fn few_snapshots_are_kept_open() {
        let host = tempfile::tempdir().unwrap();
        let key = FileKey::of_file(1, 1);
        let mut open = OpenSnapshots::default();
        // Four accounts with a quarter of the places each.
        let places: [Arc<HostPlaces>; 4] = Default::default();
        let use_once = |second: u32, open: &mut OpenSnapshots| {
            let known = open.find(moment(second), key);
            let is_known = known.is_some();
            let vfs = known.unwrap_or_else(|| {
                Arc::new(PosixVfs::open_root(host.path(), PosixOptions::default()).unwrap())
            });
            let wanted = Wanted { taken: moment(second), places: &places[second as usize % 4] };
            drop(open.keep(&wanted, key, &vfs));
            is_known
        };
        let most = u32::try_from(KEPT_SNAPSHOTS).unwrap();
        assert!((0..most).all(|second| !use_once(second, &mut open)));
        assert!((0..most).all(|second| use_once(second, &mut open)), "all are kept");
        assert!(use_once(0, &mut open), "0 is the last one used now");
        assert!(!use_once(most, &mut open));
        assert!(use_once(0, &mut open));
        assert!(use_once(1, &mut open), "another account's");
        assert!(!use_once(4, &mut open), "4 made room, the oldest one of its account");
        assert_eq!(open.kept.len(), KEPT_SNAPSHOTS);
        assert!(open.find(moment(0), FileKey::of_file(1, 2)).is_none(), "another folder");
    }

    /// Tests that one account leaves a quarter of the places to others, whose snapshots it does not close.
    #[test]
    fn an_account_leaves_kept_snapshots_to_others() {
        let host = tempfile::tempdir().unwrap();
        let key = FileKey::of_file(1, 1);
        let mut open = OpenSnapshots::default();
        let [ann, bob] = <[Arc<HostPlaces>; 2]>::default();
        let use_once = |second: u32, places: &Arc<HostPlaces>, open: &mut OpenSnapshots| {
            let vfs: Arc<dyn Vfs> =
                Arc::new(PosixVfs::open_root(host.path(), PosixOptions::default()).unwrap());
            drop(open.keep(&Wanted { taken: moment(second), places }, key, &vfs));
        };
        let most = u32::try_from(KEPT_SNAPSHOTS).unwrap();
        use_once(1_000, &bob, &mut open);
        for second in 0..2 * most {
            use_once(second, &ann, &mut open);
        }
        let count = |places: &Arc<HostPlaces>| places.count(Observed::Snapshot);
        assert_eq!((count(&ann), count(&bob)), (KEPT_SNAPSHOTS * 3 / 4 - 1, 1));
        assert!(open.find(moment(1_000), key).is_some(), "the other account's");
        assert!(open.find(moment(2 * most - 1), key).is_some(), "its own latest");
        assert!(open.find(moment(0), key).is_none(), "its own oldest made room");
        for second in 1_001..1_000 + most {
            use_once(second, &bob, &mut open);
        }
        assert_eq!(count(&bob), KEPT_SNAPSHOTS / 4);
        assert_eq!(open.kept.len(), KEPT_SNAPSHOTS - 1, "one is left to accounts that have few");
        open.kept.clear();
        assert_eq!((count(&ann), count(&bob)), (0, 0));
    }

    /// Tests that a snapshot that nobody uses is closed in the end.
    #[test]
    fn unused_snapshots_are_closed() {
        let host = tempfile::tempdir().unwrap();
        let key = FileKey::of_file(1, 1);
        let snapshots = Snapshots::default();
        let vfs: Arc<dyn Vfs> =
            Arc::new(PosixVfs::open_root(host.path(), PosixOptions::default()).unwrap());
        let wanted = Wanted { taken: moment(0), places: &Arc::default() };
        drop(snapshots.open.lock().keep(&wanted, key, &vfs));
        snapshots.open.lock().is_looked_after = true;
        snapshots.begin_to_look_after();
        let weak = Arc::downgrade(&vfs);
        drop(vfs);
        let until = Instant::now() + 6 * SNAPSHOT_KEPT_FOR + std::time::Duration::from_secs(30);
        while weak.strong_count() > 0 {
            assert!(Instant::now() < until, "it stays open");
            std::thread::sleep(SNAPSHOT_KEPT_FOR / 10);
        }
        while snapshots.open.lock().is_looked_after {
            assert!(Instant::now() < until, "the thread does not end");
            std::thread::sleep(SNAPSHOT_KEPT_FOR / 10);
        }
        assert!(snapshots.open.lock().all.is_empty());
    }
}
