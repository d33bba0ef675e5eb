//! The way from a server's name to a logged-on connection.

use std::future::Future;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frevo_auth::kerberos::ServiceTicket;
use frevo_net::transport::{Stream, Transport};
use frevo_wire::dtyp::FileTime;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::channel::Live;
use super::logon::Logon;
use super::offering::Offering;
use super::progress::{Progress, Step};
use super::renewal::{NotRenewed, Reauthenticate, Renewing};
use super::search::{Exhausted, Search};
use super::spoken_dialect::{self, may_be_too_old};
use crate::Status;
use crate::account;
use crate::connection::{Claim, Connection, Offer, Unasked};
use crate::credentials::Credentials;
use crate::dial::{Dial, Preferred, ServerName};
use crate::error::Cause;
use crate::kerberos::{KerberosError, Reason};
use crate::limits::{
    ADDRESS_DIAL, ADDRESSES_AT_ONCE, NEXT_ADDRESS_AFTER, RECONNECT_DIAL_PAUSE, RECONNECT_DIALS,
    TICKET_WITHIN,
};
use crate::options::Options;
use crate::rpc_over_tcp::Caller;
use crate::staggered::Staggered;

/// Everything that a connection of a session is made with.
pub(super) struct Connector {
    pub(super) options: Arc<Options>,
    pub(super) dial: Arc<dyn Dial>,
    /// The ClientGuid and the dialects that are offered.
    pub(super) offering: Offering,
    /// The server, as the caller named it.
    pub(super) server: ServerName,
    pub(super) credentials: Credentials,
    /// Takes the notifications of all connections.
    pub(super) unasked: mpsc::Sender<Unasked>,
    /// The addresses of the server, and the search for a share among them.
    pub(super) search: Search,
    /// Becomes true when the server has answered a NEGOTIATE.
    pub(super) answered: Arc<AtomicBool>,
}

/// A connection that was made, and the address where it leads.
pub(super) struct Reached {
    pub(super) claim: Claim,
    pub(super) address: ServerName,
}

/// The addresses that are tried next.
struct Round {
    untried: Vec<ServerName>,
    /// The address to which the name of the server was resolved a moment ago, if that is the only one.
    resolved: Option<ServerName>,
}

/// The addresses of a server.
enum Addresses {
    /// The name of the server has one address. The server is known by its name, which is resolved again
    /// in each round.
    One(ServerName),
    Several(Vec<ServerName>),
}

impl Connector {
    /// Returns the user for calls of RPC that are protected by a logon of their own.
    pub(super) fn caller(&self) -> Caller {
        Caller {
            options: Arc::clone(&self.options),
            dial: Arc::clone(&self.dial),
            host: self.server.host.clone(),
            credentials: self.credentials.clone(),
        }
    }

    /// Connects to the server: at the first of its addresses that negotiates, of those that were not
    /// tried in this round of the search.
    pub(super) async fn connect(&self, progress: &Progress) -> Result<Reached, Cause> {
        let Round { untried, resolved } = self.round().await?;
        if self.search.count() > 1 {
            return self.connect_to_any(untried, progress).await;
        }
        let address = untried.into_iter().next().unwrap_or_else(|| self.server.clone());
        let at = resolved.unwrap_or_else(|| address.clone());
        progress.begin(&address, &at);
        match self.reach(&at, None, progress).await {
            Ok(claim) => {
                self.search.note_reached(&address, claim.agreed().server_guid);
                Ok(Reached { claim, address })
            }
            Err(why) => {
                progress.note_failed(&at, &why);
                self.search.note_failed(&address);
                Err(why)
            }
        }
    }

    /// Returns the addresses that are left in this round of the search, of a new one if there are none.
    async fn round(&self) -> Result<Round, Cause> {
        let untried = self.search.untried();
        if !untried.is_empty() {
            return Ok(Round { untried, resolved: None });
        }
        self.search.rest().await;
        let mut resolved = None;
        match self.addresses().await {
            Ok(Addresses::Several(addresses)) => self.search.begin(addresses),
            Ok(Addresses::One(address)) => {
                self.search.begin(vec![self.server.clone()]);
                resolved = Some(address);
            }
            Err(error) if self.search.count() > 1 => {
                tracing::debug!(server = %self.server, %error, "the known addresses are tried");
                self.search.begin(Vec::new());
            }
            Err(error) => return Err(error.into()),
        }
        Ok(Round { untried: self.search.untried(), resolved })
    }

    /// Returns the addresses of the server: those of the options, else those of its name.
    async fn addresses(&self) -> std::io::Result<Addresses> {
        let of_it = self.options.addresses.iter();
        let of_it = of_it.filter(|one| one.host.eq_ignore_ascii_case(&self.server.host));
        let named: Vec<ServerName> = of_it
            .flat_map(|one| &one.addresses)
            .map(|one| ServerName { port: one.port.or(self.server.port), ..one.clone() })
            .collect();
        if !named.is_empty() {
            return Ok(Addresses::Several(named));
        }
        let mut found = self.dial.addresses(&self.server).await?;
        if found.len() == 1
            && let Some(address) = found.pop()
        {
            return Ok(Addresses::One(address));
        }
        Ok(Addresses::Several(found))
    }

    /// Connects to several addresses, each a while after the one before it, and returns the first
    /// connection that negotiates. The error is that of the address that got furthest.
    async fn connect_to_any(
        &self,
        mut untried: Vec<ServerName>,
        progress: &Progress,
    ) -> Result<Reached, Cause> {
        // No other address waits for the time of these ones, no node was found at another one, and no
        // node is about to take an address over.
        let is_patient = untried.len() == self.search.count()
            && untried.len() <= ADDRESSES_AT_ONCE
            && !self.search.is_continuous();
        let mut preferred = self.persistently(|| self.dial.prefer(&untried)).await;
        untried.sort_by_key(|one| preferred.as_ref().is_none_or(|found| found.server != *one));
        let mut attempts = Staggered::new(untried, NEXT_ADDRESS_AFTER, |address: ServerName| {
            let is_it = |found: &mut Preferred| found.server == address;
            let stream = preferred.take_if(is_it).map(|found| found.stream);
            self.reach_in_time(address, stream, is_patient, progress)
        });
        while let Some((address, reached)) = attempts.next().await {
            let why = match reached {
                Ok(claim) if self.search.note_reached(&address, claim.agreed().server_guid) => {
                    return Ok(Reached { claim, address });
                }
                Ok(_) => self.exhausted(),
                Err(why) => {
                    tracing::debug!(server = %self.server, %address, %why, "an address is passed over");
                    self.search.note_failed(&address);
                    why
                }
            };
            progress.note_failed(&address, &why);
        }
        // If one server has refused the share, an address where nobody listens is not tried again.
        if let Exhausted::ForGood(status) = self.search.exhausted() {
            return Err(status.into());
        }
        Err(progress.furthest().map_or_else(|| self.exhausted(), |failed| failed.why))
    }

    /// Returns the error of a round in which all nodes have refused the share.
    fn exhausted(&self) -> Cause {
        match self.search.exhausted() {
            Exhausted::ForGood(status) => status.into(),
            Exhausted::ForNow => Status::SERVER_UNAVAILABLE.into(),
        }
    }

    /// Connects to one of several addresses and negotiates. With `is_patient`, the time limit of one
    /// address counts only after a server was found at another one.
    async fn reach_in_time(
        &self,
        address: ServerName,
        stream: Option<Stream>,
        is_patient: bool,
        progress: &Progress,
    ) -> (ServerName, Result<Claim, Cause>) {
        progress.begin(&address, &address);
        let limit = self.search.begin_attempt(&address).unwrap_or(ADDRESS_DIAL);
        let reached = {
            let mut reach = pin!(self.reach(&address, stream, progress));
            match timeout(limit, &mut reach).await {
                Ok(reached) => reached,
                Err(_elapsed) if is_patient && !progress.has_failed_at_server() => reach.await,
                Err(_elapsed) => Err(progress.silence_at(&address, limit).into()),
            }
        };
        (address, reached)
    }

    /// Connects to an address, over `stream` if that leads there already, and negotiates. A node that
    /// has just lost its address may have taken the connection, and can answer no more.
    async fn reach(
        &self,
        address: &ServerName,
        stream: Option<Stream>,
        progress: &Progress,
    ) -> Result<Claim, Cause> {
        let stream = match stream {
            Some(stream) => stream,
            None => self.persistently(|| self.dial.dial(address)).await?,
        };
        progress.note(address, Step::Reached);
        let opening = self.open(stream);
        let claim = match self.search.answer_within() {
            None => opening.await?,
            Some(limit) => timeout(limit, opening).await.unwrap_or_else(|_| {
                self.search.note_unanswered();
                Err(progress.silence_at(address, limit).into())
            })?,
        };
        progress.note(address, Step::Negotiated);
        self.answered.store(true, Ordering::Relaxed);
        Ok(claim)
    }

    /// Makes an attempt at addresses; several ones if an address may be about to come to another node:
    /// while it is nowhere, requests for a connection get lost. The first answer counts, also a refusal.
    async fn persistently<F: Future>(&self, begin: impl Fn() -> F) -> F::Output {
        if !self.search.is_continuous() {
            return begin().await;
        }
        let mut under_way = FuturesUnordered::new();
        let mut pause = RECONNECT_DIAL_PAUSE;
        loop {
            if under_way.len() < RECONNECT_DIALS {
                under_way.push(begin());
            }
            let has_room = under_way.len() < RECONNECT_DIALS;
            tokio::select! {
                biased;
                Some(ended) = under_way.next() => return ended,
                () = sleep(pause), if has_room => pause += RECONNECT_DIAL_PAUSE,
            }
        }
    }

    /// Connects to the server for the first time. The error names the dialect of a server that is too
    /// old, which a server that has been connected to is not.
    pub(super) async fn connect_first(&self, progress: &Progress) -> Result<Reached, Cause> {
        match self.connect(progress).await {
            Err(why) if may_be_too_old(&why) => {
                let asked = progress.furthest().and_then(|failed| failed.at);
                let asked = asked.unwrap_or_else(|| self.server.clone());
                Err(spoken_dialect::found(self, &asked, why).await)
            }
            opened => opened,
        }
    }

    /// Connects to the server, or to an address of it, for a further channel of a session whose
    /// channels are over `transport`, with the `offer` of the first one.
    pub(super) async fn connect_further(
        &self,
        server: &ServerName,
        transport: Transport,
        offer: Offer,
    ) -> Result<Claim, Cause> {
        let stream = self.dial.dial_further(server, transport).await?;
        let (server, unasked) = (&self.server, self.unasked.clone());
        Connection::open(stream, &self.options, offer, server, unasked).await
    }

    async fn open(&self, stream: Stream) -> Result<Claim, Cause> {
        let (offer, unasked) = (self.offering.offer(), self.unasked.clone());
        Connection::open(stream, &self.options, offer, &self.server, unasked).await
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
            let late = |_| Cause::from(std::io::Error::from(ErrorKind::TimedOut));
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

/// Returns true if an attempt at another address may succeed: the error is one of the node, not one of
/// the user. A refused user is not tried elsewhere, as that would lock the account.
pub(super) fn is_of_node(why: &Cause) -> bool {
    match why {
        Cause::Status(status) => !account::is_of_logon(*status),
        Cause::Transport(_)
        | Cause::Unknown
        | Cause::NotSmb
        | Cause::TooOld(_)
        | Cause::Protocol(_)
        | Cause::Security(_) => true,
        _ => false,
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
