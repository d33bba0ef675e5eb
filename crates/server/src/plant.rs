//! Faults on purpose: the simulator plants one at a time and must find it. None of this
//! is in a build without the feature `plant`.

use std::cell::Cell;

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// A client is answered before what it was promised is stable.
    AnswerBeforeStable,
    /// A persistent Open comes back without its locks.
    LocksLeftBehind,
    /// A persistent Open comes back without knowing that its file goes with it.
    DeletionForgotten,
    /// Writes to a continuous share are acknowledged from memory.
    WriteNotThrough,
    /// A numbered operation is carried out each time that it comes.
    OperationTwice,
}

impl Plant {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::AnswerBeforeStable,
        Self::LocksLeftBehind,
        Self::DeletionForgotten,
        Self::WriteNotThrough,
        Self::OperationTwice,
    ];
}

// Of the thread: a simulation runs on one, and tests beside it must not meet its fault.
thread_local! {
    static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
}

/// From here on servers of this thread have this fault.
pub fn plant(fault: Option<Plant>) {
    PLANTED.set(fault);
}

pub(crate) fn is_planted(fault: Plant) -> bool {
    PLANTED.get() == Some(fault)
}
