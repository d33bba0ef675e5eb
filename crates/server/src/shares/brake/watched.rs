//! [`Watched`]: an open file in a share with a brake.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frevo_store::{FileKey, Name};

use super::journal::Change;
use super::{Alarm, Braked, File, NameParts, is_noise};

/// An open file in a share with a brake. Its methods return an alarm if the brake takes hold.
#[derive(Debug)]
pub(crate) struct Watched {
    braked: Arc<Braked>,
    /// The session that opened it.
    session: u64,
    /// The end of the data that was there before this Open.
    old_end: u64,
    /// True once data that does not compress was written: it is not looked for again.
    is_noted: AtomicBool,
    /// True once a change of its data is in the journal, and for a file that was made.
    is_written_down: AtomicBool,
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

impl Watched {
    /// Looks at a file of `end` bytes that a session opens. None for a path that is excepted.
    pub(crate) fn new(
        braked: &Arc<Braked>,
        session: u64,
        key: FileKey,
        name: &Name,
        end: u64,
        opened: OpenedAs,
    ) -> Option<Self> {
        if !braked.watches(name.path()) {
            return None;
        }
        let (file, parts) = (File::from(key), NameParts::of(name.path()));
        // None of the two is a finding by itself.
        match opened {
            OpenedAs::Made => braked.tell(|judge, now| judge.made(file, parts, now)),
            OpenedAs::Emptied if end > 0 => {
                braked.tell(|judge, now| judge.emptied(file, parts, now));
            }
            OpenedAs::Found | OpenedAs::Emptied => {}
        }
        let old_end = if opened == OpenedAs::Made { 0 } else { end };
        let watched = Self {
            braked: Arc::clone(braked),
            session,
            old_end,
            is_noted: AtomicBool::new(false),
            is_written_down: AtomicBool::new(false),
        };
        match opened {
            OpenedAs::Made => {
                watched.is_written_down.store(true, Ordering::Relaxed);
                watched.write_down(name, key, Change::Made);
            }
            OpenedAs::Emptied => watched.changed(name, key),
            OpenedAs::Found => {}
        }
        Some(watched)
    }

    fn write_down(&self, name: &Name, key: FileKey, change: Change<'_>) {
        self.braked.write_down(self.session, name.path(), key, change);
    }

    /// True until a change of the data is in the journal.
    pub(crate) fn is_unknown(&self) -> bool {
        !self.is_written_down.load(Ordering::Relaxed)
    }

    /// Writes a change of the data to the journal, once for each Open.
    pub(crate) fn changed(&self, name: &Name, key: FileKey) {
        if !self.is_written_down.swap(true, Ordering::Relaxed) {
            self.write_down(name, key, Change::Wrote);
        }
    }

    /// Notes data that was written.
    pub(crate) fn wrote(&self, key: FileKey, offset: u64, data: &[u8]) -> Option<Alarm> {
        let is_over = offset < self.old_end;
        let is_added = self.old_end > 0 && !is_over;
        if is_added || self.is_noted.load(Ordering::Relaxed) || !is_noise(data) {
            return None;
        }
        self.is_noted.store(true, Ordering::Relaxed);
        let file = File::from(key);
        self.braked.note(self.session, |judge, limits, now| judge.noisy(file, is_over, limits, now))
    }

    /// Notes data of another file that the server has copied.
    pub(crate) fn copied(&self, key: FileKey, source: FileKey) -> Option<Alarm> {
        let (file, from, is_over) = (File::from(key), File::from(source), self.old_end > 0);
        self.braked
            .note(self.session, |judge, limits, now| judge.copied(from, file, is_over, limits, now))
    }

    /// Notes that the file has `end` bytes now.
    pub(crate) fn resized(&self, key: FileKey, name: &Name, end: u64) {
        if end < self.old_end {
            let (file, parts) = (File::from(key), NameParts::of(name.path()));
            self.braked.tell(|judge, now| judge.emptied(file, parts, now));
        }
    }

    /// Notes another name, in place of `replaced`.
    pub(crate) fn renamed(
        &self,
        key: FileKey,
        names: [&Name; 2],
        replaced: Option<FileKey>,
    ) -> Option<Alarm> {
        if let Some(there) = replaced {
            self.write_down(names[1], there, Change::Replaced);
        }
        self.write_down(names[0], key, Change::Renamed(names[1].path()));
        let (file, replaced) = (File::from(key), replaced.map(File::from));
        let parts = names.map(|name| NameParts::of(name.path()));
        self.braked.note(self.session, |judge, limits, now| {
            judge.renamed(file, parts, replaced, limits, now)
        })
    }

    /// Notes that a name of the file is gone.
    pub(crate) fn removed(&self, key: FileKey, name: &Name) -> Option<Alarm> {
        self.write_down(name, key, Change::Removed);
        let (file, parts) = (File::from(key), NameParts::of(name.path()));
        self.braked.note(self.session, |judge, limits, now| judge.removed(file, parts, limits, now))
    }
}
