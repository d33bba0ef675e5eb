//! Tells the server the state of the cluster, for the clients that have registered with its witness.

use std::net::IpAddr;
use std::sync::Arc;

use frevo_cluster::names::{ClusterName, NodeName};
use frevo_cluster::view::View;
use frevo_server::{ClusterNode, ClusterState, ClusterUnit};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::limits::TELL_PAUSE;
use crate::served::Served;
use crate::shared::Shared;
use crate::table::Table;

/// The sources of the state, and the server that is told.
pub(crate) struct Teller {
    pub(crate) cluster: ClusterName,
    pub(crate) node: NodeName,
    pub(crate) shared: Arc<Shared>,
    pub(crate) table: Arc<Table>,
    pub(crate) served: Arc<dyn Served>,
}

/// The task that tells. It ends when this is dropped.
pub(crate) struct Telling {
    changed: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Telling {
    /// Starts the task on the present runtime of tokio.
    pub(crate) fn start(teller: Teller) -> Self {
        let changed = Arc::<Notify>::default();
        let task = tokio::spawn(teller.run(Arc::clone(&changed)));
        Self { changed, task }
    }

    /// Has the server told of a change. Further ones of the next moment are told together: a node that
    /// takes thousands of units does not make as many states.
    pub(crate) fn note_change(&self) {
        self.changed.notify_one();
    }
}

impl Teller {
    async fn run(self, changed: Arc<Notify>) {
        let mut told = None;
        loop {
            changed.notified().await;
            let state = self.state();
            if state != told
                && let Some(state) = &state
            {
                self.served.tell_cluster(state);
            }
            told = state.or(told);
            sleep(TELL_PAUSE).await;
        }
    }

    /// The present state. None before the keys were read.
    fn state(&self) -> Option<ClusterState> {
        let machine = self.shared.machine.lock();
        let view = machine.view()?;
        let unit = |unit: Arc<crate::unit::Unit>| ClusterUnit {
            name: unit.name.to_string(),
            shares: unit.shares.clone(),
            owner: view.owner(&unit.name).map(ToString::to_string),
            addresses: unit.addresses.clone(),
        };
        Some(ClusterState {
            name: self.cluster.to_string(),
            node: self.node.to_string(),
            nodes: nodes(view),
            units: self.table.all().into_iter().map(unit).collect(),
        })
    }
}

/// The nodes that are up.
fn nodes(view: &View) -> Vec<ClusterNode> {
    let node = |(name, entry): (&NodeName, &frevo_cluster::view::NodeEntry)| {
        let value = entry.value.as_ref();
        let addresses = value.into_iter().flat_map(|value| &value.addresses);
        let mut addresses: Vec<IpAddr> = addresses.map(|address| address.ip()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        let is_leaving =
            view.drained.contains_key(name) || value.is_some_and(|value| value.leaving);
        ClusterNode { name: name.to_string(), addresses, is_leaving }
    };
    view.nodes.iter().map(node).collect()
}
