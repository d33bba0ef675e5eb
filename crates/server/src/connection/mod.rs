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
mod authentication;
mod batch_checking;
mod batch_signing;
mod breaks;
mod burst;
mod channel;
mod checked;
mod direct;
mod driver;
mod elsewhere;
mod end_reason;
mod event_loop;
mod look_up;
mod rdma;
mod receive;
mod row;
mod run;
mod shared_key;
mod stalls;
#[cfg(feature = "traces")]
pub mod traces;
mod uncopied_reads;
mod verify;
mod waiting;

pub(crate) use authentication::{Authentication, Authentications, Purpose};
pub(crate) use channel::Channel;
pub(crate) use event_loop::{Accepted, run};

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use frevo_net::send_queue::{OutFrame, SendLimits, SendQueue};
use frevo_proto::limits::WINDOW_MAX;
use frevo_proto::preauth::ConnectionPreauth;
use frevo_proto::window::CommandSequenceWindow;

use crate::objects::activity::Stall;
use crate::objects::admission::Ticket;
use crate::objects::connection_info::ConnectionInfo;
use crate::objects::ledger::{Charge, Tabs};
use crate::objects::notice::Notices;
use crate::objects::refusal::Doom;
use crate::objects::session::State;
use row::Row;
use stalls::Stalled;

/// The part of a connection that its core owns.
pub struct Connection {
    /// The facts that other threads may read.
    pub info: Arc<ConnectionInfo>,
    /// True once SMB1's NEGOTIATE was answered with 0x02FF: SMB2's must follow.
    pub is_multi_protocol: Cell<bool>,
    /// True from the cancellation of a request until its answer has had its turn.
    pub has_cancelled: Cell<bool>,
    /// Connection.PreauthIntegrityHashValue
    pub preauth: RefCell<ConnectionPreauth>,
    /// Authentications under way, by session.
    pub authentications: RefCell<Authentications>,
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
    /// True once the kernel has room for large requests.
    is_widened: Cell<bool>,
    uncopied_reads: uncopied_reads::UncopiedReads,
    /// Bytes of frames whose messages are being answered.
    served_bytes: Cell<usize>,
    /// Bytes of the state of one request that was not answered at once.
    request_bytes: Cell<usize>,
    together: batch_signing::SigningBatch,
    /// The results for frames whose turn has not come.
    ahead: checked::CheckedAhead,
    /// Frames in their order, whose first is being checked elsewhere.
    lined_up: RefCell<Row<checked::LinedUp>>,
    /// True if other requests came with the last one, or are being received or carried out.
    has_company: Cell<bool>,
    /// The end of the frames, while some before it have not begun.
    end: Cell<Option<Box<Result<(), end_reason::End>>>>,
    /// True once there is such an end.
    is_ending: Cell<bool>,
    /// Replies in their order, whose first is being protected elsewhere.
    leaving: RefCell<Row<OutFrame>>,
    spare_bytes: RefCell<Vec<Vec<u8>>>,
    /// Break notifications on their way.
    breaks: RefCell<Vec<breaks::Sent>>,
    doom: Cell<Option<Doom>>,
    /// True while the server stops: requests under way lose their sessions and Opens.
    stops: Cell<bool>,
    /// Wakes the requests that wait for a timer.
    ended: tokio::sync::Notify,
    /// Wakes the event loop: a response is to be sent although no request has ended, or the
    /// connection is to end.
    attention: tokio::sync::Notify,
    /// The client has no credits.
    without_credits: Stalled,
    /// Replies wait for the client or the network.
    unsent: Stalled,
    /// Notices from other cores.
    notices: Notices,
    /// The device's part. None unless the transport moves data by RDMA.
    rdma: Option<Box<direct::Direct>>,
    /// Its span, which ends with it.
    #[cfg(feature = "traces")]
    span: tracing::Span,
}

impl Connection {
    /// A connection that has received nothing yet.
    fn new(info: ConnectionInfo, notices: Notices, ticket: Ticket) -> Self {
        let network = info.server.ledger.network(info.peer.ip());
        let tabs = Tabs::new(info.id, Some(info.handle.clone()), network);
        Self {
            #[cfg(feature = "traces")]
            span: crate::connection::traces::of_connection(info.id, info.peer),
            info: Arc::new(info),
            is_multi_protocol: Cell::new(false),
            has_cancelled: Cell::new(false),
            preauth: RefCell::new(ConnectionPreauth::new()),
            authentications: RefCell::default(),
            ticket: RefCell::new(Some(ticket)),
            window: RefCell::new(CommandSequenceWindow::new(WINDOW_MAX)),
            channels: RefCell::default(),
            charges: RefCell::default(),
            waiting: RefCell::new(waiting::Waiting::default()),
            queue: SendQueue::new(SendLimits::default()),
            tabs,
            is_widened: Cell::new(false),
            uncopied_reads: uncopied_reads::UncopiedReads::default(),
            served_bytes: Cell::new(0),
            request_bytes: Cell::new(0),
            together: batch_signing::SigningBatch::default(),
            ahead: checked::CheckedAhead::default(),
            lined_up: RefCell::default(),
            has_company: Cell::new(false),
            end: Cell::default(),
            is_ending: Cell::new(false),
            leaving: RefCell::default(),
            spare_bytes: RefCell::default(),
            breaks: RefCell::default(),
            doom: Cell::new(None),
            stops: Cell::new(false),
            ended: tokio::sync::Notify::new(),
            attention: tokio::sync::Notify::new(),
            without_credits: Stalled::default(),
            unsent: Stalled::default(),
            notices,
            rdma: None,
        }
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

    /// Notes the credits of the client, after each change of them.
    fn note_credits(&self) {
        let (available, in_flight) = {
            let window = self.window.borrow();
            (window.available(), window.in_flight())
        };
        self.note_stall(Stall::Credits, self.without_credits.note(available == 0));
        if let Some(channel) = self.channels.borrow().first() {
            channel.registered.activity.hold_credits(available.saturating_add(in_flight));
        }
    }

    /// Notes replies that the client has not taken.
    fn note_unsent(&self) {
        self.note_stall(Stall::Network, self.unsent.note(!self.queue.is_empty()));
    }

    /// Counts a stall that ended. A connection rarely has two sessions: the first has it.
    fn note_stall(&self, stall: Stall, time: Option<std::time::Duration>) {
        if let (Some(time), Some(channel)) = (time, self.channels.borrow().first()) {
            channel.registered.activity.stalled(stall, time);
        }
    }

    /// Puts a session into Connection.SessionTable.
    pub fn add_channel(&self, channel: Channel) {
        self.channels.borrow_mut().push(Rc::new(channel));
    }

    /// Takes a session out of Connection.SessionTable.
    pub fn remove_channel(&self, id: u64) {
        self.channels.borrow_mut().retain(|c| c.session.id != id);
        self.authentications.borrow_mut().remove(id);
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

    /// True for a READ of `bytes` on a connection whose READs ask for little at a time. To be asked for
    /// READs of a client on this host that could be answered without a copy.
    pub fn is_read_without_copy(&self, bytes: u32) -> bool {
        self.uncopied_reads.is_small(self.queue.queued_bytes(), bytes)
    }

    /// Ends the connection without a further reply.
    pub fn disconnect(&self, why: Doom) {
        if self.doom.get().is_none() {
            self.doom.set(Some(why));
            self.attention.notify_one();
        }
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
