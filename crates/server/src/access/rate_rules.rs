//! Limits of rate for users, groups, shares and networks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use frevo_net::IpNetwork;
use frevo_wire::fscc::eq_ignore_case;

use crate::access::access_rules::{Caller, Names};
use crate::base::limits::{RATE_BURST, RATE_WEIGHT};
use crate::base::rates::{Clock, Closed, Flow, Gate};

/// A limit of rate. All operations that it is for share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateRule {
    /// Its name, by which it is shown.
    pub name: String,
    /// The shares that it is for; empty: all.
    pub shares: Vec<String>,
    /// The users and groups that it is for; empty: all users.
    pub users: Names,
    /// The networks of clients that it is for; empty: all.
    pub networks: Vec<IpNetwork>,
    /// Bytes that are read in a second; None: no limit.
    pub read: Option<u64>,
    /// Bytes that are written in a second; None: no limit.
    pub write: Option<u64>,
    /// Operations in a second; None: no limit.
    pub operations: Option<u64>,
    /// The time whose bytes and operations may pass at once after a pause.
    pub burst: Duration,
    /// The part of its sessions, beside others, of each limit that they share; None: what another rule says,
    /// or 1.
    pub weight: Option<u32>,
}

impl RateRule {
    /// A rule for all, without a limit.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            shares: Vec::new(),
            users: Names::default(),
            networks: Vec::new(),
            read: None,
            write: None,
            operations: None,
            burst: RATE_BURST,
            weight: None,
        }
    }

    fn is_for(&self, caller: &Caller<'_>, share: &str) -> bool {
        let is_share = |name: &String| eq_ignore_case(name, share);
        let has_share = self.shares.is_empty() || self.shares.iter().any(is_share);
        let is_near = |network: &IpNetwork| network.contains(caller.address);
        has_share
            && (self.networks.is_empty() || self.networks.iter().any(is_near))
            && (self.users.is_empty() || self.users.contains(caller))
    }
}

/// An amount of work: MS-SQOS, too, counts bytes and operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Bytes to be read.
    pub(crate) read: u64,
    /// Bytes to be written.
    pub(crate) write: u64,
    /// Operations.
    pub(crate) operations: u64,
}

/// A part of a demand, and the gate that it has to pass.
struct Demanded<'a> {
    limited: &'a Limited,
    gate: &'a Gate,
    units: u64,
}

/// A rule in force.
#[derive(Debug)]
pub(crate) struct Limited {
    /// The rule.
    pub(crate) rule: RateRule,
    /// Its limits of operations, of bytes that are read, and of bytes that are written.
    gates: [Option<Gate>; 3],
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
}

impl Limited {
    /// Puts a rule in force.
    pub(crate) fn new(rule: RateRule) -> Self {
        let gate = |rate: Option<u64>| rate.map(|rate| Gate::new(rate, rule.burst));
        let gates = [gate(rule.operations), gate(rule.read), gate(rule.write)];
        let (waiting, zero) = (AtomicUsize::new(0), || AtomicU64::new(0));
        Self { rule, gates, waiting, held: zero(), held_micros: zero() }
    }

    fn demanded(&self, demand: Demand) -> impl Iterator<Item = Demanded<'_>> {
        let units = [demand.operations, demand.read, demand.write];
        let pairs = self.gates.iter().zip(units).filter(|(_, units)| *units != 0);
        pairs.filter_map(|(gate, units)| {
            Some(Demanded { limited: self, gate: gate.as_ref()?, units })
        })
    }

    fn has_limits(&self) -> bool {
        self.gates.iter().any(Option::is_some)
    }

    /// Ends the rule: those that wait for it go on, and find the rules of now.
    pub(crate) fn end(&self) {
        self.gates.iter().flatten().for_each(Gate::close);
    }

    /// The sessions whose operations wait for the rule.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = u64> {
        self.gates.iter().flatten().flat_map(Gate::flows)
    }

    /// Returns the numbers of operations that were held back.
    pub(crate) fn held_back(&self) -> HeldBack {
        HeldBack {
            waiting: self.waiting.load(Ordering::Relaxed),
            count: self.held.load(Ordering::Relaxed),
            micros: self.held_micros.load(Ordering::Relaxed),
        }
    }
}

/// The rules for one session in one share, from one network.
#[derive(Debug)]
pub(crate) struct RateFlow {
    flow: Flow,
    rules: Vec<Arc<Limited>>,
}

/// The gate before which an operation has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At(usize);

impl RateFlow {
    /// Picks those of `rules` that are for `caller` in `share`.
    pub(crate) fn of(
        rules: &[Arc<Limited>],
        caller: &Caller<'_>,
        share: &str,
        session: u64,
    ) -> Self {
        let picked = rules.iter().filter(|limited| limited.rule.is_for(caller, share));
        let weight = picked.clone().find_map(|limited| limited.rule.weight);
        let flow = Flow { id: session, weight: weight.unwrap_or(RATE_WEIGHT) };
        Self { flow, rules: picked.filter(|limited| limited.has_limits()).cloned().collect() }
    }

    /// True if no rule has a limit for it.
    pub(crate) fn is_free(&self) -> bool {
        self.rules.is_empty()
    }

    fn gates(&self, demand: &Demand) -> impl Iterator<Item = Demanded<'_>> {
        let demand = *demand;
        self.rules.iter().flat_map(move |limited| limited.demanded(demand))
    }

    /// Passes gates without a wait, one after the other from `from` on. None when it has passed all; else the
    /// one that it has to wait for.
    pub(crate) fn try_pass(&self, demand: &Demand, from: At, now: Duration) -> Option<At> {
        let mut gates = self.gates(demand).skip(from.0);
        let passed = gates.position(|one| !one.gate.try_pass(one.units, now))?;
        Some(At(from.0 + passed))
    }

    /// Waits at a gate, and returns the one behind it.
    ///
    /// # Errors
    /// [`Closed`] when the rule is not in force any more.
    pub(crate) async fn wait(&self, demand: &Demand, at: At, clock: Clock) -> Result<At, Closed> {
        if let Some(one) = self.gates(demand).nth(at.0) {
            let _wait = Wait::begin(one.limited, clock);
            one.gate.pass(self.flow, one.units, clock).await?;
        }
        Ok(At(at.0 + 1))
    }

    /// Returns what the gates before `until` have let pass.
    pub(crate) fn give_back(&self, demand: &Demand, until: At) {
        self.gates(demand).take(until.0).for_each(|one| one.gate.give_back(one.units));
    }

    /// Returns what all gates have let pass.
    pub(crate) fn give_all_back(&self, demand: &Demand) {
        self.give_back(demand, At(usize::MAX));
    }
}

impl At {
    /// The first gate.
    pub(crate) const FIRST: Self = Self(0);
}

/// A wait for a rule, counted when it ends.
struct Wait<'a> {
    limited: &'a Limited,
    clock: Clock,
    since: Duration,
}

impl<'a> Wait<'a> {
    fn begin(limited: &'a Limited, clock: Clock) -> Self {
        limited.waiting.fetch_add(1, Ordering::Relaxed);
        Self { limited, clock, since: clock.now() }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let waited = self.clock.now().saturating_sub(self.since);
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.limited.waiting.fetch_sub(1, Ordering::Relaxed);
        self.limited.held.fetch_add(1, Ordering::Relaxed);
        self.limited.held_micros.fetch_add(micros, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use frevo_store::security::Token;

    use super::*;
    use crate::access::domain_names::DomainSids;

    const BOB: &str = "bob";

    fn flow(rules: &[RateRule], user: &str, share: &str, address: &str) -> RateFlow {
        let rules: Vec<_> = rules.iter().map(|rule| Arc::new(Limited::new(rule.clone()))).collect();
        let caller = Caller {
            user,
            groups: &[String::from("staff")],
            groups_are_known: true,
            token: &Token::nobody(),
            domain_sids: &DomainSids::default(),
            address: address.parse().unwrap(),
        };
        RateFlow::of(&rules, &caller, share, 7)
    }

    #[test]
    fn rules_are_for_shares_users_groups_and_networks() {
        let limit = |rule: RateRule| RateRule { operations: Some(1), ..rule };
        let of_share = limit(RateRule { shares: vec![String::from("Data")], ..RateRule::new("a") });
        let of_user = limit(RateRule { users: Names::of([BOB]), ..RateRule::new("b") });
        let of_group = limit(RateRule { users: Names::of(["@staff"]), ..RateRule::new("c") });
        let networks = vec!["192.0.2.0/24".parse().unwrap()];
        let of_network = limit(RateRule { networks, ..RateRule::new("d") });
        let weighs = RateRule { weight: Some(3), ..RateRule::new("e") };
        let rules = [of_share, of_user, of_group, of_network, weighs];
        let names = |flow: RateFlow| -> String {
            flow.rules.iter().map(|limited| limited.rule.name.as_str()).collect()
        };
        assert_eq!(names(flow(&rules, BOB, "data", "192.0.2.1")), "abcd");
        assert_eq!(names(flow(&rules, "ann", "other", "192.0.3.1")), "c");
        assert_eq!(flow(&rules, "ann", "data", "192.0.3.1").flow.weight, 3);
        assert_eq!(flow(&rules[..1], "ann", "data", "192.0.3.1").flow.weight, RATE_WEIGHT);
        assert!(flow(&rules[4..], BOB, "data", "192.0.2.1").is_free());
    }

    #[test]
    fn all_limits_of_a_rule_count_and_what_was_not_used_is_given_back() {
        let rule = RateRule {
            read: Some(1_000),
            operations: Some(10),
            burst: Duration::from_secs(1),
            ..RateRule::new("a")
        };
        let flow = flow(&[rule], BOB, "data", "192.0.2.1");
        let now = Duration::from_secs(100);
        let read = Demand { read: 1_500, write: 0, operations: 1 };
        assert_eq!(flow.try_pass(&read, At::FIRST, now), None);
        assert_eq!(flow.try_pass(&read, At::FIRST, now), Some(At(1)), "the bytes of a second");
        let write = Demand { read: 0, write: 9_999, operations: 8 };
        assert_eq!(flow.try_pass(&write, At::FIRST, now), None, "writes have no limit");
        let one = Demand { operations: 3, ..Demand::default() };
        assert_eq!(flow.try_pass(&one, At::FIRST, now), None);
        assert_eq!(flow.try_pass(&one, At::FIRST, now), Some(At(0)), "ten operations, and some");
        flow.give_all_back(&read);
        let later = now + Duration::from_millis(500);
        assert_eq!(flow.try_pass(&read, At::FIRST, later), None);
    }
}
