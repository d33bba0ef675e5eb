//! A process of a node: what all parts of the simulator know of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use frevo_cluster::ClusterDialect;
use frevo_cluster::names::NodeName;
use frevo_cluster_node::Node;
use frevo_etcd::types::LeaseId;
use frevo_server::{ClusterState, ClusterUnit};
use frevo_store::state::ServeLimit;
use frevo_store::{IdSource, memory::BegunWrite};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::clock::BootClock;
use super::gate::Gate;
use super::world::World;

/// A process of a node.
#[derive(Debug)]
pub(super) struct Process {
    /// Its number, which no other process has.
    pub(super) id: u64,
    pub(super) node: usize,
    pub(super) name: NodeName,
    pub(super) gate: Arc<Gate>,
    pub(super) clock: Arc<BootClock>,
    /// The largest dialect that its program speaks.
    pub(super) dialect: ClusterDialect,
    /// The demand of the cluster that it heard of last, if its server was not told it yet.
    heard: Mutex<Option<ClusterDialect>>,
    /// The demands of the cluster that its server was told, with the times.
    demands: Mutex<Vec<(Instant, Option<ClusterDialect>)>>,
    /// The owners of units that its server was told.
    owners: Mutex<BTreeMap<String, String>>,
    limit: Arc<ServeLimit>,
    /// The units that it serves.
    served: Mutex<BTreeSet<usize>>,
    /// The leases that it has been granted, also beyond their end and its own.
    leases: Mutex<BTreeSet<LeaseId>>,
    /// The node that runs in it. None before its start and after its end.
    running: Mutex<Option<Node>>,
    /// The writes within which it was stopped.
    pub(super) begun: Mutex<Vec<BegunWrite>>,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.id)
    }
}

impl Process {
    /// A process that does not run yet.
    pub(super) fn new(
        id: u64,
        node: usize,
        name: NodeName,
        clock: Arc<BootClock>,
        limit: Arc<ServeLimit>,
        dialect: ClusterDialect,
    ) -> Self {
        Self {
            id,
            node,
            name,
            gate: Arc::default(),
            clock,
            dialect,
            heard: Mutex::default(),
            demands: Mutex::default(),
            owners: Mutex::default(),
            limit,
            served: Mutex::default(),
            leases: Mutex::default(),
            running: Mutex::default(),
            begun: Mutex::default(),
        }
    }

    /// True while its limit allows it to answer and to change files.
    pub(super) fn may_serve(&self) -> bool {
        self.limit.allows(self.clock.now())
    }

    /// Notes that it has heard of a demand, which its server is told later.
    pub(super) fn hears(&self, max: Option<ClusterDialect>) {
        *self.heard.lock() = max;
    }

    /// Takes the demand that its server is to be told.
    pub(super) fn take_heard(&self) -> Option<ClusterDialect> {
        self.heard.lock().take()
    }

    /// Notes that its server was told the largest dialect that the cluster demands.
    pub(super) fn is_told(&self, max: Option<ClusterDialect>) {
        self.demands.lock().push((Instant::now(), max));
    }

    /// The largest dialect that its server was told.
    pub(super) fn told(&self) -> Option<ClusterDialect> {
        self.demands.lock().last().and_then(|(_, max)| *max)
    }

    /// The largest dialect that its server had been told before the present moment.
    pub(super) fn told_before_now(&self) -> Option<ClusterDialect> {
        let demands = self.demands.lock();
        let before = demands.iter().rfind(|(at, _)| at.elapsed() > Duration::ZERO);
        before.and_then(|(_, max)| *max)
    }

    /// Notes the state of the cluster that its server is told. Returns the units that have left their owners.
    pub(super) fn units_left(&self, state: &ClusterState) -> Vec<String> {
        let owner = |unit: &ClusterUnit| Some((unit.name.clone(), unit.owner.clone()?));
        let present: BTreeMap<_, _> = state.units.iter().filter_map(owner).collect();
        let before = std::mem::replace(&mut *self.owners.lock(), present.clone());
        let has_left = |(unit, owner): &(String, String)| present.get(unit) != Some(owner);
        before.into_iter().filter(has_left).map(|(unit, _)| unit).collect()
    }

    /// Sets the node that runs in it.
    pub(super) fn set_running(&self, node: Option<Node>) {
        let before = std::mem::replace(&mut *self.running.lock(), node);
        drop(before);
    }

    /// The node that runs in it.
    pub(super) fn running(&self) -> Option<Node> {
        self.running.lock().clone()
    }

    /// Its lease.
    pub(super) fn lease(&self) -> Option<LeaseId> {
        self.running().and_then(|node| node.lease())
    }

    /// etcd has granted it a lease.
    pub(super) fn is_granted(&self, lease: LeaseId) {
        self.leases.lock().insert(lease);
    }

    /// True for a lease that it has or had.
    pub(super) fn has_had(&self, lease: LeaseId) -> bool {
        self.leases.lock().contains(&lease)
    }

    /// True if it serves a unit, as far as its limit allows.
    pub(super) fn is_served(&self, unit: usize) -> bool {
        self.served.lock().contains(&unit)
    }

    /// Notes that it serves a unit, or does so no longer.
    pub(super) fn set_served(&self, unit: usize, is_served: bool) {
        let mut served = self.served.lock();
        if is_served {
            served.insert(unit)
        } else {
            served.remove(&unit)
        };
    }
}

/// The numbers of a process, each of which no other one may give.
#[derive(Debug)]
pub(super) struct Numbers {
    pub(super) world: Arc<World>,
    pub(super) process: Arc<Process>,
    pub(super) source: Arc<dyn IdSource>,
}

impl IdSource for Numbers {
    fn take(&self) -> Option<u64> {
        let number = self.source.take()?;
        self.world.gives(number, &self.process);
        Some(number)
    }
}
