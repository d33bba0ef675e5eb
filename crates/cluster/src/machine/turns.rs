//! The turns of nodes to take shares that have no owner.
//!
//! All nodes know the node that is to take such a share: the one to which the former owner has given it, or
//! else the one that [`spread`] chooses. If that node does not take it, the others have their turns one after
//! the other, in an order that differs from share to share ([`rank`]). A cluster of thousands of shares is
//! looked at with each thing that happens, so nothing is computed before it can matter: no spread while no
//! share may be taken, and no rank before the second turn.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use frevo_etcd::engine::Moment;

use super::Machine;
use super::share::{Free, Share, Stage};
use crate::names::{NodeName, ShareName};
use crate::placement::{Load, rank, spread};
use crate::time::after;
use crate::values::LastEnd;
use crate::view::View;

#[cfg(test)]
mod reference;

/// The turns of this node.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Turns {
    /// The shares whose turn has come, in the order of their names.
    pub(super) come: Vec<ShareName>,
    /// A moment before which no other turn comes. None if there is none to wait for.
    pub(super) next: Option<Moment>,
}

impl Turns {
    fn wait_for(&mut self, moment: Moment) {
        self.next = Some(self.next.map_or(moment, |next| next.min(moment)));
    }
}

/// A share that this node may take, some time.
struct Open<'a> {
    name: &'a ShareName,
    /// The moment of the first turn.
    begin: Moment,
    /// True if its turn has come at this node, whatever other nodes do.
    has_come: bool,
}

impl Machine {
    /// The shares whose turn has come at this node.
    pub(super) fn turns(&self, view: &View) -> Turns {
        let mut turns = Turns::default();
        let mut open = Vec::new();
        for (name, share) in &self.shares {
            let Some(free) = self.free_to_take(view, name, share) else { continue };
            let is_given = given_to(view, name) == Some(&self.settings.node);
            let begin = self.begin(free, is_given);
            let has_come = share.stage != Stage::Away || (is_given && begin <= self.now);
            if has_come || begin <= self.now {
                open.push(Open { name, begin, has_come });
            } else {
                turns.wait_for(begin);
            }
        }
        if open.iter().all(|open| open.has_come) {
            turns.come = open.into_iter().map(|open| open.name.clone()).collect();
            return turns;
        }
        let first = self.first_takers(view);
        for open in open {
            let due = self.due(view, &open, first.get(open.name));
            if open.has_come || due <= self.now {
                turns.come.push(open.name.clone());
            } else {
                turns.wait_for(due);
            }
        }
        turns
    }

    /// A moment before which a share is not to be taken by this node: that of its turn, once the first turn
    /// is over.
    fn due(&self, view: &View, open: &Open<'_>, first: Option<&NodeName>) -> Moment {
        let node = &self.settings.node;
        if first == Some(node) {
            return open.begin;
        }
        let turn = self.settings.timing.turn();
        let second = after(open.begin, turn);
        if first.is_some() && second > self.now {
            return second;
        }
        let able = view.nodes.keys().filter(|node| view.can_take(node, open.name));
        after(open.begin, turn.saturating_mul(rank(open.name, node, first, able)))
    }

    /// The state of a share that has no owner, if this node can take it and does not do so yet.
    fn free_to_take(&self, view: &View, name: &ShareName, share: &Share) -> Option<Free> {
        let free = share.waits_for_owner()?;
        let is_wanted = share.storage.is_some() && share.refused != Some(free);
        (is_wanted && view.can_take(&self.settings.node, name)).then_some(free)
    }

    /// The moment from which on a share may be taken.
    fn begin(&self, free: Free, is_given: bool) -> Moment {
        if free.since <= self.registered_at && !is_given {
            after(self.registered_at, self.settings.timing.settle())
        } else {
            free.since
        }
    }

    /// The node for each share without an owner that is to take it.
    fn first_takers(&self, view: &View) -> BTreeMap<ShareName, NodeName> {
        let mut free = BTreeMap::new();
        let mut first = BTreeMap::new();
        for (name, share) in &self.shares {
            if share.waits_for_owner().is_none() {
                continue;
            }
            match given_to(view, name) {
                Some(to) => _ = first.insert(name.clone(), to.clone()),
                None => _ = free.insert(name.clone(), share.weight),
            }
        }
        let loads = self.loads(view, &first);
        first.extend(spread(loads, &free, |node, share| view.can_take(node, share)));
        first
    }

    /// The load of each node that may take shares.
    pub(super) fn loads(
        &self,
        view: &View,
        also: &BTreeMap<ShareName, NodeName>,
    ) -> BTreeMap<NodeName, Load> {
        let mut loads = BTreeMap::new();
        for (node, entry) in &view.nodes {
            if let Some(value) = &entry.value
                && view.may_have_shares(node)
            {
                loads.insert(node.clone(), Load { weight: value.weight, load: 0 });
            }
        }
        let owners = view.owners.keys().filter_map(|name| Some((name, view.owner(name)?)));
        for (share, node) in owners.chain(also) {
            if let Some(load) = loads.get_mut(node) {
                let weight = self.shares.get(share).map_or(1, |share| share.weight);
                load.load = load.load.saturating_add(u64::from(weight));
            }
        }
        // Shares that this node is about to have count before the watch tells that it has them.
        let node = &self.settings.node;
        if let Some(load) = loads.get_mut(node) {
            for (name, share) in &self.shares {
                if share.stage.is_held() && view.owner(name) != Some(node) {
                    load.load = load.load.saturating_add(u64::from(share.weight));
                }
            }
        }
        loads
    }
}

/// The node to which the former owner has given a share, if it can take the share.
fn given_to<'a>(view: &'a View, share: &ShareName) -> Option<&'a NodeName> {
    match &view.last.get(share)?.value.as_ref()?.end {
        LastEnd::Given(Some(to)) if view.can_take(to, share) => Some(to),
        _ => None,
    }
}
