//! Faults on purpose: the simulator plants one at a time and must find it. None of this is in a build
//! without the feature `plant`.

use std::cell::Cell;

/// A fault that the simulator can plant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// A node keeps the addresses of a unit that it has no longer.
    AddressKept,
    /// Each start of a node gives the numbers of handles and sessions that the first one gave.
    NumberTwice,
    /// A unit is started without its records.
    RecordsNotLoaded,
}

impl Plant {
    /// All planted faults.
    pub const ALL: [Self; 3] = [Self::AddressKept, Self::NumberTwice, Self::RecordsNotLoaded];
}

// The planted fault belongs to one thread, because a simulation runs on one thread and must not disturb
// tests on other threads.
thread_local! {
    static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
}

/// From here on nodes of this thread have this fault.
pub fn plant(fault: Option<Plant>) {
    PLANTED.set(fault);
}

pub(crate) fn is_planted(fault: Plant) -> bool {
    PLANTED.get() == Some(fault)
}
