//! The rules of rate in force at a server, and the calls that they hold back.
//!
//! Rules with limits are for all clients whose calls are recorded. A call has passed its limits at some time between
//! its request and its answer. So all calls that were asked for and answered within a span of time, while one rule was
//! in force without a break, are together no more than that rule lets pass in the span.

use std::collections::BTreeMap;
use std::time::Duration;

use frevo_server::rate_rules::{Each, RateRule};
use tokio::time::Instant;

use crate::trace::Trace;
use crate::violation;

/// The accounts of the clients whose calls are recorded.
pub const USERS: [&str; 2] = ["carl", "dora"];

/// A rule in force, from the beginning of its server or of the rule on.
#[derive(Debug, Clone)]
struct InForce {
    rule: RateRule,
    since: Instant,
    /// None while it is in force.
    until: Option<Instant>,
}

/// The work of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moves {
    /// Bytes that were read.
    Read(u64),
    /// Bytes that were written.
    Written(u64),
}

/// A call that has succeeded.
#[derive(Debug, Clone)]
pub struct PacedCall {
    /// Its account.
    pub user: &'static str,
    /// The number of its client, which has an address of its own.
    pub client: usize,
    /// The time of its request.
    pub asked: Instant,
    /// The time of its answer.
    pub answered: Instant,
    /// Its work.
    pub moves: Moves,
}

/// All rules and calls of a run.
#[derive(Debug, Default)]
pub struct RateBook {
    wanted: Vec<RateRule>,
    all: Vec<InForce>,
    calls: Vec<PacedCall>,
}

/// The units of a call at one limit.
#[derive(Debug, Clone, Copy)]
struct Passed {
    asked: Instant,
    answered: Instant,
    units: u64,
}

impl RateBook {
    /// Returns the rules that a server has from its beginning on.
    pub fn wanted(&self) -> &[RateRule] {
        &self.wanted
    }

    /// Records other rules for the server, which is there if `is_there`. Rules that stay as they are go on.
    pub fn change(&mut self, rules: Vec<RateRule>, is_there: bool) {
        let now = Instant::now();
        let is_kept = |one: &InForce| one.until.is_none() && rules.contains(&one.rule);
        let kept: Vec<RateRule> =
            self.all.iter().filter(|one| is_kept(one)).map(|one| one.rule.clone()).collect();
        for one in self.all.iter_mut().filter(|one| one.until.is_none()) {
            one.until = if rules.contains(&one.rule) { None } else { Some(now) };
        }
        if is_there {
            let new = rules.iter().filter(|rule| !kept.contains(rule)).cloned();
            self.all.extend(new.map(|rule| InForce { rule, since: now, until: None }));
        }
        self.wanted = rules;
    }

    /// Records the beginning of a server with the rules that are wanted. Nobody owes anything there.
    pub fn server_begins(&mut self) {
        self.server_ends();
        let (since, until) = (Instant::now(), None);
        let rules = self.wanted.iter().cloned();
        self.all.extend(rules.map(|rule| InForce { rule, since, until }));
    }

    /// Records the end of a server.
    pub fn server_ends(&mut self) {
        let now = Instant::now();
        self.all.iter_mut().for_each(|one| _ = one.until.get_or_insert(now));
    }

    /// Records a call.
    pub fn passed(&mut self, call: PacedCall) {
        self.calls.push(call);
    }

    /// Compares what has passed with all rules.
    pub fn judge(&self, trace: &Trace) {
        for one in &self.all {
            self.judge_one(one, trace);
        }
    }

    fn judge_one(&self, InForce { rule, since, until }: &InForce, trace: &Trace) {
        let is_within = |call: &&PacedCall| {
            let is_before = until.is_none_or(|until| call.answered <= until);
            call.asked >= *since && is_before
        };
        let calls: Vec<&PacedCall> = self.calls.iter().filter(is_within).collect();
        for (what, rate) in
            [("operations", rule.operations), ("read", rule.read), ("write", rule.write)]
        {
            let Some(rate) = rate else { continue };
            let mut owners: BTreeMap<String, Vec<Passed>> = BTreeMap::new();
            for call in &calls {
                let units = units(what, call.moves);
                let PacedCall { asked, answered, .. } = **call;
                owners.entry(owner(rule, call)).or_default().push(Passed {
                    asked,
                    answered,
                    units,
                });
            }
            for (owner, passed) in owners {
                if let Some(excess) = Excess::of(&passed, rate, rule.burst) {
                    let Excess { units, millis, most } = excess;
                    violation!(
                        trace,
                        "{} {what} {owner}: {units} in {millis} ms, {most} are allowed",
                        rule.name
                    );
                }
            }
        }
    }
}

/// The one that has the limits of a rule on its own.
fn owner(rule: &RateRule, call: &PacedCall) -> String {
    match rule.each {
        None => String::from("of all"),
        Some(Each::User) => format!("of {}", call.user),
        Some(Each::Session | Each::Address) => format!("of c{}", call.client),
    }
}

fn units(what: &str, moves: Moves) -> u64 {
    match (what, moves) {
        ("operations", _) => 1,
        ("read", Moves::Read(bytes)) | ("write", Moves::Written(bytes)) => bytes,
        _ => 0,
    }
}

/// More than may pass, in a span of time.
#[derive(Debug, PartialEq, Eq)]
struct Excess {
    units: u64,
    millis: u128,
    most: u64,
}

impl Excess {
    /// Returns the first span in which more has passed than `rate` units a second, those of `burst`, and one call.
    fn of(passed: &[Passed], rate: u64, burst: Duration) -> Option<Self> {
        let largest = passed.iter().map(|one| one.units).max()?;
        let mut by_request: Vec<&Passed> = passed.iter().collect();
        by_request.sort_by_key(|one| std::cmp::Reverse(one.asked));
        // The calls that were asked for since the beginning of the span, by their answers.
        let mut within: Vec<&Passed> = Vec::new();
        for first in by_request {
            let at = within.partition_point(|one| one.answered <= first.answered);
            within.insert(at, first);
            let mut sum = 0;
            for last in &within {
                sum += last.units;
                let span = last.answered - first.asked;
                let filled = u128::from(rate) * (span + burst).as_nanos() / 1_000_000_000;
                // Each call may be half a nanosecond too cheap.
                let most = u64::try_from(filled).unwrap_or(u64::MAX) + largest + 1;
                if sum > most {
                    return Some(Self { units: sum, millis: span.as_millis(), most });
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(start: Instant, calls: &[(u64, u64, u64)]) -> Vec<Passed> {
        let at = |ms: u64| start + Duration::from_millis(ms);
        let call = |&(asked, answered, units): &(u64, u64, u64)| Passed {
            asked: at(asked),
            answered: at(answered),
            units,
        };
        calls.iter().map(call).collect()
    }

    #[test]
    fn more_than_a_rule_allows_is_found_in_any_span() {
        let start = Instant::now();
        let excess = |calls: &[(u64, u64, u64)]| {
            Excess::of(&passed(start, calls), 1_000, Duration::from_millis(100))
        };
        // A call, what the burst has, and what a second fills in.
        assert_eq!(excess(&[(0, 10, 500), (0, 500, 500), (0, 1_000, 500)]), None);
        assert_eq!(excess(&[]), None);
        let found = excess(&[(9_000, 9_001, 1), (0, 10, 500), (5, 20, 500), (10, 30, 500)]);
        assert_eq!(found, Some(Excess { units: 1_000, millis: 25, most: 626 }));
        // A long wait before says nothing about when it passed.
        assert_eq!(excess(&[(0, 10, 500), (0, 900, 500), (0, 901, 500)]), None);
    }

    #[test]
    fn a_rule_counts_from_its_beginning_to_its_end() {
        let trace = Trace::new(Instant::now(), true);
        let rule = RateRule { write: Some(1_000), each: Some(Each::User), ..RateRule::new("a") };
        let call = |user, moves| {
            let now = Instant::now();
            PacedCall { user, client: 1, asked: now, answered: now, moves }
        };
        let mut book = RateBook::default();
        book.passed(call("carl", Moves::Written(9_000)));
        book.change(vec![rule.clone()], true);
        book.passed(call("carl", Moves::Written(600)));
        book.passed(call("dora", Moves::Written(600)));
        book.passed(call("carl", Moves::Read(9_000)));
        book.judge(&trace);
        assert!(!trace.is_violated());
        book.change(vec![rule.clone(), RateRule::new("b")], true);
        assert_eq!((book.all.len(), book.all[0].until), (2, None), "it goes on");
        book.server_begins();
        assert_eq!(book.all.iter().filter(|one| one.until.is_none()).count(), 2);
        book.change(vec![rule], true);
        book.passed(call("carl", Moves::Written(9_000)));
        book.passed(call("carl", Moves::Written(9_000)));
        book.passed(call("carl", Moves::Written(9_000)));
        book.judge(&trace);
        assert!(trace.is_violated());
    }
}
