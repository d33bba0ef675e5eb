//! An Open keeps its times, and shows late ones.

use std::sync::atomic::Ordering;

use frevo_store::Stat;
use frevo_store::vfs::BasicChange;
use frevo_wire::Status;
use frevo_wire::dtyp::FileTime;
use tokio::time::Instant;

use super::{LATE, Late, Setting, TICK};
use crate::objects::open::FileOpen;

/// The times of a file before an operation of an Open that keeps them. They are set again when this
/// is dropped, unless another Open has moved them meanwhile.
#[must_use]
pub struct KeptTimes<'a> {
    file: &'a FileOpen,
    kept: Option<Before>,
    /// [`frevo_store::FileCell::restorations`] before a write.
    restorations: Option<u64>,
}

#[derive(Debug)]
struct Before {
    times: BasicChange,
    /// [`frevo_store::FileCell::moves`]
    moves: u64,
}

impl Drop for KeptTimes<'_> {
    fn drop(&mut self) {
        let cell = self.file.own_cell();
        let Some(Before { times, moves }) = &self.kept else {
            if self.restorations.is_some_and(|before| cell.restorations() != before) {
                self.move_again();
            }
            return;
        };
        if cell.moves() != *moves {
            return;
        }
        if let Err(fault) = self.file.node.set_basic(times) {
            tracing::debug!(%fault, "times that a client has set could not be restored");
        }
        // Another Open may have changed the times meanwhile. Each Open raises its own counter
        // before it reads the other one, so at least one of the two Opens notices.
        cell.note_restoration();
        if cell.moves() != *moves {
            self.move_again();
        }
    }
}

impl KeptTimes<'_> {
    /// Takes note that the operation was refused: it moves no time.
    pub fn was_refused(&mut self) {
        self.restorations = None;
    }

    /// Moves LastWriteTime to the last change, since times of before it were restored after it.
    fn move_again(&self) {
        let moved = self.file.node_stat().map(|stat| self.file.write_time(stat.changed));
        if let Err(status) = moved {
            tracing::debug!(%status, "the time of a write could not be told");
        }
    }
}

impl FileOpen {
    /// Takes note of what is said of two times, and says what they are set to, so
    /// that whatever else is set along with them does not change them.
    pub fn set_times(
        &self,
        written: Setting,
        changed: Setting,
    ) -> Result<(Option<FileTime>, Option<FileTime>), Status> {
        if self.posix {
            // For a POSIX client a set time does not stay, because the next write changes it.
            return Ok((written.value(), changed.value()));
        }
        let is_left = |setting| matches!(setting, Setting::Leave);
        if !self.times.has_any() && is_left(written) && is_left(changed) {
            return Ok((None, None));
        }
        let keeps_changed = {
            let mut state = self.times.state.lock();
            state.keeps_written = written.keeps(state.keeps_written);
            state.keeps_changed = changed.keeps(state.keeps_changed);
            let any = self.times.defers || state.keeps_written || state.keeps_changed;
            self.times.any.store(any, Ordering::Relaxed);
            state.keeps_changed
        };
        let changed = match changed.value() {
            None if keeps_changed => Some(self.node_stat()?.changed),
            set => set,
        };
        Ok((written.value(), changed))
    }

    /// Something is about to be written.
    pub fn before_write(&self) -> Result<(), Status> {
        if !self.times.has_any() || !self.times.defers {
            return Ok(());
        }
        let late = self.times.state.lock().late;
        let since = Instant::now();
        let next = match late {
            Late::Idle => Late::Pending { shown: self.stat()?.written, since },
            Late::Settled => Late::Again { shown: self.stat()?.written },
            Late::Pending { since: first, .. } if since.duration_since(first) >= LATE => {
                Late::Again { shown: self.node_stat()?.written }
            }
            stays => stays,
        };
        self.times.state.lock().late = next;
        Ok(())
    }

    /// Something is about to be done through this Open: the times that it keeps are set again when
    /// the returned value is dropped.
    pub fn keep_times(&self) -> KeptTimes<'_> {
        let kept = if self.times.has_any() { self.times_before() } else { None };
        KeptTimes { file: self, kept, restorations: None }
    }

    /// Like [`Self::keep_times`], for a change of data or of its length. Its time is set again if another
    /// operation restores an earlier one meanwhile.
    pub fn keep_times_of_write(&self) -> KeptTimes<'_> {
        let restorations = Some(self.own_cell().restorations());
        let mut kept = self.keep_times();
        kept.restorations = restorations;
        kept
    }

    /// Like [`Self::keep_times`], for LastWriteTime alone and every Open. ChangeTime moves.
    pub fn keep_written(&self) -> KeptTimes<'_> {
        KeptTimes { file: self, kept: self.times_of(true, false), restorations: None }
    }

    fn times_before(&self) -> Option<Before> {
        let (keeps_written, keeps_changed) = {
            let state = self.times.state.lock();
            (state.keeps_written, state.keeps_changed)
        };
        if keeps_written || keeps_changed {
            self.times_of(keeps_written, keeps_changed)
        } else {
            None
        }
    }

    fn times_of(&self, keeps_written: bool, keeps_changed: bool) -> Option<Before> {
        // The counter is read before the times, so that a change between the two reads is noticed
        // later.
        let moves = self.own_cell().moves();
        let stat = self.node_stat().ok()?;
        let written = keeps_written.then_some(stat.written);
        let changed = keeps_changed.then_some(stat.changed);
        Some(Before { times: BasicChange { written, changed, ..BasicChange::default() }, moves })
    }

    /// Something was done through this Open that moves times, unless it keeps them.
    pub fn times_moved(&self) {
        let keeps = || {
            let state = self.times.state.lock();
            state.keeps_written || state.keeps_changed
        };
        if !self.times.has_any() || !keeps() {
            self.own_cell().note_move();
        }
    }

    /// Brings LastWriteTime up to date with earlier writes: MS-FSA 2.1.4.17, which lets a file
    /// system defer it.
    pub fn settle_times(&self, now: FileTime) {
        if !self.times.has_any() || !self.times.defers {
            return;
        }
        let late = std::mem::replace(&mut self.times.state.lock().late, Late::Settled);
        if matches!(late, Late::Pending { .. } | Late::Again { .. }) {
            self.write_time(now);
        }
    }

    /// Like [`Self::settle_times`], for a file that is being closed. A single write was noted
    /// when it was made; within a tick of the clock it is not noted at all.
    pub fn close_times(&self, now: FileTime) {
        if !self.times.has_any() || !self.times.defers {
            return;
        }
        let late = std::mem::replace(&mut self.times.state.lock().late, Late::Settled);
        match late {
            Late::Again { .. } => self.write_time(now),
            Late::Pending { shown, .. } => {
                let is_within = |stat: Stat| stat.written.0.abs_diff(shown.0) < TICK;
                if self.node_stat().is_ok_and(is_within) {
                    self.write_time(shown);
                }
            }
            Late::Idle => self.times.state.lock().late = Late::Idle,
            Late::Settled => {}
        }
    }

    /// The file's state as this Open shows it, but for the size of its EAs.
    pub fn stat(&self) -> Result<Stat, Status> {
        self.as_shown(self.node_stat()?)
    }

    /// Like [`Self::stat`], with the size of its EAs.
    pub fn stat_with_eas(&self) -> Result<Stat, Status> {
        self.as_shown(self.node.stat().map_err(frevo_store::Fault::status)?)
    }

    fn as_shown(&self, stat: Stat) -> Result<Stat, Status> {
        if !self.times.has_any() {
            return Ok(stat);
        }
        let mut state = self.times.state.lock();
        if state.keeps_written {
            return Ok(stat);
        }
        match state.late {
            Late::Pending { since, .. } if since.elapsed() >= LATE => {
                state.late = Late::Settled;
                Ok(stat)
            }
            Late::Pending { shown, .. } | Late::Again { shown } => {
                Ok(Stat { written: shown, ..stat })
            }
            Late::Idle | Late::Settled => Ok(stat),
        }
    }

    fn node_stat(&self) -> Result<Stat, Status> {
        self.node.stat_without_eas().map_err(frevo_store::Fault::status)
    }

    fn write_time(&self, time: FileTime) {
        if self.times.state.lock().keeps_written {
            return;
        }
        let change = BasicChange { written: Some(time), ..BasicChange::default() };
        if let Err(fault) = self.node.set_basic(&change) {
            tracing::debug!(%fault, "the time of a write could not be stored");
        }
    }
}
