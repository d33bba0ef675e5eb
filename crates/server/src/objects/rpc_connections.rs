//! Connections of remote procedure calls over TCP, as administrators see and end them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use frevo_wire::dtyp::FileTime;
use frevo_wire::fscc::fold_name;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::base::surplus::return_surplus;

/// The connections of a server. The ledger bounds them: each is charged to its network. Clones share
/// one list.
#[derive(Debug, Clone, Default)]
pub(crate) struct RpcConnections(Arc<Mutex<HashMap<u64, Arc<RpcConnection>>>>);

/// One connection.
#[derive(Debug)]
pub(crate) struct RpcConnection {
    /// Its number in the log.
    pub(crate) id: u64,
    /// Address and port of the client.
    pub(crate) peer: SocketAddr,
    /// Address and port of the server.
    pub(crate) local: SocketAddr,
    /// The time of its acceptance.
    pub(crate) since: FileTime,
    user: Mutex<Option<String>>,
    end: Notify,
}

impl RpcConnection {
    /// The connection `id`, which was accepted at `since`.
    pub(crate) fn new(id: u64, since: FileTime, peer: SocketAddr, local: SocketAddr) -> Self {
        Self { id, peer, local, since, user: Mutex::default(), end: Notify::new() }
    }

    /// Sets the account that has logged on.
    pub(crate) fn log_on(&self, user: &str) {
        *self.user.lock() = Some(user.to_owned());
    }

    /// The account that has logged on.
    pub(crate) fn user(&self) -> Option<String> {
        self.user.lock().clone()
    }

    /// True for a connection of this account.
    pub(crate) fn is_of(&self, user: &str) -> bool {
        self.user.lock().as_deref().is_some_and(|own| fold_name(own) == fold_name(user))
    }

    /// Waits until an administrator ends it.
    pub(crate) async fn ended(&self) {
        self.end.notified().await;
    }
}

/// The place of a connection in the list, until this is dropped.
pub(crate) struct Entered {
    all: RpcConnections,
    connection: Arc<RpcConnection>,
}

impl Entered {
    /// Enters a connection that was accepted.
    pub(crate) fn new(all: &RpcConnections, connection: RpcConnection) -> Self {
        let connection = Arc::new(connection);
        all.0.lock().insert(connection.id, Arc::clone(&connection));
        Self { all: all.clone(), connection }
    }

    /// The connection.
    pub(crate) const fn connection(&self) -> &Arc<RpcConnection> {
        &self.connection
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut connections = self.all.0.lock();
        connections.remove(&self.connection.id);
        return_surplus(&mut connections);
    }
}

impl RpcConnections {
    /// All connections, in the order in which they came.
    pub(crate) fn sorted(&self) -> Vec<Arc<RpcConnection>> {
        let mut all: Vec<_> = self.0.lock().values().cloned().collect();
        all.sort_unstable_by_key(|connection| connection.id);
        all
    }

    /// Ends the connections that `which` chooses, and returns their number.
    pub(crate) fn end(&self, which: impl Fn(&RpcConnection) -> bool) -> usize {
        let chosen = self.sorted().into_iter().filter(|connection| which(connection));
        chosen.inspect(|connection| connection.end.notify_one()).count()
    }
}
