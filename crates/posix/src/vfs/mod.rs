//! [`PosixVfs`]: looks up, creates, renames and removes names.

mod made;
mod opening;
mod parent;
mod replace;
mod stream_node;
mod streams;

use std::any::Any;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use frevo_store::snapshot::Moment;
use frevo_store::vfs::{
    Existence, Kind, Node, OpenHow, Opened, Parent, QuotaLimits, QuotaState, Replacement, Space,
    UserQuota, Vfs, VfsResult, Volume,
};
use frevo_store::{Fault, FileKey, HostPlaces, Name, Observation, Observer, Stat};
use frevo_wire::fscc::Pattern;
use parking_lot::MutexGuard;
use rustix::fs::{Access, AtFlags, Mode, OFlags, RenameFlags, ResolveFlags, Statx};
use rustix::io::Errno;

use crate::cache::{NameCache, Seen, ShortNames, Watching};
use crate::case_rename::{is_one_entry, rename_case};
use crate::casing::Casing;
use crate::errno::fault_of;
use crate::limits::{DIRECTORY_ON_CORE, PATH_BYTES, RENAMED_FOLDERS, RETRIES};
use crate::names::{DiskPath, client_name};
use crate::node::PosixNode;
use crate::options::PosixOptions;
use crate::patience;
use crate::renamed::{Identity, Known};
use crate::share::Share;
use crate::share::guard::{self, Guard};
use crate::share::reparse_way::Ways;
use crate::share::streams::Table;
use crate::share::walk::{Location, Respelled};
use crate::snapshots::{Snapshots, Wanted};
use crate::stat;
use crate::tunnels::Tunnels;
use crate::xattr::DOSATTRIB;
use crate::{host, quota, subvolumes, sys, volume};

/// The access of a process to a shared folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// False if it may not make files in the folder.
    pub takes_files: bool,
    /// False if it may not read the folder.
    pub lists: bool,
}

/// A directory of the host as a file system.
#[derive(Debug)]
pub struct PosixVfs {
    share: Arc<Share>,
}

impl PosixVfs {
    /// Opens the directory `path` as the root of a share.
    ///
    /// # Errors
    /// If it is no directory, if the kernel lacks openat2 (Linux 5.6) or refuses it, or if `/proc`
    /// is not mounted; the error's text tells which.
    pub fn open_root(path: &Path, options: PosixOptions) -> std::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        let guards = guard::guards(root.as_fd(), &options);
        Self::of_root(root, options, guards, 0)
    }

    /// Opens the directory at `part` below `folder` as the root of a share. Links in `part`, which
    /// users may make, are not followed.
    ///
    /// # Errors
    /// As [`Self::open_root`].
    pub fn open_part(folder: &Path, part: &Path, options: PosixOptions) -> std::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, Mode::empty())?;
        let part = std::os::unix::ffi::OsStrExt::as_bytes(part.as_os_str());
        let root = sys::open_beneath(folder.as_fd(), part, flags, Mode::empty(), false)?;
        let guards = guard::guards(root.as_fd(), &options);
        Self::of_root(root, options, guards, 0)
    }

    /// Makes a share of an open directory; keys of files get `mark`.
    pub(crate) fn of_root(
        root: OwnedFd,
        options: PosixOptions,
        guards: Vec<Guard>,
        mark: u64,
    ) -> std::io::Result<Self> {
        if let Err(errno) = probe_openat2(root.as_fd()) {
            let text = format!(
                "openat2 is needed to keep clients inside the share, and this kernel or sandbox \
                 refuses it: {errno}"
            );
            return Err(std::io::Error::new(std::io::ErrorKind::Unsupported, text));
        }
        if sys::reopen(root.as_fd(), OFlags::PATH).is_err() {
            let text = "/proc/self/fd is needed and cannot be used: is /proc mounted?";
            return Err(std::io::Error::new(std::io::ErrorKind::Unsupported, text));
        }
        let volume = Arc::new(volume::probe(root.as_fd(), &options)?);
        let probed = sys::getxattr_at(root.as_fd(), c".", DOSATTRIB, &mut [0; 256]);
        let entry_xattrs = !matches!(probed, Err(Errno::NOSYS | Errno::PERM));
        let spelling = volume::spelling(root.as_fd());
        let short_names =
            if options.short_names { ShortNames::On(spelling) } else { ShortNames::Off };
        // Nothing changes in a snapshot but when its program makes or removes it, so the times of its
        // directories are proof enough.
        let watching = if mark == 0 { Watching::Inotify } else { Watching::Times };
        let names = Arc::new(NameCache::new(short_names, watching));
        let snapshots = Snapshots::default();
        let streams = Table::open(root.as_fd(), &options);
        let patterns = |texts: &[String]| -> Vec<Pattern> {
            texts.iter().map(|text| Pattern::new(text, true)).collect()
        };
        let (hidden, vetoed) = (patterns(&options.hide_files), patterns(&options.veto));
        let key = stat::key_of(&sys::stat_fd(root.as_fd())?);
        let fills_holes = crate::abilities::fills_holes(root.as_fd());
        let ntacl = crate::security::attribute(root.as_fd());
        let keeps_facts = crate::facts::are_kept(root.as_fd(), entry_xattrs);
        let has_exact_times = keeps_facts && crate::facts::are_times_exact(root.as_fd());
        let is_fuse = volume::is_fuse(root.as_fd());
        let casing = Casing::of(root.as_fd());
        let share = Share {
            is_fuse,
            casing,
            spelling,
            readable_root: if mark == 0 { readable(root.as_fd()) } else { None },
            root: Arc::new(root),
            hidden,
            vetoed,
            tunnels: Tunnels::default(),
            options,
            volume,
            names,
            folders: Arc::default(),
            streams,
            ntacl,
            entry_xattrs,
            keeps_facts,
            has_exact_times,
            fills_holes,
            home: key.device,
            mark,
            folder_id: folder_id_of_root(key, mark),
            snapshots,
            ways: Ways::default(),
            guards,
        };
        crate::remembered::register(&share.names, &share.folders);
        Ok(Self { share: Arc::new(share) })
    }

    /// Finds the side folder of streams if another program has made it since the share was opened.
    pub fn find_side_folder(&self) {
        let share = &self.share;
        share.streams.side.find(share.root.as_fd(), &share.options);
    }

    /// Returns the access of this process to the folder. A confined one has none to a disk that was
    /// mounted after its start.
    pub fn reach(&self) -> Reach {
        let made = crate::extents::nameless(self.share.root.as_fd());
        let takes_files = !matches!(made, Err(Errno::ACCESS));
        Reach { takes_files, lists: self.share.readable_root.is_some() }
    }

    /// True if this process lacks an access that it had as `before`, though the folder's mode allows
    /// it: it is confined to another folder.
    pub fn is_confined_since(&self, before: Reach) -> bool {
        let now = self.reach();
        // accessat(2) does not know the Landlock rules of this process, so it still allows what
        // they forbid. The difference between the two answers shows the confinement.
        let allows = |access| {
            rustix::fs::accessat(self.share.root.as_fd(), c".", access, AtFlags::EACCESS).is_ok()
        };
        before.takes_files && !now.takes_files && allows(Access::WRITE_OK)
            || before.lists && !now.lists && allows(Access::READ_OK)
    }

    /// True while a file or folder of it is open.
    pub fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.share) > 1
    }

    pub(crate) const fn share(&self) -> &Arc<Share> {
        &self.share
    }

    pub(crate) fn path_of(&self, name: &Name, exact: bool) -> VfsResult<DiskPath> {
        let path = DiskPath::of(name, exact, self.share.spelling)?;
        let path = self.share.respelled(path, Respelled::Whole, !exact)?;
        self.share.admit(path.as_bytes())?;
        Ok(path)
    }

    /// Returns the path of a name that a file is to get.
    fn path_to(&self, name: &Name, exact: bool) -> VfsResult<DiskPath> {
        let path = DiskPath::of(name, exact, self.share.spelling)?;
        let path = self.share.respelled(path, Respelled::Parent, !exact)?;
        self.share.admit(path.as_bytes())?;
        Ok(path)
    }

    /// True if the entry of a rename's target is its source, which gets another spelling, where case is
    /// ignored.
    fn is_respelling(
        &self,
        dir: BorrowedFd<'_>,
        stored: &[u8],
        existing: &[u8],
        wanted: &[u8],
    ) -> bool {
        let ignores_case = || {
            let stx = sys::stat_fd(dir);
            stx.is_ok_and(|stx| self.share.ignores_case_in(stat::key_of(&stx).device, dir))
        };
        stored == existing && stored != wanted && self.share.casing.respells() && ignores_case()
    }

    /// Treats the file system as one that ignores case.
    #[cfg(test)]
    pub(crate) fn pretend_to_ignore_case(&mut self) {
        Arc::get_mut(&mut self.share).unwrap().casing.pretend();
    }

    /// Returns the location of `name`, which must exist and be `key`, its stored name and its
    /// state.
    pub(crate) fn place_of(
        &self,
        name: &Name,
        key: FileKey,
    ) -> VfsResult<(Location, Vec<u8>, Statx)> {
        let exact = self.share.exact(name);
        let place = self.share.place(&self.path_of(name, exact)?, exact)?;
        let (stored, stx) = self.share.existing(&place, exact, None)?;
        if stat::key_of(&stx) != key {
            return Err(Fault::Stale);
        }
        Ok((place, stored, stx))
    }

    /// Returns the location of a new name, and the object that has the name now. The guard keeps
    /// other threads from creating the name. `from` is the old name's location.
    fn target(&self, to: &Name, from: Option<&Location>) -> VfsResult<Target<'_>> {
        let exact = self.share.exact(to);
        let path = self.path_to(to, exact)?;
        let place = match from.and_then(|from| from.beside(&path)) {
            Some(place) => place,
            None => self.share.place(&path, exact)?,
        };
        let parent = match place.seen {
            Some(seen) => seen,
            None => Seen::of(&sys::stat_fd(place.parent.fd()).map_err(fault_of)?),
        };
        let naming = (!exact).then(|| self.share.names.naming(parent.key, &place.wanted));
        let naming = naming.transpose().map_err(fault_of)?;
        let existing = match self.share.existing(&place, exact, Some(parent)) {
            Ok(existing) => Some(existing),
            Err(Fault::NotFound) => None,
            Err(fault) => return Err(fault),
        };
        Ok(Target { place, parent: parent.key, existing, _naming: naming })
    }
}

/// Returns the folder's identity, which is equal for all shares of the folder.
fn folder_id_of_root(key: FileKey, mark: u64) -> frevo_store::FolderId {
    let words = [key.inode, key.device, mark];
    let mixed = words.iter().fold(0x9E37_79B9_7F4A_7C15u64, |hash, word| {
        let hash = (hash ^ word).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        hash ^ hash >> 29
    });
    frevo_store::FolderId(mixed as usize)
}

/// The target of a rename or link.
struct Target<'a> {
    place: Location,
    /// The directory.
    parent: FileKey,
    /// The object with that name now: its stored name and its state.
    existing: Option<(Vec<u8>, Statx)>,
    _naming: Option<MutexGuard<'a, ()>>,
}

/// Opens the share's root for reading: a name in the root needs no open of its parent then.
fn readable(root: BorrowedFd<'_>) -> Option<Arc<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    sys::open_beneath(root, b".", flags, Mode::empty(), false).ok().map(Arc::new)
}

/// Tries openat2 on ".", where the kernel's answer is that for every walk.
fn probe_openat2(root: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(root, c".", flags, Mode::empty(), resolve)
}

impl PosixVfs {
    /// Returns the identity of what has a name now. None if it is not of the share's file system, or has no time of
    /// birth.
    fn identity(&self, name: &Name) -> VfsResult<Option<Identity>> {
        let how = OpenHow { open_link: true, ..OpenHow::LOOK };
        let found = self.open(&name.with_stream(None), &how)?;
        let FileKey { device, inode, .. } = found.node.key();
        let birth = found.node.birth().filter(|_| device == self.share.home);
        Ok(birth.map(|birth| Identity { inode, birth }))
    }

    /// Returns what has a name now, and the folders above it, the nearest one first: a program that saves a file may
    /// have put a new one in its place, and so the folder is known alone.
    fn known_today(&self, name: &Name) -> VfsResult<Vec<Known>> {
        let (mut today, mut known) = (name.with_stream(None), Vec::new());
        for below in 0..RENAMED_FOLDERS {
            if today.is_root() {
                break;
            }
            match self.identity(&today) {
                Ok(identity) => known.extend(identity.map(|identity| Known { identity, below })),
                Err(Fault::NotFound | Fault::PathNotFound) => {}
                Err(fault) => return Err(fault),
            }
            today = today.parent();
        }
        Ok(known)
    }
}

impl Vfs for PosixVfs {
    fn open_parent(&self, name: &Name) -> VfsResult<Opened> {
        self.parent_of(name)
    }

    fn folder_id(&self) -> frevo_store::FolderId {
        self.share.folder_id
    }

    fn open_in(&self, parent: Parent<'_>, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        self.open_below(parent, name, how)
    }

    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        if how.write && how.existence != Existence::MustNotExist {
            self.share.writable()?;
        }
        if name.stream().is_some() {
            return self.open_stream(name, how);
        }
        let exact = how.case_sensitive || self.share.exact(name);
        let path = self.path_of(name, how.case_sensitive || name.is_exact())?;
        if path.is_root() {
            if how.existence == Existence::MustNotExist {
                return Err(Fault::Exists);
            }
            let found = self.open_existing(self.share.root.as_fd(), b".", how)?;
            return Ok(self.opened(found, how, Name::root(), b""));
        }
        if how.existence != Existence::MustNotExist && path.as_bytes().len() <= PATH_BYTES {
            match self.open_existing(self.share.root.as_fd(), path.as_bytes(), how) {
                Ok(found) => {
                    let root = self.share.root.as_fd();
                    let object = found.handle.fd();
                    if self.share.is_new_spelling(root, path.as_bytes(), object, &found.stx) {
                        return self.open(name, how);
                    }
                    let is_stored = how.case_sensitive || name.is_exact();
                    let name = if is_stored || self.share.casing.respells() {
                        // POSIX clients could send a reserved character in two ways, so the stored
                        // bytes decide about the name that is shown.
                        client_name(path.as_bytes(), self.share.spelling)
                    } else {
                        Name::from_stored(name.path().to_owned())
                    };
                    return Ok(self.opened(found, how, name, path.split().1));
                }
                Err(Fault::NotFound | Fault::Stale) => {}
                Err(fault) => return Err(fault),
            }
        }
        self.open_at(&path, exact, how)
    }

    fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        self.share.writable()?;
        if name.stream().is_some() {
            return self.remove_stream(name, key);
        }
        let (place, stored, stx) = self.place_of(name, key)?;
        let directory = stat::kind_of(&stx) == Kind::Directory;
        let side = self.share.side_of_entry(place.parent.fd(), &stored, &stx);
        briefly_removed(&stx, side.is_some())?;
        let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(place.parent.fd(), stored.as_slice(), flags) {
            Ok(()) => {
                self.share.names.stirred();
                self.share.forget_side(side);
                self.share.name_went(&place.parent, &stored);
                if directory {
                    self.share.folders.forget(&place.path_of(&stored));
                }
                patience::note_freed(freed_with_name(&stx));
                Ok(())
            }
            // The entry was removed, or replaced by another kind of object, so the caller's
            // knowledge of it is stale.
            Err(Errno::NOTDIR | Errno::ISDIR | Errno::NOENT) => Err(Fault::Stale),
            // Some file systems return EEXIST instead of ENOTEMPTY for a directory that is not
            // empty.
            Err(Errno::EXIST) => Err(Fault::NotEmpty),
            Err(errno) => Err(fault_of(errno)),
        }
    }

    fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
        self.share.writable()?;
        if from.stream().is_some() || to.stream().is_some() {
            return self.rename_stream(from, key, to, replace);
        }
        let (source, stored, stx) = self.place_of(from, key)?;
        self.share.admit_move(&source.path_of(&stored))?;
        let name = to;
        let target = self.target(to, Some(&source))?;
        let source_dir = source.parent.fd();
        let target_dir = target.place.parent.fd();
        let to = (target_dir, target.place.wanted.as_slice());
        let is_directory = stat::kind_of(&stx) == Kind::Directory;
        let _ways = self.share.forget_after(target.place.path_of(to.1), is_directory);
        if let Some((existing, _)) = &target.existing
            && same_directory(source_dir, target_dir)?
            && (self.is_respelling(target_dir, &stored, existing, to.1)
                || is_one_entry(&source.parent, &stored, existing)?)
        {
            rename_case(&source.parent, &stored, to.1)?;
            self.share.names.missed(target.parent, &stored);
            self.share.names.came(target.parent, to.1);
            self.share.names.stirred();
            return Ok(target.place.name_of(to.1));
        }
        let Some((existing, there)) = &target.existing else {
            rename_entry((source_dir, &stored), to, RenameFlags::NOREPLACE)?;
            self.share.names.came(target.parent, to.1);
            self.share.name_went(&source.parent, &stored);
            return Ok(target.place.name_of(to.1));
        };
        let existing = existing.as_slice();
        if stat::key_of(there) == key {
            // MS-FSA 2.1.5.15.12: the target is another link of the same file, or the same entry in
            // another case.
            if existing != stored || !same_directory(source_dir, target_dir)? {
                // rename(2) does nothing if both names are links of one file, so the source is
                // removed here.
                rustix::fs::unlinkat(source_dir, stored.as_slice(), AtFlags::empty())
                    .map_err(fault_of)?;
            }
        } else {
            let side = self.share.side_of_entry(target_dir, existing, there);
            let from = (source_dir, stored.as_slice());
            let posix = name.is_exact() && is_directory && replace;
            if replace {
                briefly_removed(there, side.is_some())?;
            }
            if posix && stat::kind_of(there) == Kind::Directory {
                // As in POSIX, a directory may replace an empty directory.
                rename_entry(from, (target_dir, existing), RenameFlags::empty())?;
                self.share.forget_side(side);
                return Ok(target.place.name_of(existing));
            }
            check_replace(there, replace)?;
            if is_directory {
                replace_by_directory(from, (target_dir, existing))?;
            } else {
                rename_entry(from, (target_dir, existing), RenameFlags::empty())?;
            }
            self.share.forget_side(side);
        }
        // The replaced entry had another case, so the entry gets the spelling of the request.
        if existing == to.1
            || rename_entry((target_dir, existing), to, RenameFlags::NOREPLACE).is_ok()
        {
            return Ok(target.place.name_of(to.1));
        }
        Ok(target.place.name_of(existing))
    }

    fn is_one_entry(&self, one: &Name, other: &Name) -> VfsResult<bool> {
        let paths = [self.path_of(one, self.share.exact(one))?, self.path_to(other, false)?];
        let [one, other] = paths.each_ref().map(|path| path.split());
        if one.0 != other.0 || one.1.is_empty() {
            return Ok(false);
        }
        let place = self.share.place(&paths[0], false)?;
        is_one_entry(&place.parent, one.1, other.1)
    }

    fn link(&self, node: &dyn Node, to: &Name, replace: bool) -> VfsResult<()> {
        self.share.writable()?;
        let node: &dyn Any = node;
        let node = streams::file_node(node).ok_or(Fault::NotSupported)?;
        if to.stream().is_some() {
            return Err(Fault::NameInvalid);
        }
        if node.kind() == Kind::Directory {
            return Err(Fault::IsADirectory);
        }
        let target = self.target(to, None)?;
        let dir = target.place.parent.fd();
        let path = target.place.path_of(&target.place.wanted);
        let _ways = self.share.forget_after(path, false);
        let Some((existing, there)) = &target.existing else {
            node.link_to(dir, &target.place.wanted).map_err(fault_of)?;
            self.share.names.came(target.parent, &target.place.wanted);
            return Ok(());
        };
        if !replace {
            return Err(Fault::Exists);
        }
        if stat::key_of(there) == node.key() {
            return Ok(());
        }
        if stat::kind_of(there) == Kind::Directory {
            return Err(Fault::AccessDenied);
        }
        let side = self.share.side_of_entry(dir, existing, there);
        briefly_removed(there, side.is_some())?;
        replace_by_link(node, dir, existing)?;
        self.share.forget_side(side);
        Ok(())
    }

    fn replace(&self, name: &Name, node: &dyn Node, by: &Replacement<'_>) -> VfsResult<()> {
        self.replace_entry(name, node, by)
    }

    fn stat(&self, name: &Name) -> VfsResult<Stat> {
        let how = OpenHow { open_link: true, ..OpenHow::LOOK };
        let opened = self.open(name, &how)?;
        let node: &dyn Any = &*opened.node;
        let node = streams::file_node(node);
        Ok(Stat { ea_size: node.map_or(0, PosixNode::ea_size), ..opened.stat })
    }

    fn parent_key(&self, name: &Name) -> VfsResult<FileKey> {
        self.key_of_parent(name)
    }

    fn space(&self) -> VfsResult<Space> {
        rustix::fs::fstatvfs(&self.share.root).map(|vfs| volume::space(&vfs)).map_err(fault_of)
    }

    fn volume(&self) -> Arc<Volume> {
        Arc::clone(&self.share.volume)
    }

    fn quota_state(&self) -> VfsResult<Option<QuotaState>> {
        quota::state(self.share.root.as_fd())
    }

    fn quota(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        quota::get(self.share.root.as_fd(), uid)
    }

    fn quota_from(&self, uid: u32) -> VfsResult<Option<UserQuota>> {
        quota::get_from(self.share.root.as_fd(), uid)
    }

    fn set_quota(&self, uid: u32, limits: QuotaLimits) -> VfsResult<()> {
        self.share.writable()?;
        quota::set(self.share.root.as_fd(), uid, limits)
    }

    fn quota_defaults(&self) -> VfsResult<Option<QuotaLimits>> {
        quota::defaults(self.share.root.as_fd())
    }

    fn set_quota_defaults(&self, limits: QuotaLimits) -> VfsResult<()> {
        self.share.writable()?;
        quota::set_defaults(self.share.root.as_fd(), limits)
    }

    fn snapshots(&self, name: &Name) -> VfsResult<Vec<Moment>> {
        let Some(folders) = &self.share.options.snapshots else { return Ok(Vec::new()) };
        let path = DiskPath::of(name, false, self.share.spelling)?;
        let root = self.share.root.as_fd();
        let today = || match subvolumes::is_root(root) {
            Ok(true) => self.known_today(name).unwrap_or_default(),
            _ => Vec::new(),
        };
        Snapshots::of(root, folders, &path, today)
    }

    fn name_in_snapshot(&self, taken: Moment, name: &Name) -> VfsResult<Option<Name>> {
        let Some(folders) = &self.share.options.snapshots else { return Ok(None) };
        let root = self.share.root.as_fd();
        if !subvolumes::is_root(root).unwrap_or(false) {
            return Ok(None);
        }
        let name = name.with_stream(None);
        let known = self.known_today(&name)?;
        if known.is_empty() {
            return Ok(None);
        }
        let path = DiskPath::of(&name, false, self.share.spelling)?;
        let earlier = Snapshots::earlier_path(root, folders, taken, &known, &path)?;
        let earlier = earlier.map(|path| client_name(&path, self.share.spelling));
        Ok(earlier.filter(|earlier| *earlier != name))
    }

    fn snapshot(&self, taken: Moment, places: &Arc<HostPlaces>) -> VfsResult<Arc<dyn Vfs>> {
        let share = &*self.share;
        let wanted = Wanted { taken, places };
        share.snapshots.at(
            share.root.as_fd(),
            &share.options,
            &wanted,
            |snapshot, options, mark| {
                // A snapshot has what clients must not reach where the share has it.
                let guards = share.guards.clone();
                Ok(Arc::new(Self::of_root(snapshot, options, guards, mark)?))
            },
        )
    }

    fn shows_locks(&self) -> bool {
        self.share.options.posix_locks
    }

    fn observe(
        &self,
        node: &dyn Node,
        is_tree: bool,
        observer: Observer,
    ) -> VfsResult<Box<dyn Observation>> {
        let node = streams::file_node(node).ok_or(Fault::NotSupported)?;
        if !self.share.options.host_changes {
            return Err(Fault::NotSupported);
        }
        if node.kind() == Kind::Directory {
            host::observe(node.fd(), is_tree, self.share.spelling, observer)
        } else {
            host::files::observe(node.handle().shared(), observer)
        }
    }
}

/// Gives up the removal of a name whose length a client has decided, if calls must not take long: the
/// kernel looks through a directory, and the streams beside a file are files themselves.
fn briefly_removed(stx: &Statx, has_side: bool) -> VfsResult<()> {
    let is_directory = stat::kind_of(stx) == Kind::Directory;
    let is_long = has_side || is_directory && stx.stx_size > DIRECTORY_ON_CORE;
    if is_long && patience::is_short() { Err(fault_of(patience::give_up())) } else { Ok(()) }
}

/// Returns the bytes that go with a name of this object, once nobody has it open.
fn freed_with_name(stx: &Statx) -> u64 {
    let is_last = stx.stx_nlink <= 1 || stat::kind_of(stx) == Kind::Directory;
    if is_last { stx.stx_blocks.saturating_mul(512) } else { 0 }
}

fn same_directory(a: BorrowedFd<'_>, b: BorrowedFd<'_>) -> VfsResult<bool> {
    let key = |fd| sys::stat_fd(fd).map(|stx| stat::key_of(&stx)).map_err(fault_of);
    Ok(key(a)? == key(b)?)
}

/// Refuses a rename that may not replace its target. MS-FSA 2.1.5.15.12.
fn check_replace(there: &Statx, replace: bool) -> VfsResult<()> {
    if !replace {
        return Err(Fault::Exists);
    }
    if stat::kind_of(there) == Kind::Directory {
        return Err(Fault::AccessDenied);
    }
    Ok(())
}

type Entry<'a> = (BorrowedFd<'a>, &'a [u8]);

pub(crate) fn rename_entry(from: Entry<'_>, to: Entry<'_>, flags: RenameFlags) -> VfsResult<()> {
    match rustix::fs::renameat_with(from.0, from.1, to.0, to.1, flags) {
        Ok(()) => Ok(()),
        Err(Errno::NOENT) => Err(Fault::Stale),
        Err(Errno::INVAL) if flags.contains(RenameFlags::NOREPLACE) => {
            // Some file systems (NFS, old FUSE) refuse the rename flags. Without them a file that
            // another program makes at this moment could be replaced.
            if sys::stat_at(to.0, to.1).is_ok() {
                return Err(Fault::Exists);
            }
            rustix::fs::renameat(from.0, from.1, to.0, to.1).map_err(fault_of)
        }
        Err(Errno::NOTDIR | Errno::ISDIR) => Err(Fault::AccessDenied),
        Err(errno) => Err(fault_of(errno)),
    }
}

/// Replaces a file by a directory, which rename(2) does not do. The two are exchanged first, so
/// that nothing is lost if that fails, as for a move into the directory itself.
fn replace_by_directory(from: Entry<'_>, to: Entry<'_>) -> VfsResult<()> {
    match rename_entry(from, to, RenameFlags::EXCHANGE) {
        // FUSE and NFS lack RENAME_EXCHANGE, so the replacement takes several steps.
        Err(Fault::Invalid | Fault::NotSupported) => return replace_in_steps(from, to),
        exchanged => exchanged?,
    }
    let removed = rustix::fs::unlinkat(from.0, from.1, AtFlags::empty());
    if removed.is_err() {
        let _ = rename_entry(from, to, RenameFlags::EXCHANGE);
    }
    removed.map_err(fault_of)
}

/// Replaces a file by a directory where the two cannot be exchanged. The file gets another name for
/// as long, and its own again if the directory cannot take that.
fn replace_in_steps(from: Entry<'_>, to: Entry<'_>) -> VfsResult<()> {
    let file = sys::stat_at(to.0, to.1).map_err(fault_of)?;
    let aside = format!(".frevo-replaced-{:x}-{:x}", file.stx_ino, std::process::id());
    let aside = (to.0, aside.as_bytes());
    rename_entry(to, aside, RenameFlags::NOREPLACE)?;
    let renamed = rename_entry(from, to, RenameFlags::NOREPLACE);
    if renamed.is_err() {
        let _ = rename_entry(aside, to, RenameFlags::NOREPLACE);
        return renamed;
    }
    match rustix::fs::unlinkat(aside.0, aside.1, AtFlags::empty()) {
        // `to` could not be removed, so the rename is undone. If that fails, too, the rename counts
        // as done.
        Err(errno)
            if errno != Errno::NOENT && rename_entry(to, from, RenameFlags::NOREPLACE).is_ok() =>
        {
            let _ = rename_entry(aside, to, RenameFlags::NOREPLACE);
            Err(fault_of(errno))
        }
        _ => Ok(()),
    }
}

/// Replaces `existing` by a link in one step, through a temporary name.
fn replace_by_link(node: &PosixNode, dir: BorrowedFd<'_>, existing: &[u8]) -> VfsResult<()> {
    for attempt in 0..RETRIES {
        let key = node.key();
        let temporary = format!(".frevo-link-{:x}-{:x}-{attempt}", key.inode, std::process::id());
        match node.link_to(dir, temporary.as_bytes()) {
            Ok(()) => {}
            Err(Errno::EXIST) => continue,
            Err(errno) => return Err(fault_of(errno)),
        }
        let renamed = rustix::fs::renameat(dir, temporary.as_bytes(), dir, existing);
        if renamed.is_err() {
            let _ = rustix::fs::unlinkat(dir, temporary.as_bytes(), AtFlags::empty());
        }
        return renamed.map_err(fault_of);
    }
    Err(Fault::Busy)
}

#[cfg(test)]
mod tests;
