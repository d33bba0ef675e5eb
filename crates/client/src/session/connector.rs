//! The way from a server's name to a logged-on connection.

use std::sync::Arc;

use frevo_wire::dtyp::Guid;
use tokio::sync::mpsc;

use super::logon::Logon;
use crate::account;
use crate::connection::{Claim, Connection, Unasked};
use crate::credentials::Credentials;
use crate::dial::{Dial, ServerName};
use crate::error::Cause;
use crate::options::Options;

/// Everything that a connection of a session is made with.
pub(super) struct Connector {
    pub(super) options: Arc<Options>,
    pub(super) dial: Arc<dyn Dial>,
    /// The ClientGuid.
    pub(super) guid: Guid,
    /// The server, as the caller named it.
    pub(super) server: ServerName,
    pub(super) credentials: Credentials,
    /// Takes the notifications of all connections.
    pub(super) unasked: mpsc::Sender<Unasked>,
}

impl Connector {
    /// Connects to `server`: the name that the caller gave, or an address of that server.
    pub(super) async fn connect(&self, server: &ServerName) -> Result<Claim, Cause> {
        let stream = self.dial.dial(server).await?;
        Connection::open(stream, &self.options, self.guid, self.unasked.clone()).await
    }

    /// Returns the parameters of a logon.
    pub(super) fn logon(&self) -> Logon<'_> {
        Logon { options: &self.options, credentials: &self.credentials, host: &self.server.host }
    }
}

/// Returns true if a further attempt would fail too.
pub(super) const fn is_final(why: &Cause) -> bool {
    match why {
        Cause::Transport(_) | Cause::Unknown => false,
        Cause::Status(status) => !account::is_passing(*status),
        _ => true,
    }
}
