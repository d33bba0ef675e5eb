//! The client of an association, whatever carries it, and the server that it calls.

use std::net::SocketAddr;
use std::sync::Arc;

use frevo_net::file_io::{self, run_blocking};
use frevo_wire::Status;
use frevo_wire::dtyp::Guid;
use tokio::time::Instant;

use crate::access::throttle::Attempt;
use crate::audit::Source;
use crate::base::limits::THROTTLE_TOLD;
use crate::command::request::Request;
use crate::objects::server::ServerState;
use crate::objects::{audited, data};

/// The facts of a client that calls need.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) server: Arc<ServerState>,
    /// Address and port of the client.
    pub(super) address: SocketAddr,
    /// Address and port of the server.
    pub(super) local: SocketAddr,
    /// Connection.ClientGuid; zero where there is none.
    client: Guid,
    /// The session of a pipe; 0 over TCP.
    session: u64,
    /// True if the carrier encrypts.
    pub(super) is_sealed: bool,
}

impl Peer {
    /// The client of a pipe.
    pub(super) fn of(rq: &Request<'_>) -> Self {
        let client = rq.connection.negotiated().map_or_else(|_| Guid::default(), |n| n.client_guid);
        let Source { session, peer: address } = rq.source();
        let (server, local) = (Arc::clone(rq.server()), rq.connection.local);
        Self { server, address, local, client, session, is_sealed: rq.is_sealed() }
    }

    /// A client of TCP.
    pub(super) fn over_tcp(
        server: Arc<ServerState>,
        address: SocketAddr,
        local: SocketAddr,
    ) -> Self {
        Self { server, address, local, client: Guid::default(), session: 0, is_sealed: false }
    }

    /// Returns where events come from.
    pub(super) const fn source(&self) -> Source {
        Source { session: self.session, peer: self.address }
    }

    /// Writes a log line about the client, unless there were too many of them.
    pub(super) fn tell(&self, write: impl FnOnce(Option<u64>)) {
        self.server.lines.tell(self.address.ip(), write);
    }

    /// Waits as long as the throttle says; false when the outcome does not count.
    pub(super) async fn heed(&self, account: &str, success: bool) -> bool {
        let attempt = Attempt { address: self.address.ip(), client: self.client, account, success };
        let asked = Instant::now();
        let counts = self.server.throttle.heed(attempt).await;
        let wait = asked.elapsed();
        if !counts || wait >= THROTTLE_TOLD {
            audited::throttled(&self.server, self.address, account, wait, !counts);
        }
        counts
    }

    /// Runs work of `user` on a thread that may wait.
    pub(super) async fn beside_core<T: Send + 'static>(
        &self,
        user: &str,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        if file_io::stays() {
            return Ok(call());
        }
        let permit = self.server.blocking_pool.permit(user).await?;
        let done = run_blocking(move || {
            let _permit = permit;
            call()
        });
        done.await.map_err(|error| data::status(&error))
    }
}
