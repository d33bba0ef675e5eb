//! Reparse points on the way to a name: MS-FSA 2.1.5.1 stops at each of them.
//!
//! The kernel stops at the host's own links. A reparse point that is kept beside a directory or a
//! file is known by an attribute only, so each directory's is read once, and the paths of
//! directories without one are remembered. Whatever may put a reparse point at a remembered path
//! makes all shares forget: marking an object, and renaming a directory. What another program
//! moves to a remembered path is seen when a client opens it by that path itself.

use std::ffi::CStr;
use std::hash::{BuildHasher as _, DefaultHasher, Hasher as _, RandomState};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use frevo_store::{Fault, vfs::VfsResult};
use frevo_wire::dtyp::FileAttributes;
use hashbrown::HashSet;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::dosattrib::DosAttrib;
use crate::limits::{DOSATTRIB_BYTES, WAYS};
use crate::patience;
use crate::reparse_tag;
use crate::share::Share;
use crate::sys::{self, ProcPath};
use crate::xattr::DOSATTRIB;

/// The count of changes that may have put a reparse point in the place of a directory, in all
/// shares: one folder can be shared under several names.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Makes all shares forget which directories have no reparse point.
pub(crate) fn changed() {
    CHANGES.fetch_add(1, Ordering::AcqRel);
}

/// The paths of directories that are known to have no reparse point, nor any on the way.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    hasher: RandomState,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// [`CHANGES`] when they were found out.
    changes: u64,
    /// Hashes of the paths of directories that are no reparse points.
    paths: HashSet<u64>,
}

impl Known {
    /// Returns the paths that are still valid.
    fn now(&mut self) -> &mut HashSet<u64> {
        let changes = CHANGES.load(Ordering::Acquire);
        if self.changes != changes {
            self.changes = changes;
            self.paths.clear();
        }
        &mut self.paths
    }
}

/// The end of a rename or link.
pub(crate) struct Forgetting<'a> {
    share: &'a Share,
    path: Vec<u8>,
    is_directory: bool,
}

impl Drop for Forgetting<'_> {
    fn drop(&mut self) {
        if self.is_directory {
            // A moved directory may contain reparse points, so nothing is known about any path any
            // more.
            changed();
        } else {
            self.share.way_replaced(&self.path);
        }
    }
}

/// The result of looking at one directory.
enum Look {
    Plain,
    Marked,
    /// It cannot be looked at: the user may only pass through it.
    Unknown,
}

impl Share {
    /// Refuses a path that leads through a reparse point kept beside a directory or file; the
    /// path's last component is not looked at.
    pub(crate) fn check_way(&self, path: &[u8]) -> VfsResult<()> {
        let Some(end) = path.iter().rposition(|&b| b == b'/') else { return Ok(()) };
        let Some(parent) = path.get(..end) else { return Ok(()) };
        if !self.keeps_attributes() || self.ways.known.lock().now().contains(&self.hash(parent)) {
            return Ok(());
        }
        self.look_along(parent)
    }

    /// Looks at each directory on the way to `parent` and at `parent` itself, except those that
    /// are known.
    fn look_along(&self, parent: &[u8]) -> VfsResult<()> {
        let (mut hasher, mut end) = (self.ways.hasher.build_hasher(), 0);
        let mut looks = 0;
        let mut dir = None;
        for component in parent.split(|&b| b == b'/') {
            add(&mut hasher, component);
            let hash = hasher.finish();
            end += component.len();
            let path = parent.get(..end).unwrap_or_default();
            end += 1;
            let changes = {
                let mut known = self.ways.known.lock();
                if known.now().contains(&hash) {
                    dir = None;
                    continue;
                }
                known.changes
            };
            looks += 1;
            if patience::gives_up(looks) {
                return Err(Fault::Busy);
            }
            // If the component cannot be opened, the open of the whole path will fail, too, and
            // report the error.
            let Ok(fd) = self.open_way(dir.as_ref(), path, component) else { return Ok(()) };
            match look_at(fd.as_fd()) {
                Look::Plain => self.remember(hash, changes),
                Look::Marked => return Err(Fault::Symlink),
                Look::Unknown => {}
            }
            dir = Some(fd);
        }
        Ok(())
    }

    /// Opens a directory on a way, from the one before it if that is open.
    fn open_way(&self, dir: Option<&OwnedFd>, path: &[u8], last: &[u8]) -> Result<OwnedFd, Errno> {
        let follow = self.options.follow_symlinks_inside;
        let flags = if follow { OFlags::PATH } else { OFlags::PATH | OFlags::NOFOLLOW };
        if let Some(dir) = dir {
            match sys::open_beneath(dir.as_fd(), last, flags, Mode::empty(), false) {
                Err(Errno::LOOP) if follow => {}
                opened => return opened,
            }
        }
        sys::open_beneath(self.root.as_fd(), path, flags, Mode::empty(), follow)
    }

    fn remember(&self, hash: u64, changes: u64) {
        let mut known = self.ways.known.lock();
        let paths = known.now();
        if paths.len() >= WAYS {
            paths.clear();
        }
        paths.insert(hash);
        if known.changes != changes {
            // The path may have become a reparse point while it was checked, so the result is not
            // remembered.
            known.paths.remove(&hash);
        }
    }

    /// Makes all shares forget what a rename or link to `path` makes wrong, when the result is
    /// dropped.
    pub(crate) const fn forget_after(&self, path: Vec<u8>, is_directory: bool) -> Forgetting<'_> {
        Forgetting { share: self, path, is_directory }
    }

    /// Makes all shares forget if `path` was remembered, because another object has it now.
    pub(crate) fn way_replaced(&self, path: &[u8]) {
        let hash = self.hash(path);
        if self.ways.known.lock().now().contains(&hash) {
            changed();
        }
    }

    fn hash(&self, path: &[u8]) -> u64 {
        let mut hasher = self.ways.hasher.build_hasher();
        path.split(|&b| b == b'/').for_each(|component| add(&mut hasher, component));
        hasher.finish()
    }
}

/// Adds a component to the hash of the path before it.
fn add(hasher: &mut DefaultHasher, component: &[u8]) {
    hasher.write(component);
    hasher.write_u8(b'/');
}

/// True for a directory, reached step by step, that is a reparse point.
pub(crate) fn is_marked(fd: BorrowedFd<'_>) -> bool {
    matches!(look_at(fd), Look::Marked)
}

fn look_at(fd: BorrowedFd<'_>) -> Look {
    let path = ProcPath::of(fd);
    let mut value = [0; DOSATTRIB_BYTES];
    let read = |name: &CStr, into: &mut [u8]| rustix::fs::getxattr(path.as_c_str(), name, into);
    let len = match read(DOSATTRIB, &mut value) {
        Ok(len) => len,
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => return Look::Plain,
        Err(_) => return Look::Unknown,
    };
    let dos = value.get(..len).and_then(DosAttrib::decode);
    let marked = dos.is_some_and(|d| d.attributes & FileAttributes::REPARSE_POINT.0 != 0);
    // The attribute REPARSE_POINT has no effect without a stored reparse buffer.
    if marked && reparse_tag::tag(dos, |into| read(reparse_tag::ATTRIBUTE, into)) != 0 {
        Look::Marked
    } else {
        Look::Plain
    }
}
