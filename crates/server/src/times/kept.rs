//! An Open keeps its times, and shows late ones.

use std::sync::atomic::Ordering;

use frevo_store::Stat;
use frevo_store::vfs::BasicChange;
use frevo_wire::Status;
use frevo_wire::dtyp::FileTime;
use tokio::time::Instant;

use super::{LATE, Late, Setting, TICK};
use crate::open::FileOpen;

impl FileOpen {
    /// Takes note of what is said of two times, and says what they are set to, so
    /// that whatever else is set along with them does not change them.
    pub fn set_times(
        &self,
        written: Setting,
        changed: Setting,
    ) -> Result<(Option<FileTime>, Option<FileTime>), Status> {
        if self.posix {
            // To POSIX clients a time is set once, and moves on.
            return Ok((written.value(), changed.value()));
        }
        let is_left = |setting| matches!(setting, Setting::Leave);
        if !self.times.has_any() && is_left(written) && is_left(changed) {
            return Ok((None, None));
        }
        let freezes = matches!(written, Setting::Freeze) || matches!(changed, Setting::Freeze);
        let now = if freezes { Some(self.stat()?) } else { None };
        let mut state = self.times.state.lock();
        state.written = written.kept(state.written, now.map(|stat| stat.written));
        state.changed = changed.kept(state.changed, now.map(|stat| stat.changed));
        let any = self.times.defers || state.written.is_some() || state.changed.is_some();
        self.times.any.store(any, Ordering::Relaxed);
        Ok((written.value(), state.changed))
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

    /// Something was done through this Open: the times that it keeps are as they
    /// were.
    pub fn keep_times(&self) {
        if !self.times.has_any() {
            return;
        }
        let change = {
            let state = self.times.state.lock();
            BasicChange { written: state.written, changed: state.changed, ..BasicChange::default() }
        };
        if change != BasicChange::default()
            && let Err(fault) = self.node.set_basic(&change)
        {
            tracing::debug!(%fault, "times that a client has set could not be restored");
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
        if state.written.is_some() {
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
        if self.times.state.lock().written.is_some() {
            return;
        }
        let change = BasicChange { written: Some(time), ..BasicChange::default() };
        if let Err(fault) = self.node.set_basic(&change) {
            tracing::debug!(%fault, "the time of a write could not be stored");
        }
    }
}
