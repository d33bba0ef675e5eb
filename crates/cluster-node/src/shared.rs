//! The parts that the driver and the handles of a node have in common.

use std::collections::BTreeMap;
use std::sync::Arc;

use frevo_cluster::names::ShareName;
use frevo_cluster::{Epoch, Machine};
use frevo_etcd::engine::Moment;
use parking_lot::Mutex;

/// A clock that goes on while the machine is suspended, as CLOCK_BOOTTIME.
pub type Clock = Arc<dyn Fn() -> Moment + Send + Sync>;

/// The parts that the driver and the handles of a node have in common.
pub(crate) struct Shared {
    pub(crate) machine: Mutex<Machine>,
    clock: Clock,
    owners: Mutex<Owners>,
}

#[derive(Default)]
struct Owners {
    /// True after the keys were read once.
    are_known: bool,
    seen: BTreeMap<ShareName, Seen>,
}

impl Shared {
    /// The machine with its clock.
    pub(crate) fn new(machine: Machine, clock: Clock) -> Self {
        Self { machine: Mutex::new(machine), clock, owners: Mutex::default() }
    }

    /// The present moment.
    pub(crate) fn now(&self) -> Moment {
        (self.clock)()
    }

    /// Notes since when units have their owners. Returns false before the keys were read.
    pub(crate) fn note_owners(&self, now: Moment) -> bool {
        let machine = self.machine.lock();
        let Some(view) = machine.view() else { return false };
        let mut owners = self.owners.lock();
        let since = owners.are_known.then_some(now);
        owners.are_known = true;
        owners.seen.retain(|name, _| view.owners.contains_key(name));
        for (name, owner) in &view.owners {
            let epoch = owner.epoch;
            if owners.seen.get(name).is_none_or(|seen| seen.epoch != epoch) {
                owners.seen.insert(name.clone(), Seen { epoch, since });
            }
        }
        true
    }

    /// The moment since when a unit has its owner, if this node has seen it come.
    pub(crate) fn since(&self, unit: &ShareName, epoch: Epoch) -> Option<Moment> {
        let owners = self.owners.lock();
        owners.seen.get(unit).filter(|seen| seen.epoch == epoch)?.since
    }
}

/// The ownership of a unit that this node has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    epoch: Epoch,
    /// The moment at which it was seen first. None if it was there when this node came.
    since: Option<Moment>,
}
