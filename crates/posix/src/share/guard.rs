//! Folders of snapshots and Frevo's own folders: clients neither see nor reach them.
//!
//! A snapshot is opened by its time, never by its path in the share, so that no client can remove
//! or change it. Names are compared without case, after short names and stored spellings are
//! known; where links are followed, the object that a link led to is looked at.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use frevo_store::snapshot::Pattern;
use frevo_store::{Fault, vfs::VfsResult};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::case_rename::spellings;
use crate::fold::{self, without_tail};
use crate::limits::NAMES_READ_ON_CORE;
use crate::names;
use crate::options::{PosixOptions, is_side};
use crate::share::Share;
use crate::snapshot_folders::SnapshotFolders;
use crate::stat;
use crate::sys::{self, ProcPath};
use crate::volume;

/// Entries of one directory that clients must not reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Guard {
    /// The components of the directory's path below the root.
    parent: Vec<Vec<u8>>,
    entry: Entry,
    /// Paths reach it, links do not: the share's own recycle bin.
    only_from_links: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    /// The folder that holds snapshots.
    Named(Vec<u8>),
    /// Snapshots that are beside ordinary files.
    Matching(Pattern),
}

impl Entry {
    fn has(&self, name: &[u8]) -> bool {
        match self {
            Self::Named(guarded) => is_same(guarded, name),
            Self::Matching(pattern) => [name, without_tail(name)].iter().any(|name| {
                core::str::from_utf8(name)
                    .is_ok_and(|name| pattern.matches_any_case(name).is_some())
            }),
        }
    }
}

impl Guard {
    /// The guard of a share's snapshots in the share of `root`. `owner` is the folder of the share
    /// that has the snapshots. None for snapshots outside of `root`.
    fn of(root: &Path, folders: &SnapshotFolders, owner: &Path) -> Option<Self> {
        let folder = real(&owner.join(&folders.folder));
        let owner = real(owner);
        let mut parent: Vec<Vec<u8>> = below(root, &folder)?
            .filter_map(|component| match component {
                Component::Normal(name) => Some(name.as_bytes().to_vec()),
                _ => None,
            })
            .collect();
        // The folder of the snapshots contains the share, or is the share's root. Then only the
        // snapshots are hidden, and not the whole folder.
        let entry = if owner.starts_with(&folder) || parent.is_empty() {
            Entry::Matching(folders.pattern.clone())
        } else {
            Entry::Named(parent.pop()?)
        };
        Some(Self { parent, entry, only_from_links: false })
    }

    /// The guard of the recycle bin of the share of `owner`, in the share of `root`. None for one
    /// outside of `root`.
    fn of_bin(root: &Path, folder: &str, owner: &Path) -> Option<Self> {
        let owner = real(owner);
        let below = owner.strip_prefix(root).ok()?;
        let parent = below.components().map(|part| part.as_os_str().as_bytes().to_vec()).collect();
        let entry = Entry::Named(folder.as_bytes().to_vec());
        Some(Self { parent, entry, only_from_links: false })
    }

    /// True for a path of a client that leads to what is guarded, or into it.
    fn refuses<'p>(&self, path: impl Iterator<Item = &'p [u8]>) -> bool {
        !self.only_from_links && self.covers(path)
    }

    /// True for a path that leads to what is guarded, or into it.
    fn covers<'p>(&self, mut path: impl Iterator<Item = &'p [u8]>) -> bool {
        let is_ours = |ours: &Vec<u8>| path.next().is_some_and(|name| is_part(ours, name));
        self.parent.iter().all(is_ours) && path.next().is_some_and(|name| self.entry.has(name))
    }

    /// True for a directory on the way to what is guarded: renamed, it would take that along.
    fn is_above(&self, path: &[&[u8]]) -> bool {
        !self.only_from_links
            && path.len() <= self.parent.len()
            && self.parent.iter().zip(path).all(|(ours, theirs)| is_part(ours, theirs))
    }

    /// True for the guard of a share that has a folder of its own for each user.
    fn is_of_users(&self) -> bool {
        self.parent.iter().any(|part| user_in(part).is_some())
    }
}

/// The name of the user in the path of a share.
const USER: &[u8] = b"{user}";

/// The bytes before and behind the name of the user in a component.
fn user_in(part: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = part.windows(USER.len()).position(|window| window == USER)?;
    Some((part.get(..at)?, part.get(at.saturating_add(USER.len())..)?))
}

/// True if two names may be those of one entry, on any file system.
fn is_same(ours: &[u8], theirs: &[u8]) -> bool {
    fold::alike(without_tail(ours), without_tail(theirs))
}

/// True if a client's component is that of a guard, for some user.
fn is_part(ours: &[u8], theirs: &[u8]) -> bool {
    let (ours, theirs) = (without_tail(ours), without_tail(theirs));
    let Some((head, tail)) = user_in(ours) else { return fold::alike(ours, theirs) };
    // Only ASCII is compared without case, because in other scripts the two cases of a letter may
    // differ in length.
    let is_plain = head.is_ascii() && tail.is_ascii();
    let begins = || theirs.get(..head.len()).is_some_and(|it| it.eq_ignore_ascii_case(head));
    let ends = || {
        let rest = theirs.len().checked_sub(tail.len()).and_then(|at| theirs.get(at..));
        rest.is_some_and(|it| it.eq_ignore_ascii_case(tail))
    };
    !is_plain || begins() && ends()
}

/// The components of `folder` below `root`, which may be a folder of one user.
fn below<'a>(root: &Path, folder: &'a Path) -> Option<impl Iterator<Item = Component<'a>>> {
    let mut parts = folder.components();
    for root in root.components() {
        let part = parts.next()?;
        let is_same = part == root || {
            user_in(part.as_os_str().as_bytes()).is_some()
                && is_part(part.as_os_str().as_bytes(), root.as_os_str().as_bytes())
        };
        if !is_same {
            return None;
        }
    }
    Some(parts)
}

/// The path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let real = |there: &Path| {
        let rest = path.strip_prefix(there).ok()?;
        let there = there.canonicalize().ok()?;
        Some(if rest.as_os_str().is_empty() { there } else { there.join(rest) })
    };
    path.ancestors().find_map(real).unwrap_or_else(|| path.to_owned())
}

/// The guards of a share that is opened at `root`.
pub(crate) fn guards(root: BorrowedFd<'_>, options: &PosixOptions) -> Vec<Guard> {
    let own = options.snapshots.is_some() || options.recycle.is_some();
    if !own && options.guarded.is_empty() && options.bins.is_empty() {
        return Vec::new();
    }
    path_of(root).map_or_else(|_| Vec::new(), |root| guards_at(Path::new(&root), options))
}

/// True if the folder `root` has the same guards with both options.
pub fn guard_alike(root: &Path, one: &PosixOptions, other: &PosixOptions) -> bool {
    guards_at(&real(root), one) == guards_at(&real(root), other)
}

/// The guards of a share whose folder has the path `root`, without links.
fn guards_at(root: &Path, options: &PosixOptions) -> Vec<Guard> {
    let is_listed = |own: &SnapshotFolders| {
        options.guarded.iter().any(|(folders, owner)| folders == own && real(owner) == root)
    };
    let own = options.snapshots.iter().filter(|own| !is_listed(own)).map(|own| (own, root));
    let others = options.guarded.iter().map(|(folders, owner)| (folders, owner.as_path()));
    let snapshots = own.chain(others);
    let mut guards: Vec<Guard> =
        snapshots.filter_map(|(folders, owner)| Guard::of(root, folders, owner)).collect();
    let is_own = |folder: &String, owner: &Path| {
        options.recycle.as_ref() == Some(folder) && real(owner) == root
    };
    let bins = options.bins.iter().filter(|(folder, owner)| !is_own(folder, owner));
    guards.extend(bins.filter_map(|(folder, owner)| Guard::of_bin(root, folder, owner)));
    let bin = options.recycle.as_ref().and_then(|bin| Guard::of_bin(root, bin, root));
    guards.extend(bin.map(|bin| Guard { only_from_links: true, ..bin }));
    guards
}

/// The path of an open object on the host.
fn path_of(fd: BorrowedFd<'_>) -> Result<std::ffi::OsString, Errno> {
    let path = rustix::fs::readlink(ProcPath::of(fd).as_c_str(), Vec::new())?;
    Ok(OsStr::from_bytes(path.as_bytes()).to_owned())
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&b| b == b'/').filter(|c| !matches!(*c, b"" | b"."))
}

/// True for a name of the form that short names have which a file system makes: `LONGNA~1.TXT`.
fn may_be_alias(component: &[u8]) -> bool {
    component.windows(2).any(|pair| pair[0] == b'~' && pair[1].is_ascii_digit())
}

/// The entries of a directory that listings leave out.
#[derive(Debug, Default)]
pub(crate) struct Unlisted(Vec<Entry>);

impl Unlisted {
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        is_side(name) || self.0.iter().any(|entry| entry.has(name))
    }
}

impl Share {
    /// Refuses a path below the root that clients must not reach, or that leads through a reparse
    /// point.
    pub(crate) fn admit(&self, path: &[u8]) -> VfsResult<()> {
        let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
        if is_side(name) {
            return Err(Fault::AccessDenied);
        }
        if !self.guards.is_empty() || !self.vetoed.is_empty() {
            let is_covered = self.guards.iter().any(|guard| guard.refuses(components(path)))
                || components(path).any(|name| self.is_vetoed(name));
            if is_covered {
                return Err(Fault::AccessDenied);
            }
            self.admit_aliases(path)?;
        }
        self.check_way(path)
    }

    /// Refuses a name that the file system finds and does not list: the short name that FAT and NTFS
    /// make for a longer one, which may be one that clients must not reach.
    fn admit_aliases(&self, path: &[u8]) -> VfsResult<()> {
        let mut above = b".".to_vec();
        for component in components(path) {
            if may_be_alias(component) {
                let flags = OFlags::PATH | OFlags::DIRECTORY;
                let dir = sys::open_beneath(self.root.as_fd(), &above, flags, Mode::empty(), false);
                // The operation that uses the path reports what is wrong with it.
                let Ok(dir) = dir else { return Ok(()) };
                if volume::makes_aliases(dir.as_fd())
                    && sys::stat_at(dir.as_fd(), component).is_ok()
                    && spellings(dir.as_fd(), component, NAMES_READ_ON_CORE)?.is_empty()
                {
                    return Err(Fault::NotFound);
                }
            }
            above.push(b'/');
            above.extend_from_slice(component);
        }
        Ok(())
    }

    /// Refuses an entry of the directory with the path `stored`, which is admitted itself, if
    /// clients must not reach it.
    pub(crate) fn admit_entry(&self, stored: &[u8], entry: &[u8]) -> VfsResult<()> {
        let path = || components(stored).chain([entry]);
        let is_covered = is_side(entry)
            || self.is_vetoed(entry)
            || self.guards.iter().any(|guard| guard.refuses(path()));
        if is_covered { Err(Fault::AccessDenied) } else { Ok(()) }
    }

    /// True for a name that clients must not reach in any directory.
    pub(crate) fn is_vetoed(&self, name: &[u8]) -> bool {
        !self.vetoed.is_empty() && {
            let matches = |name: &[u8]| {
                let name = names::map(name, self.spelling);
                self.vetoed.iter().any(|pattern| pattern.matches(&name))
            };
            let short = without_tail(name);
            matches(name) || short.len() < name.len() && matches(short)
        }
    }

    /// Refuses to move a directory that contains what clients must not reach.
    pub(crate) fn admit_move(&self, path: &[u8]) -> VfsResult<()> {
        if self.guards.is_empty() {
            return Ok(());
        }
        let path: Vec<&[u8]> = components(path).collect();
        let is_above = |guard: &Guard| guard.is_above(&path) && self.may_contain(guard, &path);
        if self.guards.iter().any(is_above) { Err(Fault::AccessDenied) } else { Ok(()) }
    }

    /// False for a path above the guard of all users' folders when this one has nothing to guard.
    fn may_contain(&self, guard: &Guard, path: &[&[u8]]) -> bool {
        let rest = guard.parent.get(path.len()..).unwrap_or_default();
        let Entry::Named(name) = &guard.entry else { return true };
        if !guard.is_of_users() || rest.iter().any(|part| user_in(part).is_some()) {
            return true;
        }
        let parts = path.iter().copied().chain(rest.iter().map(Vec::as_slice)).chain([&**name]);
        let parts: Vec<&[u8]> = parts.collect();
        let there = sys::stat_at(self.root.as_fd(), &parts.join(&b'/'));
        !matches!(there, Err(Errno::NOENT | Errno::NOTDIR))
    }

    /// Opens `path` below `dir`. Where `follow` is true, links inside the share are followed, but
    /// not to what clients must not reach.
    pub(crate) fn open_inside(
        &self,
        dir: BorrowedFd<'_>,
        path: &[u8],
        flags: OFlags,
        follow: bool,
    ) -> Result<rustix::fd::OwnedFd, Errno> {
        match sys::open_beneath(dir, path, flags, Mode::empty(), false) {
            Err(Errno::LOOP) if follow => {}
            opened => return opened,
        }
        let fd = sys::open_beneath(dir, path, flags, Mode::empty(), true)?;
        if self.is_reachable(fd.as_fd())? { Ok(fd) } else { Err(Errno::ACCESS) }
    }

    /// True for an object that is not guarded, whatever path led to it.
    fn is_reachable(&self, fd: BorrowedFd<'_>) -> Result<bool, Errno> {
        let (root, path) = (path_of(self.root.as_fd())?, path_of(fd)?);
        let Ok(below) = Path::new(&path).strip_prefix(Path::new(&root)) else { return Ok(true) };
        let path = || components(below.as_os_str().as_bytes());
        let is_own = path().any(|name| is_side(name) || self.is_vetoed(name));
        Ok(!is_own && !self.guards.iter().any(|guard| guard.covers(path())))
    }

    /// True for the directory that has the guarded entries of some user.
    fn is_parent(&self, guard: &Guard, dir: BorrowedFd<'_>) -> bool {
        let (Ok(root), Ok(path)) = (path_of(self.root.as_fd()), path_of(dir)) else { return true };
        let Ok(below) = Path::new(&path).strip_prefix(Path::new(&root)) else { return false };
        let path: Vec<&[u8]> = components(below.as_os_str().as_bytes()).collect();
        path.len() == guard.parent.len() && guard.is_above(&path)
    }

    /// The entries of an open directory that are not listed.
    pub(crate) fn unlisted(&self, dir: BorrowedFd<'_>) -> Unlisted {
        let mut unlisted = Unlisted::default();
        if self.guards.is_empty() {
            return unlisted;
        }
        let Ok(key) = sys::stat_fd(dir).map(|stx| stat::key_of(&stx)) else { return unlisted };
        for guard in self.guards.iter().filter(|guard| !guard.only_from_links) {
            if guard.is_of_users() {
                if self.is_parent(guard, dir) {
                    unlisted.0.push(guard.entry.clone());
                }
                continue;
            }
            let parent = if guard.parent.is_empty() {
                sys::stat_fd(self.root.as_fd())
            } else {
                sys::stat_at(self.root.as_fd(), &guard.parent.join(&b'/'))
            };
            if parent.is_ok_and(|stx| stat::key_of(&stx) == key) {
                unlisted.0.push(guard.entry.clone());
            }
        }
        unlisted
    }
}
