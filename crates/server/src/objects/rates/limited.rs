//! A rule of rate in force, with the numbers of what it holds back.

use std::collections::BTreeSet;
use std::time::Duration;

use super::buckets::{Buckets, Gates, HeldOne};
use crate::access::rate_rules::RateRule;
use crate::base::limits::{RATE_BUCKETS, RATE_HELD_SHOWN};
use crate::base::rates::{Clock, Gate, Waited, Waits};

/// A rule in force.
#[derive(Debug)]
pub(crate) struct Limited {
    /// The rule.
    pub(crate) rule: RateRule,
    /// The clock of its limits.
    pub(super) clock: Clock,
    /// The limits that all share who have none of their own.
    pub(super) shared: Gates,
    /// The limits of each user, session or address.
    pub(super) buckets: Buckets,
    /// Operations that wait, or have waited since the rule is in force.
    pub(super) waits: Waits,
}

/// Numbers about a rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HeldBack {
    /// Operations that wait, or have waited since the rule is in force.
    pub(crate) waited: Waited,
    /// Users, sessions or addresses that have the limits of their own.
    pub(crate) buckets: usize,
}

impl Limited {
    /// Puts a rule in force.
    pub(crate) fn new(rule: RateRule, clock: Clock) -> Self {
        Self::with_buckets(rule, clock, RATE_BUCKETS)
    }

    /// Puts a rule in force under which `most` may have limits of their own.
    pub(super) fn with_buckets(rule: RateRule, clock: Clock, most: usize) -> Self {
        Self {
            shared: Gates::of(&rule),
            buckets: Buckets::new(most),
            rule,
            clock,
            waits: Waits::default(),
        }
    }

    /// The lowest of its rates of bytes, or else of operations: the lower one is waited for first.
    pub(super) fn least_rate(&self) -> u64 {
        let RateRule { read, write, operations, .. } = self.rule;
        read.into_iter().chain(write).min().or(operations).unwrap_or(u64::MAX)
    }

    pub(super) fn has_limits(&self) -> bool {
        self.shared.present().next().is_some()
    }

    /// Ends the rule: those that wait for it go on, and find the rules of now.
    pub(crate) fn end(&self) {
        self.shared.close();
        self.buckets.close();
    }

    /// Forgets the limits of those who are gone and owe nothing.
    pub(super) fn sweep(&self, now: Duration) {
        self.buckets.sweep(now);
    }

    /// The sessions whose operations wait for the rule.
    pub(crate) fn sessions(&self) -> BTreeSet<u64> {
        let mut sessions = self.buckets.sessions();
        sessions.extend(self.shared.present().flat_map(Gate::flows));
        sessions
    }

    /// Returns the numbers of operations that were held back.
    pub(crate) fn held_back(&self) -> HeldBack {
        HeldBack { waited: self.waits.numbers(), buckets: self.buckets.len() }
    }

    /// The users, sessions or addresses that it holds back most: those first of which something waits.
    pub(crate) fn most_held(&self) -> Vec<HeldOne> {
        self.buckets.most_held(RATE_HELD_SHOWN)
    }
}
