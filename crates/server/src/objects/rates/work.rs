//! The work of a request, and the limits of rate that it has to pass.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::buckets::{Gates, Own, Owner};
use super::limited::Limited;
use super::storage_qos::{FlowLimits, LogicalFlow, Unit};
use crate::access::access_rules::Caller;
use crate::base::limits::{OFFLOAD_BYTES, RATE_WEIGHT};
use crate::base::rates::{Clock, Closed, Flow, Gate, Waits};
use crate::base::under_way::UnderWay;
use crate::objects::ledger::Holder;

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
    flow: Flow,
    of: LimitOf<'a>,
    gate: &'a Gate,
    units: u64,
    /// True for a gate that other accounts do not pass.
    is_own: bool,
}

/// The rule or the logical flow that a gate is of.
enum LimitOf<'a> {
    Rule(&'a Limited),
    Flow(&'a LogicalFlow, Unit),
}

impl Demanded<'_> {
    /// Returns what it has taken at the gate.
    fn give_back(&self) {
        match self.of {
            LimitOf::Rule(_) => self.gate.give_back(self.units),
            // Another policy may be in force by now, and the flow owes to that one.
            LimitOf::Flow(flow, unit) => flow.give_back(unit, self.units),
        }
    }

    fn waits(&self) -> &Waits {
        match self.of {
            LimitOf::Rule(limited) => &limited.waits,
            LimitOf::Flow(flow, _) => &flow.waits,
        }
    }
}

/// A rule for a flow, with the limits that the flow has of its own.
#[derive(Debug)]
struct Picked {
    limited: Arc<Limited>,
    /// None where all share those of the rule.
    own: Option<Own>,
}

impl Picked {
    fn gates(&self) -> &Gates {
        self.own.as_ref().map_or(&self.limited.shared, |own| &own.gates)
    }
}

/// The rules for one session in one share, from one network.
#[derive(Debug)]
pub(crate) struct RateFlow {
    flow: Flow,
    rules: Vec<Picked>,
}

/// A session in whose name work is done.
#[derive(Clone, Copy)]
pub(crate) struct Worker<'a> {
    /// Its user, and the address of its client.
    pub(crate) caller: &'a Caller<'a>,
    /// The id of the session.
    pub(crate) session: u64,
    /// Lives as long as the session.
    pub(crate) lives: &'a Arc<UnderWay>,
    /// The account that is charged for limits of its own.
    pub(crate) holder: &'a Arc<Holder>,
}

impl RateFlow {
    /// Picks those of `rules` that are for `worker` in `share`.
    pub(crate) fn of(rules: &[Arc<Limited>], worker: Worker<'_>, share: &str) -> Self {
        let Worker { caller, session, lives, holder } = worker;
        let picked = rules.iter().filter(|limited| limited.rule.is_for(caller, share));
        let weight = picked.clone().find_map(|limited| limited.rule.weight);
        let flow = Flow { id: session, weight: weight.unwrap_or(RATE_WEIGHT) };
        let (user, address) = (caller.user, caller.address);
        let owner = Owner { user, session, address, lives, holder };
        let pick = |limited: &Arc<Limited>| Picked {
            limited: Arc::clone(limited),
            own: Own::take(limited, &owner),
        };
        let limited = picked.filter(|limited| limited.has_limits());
        let mut rules: Vec<Picked> = limited.map(pick).collect();
        // A request that waits for a low limit has taken nothing of a higher one yet.
        rules.sort_by_key(|picked| picked.limited.least_rate());
        Self { flow, rules }
    }

    /// True if no rule has a limit for it.
    pub(crate) fn is_free(&self) -> bool {
        self.rules.is_empty()
    }

    /// Corrects what `demand` has paid by what was used. One request that was larger than it said puts no more debt on
    /// a limit of several accounts than the largest request that says its size.
    fn settle(&self, demand: Demand, used: Demand, now: Duration) {
        let left = Demand {
            read: demand.read.saturating_sub(used.read),
            write: demand.write.saturating_sub(used.write),
            operations: 0,
        };
        let more = Demand {
            read: used.read.saturating_sub(demand.read),
            write: used.write.saturating_sub(demand.write),
            operations: 0,
        };
        self.gates(left).for_each(|one| one.give_back());
        self.gates(more).for_each(|one| {
            let most = if one.is_own { u64::MAX } else { OFFLOAD_BYTES };
            one.gate.owe(one.units.min(most), now);
        });
    }

    fn gates(&self, demand: Demand) -> impl Iterator<Item = Demanded<'_>> {
        let Demand { read, write, operations } = demand;
        self.rules.iter().flat_map(move |picked| {
            let gates = picked.gates().all().zip([operations, read, write]);
            gates.filter(|(_, units)| *units != 0).filter_map(|(gate, units)| {
                Some(Demanded {
                    flow: self.flow,
                    of: LimitOf::Rule(&picked.limited),
                    gate: gate?,
                    units,
                    is_own: picked.own.as_ref().is_some_and(Own::is_of_one_account),
                })
            })
        })
    }
}

impl Demand {
    /// The bytes that are read and written.
    const fn data(self) -> u64 {
        self.read.saturating_add(self.write)
    }
}

/// A part of a request's work.
#[derive(Debug)]
struct Part {
    limits: Limits,
    demand: Demand,
    /// True for what a copy reads from its source.
    is_source: bool,
}

/// The limits of a part.
#[derive(Debug)]
enum Limits {
    /// Those of the rules for a share.
    OfShare(Arc<RateFlow>),
    /// Those of the logical flow of an Open, for a session.
    OfFlow(Arc<LogicalFlow>, Arc<FlowLimits>, Flow),
}

impl Limits {
    fn gates(&self, demand: Demand) -> impl Iterator<Item = Demanded<'_>> {
        let (of_share, of_flow) = match self {
            Self::OfShare(rules) => (Some(rules.gates(demand)), None),
            Self::OfFlow(logical, limits, flow) => {
                let gates = limits.gates(demand.data());
                let demanded = |(unit, gate, units)| {
                    let of = LimitOf::Flow(logical, unit);
                    Demanded { flow: *flow, of, gate, units, is_own: true }
                };
                (None, Some(gates.filter(|(.., units)| *units != 0).map(demanded)))
            }
        };
        of_share.into_iter().flatten().chain(of_flow.into_iter().flatten())
    }
}

/// The work of a request: in its share, in the one that a copy reads from, and in the logical flow of its Open.
#[derive(Debug, Default)]
pub(crate) struct Work(SmallVec<[Part; 2]>);

/// The gate before which an operation has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At(usize);

impl At {
    /// The first gate.
    pub(crate) const FIRST: Self = Self(0);
}

impl Work {
    /// Adds a part, which passes the limits of `flow`.
    pub(crate) fn add(&mut self, flow: Arc<RateFlow>, demand: Demand) {
        self.0.push(Part { limits: Limits::OfShare(flow), demand, is_source: false });
    }

    /// Adds the bytes that a copy reads from its source, which pass the limits of `flow`.
    pub(crate) fn add_source(&mut self, flow: Arc<RateFlow>, read: u64) {
        let demand = Demand { read, ..Demand::default() };
        self.0.push(Part { limits: Limits::OfShare(flow), demand, is_source: true });
    }

    /// Adds the data of `demand`, which passes the limits of `logical` for a session. Nothing where it has none.
    pub(crate) fn add_flow(&mut self, logical: Arc<LogicalFlow>, session: u64, demand: Demand) {
        if let Some(limits) = logical.limits() {
            let flow = Flow { id: session, weight: RATE_WEIGHT };
            let limits = Limits::OfFlow(logical, limits, flow);
            self.0.push(Part { limits, demand, is_source: false });
        }
    }

    /// True if it passes no limits.
    pub(crate) fn is_free(&self) -> bool {
        self.0.is_empty()
    }

    /// The gates in the order in which they are passed: first those that nobody else passes. Who waits there holds
    /// nothing of what others share.
    fn gates(&self) -> impl Iterator<Item = Demanded<'_>> {
        let all = || self.0.iter().flat_map(|part| part.limits.gates(part.demand));
        all().filter(|one| one.is_own).chain(all().filter(|one| !one.is_own))
    }

    /// Passes gates without a wait, one after the other from `from` on. None when it has passed all; else the
    /// one that it has to wait for.
    pub(crate) fn try_pass(&self, from: At, now: Duration) -> Option<At> {
        let mut gates = self.gates().skip(from.0);
        let passed = gates.position(|one| !one.gate.try_pass(one.units, now))?;
        Some(At(from.0 + passed))
    }

    /// Waits at a gate, and returns the one behind it.
    ///
    /// # Errors
    /// [`Closed`] when the rule is not in force any more.
    pub(crate) async fn wait(&self, at: At, clock: Clock) -> Result<At, Closed> {
        if let Some(one) = self.gates().nth(at.0) {
            let _wait = one.waits().begin(clock);
            one.gate.pass(one.flow, one.units, clock).await?;
        }
        Ok(At(at.0 + 1))
    }

    /// Returns what the gates before `until` have let pass.
    pub(crate) fn give_back(&self, until: At) {
        self.gates().take(until.0).for_each(|one| one.give_back());
    }

    /// Corrects what was asked for by the bytes that were used, `used` in its own share and `read` of the source of
    /// a copy: gives the rest back, or has later work wait for what was more. Operations stay paid.
    pub(crate) fn settle(&self, used: Demand, read: u64, now: Duration) {
        let source = Demand { read, ..Demand::default() };
        for Part { limits, demand, is_source } in &self.0 {
            let used = if *is_source { source } else { used };
            match limits {
                Limits::OfShare(rules) => rules.settle(*demand, used, now),
                Limits::OfFlow(logical, limits, _) => {
                    logical.settle(limits, demand.data(), used.data(), now);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
