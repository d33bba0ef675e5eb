//! One transport connection: MS-SMB2 3.3.1.7.
//!
//! A [`Connection`] lives on one core and has no locks: it owns framing, sequence window,
//! credits, send queue and channels. Its [`ConnectionInfo`] has the facts that handlers
//! read on any thread.
//!
//! It may touch the objects and all below them, and `command`, whose handlers it runs. NEGOTIATE and
//! SESSION_SETUP get the `Connection` itself; all others know its facts alone.

mod answer;
mod answering;
mod assemble;
mod attention;
mod authentication;
mod breaks;
mod burst;
mod captured;
mod direct;
mod driver;
mod end_reason;
mod event_loop;
mod farewells;
mod incoming;
mod look_up;
mod members;
mod outgoing;
mod protected;
mod rdma;
mod receive;
mod rest;
mod run;
mod sent_break;
mod stalls;
#[cfg(feature = "traces")]
pub mod traces;
mod uncopied_reads;
mod waiting;

pub(crate) use authentication::{Authentication, Authentications, Purpose};
pub(crate) use event_loop::{Accepted, run};

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use frevo_net::turns::Seat;
use frevo_proto::preauth::ConnectionPreauth;

use crate::base::rates::HeldRequests;
use crate::objects::activity::Stall;
use crate::objects::admission::Ticket;
use crate::objects::connection_info::ConnectionInfo;
use crate::objects::ledger::{Holder, Tabs, Window};
use crate::objects::notice::Notices;
use crate::objects::refusal::Doom;
use attention::Attention;
use end_reason::End;
use incoming::Incoming;
use members::Members;
use outgoing::Outgoing;

/// The part of a connection that its core owns.
pub(crate) struct Connection {
    /// The facts that other threads may read.
    pub info: Arc<ConnectionInfo>,
    /// True once SMB1's NEGOTIATE was answered with 0x02FF: SMB2's must follow.
    pub is_multi_protocol: Cell<bool>,
    /// True from the cancellation of a request until its answer has had its turn.
    pub has_cancelled: Cell<bool>,
    /// Connection.PreauthIntegrityHashValue
    pub preauth: RefCell<ConnectionPreauth>,
    /// Sessions on the connection.
    pub members: Members,
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
    waiting: RefCell<waiting::Waiting>,
    /// Its buffers in the ledger.
    tabs: Tabs,
    /// Its place among the connections of its account on this core.
    seat: Rc<Seat>,
    doom: Cell<Option<Doom>>,
    /// True while the server stops: requests under way lose their sessions and Opens.
    stops: Cell<bool>,
    /// Wakes the requests that wait for a timer.
    ended: tokio::sync::Notify,
    /// Wakes the event loop: a response is to be sent although no request has ended, or the
    /// connection is to end.
    attention: Attention,
    /// The charge for its windows. None unless it is of QUIC.
    window: Option<Arc<Window>>,
    /// True while no more is charged for them than for a new connection, because nothing is under way.
    rests: Cell<bool>,
    /// Notices from other cores.
    notices: Notices,
    /// The device's part. None unless the transport moves data by RDMA.
    rdma: Option<Box<direct::Direct>>,
    /// Its place in a capture, once it has had a frame for one.
    tapped: captured::Tapped,
    /// Its span, which ends with it.
    #[cfg(feature = "traces")]
    span: tracing::Span,
}

impl Connection {
    /// A connection that has received nothing yet.
    fn new(info: ConnectionInfo, notices: Notices, ticket: Ticket, seat: Rc<Seat>) -> Self {
        let network = info.server.ledger.network(info.peer.ip());
        let tabs = {
            let (handle, backlog) = (info.handle.clone(), Arc::clone(&info.backlog));
            Tabs::new(info.id, Some(handle), network, backlog)
        };
        Self {
            #[cfg(feature = "traces")]
            span: traces::of_connection(info.id, info.peer),
            info: Arc::new(info),
            is_multi_protocol: Cell::new(false),
            has_cancelled: Cell::new(false),
            preauth: RefCell::new(ConnectionPreauth::new()),
            members: Members::new(ticket),
            incoming: Incoming::new(),
            outgoing: Outgoing::new(),
            waiting: RefCell::new(waiting::Waiting::default()),
            tabs,
            seat,
            doom: Cell::new(None),
            stops: Cell::new(false),
            ended: tokio::sync::Notify::new(),
            attention: Attention::default(),
            window: None,
            rests: Cell::new(false),
            notices,
            rdma: None,
            tapped: captured::Tapped::default(),
        }
    }

    /// Charges its buffers and its time on the core to `holder` from now on: an account has logged on.
    pub(crate) fn move_to(&self, holder: &Arc<Holder>) {
        self.tabs.move_to(holder);
        if !planted!(TurnOfConnection) {
            self.seat.move_to(&holder.turns);
        }
    }

    /// Notes the credits of the client, after each change of them.
    fn note_credits(&self) {
        let (available, in_flight) = {
            let window = self.incoming.window.borrow();
            (window.available(), window.in_flight())
        };
        self.note_stall(Stall::Credits, self.incoming.without_credits.note(available == 0));
        if let Some(channel) = self.members.first() {
            channel.registered.activity.hold_credits(available.saturating_add(in_flight));
        }
    }

    /// The requests that wait for limits of rate.
    pub(crate) const fn held_back(&self) -> &HeldRequests {
        &self.incoming.held_back
    }

    /// Notes replies that the client has not taken.
    fn note_unsent(&self) {
        self.note_stall(Stall::Network, self.outgoing.note_unsent());
    }

    /// Counts a stall that ended. A connection rarely has two sessions: the first has it.
    #[inline]
    fn note_stall(&self, stall: Stall, time: Option<std::time::Duration>) {
        if let (Some(time), Some(channel)) = (time, self.members.first()) {
            channel.registered.activity.stalled(stall, time);
        }
    }

    /// True for a READ of `bytes` on a connection whose READs ask for little at a time. To be asked for
    /// READs of a client on this host that could be answered without a copy.
    pub(crate) fn is_read_without_copy(&self, bytes: u32) -> bool {
        self.outgoing.is_read_without_copy(bytes)
    }

    /// Ends the connection without a further reply.
    pub(crate) fn disconnect(&self, why: Doom) {
        if self.doom.get().is_none() {
            self.doom.set(Some(why));
            self.attention.call();
        }
    }

    /// The end of the connection, if it has come: no frame comes, and all that have come have begun.
    fn end_now(&self) -> Option<Result<(), End>> {
        if let Some(why) = self.doom.get() {
            return Some(Err(End::Doomed(why)));
        }
        self.incoming.take_end()
    }

    /// Waits for the end of the connection, with which waits for a timer end too.
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
