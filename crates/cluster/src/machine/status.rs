//! The state of the cluster, for commands, pages and metrics.

use alloc::vec::Vec;
use core::net::SocketAddr;

use frevo_etcd::engine::Moment;
use frevo_etcd::types::LeaseId;

use super::Machine;
use crate::Epoch;
use crate::dialect::ClusterDialect;
use crate::ids::Generation;
use crate::names::{NodeName, ShareName};
use crate::values::Reason;

/// A node that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its name.
    pub name: NodeName,
    /// The addresses at which it serves.
    pub addresses: Vec<SocketAddr>,
    /// Its part of the shares. Zero if its registration cannot be read.
    pub weight: u32,
    /// The number of shares that it has.
    pub shares: usize,
    /// True if it is to have no shares.
    pub is_drained: bool,
    /// True if it is to end.
    pub is_leaving: bool,
    /// The largest dialect that it speaks. None if its registration cannot be read.
    pub dialect: Option<ClusterDialect>,
    /// True if the cluster demands a dialect that it does not speak: it is to have no shares.
    pub is_behind: bool,
}

/// A share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareStatus {
    /// Its name.
    pub name: ShareName,
    /// Its owner, if it has one that is known.
    pub owner: Option<NodeName>,
    /// The ownership. Zero without an owner.
    pub epoch: Epoch,
    /// The reason of the ownership, if it is known.
    pub reason: Option<Reason>,
    /// The word for the stage at this node.
    pub stage: &'static str,
    /// The kind of fence of this node's storage. None while the storage cannot be used.
    pub fence: Option<&'static str>,
    /// Changes of records that wait for the transaction under way.
    pub records_waiting: usize,
}

/// The state of the cluster, as this node knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// This node.
    pub node: NodeName,
    /// The number of its start. Zero before it has one.
    pub generation: Generation,
    /// True if it is registered.
    pub is_registered: bool,
    /// True if etcd answers.
    pub etcd_answers: bool,
    /// The moment until which it serves. None before the first confirmation.
    pub until: Option<Moment>,
    /// True while that moment has passed.
    pub is_paused: bool,
    /// The largest dialect of clients on shares of the cluster. None if there is no limit, or if it cannot
    /// be read.
    pub dialect: Option<ClusterDialect>,
    /// Nodes that are up.
    pub nodes: Vec<NodeStatus>,
    /// Shares of this node's configuration.
    pub shares: Vec<ShareStatus>,
    /// Keys in etcd that are none of Frevo's, or beyond its limits.
    pub keys_ignored: u64,
}

impl Machine {
    /// The state of the cluster.
    pub fn status(&self) -> Status {
        let view = self.view.as_ref();
        let nodes = view.into_iter().flat_map(|view| &view.nodes).map(|(name, entry)| {
            let value = entry.value.as_ref();
            let owners = view.into_iter().flat_map(|view| view.owners.values());
            let is_own = |owner: &&crate::view::OwnerEntry| {
                owner.value.as_ref().is_some_and(|value| value.node == *name)
            };
            NodeStatus {
                name: name.clone(),
                addresses: value.map(|value| value.addresses.clone()).unwrap_or_default(),
                weight: value.map_or(0, |value| value.weight),
                shares: owners.filter(is_own).count(),
                is_drained: view.is_some_and(|view| view.drained.contains_key(name)),
                is_leaving: value.is_some_and(|value| value.leaving),
                dialect: value.map(|value| value.dialect),
                is_behind: value.is_some_and(|value| {
                    view.is_some_and(|view| !view.has_room_for(value.dialect))
                }),
            }
        });
        let shares = self.shares.iter().map(|(name, share)| {
            let owner = view.and_then(|view| view.owners.get(name));
            let value = owner.and_then(|owner| owner.value.as_ref());
            ShareStatus {
                name: name.clone(),
                owner: value.map(|value| value.node.clone()),
                epoch: owner.map_or(Epoch(0), |owner| owner.epoch),
                reason: value.map(|value| value.reason.clone()),
                stage: share.stage.name(),
                fence: share.storage.as_ref().map(|storage| storage.fence.kind()),
                records_waiting: share.queue.as_ref().map_or(0, |queue| queue.waiting()),
            }
        });
        Status {
            node: self.settings.node.clone(),
            generation: self.generation,
            is_registered: self.is_inside(),
            etcd_answers: !self.requests.is_silent(),
            until: self.until,
            is_paused: self.is_paused,
            dialect: view.and_then(|view| view.dialect.as_ref()?.max),
            nodes: nodes.collect(),
            shares: shares.collect(),
            keys_ignored: view.map_or(0, |view| view.ignored),
        }
    }

    /// The lease of this node. The caller keeps it on disk, beside the lock of the process, for
    /// [`Settings::predecessor`](crate::Settings::predecessor) of the next process. None without a lease.
    pub fn lease(&self) -> Option<LeaseId> {
        (self.lease != LeaseId(0)).then_some(self.lease)
    }

    /// The name of this node.
    pub const fn node(&self) -> &NodeName {
        &self.settings.node
    }

    /// The keys, as this node knows them. None before they were read.
    pub const fn view(&self) -> Option<&crate::view::View> {
        self.view.as_ref()
    }
}
