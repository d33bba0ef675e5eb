//! Storage quality of service, MS-SQOS 3.2: logical flows, each with limits of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use frevo_wire::Status;
use frevo_wire::command::ioctl::storage_qos::FlowStatus;
use frevo_wire::dtyp::Guid;
use parking_lot::Mutex;

use crate::access::rate_rules::StoragePolicy;
use crate::base::limits::{RATE_BUCKET_BYTES, RATE_BURST};
use crate::base::rates::Gate;
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

/// The limits of a flow in force.
#[derive(Debug)]
pub(crate) struct FlowLimits {
    assigned: Assigned,
    io_rate: Option<Gate>,
    bandwidth: Option<Gate>,
}

impl FlowLimits {
    fn of(assigned: Assigned) -> Option<Self> {
        let gate = |rate: u64| (rate != 0).then(|| Gate::new(rate, RATE_BURST));
        let io_rate = gate(assigned.io_rate);
        let bandwidth = gate(assigned.bandwidth.saturating_mul(KILOBYTE));
        let has_any = io_rate.is_some() || bandwidth.is_some();
        has_any.then_some(Self { assigned, io_rate, bandwidth })
    }

    /// Returns the gates that an operation with `bytes` passes, with its units.
    pub(super) fn gates(&self, bytes: u64) -> impl Iterator<Item = (&Gate, u64)> {
        // MS-SQOS 4.1
        let normalized = bytes.div_ceil(u64::from(BASE_IO_SIZE));
        let gates = [(self.io_rate.as_ref(), normalized), (self.bandwidth.as_ref(), bytes)];
        gates.into_iter().filter_map(|(gate, units)| Some((gate?, units)))
    }

    /// Corrects what a request for `asked` bytes has paid by what it used. One operation stays paid.
    pub(super) fn settle(&self, asked: u64, used: u64, now: Duration) {
        if asked == 0 {
            return;
        }
        for ((gate, paid), (_, due)) in self.gates(asked).zip(self.gates(used.max(1))) {
            gate.give_back(paid.saturating_sub(due));
            if due > paid {
                gate.owe(due - paid, now);
            }
        }
    }

    fn close(&self) {
        self.io_rate.iter().chain(&self.bandwidth).for_each(Gate::close);
    }
}

/// A logical flow, MS-SQOS 3.2.1.3. It lasts as long as an Open is of it.
#[derive(Debug)]
pub(crate) struct LogicalFlow {
    /// LogicalFlowID
    pub(crate) id: Guid,
    asked: Mutex<AskedPolicy>,
    /// None where nothing is limited.
    limits: ArcSwapOption<FlowLimits>,
    _charge: Charge,
}

impl LogicalFlow {
    /// Returns the policy that its client has set.
    pub(crate) fn asked(&self) -> AskedPolicy {
        *self.asked.lock()
    }

    /// Returns the limits in force.
    pub(crate) fn limits(&self) -> Option<Arc<FlowLimits>> {
        self.limits.load_full()
    }

    fn assign(&self, asked: &AskedPolicy, policies: &[StoragePolicy]) {
        let assigned = asked.assigned(policies);
        let before = self.limits.load_full();
        if before.as_ref().is_some_and(|before| before.assigned == assigned) {
            return;
        }
        self.limits.store(FlowLimits::of(assigned).map(Arc::new));
        // Those that wait find the limits of now.
        before.iter().for_each(|before| before.close());
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
#[derive(Debug, Default)]
pub(crate) struct StorageQos(Mutex<Flows>);

#[derive(Debug, Default)]
struct Flows {
    policies: Vec<StoragePolicy>,
    flows: BTreeMap<FlowKey, Weak<LogicalFlow>>,
    /// The number of flows at which those that have ended are removed.
    sweep_at: usize,
}

impl StorageQos {
    /// True if there are policies. Without any no flow has a limit.
    pub(crate) fn is_on(&self) -> bool {
        !self.0.lock().policies.is_empty()
    }

    /// Puts other policies in force, also for the flows that have them.
    pub(super) fn set(&self, policies: &[StoragePolicy]) {
        let mut flows = self.0.lock();
        policies.clone_into(&mut flows.policies);
        for flow in flows.flows.values().filter_map(Weak::upgrade) {
            let asked = flow.asked.lock();
            flow.assign(&asked, policies);
        }
    }

    /// Returns the flow of that id, which is made unless the account of `holder` has it.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when the account may not have more.
    pub(crate) fn flow(&self, holder: &Arc<Holder>, id: Guid) -> Result<Arc<LogicalFlow>, Status> {
        let key = FlowKey { account: holder.name().clone(), id: id.0 };
        let mut flows = self.0.lock();
        if let Some(flow) = flows.flows.get(&key).and_then(Weak::upgrade) {
            return Ok(flow);
        }
        if flows.flows.len() >= flows.sweep_at {
            flows.flows.retain(|_, flow| flow.strong_count() > 0);
            flows.sweep_at = flows.flows.len().saturating_mul(2).saturating_add(SWEEP_FROM);
        }
        let flow = Arc::new(LogicalFlow {
            id,
            asked: Mutex::default(),
            limits: ArcSwapOption::empty(),
            _charge: holder.charge(Kind::RateBucket, RATE_BUCKET_BYTES)?,
        });
        flows.flows.insert(key, Arc::downgrade(&flow));
        Ok(flow)
    }

    /// Sets the policy of a flow.
    pub(crate) fn set_policy(&self, flow: &LogicalFlow, asked: AskedPolicy) {
        let flows = self.0.lock();
        let mut now = flow.asked.lock();
        *now = asked;
        flow.assign(&asked, &flows.policies);
    }

    /// Returns the limits that a flow has been assigned.
    pub(crate) fn assigned(&self, flow: &LogicalFlow) -> Assigned {
        flow.asked().assigned(&self.0.lock().policies)
    }
}
