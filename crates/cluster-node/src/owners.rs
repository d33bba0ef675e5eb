//! The nodes that own units, for the server: it sends clients there (MS-SMB2 3.3.5.7).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use frevo_cluster::Machine;
use frevo_cluster::names::{NodeName, ShareName};
use frevo_cluster::view::View;
use frevo_etcd::types::Revision;

use crate::table::Table;
use crate::unit::Unit;

/// The owners that the server was told.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    /// The revision of the keys that were looked at.
    seen: Revision,
    told: BTreeMap<ShareName, Other>,
}

/// Another node that owns a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Other {
    node: NodeName,
    /// The revision of its registration.
    revision: Revision,
}

/// The owner of a unit's shares, which has changed.
pub(crate) struct Changed {
    /// The unit.
    pub(crate) unit: Arc<Unit>,
    /// The addresses of the owner. Empty if it is not known, or this node.
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Owners {
    /// The owners that have changed since the last look.
    pub(crate) fn look(&mut self, machine: &Machine, table: &Table) -> Vec<Changed> {
        let Some(view) = machine.view().filter(|view| view.revision != self.seen) else {
            return Vec::new();
        };
        self.seen = view.revision;
        let own = machine.node();
        table.all().into_iter().filter_map(|unit| self.change(view, own, unit)).collect()
    }

    /// Notes the present owner of a unit. Returns it if the server is to be told.
    ///
    /// Clients are not sent to the owner of a unit with addresses: they know these, which move with it.
    fn change(&mut self, view: &View, own: &NodeName, unit: Arc<Unit>) -> Option<Changed> {
        if unit.shares.is_empty() || !unit.addresses.is_empty() {
            return None;
        }
        let node = view.owner(&unit.name).filter(|node| *node != own);
        let entry = node.and_then(|node| Some((node, view.nodes.get(node)?)));
        let is_as_told = |told: &Other| {
            entry.is_some_and(|(node, entry)| told.node == *node && told.revision == entry.revision)
        };
        match self.told.get(&unit.name) {
            Some(told) if is_as_told(told) => return None,
            None if entry.is_none() => return None,
            _ => {}
        }
        let Some((node, entry)) = entry else {
            self.told.remove(&unit.name);
            return Some(Changed { unit, addresses: Vec::new() });
        };
        let addresses = entry.value.as_ref().map(|value| value.addresses.clone());
        let other = Other { node: node.clone(), revision: entry.revision };
        self.told.insert(unit.name.clone(), other);
        Some(Changed { unit, addresses: addresses.unwrap_or_default() })
    }
}
