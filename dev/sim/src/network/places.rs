//! The addresses of a cluster: each is at one node at a time, and clients that connect come to that node.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use super::{Inner, Network, State};
use crate::dice::Dice;
use crate::event;

/// Time after which a client hears that nobody has an address.
const UNREACHABLE: Duration = Duration::from_secs(3);

/// The places of addresses, and the state of nodes.
#[derive(Debug)]
pub(super) struct Places {
    /// The nodes that have each address, those that have announced it last at the end.
    holders: Vec<Vec<usize>>,
    /// True for each node whose process is stopped: nothing leaves it, and nothing comes in.
    is_stopped: Vec<bool>,
    /// True for each node that clients do not reach.
    is_isolated: Vec<bool>,
}

impl Inner {
    /// The server to which a connection to the address `name` goes.
    pub(super) fn home(&self, name: usize) -> Option<usize> {
        match &self.places {
            None => Some(name),
            Some(places) => places.holders[name].last().copied(),
        }
    }

    pub(super) fn is_stopped(&self, server: usize) -> bool {
        self.places.as_ref().is_some_and(|places| places.is_stopped[server])
    }
}

impl Network {
    /// Lets `nodes` servers have the addresses in turn. At first none of them has any.
    pub fn begin_cluster(&self, nodes: usize) {
        let mut inner = self.inner.lock();
        let names = inner.doors.len();
        inner.places = Some(Places {
            holders: vec![Vec::new(); names],
            is_stopped: vec![false; nodes],
            is_isolated: vec![false; nodes],
        });
        inner.doors = (0..nodes).map(|_| None).collect();
        inner.devices = vec![true; nodes];
    }

    /// A node has an address from now on, and says so to all: connections to it that were another
    /// node's end.
    pub fn raise(&self, name: usize, node: usize) {
        event!(self.trace, "net address {name} is at node {node}");
        {
            let mut inner = self.inner.lock();
            let Some(places) = &mut inner.places else { return };
            places.holders[name].retain(|holder| *holder != node);
            places.holders[name].push(node);
        }
        let is_elsewhere =
            |link: &super::Link| link.client / self.clients == name && link.server != node;
        for link in self.links(is_elsewhere) {
            self.hit(&link, State::Ended);
        }
        self.end_rpc(|link| link.unit == Some(name) && link.node != node);
    }

    /// A node has an address no longer.
    pub fn lower(&self, name: usize, node: usize) {
        event!(self.trace, "net address {name} leaves node {node}");
        if let Some(places) = &mut self.inner.lock().places {
            places.holders[name].retain(|holder| *holder != node);
        }
    }

    /// Returns the nodes that have an address.
    pub fn holders(&self, name: usize) -> Vec<usize> {
        let inner = self.inner.lock();
        inner.places.as_ref().map_or_else(Vec::new, |places| places.holders[name].clone())
    }

    /// Stops a node, or has it go on: its process sends nothing and reads nothing meanwhile.
    pub fn stop(&self, node: usize, is_stopped: bool) {
        if let Some(places) = &mut self.inner.lock().places {
            places.is_stopped[node] = is_stopped;
        }
        let to = if is_stopped { State::Stalled } else { State::Flowing };
        for link in self.links(|link| link.server == node) {
            self.hit(&link, to);
        }
    }

    /// Ends all connections of a node.
    pub fn end_links(&self, node: usize) {
        for link in self.links(|link| link.server == node) {
            self.hit(&link, State::Ended);
        }
    }

    /// Cuts a node off from all clients, in one direction or both, or connects it again.
    pub fn isolate(&self, node: usize, is_isolated: bool, dice: &mut Dice) {
        event!(self.trace, "net node {node} is cut off from clients: {is_isolated}");
        if let Some(places) = &mut self.inner.lock().places {
            places.is_isolated[node] = is_isolated;
        }
        let to = if is_isolated {
            State::Vanishing(*dice.pick(&[[true, true], [true, false], [false, true]]))
        } else {
            State::Ended
        };
        let is_its = |link: &super::Link| {
            let is_cut = matches!(link.state(), State::Vanishing(_));
            link.server == node && (is_isolated || is_cut)
        };
        for link in self.links(is_its) {
            self.hit(&link, to);
        }
        self.end_rpc(|link| {
            link.node == node && !is_isolated && link.is_deaf.load(Ordering::Relaxed)
        });
    }

    pub(super) fn is_stopped(&self, server: usize) -> bool {
        self.inner.lock().is_stopped(server)
    }

    /// True for a node that clients do not reach.
    pub(super) fn is_cut_from_clients(&self, node: usize) -> bool {
        let inner = self.inner.lock();
        inner.places.as_ref().is_some_and(|places| places.is_isolated[node])
    }

    /// True if a client's dials of this line come to a node that is cut off.
    pub(super) fn is_isolated(&self, line: usize) -> bool {
        let inner = self.inner.lock();
        let home = inner.home(line / self.clients);
        inner.places.as_ref().zip(home).is_some_and(|(places, node)| places.is_isolated[node])
    }

    /// Waits where nobody has the address of a line, as for an answer of the network.
    ///
    /// # Errors
    /// When nobody has it in the end.
    pub(super) async fn await_place(self: &Arc<Self>, line: usize) -> io::Result<()> {
        let has_place = || self.inner.lock().home(line / self.clients).is_some();
        if has_place() {
            return Ok(());
        }
        sleep(UNREACHABLE).await;
        if has_place() {
            return Ok(());
        }
        event!(self.trace, "net c{line} finds nobody");
        self.disturbed(line);
        Err(io::ErrorKind::HostUnreachable.into())
    }
}
