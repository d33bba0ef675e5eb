//! Storage quality of service, MS-SQOS 3.2: logical flows, each with limits of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use frevo_wire::Status;
use frevo_wire::command::ioctl::storage_qos::FlowStatus;
use frevo_wire::dtyp::Guid;
use parking_lot::Mutex;

use crate::access::rate_rules::StoragePolicy;
use crate::base::limits::{LOGICAL_FLOW_BYTES, RATE_BURST};
use crate::base::rates::{Clock, Gate, Waited, Waits};
use crate::objects::ledger::{Charge, Holder, Kind, Name};

/// BaseIoSize: bytes of a normalized operation. Windows: the size of all flows (MS-SQOS note 9).
pub(crate) const BASE_IO_SIZE: u32 = 8_192;
/// Bytes of a kilobyte of bandwidth.
const KILOBYTE: u64 = 1_024;
/// Flows beyond those in use before the table is swept.
const SWEEP_FROM: usize = 64;

/// The policy that a client has set for a flow, MS-SQOS 3.2.1.3.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AskedPolicy {
    /// PolicyID; zeros for none.
    pub(crate) policy: Guid,
    /// InitiatorID
    pub(crate) initiator: Guid,
    /// Limit, normalized operations a second; 0 for none.
    pub(crate) limit: u64,
    /// Reservation, normalized operations a second.
    pub(crate) reservation: u64,
    /// BandwidthLimit, kilobytes a second; 0 for none.
    pub(crate) bandwidth: u64,
}

/// The limits that a flow has been assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Assigned {
    /// Normalized operations a second; 0 for no limit.
    pub(crate) io_rate: u64,
    /// Kilobytes a second; 0 for no limit.
    pub(crate) bandwidth: u64,
    /// The state of the flow.
    pub(crate) status: FlowStatus,
}

impl AskedPolicy {
    /// Deviation: MS-SQOS lets a flow have a minimum. Nothing is reserved here, which the state of the flow says.
    fn assigned(&self, policies: &[StoragePolicy]) -> Assigned {
        if policies.is_empty() {
            // The policies were taken out of the configuration, and no client can change its flow any more.
            return Assigned { io_rate: 0, bandwidth: 0, status: FlowStatus::OK };
        }
        if self.policy == Guid::default() {
            let is_reserved = self.reservation != 0;
            let status =
                if is_reserved { FlowStatus::CONFIGURATION_MISMATCH } else { FlowStatus::OK };
            return Assigned { io_rate: self.limit, bandwidth: self.bandwidth, status };
        }
        let Some(policy) = policies.iter().find(|policy| policy.id == self.policy) else {
            return Assigned { io_rate: 0, bandwidth: 0, status: FlowStatus::UNKNOWN_POLICY_ID };
        };
        let bandwidth = policy.bandwidth.map_or(0, |bytes| bytes / KILOBYTE);
        Assigned { io_rate: policy.iops.unwrap_or(0), bandwidth, status: FlowStatus::OK }
    }
}

/// The unit in which a limit of a flow counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    NormalizedOperation,
    Byte,
}

/// A limit of a flow, or the debt at one that the flow had before.
#[derive(Debug)]
struct FlowGate {
    gate: Gate,
    /// False while the flow has no such limit: its debt is paid with time at the rate of the last one.
    is_on: bool,
}

impl FlowGate {
    /// The limit of `rate`, 0 for none, behind the one `before`. None if the flow never had one.
    fn after(before: Option<&Self>, rate: u64) -> Option<Self> {
        let is_on = rate != 0;
        let rate = if is_on { rate } else { before?.gate.per_second() };
        Some(Self { gate: Gate::new(rate, RATE_BURST), is_on })
    }
}

/// The limits of a flow in force.
#[derive(Debug)]
pub(crate) struct FlowLimits {
    assigned: Assigned,
    io_rate: Option<FlowGate>,
    bandwidth: Option<FlowGate>,
}

impl FlowLimits {
    fn after(before: Option<&Self>, assigned: Assigned) -> Self {
        let gate = |of: fn(&Self) -> &Option<FlowGate>, rate| {
            FlowGate::after(before.and_then(|before| of(before).as_ref()), rate)
        };
        Self {
            assigned,
            io_rate: gate(|limits| &limits.io_rate, assigned.io_rate),
            bandwidth: gate(
                |limits| &limits.bandwidth,
                assigned.bandwidth.saturating_mul(KILOBYTE),
            ),
        }
    }

    fn all(&self) -> impl Iterator<Item = (Unit, &FlowGate)> {
        let all = [(Unit::NormalizedOperation, &self.io_rate), (Unit::Byte, &self.bandwidth)];
        all.into_iter().filter_map(|(unit, gate)| Some((unit, gate.as_ref()?)))
    }

    fn gate(&self, unit: Unit) -> Option<&Gate> {
        self.all().find(|(of, _)| *of == unit).map(|(_, one)| &one.gate)
    }

    fn is_on(&self) -> bool {
        self.all().any(|(_, one)| one.is_on)
    }

    /// Returns the gates that an operation with `bytes` passes, with the units that it takes.
    pub(super) fn gates(&self, bytes: u64) -> impl Iterator<Item = (Unit, &Gate, u64)> {
        let on = self.all().filter(|(_, one)| one.is_on);
        on.map(move |(unit, one)| (unit, &one.gate, unit.count(bytes)))
    }

    fn close(&self) {
        self.all().for_each(|(_, one)| one.gate.close());
    }
}

impl Unit {
    /// MS-SQOS 4.1
    const fn count(self, bytes: u64) -> u64 {
        match self {
            Self::NormalizedOperation => bytes.div_ceil(BASE_IO_SIZE as u64),
            Self::Byte => bytes,
        }
    }
}

/// A logical flow, MS-SQOS 3.2.1.3. It lasts as long as an Open is of it.
#[derive(Debug)]
pub(crate) struct LogicalFlow {
    /// LogicalFlowID
    pub(crate) id: Guid,
    asked: Mutex<AskedPolicy>,
    /// None where nothing was limited yet.
    limits: ArcSwapOption<FlowLimits>,
    /// Waits of all flows.
    pub(super) waits: Arc<Waits>,
    _charge: Charge,
}

const _: () = {
    let limits = size_of::<FlowLimits>() * 2;
    let row = size_of::<FlowKey>() + size_of::<Weak<LogicalFlow>>();
    assert!(size_of::<LogicalFlow>() + limits + row <= LOGICAL_FLOW_BYTES);
};

impl LogicalFlow {
    /// Returns the policy that its client has set.
    pub(crate) fn asked(&self) -> AskedPolicy {
        *self.asked.lock()
    }

    /// Returns the limits in force. None where nothing is limited.
    pub(crate) fn limits(&self) -> Option<Arc<FlowLimits>> {
        self.limits.load_full().filter(|limits| limits.is_on())
    }

    /// Returns tokens for `units` that were not needed, whatever limit was passed with them.
    pub(super) fn give_back(&self, unit: Unit, units: u64) {
        let now = self.limits.load();
        if let Some(gate) = now.as_ref().and_then(|limits| limits.gate(unit)) {
            gate.give_back(units);
        }
    }

    /// Corrects what a request for `asked` bytes has paid at the limits `paid` by the bytes that it used. One operation
    /// stays paid.
    pub(super) fn settle(&self, paid: &FlowLimits, asked: u64, used: u64, now: Duration) {
        if asked == 0 {
            return;
        }
        for (unit, _, paid) in paid.gates(asked) {
            let due = unit.count(used.max(1));
            self.give_back(unit, paid.saturating_sub(due));
            let limits = self.limits.load();
            if let Some(gate) =
                limits.as_ref().and_then(|limits| limits.gate(unit)).filter(|_| due > paid)
            {
                gate.owe(due - paid, now);
            }
        }
    }

    /// Puts the limits of `policies` in force that its client has asked for. The debt of those before stays.
    fn assign(&self, asked: &AskedPolicy, policies: &[StoragePolicy], now: Duration) {
        let assigned = asked.assigned(policies);
        let before = self.limits.load_full();
        let is_known = before.as_ref().is_some_and(|before| before.assigned == assigned);
        if is_known || before.is_none() && assigned.io_rate == 0 && assigned.bandwidth == 0 {
            return;
        }
        let limits = Arc::new(FlowLimits::after(before.as_deref(), assigned));
        self.limits.store(Some(Arc::clone(&limits)));
        let Some(before) = before else { return };
        for (unit, one) in before.all() {
            if let Some(gate) = limits.gate(unit) {
                gate.owe(one.gate.owed(now), now);
            }
        }
        // Those that wait find the limits of now.
        before.close();
    }
}

/// The name of a flow. Deviation: MS-SQOS has one table for all clients. Here no account reaches the flows of another
/// one, whose limits it could change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FlowKey {
    account: Name,
    id: [u8; 16],
}

/// LogicalFlowTable, MS-SQOS 3.2.1.1, with the policies of the configuration.
#[derive(Debug)]
pub(crate) struct StorageQos {
    policies: ArcSwap<Vec<StoragePolicy>>,
    flows: Mutex<Flows>,
    /// Operations that wait for limits of flows, or have waited.
    waits: Arc<Waits>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Flows {
    flows: BTreeMap<FlowKey, Weak<LogicalFlow>>,
    /// The number of flows at which those that have ended are removed.
    sweep_at: usize,
}

impl Flows {
    fn sweep(&mut self) {
        self.flows.retain(|_, flow| flow.strong_count() > 0);
        self.sweep_at = self.flows.len().saturating_mul(2).saturating_add(SWEEP_FROM);
    }
}

/// Numbers about logical flows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FlowNumbers {
    /// Logical flows.
    pub(crate) flows: usize,
    /// Operations that wait for limits of flows, or have waited.
    pub(crate) waited: Waited,
}

impl StorageQos {
    /// Makes a table without policies.
    pub(super) fn new(clock: Clock) -> Self {
        Self { policies: ArcSwap::default(), flows: Mutex::default(), waits: Arc::default(), clock }
    }

    /// True if there are policies. Without any no flow has a limit.
    pub(crate) fn is_on(&self) -> bool {
        !self.policies.load().is_empty()
    }

    /// Puts other policies in force, also for the flows that have them.
    pub(super) fn set(&self, policies: &[StoragePolicy]) {
        self.policies.store(Arc::new(policies.to_vec()));
        for flow in self.flows() {
            let asked = flow.asked.lock();
            self.assign(&flow, &asked);
        }
    }

    /// Puts the newest policies in force for a flow whose policy is locked.
    fn assign(&self, flow: &LogicalFlow, asked: &AskedPolicy) {
        flow.assign(asked, &self.policies.load(), self.clock.now());
    }

    fn flows(&self) -> Vec<Arc<LogicalFlow>> {
        self.flows.lock().flows.values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the flow of that id, which is made unless the account of `holder` has it.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when the account may not have more.
    pub(crate) fn flow(&self, holder: &Arc<Holder>, id: Guid) -> Result<Arc<LogicalFlow>, Status> {
        let key = FlowKey { account: holder.name().clone(), id: id.0 };
        let mut flows = self.flows.lock();
        if let Some(flow) = flows.flows.get(&key).and_then(Weak::upgrade) {
            return Ok(flow);
        }
        if flows.flows.len() >= flows.sweep_at {
            flows.sweep();
        }
        let flow = Arc::new(LogicalFlow {
            id,
            asked: Mutex::default(),
            limits: ArcSwapOption::empty(),
            waits: Arc::clone(&self.waits),
            _charge: holder.charge(Kind::LogicalFlow, LOGICAL_FLOW_BYTES)?,
        });
        flows.flows.insert(key, Arc::downgrade(&flow));
        Ok(flow)
    }

    /// Sets the policy of a flow.
    pub(crate) fn set_policy(&self, flow: &LogicalFlow, asked: AskedPolicy) {
        let mut now = flow.asked.lock();
        *now = asked;
        self.assign(flow, &asked);
    }

    /// Returns the limits that a flow has been assigned.
    pub(crate) fn assigned(&self, flow: &LogicalFlow) -> Assigned {
        flow.asked().assigned(&self.policies.load())
    }

    /// Forgets the flows that have ended.
    pub(super) fn sweep(&self) {
        self.flows.lock().sweep();
    }

    /// The sessions whose operations wait for limits of flows.
    pub(super) fn sessions(&self) -> BTreeSet<u64> {
        let mut sessions = BTreeSet::new();
        for limits in self.flows().iter().filter_map(|flow| flow.limits()) {
            sessions.extend(limits.all().flat_map(|(_, one)| one.gate.flows()));
        }
        sessions
    }

    /// Returns the numbers of flows and of what waits for them.
    pub(crate) fn numbers(&self) -> FlowNumbers {
        let is_there = |flow: &&Weak<LogicalFlow>| flow.strong_count() > 0;
        let flows = self.flows.lock().flows.values().filter(is_there).count();
        FlowNumbers { flows, waited: self.waits.numbers() }
    }
}

#[cfg(test)]
mod tests;
