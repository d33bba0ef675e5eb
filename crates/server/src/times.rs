//! The times of a file that an Open keeps as they are, and LastWriteTime where a
//! share lets it move late.
//! MS-FSA 2.1.1.6 has Open.UserSetModificationTime, UserSetChangeTime and UserSetAccessTime: a
//! time that was set through an Open, or frozen with -1, is not changed by later operations of
//! the Open. The host's file system knows no such Open, so its change of a time is undone
//! after each operation. Only Opens with a frozen time pay for it.
//!
//! Deviation: LastAccessTime is set and not kept; reading moves it as the host is
//! mounted to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frevo_store::Stat;
use frevo_store::vfs::BasicChange;
use frevo_wire::Status;
use frevo_wire::dtyp::FileTime;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::open::FileOpen;

/// How long a share with late LastWriteTimes keeps the first write to itself.
const LATE: Duration = Duration::from_secs(2);
/// How fine the clock is of those systems that defer: 1/64 second, in units of
/// FILETIME.
const TICK: u64 = 156_250;

/// The setting of a time in FileBasicInformation, MS-FSCC 2.4.7.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// 0: it stays.
    Leave,
    /// -1: nothing that is done through this Open changes it.
    Freeze,
    /// -2: no longer so.
    Thaw,
    /// It is set, and frozen.
    To(FileTime),
}

impl Setting {
    /// The setting in a field; INVALID_PARAMETER when it is below -2 (MS-FSA 2.1.5.15.2).
    pub const fn of(time: FileTime) -> Result<Self, Status> {
        Ok(match time.0.cast_signed() {
            0 => Self::Leave,
            -1 => Self::Freeze,
            -2 => Self::Thaw,
            i64::MIN..-2 => return Err(Status::INVALID_PARAMETER),
            _ => Self::To(time),
        })
    }

    /// The time that is set.
    pub const fn value(self) -> Option<FileTime> {
        match self {
            Self::To(time) => Some(time),
            _ => None,
        }
    }

    /// The time that is kept from now on.
    const fn kept(self, before: Option<FileTime>, now: Option<FileTime>) -> Option<FileTime> {
        match self {
            Self::Leave => before,
            Self::Freeze if before.is_some() => before,
            Self::Freeze => now,
            Self::Thaw => None,
            Self::To(time) => Some(time),
        }
    }
}

/// Where a LastWriteTime stands that moves late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Late {
    /// Nothing was written.
    Idle,
    /// Something was, which is not shown yet.
    Pending { shown: FileTime, since: Instant },
    /// It is as the medium has it.
    Settled,
    /// Something was written after that, and counts when the Open is closed.
    Again { shown: FileTime },
}

#[derive(Debug)]
struct State {
    /// LastWriteTime as it stays: Open.UserSetModificationTime is true.
    written: Option<FileTime>,
    /// ChangeTime as it stays: Open.UserSetChangeTime is true.
    changed: Option<FileTime>,
    late: Late,
}

/// The times that an Open keeps.
#[derive(Debug)]
pub struct Times {
    /// True when a time is to be kept: the only field that most Opens read.
    any: AtomicBool,
    defers: bool,
    state: Mutex<State>,
}

impl Times {
    /// Times of a new Open; `defers`: LastWriteTime moves late.
    pub const fn new(defers: bool) -> Self {
        let state = State { written: None, changed: None, late: Late::Idle };
        Self { any: AtomicBool::new(defers), defers, state: Mutex::new(state) }
    }

    /// True when the Open keeps a time.
    pub fn has_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
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
            tracing::debug!(%fault, "times that an Open keeps have changed");
        }
    }

    /// What was written is to show in LastWriteTime: MS-FSA 2.1.4.17, which lets a
    /// file system defer that.
    pub fn settle_times(&self, now: FileTime) {
        if !self.times.has_any() || !self.times.defers {
            return;
        }
        let late = std::mem::replace(&mut self.times.state.lock().late, Late::Settled);
        if matches!(late, Late::Pending { .. } | Late::Again { .. }) {
            self.write_time(now);
        }
    }

    /// The same for a file that is being closed. What was written only once was
    /// noted then; within a tick of the clock it is not noted at all.
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

    /// The same with the size of its EAs.
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
            tracing::debug!(%fault, "a late time of writing was not noted");
        }
    }
}
