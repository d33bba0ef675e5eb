//! Copies that clients have left behind: they were served, and their client began again.
//!
//! Where no schedule thins them, some of each account stay. Their age does not count: a clock may be wrong.

use super::sets::Snapshot;
use crate::limits::{FSRVP_LEFT_PER_ACCOUNT, MAX_FSRVP_COPIES, MAX_FSRVP_LEFT};
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::fscc::eq_ignore_case;

/// A copy that its client has left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftCopy {
    /// The account that has had it made.
    pub owner: String,
    /// Its snapshot.
    pub snapshot: Snapshot,
}

impl LeftCopy {
    fn is_like(&self, other: &Self) -> bool {
        eq_ignore_case(&self.owner, &other.owner)
            && eq_ignore_case(&self.snapshot.share, &other.snapshot.share)
    }
}

/// The copies that were left behind, the first one first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LeftCopies(pub(super) Vec<LeftCopy>);

impl LeftCopies {
    /// Copies that are remembered at most: those that stay, and those of one set that are to be removed.
    pub(super) const MOST: usize = MAX_FSRVP_LEFT.saturating_add(MAX_FSRVP_COPIES);

    /// Adds a copy. With too many that cannot be removed the first one is forgotten.
    pub(super) fn add(&mut self, copy: LeftCopy) {
        if self.0.len() >= Self::MOST {
            self.0.remove(0);
        }
        self.0.push(copy);
    }

    /// Returns the snapshots that are too many, of an account and share or of all: the first ones.
    pub(super) fn surplus(&self) -> Vec<Snapshot> {
        let (mut stay, mut surplus): (Vec<&LeftCopy>, Vec<Snapshot>) = Default::default();
        for copy in self.0.iter().rev() {
            let alike = stay.iter().filter(|other| other.is_like(copy)).count();
            if alike < FSRVP_LEFT_PER_ACCOUNT && stay.len() < MAX_FSRVP_LEFT {
                stay.push(copy);
            } else {
                surplus.push(copy.snapshot.clone());
            }
        }
        surplus.reverse();
        surplus
    }
}
