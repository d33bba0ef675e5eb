//! A connection from its acceptance to its end.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use frevo_net::buffer::Buf;
use frevo_net::buffer::budget::Fullness;
use frevo_net::cores;
use frevo_net::frame_reader::{FrameReader, ReceiveError};
use frevo_net::transport::Stream;
use frevo_net::watchdog::{has_turn, is_due, yield_if_due};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Connection, Negotiation, Notice};
use crate::admission::{EVICTED, Ticket};
use crate::audit::{self, Event, told};
use crate::impersonation;
use crate::ledger::{GAVE_UP_WAITING, Kind};
use crate::limits::{
    AUTHENTICATE_DEADLINE, IN_FLIGHT_PER_CONNECTION, MEMORY_LOOK, NEGOTIATE_DEADLINE,
};
use crate::panics::{self, Steps};
use crate::refusal::Doom;
use crate::server::ServerState;
use crate::watchdog::Whose;

/// A connection that has been accepted, with what of it was read already.
pub struct Accepted {
    /// The transport.
    pub stream: Stream,
    /// Its reader.
    pub reader: FrameReader,
    /// Its first frame, if it was read to choose a core.
    pub first: Option<Buf>,
    /// Its place among the unauthenticated.
    pub ticket: Ticket,
}

type InFlight = FuturesUnordered<InTurn>;

/// Bytes of the state machine that serves a connection: most of what an idle one costs.
const CONNECTION_LOOP_BYTES: usize = 2300;

/// Serves one connection until it ends. Requests under way then are carried
/// out, because other channels may depend on them; waiting ones are cancelled.
///
/// The future is boxed and not an `async fn`: each `async fn` on the way keeps a copy of its
/// arguments for as long as the connection lives.
pub fn run(server: Arc<ServerState>, accepted: Accepted) -> impl Future<Output = io::Result<()>> {
    let peer = accepted.stream.peer_addr();
    let mut whole = Box::pin(serve_whole(Arc::clone(&server), accepted));
    let bytes = size_of_val(&*whole);
    debug_assert!(bytes <= CONNECTION_LOOP_BYTES, "each connection keeps {bytes} bytes of state");
    async move {
        let whose = Whose::Peer(peer?);
        poll_fn(|cx| {
            let poll = || {
                let _scope = impersonation::scope(server.host_users.acts_lazily());
                whole.as_mut().poll(cx)
            };
            server.watchdog.poll(whose, poll)
        })
        .await
    }
}

#[expect(clippy::manual_async_fn, reason = "an async fn would keep a copy of `accepted`")]
fn serve_whole(
    server: Arc<ServerState>,
    mut accepted: Accepted,
) -> impl Future<Output = io::Result<()>> {
    async move {
        let (stream, reader) = (&accepted.stream, &mut accepted.reader);
        let (handle, mut notices) = mpsc::unbounded_channel();
        let (id, settings) = (server.new_connection_id(), server.settings());
        let ends = (stream.peer_addr()?, stream.local_addr()?);
        let network = server.ledger.network(ends.0.ip());
        let Ok(charge) = network.charge(Kind::Connection, 0) else {
            server.lines.tell(ends.0.ip(), |left_out| {
                tracing::warn!(target: "frevo::connection", peer = %ends.0, left_out,
                    "refused: its network has as many connections as \
                     limits.connections_per_address allows");
            });
            return Ok(());
        };
        drop(network);
        let ticket = accepted.ticket;
        ticket.reach_by(handle.clone());
        let made = Connection::new((id, server, settings), ends, handle, Some(ticket));
        let connection = Rc::new(made);
        connection.charges.borrow_mut().push(charge);
        // However this ends: by itself, by a panic, or dropped with its core.
        let winds_up = panics::Always(|| connection.wind_up());
        let mut in_flight = InFlight::new();
        if let Some(frame) = accepted.first.take() {
            connection.begin(frame, &mut in_flight).await;
        }
        let end = serve(&connection, stream, reader, &mut notices, &mut in_flight).await;
        connection.log_end(&end);
        drop(winds_up);
        // What was told to it and not yet done goes another way.
        notices.close();
        while notices.try_recv().is_ok() {}
        while in_flight.next().await.is_some() {}
        if end.is_ok() {
            // Replies to what came before an orderly end are still wanted.
            let _ = connection.queue.flush(stream).await;
        }
        Ok(())
    }
}

/// Why a connection ended.
#[derive(Debug)]
enum End {
    Doomed(Doom),
    Receive(ReceiveError),
    Send(io::Error),
}

async fn serve(
    connection: &Rc<Connection>,
    stream: &Stream,
    reader: &mut FrameReader,
    notices: &mut mpsc::UnboundedReceiver<Notice>,
    in_flight: &mut InFlight,
) -> Result<(), End> {
    let start = Instant::now();
    let mut deadline = pin!(sleep_until(start + NEGOTIATE_DEADLINE));
    let mut stopping = pin!(cores::stopping());
    // MS-SMB2 3.3.6.3: since when nobody is logged on here.
    let mut alone_since = Some(start);
    loop {
        if let Some(why) = connection.doom.get() {
            return Err(End::Doomed(why));
        }
        if connection.has_session() {
            alone_since = None;
        } else if alone_since.is_none() {
            let now = Instant::now();
            alone_since = Some(now);
            deadline.as_mut().reset(now + AUTHENTICATE_DEADLINE);
        }
        // Requests of one connection do not keep the core from all others.
        yield_if_due().await;
        connection.settle();
        connection.queue.try_flush(stream).map_err(End::Send)?;
        connection.tally(reader.held_bytes(), in_flight.len());
        let under_way = in_flight.len();
        reader.set_limit(connection.frame_limit());
        let look = connection.next_break_look();
        let may_read = !connection.queue.is_full() && in_flight.len() < IN_FLIGHT_PER_CONNECTION;
        // Without memory one request at a time is served: no more is taken in
        // before what there is has been answered and sent.
        let is_short = may_read && connection.is_short_of_memory(in_flight.len());
        let may_read = may_read && !is_short;
        tokio::select! {
            biased;
            () = connection.attention.notified() => {}
            // What was begun is carried out, and answered, after this loop.
            () = &mut stopping => return Ok(()),
            Some(()) = in_flight.next(), if !in_flight.is_empty() => {}
            Some(notice) = notices.recv() => connection.heed(notice, stream),
            // Others give memory back, and nobody tells.
            () = sleep(MEMORY_LOOK), if is_short => {}
            () = sleep_until(look.unwrap_or(start)), if look.is_some() => {
                connection.look_after_breaks(stream);
            }
            sent = connection.queue.flush(stream), if !connection.queue.is_empty() => {
                sent.map_err(End::Send)?;
            }
            frame = async {
                // Requests under way that had no turn in this poll go on before new ones.
                yield_if_due().await;
                let may_begin = |held, is_inside| {
                    connection.tally(held, under_way);
                    is_inside || connection.may_begin_frame()
                };
                reader.next_if(stream, may_begin).await
            }, if may_read => {
                let Some(frame) = frame.map_err(End::Receive)? else { return Ok(()) };
                if reader.has_more() {
                    connection.gather();
                }
                connection.begin(frame, in_flight).await;
                while !connection.is_doomed() && !connection.queue.is_full() {
                    // What is told meanwhile does not wait for a long row of requests.
                    while let Ok(notice) = notices.try_recv() {
                        connection.heed(notice, stream);
                    }
                    connection.tally(reader.held_bytes(), in_flight.len());
                    if connection.is_short_of_memory(in_flight.len()) {
                        break;
                    }
                    // Other clients have their turn, then the requests that came before.
                    if is_due() {
                        break;
                    }
                    let Some(frame) = reader.try_next() else { break };
                    connection.begin(frame, in_flight).await;
                }
            }
            () = &mut deadline, if alone_since.is_some() => {
                if connection.negotiation.get() != Negotiation::Done {
                    return Err(End::Doomed(Doom::Rule("did not negotiate in time")));
                }
                let until = alone_since.unwrap_or(start) + AUTHENTICATE_DEADLINE;
                if Instant::now() >= until {
                    return Err(End::Doomed(Doom::Rule("did not authenticate in time")));
                }
                deadline.as_mut().reset(until);
            }
        }
    }
}

/// A request under way. When many are woken together, those whose turn does not
/// come within the slice of a poll go on in the next one.
struct InTurn(Pin<Box<dyn Future<Output = ()>>>);

impl Future for InTurn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if has_turn() {
            return self.0.as_mut().poll(cx);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Connection {
    /// Starts on a frame: most are answered by the first poll and need no place
    /// among the futures in flight.
    async fn begin(self: &Rc<Self>, frame: Buf, in_flight: &mut InFlight) {
        let mut serving = Box::pin(Rc::clone(self).serve(frame));
        self.request_bytes.set(size_of_val(&*serving));
        let first = poll_fn(|cx| Poll::Ready(serving.as_mut().poll(cx))).await;
        if first.is_pending() {
            in_flight.push(InTurn(serving));
        }
    }

    /// Brings the connection's buffers into the ledger.
    fn tally(&self, received: usize, in_flight: usize) {
        // Requests that wait for others are charged one by one.
        let busy = in_flight.saturating_sub(self.waiting.borrow().len());
        let requests = busy.saturating_mul(self.request_bytes.get());
        let frames = received.saturating_add(self.served_bytes.get());
        self.tabs.set(frames.saturating_add(requests), self.queue.held_bytes());
    }

    /// True when there is no memory for more than what is under way here, or for a
    /// holder that has much. Requests that wait for others are charged already.
    fn is_short_of_memory(&self, in_flight: usize) -> bool {
        self.server.ledger.relieve() == Fullness::Full
            && (!self.queue.is_empty()
                || in_flight > self.waiting.borrow().len()
                || self.tabs.is_large())
    }

    /// False while there is no memory for a frame of this connection's holder.
    fn may_begin_frame(&self) -> bool {
        self.server.ledger.relieve() != Fullness::Full || !self.tabs.is_large()
    }

    /// Does what another core, or a request here, wants of the connection.
    fn heed(&self, notice: Notice, stream: &Stream) {
        match notice {
            Notice::SessionClosed(id) => self.remove_channel(id),
            Notice::GiveUpWaiting => {
                if self.waiting.borrow().len() > 0 {
                    told::limit(&self.server, self.peer, GAVE_UP_WAITING);
                }
                self.waiting.borrow().give_up();
            }
            Notice::Disconnect(why) => self.disconnect(Doom::Limit(why)),
            // It may have authenticated since it was told.
            Notice::Evicted if !self.is_authenticated() => {
                self.disconnect(Doom::Limit(EVICTED));
            }
            Notice::Evicted => {}
            Notice::EndIfUnused if self.channel_count() == 0 => self.disconnect(Doom::Idle),
            Notice::EndIfUnused => {}
            Notice::Break(parcel) => self.send_break(*parcel, stream),
        }
    }

    /// Gives back what the connection held: its channels, and with the last
    /// channel of a session the session.
    fn wind_up(&self) {
        self.doom.set(Some(self.doom.get().unwrap_or(Doom::Rule("ended"))));
        self.ended.notify_waiters();
        let under_way: Vec<u64> =
            self.authentications.borrow_mut().drain().map(|(id, _)| id).collect();
        let channels = std::mem::take(&mut *self.channels.borrow_mut());
        let others = |id| self.server.session(id).is_some_and(|s| s.has_channel_besides(self.id));
        self.waiting.borrow().cancel_all(others);
        let breaks = self.breaks.take();
        let mut steps = Steps::default();
        for channel in channels {
            let unfinished = channel.session.security().is_none();
            if channel.session.remove_channel(self.id)
                || (unfinished && under_way.contains(&channel.session.id))
            {
                steps.take(|| self.server.end_session(&channel.session));
            }
        }
        // After its channels, so that none of them is tried again.
        steps.take(|| drop(breaks));
        steps.end();
    }

    fn log_end(&self, end: &Result<(), End>) {
        let peer = self.peer;
        match end {
            Ok(()) => tracing::debug!(target: "frevo::connection", %peer, "closed by the client"),
            Err(End::Receive(ReceiveError::Io(error))) | Err(End::Send(error)) => {
                tracing::debug!(target: "frevo::connection", %peer, %error, "connection lost");
            }
            Err(End::Receive(error)) => self.tell(|left_out| {
                tracing::warn!(target: "frevo::connection", %peer, %error, left_out, "disconnected");
            }),
            Err(End::Doomed(why @ Doom::Idle)) => {
                tracing::info!(target: "frevo::connection", %peer, %why, "closed");
            }
            Err(End::Doomed(why)) => self.tell(|left_out| {
                tracing::warn!(target: "frevo::connection", %peer, %why, left_out, "disconnected");
            }),
        }
        let reason = match end {
            Err(End::Receive(error)) if !matches!(error, ReceiveError::Io(_)) => error.to_string(),
            Err(End::Doomed(Doom::Limit(why))) => return told::limit(&self.server, peer, why),
            Err(End::Doomed(why)) => why.to_string(),
            _ => return,
        };
        self.server.audit.emit_limited(peer.ip(), || {
            Event::new(audit::Kind::Violation).peer(peer).with("reason", reason)
        });
    }
}
