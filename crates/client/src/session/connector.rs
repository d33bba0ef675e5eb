//! The way from a server's name to a logged-on connection.

use std::sync::Arc;
use std::time::Duration;

use frevo_auth::kerberos::ServiceTicket;
use frevo_net::transport::{Stream, Transport};
use frevo_wire::dtyp::{FileTime, Guid};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::channel::Live;
use super::logon::Logon;
use super::progress::Progress;
use super::renewal::{NotRenewed, Reauthenticate, Renewing};
use super::spoken_dialect::{self, may_be_too_old};
use crate::account;
use crate::connection::{Claim, Connection, Unasked};
use crate::credentials::Credentials;
use crate::dial::{Dial, ServerName};
use crate::error::Cause;
use crate::kerberos::{KerberosError, Reason};
use crate::limits::TICKET_WITHIN;
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
    /// Connects to the server.
    pub(super) async fn connect(&self, progress: &Progress) -> Result<Claim, Cause> {
        let stream = self.dial.dial(&self.server).await?;
        progress.note_reached();
        let claim = self.open(stream).await?;
        progress.note_negotiated();
        Ok(claim)
    }

    /// Connects to the server for the first time. The error names the dialect of a server that is too
    /// old, which a server that has been connected to is not.
    pub(super) async fn connect_first(&self, progress: &Progress) -> Result<Claim, Cause> {
        match self.connect(progress).await {
            Err(why) if may_be_too_old(&why) => Err(spoken_dialect::found(self, why).await),
            opened => opened,
        }
    }

    /// Connects to the server, or to an address of it, for a further channel of a session whose
    /// channels are over `transport`.
    pub(super) async fn connect_further(
        &self,
        server: &ServerName,
        transport: Transport,
    ) -> Result<Claim, Cause> {
        self.open(self.dial.dial_further(server, transport).await?).await
    }

    async fn open(&self, stream: Stream) -> Result<Claim, Cause> {
        Connection::open(stream, &self.options, self.guid, self.unasked.clone()).await
    }

    /// Returns a ticket that ends later than `after`; `None` for a user who logs on by NTLM only.
    pub(super) async fn ticket(
        &self,
        after: FileTime,
    ) -> Result<Option<Arc<ServiceTicket>>, KerberosError> {
        let Some(tickets) = self.credentials.tickets() else { return Ok(None) };
        let got = tickets.ticket(&*self.options.ambient, &self.server.host, after);
        match timeout(TICKET_WITHIN, got).await {
            Ok(ticket) => ticket.map(Some),
            Err(_elapsed) => {
                let text = "no KDC answers in time; check the network and krb5.conf";
                Err(Reason::Unreachable(text.into()).into())
            }
        }
    }

    /// Returns the parameters of a logon: with a ticket if there is one, else by NTLM if that is
    /// allowed.
    pub(super) async fn logon(&self) -> Result<Logon<'_>, Cause> {
        let ticket = match self.ticket(FileTime::ZERO).await {
            Err(error) if self.credentials.to_auth().is_some() => {
                let host = &self.server.host;
                tracing::warn!(%host, "Kerberos is not used: {error}; NTLM is used instead");
                None
            }
            ticket => ticket?,
        };
        Ok(self.logon_with(ticket))
    }

    /// Returns the parameters of a logon with this ticket.
    pub(super) fn logon_with(&self, ticket: Option<Arc<ServiceTicket>>) -> Logon<'_> {
        let (options, host) = (&*self.options, &*self.server.host);
        Logon { options, host, ticket, ntlm: self.credentials.to_auth() }
    }
}

impl Reauthenticate for Connector {
    fn renew<'a>(&'a self, live: &'a Live, after: FileTime) -> Renewing<'a> {
        Box::pin(async move {
            let ticket = self.ticket(after).await.map_err(NotRenewed::NoTicket)?;
            let channel = live.channel().ok_or(NotRenewed::Lost(Cause::Unknown))?;
            let logon = self.logon_with(ticket);
            let renewed = timeout(self.options.connect_timeout, logon.renew(live, &channel)).await;
            let late = |_| Cause::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
            renewed.map_err(late).and_then(|end| end).map_err(NotRenewed::Lost)
        })
    }

    fn now(&self) -> FileTime {
        self.options.ambient.now()
    }

    fn patience(&self) -> Duration {
        self.options.recover_for
    }

    fn server(&self) -> &ServerName {
        &self.server
    }
}

/// Returns true if a further attempt would fail too.
pub(super) fn is_final(why: &Cause) -> bool {
    match why {
        Cause::Transport(_) | Cause::Unknown => false,
        Cause::Status(status) => !account::is_passing(*status),
        Cause::Kerberos(error) => !error.may_pass(),
        _ => true,
    }
}
