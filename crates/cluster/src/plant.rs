//! Faults on purpose: the exploration plants one at a time and must find it. None of this is in a build
//! without tests or the feature `plant`.

use core::cell::Cell;

/// A fault that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// The moment of the answer to a keep-alive counts, not that of the request.
    ConfirmedByAnswer,
    /// A node serves until its lease ends.
    MarginLeftOut,
    /// Records are written by anybody.
    RecordWithoutComparison,
    /// A transaction with records does not compare the number of the one before it.
    BatchWithoutNumber,
    /// A share is taken without a fence and without waiting.
    ServeBeforeFence,
    /// Changes that a watch could not tell are not read.
    WatchMissed,
    /// A former owner whose node still counts as up is waited for, and not fenced.
    UpWithoutFence,
}

impl Plant {
    /// All planted faults.
    pub const ALL: [Self; 7] = [
        Self::ConfirmedByAnswer,
        Self::MarginLeftOut,
        Self::RecordWithoutComparison,
        Self::BatchWithoutNumber,
        Self::ServeBeforeFence,
        Self::WatchMissed,
        Self::UpWithoutFence,
    ];
}

// A simulation runs on one thread and must not disturb tests on other threads.
std::thread_local! {
    static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
}

/// From here on machines of this thread have this fault.
pub fn plant(fault: Option<Plant>) {
    PLANTED.set(fault);
}

pub(crate) fn is_planted(fault: Plant) -> bool {
    PLANTED.get() == Some(fault)
}
