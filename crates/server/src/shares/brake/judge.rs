//! The decision when a client changes files as ransomware does: a value without a clock and without I/O.
//!
//! The judge of one client counts the files that were there before and are no more as they were: overwritten with
//! data that does not compress, replaced by such a file, or removed beside such a new file in one folder. It
//! also counts files that get one new extension, and removals. What the client itself has made a short
//! time ago is no old file: temporary files come and go.

#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use frevo_store::FileKey;

use crate::base::limits::{BRAKE_FOLDERS, BRAKE_FRESH_FILES};

/// The shorter time in which changes are counted.
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// The longer time in which changes are counted.
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// Time for which a new file can take the place of a removed one in its folder.
const PAIRED_WITHIN: Duration = Duration::from_secs(600);

/// The numbers at which the brake takes hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrakeLimits {
    /// Old files that were overwritten or replaced with data that does not compress, in a minute.
    pub files_per_minute: u16,
    /// The same in an hour.
    pub files_per_hour: u16,
    /// Old files that got one new extension, in a minute.
    pub renames_per_minute: u16,
    /// Old files that were removed in a minute. None: removals alone say nothing.
    pub deletions_per_minute: Option<u32>,
}

/// The changes of which there were too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Old files overwritten or replaced with data that does not compress, in a minute.
    Files,
    /// The same in an hour.
    FilesInHour,
    /// Old files that got one new extension, in a minute.
    Renames,
    /// Old files removed in a minute.
    Deletions,
}

impl Pattern {
    const ALL: [Self; 4] = [Self::Files, Self::FilesInHour, Self::Renames, Self::Deletions];

    /// Its name in the audit log and the status.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Files | Self::FilesInHour => "files",
            Self::Renames => "renames",
            Self::Deletions => "deletions",
        }
    }

    /// The time in which its changes are counted.
    pub(crate) const fn within(self) -> Duration {
        match self {
            Self::FilesInHour => HOUR,
            Self::Files | Self::Renames | Self::Deletions => MINUTE,
        }
    }
}

/// A limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) pattern: Pattern,
    /// The number of changes in the time of the pattern.
    pub(crate) count: usize,
}

/// A file as the judge knows it: a number made of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct File(u64);

impl From<FileKey> for File {
    fn from(key: FileKey) -> Self {
        let mixed = key.inode.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self(mixed ^ key.device.rotate_left(32))
    }
}

/// The folder and the extension of a name, as numbers. Two names that share a number by chance are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameParts {
    folder: u64,
    extension: u64,
}

impl NameParts {
    /// The parts of a name's path, which has backslashes.
    pub(crate) fn of(path: &str) -> Self {
        let (folder, name) = path.rsplit_once('\\').unwrap_or(("", path));
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        Self { folder: number(folder), extension: number(extension) }
    }
}

/// Adds a file to a list, which forgets its oldest one when it is full.
fn push(list: &mut VecDeque<Fresh>, one: Fresh) {
    if list.len() >= BRAKE_FRESH_FILES {
        list.pop_front();
    }
    list.push_back(one);
}

/// FNV-1a, which makes one number of a text at all times; letters of ASCII have no case.
fn number(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0000_01B3)
    })
}

/// A time in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moment(u64);

impl Moment {
    fn of(time: Duration) -> Self {
        Self(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    /// True if it is less than `time` before `now`.
    fn is_within(self, time: Duration, now: Self) -> bool {
        now.0.saturating_sub(self.0) < Self::of(time).0
    }
}

/// A file that the client has made, or emptied, a short time ago.
#[derive(Debug, Clone, Copy)]
struct Fresh {
    at: Moment,
    file: File,
    folder: u64,
    /// True for an old file that was emptied: what is written to it takes the place of old data.
    is_emptied: bool,
    /// True once it has data that does not compress.
    is_noisy: bool,
}

/// New files with data that does not compress, and removed old ones, of one folder.
#[derive(Debug, Clone, Copy)]
struct Folder {
    id: u64,
    since: Moment,
    noisy: u32,
    removed: u32,
    /// Pairs of both that were counted.
    paired: u32,
}

/// A change of one file.
#[derive(Debug, Clone, Copy)]
struct Counted {
    at: Moment,
    file: File,
    extension: u64,
}

/// Changes in order of time, each file once for an extension. It keeps the newest of them, as many as its limit
/// needs.
#[derive(Debug, Default)]
struct Changes(VecDeque<Counted>);

impl Changes {
    /// Adds a change, unless the file is there already.
    fn add(&mut self, change: Counted, keep: Duration, most: usize) {
        while self.0.front().is_some_and(|one| !one.at.is_within(keep, change.at)) {
            self.0.pop_front();
        }
        let is_known = |one: &Counted| (one.file, one.extension) == (change.file, change.extension);
        if self.0.iter().any(is_known) {
            return;
        }
        if self.0.len() >= most {
            self.0.pop_front();
        }
        self.0.push_back(change);
    }

    fn count(&self, now: Moment, within: Duration, which: impl Fn(&Counted) -> bool) -> usize {
        let recent = self.0.iter().rev().take_while(|one| one.at.is_within(within, now));
        recent.filter(|one| which(one)).count()
    }
}

/// The judge of the changes of one client in one share. `now` is a time that never goes back.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// Files that it has made.
    fresh: VecDeque<Fresh>,
    /// Old files that it has emptied, and own ones that have taken the place of old ones. New files do not push them
    /// out.
    emptied: VecDeque<Fresh>,
    /// Old files that it has moved to where changes are not looked at.
    moved: VecDeque<File>,
    folders: VecDeque<Folder>,
    files: Changes,
    renames: Changes,
    /// Removals of this minute and of the one before, with the number of the minute.
    removals: [(u64, u32); 2],
    /// The time of the last finding of each pattern.
    found: [Option<Duration>; Pattern::ALL.len()],
    latest: Duration,
}

impl Judge {
    /// The client has made a file.
    pub(crate) fn made(&mut self, file: File, place: NameParts, now: Duration) {
        self.remember(file, place, false, now);
    }

    /// The client has emptied or shortened a file.
    pub(crate) fn emptied(&mut self, file: File, place: NameParts, now: Duration) {
        self.latest = now;
        if self.fresh(file, now).is_none() {
            self.remember(file, place, true, now);
        }
    }

    /// The client has filled an old file with zeros, or left it empty. That counts as its removal.
    pub(crate) fn wiped(
        &mut self,
        file: File,
        limits: &BrakeLimits,
        now: Duration,
    ) -> Option<Finding> {
        self.latest = now;
        let is_own = self.fresh(file, now).is_some_and(|fresh| !fresh.is_emptied);
        if is_own { None } else { self.count_removal(limits, now) }
    }

    /// True for a new file with data that does not compress.
    pub(crate) fn is_noisy(&mut self, file: File, now: Duration) -> bool {
        self.fresh(file, now).is_some_and(|fresh| fresh.is_noisy)
    }

    /// The client has moved a file to where changes are not looked at. Those of an old one still are.
    pub(crate) fn moved_away(&mut self, file: File, now: Duration) {
        self.latest = now;
        let is_own = self.fresh(file, now).is_some_and(|fresh| !fresh.is_emptied);
        if is_own || self.is_moved(file) {
            return;
        }
        if self.moved.len() >= BRAKE_FRESH_FILES {
            self.moved.pop_front();
        }
        self.moved.push_back(file);
    }

    /// True for an old file that was moved to where changes are not looked at.
    pub(crate) fn is_moved(&self, file: File) -> bool {
        self.moved.contains(&file)
    }

    /// The client has written data that does not compress. `is_over` if it has taken the place of other data.
    pub(crate) fn noisy(
        &mut self,
        file: File,
        is_over: bool,
        limits: &BrakeLimits,
        now: Duration,
    ) -> Option<Finding> {
        self.latest = now;
        let (folder, is_old) = match self.fresh(file, now) {
            Some(fresh) if fresh.is_emptied => (fresh.folder, true),
            Some(fresh) if !fresh.is_noisy => {
                fresh.is_noisy = true;
                (fresh.folder, false)
            }
            Some(_) => return None,
            None if is_over => return self.count_file(file, limits, now),
            None => return None,
        };
        if is_old {
            return self.count_file(file, limits, now);
        }
        self.folder(folder, now, |it| it.noisy += 1);
        self.pair(folder, file, limits, now)
    }

    /// The client has given a file one more name, in place of `replaced` if it had been another's.
    pub(crate) fn linked(
        &mut self,
        file: File,
        to: NameParts,
        replaced: Option<File>,
        limits: &BrakeLimits,
        now: Duration,
    ) -> Option<Finding> {
        self.latest = now;
        let replaced = replaced.filter(|there| !self.forget(*there, now));
        let fresh = self.fresh(file, now).filter(|fresh| !fresh.is_emptied)?;
        match (fresh.is_noisy, replaced) {
            (true, Some(there)) => self.count_file(there, limits, now),
            (true, None) => {
                self.folder(to.folder, now, |it| it.noisy += 1);
                self.pair(to.folder, file, limits, now)
            }
            (false, Some(_)) => {
                self.stand_in(file, now);
                None
            }
            (false, None) => None,
        }
    }

    /// The client has renamed a file, in place of `replaced` if there was one.
    pub(crate) fn renamed(
        &mut self,
        file: File,
        [from, to]: [NameParts; 2],
        replaced: Option<File>,
        limits: &BrakeLimits,
        now: Duration,
    ) -> Option<Finding> {
        self.latest = now;
        let replaced = replaced.filter(|there| !self.forget(*there, now));
        let Some(fresh) = self.fresh(file, now).filter(|fresh| !fresh.is_emptied) else {
            if from.extension == to.extension {
                return None;
            }
            let change = Counted { at: Moment::of(now), file, extension: to.extension };
            let most = usize::from(limits.renames_per_minute);
            // Another extension in turn does not hide the first one.
            self.renames.add(change, MINUTE, 2 * most);
            let is_one = |one: &Counted| one.extension == to.extension;
            let count = self.renames.count(change.at, MINUTE, is_one);
            return self.find(Pattern::Renames, count, most, now);
        };
        fresh.folder = to.folder;
        if !fresh.is_noisy {
            // Data that it gets from now on takes the place of old data.
            if replaced.is_some() {
                self.stand_in(file, now);
            }
            return None;
        }
        if from.folder != to.folder {
            self.folder(from.folder, now, |left| left.noisy = left.noisy.saturating_sub(1));
            self.folder(to.folder, now, |it| it.noisy += 1);
        }
        match replaced {
            Some(there) => self.count_file(there, limits, now),
            None => self.pair(to.folder, file, limits, now),
        }
    }

    /// The client has removed a file.
    pub(crate) fn removed(
        &mut self,
        file: File,
        place: NameParts,
        limits: &BrakeLimits,
        now: Duration,
    ) -> Option<Finding> {
        self.latest = now;
        if self.forget(file, now) {
            return None;
        }
        self.folder(place.folder, now, |it| it.removed += 1);
        let of_files = self.pair(place.folder, file, limits, now);
        of_files.or_else(|| self.count_removal(limits, now))
    }

    /// Forgets all that was counted: an administrator has looked at it.
    pub(crate) fn pardon(&mut self) {
        *self = Self { latest: self.latest, ..Self::default() };
    }

    /// The time of the latest change.
    pub(crate) const fn latest(&self) -> Duration {
        self.latest
    }

    fn fresh(&mut self, file: File, now: Duration) -> Option<&mut Fresh> {
        let now = Moment::of(now);
        let mut known = self.fresh.iter_mut().rev().chain(self.emptied.iter_mut().rev());
        let found = known.find(|fresh| fresh.file == file);
        found.filter(|fresh| fresh.at.is_within(HOUR, now))
    }

    /// A file that the client has made has taken the place of an old one.
    fn stand_in(&mut self, file: File, now: Duration) {
        let Some(at) = self.fresh.iter().position(|fresh| fresh.file == file) else { return };
        let Some(gone) = self.fresh.remove(at) else { return };
        push(&mut self.emptied, Fresh { at: Moment::of(now), is_emptied: true, ..gone });
    }

    fn remember(&mut self, file: File, place: NameParts, is_emptied: bool, now: Duration) {
        self.latest = now;
        self.fresh.retain(|one| one.file != file);
        self.emptied.retain(|one| one.file != file);
        if !is_emptied {
            self.moved.retain(|moved| *moved != file);
        }
        let (at, folder) = (Moment::of(now), place.folder);
        let list = if is_emptied { &mut self.emptied } else { &mut self.fresh };
        push(list, Fresh { at, file, folder, is_emptied, is_noisy: false });
    }

    /// Forgets a file that has gone. True if the client had made it: it was no old one. A file that was emptied may have
    /// another name.
    fn forget(&mut self, file: File, now: Duration) -> bool {
        self.moved.retain(|moved| *moved != file);
        let Some(at) = self.fresh.iter().position(|fresh| fresh.file == file) else { return false };
        let Some(gone) = self.fresh.remove(at) else { return false };
        if gone.is_noisy
            && let Some(folder) = self.folders.iter_mut().find(|folder| folder.id == gone.folder)
        {
            folder.noisy = folder.noisy.saturating_sub(1);
        }
        gone.at.is_within(HOUR, Moment::of(now))
    }

    /// Changes the counts of a folder, which begin anew after a time.
    fn folder<T>(&mut self, id: u64, now: Duration, change: impl FnOnce(&mut Folder) -> T) -> T {
        let now = Moment::of(now);
        let known = self.folders.iter().position(|folder| folder.id == id);
        let kept = known.and_then(|at| self.folders.remove(at));
        let kept = kept.filter(|folder| folder.since.is_within(PAIRED_WITHIN, now));
        if self.folders.len() >= BRAKE_FOLDERS {
            self.folders.pop_front();
        }
        let anew = Folder { id, since: now, noisy: 0, removed: 0, paired: 0 };
        let mut folder = kept.unwrap_or(anew);
        let changed = change(&mut folder);
        self.folders.push_back(folder);
        changed
    }

    /// Counts `file` if a new file and a removed one make another pair in a folder.
    fn pair(
        &mut self,
        folder: u64,
        file: File,
        limits: &BrakeLimits,
        now: Duration,
    ) -> Option<Finding> {
        let is_pair = self.folder(folder, now, |folder| {
            let is_pair = folder.noisy.min(folder.removed) > folder.paired;
            if is_pair {
                folder.paired += 1;
            }
            is_pair
        });
        if is_pair { self.count_file(file, limits, now) } else { None }
    }

    fn count_file(&mut self, file: File, limits: &BrakeLimits, now: Duration) -> Option<Finding> {
        let minute = usize::from(limits.files_per_minute);
        let hour = usize::from(limits.files_per_hour);
        let change = Counted { at: Moment::of(now), file, extension: 0 };
        self.files.add(change, HOUR, hour.max(minute));
        let count = self.files.count(change.at, MINUTE, |_| true);
        let found = self.find(Pattern::Files, count, minute, now);
        found.or_else(|| {
            let count = self.files.count(change.at, HOUR, |_| true);
            self.find(Pattern::FilesInHour, count, hour, now)
        })
    }

    /// Counts a removal in its minute. The minute before counts by the part of it that is less than a minute ago.
    fn count_removal(&mut self, limits: &BrakeLimits, now: Duration) -> Option<Finding> {
        let most = limits.deletions_per_minute?;
        let minute = now.as_secs() / MINUTE.as_secs();
        if self.removals[0].0 != minute {
            self.removals = [(minute, 0), self.removals[0]];
        }
        let [(_, current), (earlier, count)] = &mut self.removals;
        *current = current.saturating_add(1);
        let before = if *earlier + 1 == minute { u64::from(*count) } else { 0 };
        let left = MINUTE.as_secs() - now.as_secs() % MINUTE.as_secs();
        let count = u64::from(*current) + before * left / MINUTE.as_secs();
        let (count, most) = (usize::try_from(count).unwrap_or(usize::MAX), most as usize);
        self.find(Pattern::Deletions, count, most, now)
    }

    /// Returns the finding of a limit that is reached, once in the time of its pattern.
    fn find(
        &mut self,
        pattern: Pattern,
        count: usize,
        most: usize,
        now: Duration,
    ) -> Option<Finding> {
        if count < most {
            return None;
        }
        let last = self.found.get_mut(pattern as usize)?;
        if last.is_some_and(|at| now.saturating_sub(at) < pattern.within()) {
            return None;
        }
        *last = Some(now);
        Some(Finding { pattern, count })
    }
}
