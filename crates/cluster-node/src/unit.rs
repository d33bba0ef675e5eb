//! Units: shares that have one owner together, and the addresses that go with them.

use std::net::IpAddr;
use std::sync::Arc;

use frevo_cluster::names::ShareName;
use frevo_cluster::settings::ShareSettings;

/// Shares that have one owner together, and addresses that go with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// The name of the unit: the one by which the machine and etcd know it.
    pub name: ShareName,
    /// The names of its shares in lower case. Empty for a unit of addresses alone.
    pub shares: Vec<Arc<str>>,
    /// The addresses that go with it. [`Hands`](crate::Hands) set and remove them.
    pub addresses: Vec<IpAddr>,
    /// Its part of a node's load, 1 for most units.
    pub weight: u32,
}

impl Unit {
    /// A unit of one share that has the unit's name.
    pub fn of_share(name: ShareName) -> Self {
        let share = Arc::from(name.as_str());
        Self { name, shares: vec![share], addresses: Vec::new(), weight: 1 }
    }

    /// Its settings for the machine.
    pub(crate) fn settings(&self) -> ShareSettings {
        ShareSettings { name: self.name.clone(), weight: self.weight }
    }
}
