//! Copies a folder with all in it to another file system, compares both, and removes the first.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fmt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, Stat, StatxAttributes, Uid};
use rustix::io::Errno;

use super::contents::{self, difference, difference_of, pair};
use super::folder::{Folder, failed, kind_of};
use super::streams::{self, Pair, Sides};
use super::told::Told;
use crate::exit::{Exit, Failure};

/// The flags of files that are not changed, or only appended to.
const FIXED: StatxAttributes = StatxAttributes::IMMUTABLE.union(StatxAttributes::APPEND);

/// The identity of a file of the source.
pub(super) type FileNumber = (u64, u64);

pub(super) fn number_of(stat: &Stat) -> FileNumber {
    (stat.st_dev, stat.st_ino)
}

/// True for a file that may have further names.
pub(super) fn is_linked(stat: &Stat) -> bool {
    stat.st_nlink > 1 && kind_of(stat) != FileType::Directory
}

/// A copy of a tree.
pub(super) struct Copying<'a> {
    pub(super) sides: &'a Sides,
    /// The folder of the copy.
    pub(super) target: &'a Folder,
    /// The first names of files with several, below the copy.
    links: HashMap<FileNumber, PathBuf>,
    told: &'a mut Told,
}

impl<'a> Copying<'a> {
    pub(super) fn new(sides: &'a Sides, target: &'a Folder, told: &'a mut Told) -> Self {
        Self { sides, target, links: HashMap::new(), told }
    }

    /// Copies all entries of a folder to another one. Those that are there and seem to be the same stay:
    /// [`Comparing`] looks at their bytes.
    pub(super) fn entries(
        &mut self,
        from: &Folder,
        to: &Folder,
        below: &Path,
    ) -> Result<(), Failure> {
        let names = from.names()?;
        for name in to.names()? {
            if names.binary_search(&name).is_err() {
                remove_entry(to, &name, Some(&self.sides.to))?;
            }
        }
        for name in names {
            // An entry that is gone meanwhile was removed by a program of the host.
            let Some(stat) = from.stat(&name)? else { continue };
            self.entry(from, to, &name, &stat, &below.join(&name))?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        from: &Folder,
        to: &Folder,
        name: &OsStr,
        stat: &Stat,
        below: &Path,
    ) -> Result<(), Failure> {
        let path = from.at(name);
        let present = to.stat(name)?;
        if is_linked(stat)
            && let Some(first) = self.links.get(&number_of(stat)).cloned()
        {
            if let Some(present) = present {
                let known = rustix::fs::statat(self.target, &first, AtFlags::SYMLINK_NOFOLLOW);
                if known.is_ok_and(|known| number_of(&known) == number_of(&present)) {
                    return Ok(());
                }
                remove_entry(to, name, Some(&self.sides.to))?;
            }
            let linked = rustix::fs::linkat(self.target, &first, to, name, AtFlags::empty());
            return linked.map_err(failed("make the further name of", &path));
        }
        let is_alike = present.is_some_and(|present| {
            kind_of(&present) == kind_of(stat)
                && (kind_of(stat) == FileType::Directory || is_same_data(&present, stat))
        });
        if present.is_some() && !is_alike {
            remove_entry(to, name, Some(&self.sides.to))?;
        }
        match kind_of(stat) {
            FileType::Directory => {
                let (inner, copy) = (from.open(name)?, to.make(name)?);
                self.entries(&inner, &copy, below)?;
                let ends = Pair { from: inner.fd(), to: copy.fd(), path: &path };
                contents::copy_properties(self.sides, &ends)?;
                contents::copy_times(inner.fd(), copy.fd(), &path)?;
            }
            FileType::RegularFile => self.file(from, to, name, is_alike)?,
            kind => {
                if !is_alike {
                    make_special(from, to, name, kind, stat)?;
                }
                copy_state(to, name, stat, &path)?;
            }
        }
        if is_linked(stat) {
            self.links.insert(number_of(stat), below.to_owned());
        }
        self.told.file();
        Ok(())
    }

    fn file(
        &mut self,
        from: &Folder,
        to: &Folder,
        name: &OsStr,
        has_data: bool,
    ) -> Result<(), Failure> {
        let path = from.at(name);
        let source = from.open_file(name)?;
        let copy = if has_data { to.open_file(name)? } else { to.make_file(name)? };
        if !has_data {
            contents::copy(&source, &copy, &path, &mut |bytes| self.told.bytes(bytes))?;
        }
        let ends = pair(&source, &copy, &path);
        contents::copy_properties(self.sides, &ends)?;
        contents::copy_times(ends.from, ends.to, &path)
    }
}

/// True if a copy that is there has the size and the time of its source.
fn is_same_data(one: &Stat, other: &Stat) -> bool {
    one.st_size == other.st_size && one.st_mtime == other.st_mtime
}

/// Makes the copy of a symbolic link, a pipe, a socket or a device.
fn make_special(
    from: &Folder,
    to: &Folder,
    name: &OsStr,
    kind: FileType,
    stat: &Stat,
) -> Result<(), Failure> {
    let path = from.at(name);
    let made = if kind == FileType::Symlink {
        let target: CString =
            rustix::fs::readlinkat(from, name, Vec::new()).map_err(failed("read", &path))?;
        rustix::fs::symlinkat(&target, to, name)
    } else {
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        rustix::fs::mknodat(to, name, kind, mode, stat.st_rdev)
    };
    made.map_err(failed("copy", &path))
}

/// Gives the copy of a file that is not opened owner, mode and times.
fn copy_state(to: &Folder, name: &OsStr, stat: &Stat, path: &Path) -> Result<(), Failure> {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    let nofollow = AtFlags::SYMLINK_NOFOLLOW;
    let present = to.stat(name)?;
    if present.is_none_or(|it| (it.st_uid, it.st_gid) != (stat.st_uid, stat.st_gid)) {
        let owned = rustix::fs::chownat(to, name, Some(uid), Some(gid), nofollow);
        owned.map_err(failed("keep the owner of", path))?;
    }
    if kind_of(stat) != FileType::Symlink {
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        let set = rustix::fs::chmodat(to, name, mode, AtFlags::empty());
        set.map_err(failed("keep the mode of", path))?;
    }
    let set = rustix::fs::utimensat(to, name, &contents::times(stat), nofollow);
    set.map_err(failed("set the times of the copy of", path))
}

/// A file that is not as its source.
#[derive(Debug)]
pub(super) struct Difference {
    what: String,
    path: PathBuf,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, path } = self;
        write!(f, "{what} of {}", path.display())
    }
}

/// A folder and its copy, or entries of them.
pub(super) struct Ends<'a> {
    pub(super) from: &'a Folder,
    pub(super) to: &'a Folder,
    /// The states of the entries.
    pub(super) one: Stat,
    pub(super) other: Stat,
}

/// A comparison of a tree with its copy.
pub(super) struct Comparing<'a> {
    sides: &'a Sides,
    /// The copies of files with several names.
    links: HashMap<FileNumber, FileNumber>,
    told: &'a mut Told,
}

impl<'a> Comparing<'a> {
    pub(super) fn new(sides: &'a Sides, told: &'a mut Told) -> Self {
        Self { sides, links: HashMap::new(), told }
    }

    /// Compares all entries. Returns the first that differs.
    pub(super) fn entries(
        &mut self,
        from: &Folder,
        to: &Folder,
    ) -> Result<Option<Difference>, Failure> {
        let names = from.names()?;
        if names != to.names()? {
            let what = String::from("the list of entries");
            return Ok(Some(Difference { what, path: from.path.clone() }));
        }
        for name in names {
            if let (Some(one), Some(other)) = (from.stat(&name)?, to.stat(&name)?) {
                if kind_of(&one) == FileType::Directory && kind_of(&other) == FileType::Directory {
                    let found = self.entries(&from.open(&name)?, &to.open(&name)?)?;
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                if let Some(what) = self.entry(&Ends { from, to, one, other }, &name)? {
                    return Ok(Some(Difference { what, path: from.at(&name) }));
                }
            }
        }
        Ok(None)
    }

    /// Compares two entries, of folders only their properties. Returns what differs.
    fn entry(&mut self, ends: &Ends<'_>, name: &OsStr) -> Result<Option<String>, Failure> {
        let Ends { one, other, .. } = ends;
        if kind_of(one) != kind_of(other) {
            return Ok(Some(String::from("the kind")));
        }
        if is_linked(one) {
            match self.links.insert(number_of(one), number_of(other)) {
                Some(first) if first != number_of(other) => {
                    return Ok(Some(String::from("the further names")));
                }
                // It has been compared by its first name.
                Some(_) => return Ok(None),
                None => {}
            }
        }
        self.told.file();
        difference_in(self.sides, ends, name)
    }
}

/// Compares two entries of one kind, of folders only their properties. Returns what differs.
pub(super) fn difference_in(
    sides: &Sides,
    ends: &Ends<'_>,
    name: &OsStr,
) -> Result<Option<String>, Failure> {
    let Ends { from, to, one, other } = ends;
    let path = from.at(name);
    match kind_of(one) {
        FileType::Directory => {
            let (inner, copy) = (from.open(name)?, to.open(name)?);
            difference(sides, &Pair { from: inner.fd(), to: copy.fd(), path: &path })
        }
        FileType::RegularFile => {
            let (source, copy) = (from.open_file(name)?, to.open_file(name)?);
            if let Some(found) = difference(sides, &pair(&source, &copy, &path))? {
                return Ok(Some(found));
            }
            let same = contents::are_same(&source, &copy, &path)?;
            Ok((!same).then(|| String::from("the data")))
        }
        FileType::Symlink => {
            let read = |folder: &Folder| rustix::fs::readlinkat(folder, name, Vec::new());
            let same = read(from).map_err(failed("read", &path))?
                == read(to).map_err(failed("read", &path))?;
            let what = difference_of(one, other).or((!same).then_some("the target"));
            Ok(what.map(str::to_owned))
        }
        _ => Ok(difference_of(one, other).map(str::to_owned)),
    }
}

/// Removes an entry with all in it, and with streams in the side folder `side`.
pub(super) fn remove_entry(
    folder: &Folder,
    name: &OsStr,
    side: Option<&Folder>,
) -> Result<(), Failure> {
    let Some(stat) = folder.stat(name)? else { return Ok(()) };
    match kind_of(&stat) {
        FileType::Directory => {
            let inner = folder.open(name)?;
            remove_entries(&inner, side)?;
            forget_streams(side, inner.fd(), &inner.path)?;
            folder.remove_folder(name)
        }
        FileType::RegularFile => {
            if stat.st_nlink == 1 && side.is_some() {
                let file = folder.open_file(name)?;
                forget_streams(side, std::os::fd::AsFd::as_fd(&file), &folder.at(name))?;
            }
            folder.remove_file(name)
        }
        _ => folder.remove_file(name),
    }
}

/// Removes all entries of a folder.
pub(super) fn remove_entries(folder: &Folder, side: Option<&Folder>) -> Result<(), Failure> {
    for name in folder.names()? {
        remove_entry(folder, &name, side)?;
    }
    Ok(())
}

fn forget_streams(
    side: Option<&Folder>,
    fd: std::os::fd::BorrowedFd<'_>,
    path: &Path,
) -> Result<(), Failure> {
    let Some(side) = side else { return Ok(()) };
    match streams::mark_of(fd).map_err(failed("read the attributes of", path))? {
        Some(mark) => streams::forget(side, &mark),
        None => Ok(()),
    }
}

/// The number of files of a tree, and the sum of their bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Size {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl Size {
    /// Counts a tree.
    ///
    /// # Errors
    /// When another file system is mounted in it, as a rename would leave that behind.
    pub(super) fn of(folder: &Folder) -> Result<Self, Failure> {
        let mut size = Self::default();
        check_flags(folder, OsStr::new("."))?;
        size.add(folder, mount_of(folder)?)?;
        Ok(size)
    }

    fn add(&mut self, folder: &Folder, mount: u64) -> Result<(), Failure> {
        for name in folder.names()? {
            let Some(stat) = folder.stat(&name)? else { continue };
            check_flags(folder, &name)?;
            self.files += 1;
            if kind_of(&stat) == FileType::RegularFile {
                self.bytes += u64::try_from(stat.st_size).unwrap_or(0);
            } else if kind_of(&stat) == FileType::Directory {
                let inner = folder.open(&name)?;
                if mount_of(&inner)? != mount {
                    let text = format!(
                        "a file system is mounted at {}; unmount it first, or make a link to a \
                         share of its own for it",
                        inner.path.display()
                    );
                    return Err(Failure::new(Exit::Failed, text));
                }
                self.add(&inner, mount)?;
            }
        }
        Ok(())
    }
}

/// Refuses a file that cannot be removed, also by root: its flags are set by `chattr`.
fn check_flags(folder: &Folder, name: &OsStr) -> Result<(), Failure> {
    let path = folder.at(name);
    let (nofollow, basic) = (AtFlags::SYMLINK_NOFOLLOW, rustix::fs::StatxFlags::BASIC_STATS);
    let found = match rustix::fs::statx(folder, name, nofollow, basic) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(failed("look at", &path)(errno)),
    };
    if !found.stx_attributes.intersects(FIXED) {
        return Ok(());
    }
    let text = format!(
        "{} cannot be changed (chattr +i or +a), so that it cannot move; run chattr -ia on it first",
        path.display()
    );
    Err(Failure::new(Exit::Failed, text))
}

/// The mount that a folder is in.
pub(super) fn mount_of(folder: &Folder) -> Result<u64, Failure> {
    let flags = rustix::fs::StatxFlags::MNT_ID;
    let found = rustix::fs::statx(folder, "", AtFlags::EMPTY_PATH, flags);
    Ok(found.map_err(failed("look at", &folder.path))?.stx_mnt_id)
}
