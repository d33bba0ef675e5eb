//! Faults on purpose: the simulator plants one at a time and must find it. None
//! of this is in a build without the feature `plant`.

use std::cell::Cell;

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// A request that is sent again does not say so.
    SkippedReplayFlag,
    /// What is written again after a reconnect is written behind it once more.
    DoubleAppend,
    /// An Open that held locks is taken up without them.
    LostLock,
    /// A lease break is acknowledged and nobody is told.
    StaleCache,
    /// Now and then an answer goes to another request.
    WrongWaiter,
    /// A listing misses a name.
    MissedName,
    /// A copy by the server goes over a sector.
    SkippedSector,
}

impl Plant {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::SkippedReplayFlag,
        Self::DoubleAppend,
        Self::LostLock,
        Self::StaleCache,
        Self::WrongWaiter,
        Self::MissedName,
        Self::SkippedSector,
    ];
}

thread_local! {
    static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
}

/// From here on clients of this thread have this fault.
pub fn plant(fault: Option<Plant>) {
    PLANTED.set(fault);
}

pub(crate) fn is_planted(fault: Plant) -> bool {
    PLANTED.get() == Some(fault)
}
