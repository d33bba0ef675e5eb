//! [`Watched`]: an open file in a share with a brake.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frevo_store::{FileKey, Name};

use super::journal::Change;
use super::noise::is_noise_in;
use super::{Alarm, Braked, File, NameParts, is_noise};

/// Fewest zeros over a part of a file by which it counts as filled with zeros, bytes.
const ZEROS: usize = 512;

/// The client that changes a file, and its session: those of the tree connect that the Open has by now.
#[derive(Debug, Clone)]
pub(crate) struct By {
    pub(crate) braked: Arc<Braked>,
    pub(crate) session: u64,
}

/// An open file in a share with a brake. Its methods return an alarm if the brake takes hold.
#[derive(Debug)]
pub(crate) struct Watched {
    /// The end of the data that was there before this Open.
    old_end: u64,
    /// True once data that does not compress was written: it is not looked for again.
    is_noted: AtomicBool,
    /// True once a change of its data is in the journal, and for a file that was made.
    is_written_down: AtomicBool,
    /// True once old data was filled with zeros.
    is_wiped: AtomicBool,
    /// True once data that does not compress was written behind the old one.
    has_noise_behind: AtomicBool,
    /// True while the file is without the data that it had, and without other data.
    is_empty: AtomicBool,
}

/// The way in which a file was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenedAs {
    /// It was there.
    Found,
    /// It was there, and was emptied.
    Emptied,
    /// It was made.
    Made,
}

/// Data that the server has copied into a file.
pub(crate) struct Copied<'a> {
    pub(crate) source: FileKey,
    /// The place of the data in the source.
    pub(crate) from: u64,
    /// The place of the data in the target.
    pub(crate) to: u64,
    pub(crate) length: u64,
    /// Reads the source at an offset.
    pub(crate) read: &'a dyn Fn(u64, &mut [u8]) -> Option<usize>,
}

impl Watched {
    /// Looks at a file of `end` bytes that is opened. None for a path that is excepted.
    pub(crate) fn new(
        by: &By,
        key: FileKey,
        name: &Name,
        end: u64,
        opened: OpenedAs,
    ) -> Option<Self> {
        let (file, parts) = (File::from(key), NameParts::of(name.path()));
        if !by.braked.watches(name.path()) && !by.braked.has_moved(file) {
            return None;
        }
        // None of the two is a finding by itself.
        match opened {
            OpenedAs::Made => by.braked.tell(|judge, now| judge.made(file, parts, now)),
            OpenedAs::Emptied if end > 0 => {
                by.braked.tell(|judge, now| judge.emptied(file, parts, now));
            }
            OpenedAs::Found | OpenedAs::Emptied => {}
        }
        let watched = Self {
            old_end: if opened == OpenedAs::Made { 0 } else { end },
            is_noted: AtomicBool::new(false),
            is_written_down: AtomicBool::new(false),
            is_wiped: AtomicBool::new(false),
            has_noise_behind: AtomicBool::new(false),
            is_empty: AtomicBool::new(opened == OpenedAs::Emptied && end > 0),
        };
        match opened {
            OpenedAs::Made => {
                watched.is_written_down.store(true, Ordering::Relaxed);
                by.write_down(name, key, Change::Made);
            }
            OpenedAs::Emptied => watched.changed(by, name, key),
            OpenedAs::Found => {}
        }
        Some(watched)
    }

    /// True until a change of the data is in the journal.
    pub(crate) fn is_unknown(&self) -> bool {
        !self.is_written_down.load(Ordering::Relaxed)
    }

    /// Writes a change of the data to the journal, once for each Open.
    pub(crate) fn changed(&self, by: &By, name: &Name, key: FileKey) {
        if !self.is_written_down.swap(true, Ordering::Relaxed) {
            by.write_down(name, key, Change::Wrote);
        }
    }

    /// Notes data that was written.
    pub(crate) fn wrote(&self, by: &By, key: FileKey, offset: u64, data: &[u8]) -> Option<Alarm> {
        let is_over = offset < self.old_end;
        if is_over && !self.is_wiped.load(Ordering::Relaxed) && self.is_filled(offset, data) {
            return self.wiped(by, key);
        }
        self.is_empty.store(false, Ordering::Relaxed);
        let is_known = self.is_noted.load(Ordering::Relaxed)
            || !is_over
                && self.has_noise_behind.load(Ordering::Relaxed)
                && !self.is_wiped.load(Ordering::Relaxed);
        if is_known || !is_noise(data, by.braked.places().at(offset)) {
            return None;
        }
        self.noisy(by, key, is_over)
    }

    /// True for zeros over much of the old data, or over all of it.
    fn is_filled(&self, offset: u64, data: &[u8]) -> bool {
        let is_all = offset == 0 && data.len() as u64 >= self.old_end;
        (is_all || data.len() >= ZEROS) && data.iter().all(|byte| *byte == 0)
    }

    /// Notes data of another file that the server has copied.
    pub(crate) fn copied(&self, by: &By, key: FileKey, copied: &Copied<'_>) -> Option<Alarm> {
        self.is_empty.store(false, Ordering::Relaxed);
        let Copied { source, from, to, length, read } = *copied;
        let range = from..from.saturating_add(length);
        if self.is_noted.load(Ordering::Relaxed)
            || !(by.braked.is_noisy(source.into()) || is_noise_in(range, by.braked.places(), read))
        {
            return None;
        }
        self.noisy(by, key, to < self.old_end)
    }

    /// Notes data that does not compress.
    fn noisy(&self, by: &By, key: FileKey, is_over: bool) -> Option<Alarm> {
        let is_behind = self.old_end > 0 && !is_over;
        if is_behind {
            self.has_noise_behind.store(true, Ordering::Relaxed);
            // The old data may be gone by then: its place is behind itself.
            if !self.is_wiped.load(Ordering::Relaxed) {
                return None;
            }
        }
        self.is_noted.store(true, Ordering::Relaxed);
        let (file, is_over) = (File::from(key), is_over || is_behind);
        by.braked.note(by.session, |judge, limits, now| judge.noisy(file, is_over, limits, now))
    }

    /// Notes that old data was filled with zeros.
    pub(crate) fn wiped(&self, by: &By, key: FileKey) -> Option<Alarm> {
        if self.old_end == 0 || self.is_wiped.swap(true, Ordering::Relaxed) {
            return None;
        }
        let file = File::from(key);
        let has_noise = self.has_noise_behind.load(Ordering::Relaxed)
            && !self.is_noted.swap(true, Ordering::Relaxed);
        by.braked.note(by.session, |judge, limits, now| {
            let found = has_noise.then(|| judge.noisy(file, true, limits, now)).flatten();
            found.or_else(|| judge.wiped(file, limits, now))
        })
    }

    /// Notes that a range was filled with zeros.
    pub(crate) fn zeroed(&self, by: &By, key: FileKey, offset: u64) -> Option<Alarm> {
        if offset < self.old_end { self.wiped(by, key) } else { None }
    }

    /// Notes that the file has `end` bytes now.
    pub(crate) fn resized(&self, by: &By, key: FileKey, name: &Name, end: u64) {
        if end < self.old_end {
            let (file, parts) = (File::from(key), NameParts::of(name.path()));
            by.braked.tell(|judge, now| judge.emptied(file, parts, now));
            self.is_empty.store(end == 0, Ordering::Relaxed);
        }
    }

    /// Notes that the Open is closed. A file that it leaves empty has lost its data.
    pub(crate) fn closed(&self, by: &By, key: FileKey) -> Option<Alarm> {
        if self.is_empty.load(Ordering::Relaxed) { self.wiped(by, key) } else { None }
    }

    /// Notes another name, in place of `replaced`.
    pub(crate) fn renamed(
        by: &By,
        key: FileKey,
        names: [&Name; 2],
        replaced: Option<FileKey>,
    ) -> Option<Alarm> {
        if let Some(there) = replaced {
            by.write_down(names[1], there, Change::Replaced);
        }
        by.write_down(names[0], key, Change::Renamed(names[1].path()));
        let (file, replaced) = (File::from(key), replaced.map(File::from));
        let parts = names.map(|name| NameParts::of(name.path()));
        let [was_watched, is_watched] = names.map(|name| by.braked.watches(name.path()));
        by.braked.note(by.session, |judge, limits, now| {
            if was_watched && !is_watched {
                judge.moved_away(file, now);
            }
            judge.renamed(file, parts, replaced, limits, now)
        })
    }

    /// Notes one more name, in place of `replaced`.
    pub(crate) fn linked(
        by: &By,
        key: FileKey,
        name: &Name,
        replaced: Option<FileKey>,
    ) -> Option<Alarm> {
        if let Some(there) = replaced {
            by.write_down(name, there, Change::Replaced);
        }
        by.write_down(name, key, Change::Made);
        let (file, replaced) = (File::from(key), replaced.map(File::from));
        let parts = NameParts::of(name.path());
        by.braked
            .note(by.session, |judge, limits, now| judge.linked(file, parts, replaced, limits, now))
    }

    /// Notes that a name of the file is gone.
    pub(crate) fn removed(by: &By, key: FileKey, name: &Name) -> Option<Alarm> {
        by.write_down(name, key, Change::Removed);
        let (file, parts) = (File::from(key), NameParts::of(name.path()));
        by.braked.note(by.session, |judge, limits, now| judge.removed(file, parts, limits, now))
    }
}

impl By {
    fn write_down(&self, name: &Name, key: FileKey, change: Change<'_>) {
        self.braked.write_down(self.session, name.path(), key, change);
    }
}
