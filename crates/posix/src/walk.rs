//! From a name to a place: an open parent directory and an entry in it.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use frevo_store::{Fault, Name, vfs::VfsResult};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::errno::walk_fault;
use crate::fold;
use crate::limits::{LIST_BUFFER_BYTES, PATH_BYTES};
use crate::names::{self, DiskPath};
use crate::sys;
use crate::vfs::Share;

/// A directory that is held open while one of its entries is worked on.
#[derive(Debug, Clone)]
pub(crate) enum Dir {
    /// The share's root.
    Root(Arc<OwnedFd>),
    /// Another.
    Sub(Arc<OwnedFd>),
}

impl Dir {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Root(fd) | Self::Sub(fd) => fd.as_fd(),
        }
    }
}

/// Where the last component of a name is, or would be.
#[derive(Debug)]
pub(crate) struct Place {
    /// The containing directory.
    pub(crate) parent: Dir,
    /// Its path below the root as stored.
    pub(crate) parent_path: Vec<u8>,
    /// The last component as it was asked for.
    pub(crate) wanted: Vec<u8>,
    /// The last component as it is stored, if it exists.
    pub(crate) stored: Option<Vec<u8>>,
}

impl Place {
    /// The path below the root of an entry of the parent.
    pub(crate) fn path_of(&self, entry: &[u8]) -> Vec<u8> {
        join(&self.parent_path, entry)
    }

    /// The name that clients see for an entry of the parent.
    pub(crate) fn name_of(&self, entry: &[u8]) -> Name {
        client_name(&self.path_of(entry))
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

/// The name that clients see for a path on the medium.
fn client_name(path: &[u8]) -> Name {
    let mut name = String::with_capacity(path.len());
    for component in path.split(|&b| b == b'/') {
        if !name.is_empty() {
            name.push('\\');
        }
        name.push_str(&names::map(component));
    }
    Name::from_stored(name)
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

impl Share {
    /// Finds the place that `path` means; the parent must exist.
    pub(crate) fn place(&self, path: &DiskPath, exact: bool) -> VfsResult<Place> {
        let (parent_path, wanted) = path.split();
        if wanted.is_empty() {
            // The root is in no directory that anybody could change.
            return Err(Fault::AccessDenied);
        }
        let (parent, parent_path) = self.directory(parent_path, exact)?;
        let stored = self.entry(&parent, wanted, exact)?;
        Ok(Place { parent, parent_path, wanted: wanted.to_vec(), stored })
    }

    /// Opens the directory at `path`, and tells its path as stored.
    fn directory(&self, path: &[u8], exact: bool) -> VfsResult<(Dir, Vec<u8>)> {
        if path.is_empty() {
            return Ok((Dir::Root(Arc::clone(&self.root)), Vec::new()));
        }
        if path.len() <= PATH_BYTES {
            match self.open_directory(self.root.as_fd(), path) {
                Ok(fd) => return Ok((Dir::Sub(Arc::new(fd)), path.to_vec())),
                Err(Errno::NOENT) if exact => return Err(Fault::PathNotFound),
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(walk_fault(errno)),
            }
        }
        let mut dir = Dir::Root(Arc::clone(&self.root));
        let mut stored = Vec::with_capacity(path.len());
        for component in path.split(|&b| b == b'/') {
            (dir, stored) = self.step(&dir, &stored, component, exact)?;
        }
        Ok((dir, stored))
    }

    /// One component further down, in the case that is stored.
    fn step(
        &self,
        dir: &Dir,
        stored: &[u8],
        component: &[u8],
        exact: bool,
    ) -> VfsResult<(Dir, Vec<u8>)> {
        let open = |entry: &[u8]| {
            let path = join(stored, entry);
            // A link that is followed may use ".." up to the share's root, so
            // then the root has to be where the walk begins.
            let opened = if self.options.follow_symlinks_inside {
                self.open_directory(self.root.as_fd(), &path)
            } else {
                self.open_directory(dir.fd(), entry)
            };
            opened.map(|fd| (Dir::Sub(Arc::new(fd)), path))
        };
        match open(component) {
            Err(Errno::NOENT) if !exact => {}
            Err(Errno::NOENT) => return Err(Fault::PathNotFound),
            other => return other.map_err(walk_fault),
        }
        let entry = self.folded(dir, component)?.ok_or(Fault::PathNotFound)?;
        open(&entry).map_err(|errno| match errno {
            Errno::NOENT => Fault::PathNotFound,
            other => walk_fault(other),
        })
    }

    fn open_directory(&self, dir: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
        let follow = self.options.follow_symlinks_inside;
        sys::open_beneath(dir, path, DIRECTORY, Mode::empty(), follow)
    }

    /// How an entry is stored: exactly as wanted if that exists, else the first
    /// in byte order that folds alike.
    pub(crate) fn entry(
        &self,
        dir: &Dir,
        wanted: &[u8],
        exact: bool,
    ) -> VfsResult<Option<Vec<u8>>> {
        match sys::stat_at(dir.fd(), wanted) {
            Ok(_) => return Ok(Some(wanted.to_vec())),
            Err(Errno::NOENT) if exact => return Ok(None),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(walk_fault(errno)),
        }
        self.folded(dir, wanted)
    }

    /// The first entry in byte order that folds as `wanted` does.
    pub(crate) fn folded(&self, dir: &Dir, wanted: &[u8]) -> VfsResult<Option<Vec<u8>>> {
        let Ok(wanted_text) = core::str::from_utf8(wanted) else { return Ok(None) };
        let mut best: Option<Vec<u8>> = None;
        let listed = self.each_entry(dir, |entry| {
            let alike = core::str::from_utf8(entry).is_ok_and(|e| fold::alike(e, wanted_text));
            if alike && best.as_deref().is_none_or(|best| entry < best) {
                best = Some(entry.to_vec());
            }
        });
        match listed {
            Ok(()) => Ok(best),
            // Whoever may not list a directory finds exact names only.
            Err(Errno::ACCESS) => Ok(None),
            Err(errno) => Err(walk_fault(errno)),
        }
    }

    fn each_entry(&self, dir: &Dir, mut visit: impl FnMut(&[u8])) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = sys::open_beneath(dir.fd(), b".", flags, Mode::empty(), false)?;
        let mut buffer = vec![std::mem::MaybeUninit::uninit(); LIST_BUFFER_BYTES];
        let mut entries = rustix::fs::RawDir::new(fd, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            visit(entry.file_name().to_bytes());
        }
        Ok(())
    }
}
