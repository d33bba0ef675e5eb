//! A rule of rate in force, with the numbers of what it holds back.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::buckets::{Buckets, Gates};
use crate::access::rate_rules::RateRule;
use crate::base::limits::RATE_BUCKETS;
use crate::base::rates::{Clock, Gate};

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
    /// Operations that wait now.
    waiting: AtomicUsize,
    /// Operations that have waited.
    held: AtomicU64,
    /// The time that they have waited, microseconds.
    held_micros: AtomicU64,
}

/// Numbers about a rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HeldBack {
    /// Operations that wait now.
    pub(crate) waiting: usize,
    /// Operations that have waited since the rule is in force.
    pub(crate) count: u64,
    /// The time that they have waited, all together, microseconds.
    pub(crate) micros: u64,
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
            waiting: AtomicUsize::new(0),
            held: AtomicU64::new(0),
            held_micros: AtomicU64::new(0),
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
        HeldBack {
            waiting: self.waiting.load(Ordering::Relaxed),
            count: self.held.load(Ordering::Relaxed),
            micros: self.held_micros.load(Ordering::Relaxed),
            buckets: self.buckets.len(),
        }
    }
}

/// A wait for a rule, counted when it ends.
pub(super) struct Wait<'a> {
    limited: &'a Limited,
    since: Duration,
}

impl<'a> Wait<'a> {
    pub(super) fn begin(limited: &'a Limited) -> Self {
        limited.waiting.fetch_add(1, Ordering::Relaxed);
        Self { limited, since: limited.clock.now() }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let waited = self.limited.clock.now().saturating_sub(self.since);
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.limited.waiting.fetch_sub(1, Ordering::Relaxed);
        self.limited.held.fetch_add(1, Ordering::Relaxed);
        self.limited.held_micros.fetch_add(micros, Ordering::Relaxed);
    }
}
