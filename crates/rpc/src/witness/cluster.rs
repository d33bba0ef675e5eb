//! The cluster, as the witness is told of it, and as it remembers it.

use super::{InterfaceInfo, InterfaceState};
use crate::limits::{MAX_WITNESS_ADDRESSES, MAX_WITNESS_INTERFACES, MAX_WITNESS_NODES};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use frevo_wire::fscc::{eq_ignore_case, fold_name};

/// A cluster at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterState {
    /// The name by which clients reach the cluster: ServerGlobalName.
    pub name: String,
    /// The name of this node.
    pub node: String,
    /// The nodes that are up.
    pub nodes: Vec<ClusterNode>,
    /// The units: shares and addresses that have one owner together.
    pub units: Vec<ClusterUnit>,
}

/// A node that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterNode {
    /// Its name.
    pub name: String,
    /// The addresses at which it serves.
    pub addresses: Vec<IpAddr>,
    /// True if it is to have no shares: an administrator drains it, or it is to end.
    pub is_leaving: bool,
}

/// Shares that have one owner together, and the addresses that go with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterUnit {
    /// Its name.
    pub name: String,
    /// The names of its shares in lower case.
    pub shares: Vec<Arc<str>>,
    /// The node that has it. None while it moves.
    pub owner: Option<String>,
    /// The addresses that move with it. Empty if clients use the addresses of its owner.
    pub addresses: Vec<IpAddr>,
}

/// A node as it is remembered: also one that has gone.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) addresses: Arc<[IpAddr]>,
    pub(super) is_up: bool,
    pub(super) is_leaving: bool,
}

/// A unit as it is remembered.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) shares: Vec<Arc<str>>,
    pub(super) owner: Option<Arc<str>>,
    /// The present owner; without one, the last.
    pub(super) last_owner: Option<Arc<str>>,
    pub(super) addresses: Arc<[IpAddr]>,
}

/// The cluster as it is remembered.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) name: String,
    pub(super) node: String,
    pub(super) nodes: BTreeMap<Arc<str>, Node>,
    pub(super) units: BTreeMap<Arc<str>, Unit>,
    /// The unit of each share.
    pub(super) by_share: BTreeMap<Arc<str>, Arc<str>>,
}

impl Cluster {
    /// True if clients reach the cluster by this name: the one of the configuration, or one of DNS
    /// that begins with it.
    pub(super) fn is_called(&self, name: &str) -> bool {
        let first = match name.split_once('.') {
            Some((first, domain)) if !domain.is_empty() => first,
            _ => name,
        };
        !self.name.is_empty()
            && (eq_ignore_case(name, &self.name) || eq_ignore_case(first, &self.name))
    }

    /// True if a share is of the type STYPE_CLUSTER_SOFS: clients use it at the addresses of nodes.
    pub(super) fn has_scale_out(&self) -> bool {
        self.units.values().any(|unit| unit.addresses.is_empty() && !unit.shares.is_empty())
    }

    /// True if nodes and units have an address.
    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        self.nodes.values().any(|node| node.addresses.contains(&address))
            || self.units.values().any(|unit| unit.addresses.contains(&address))
    }

    /// The name of a share in lower case, if the cluster has it.
    pub(super) fn share(&self, name: &str) -> Option<Arc<str>> {
        let folded = fold_name(name);
        self.by_share.get_key_value(folded.as_str()).map(|(share, _)| Arc::clone(share))
    }

    /// The interfaces of all nodes, one for each address. Those of nodes that are up come first.
    pub(super) fn interfaces(&self) -> Vec<InterfaceInfo> {
        let of_node = |(name, node): (&Arc<str>, &Node)| {
            let state = match node.is_up {
                true => InterfaceState::AVAILABLE,
                false => InterfaceState::UNAVAILABLE,
            };
            // MS-SWN 3.1.4.1: clients of this node register with another one.
            let is_witness = **name != *self.node;
            let of = |ip: &IpAddr| InterfaceInfo::of(name, state, *ip, is_witness);
            node.addresses.iter().map(of).collect::<Vec<_>>()
        };
        let are_up = |wanted| self.nodes.iter().filter(move |(_, node)| node.is_up == wanted);
        are_up(true).chain(are_up(false)).flat_map(of_node).take(MAX_WITNESS_INTERFACES).collect()
    }

    /// Addresses of nodes that are up, other than `not`, and take shares.
    pub(super) fn others(&self, not: &str) -> Arc<[IpAddr]> {
        let is_other =
            |(name, node): &(&Arc<str>, &Node)| ***name != *not && node.is_up && !node.is_leaving;
        let others = self.nodes.iter().filter(is_other);
        others
            .flat_map(|(_, node)| node.addresses.iter())
            .copied()
            .take(MAX_WITNESS_ADDRESSES)
            .collect()
    }

    /// Addresses at which clients use a unit that `owner` has.
    pub(super) fn addresses_of(&self, unit: &Unit, owner: &str) -> Arc<[IpAddr]> {
        if !unit.addresses.is_empty() {
            return Arc::clone(&unit.addresses);
        }
        let node = self.nodes.get(owner).filter(|node| node.is_up);
        node.map_or_else(|| Arc::from([]), |node| Arc::clone(&node.addresses))
    }

    /// Forgets nodes that have gone, when there are too many.
    pub(super) fn forget_gone(&mut self) {
        if self.nodes.len() > MAX_WITNESS_NODES {
            self.nodes.retain(|_, node| node.is_up);
        }
    }
}

/// The addresses of a node or a unit that are kept.
pub(super) fn kept(addresses: &[IpAddr]) -> Arc<[IpAddr]> {
    addresses.iter().map(IpAddr::to_canonical).take(MAX_WITNESS_ADDRESSES).collect()
}
