//! The network path of a connection: where it leads, and whether the peer's kernel still answers.

use std::net::IpAddr;
use std::sync::Arc;

use frevo_net::socket::{Facts, unmapped};

use super::Connection;

impl Connection {
    /// Returns the server's address; `None` after the end.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        self.stream.peer_addr().ok().map(|address| unmapped(address.ip()))
    }

    /// Returns the kernel's measurements of the path; `None` after the end.
    pub(crate) fn facts(&self) -> Option<Facts> {
        self.stream.facts().ok()
    }

    /// Sends an ECHO and does not wait for its answer. Nothing is sent without a credit.
    pub(crate) fn probe(self: &Arc<Self>) {
        let connection = Arc::clone(self);
        tokio::spawn(async move { connection.echo().await });
    }
}
