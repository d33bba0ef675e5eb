//! Opening existing objects and creating new ones.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use frevo_store::vfs::{
    Existence, Kind, KindWanted, OpenHow, Opened, STORED_ATTRIBUTES, VfsResult,
};
use frevo_store::{Fault, FileKey, Name};
use frevo_wire::dtyp::{FileAttributes, FileTime};
use rustix::fs::{Mode, OFlags, Statx};
use rustix::io::Errno;

use crate::cache::Seen;
use crate::dosattrib::DosAttrib;
use crate::errno::{fault_of, walk_fault};
use crate::limits::RETRIES;
use crate::names::DiskPath;
use crate::node::PosixNode;
use crate::options::Heritage;
use crate::share::known_paths::KnownPath;
use crate::share::walk::Location;
use crate::stat::{self, Extra};
use crate::vfs::PosixVfs;
use crate::vfs::made::Made;
use crate::xattr::{DOSATTRIB, Handle};
use crate::{facts, reparse_tag, security, sys, writable};

/// An object that was opened, and its state.
pub(crate) struct Object {
    pub(crate) handle: Handle,
    pub(crate) stx: Statx,
}

impl PosixVfs {
    /// Opens an existing object at `path` below `dir`. Fails with NotFound if a component is
    /// missing.
    pub(crate) fn open_existing(
        &self,
        dir: BorrowedFd<'_>,
        path: &[u8],
        how: &OpenHow,
    ) -> VfsResult<Object> {
        let follow = self.share().options.follow_symlinks_inside && !how.open_link;
        if how.kind == KindWanted::Directory {
            // With O_DIRECTORY the kernel opens directories only, so the kind need not be looked up
            // before.
            match self.open_as(dir, path, how, Some(Kind::Directory)) {
                Err(Fault::NotADirectory | Fault::PathNotDirectory | Fault::Symlink) => {}
                opened => return opened,
            }
        }
        let is_look = !how.read && !how.write && !follow;
        let known = is_look.then(|| self.share().path_below_root(dir, path)).flatten();
        if known.is_some_and(KnownPath::is_noted) {
            // O_PATH has no side effects on any object, whatever its kind. Reading extended
            // attributes through it is slower, but they are usually cached.
            let found = self.open_as(dir, path, how, None)?;
            if self.knows(&found.stx) {
                return Ok(found);
            }
            return self.open_as(dir, path, how, Some(stat::kind_of(&found.stx)));
        }
        let kind = kind_before(dir, path, follow)?;
        let found = self.open_as(dir, path, how, kind)?;
        if let Some(path) = known.filter(|_| self.knows(&found.stx)) {
            path.note();
        }
        Ok(found)
    }

    /// True if no attribute of a file with this state has to be read to open it.
    fn knows(&self, stx: &Statx) -> bool {
        let share = self.share();
        let Some(version) = share.version(stx) else { return false };
        (!share.keeps_attributes() || facts::knows_dos_attrib(version))
            && security::needs_no_read(share, version)
    }

    /// Opens an object of this `kind`, if its kind could be seen before.
    fn open_as(
        &self,
        dir: BorrowedFd<'_>,
        path: &[u8],
        how: &OpenHow,
        kind: Option<Kind>,
    ) -> VfsResult<Object> {
        let follow = self.share().options.follow_symlinks_inside && !how.open_link;
        let link = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        // Opening a FIFO or a device has side effects, so the kind is looked up first. Only root
        // could exchange the object after that, and the kind is checked again below.
        let kind = kind.filter(|&kind| how.check(kind).is_ok());
        let mut flags = kind.map_or(OFlags::PATH, |kind| data_flags(kind, how));
        let open = |flags| self.share().open_inside(dir, path, flags | link, follow);
        let fd = match open(flags) {
            // The user may not read the file, but its attributes can be read nevertheless. So it is
            // opened with O_PATH.
            Err(Errno::ACCESS | Errno::PERM | Errno::AGAIN)
                if kind.is_some_and(|kind| !needs_data(kind, how)) =>
            {
                flags = OFlags::PATH;
                open(flags)
            }
            opened => opened,
        };
        let fd = fd.map_err(walk_fault)?;
        let handle = Handle::new(fd, flags.contains(OFlags::PATH));
        let stx = self.share().stat_opened(handle.fd()).map_err(fault_of)?;
        let kind = stat::kind_of(&stx);
        how.check(kind)?;
        if kind == Kind::Symlink {
            how.check_link(&handle.link_target().map_err(fault_of)?)?;
        }
        if handle.is_path_only() && needs_data(kind, how) {
            // The object was replaced by one of another kind meanwhile, so the caller must look it
            // up again.
            return Err(Fault::Stale);
        }
        Ok(Object { handle, stx })
    }

    pub(crate) fn opened(&self, object: Object, how: &OpenHow, name: Name, entry: &[u8]) -> Opened {
        let Object { handle, stx } = object;
        let remembered = self.share().remembered(&stx);
        let has_dos = self.share().keeps_attributes() && stat::kind_of(&stx) != Kind::Symlink;
        let dos = has_dos
            .then(|| remembered.dos_attrib(&stx, |value| handle.value(DOSATTRIB, value)))
            .flatten();
        // The names of all attributes are listed only for a handle that reads no data, because
        // reading a single attribute is cheaper.
        let is_look = !how.read && !how.write && self.share().options.list_ea_sizes;
        let has_eas = matches!(stat::kind_of(&stx), Kind::File | Kind::Directory);
        let extra = Extra {
            dos,
            hidden_name: self.share().hides(entry),
            ea_size: if is_look && has_eas { remembered.ea_size(|| handle.ea_size()) } else { 0 },
            reparse_tag: reparse_tag::tag(dos, |into| handle.value(reparse_tag::ATTRIBUTE, into)),
            is_directory_link: handle.is_directory_link(&stx),
        };
        let stat = self.share().stat_of(&stx, &extra);
        if extra.reparse_tag != 0
            && let Ok(path) = DiskPath::of(&name, name.is_exact(), self.share().spelling)
        {
            // The object is a reparse point, perhaps made by another program, so what is remembered
            // about its path is dropped.
            self.share().way_replaced(path.as_bytes());
        }
        let version = self.share().version(&stx);
        let is_bare = version.is_some_and(|version| security::is_bare(self.share(), version));
        let node = PosixNode::new(Arc::clone(self.share()), handle, &stx, how, extra.hidden_name);
        let node = if is_bare { node } else { node.seen_as(version) };
        let (node, created, file_created) = (Arc::new(node), false, false);
        Opened { node, stat, created, file_created, is_bare, name }
    }

    /// Opens or creates an object that no single call could open.
    pub(crate) fn open_at(&self, path: &DiskPath, exact: bool, how: &OpenHow) -> VfsResult<Opened> {
        let place = self.share().place(path, exact)?;
        self.open_in_place(place, None, exact, how)
    }

    /// Opens or creates an object in an open parent; `seen` is the parent's state if it has just
    /// been read.
    pub(crate) fn open_in_place(
        &self,
        mut place: Location,
        mut seen: Option<Seen>,
        exact: bool,
        how: &OpenHow,
    ) -> VfsResult<Opened> {
        // True if the last attempt found a name that could not be opened. FUSE caches a name for a
        // second after another host has removed it. A failed open ends this caching, so the next
        // attempt sees that the name is gone.
        let mut was_gone = false;
        for attempt in 0..RETRIES {
            let parent = match seen.take().or(place.seen.take()) {
                Some(seen) => seen,
                None => Seen::of(&sys::stat_fd(place.parent.fd()).map_err(fault_of)?),
            };
            let creates = how.existence != Existence::MustExist;
            self.share().names.yield_to_readers(parent.key).map_err(fault_of)?;
            let naming =
                (creates && !exact).then(|| self.share().names.naming(parent.key, &place.wanted));
            let _naming = naming.transpose().map_err(fault_of)?;
            let stored = if was_gone && exact {
                None
            } else if !was_gone && (attempt > 0 || exact) {
                match self.share().existing(&place, exact, Some(parent)) {
                    Ok((stored, _)) => Some(stored),
                    Err(Fault::NotFound) => None,
                    Err(fault) => return Err(fault),
                }
            } else {
                self.share().folded(&place.parent, parent, &place.wanted)?
            };
            if let Some(stored) = &stored {
                self.share().admit(&place.path_of(stored))?;
            }
            let attempt = match &stored {
                Some(_) if how.existence == Existence::MustNotExist => Err(Fault::Exists),
                Some(stored) => self.open_stored(&place, stored, how),
                None if creates => {
                    if let Some(long) = self.share().tunnelled(parent.key, &place.wanted) {
                        place.wanted = long;
                    }
                    self.create(&place, parent.key, how)
                }
                None => Err(Fault::NotFound),
            };
            match (attempt, &stored) {
                // The found entry was removed meanwhile, or a missing one was made, so it is looked
                // up again.
                (Err(fault @ (Fault::NotFound | Fault::Stale)), Some(stored)) => {
                    self.share().names.missed(parent.key, stored);
                    was_gone = fault == Fault::NotFound;
                }
                (Err(Fault::Exists), None) => was_gone = false,
                (other, _) => return other,
            }
        }
        let is_absent = was_gone && how.existence == Existence::MustExist;
        Err(if is_absent { Fault::NotFound } else { Fault::Busy })
    }

    fn open_stored(&self, place: &Location, stored: &[u8], how: &OpenHow) -> VfsResult<Opened> {
        let found = if self.share().options.follow_symlinks_inside {
            self.open_existing(self.share().root.as_fd(), &place.path_of(stored), how)?
        } else {
            self.open_existing(place.parent.fd(), stored, how)?
        };
        Ok(self.opened(found, how, place.name_of(stored), stored))
    }

    /// Creates an object in a directory with the key `parent`.
    fn create(&self, place: &Location, parent: FileKey, how: &OpenHow) -> VfsResult<Opened> {
        self.share().writable()?;
        let entry = place.wanted.as_slice();
        let before = stat::coarse_clock();
        let from = self.heritage(place.parent.fd()).map_err(fault_of)?;
        let fd = if how.kind == KindWanted::Directory {
            self.make_directory(place, how, from)?
        } else {
            let masked = self.share().options.file_mode_of(how.mode, how.attributes, from);
            let flags = access_flags(how)
                | OFlags::CREATE
                | OFlags::EXCL
                | OFlags::NOFOLLOW
                | OFlags::NONBLOCK
                | OFlags::NOCTTY;
            let mode = Mode::from_raw_mode(masked);
            sys::open_beneath(place.parent.fd(), entry, flags, mode, false).map_err(walk_fault)?
        };
        self.share().names.came(parent, entry);
        let handle = Handle::new(fd, false);
        let made = Made { place, how, from, before };
        self.settle_mode(&handle, made)?;
        // If the attributes of the new file cannot be stored, the CREATE succeeds nevertheless. Its user
        // may not be able to store them after it was given away.
        let dos = self.new_dos_attrib(how, before);
        let dos = dos.filter(|dos| handle.set_dos_attrib(dos).is_ok());
        let is_given = self.give(&handle, made)?;
        // The stat is the last call, because after a change time was read, the kernel stores the
        // next one with a finer resolution, which would slow down the calls above.
        let stx = sys::stat_fd(handle.fd()).map_err(fault_of)?;
        writable::note(stx.stx_mnt_id);
        if stat::birth_of(&stx).is_some_and(|birth| birth >= before) {
            self.share().note_new(&stx, dos);
            let root = self.share().root.as_fd();
            let path = self.share().path_below_root(root, &place.path_of(entry));
            path.into_iter().for_each(KnownPath::note);
        }
        let dos = dos.map(|dos| dos.with_birth(stat::birth_of(&stx)));
        let extra = Extra { dos, hidden_name: self.share().hides(entry), ..Extra::default() };
        let stat = self.share().stat_of(&stx, &extra);
        let node = PosixNode::new(Arc::clone(self.share()), handle, &stx, how, extra.hidden_name);
        let node = if is_given { node.given() } else { node };
        node.was_created_in(place.parent.clone());
        let name = place.name_of(entry);
        let (node, created, file_created) = (Arc::new(node), true, true);
        Ok(Opened { node, stat, created, file_created, is_bare: false, name })
    }

    /// Returns the attributes to store for a new file. The kernel's clock said `before` when it was
    /// to be made.
    fn new_dos_attrib(&self, how: &OpenHow, before: FileTime) -> Option<DosAttrib> {
        if !self.share().keeps_attributes() {
            return None;
        }
        // MS-FSA 2.1.5.1.1: a new file's write time is its creation time. Clients see the file
        // system's exact birth time, from which the server's clock can differ by a tick.
        let created = Some(before);
        let directory = how.kind == KindWanted::Directory;
        let bits = if directory { FileAttributes::DIRECTORY } else { FileAttributes::EMPTY };
        let attributes = (how.attributes & STORED_ATTRIBUTES) | bits;
        let attributes = attributes.0;
        Some(DosAttrib { attributes, created, at_birth: true, ..DosAttrib::default() })
    }

    fn make_directory(
        &self,
        place: &Location,
        how: &OpenHow,
        from: Heritage,
    ) -> VfsResult<OwnedFd> {
        let masked = self.share().options.directory_mode_of(how.mode, from);
        let entry = place.wanted.as_slice();
        let parent = place.parent.fd();
        rustix::fs::mkdirat(parent, entry, Mode::from_raw_mode(masked)).map_err(fault_of)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        sys::open_beneath(parent, entry, flags, Mode::empty(), false).map_err(walk_fault)
    }
}

/// Returns the kind of `path` before it is opened, if it can be seen. Links before the last
/// component may lead this look out of the share: only the choice of flags may depend on it.
fn kind_before(dir: BorrowedFd<'_>, path: &[u8], follow: bool) -> VfsResult<Option<Kind>> {
    if path == b"." {
        return Ok(Some(Kind::Directory));
    }
    let kind = match sys::stat_at(dir, path) {
        Ok(stx) => stat::kind_of(&stx),
        Err(Errno::NOENT) => return Err(Fault::NotFound),
        Err(_) => return Ok(None),
    };
    if !follow || kind != Kind::Symlink {
        return Ok(Some(kind));
    }
    let target = sys::open_beneath(dir, path, OFlags::PATH, Mode::empty(), true);
    let target = target.map_err(walk_fault)?;
    sys::stat_fd(target.as_fd()).map(|stx| Some(stat::kind_of(&stx))).map_err(fault_of)
}

const fn needs_data(kind: Kind, how: &OpenHow) -> bool {
    match kind {
        Kind::File => how.read || how.write,
        Kind::Directory => how.read,
        _ => false,
    }
}

fn access_flags(how: &OpenHow) -> OFlags {
    match (how.read, how.write) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    }
}

/// Returns the flags for opening an object of this kind. Special files and links are opened only as
/// paths (O_PATH). Files and directories are opened for reading even to look at attributes, because
/// extended attributes cost twice as much through `/proc`.
fn data_flags(kind: Kind, how: &OpenHow) -> OFlags {
    match kind {
        Kind::File => access_flags(how) | OFlags::NONBLOCK | OFlags::NOCTTY,
        Kind::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
        _ => OFlags::PATH,
    }
}
