//! The differences between two states of a cluster, as far as clients are told of them: MS-SWN 3.1.6.

use super::ResourceState;
use super::cluster::{Cluster, ClusterNode, ClusterState, ClusterUnit, Node, Unit, kept};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;

/// A change of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) state: ResourceState,
    /// The name of the node. None for the address itself.
    pub(super) node: Option<Arc<str>>,
}

/// The new place of a share.
#[derive(Debug)]
pub(super) struct Moved {
    /// Addresses of the new owner, or those that move with the share.
    pub(super) to: Arc<[IpAddr]>,
}

/// The differences between two states.
#[derive(Debug, Default)]
pub(super) struct News {
    /// For clients at an address.
    pub(super) changes: BTreeMap<IpAddr, Vec<Change>>,
    /// For clients at an address that have named no share: the addresses to use instead.
    pub(super) moves: BTreeMap<IpAddr, Arc<[IpAddr]>>,
    /// For clients of a share.
    pub(super) shares: BTreeMap<Arc<str>, Moved>,
    /// Addresses that have come, true, or gone.
    pub(super) addresses: BTreeMap<IpAddr, bool>,
}

impl News {
    /// True if nobody is to be told anything.
    pub(super) fn is_empty(&self) -> bool {
        let Self { changes, moves, shares, addresses } = self;
        changes.is_empty() && moves.is_empty() && shares.is_empty() && addresses.is_empty()
    }

    fn change(&mut self, address: IpAddr, is_up: bool, node: Option<&Arc<str>>) {
        let state = match is_up {
            true => ResourceState::AVAILABLE,
            false => ResourceState::UNAVAILABLE,
        };
        let change = Change { state, node: node.cloned() };
        self.changes.entry(address).or_default().push(change);
        self.addresses.insert(address, is_up);
    }
}

/// A unit that another node has.
struct Handover {
    from: Arc<str>,
    to: Arc<str>,
}

impl Cluster {
    /// Takes in a state, and returns the news.
    pub(super) fn take_in(&mut self, state: &ClusterState) -> News {
        let mut news = News::default();
        self.name.clone_from(&state.name);
        self.node.clone_from(&state.node);
        let drained = self.take_in_nodes(&state.nodes, &mut news);
        let handovers = self.take_in_units(&state.units, &mut news);
        let busy: BTreeSet<&Arc<str>> =
            self.units.values().filter_map(|unit| unit.owner.as_ref()).collect();
        let is_idle = |node: &Arc<str>| !busy.contains(node);
        // A client that has named no share is told to move when its node has nothing more for it.
        for Handover { from, to } in handovers.iter().filter(|one| is_idle(&one.from)) {
            if let Some(node) = self.nodes.get(to).filter(|node| node.is_up) {
                self.move_clients(from, &node.addresses, &mut news);
            }
        }
        for node in drained.iter().filter(|node| is_idle(node)) {
            self.move_clients(node, &self.others(node), &mut news);
        }
        self.forget_gone();
        news
    }

    fn move_clients(&self, from: &Arc<str>, to: &Arc<[IpAddr]>, news: &mut News) {
        let Some(node) = self.nodes.get(from).filter(|node| node.is_up && !to.is_empty()) else {
            return;
        };
        for address in node.addresses.iter().filter(|address| !to.contains(address)) {
            news.moves.insert(*address, Arc::clone(to));
        }
    }

    /// Returns the nodes that have begun to leave.
    fn take_in_nodes(&mut self, nodes: &[ClusterNode], news: &mut News) -> Vec<Arc<str>> {
        let names: BTreeSet<&str> = nodes.iter().map(|node| &*node.name).collect();
        for (name, node) in self.nodes.iter_mut().filter(|(_, node)| node.is_up) {
            if !names.contains(&**name) {
                node.is_up = false;
                node.addresses.iter().for_each(|ip| news.change(*ip, false, Some(name)));
            }
        }
        let mut leaving = Vec::new();
        for node in nodes {
            let name: Arc<str> = Arc::from(&*node.name);
            let (addresses, is_leaving) = (kept(&node.addresses), node.is_leaving);
            let before = self.nodes.get(&name);
            let had = before.filter(|before| before.is_up).map(|before| &*before.addresses);
            for gone in had.unwrap_or_default().iter().filter(|ip| !addresses.contains(ip)) {
                news.change(*gone, false, Some(&name));
            }
            for come in addresses.iter().filter(|ip| !had.is_some_and(|had| had.contains(ip))) {
                news.change(*come, true, Some(&name));
            }
            if is_leaving && !before.is_some_and(|before| before.is_leaving) {
                leaving.push(Arc::clone(&name));
            }
            self.nodes.insert(name, Node { addresses, is_up: true, is_leaving });
        }
        self.forget_replaced();
        // An address that another node has is there.
        let nodes = &self.nodes;
        news.addresses.retain(|ip, is_up| {
            *is_up || !nodes.values().any(|node| node.is_up && node.addresses.contains(ip))
        });
        leaving
    }

    /// Forgets the addresses of nodes that have gone which other nodes have now: whoever uses one of them uses
    /// the node that is there.
    fn forget_replaced(&mut self) {
        let up = self.nodes.values().filter(|node| node.is_up);
        let up: BTreeSet<IpAddr> = up.flat_map(|node| node.addresses.iter().copied()).collect();
        self.nodes.retain(|_, node| {
            if !node.is_up && node.addresses.iter().any(|ip| up.contains(ip)) {
                node.addresses =
                    node.addresses.iter().filter(|ip| !up.contains(ip)).copied().collect();
            }
            node.is_up || !node.addresses.is_empty()
        });
    }

    fn take_in_units(&mut self, units: &[ClusterUnit], news: &mut News) -> Vec<Handover> {
        let mut before = core::mem::take(&mut self.units);
        self.by_share.clear();
        let mut handovers = Vec::new();
        for unit in units {
            let name: Arc<str> = Arc::from(&*unit.name);
            let owner: Option<Arc<str>> = unit.owner.as_deref().map(Arc::from);
            let known = before.remove(&name);
            let (had, last) = known.map_or((None, None), |known| (known.owner, known.last_owner));
            let addresses = kept(&unit.addresses);
            if owner != had {
                if had.is_some() {
                    addresses.iter().for_each(|ip| news.change(*ip, false, None));
                }
                if owner.is_some() {
                    addresses.iter().for_each(|ip| news.change(*ip, true, None));
                }
            }
            let new = Unit {
                shares: unit.shares.clone(),
                last_owner: owner.clone().or_else(|| last.clone()),
                owner: owner.clone(),
                addresses,
            };
            if let (Some(from), Some(to)) = (last, owner)
                && from != to
            {
                let addresses = self.addresses_of(&new, &to);
                for share in new.shares.iter().filter(|_| !addresses.is_empty()) {
                    let moved = Moved { to: Arc::clone(&addresses) };
                    news.shares.insert(Arc::clone(share), moved);
                }
                handovers.push(Handover { from, to });
            }
            for share in &new.shares {
                self.by_share.insert(Arc::clone(share), Arc::clone(&name));
            }
            self.units.insert(name, new);
        }
        handovers
    }

    /// The news for a client that registers: those that it would have been told just before.
    pub(super) fn news_at(&self, address: IpAddr, share: Option<&Arc<str>>) -> News {
        let mut news = News::default();
        let mut is_node = false;
        for (name, node) in self.nodes.iter().filter(|(_, node)| node.addresses.contains(&address))
        {
            is_node = true;
            if !node.is_up {
                news.change(address, false, Some(name));
            }
        }
        let unit = share.and_then(|share| self.units.get(self.by_share.get(share)?));
        if let (true, Some(share), Some(unit)) = (is_node, share, unit)
            && let Some(owner) = &unit.owner
        {
            let to = self.addresses_of(unit, owner);
            if !to.is_empty() {
                news.shares.insert(Arc::clone(share), Moved { to });
            }
        }
        // The client looks at the list of interfaces itself.
        news.addresses.clear();
        news
    }
}
