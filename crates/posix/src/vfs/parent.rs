//! Work in a directory that is open already, because its security was read.

use std::any::Any;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use frevo_store::vfs::{Existence, OpenHow, Opened, Parent, VfsResult};
use frevo_store::{Fault, FileKey, Name, vfs::Vfs as _};

use crate::dir::Dir;
use crate::errno::fault_of;
use crate::limits::PATH_BYTES;
use crate::names::client_name;
use crate::node::PosixNode;
use crate::security;
use crate::share::walk::Location;
use crate::stat::{self, Extra};
use crate::sys;
use crate::vfs::PosixVfs;
use crate::vfs::opening::Object;
use crate::xattr::Handle;

impl PosixVfs {
    /// Opens the parent of `name`; see [`frevo_store::Vfs::open_parent`]. Its stored attributes are
    /// not read.
    pub(crate) fn parent_of(&self, name: &Name) -> VfsResult<Opened> {
        let (share, name) = (self.share(), name.parent());
        let how = &OpenHow::DIRECTORY;
        let path = self.path_of(&name, name.is_exact())?;
        if path.as_bytes().len() > PATH_BYTES {
            return self.open(&name, how);
        }
        let opened = match &share.readable_root {
            Some(root) if path.is_root() => {
                let handle = Handle::of_shared(Arc::clone(root));
                sys::stat_fd(handle.fd()).map(|stx| Object { handle, stx }).map_err(fault_of)
            }
            _ => match share.kept_folder(path.as_bytes()) {
                Some((fd, stx)) => Ok(Object { handle: Handle::of_shared(fd), stx }),
                None => {
                    self.open_existing(share.root.as_fd(), path.as_bytes(), how).inspect(|object| {
                        share.keep_folder(path.as_bytes(), &object.handle, &object.stx);
                    })
                }
            },
        };
        let found = match opened {
            Ok(found) => found,
            // The name may be stored in another case, so it is opened by walking the path.
            Err(Fault::NotFound | Fault::Stale) if !path.is_root() => return self.open(&name, how),
            Err(fault) => return Err(fault),
        };
        let (root, object) = (share.root.as_fd(), found.handle.fd());
        if share.is_new_spelling(root, path.as_bytes(), object, &found.stx) {
            return self.open(&name, how);
        }
        let name = if path.is_root() {
            Name::root()
        } else if name.is_exact() || share.casing.respells() {
            client_name(path.as_bytes(), share.spelling)
        } else {
            Name::from_stored(name.path().to_owned())
        };
        Ok(self.looked_at(found, name))
    }

    /// Returns the key of the parent of `name`; one look at it if it is kept open.
    pub(crate) fn key_of_parent(&self, name: &Name) -> VfsResult<FileKey> {
        let parent = name.parent();
        let path = self.path_of(&parent, parent.is_exact())?;
        match self.share().kept_folder(path.as_bytes()) {
            Some((_, stx)) => Ok(stat::key_of(&stx)),
            None => self.stat(&parent).map(|stat| stat.key),
        }
    }

    fn looked_at(&self, object: Object, name: Name) -> Opened {
        let Object { handle, stx } = object;
        let share = self.share();
        let stat = share.stat_of(&stx, &Extra::default());
        let version = share.version(&stx);
        let is_bare = version.is_some_and(|version| security::is_bare(share, version));
        let node = PosixNode::new(Arc::clone(share), handle, &stx, &OpenHow::DIRECTORY, false);
        let node = if is_bare { node } else { node.seen_as(version) };
        let (node, created, file_created) = (Arc::new(node), false, false);
        Opened { node, stat, created, file_created, is_bare, name }
    }

    /// Opens `name` in an open parent; see [`frevo_store::Vfs::open_in`]. If the directory was
    /// renamed meanwhile, that counts as a later rename. If it was removed, a walk from the root
    /// returns the right error.
    pub(crate) fn open_below(
        &self,
        parent: Parent<'_>,
        name: &Name,
        how: &OpenHow,
    ) -> VfsResult<Opened> {
        let creates = how.existence != Existence::MustExist;
        if how.write && how.existence != Existence::MustNotExist {
            self.share().writable()?;
        }
        match self.place_below(parent, name, how) {
            Some((place, node)) => match self.open_placed(place, node, name, how) {
                Err(Fault::NotFound) if creates => self.open(name, how),
                other => other,
            },
            None => self.open(name, how),
        }
    }

    /// Returns the location below `parent`. None if the walk must begin at the root: a followed
    /// link may lead up to it, and streams are in no directory.
    fn place_below<'a>(
        &self,
        parent: Parent<'a>,
        name: &Name,
        how: &OpenHow,
    ) -> Option<(Location, &'a PosixNode)> {
        let share = self.share();
        if name.stream().is_some() || share.options.follow_symlinks_inside {
            return None;
        }
        let node: &dyn Any = parent.node;
        let node: &PosixNode = node.downcast_ref()?;
        node.as_directory_of(share)?;
        let posix = how.case_sensitive || name.is_exact();
        let path = self.path_of(name, posix).ok()?;
        let (_, wanted) = path.split();
        if wanted.is_empty() {
            return None;
        }
        if parent.name.is_root() {
            let root = Dir::Root(Arc::clone(&share.root));
            return Some((Location::new(root, Vec::new(), wanted, share.spelling), node));
        }
        let above = self.path_of(parent.name, posix).ok()?.as_bytes().to_vec();
        let place = Location::new(Dir::Sub(node.handle().shared()), above, wanted, share.spelling);
        share.admit(&place.path_of(wanted)).ok()?;
        Some((place, node))
    }

    fn open_placed(
        &self,
        place: Location,
        parent: &PosixNode,
        name: &Name,
        how: &OpenHow,
    ) -> VfsResult<Opened> {
        if how.existence != Existence::MustNotExist {
            match self.open_existing(place.parent.fd(), &place.wanted, how) {
                Ok(found) => {
                    let (dir, object) = (place.parent.fd(), found.handle.fd());
                    if self.share().is_new_spelling(dir, &place.wanted, object, &found.stx) {
                        return self.open(name, how);
                    }
                    let (name, entry) = (place.name_of(&place.wanted), &place.wanted);
                    return Ok(self.opened(found, how, name, entry));
                }
                Err(Fault::NotFound | Fault::Stale) => {}
                Err(fault) => return Err(fault),
            }
        }
        let exact = how.case_sensitive || self.share().exact(name);
        let key = parent.as_directory_of(self.share());
        let seen = key.and_then(|key| self.share().names.watched(key));
        self.open_in_place(place, seen, exact, how)
    }
}
