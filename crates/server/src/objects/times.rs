//! The times of a file that an Open keeps as they are, and LastWriteTime where a
//! share lets it move late.
//! MS-FSA 2.1.1.6 has Open.UserSetModificationTime, UserSetChangeTime and UserSetAccessTime: a
//! time that was set through an Open, or frozen with -1, is not changed by later operations of
//! the Open. It stays as it is before each of them, since other Opens may have moved it. The host's
//! file system knows no such Open, so its change of a time is undone after each operation. Only
//! Opens with a frozen time pay for it.
//!
//! Deviation: LastAccessTime is set and not kept; reading moves it as the host is
//! mounted to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frevo_wire::Status;
use frevo_wire::dtyp::FileTime;
use parking_lot::Mutex;
use tokio::time::Instant;

mod kept;

pub(crate) use kept::KeptTimes;

/// How long a share with late LastWriteTimes keeps the first write to itself.
const LATE: Duration = Duration::from_secs(2);
/// How fine the clock is of those systems that defer: 1/64 second, in units of
/// FILETIME.
const TICK: u64 = 156_250;

/// The setting of a time in FileBasicInformation, MS-FSCC 2.4.7.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// 0: the time stays as it is.
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

    /// True when the time is kept from now on, if it was kept `before`.
    const fn keeps(self, before: bool) -> bool {
        match self {
            Self::Leave => before,
            Self::Freeze | Self::To(_) => true,
            Self::Thaw => false,
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
    /// Open.UserSetModificationTime
    keeps_written: bool,
    /// Open.UserSetChangeTime
    keeps_changed: bool,
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
        let state = State { keeps_written: false, keeps_changed: false, late: Late::Idle };
        Self { any: AtomicBool::new(defers), defers, state: Mutex::new(state) }
    }

    /// True when the Open keeps a time.
    pub fn has_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }
}
