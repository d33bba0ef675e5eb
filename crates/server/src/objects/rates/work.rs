//! The work of a request, and the limits of rate that it has to pass.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::buckets::{Gates, Own, Owner};
use super::limited::{Limited, Wait};
use super::storage_qos::FlowLimits;
use crate::access::access_rules::Caller;
use crate::base::limits::RATE_WEIGHT;
use crate::base::rates::{Clock, Closed, Flow, Gate};
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
    /// The rule of the gate; None for that of a logical flow.
    limited: Option<&'a Limited>,
    gate: &'a Gate,
    units: u64,
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
    /// The account that is charged for limits of its own.
    pub(crate) holder: &'a Arc<Holder>,
}

impl RateFlow {
    /// Picks those of `rules` that are for `worker` in `share`.
    pub(crate) fn of(rules: &[Arc<Limited>], worker: Worker<'_>, share: &str) -> Self {
        let Worker { caller, session, holder } = worker;
        let picked = rules.iter().filter(|limited| limited.rule.is_for(caller, share));
        let weight = picked.clone().find_map(|limited| limited.rule.weight);
        let flow = Flow { id: session, weight: weight.unwrap_or(RATE_WEIGHT) };
        let owner = Owner { user: caller.user, session, address: caller.address, holder };
        let pick = |limited: &Arc<Limited>| Picked {
            limited: Arc::clone(limited),
            own: Own::take(limited, &owner),
        };
        Self { flow, rules: picked.filter(|limited| limited.has_limits()).map(pick).collect() }
    }

    /// True if no rule has a limit for it.
    pub(crate) fn is_free(&self) -> bool {
        self.rules.is_empty()
    }

    fn gates(&self, demand: Demand) -> impl Iterator<Item = Demanded<'_>> {
        let Demand { read, write, operations } = demand;
        self.rules.iter().flat_map(move |picked| {
            let gates = picked.gates().all().zip([operations, read, write]);
            gates.filter(|(_, units)| *units != 0).filter_map(|(gate, units)| {
                Some(Demanded {
                    flow: self.flow,
                    limited: Some(&picked.limited),
                    gate: gate?,
                    units,
                })
            })
        })
    }
}

/// A part of a request's work.
#[derive(Debug)]
struct Part {
    limits: Limits,
    demand: Demand,
}

/// The limits of a part.
#[derive(Debug)]
enum Limits {
    /// Those of the rules for a share.
    OfShare(Arc<RateFlow>),
    /// Those of the logical flow of an Open, for a session.
    OfFlow(Arc<FlowLimits>, Flow),
}

impl Limits {
    fn gates(&self, demand: Demand) -> impl Iterator<Item = Demanded<'_>> {
        let (of_share, of_flow) = match self {
            Self::OfShare(rules) => (Some(rules.gates(demand)), None),
            Self::OfFlow(limits, flow) => {
                let gates = limits.gates(demand.read.saturating_add(demand.write));
                let demanded = |(gate, units)| Demanded { flow: *flow, limited: None, gate, units };
                (None, Some(gates.filter(|(_, units)| *units != 0).map(demanded)))
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
        self.0.push(Part { limits: Limits::OfShare(flow), demand });
    }

    /// Adds the data of `demand`, which passes the limits of a logical flow for a session.
    pub(crate) fn add_flow(&mut self, limits: Arc<FlowLimits>, session: u64, demand: Demand) {
        let flow = Flow { id: session, weight: RATE_WEIGHT };
        self.0.push(Part { limits: Limits::OfFlow(limits, flow), demand });
    }

    /// True if it passes no limits.
    pub(crate) fn is_free(&self) -> bool {
        self.0.is_empty()
    }

    fn gates(&self) -> impl Iterator<Item = Demanded<'_>> {
        self.0.iter().flat_map(|part| part.limits.gates(part.demand))
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
            let _wait = one.limited.map(Wait::begin);
            one.gate.pass(one.flow, one.units, clock).await?;
        }
        Ok(At(at.0 + 1))
    }

    /// Returns what the gates before `until` have let pass.
    pub(crate) fn give_back(&self, until: At) {
        self.gates().take(until.0).for_each(|one| one.gate.give_back(one.units));
    }

    /// Returns the part of its demands that was not needed, as `left` says.
    pub(crate) fn give_rest_back(&self, left: impl Fn(Demand) -> Demand) {
        for Part { limits, demand } in &self.0 {
            limits.gates(left(*demand)).for_each(|one| one.gate.give_back(one.units));
        }
    }
}

#[cfg(test)]
mod tests;
