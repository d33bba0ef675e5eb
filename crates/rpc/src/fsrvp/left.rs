//! Copies that clients have left behind: they were served, and their client began again.
//!
//! They belong to the schedule of their share. A share without one keeps some of each account.

use super::sets::Snapshot;
use crate::limits::{FSRVP_LEFT_AGE, FSRVP_LEFT_PER_ACCOUNT, MAX_FSRVP_LEFT};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use frevo_wire::fscc::eq_ignore_case;

/// A copy that its client has left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeftCopy {
    /// The account that has had it made.
    pub(super) owner: String,
    pub(super) snapshot: Snapshot,
}

/// The copies that were left behind, the first one first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LeftCopies(pub(super) Vec<LeftCopy>);

impl LeftCopies {
    /// Adds a copy. Returns the one that goes for it: the first of its account and share, or of all.
    pub(super) fn add(&mut self, owner: &str, snapshot: Snapshot) -> Option<Snapshot> {
        let new = LeftCopy { owner: owner.to_string(), snapshot };
        let is_alike = |left: &LeftCopy| {
            eq_ignore_case(&left.owner, &new.owner)
                && eq_ignore_case(&left.snapshot.share, &new.snapshot.share)
        };
        let goes = if self.0.iter().filter(|left| is_alike(left)).count() >= FSRVP_LEFT_PER_ACCOUNT
        {
            self.0.iter().position(is_alike)
        } else {
            (self.0.len() >= MAX_FSRVP_LEFT).then_some(0)
        };
        let gone = goes.map(|at| self.0.remove(at).snapshot);
        self.0.push(new);
        gone
    }

    /// Takes those out that are too old at a second since 1970.
    pub(super) fn expire(&mut self, now: u64) -> Vec<Snapshot> {
        let is_old = |left: &mut LeftCopy| {
            now.saturating_sub(left.snapshot.taken) >= FSRVP_LEFT_AGE.as_secs()
        };
        self.0.extract_if(.., is_old).map(|left| left.snapshot).collect()
    }
}
