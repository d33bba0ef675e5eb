//! The units of a node, by their names and by those of their shares.

use std::collections::BTreeMap;
use std::sync::Arc;

use frevo_cluster::names::ShareName;
use parking_lot::RwLock;

use crate::unit::Unit;

/// The units of a node. A reload adds units, and changes weights.
#[derive(Debug, Default)]
pub(crate) struct Table(RwLock<Units>);

#[derive(Debug, Default)]
struct Units {
    by_name: BTreeMap<ShareName, Arc<Unit>>,
    by_share: BTreeMap<Arc<str>, ShareName>,
}

impl Table {
    /// A table of these units.
    pub(crate) fn new(units: Vec<Unit>) -> Self {
        let table = Self::default();
        for unit in units {
            table.set(unit);
        }
        table
    }

    /// Adds a unit, or changes it.
    pub(crate) fn set(&self, unit: Unit) -> Arc<Unit> {
        let unit = Arc::new(unit);
        let mut units = self.0.write();
        for share in &unit.shares {
            units.by_share.insert(Arc::clone(share), unit.name.clone());
        }
        units.by_name.insert(unit.name.clone(), Arc::clone(&unit));
        unit
    }

    /// The unit that a share is in. None for a share that does not move.
    pub(crate) fn unit_of(&self, share: &str) -> Option<ShareName> {
        self.0.read().by_share.get(share).cloned()
    }

    /// All units, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<Unit>> {
        self.0.read().by_name.values().cloned().collect()
    }
}
