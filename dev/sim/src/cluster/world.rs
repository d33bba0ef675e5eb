//! The parts of a cluster that all nodes have in common, and the rules that hold for all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frevo_cluster::interface::Request;
use frevo_cluster::keys::{ControlKey, Layout};
use frevo_cluster::model::Etcd;
use frevo_cluster::model::engine::SharedEtcd;
use frevo_cluster::names::{ClusterName, NodeName, ShareName};
use frevo_cluster::settings::Timing;
use frevo_cluster::values::{DialectValue, OwnerValue};
use frevo_cluster::{ClusterDialect, Epoch, RecordId};
use frevo_etcd::engine::Moment;
use frevo_etcd::types::{Keys, LeaseId, Op, Txn};
use frevo_store::memory::{Faults, Operation};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::clock::BootClock;
use super::process::Process;
use super::race::Race;
use super::storage::Storage;
use super::way::Road;
use crate::actor::Stage;
use crate::company::{Destination, Used};
use crate::dice::Dice;
use crate::network::Network;
use crate::trace::Trace;
use crate::{event, violation};

/// Time after which an owner has heard that its key was deleted, also over a slow way on which each change is told
/// after the one before.
const WATCH: Duration = Duration::from_secs(20);

/// A unit: its shares, its files, its actors and their judge.
pub(super) struct Unit {
    /// Its name.
    pub(super) name: ShareName,
    /// Its shares, which show the same files: the second one is continuously available.
    pub(super) shares: [String; 2],
    pub(super) storage: Arc<Storage>,
    pub(super) stage: Arc<Stage>,
}

impl Unit {
    /// The unit as clients see it.
    pub(super) fn place(&self) -> Destination<'_> {
        let [data, lasting] = &self.shares;
        Destination { stage: &self.stage, shares: [data, lasting] }
    }

    /// True for one of its shares, by its name in lower case.
    pub(super) fn has_share(&self, share: &str) -> bool {
        self.shares.iter().any(|name| name == share)
    }
}

/// The parts of a cluster that all nodes have in common.
pub(super) struct World {
    pub(super) trace: Arc<Trace>,
    pub(super) network: Arc<Network>,
    pub(super) dice: Mutex<Dice>,
    pub(super) etcd: SharedEtcd,
    clock: BootClock,
    used: Notify,
    pub(super) layout: Layout,
    pub(super) units: Vec<Unit>,
    /// True if storage refuses nobody: a new owner waits instead.
    pub(super) is_without_fence: bool,
    /// The race of the run, if it has one.
    pub(super) race: Option<Race>,
    /// The shares that clients use for the whole run.
    pub(super) used_shares: Mutex<Vec<Used>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    roads: Vec<Road>,
    /// The process of each node.
    processes: BTreeMap<usize, Arc<Process>>,
    /// The last owner of each unit.
    epochs: BTreeMap<usize, Epoch>,
    /// The process that has started a unit with an epoch.
    owners: BTreeMap<(usize, Epoch), u64>,
    /// Numbers of handles and sessions.
    numbers: BTreeSet<u64>,
    last_process: u64,
    /// Former owners whose leases or keys were removed by hand.
    dispossessed: Vec<Dispossessed>,
    /// True while etcd has no majority.
    has_no_majority: bool,
    /// How often something has come between each node and etcd or storage, or has stopped it.
    disturbances: BTreeMap<usize, u64>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

/// An owner, as etcd has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) epoch: Epoch,
    pub(super) node: NodeName,
    pub(super) lease: LeaseId,
}

/// A process that may hear late that it has lost a unit by hand: others cannot wait for its limit.
#[derive(Debug, Clone, Copy)]
struct Dispossessed {
    unit: usize,
    process: u64,
    /// The moment from which on it must not answer any more.
    until: Instant,
}

/// A transaction that changes records, and the owner whose they were before it.
#[derive(Debug)]
pub(super) struct Claim {
    unit: usize,
    owner: Option<Owner>,
}

impl World {
    /// A world with an etcd that has no keys.
    pub(super) fn new(
        nodes: usize,
        units: Vec<Unit>,
        network: Arc<Network>,
        trace: Arc<Trace>,
        mut dice: Dice,
        race: Option<Race>,
    ) -> Arc<Self> {
        let state = State { roads: vec![Road::default(); nodes], ..State::default() };
        Arc::new(Self {
            clock: BootClock::new(trace.start(), &mut dice),
            is_without_fence: dice.percent(25),
            trace,
            network,
            dice: Mutex::new(dice),
            etcd: SharedEtcd::default(),
            used: Notify::new(),
            layout: Layout::new(&cluster_name()),
            units,
            race,
            used_shares: Mutex::default(),
            state: Mutex::new(state),
        })
    }

    /// The largest dialect that the cluster demands, as etcd has it.
    pub(super) fn demanded(&self) -> Option<ClusterDialect> {
        let key = self.layout.control(&ControlKey::Dialect);
        let entry = self.etcd.change(|etcd| etcd.get(&key).cloned())?;
        DialectValue::from_bytes(&entry.value).ok().map(|value| value.max)
    }

    /// The number of a unit.
    pub(super) fn unit(&self, name: &ShareName) -> usize {
        self.units.iter().position(|unit| unit.name == *name).unwrap_or(0)
    }

    /// The number of the unit with a name.
    pub(super) fn unit_named(&self, name: &str) -> usize {
        self.units.iter().position(|unit| unit.name.as_str() == name).unwrap_or(0)
    }

    /// The way between a node and etcd.
    pub(super) fn road(&self, node: usize) -> Road {
        self.state.lock().roads[node]
    }

    /// Changes the way between a node and etcd.
    pub(super) fn set_road(&self, node: usize, road: Road) {
        event!(self.trace, "n{node}: {road:?}");
        self.state.lock().roads[node] = road;
        if road != Road::default() {
            self.disturb(node);
        }
    }

    /// The time of a message between a node and etcd.
    pub(super) fn delay(&self, road: Road) -> Duration {
        let mut dice = self.dice.lock();
        if road.is_slow && dice.percent(30) {
            return if dice.percent(10) {
                dice.millis(1_000, 6_000)
            } else {
                dice.millis(1, 1_300)
            };
        }
        dice.micros(100, 1_500)
    }

    /// Sets the process of a node.
    pub(super) fn set_process(&self, process: &Arc<Process>) {
        self.state.lock().processes.insert(process.node, Arc::clone(process));
    }

    /// Returns the processes of all nodes, the last one of each.
    pub(super) fn processes(&self) -> Vec<Arc<Process>> {
        self.state.lock().processes.values().cloned().collect()
    }

    /// A new process has this number.
    pub(super) fn new_process(&self) -> u64 {
        let mut state = self.state.lock();
        state.last_process += 1;
        state.last_process
    }

    /// Takes the majority of etcd away, or gives it back.
    pub(super) fn set_majority(&self, has_majority: bool) {
        event!(self.trace, "etcd has a majority: {has_majority}");
        self.pass();
        let nodes = {
            let mut state = self.state.lock();
            state.has_no_majority = !has_majority;
            state.roads.len()
        };
        if !has_majority {
            (0..nodes).for_each(|node| self.disturb(node));
        }
        self.etcd.change(|etcd| etcd.set_majority(has_majority));
        self.etcd_is_used();
    }

    /// Something comes between a node and etcd or storage, or stops the node.
    pub(super) fn disturb(&self, node: usize) {
        *self.state.lock().disturbances.entry(node).or_default() += 1;
    }

    /// The number of disturbances of a node that have begun.
    pub(super) fn disturbed(&self, node: usize) -> u64 {
        self.state.lock().disturbances.get(&node).copied().unwrap_or_default()
    }

    /// The number of disturbances of a node. None while one lasts.
    pub(super) fn disturbances(&self, node: usize) -> Option<u64> {
        let is_cut = self.units.iter().any(|unit| unit.storage.is_cut(node));
        let state = self.state.lock();
        let is_clear = !is_cut && !state.has_no_majority && state.roads[node] == Road::default();
        is_clear.then(|| state.disturbances.get(&node).copied().unwrap_or_default())
    }

    /// Somebody makes a request by hand that takes leases or owners' keys away.
    pub(super) fn by_hand(&self, request: &Request) {
        event!(self.trace, "by hand: {request:?}");
        self.pass();
        let owners = || (0..self.units.len()).map(|unit| self.owner(unit)).collect::<Vec<_>>();
        let before = owners();
        // Without a majority nothing happens.
        let _ = self.etcd.change(|etcd| etcd.call(request));
        let time = if matches!(request, Request::Revoke(_)) {
            // Its limit is no later: by then its clock, which may be slow, has shown the time of a lease.
            let ttl = Timing::default().ttl();
            ttl + ttl / 50
        } else {
            WATCH
        };
        let until = Instant::now() + time;
        for (unit, (before, after)) in before.into_iter().zip(owners()).enumerate() {
            let Some(former) = before.filter(|before| Some(before) != after.as_ref()) else {
                continue;
            };
            for process in self.processes().iter().filter(|one| one.has_had(former.lease)) {
                let process = process.id;
                self.state.lock().dispossessed.push(Dispossessed { unit, process, until });
            }
        }
        self.etcd_is_used();
    }

    /// Ends all drains.
    pub(super) fn allow_all_nodes(&self, nodes: impl Iterator<Item = NodeName>) {
        let key = |node| Op::Delete(Keys::One(self.layout.control(&ControlKey::Drained(node))));
        let txn = Txn { success: nodes.map(key).collect(), ..Txn::default() };
        let _ = self.etcd.change(|etcd| etcd.call(&Request::Txn(txn)));
    }

    /// The owner of a unit, as etcd has it.
    pub(super) fn owner(&self, unit: usize) -> Option<Owner> {
        let key = self.layout.control(&ControlKey::Owner(self.units[unit].name.clone()));
        let entry = self.etcd.change(|etcd| etcd.get(&key).cloned())?;
        let value = OwnerValue::from_bytes(&entry.value).ok()?;
        let epoch = Epoch(entry.create_revision.0);
        Some(Owner { epoch, node: value.node, lease: entry.lease })
    }

    /// Has the clock of etcd go on until leases end, to the end of the run.
    pub(super) async fn run_etcd(self: Arc<Self>) {
        loop {
            self.pass();
            self.look_at_owners();
            match self.etcd.change(|etcd| etcd.next_end()) {
                None => self.used.notified().await,
                Some(end) => {
                    let at = self.clock.when(end.0) + Duration::from_micros(1);
                    tokio::select! {
                        biased;
                        () = self.used.notified() => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
            }
        }
    }

    /// Says that the ends of leases may be others.
    pub(super) fn etcd_is_used(&self) {
        self.used.notify_one();
    }

    /// The time is over of leases that nobody has kept alive. No process may serve then that has such a
    /// lease.
    pub(super) fn pass(&self) {
        let now = Moment(self.clock.now());
        let is_due = |etcd: &mut Etcd| etcd.next_end().is_some_and(|end| end <= now);
        if !self.etcd.change(is_due) {
            self.etcd.change(|etcd| etcd.pass(now));
            return;
        }
        let leases = |etcd: &Etcd, layout: &Layout| -> BTreeSet<LeaseId> {
            etcd.all(&layout.control_prefix()).map(|entry| entry.lease).collect()
        };
        let ended = self.etcd.change(|etcd| {
            let before = leases(etcd, &self.layout);
            etcd.pass(now);
            let after = leases(etcd, &self.layout);
            before.difference(&after).copied().collect::<Vec<_>>()
        });
        for process in self.processes() {
            let is_its = process.lease().is_some_and(|lease| ended.contains(&lease));
            if is_its {
                event!(self.trace, "etcd: the lease of {process} has ended");
            }
            if is_its && !process.gate.is_ended() && process.may_serve() {
                violation!(self.trace, "{process} may serve after its lease has ended");
            }
        }
    }

    /// Has the judges compare the files of units that have a new owner: from this moment on nobody else
    /// changes them.
    pub(super) fn look_at_owners(&self) {
        for (number, unit) in self.units.iter().enumerate() {
            let Some(owner) = self.owner(number) else { continue };
            let before = self.state.lock().epochs.insert(number, owner.epoch);
            if before == Some(owner.epoch) {
                continue;
            }
            event!(self.trace, "{}: {} owns it with epoch {}", unit.name, owner.node, owner.epoch);
            if before.is_some_and(|before| before > owner.epoch) {
                violation!(self.trace, "{}: {owner:?} comes after {before:?}", unit.name);
            }
            unit.stage.has_fallen.store(true, Ordering::Relaxed);
            unit.stage.judge.lock().on_move(&unit.storage.contents());
        }
    }

    /// A process starts a unit, as its owner.
    pub(super) fn starts(&self, unit: usize, process: &Process) {
        let name = &self.units[unit].name;
        let Some(owner) = self.owner(unit) else { return };
        if owner.node != process.name || Some(owner.lease) != process.lease() {
            // It has lost the unit again since the order.
            return;
        }
        let mut state = self.state.lock();
        let first = *state.owners.entry((unit, owner.epoch)).or_insert(process.id);
        drop(state);
        if first != process.id {
            violation!(
                self.trace,
                "{name}: {process} and another one have the epoch {}",
                owner.epoch
            );
        }
    }

    /// A process serves a unit from now on: no other one may answer for it.
    pub(super) fn serves(&self, unit: usize, process: &Process) {
        process.set_served(unit, true);
        event!(self.trace, "{}: {process} serves it", self.units[unit].name);
        if !process.may_serve() || self.is_dispossessed(unit, process) {
            return;
        }
        for other in self.processes() {
            let is_other = other.id != process.id && other.gate.is_open();
            if is_other
                && other.is_served(unit)
                && other.may_serve()
                && !self.is_dispossessed(unit, &other)
            {
                let name = &self.units[unit].name;
                violation!(self.trace, "{name} is served by {process}, and still by {other}");
            }
        }
    }

    /// True while a process may not know yet that it has lost a unit by hand.
    fn is_dispossessed(&self, unit: usize, process: &Process) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.dispossessed.retain(|former| now < former.until);
        state.dispossessed.iter().any(|former| former.unit == unit && former.process == process.id)
    }

    /// A number of a handle or a session was given.
    pub(super) fn gives(&self, number: u64, process: &Process) {
        if !self.state.lock().numbers.insert(number) {
            violation!(
                self.trace,
                "{process} gives the number {number:#x}, which was given before"
            );
        }
    }

    /// A process calls the file system.
    pub(super) fn calls(
        &self,
        unit: usize,
        process: &Process,
        operation: Operation,
        view: &Faults,
    ) {
        let changes = !matches!(
            operation,
            Operation::Open
                | Operation::Stat
                | Operation::Space
                | Operation::Read
                | Operation::Sync
                | Operation::List
                | Operation::Eas
        );
        if !changes || view.refusal().is_some() || process.gate.is_ended() {
            return;
        }
        let name = &self.units[unit].name;
        if let Some(owner) = self.owner(unit).filter(|owner| owner.node != process.name) {
            violation!(
                self.trace,
                "{name}: {process} changes a file ({operation:?}), and {} owns it",
                owner.node
            );
        }
        if process.gate.is_open() && !process.may_serve() {
            violation!(
                self.trace,
                "{name}: {process} changes a file ({operation:?}) after its limit"
            );
        }
    }

    /// The unit whose records a transaction of a process changes, and its owner before.
    pub(super) fn claim(&self, txn: &Txn) -> Option<Claim> {
        let of_record = |op: &Op, unit: &Unit| match op {
            Op::Put { key, .. } | Op::Delete(Keys::One(key)) => {
                let id: Option<RecordId> = self.layout.parse_record(&unit.name, key);
                id.is_some()
            }
            _ => false,
        };
        let is_of = |unit: &Unit| txn.success.iter().any(|op| of_record(op, unit));
        let unit = self.units.iter().position(is_of)?;
        let owner = self.owner(unit);
        Some(Claim { unit, owner })
    }

    /// Such a transaction has happened: only the owner may have made it.
    pub(super) fn judge_claim(&self, process: &Process, claim: &Claim) {
        let is_its = |owner: &Owner| owner.node == process.name && process.has_had(owner.lease);
        let is_owner = claim.owner.as_ref().is_some_and(is_its);
        if !is_owner {
            let name = &self.units[claim.unit].name;
            let owner = &claim.owner;
            violation!(self.trace, "{name}: {process} has changed records, the owner is {owner:?}");
        }
    }

    /// Returns the number of records in etcd.
    pub(super) fn records(&self) -> usize {
        let of = |unit: &Unit| {
            let prefix = self.layout.records(&unit.name);
            self.etcd.change(|etcd| etcd.all(&prefix).count())
        };
        self.units.iter().map(of).sum()
    }
}

/// The name of the cluster.
#[allow(clippy::expect_used, reason = "the name is a good one")]
pub(super) fn cluster_name() -> ClusterName {
    ClusterName::new("sim").expect("a name without other characters")
}
