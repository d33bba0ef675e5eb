//! Removes the files that were copied. One that may have changed since its copy was compared stays, unless its copy
//! has all of it: a client's request that was under way, or a program of the host, may have written to it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::PathBuf;

use rustix::fs::{FileType, Stat};

use super::folder::{Folder, failed, kind_of};
use super::streams::{self, Sides};
use super::tree::{Ends, FileNumber, difference_in, is_linked, number_of, remove_entry};
use crate::exit::{Done, Exit, Failure};
use crate::plural::counted;

/// Files that a failure names.
const NAMED: usize = 5;

/// A time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    seconds: i64,
    nanoseconds: u64,
}

impl Moment {
    /// The time of the last change of a file's state.
    pub(super) fn of_change(stat: &Stat) -> Self {
        Self { seconds: stat.st_ctime, nanoseconds: stat.st_ctime_nsec }
    }

    fn of_data(stat: &Stat) -> Self {
        Self { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec }
    }
}

/// A folder of the tree and its copy.
struct Twins<'a> {
    from: &'a Folder,
    /// None if the copy has no such folder any more.
    to: Option<&'a Folder>,
    /// True if files with old times may have come into the folder since.
    is_changed: bool,
}

/// A removal of a tree that was copied.
pub(super) struct Removal<'a> {
    sides: &'a Sides,
    /// The time at which the comparison began.
    compared: Moment,
    /// Files of which a name is removed: that has changed their state.
    known: HashSet<FileNumber>,
    left: Vec<PathBuf>,
}

impl<'a> Removal<'a> {
    pub(super) fn new(sides: &'a Sides, compared: Moment) -> Self {
        Self { sides, compared, known: HashSet::new(), left: Vec::new() }
    }

    /// Removes all in `tree`, whose copy is `target`.
    ///
    /// # Errors
    /// When files stay.
    pub(super) fn carry_out(mut self, tree: &Folder, target: &Folder) -> Done {
        // Another folder that comes into the tree itself has files with old times; so has this one in a second call.
        let stat = rustix::fs::fstat(tree).map_err(failed("look at", &tree.path))?;
        let is_changed = Moment::of_change(&stat) >= self.compared;
        self.entries(&Twins { from: tree, to: Some(target), is_changed })?;
        if self.left.is_empty() {
            return Ok(());
        }
        let mut list = String::new();
        for path in self.left.iter().take(NAMED) {
            let comma = if list.is_empty() { "" } else { ", " };
            // Writing to a String cannot fail.
            let _ = write!(list, "{comma}{}", path.display());
        }
        if let Some(more) = self.left.len().checked_sub(NAMED).filter(|more| *more > 0) {
            let _ = write!(list, " and {more} more");
        }
        let text = format!(
            "{} changed after the copy was compared, and not removed: {list}; compare with what is in {}, \
             bring there what it lacks, and remove the old file",
            counted(self.left.len(), "file"),
            target.path.display()
        );
        Err(Failure::new(Exit::Failed, text))
    }

    fn entries(&mut self, twins: &Twins<'_>) -> Done {
        for name in twins.from.names()? {
            let Some(stat) = twins.from.stat(&name)? else { continue };
            if kind_of(&stat) == FileType::Directory {
                self.folder(twins, &name, &stat)?;
            } else {
                self.file(twins, &name, &stat)?;
            }
        }
        Ok(())
    }

    fn folder(&mut self, twins: &Twins<'_>, name: &OsStr, stat: &Stat) -> Done {
        let inner = twins.from.open(name)?;
        let copied = match twins.to {
            Some(to) if is_folder(to, name)? => to.find(name)?,
            _ => None,
        };
        let is_changed = twins.is_changed || Moment::of_change(stat) >= self.compared;
        let before = self.left.len();
        self.entries(&Twins { from: &inner, to: copied.as_ref(), is_changed })?;
        if self.left.len() > before {
            return Ok(());
        }
        if self.has_new_streams(&inner)? || !inner.names()?.is_empty() {
            self.left.push(inner.path);
            return Ok(());
        }
        drop(inner);
        remove_entry(twins.from, name, self.sides.from.as_ref())
    }

    fn file(&mut self, twins: &Twins<'_>, name: &OsStr, stat: &Stat) -> Done {
        let number = number_of(stat);
        let is_new = if self.known.contains(&number) {
            Moment::of_data(stat) >= self.compared
        } else {
            Moment::of_change(stat) >= self.compared
        };
        let is_regular = kind_of(stat) == FileType::RegularFile;
        let has_changed = twins.is_changed
            || is_new
            || (is_regular && self.has_new_streams_of(twins.from, name)?);
        if has_changed && !self.is_copied(twins, name, stat)? {
            self.left.push(twins.from.at(name));
            return Ok(());
        }
        if is_linked(stat) {
            self.known.insert(number);
        }
        remove_entry(twins.from, name, self.sides.from.as_ref())
    }

    /// True if the new place has all that a file has.
    fn is_copied(&self, twins: &Twins<'_>, name: &OsStr, stat: &Stat) -> Result<bool, Failure> {
        let Some(to) = twins.to else { return Ok(false) };
        let Some(other) = to.stat(name)? else { return Ok(false) };
        if kind_of(&other) != kind_of(stat) {
            return Ok(false);
        }
        let ends = Ends { from: twins.from, to, one: *stat, other };
        Ok(difference_in(self.sides, &ends, name)?.is_none())
    }

    fn has_new_streams_of(&self, folder: &Folder, name: &OsStr) -> Result<bool, Failure> {
        if self.sides.from.is_none() {
            return Ok(false);
        }
        let (file, path) = (folder.open_file(name)?, folder.at(name));
        let fd = std::os::fd::AsFd::as_fd(&file);
        let streams = streams::directory_of(self.sides.from.as_ref(), fd, &path)?;
        streams.map_or(Ok(false), |streams| self.has_new(&streams))
    }

    fn has_new_streams(&self, folder: &Folder) -> Result<bool, Failure> {
        let side = self.sides.from.as_ref();
        let streams = streams::directory_of(side, folder.fd(), &folder.path)?;
        streams.map_or(Ok(false), |streams| self.has_new(&streams))
    }

    fn has_new(&self, streams: &Folder) -> Result<bool, Failure> {
        for name in streams::streams_in(streams)? {
            let stat = streams.stat(&name)?;
            if stat.is_some_and(|stat| Moment::of_change(&stat) >= self.compared) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn is_folder(folder: &Folder, name: &OsStr) -> Result<bool, Failure> {
    Ok(folder.stat(name)?.is_some_and(|stat| kind_of(&stat) == FileType::Directory))
}
