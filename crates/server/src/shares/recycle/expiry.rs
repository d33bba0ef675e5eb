//! Removes files from a bin that are too old, and the oldest ones of a bin that is too large.
//!
//! The age of a file is the time since its ChangeTime, which moving it to the bin set. A walk
//! keeps the names of folders that it has yet to list and, for the size, bytes by age in hours:
//! memory does not grow with the number of files.

use std::time::Duration;

use frevo_store::vfs::{Kind, KindWanted, OpenHow, VfsResult};
use frevo_store::{Fault, Name, Stat, Vfs};
use frevo_wire::dtyp::FileTime;

use super::RecycleBin;
use crate::base::limits::{RECYCLE_AGES, RECYCLE_FOLDERS, RECYCLE_SLICE};
use crate::shares::protection::LOOK;

const HOUR: Duration = Duration::from_secs(3_600);

/// The files that a walk removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Removed {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// A walk through a bin.
pub(super) struct Walk<'a> {
    vfs: &'a dyn Vfs,
    now: FileTime,
    /// Called after each slice of entries; false ends the walk.
    pause: &'a mut dyn FnMut() -> bool,
    entries: usize,
    removed: Removed,
}

/// A walk has to end because the server stops.
struct Stopped;

/// Bytes of a user's bin by age, in hours.
struct Ages {
    bytes: Vec<u64>,
    total: u64,
}

impl Ages {
    fn new() -> Self {
        Self { bytes: vec![0; RECYCLE_AGES], total: 0 }
    }

    fn add(&mut self, age: usize, size: u64) {
        self.total = self.total.saturating_add(size);
        if let Some(bytes) = self.bytes.get_mut(age) {
            *bytes = bytes.saturating_add(size);
        }
    }

    /// The age from which on files go so that at most `most` bytes stay, and the bytes that go of
    /// the files that are just as old. None when nothing has to go.
    fn cut(&self, most: u64) -> Option<(usize, u64)> {
        let mut excess = self.total.checked_sub(most).filter(|excess| *excess > 0)?;
        for (age, bytes) in self.bytes.iter().enumerate().rev() {
            if *bytes >= excess {
                return Some((age, excess));
            }
            excess -= bytes;
        }
        Some((0, excess))
    }
}

/// Hours from `then` to `now`, at most the last age that is told apart.
fn age(now: FileTime, then: FileTime) -> usize {
    let hours = elapsed(now, then).as_secs() / HOUR.as_secs();
    usize::try_from(hours).unwrap_or(usize::MAX).min(RECYCLE_AGES - 1)
}

fn elapsed(now: FileTime, then: FileTime) -> Duration {
    // The difference of two FILETIMEs is in units of 100 ns.
    Duration::from_nanos(now.0.saturating_sub(then.0).saturating_mul(100))
}

impl<'a> Walk<'a> {
    pub(super) fn new(vfs: &'a dyn Vfs, now: FileTime, pause: &'a mut dyn FnMut() -> bool) -> Self {
        Self { vfs, now, pause, entries: 0, removed: Removed::default() }
    }

    /// Removes what has to go from the bins of all users. Faults end the walk of one folder.
    pub(super) fn expire(mut self, bin: &RecycleBin) -> Removed {
        let mut users = Vec::new();
        let top = Name::from_stored(bin.folder.clone());
        let listed = self.entries_of(&top, |name, stat| {
            if stat.kind == Kind::Directory && users.len() < RECYCLE_FOLDERS {
                users.push(name);
            }
        });
        for user in if listed.is_ok() { users } else { Vec::new() } {
            if self.expire_user(bin, &user).is_err() {
                break;
            }
        }
        self.removed
    }

    fn expire_user(&mut self, bin: &RecycleBin, user: &Name) -> Result<(), Stopped> {
        let (now, keep) = (self.now, bin.keep);
        let is_due = |stat: &Stat| keep.is_some_and(|keep| elapsed(now, stat.changed) >= keep);
        let mut ages = Ages::new();
        self.each_file(user, |stat| {
            let goes = is_due(stat);
            if !goes {
                ages.add(age(now, stat.changed), stat.end_of_file);
            }
            goes
        })?;
        let Some((oldest, mut rest)) = bin.max_size.and_then(|most| ages.cut(most)) else {
            return Ok(());
        };
        self.each_file(user, |stat| {
            let age = age(now, stat.changed);
            let goes = age > oldest || age == oldest && rest > 0;
            if goes && age == oldest {
                rest = rest.saturating_sub(stat.end_of_file);
            }
            goes
        })
    }

    /// Removes the files below a folder that `goes` says true for, and folders that are empty.
    fn each_file(
        &mut self,
        root: &Name,
        mut goes: impl FnMut(&Stat) -> bool,
    ) -> Result<(), Stopped> {
        let mut folders = vec![(root.clone(), false)];
        while let Some((folder, is_listed)) = folders.pop() {
            if is_listed {
                self.remove_empty(&folder);
                continue;
            }
            // The folder is opened to learn its kind, because a listing may report the kind of a
            // link's target. A symbolic link expires like a file.
            let Ok(opened) = self.vfs.open(&folder, &LOOK) else { continue };
            if opened.stat.kind != Kind::Directory {
                if folder != *root && goes(&opened.stat) {
                    self.remove(&folder, &opened.stat)?;
                }
                continue;
            }
            if folder != *root {
                folders.push((folder.clone(), true));
            }
            let mut files = Vec::new();
            let listed = self.entries_of(&folder, |name, stat| {
                if stat.kind == Kind::Directory {
                    if folders.len() < RECYCLE_FOLDERS {
                        folders.push((name, false));
                    }
                } else if goes(&stat) && files.len() < RECYCLE_FOLDERS {
                    files.push((name, stat));
                }
            })?;
            if let Err(fault) = listed {
                tracing::debug!(target: "frevo::recycle", %folder, %fault, "cannot list a folder");
            }
            for (file, stat) in files {
                self.remove(&file, &stat)?;
            }
        }
        Ok(())
    }

    /// Tells of the entries of a folder.
    fn entries_of(
        &mut self,
        folder: &Name,
        mut tell: impl FnMut(Name, Stat),
    ) -> Result<VfsResult<()>, Stopped> {
        let how =
            OpenHow { kind: KindWanted::Directory, read: true, open_link: true, ..OpenHow::LOOK };
        let listing = self.vfs.open(folder, &how).and_then(|opened| opened.node.directory());
        let mut listing = match listing {
            Ok(listing) => listing,
            Err(Fault::NotFound | Fault::PathNotFound) => return Ok(Ok(())),
            Err(fault) => return Ok(Err(fault)),
        };
        loop {
            let name = match listing.next_name() {
                Ok(Some(name)) => folder.child(name),
                Ok(None) => return Ok(Ok(())),
                Err(fault) => return Ok(Err(fault)),
            };
            match listing.entry_stat() {
                Ok(Some(stat)) => tell(name, stat),
                Ok(None) => {}
                Err(fault) => return Ok(Err(fault)),
            }
            self.count()?;
        }
    }

    fn remove(&mut self, file: &Name, stat: &Stat) -> Result<(), Stopped> {
        match self.vfs.remove(file, stat.key) {
            Ok(()) => {
                self.removed.files += 1;
                self.removed.bytes = self.removed.bytes.saturating_add(stat.end_of_file);
            }
            // A client has restored or deleted the file meanwhile, so it is no longer in the bin.
            Err(Fault::NotFound | Fault::PathNotFound | Fault::Stale) => {}
            Err(fault) => {
                tracing::warn!(target: "frevo::recycle", %file, %fault,
                    "cannot remove an old file from the recycle bin");
            }
        }
        self.count()
    }

    /// Removes a folder of the bin that nothing is in and that nothing was put into lately.
    fn remove_empty(&self, folder: &Name) {
        let Ok(opened) = self.vfs.open(folder, &LOOK) else { return };
        if elapsed(self.now, opened.stat.changed) >= HOUR || self.removed.files > 0 {
            // A folder that still has entries is not removed (NotEmpty), so the result is ignored.
            let _ = self.vfs.remove(folder, opened.stat.key);
        }
    }

    fn count(&mut self) -> Result<(), Stopped> {
        self.entries += 1;
        if self.entries.is_multiple_of(RECYCLE_SLICE) && !(self.pause)() {
            return Err(Stopped);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_bytes_go_first() {
        let mut ages = Ages::new();
        for (age, size) in [(0, 100), (5, 30), (900, 50), (usize::MAX, 7)] {
            ages.add(age.min(RECYCLE_AGES - 1), size);
        }
        assert_eq!(ages.cut(187), None);
        assert_eq!(ages.cut(186), Some((RECYCLE_AGES - 1, 1)));
        assert_eq!(ages.cut(150), Some((900, 30)));
        assert_eq!(ages.cut(120), Some((5, 10)));
        assert_eq!(ages.cut(0), Some((0, 100)));
    }

    #[test]
    fn ages_are_hours_and_never_negative() {
        let hours = |hours: u64| FileTime(hours * 36_000_000_000);
        assert_eq!(age(hours(100), hours(97)), 3);
        assert_eq!(age(hours(1), hours(97)), 0);
        assert_eq!(age(hours(1 << 20), hours(0)), RECYCLE_AGES - 1);
    }
}
