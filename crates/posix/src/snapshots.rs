//! Snapshots: folders that hold the share as it was earlier. Their names or birth times tell when
//! they were taken; the program that makes them (btrfs, snapper, a copying job) is not asked.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use frevo_store::snapshot::{Moment, Taken};
use frevo_store::vfs::VfsResult;
use frevo_store::{Fault, FileKey, Vfs};
use hashbrown::HashMap;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::credentials;
use crate::errno::{fault_of, walk_fault};
use crate::limits::SNAPSHOTS;
use crate::names::DiskPath;
use crate::options::PosixOptions;
use crate::patience;
use crate::snapshot_folders::SnapshotFolders;
use crate::stat::{self, Extra};
use crate::sys::{self, ProcPath};

/// Open snapshots by their second: the key of the folder, and its share.
type OpenSnapshots = HashMap<Moment, (FileKey, Weak<dyn Vfs>)>;

/// The snapshots of one share, which are searched each time, and those that are open.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    open: Mutex<OpenSnapshots>,
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
            let Some(taken) = name.to_str().and_then(|text| self.pattern.matches(text)) else {
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
    /// Returns the snapshots of a path; see [`frevo_store::Vfs::snapshots`].
    pub(crate) fn of(
        root: BorrowedFd<'_>,
        folders: &SnapshotFolders,
        wanted: &DiskPath,
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
        let has = |found: &SnapshotFolder| {
            let snapshot = {
                let _server = credentials::as_server();
                enter(folder.as_fd(), &found.path)?
            };
            let flags = OFlags::PATH | OFlags::NOFOLLOW;
            let path = wanted.as_bytes();
            sys::open_beneath(snapshot.as_fd(), path, flags, Mode::empty(), false)
                .map_err(walk_fault)
        };
        Ok(all.iter().filter(|found| has(found).is_ok()).map(|found| found.taken).collect())
    }

    /// Opens a snapshot; see [`frevo_store::Vfs::snapshot`]. `begin` makes a share of the
    /// snapshot's folder, with options and a mark for its file keys.
    pub(crate) fn at(
        &self,
        root: BorrowedFd<'_>,
        options: &PosixOptions,
        taken: Moment,
        begin: impl FnOnce(OwnedFd, PosixOptions, u64) -> std::io::Result<Arc<dyn Vfs>>,
    ) -> VfsResult<Arc<dyn Vfs>> {
        let folders = options.snapshots.as_ref().ok_or(Fault::NotFound)?;
        let folder = folders.open(root)?;
        let all = folders.find(folder.as_fd())?;
        let found = all.iter().find(|found| found.taken == taken).ok_or(Fault::NotFound)?;
        let snapshot = enter(folder.as_fd(), &found.path)?;
        let key = stat::key_of(&sys::stat_fd(snapshot.as_fd()).map_err(fault_of)?);
        let mut open = self.open.lock();
        open.retain(|_, (_, vfs)| vfs.strong_count() != 0);
        // The name may lead to another snapshot than before, so an open snapshot is used only if
        // its key is the same.
        let known = open.get(&taken).filter(|(known, _)| *known == key);
        if let Some(vfs) = known.and_then(|(_, vfs)| vfs.upgrade()) {
            return Ok(vfs);
        }
        let options = PosixOptions {
            read_only: true,
            snapshots: None,
            guarded: Vec::new(),
            ..options.clone()
        };
        let vfs = begin(snapshot, options, mark(taken)).map_err(|error| io_fault(&error))?;
        open.insert(taken, (key, Arc::downgrade(&vfs)));
        Ok(vfs)
    }
}

/// Returns the mark in the keys of a snapshot's files. Devices of the host have no top bit. A file
/// that several snapshots share as a hard link is another file in each.
fn mark(taken: Moment) -> u64 {
    taken.time().0.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 << 63
}
