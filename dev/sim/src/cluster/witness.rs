//! The rules of the witness: a client that is registered with another node hears that its node has lost the
//! unit, and follows. MS-SWN 3.1.6.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use frevo_server::{ClusterState, Server, StatusQuery};
use tokio::time::sleep;

use super::process::Process;
use super::world::World;
use crate::company::Used;
use crate::network::node_address;
use crate::{event, violation};

/// Time after which no client waits at a witness that has news for it.
const TOLD_WITHIN: Duration = Duration::from_millis(100);

/// Time after which a client has heard the news, over the slowest way.
const HEARD_WITHIN: Duration = Duration::from_secs(2);

/// Time after which a client that has logged on has registered for the node that it uses.
const SETTLED: Duration = Duration::from_secs(4);

/// The moves by a witness after which a client heeds none for a while.
const MOVES: u64 = 8;

/// A client that is registered with a witness.
struct Registered {
    used: Used,
    heeded: u64,
    losses: u64,
    /// Its connections with the witness.
    links: Vec<u64>,
}

impl World {
    /// Clients use these shares from now on; none at the end.
    pub(super) fn set_used(&self, used: Vec<Used>) {
        *self.used_shares.lock() = used;
    }

    /// Tells a server the state of the cluster, and judges what becomes of its registered clients.
    pub(super) fn tell(
        self: &Arc<Self>,
        process: &Arc<Process>,
        server: &Server,
        state: &ClusterState,
    ) {
        let left: BTreeSet<usize> =
            process.units_left(state).iter().map(|unit| self.unit_named(unit)).collect();
        if left.is_empty() {
            return server.set_cluster_state(state);
        }
        event!(self.trace, "{process} hears that units have left their owners: {left:?}");
        let registered = self.registered(process.node, &left);
        server.set_cluster_state(state);
        let (world, process, server) = (Arc::clone(self), Arc::clone(process), server.clone());
        tokio::spawn(async move {
            let disturbed = world.disturbed(process.node);
            sleep(TOLD_WITHIN).await;
            if process.gate.is_open() && world.disturbed(process.node) == disturbed {
                world.look_at_witness(&process, &server);
            }
            drop(server);
            sleep(HEARD_WITHIN).await;
            if process.gate.is_open() && world.disturbed(process.node) == disturbed {
                registered.iter().for_each(|one| world.look_at_client(&process, one));
            }
        });
    }

    /// The clients of these units that are registered with a node.
    fn registered(&self, node: usize, left: &BTreeSet<usize>) -> Vec<Registered> {
        let used = self.used_shares.lock();
        let of = |used: &Used| {
            let info = used.share.witness()?;
            let is_here = info.address == Some(IpAddr::V4(node_address(node)));
            // One that comes back just now may be registered for the node that it has left.
            let is_settled = self.network.is_settled(used.line, SETTLED)
                && used.share.session().info().is_some();
            (is_here && is_settled).then(|| Registered {
                heeded: info.heeded,
                losses: self.network.losses(used.line),
                links: self.network.sound_rpc(used.client, node),
                used: used.clone(),
            })
        };
        used.iter().filter(|used| left.contains(&used.unit)).filter_map(of).collect()
    }

    /// Checks that no client waits for news that a witness has.
    fn look_at_witness(&self, process: &Process, server: &Server) {
        for row in server.status(&StatusQuery::default()).witness.rows {
            if row.waiting && row.queued > 0 {
                violation!(self.trace, "{process} does not tell {} its news", row.address);
            }
        }
    }

    /// Checks that a client which is still registered, and has lost nothing meanwhile, has heard the news.
    fn look_at_client(&self, process: &Process, registered: &Registered) {
        let Registered { used, heeded, losses, links } = registered;
        let Used { client, line, unit, share } = used;
        let sound = self.network.sound_rpc(*client, process.node);
        let is_undisturbed = self.network.losses(*line) == *losses
            && self.network.is_settled(*line, SETTLED + HEARD_WITHIN)
            && !links.is_empty()
            && links.iter().all(|link| sound.contains(link));
        let Some(info) = share.witness().filter(|_| is_undisturbed) else { return };
        let is_here = info.address == Some(IpAddr::V4(node_address(process.node)));
        if is_here && info.heeded == *heeded && *heeded < MOVES {
            violation!(
                self.trace,
                "c{client} does not hear from {process} that unit{unit} has left its node"
            );
        }
    }
}
