//! The choices of a race: which program the nodes of a cluster have before they are upgraded, and which clients come.

use std::time::Duration;

use frevo_cluster::ClusterDialect;

use crate::dice::Dice;

/// The dialect of the program after the upgrade.
pub(super) const NEW: ClusterDialect = ClusterDialect::LARGEST;

/// Time by which a run with a race is longer than others.
pub(super) const LONGER: Duration = Duration::from_secs(15);

/// The parts of a race that all nodes have in common.
#[derive(Debug)]
pub(super) struct Race {
    /// The dialect of the program before the upgrade.
    pub(super) old: ClusterDialect,
    /// The longest time after which a node that has heard of a raise tells its server, milliseconds.
    pub(super) lateness: u64,
    /// True if it does so before it serves a further unit, as the shipped driver does. In other runs clients
    /// must say that they were let in before.
    pub(super) is_told_before_serving: bool,
    /// Count of clients that come and go.
    pub(super) visitors: usize,
}

impl Race {
    /// Chooses the race of a run.
    pub(super) fn new(mut dice: Dice) -> Self {
        let is_told_before_serving = dice.percent(60);
        // Before 3.1.1 a client cannot say that it was let in (MS-SMB2 2.2.9), so such a dialect is not raised where
        // it would have to.
        let first = [ClusterDialect::SMB_3_0_2, ClusterDialect::SMB_3_0];
        Self {
            old: first[usize::from(is_told_before_serving && dice.percent(60))],
            is_told_before_serving,
            lateness: *dice.pick(&[0, 100, 3_000, 8_000]),
            visitors: usize::try_from(4 + dice.below(9)).unwrap_or(4),
        }
    }

    /// Count of the clients of the race: those that come and go, and one that comes at the end.
    pub(super) const fn clients(&self) -> usize {
        self.visitors + 1
    }
}
