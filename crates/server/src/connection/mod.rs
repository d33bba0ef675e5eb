//! One transport connection: MS-SMB2 3.3.1.7. It lives on one core; nothing
//! of it is locked.

mod assemble;
mod batch_signing;
mod breaks;
mod event_loop;
mod receive;
mod serve;
mod waiting;

pub use event_loop::{Accepted, run};

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use frevo_crypto::SigningKey;
use frevo_net::send_queue::{SendLimits, SendQueue};
use frevo_proto::limits::WINDOW_MAX;
use frevo_proto::preauth::ConnectionPreauth;
use frevo_proto::window::CommandSequenceWindow;
use frevo_proto::{Dialect, Negotiated as Terms};
use frevo_wire::Status;
use frevo_wire::command::negotiate::{GlobalCapabilities as Capabilities, SecurityMode};
use frevo_wire::dtyp::Guid;

use crate::admission::Ticket;
use crate::command::session_setup::Authentication;
use crate::ledger::{Charge, Tabs};
use crate::refusal::Doom;
use crate::server::ServerState;
use crate::session::{ConnectionHandle, Session, State};
use crate::settings::Settings;

/// What other cores tell a connection.
#[derive(Debug)]
pub enum Notice {
    /// A session of this connection has ended elsewhere.
    SessionClosed(u64),
    /// Refuse the requests that wait for others: memory is full.
    GiveUpWaiting,
    /// End the connection.
    Disconnect(&'static str),
    /// End the connection if nobody has authenticated on it: newcomers need its place.
    Evicted,
    /// End the connection if it has no session.
    EndIfUnused,
    /// Tell the client of a break. Boxed: every connection holds room for 32
    /// notices, and few ever get one.
    Break(Box<crate::lease::Parcel>),
}

/// What NEGOTIATE settled.
#[derive(Debug, Clone)]
pub struct Negotiated {
    /// Dialect, algorithms and sizes.
    pub terms: Terms,
    /// Connection.ClientGuid
    pub client_guid: Guid,
    /// Connection.ClientDialects
    pub client_dialects: Vec<Dialect>,
    /// Connection.ClientCapabilities
    pub client_capabilities: Capabilities,
    /// Connection.ClientSecurityMode
    pub client_security_mode: SecurityMode,
    /// Connection.ServerCapabilities as sent.
    pub server_capabilities: Capabilities,
    /// Connection.ServerSecurityMode
    pub server_security_mode: SecurityMode,
    /// The POSIX extensions were agreed on.
    pub posix: bool,
}

/// A session as one connection uses it.
#[derive(Debug)]
pub struct Channel {
    /// The session.
    pub session: Arc<Session>,
    /// Channel.SigningKey of a bound channel; the first one has the session's.
    pub signing_key: Option<SigningKey>,
}

impl Channel {
    /// Channel.SigningKey; none before authentication succeeded.
    pub fn signing_key(&self) -> Option<&SigningKey> {
        self.signing_key
            .as_ref()
            .or_else(|| self.session.security().map(|security| &security.signing_key))
    }
}

/// How far NEGOTIATE has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Negotiation {
    /// Nothing yet: Connection.NegotiateDialect is 0xFFFF.
    Nothing,
    /// SMB1's NEGOTIATE was answered with 0x02FF; SMB2's must follow.
    MultiProtocol,
    /// Done.
    Done,
}

/// One connection.
pub struct Connection {
    /// A number for logs and for channel lists.
    pub id: u64,
    /// The server.
    pub server: Arc<ServerState>,
    /// Settings as they were when it was accepted.
    pub settings: Arc<Settings>,
    /// The other end.
    pub peer: SocketAddr,
    /// This end.
    pub local: SocketAddr,
    /// A door for other cores.
    pub handle: ConnectionHandle,
    /// How far NEGOTIATE has come.
    pub negotiation: Cell<Negotiation>,
    /// What NEGOTIATE settled.
    pub negotiated: OnceCell<Negotiated>,
    /// Connection.PreauthIntegrityHashValue
    pub preauth: RefCell<ConnectionPreauth>,
    /// Authentications under way, by session.
    pub authentications: RefCell<HashMap<u64, Authentication>>,
    /// Counted as unauthenticated until this is taken.
    pub ticket: RefCell<Option<Ticket>>,
    window: RefCell<CommandSequenceWindow>,
    channels: RefCell<Vec<Rc<Channel>>>,
    /// Its charges: to its network, then to the first account too.
    pub charges: RefCell<Vec<Charge>>,
    waiting: RefCell<waiting::Waiting>,
    queue: SendQueue,
    /// Its buffers in the ledger.
    pub tabs: Tabs,
    /// Bytes of frames that are being served.
    served_bytes: Cell<usize>,
    /// Bytes of the state of one request that was not answered at once.
    request_bytes: Cell<usize>,
    together: batch_signing::SigningBatch,
    spare_bytes: RefCell<Vec<Vec<u8>>>,
    /// Break notifications on their way.
    breaks: RefCell<Vec<breaks::Sent>>,
    /// For tests: no break notification arrives.
    pub plays_dead: Cell<bool>,
    /// READ responses have padding before their data (test hooks).
    pub pads_reads: Cell<bool>,
    doom: Cell<Option<Doom>>,
    /// Wakes the requests that wait for nothing but time.
    ended: tokio::sync::Notify,
    /// Wakes the loop that owns the socket: there is something to send that no
    /// ended request brings along, or the connection is to end.
    attention: tokio::sync::Notify,
}

/// What of a connection handlers may know on another thread.
pub struct Origin {
    id: u64,
    server: Arc<ServerState>,
    settings: Arc<Settings>,
    peer: SocketAddr,
    local: SocketAddr,
    handle: ConnectionHandle,
    negotiated: Option<Negotiated>,
}

impl Connection {
    /// Writes a log line about the client with `write`, unless there were too many of them.
    /// See [`Lines::tell`](crate::lines::Lines::tell).
    pub fn tell(&self, write: impl FnOnce(Option<u64>)) {
        self.server.lines.tell(self.peer.ip(), write);
    }

    /// What another thread needs for [`Self::stand_in`].
    pub(crate) fn origin(&self) -> Origin {
        Origin {
            id: self.id,
            server: Arc::clone(&self.server),
            settings: Arc::clone(&self.settings),
            peer: self.peer,
            local: self.local,
            handle: self.handle.clone(),
            negotiated: self.negotiated.get().cloned(),
        }
    }

    /// The same connection for a handler on another thread. It says what the
    /// original says, and has neither transport nor channels: nothing is sent by it.
    pub(crate) fn stand_in(origin: Origin) -> Rc<Self> {
        let Origin { id, server, settings, peer, local, handle, negotiated } = origin;
        Rc::new(Self {
            negotiation: Cell::new(Negotiation::Done),
            negotiated: negotiated.map_or_else(OnceCell::new, OnceCell::from),
            ..Self::new((id, server, settings), (peer, local), handle, None)
        })
    }

    /// A connection that has said nothing yet.
    fn new(
        (id, server, settings): (u64, Arc<ServerState>, Arc<Settings>),
        (peer, local): (SocketAddr, SocketAddr),
        handle: ConnectionHandle,
        ticket: Option<Ticket>,
    ) -> Self {
        // A stand-in has no ticket, and no buffers of its own.
        let door = ticket.is_some().then(|| handle.clone());
        let tabs = Tabs::new(id, door, server.ledger.network(peer.ip()));
        Self {
            id,
            settings,
            peer,
            local,
            handle,
            negotiation: Cell::new(Negotiation::Nothing),
            negotiated: OnceCell::new(),
            preauth: RefCell::new(ConnectionPreauth::new()),
            authentications: RefCell::default(),
            ticket: RefCell::new(ticket),
            window: RefCell::new(CommandSequenceWindow::new(WINDOW_MAX)),
            channels: RefCell::default(),
            charges: RefCell::default(),
            waiting: RefCell::new(waiting::Waiting::default()),
            queue: SendQueue::new(SendLimits::default()),
            tabs,
            served_bytes: Cell::new(0),
            request_bytes: Cell::new(0),
            together: batch_signing::SigningBatch::default(),
            spare_bytes: RefCell::default(),
            breaks: RefCell::default(),
            plays_dead: Cell::new(false),
            pads_reads: Cell::new(false),
            doom: Cell::new(None),
            ended: tokio::sync::Notify::new(),
            attention: tokio::sync::Notify::new(),
            server,
        }
    }

    /// Connection.Dialect; before NEGOTIATE the lowest.
    pub fn dialect(&self) -> Dialect {
        self.negotiated.get().map_or(Dialect::SMB_2_0_2, |n| n.terms.dialect)
    }

    /// Whether the dialect is of the 3.x family.
    pub fn is_smb3(&self) -> bool {
        self.negotiated.get().is_some_and(|n| n.terms.is_smb3())
    }

    /// Connection.SupportsMultiCredit
    pub fn supports_multi_credit(&self) -> bool {
        self.negotiated.get().is_some_and(|n| n.terms.is_multi_credit)
    }

    /// What NEGOTIATE settled; commands before it never reach a handler.
    pub fn negotiated(&self) -> Result<&Negotiated, Status> {
        self.negotiated.get().ok_or(Status::INVALID_PARAMETER)
    }

    /// The channel of session `id` on this connection. A session that ended
    /// elsewhere is forgotten.
    pub fn channel(&self, id: u64) -> Option<Rc<Channel>> {
        let mut channels = self.channels.borrow_mut();
        let at = channels.iter().position(|c| c.session.id == id)?;
        let channel = channels.get(at).map(Rc::clone)?;
        if channel.session.state() == State::Closed {
            channels.swap_remove(at);
            return None;
        }
        Some(channel)
    }

    /// Puts a session into Connection.SessionTable.
    pub fn add_channel(&self, channel: Channel) {
        self.channels.borrow_mut().push(Rc::new(channel));
    }

    /// Takes a session out of Connection.SessionTable.
    pub fn remove_channel(&self, id: u64) {
        self.channels.borrow_mut().retain(|c| c.session.id != id);
        self.authentications.borrow_mut().remove(&id);
    }

    /// Sessions on this connection.
    pub fn channel_count(&self) -> usize {
        self.channels.borrow().len()
    }

    /// True while a session on the connection is Valid or Expired.
    pub fn has_session(&self) -> bool {
        let is_live = |c: &Rc<Channel>| matches!(c.session.state(), State::Valid | State::Expired);
        self.channels.borrow().iter().any(is_live)
    }

    /// True once a session has authenticated on the connection.
    pub fn is_authenticated(&self) -> bool {
        self.ticket.borrow().is_none()
    }

    /// Ends the connection without a further reply.
    pub fn disconnect(&self, why: Doom) {
        if self.doom.get().is_none() {
            self.doom.set(Some(why));
            self.attention.notify_one();
        }
    }

    /// Whether the client runs on this very machine.
    pub fn is_same_host(&self) -> bool {
        let peer = self.peer.ip().to_canonical();
        peer.is_loopback() || peer == self.local.ip().to_canonical()
    }

    /// Waits until the connection has given back what it held.
    pub(crate) async fn ended(&self) {
        let ended = self.ended.notified();
        if !self.is_doomed() {
            ended.await;
        }
    }

    /// True once the connection has ended or is about to.
    pub(crate) fn is_doomed(&self) -> bool {
        self.doom.get().is_some()
    }
}
