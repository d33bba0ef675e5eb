//! Walks from a name to a location: an open parent directory and an entry in it.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use frevo_store::{Fault, Name, vfs::VfsResult};
use rustix::fs::{OFlags, Statx};
use rustix::io::Errno;

use crate::cache::Seen;
use crate::dir::Dir;
use crate::errno::{fault_of, walk_fault};
use crate::limits::{PATH_BYTES, RETRIES};
use crate::names::{DiskPath, Spelling, client_name};
use crate::patience;
use crate::share::Share;
use crate::share::reparse_way;
use crate::sys;

mod respelling;

pub(crate) use respelling::Respelled;

/// The location of a name's last component, whether it exists or not.
#[derive(Debug)]
pub(crate) struct Location {
    /// The directory that contains the object.
    pub(crate) parent: Dir,
    /// The parent's path below the root, as stored.
    parent_path: Vec<u8>,
    /// The last component as it was asked for.
    pub(crate) wanted: Vec<u8>,
    /// The parent's state, if it has just been read.
    pub(crate) seen: Option<Seen>,
    spelling: Spelling,
}

impl Location {
    /// Makes the location of `wanted` in an open directory with this path below the root.
    pub(crate) fn new(
        parent: Dir,
        parent_path: Vec<u8>,
        wanted: &[u8],
        spelling: Spelling,
    ) -> Self {
        Self { parent, parent_path, wanted: wanted.to_vec(), seen: None, spelling }
    }

    /// Returns the location of `path`, if it is in this directory.
    pub(crate) fn beside(&self, path: &DiskPath) -> Option<Self> {
        let (parent_path, wanted) = path.split();
        let is_here = parent_path == self.parent_path && !wanted.is_empty();
        is_here.then(|| Self {
            seen: self.seen,
            ..Self::new(self.parent.clone(), parent_path.to_vec(), wanted, self.spelling)
        })
    }

    /// Returns the path below the root of an entry of the parent.
    pub(crate) fn path_of(&self, entry: &[u8]) -> Vec<u8> {
        join(&self.parent_path, entry)
    }

    /// Returns the clients' name of an entry of the parent.
    pub(crate) fn name_of(&self, entry: &[u8]) -> Name {
        client_name(&self.path_of(entry), self.spelling)
    }
}

fn join(parent: &[u8], entry: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(parent.len() + 1 + entry.len());
    path.extend_from_slice(parent);
    if !parent.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(entry);
    path
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

impl Share {
    /// Finds the location of `path`; its parent must exist.
    pub(crate) fn place(&self, path: &DiskPath, exact: bool) -> VfsResult<Location> {
        let (parent_path, wanted) = path.split();
        if wanted.is_empty() {
            // The root of the share has no parent directory in the share, so it has no location.
            return Err(Fault::AccessDenied);
        }
        let (parent, parent_path, seen) = self.directory(parent_path, exact)?;
        let place = Location { seen, ..Location::new(parent, parent_path, wanted, self.spelling) };
        self.admit(&place.path_of(wanted))?;
        Ok(place)
    }

    /// Opens the directory at `path`, and returns its path as stored, and its state if that was
    /// read.
    fn directory(&self, path: &[u8], exact: bool) -> VfsResult<(Dir, Vec<u8>, Option<Seen>)> {
        if path.is_empty() {
            return Ok((Dir::Root(Arc::clone(&self.root)), Vec::new(), None));
        }
        if let Some((fd, stx)) = self.kept_folder(path) {
            return Ok((Dir::Sub(fd), path.to_vec(), Some(Seen::of(&stx))));
        }
        if path.len() <= PATH_BYTES {
            match self.open_directory(self.root.as_fd(), path) {
                Ok(fd) => return Ok((Dir::Sub(Arc::new(fd)), path.to_vec(), None)),
                Err(Errno::NOENT) if exact => return Err(Fault::PathNotFound),
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(walk_fault(errno)),
            }
        }
        let mut walk = Walk::new(self, path.len());
        for (at, component) in path.split(|&b| b == b'/').enumerate() {
            if patience::gives_up(at) {
                return Err(Fault::Busy);
            }
            walk.step(component, exact)?;
        }
        Ok((walk.dir, walk.stored, None))
    }

    fn open_directory(&self, dir: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
        let follow = self.options.follow_symlinks_inside;
        self.open_inside(dir, path, DIRECTORY, follow)
    }

    /// Returns the entry at a location and its state: the exact name if it exists, else the first
    /// in byte order that folds alike. `seen` is the directory's state, if it has just been read.
    pub(crate) fn existing(
        &self,
        place: &Location,
        exact: bool,
        mut seen: Option<Seen>,
    ) -> VfsResult<(Vec<u8>, Statx)> {
        for _ in 0..RETRIES {
            match sys::stat_at(place.parent.fd(), &place.wanted) {
                // In a directory that ignores case another spelling may have answered, so the
                // stored name is looked up below.
                Ok(stx) if self.is_any_spelling(place.parent.fd(), &place.wanted, &stx) => {}
                Ok(stx) => return Ok((place.wanted.clone(), stx)),
                Err(Errno::NOENT) if exact => return Err(Fault::NotFound),
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(walk_fault(errno)),
            }
            let parent = match seen.take() {
                Some(seen) => seen,
                None => Seen::of(&sys::stat_fd(place.parent.fd()).map_err(fault_of)?),
            };
            let entry = self.folded(&place.parent, parent, &place.wanted)?;
            let entry = entry.ok_or(Fault::NotFound)?;
            self.admit(&place.path_of(&entry))?;
            match sys::stat_at(place.parent.fd(), &entry) {
                Ok(stx) => return Ok((entry, stx)),
                // The entry was removed after the look-up, so the cache is told that it is missing.
                Err(Errno::NOENT) => self.names.missed(parent.key, &entry),
                Err(errno) => return Err(walk_fault(errno)),
            }
        }
        Err(Fault::Busy)
    }

    /// Returns the entry `wanted`, or the one that folds alike or has this short name.
    pub(crate) fn folded(
        &self,
        dir: &Dir,
        seen: Seen,
        wanted: &[u8],
    ) -> VfsResult<Option<Vec<u8>>> {
        match self.names.find(dir, seen, wanted) {
            Ok(found) => Ok(found),
            // The user may not list the directory, so only a name with the exact spelling can be
            // found.
            Err(Errno::ACCESS) => match sys::stat_at(dir.fd(), wanted) {
                Ok(_) => Ok(Some(wanted.to_vec())),
                Err(Errno::NOENT) => Ok(None),
                Err(errno) => Err(walk_fault(errno)),
            },
            // The open directory itself was removed, so the name does not exist.
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(walk_fault(errno)),
        }
    }
}

/// A walk from the root, component by component, in the stored spelling.
struct Walk<'a> {
    share: &'a Share,
    dir: Dir,
    /// The path of `dir`, as stored.
    stored: Vec<u8>,
    /// True once a link was followed: from then on the object that each component leads to is
    /// checked.
    linked: bool,
}

impl<'a> Walk<'a> {
    fn new(share: &'a Share, bytes: usize) -> Self {
        let dir = Dir::Root(Arc::clone(&share.root));
        Self { share, dir, stored: Vec::with_capacity(bytes), linked: false }
    }

    /// Goes on into the directory `component`, or into one whose name differs in case only.
    fn step(&mut self, component: &[u8], exact: bool) -> VfsResult<()> {
        match self.enter(component) {
            Err(Errno::NOENT) if !exact => {}
            Err(Errno::NOENT) => return Err(Fault::PathNotFound),
            other => return other.map_err(|errno| self.fault(errno, component)),
        }
        let stx = sys::stat_fd(self.dir.fd()).map_err(fault_of)?;
        let entry = self.share.folded(&self.dir, Seen::of(&stx), component)?;
        let entry = entry.ok_or(Fault::PathNotFound)?;
        self.share.admit_entry(&self.stored, &entry)?;
        self.enter(&entry).map_err(|errno| match errno {
            Errno::NOENT => Fault::PathNotFound,
            other => self.fault(other, &entry),
        })
    }

    fn enter(&mut self, entry: &[u8]) -> Result<(), Errno> {
        let bytes = self.stored.len();
        if bytes > 0 {
            self.stored.push(b'/');
        }
        self.stored.extend_from_slice(entry);
        match self.open(entry) {
            Ok(fd) => self.dir = Dir::Sub(Arc::new(fd)),
            Err(errno) => {
                self.stored.truncate(bytes);
                return Err(errno);
            }
        }
        Ok(())
    }

    /// Opens the entry, which is the last component of the path as well.
    fn open(&mut self, entry: &[u8]) -> Result<OwnedFd, Errno> {
        let share = self.share;
        let near = if self.linked {
            Err(Errno::LOOP)
        } else {
            share.open_inside(self.dir.fd(), entry, DIRECTORY, false)
        };
        let fd = match near {
            // A followed link may contain ".." up to the root, so the walk starts again at the root
            // of the share.
            Err(Errno::LOOP) if share.options.follow_symlinks_inside => {
                self.linked = true;
                share.open_inside(share.root.as_fd(), &self.stored, DIRECTORY, true)?
            }
            near => near?,
        };
        if share.keeps_attributes() && reparse_way::is_marked(fd.as_fd()) {
            return Err(Errno::LOOP);
        }
        Ok(fd)
    }

    /// Returns the fault of an entry that is no directory: it may be a file with a reparse point.
    fn fault(&self, errno: Errno, entry: &[u8]) -> Fault {
        let below = join(&join(&self.stored, entry), b"");
        match (errno, self.share.check_way(&below)) {
            (Errno::NOTDIR, Err(fault)) => fault,
            _ => walk_fault(errno),
        }
    }
}
