//! The event loop of a connection, from its acceptance to its end.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use frevo_net::buffer::Buf;
use frevo_net::buffer::budget::Fullness;
use frevo_net::cores;
use frevo_net::frame_reader::{Allowed, Enough, FrameReader, ReceiveError};
use frevo_net::transport::Stream;
use frevo_net::turns::Seat;
use frevo_net::watchdog::{is_due, yield_if_due};
use frevo_proto::limits::{CHECKED_TOGETHER, CHECKED_TOGETHER_BYTES_MAX};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep, sleep_until};

use super::Connection;
use super::answering::{Answering, InTurn};
use super::burst::Burst;
use super::driver::{Driver, any_ended, rung};
use super::end_reason::End;
use crate::audit::{self, Event};
use crate::base::limits::{
    AUTHENTICATE_DEADLINE, CLOSED_ON_CORE, IN_FLIGHT_PER_CONNECTION, MEMORY_LOOK,
    NEGOTIATE_DEADLINE, QUIC_REST_AFTER, SMALL_FRAME_BYTES,
};
use crate::base::panics::{self, Steps};
use crate::base::watchdog::Whose;
use crate::objects::admission::{EVICTED, Ticket};
use crate::objects::audited;
use crate::objects::connection_info::{ConnectionInfo, Ends};
use crate::objects::farewell::Farewell;
use crate::objects::lease::delivery::{deliver, deliver_all};
use crate::objects::lease::parcel::{Attempt, Parcel};
use crate::objects::ledger::{GAVE_UP_WAITING, Kind, Room};
use crate::objects::notice::{self, Notice};
use crate::objects::refusal::{ANOTHER_SERVES, Doom};
use crate::objects::server::ServerState;
use crate::shares::impersonation;

/// A connection that has been accepted, with the first frame, if it was read already.
pub(crate) struct Accepted {
    /// The transport connection to write to.
    pub stream: Stream,
    /// Reader of the frames that arrive on the transport connection.
    pub reader: FrameReader,
    /// Its first frame, if it was read to choose a core.
    pub first: Option<Buf>,
    /// Its place among the unauthenticated.
    pub ticket: Ticket,
}

type InFlight = FuturesUnordered<InTurn>;

/// Bytes of the state machine that serves a connection, with SMB Direct and its seat in the line of
/// its account: most of what an idle connection costs.
const CONNECTION_LOOP_BYTES: usize = 2150;

/// Bytes of the state machine that answers a frame: kept by each request that waits.
const REQUEST_BYTES: usize = if cfg!(feature = "traces") { 9500 } else { 5500 };

/// Runs the event loop of one connection until it ends. Requests under way then are carried
/// out, because other channels may depend on them; waiting ones are cancelled.
///
/// The future is boxed and not an `async fn`: each `async fn` on the way keeps a copy of its
/// arguments for as long as the connection lives.
pub(crate) fn run(
    server: Arc<ServerState>,
    accepted: Accepted,
) -> impl Future<Output = io::Result<()>> {
    let peer = accepted.stream.peer_addr();
    // If the peer has no address, the connection ends at `peer?` below. Until then the address
    // 0.0.0.0 is used.
    let address = peer.as_ref().map_or(IpAddr::from([0; 4]), SocketAddr::ip);
    let network = server.ledger.network(address);
    let turns = if planted!(TurnOfConnection) { &Arc::default() } else { &network.turns };
    let seat = Rc::new(Seat::of(turns));
    drop(network);
    let mut whole = Box::pin(run_to_end(Arc::clone(&server), accepted, Rc::clone(&seat)));
    let bytes = size_of_val(&*whole);
    debug_assert!(bytes <= CONNECTION_LOOP_BYTES, "each connection keeps {bytes} bytes of state");
    async move {
        let whose = Whose::Peer(peer?);
        poll_fn(|cx| {
            seat.poll(cx, |cx| {
                let poll = || {
                    let _scope = impersonation::scope(server.host_users.acts_lazily());
                    whole.as_mut().poll(cx)
                };
                server.watchdog.poll_for(whose, || server.accounts_at(whose), poll)
            })
        })
        .await
    }
}

#[expect(clippy::manual_async_fn, reason = "an async fn would keep a copy of `accepted`")]
fn run_to_end(
    server: Arc<ServerState>,
    mut accepted: Accepted,
    seat: Rc<Seat>,
) -> impl Future<Output = io::Result<()>> {
    async move {
        let (stream, reader) = (&accepted.stream, &mut accepted.reader);
        let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
        let ends = Ends { peer, local, transport: stream.transport() };
        let network = server.ledger.network(peer.ip());
        let Ok(charge) = network.charge(Kind::Connection, 0) else {
            server.lines.tell(peer.ip(), |left_out| {
                tracing::warn!(target: "frevo::connection", %peer, left_out,
                    "refused: its network has as many connections as \
                     limits.connections_per_address allows");
            });
            return Ok(());
        };
        drop(network);
        let ticket = accepted.ticket;
        let (handle, notices) = notice::notices();
        ticket.reach_by(handle.clone());
        let (id, settings) = (server.new_connection_id(), server.settings());
        let info = ConnectionInfo::new(id, server, settings, ends, handle);
        let connection =
            Connection::new(info, notices, ticket, seat).over(stream.rdma()).keep_window(stream);
        let connection = Rc::new(connection);
        connection.members.charges.borrow_mut().push(charge);
        // `wind_up` runs at every end of the connection: after an orderly end, after a panic, and
        // when its core drops it.
        let winds_up = panics::Always(|| connection.wind_up());
        let mut event_loop =
            EventLoop { connection: &connection, stream, reader, in_flight: InFlight::new() };
        if let Some(frame) = accepted.first.take() {
            event_loop.begin(frame).await;
        }
        let end = event_loop.run().await;
        connection.log_end(&end);
        drop(winds_up);
        // The future is boxed, because an idle connection would keep the memory of its state.
        Box::pin(event_loop.finish(end.is_ok())).await;
        Ok(())
    }
}

/// The event loop of one connection, with the transport and the requests under way.
struct EventLoop<'a> {
    connection: &'a Rc<Connection>,
    stream: &'a Stream,
    reader: &'a mut FrameReader,
    in_flight: InFlight,
}

impl EventLoop<'_> {
    /// Reads frames, polls the requests that they began and sends their responses, until
    /// the connection ends. Ok when the client, or the server in order, has ended it.
    async fn run(&mut self) -> Result<(), End> {
        let connection = self.connection;
        let mut logon = LogonTimer::new();
        let mut deadline = pin!(sleep_until(logon.deadline));
        let mut stopping = pin!(cores::stopping());
        let mut driver = Driver::of(self.stream);
        loop {
            if let Some(end) = connection.end_now() {
                return end;
            }
            if logon.look(connection.members.has_session()) {
                deadline.as_mut().reset(logon.deadline);
            }
            // Other connections of this core get a turn before this one begins further requests.
            yield_if_due().await;
            let (may_read, is_short) = self.prepare()?;
            let Self { stream, reader, in_flight, .. } = &mut *self;
            let (under_way, look) = (in_flight.len(), connection.next_break_look());
            let rests = connection.is_to_rest(may_read && under_way == 0, reader);
            connection.incoming.is_counted.set(under_way == 0 && !is_short);
            tokio::select! {
                biased;
                () = poll_fn(|cx| connection.attention.poll(cx)) => {}
                never = driver.drive() => match never {},
                // The loop ends; requests that have begun are answered after it.
                () = &mut stopping => {
                    connection.stops.set(true);
                    return Ok(());
                }
                () = any_ended(in_flight, stream, &connection.info), if !in_flight.is_empty() => {}
                notice = connection.next_notice() => connection.heed(notice, stream),
                // Other connections may free memory without a notice, so a timer wakes the loop. The `async` block
                // sets it only if the branch is enabled; otherwise `select!` would read the clock each time.
                // Timers that are seldom set are in boxes, because an idle connection would keep their memory.
                () = async { Box::pin(sleep(MEMORY_LOOK)).await }, if is_short => {}
                () = async { Box::pin(connection.go_on(stream)).await }, if connection.incoming.is_paused() => {}
                () = async { Box::pin(sleep_until(look.unwrap_or(logon.deadline))).await }, if look.is_some() => {
                    connection.look_after_breaks(stream);
                }
                frame = poll_fn(|cx| connection.poll_elsewhere(cx)), if connection.is_elsewhere() => {
                    if let Some(frame) = frame {
                        self.begin(frame).await;
                    }
                }
                sent = connection.outgoing.queue().flush(stream), if !connection.outgoing.queue().is_empty() => {
                    sent.map_err(End::Send)?;
                }
                frame = async {
                    // If requests have begun already, they get a turn before a new request begins.
                    if under_way > 0 {
                        yield_if_due().await;
                    }
                    let may_begin = |held, is_inside| connection.may_receive(held, under_way, is_inside);
                    reader.next_if(stream, may_begin).await
                }, if may_read => {
                    match frame {
                        Ok(Some(frame)) => self.begin_all(frame).await,
                        end => connection.incoming.end_behind(end),
                    }
                }
                () = async { Box::pin(sleep(QUIC_REST_AFTER)).await }, if rests => connection.rest(stream),
                () = &mut deadline, if logon.is_running() => {
                    logon.expire(connection.info.is_negotiated())?;
                    deadline.as_mut().reset(logon.deadline);
                }
                // This branch is last, because the branches above may post work for the device.
                () = rung(stream) => {}
            }
        }
    }

    /// Carries out what is under way when the connection has ended. After an orderly end the client still
    /// gets the responses; else they are dropped first, because a request may wait for their memory.
    async fn finish(&mut self, is_orderly: bool) {
        let connection = self.connection;
        let replies = &connection.outgoing.replies;
        connection.info.backlog.end_waits();
        if !is_orderly {
            replies.abandon();
        }
        loop {
            connection.settle();
            connection.tally(self.reader.held_bytes(), self.in_flight.len());
            let are_unsent = !replies.queue().is_empty();
            tokio::select! {
                biased;
                ended = self.in_flight.next() => {
                    if ended.is_none() {
                        break;
                    }
                }
                _ = poll_fn(|cx| replies.poll_leaving(cx)), if replies.are_elsewhere() => {}
                // The result is ignored, because the queue is empty after a failure, too.
                _ = replies.queue().flush(self.stream), if are_unsent => {}
                // The loop counts again, because less is unsent.
                () = sleep(MEMORY_LOOK), if are_unsent => {}
            }
        }
        if connection.is_elsewhere() {
            connection.settle_elsewhere().await;
        }
        if is_orderly {
            connection.send_farewells();
            let _ = replies.queue().flush(self.stream).await;
        }
    }

    /// Sends and counts before the loop waits. Returns whether a frame may be read, and
    /// whether there is no memory for all frames.
    fn prepare(&mut self) -> Result<(bool, bool), End> {
        let connection = self.connection;
        connection.settle();
        connection.outgoing.queue().try_flush(self.stream).map_err(End::Send)?;
        // With SMB Direct, all posted work is handed to the device in one step.
        let _ = self.stream.ring();
        connection.note_unsent();
        connection.widen_sending(self.stream);
        connection.trust();
        connection.tally(self.reader.held_bytes(), self.in_flight.len());
        self.reader.set_limit(connection.frame_limit());
        let fullness = connection.info.server.ledger.relieve();
        self.reader.allow_room(fullness == Fullness::Ample);
        let has_place = !connection.outgoing.replies.are_full(&connection.info.server)
            && self.in_flight.len() < IN_FLIGHT_PER_CONNECTION
            && connection.may_line_up();
        // If memory is full, the next frame is read only when all earlier requests are answered
        // and their responses are sent.
        if connection.outgoing.queue().is_empty() {
            connection.incoming.small.set(0);
        }
        let room = connection.room(fullness, self.in_flight.len());
        connection.incoming.note_room(room == Room::All, self.in_flight.len());
        // A body that has begun is received to its end, and the end of the client is noticed.
        let may_read = room != Room::None || self.reader.has_begun_body();
        let is_held_back = connection.incoming.is_held_back();
        // Of those that have come, the others wait, too.
        let has_begun = !self.reader.has_more() && self.reader.has_begun_body();
        let has_place = has_place && (!is_held_back || has_begun);
        // Memory for a compressed request is looked for as that for a frame.
        let waits = has_place && room != Room::All || connection.info.backlog.has_compressed();
        Ok((has_place && may_read, waits))
    }

    /// Begins the requests of a frame and of those that have come behind it.
    async fn begin_all(&mut self, mut frame: Buf) {
        let connection = self.connection;
        connection.rouse();
        if connection.is_doomed() {
            return;
        }
        let mut burst = Burst::of(frame.len());
        connection.incoming.count_small();
        connection.widen(self.stream, self.reader, frame.len());
        if !self.begins_now(&mut frame) {
            return;
        }
        self.check_together(&mut frame);
        if self.reader.has_more() {
            connection.outgoing.replies.gather();
        }
        self.begin(frame).await;
        while !connection.is_doomed()
            && !connection.incoming.is_held_back()
            && !connection.outgoing.replies.are_full(&connection.info.server)
        {
            // A long burst of requests must not delay notices, so notices are handled between the
            // requests. Of many, a part is handled now, and the rest when the loop goes on.
            while let Some(notice) = connection.try_next_notice() {
                connection.heed(notice, self.stream);
                if is_due() {
                    break;
                }
            }
            // The burst ends if other connections should run. It also ends after a CANCEL, so that
            // the cancelled request is answered before the client's later requests, as on Windows
            // and smbd.
            if (self.reader.has_more() && is_due()) || connection.has_cancelled.take() {
                break;
            }
            let may_go_on = connection.incoming.is_widened.get() && !self.reader.has_more();
            if !may_go_on && !self.reader.has_more() {
                break;
            }
            connection.tally(self.reader.held_bytes(), self.in_flight.len());
            let fullness = connection.info.server.ledger.relieve();
            let room = connection.room(fullness, self.in_flight.len());
            connection.incoming.note_room(room == Room::All, self.in_flight.len());
            if room != Room::All {
                break;
            }
            if may_go_on && burst.goes_on(self.stream) {
                self.receive_more(1, usize::MAX);
            }
            let Some(mut frame) = self.reader.try_next() else { break };
            burst.add(frame.len());
            if !self.begins_now(&mut frame) {
                break;
            }
            self.check_together(&mut frame);
            self.begin(frame).await;
        }
    }

    /// Returns true if `frame` begins now; else it joins the row of those that are checked before.
    fn begins_now(&mut self, frame: &mut Buf) -> bool {
        let connection = self.connection;
        let more = self.reader.has_more() || self.reader.is_inside_frame();
        connection.incoming.has_company.set(more || !self.in_flight.is_empty());
        if connection.incoming.arrivals.opens_with_company(&connection.keyring(), frame) {
            self.check_with_those_behind(frame);
        }
        connection.begins_now(frame)
    }

    /// Verifies or unseals `frame` together with those behind it that have come, if that is faster.
    fn check_together(&mut self, frame: &mut Buf) {
        let connection = self.connection;
        if connection.incoming.arrivals.gains_company(&connection.keyring(), frame) {
            self.check_with_those_behind(frame);
        }
    }

    fn check_with_those_behind(&mut self, frame: &mut Buf) {
        let connection = self.connection;
        let bytes = CHECKED_TOGETHER_BYTES_MAX.saturating_sub(frame.len());
        self.receive_more(CHECKED_TOGETHER - 1, bytes);
        let frames = std::iter::once(frame).chain(self.reader.ready_frames());
        connection.incoming.arrivals.check_together(&connection.keyring(), frames);
    }

    /// Receives what has arrived, until `count` frames or `bytes` bytes of frames are there, or
    /// memory or places are short.
    fn receive_more(&mut self, count: usize, bytes: usize) {
        let connection = self.connection;
        let under_way = self.in_flight.len();
        let may_receive = |held, _| {
            connection.tally(held, under_way);
            let fullness = connection.info.server.ledger.relieve();
            under_way < IN_FLIGHT_PER_CONNECTION
                && fullness != Fullness::Full
                && connection.room(fullness, under_way) == Room::All
        };
        self.reader.set_limit(connection.frame_limit());
        self.reader.gather(self.stream, Enough { frames: count, bytes }, may_receive);
    }

    /// Begins the requests of one frame: the first poll answers most, and they need no place
    /// among the futures in flight.
    async fn begin(&mut self, frame: Buf) {
        let mut answering = Answering::of(Rc::clone(self.connection), frame);
        let bytes = answering.state_bytes();
        debug_assert!(bytes <= REQUEST_BYTES, "each request keeps {bytes} bytes of state");
        self.connection.incoming.request_bytes.set(bytes);
        let first = poll_fn(|cx| Poll::Ready(Pin::new(&mut answering).poll(cx))).await;
        if first.is_pending() {
            self.in_flight.push(InTurn(answering));
        }
    }
}

/// The time that a connection has to negotiate, and without a session to authenticate:
/// MS-SMB2 3.3.6.3.
struct LogonTimer {
    /// The time since which the connection has had no session; none while it has one.
    alone_since: Option<Instant>,
    deadline: Instant,
}

impl LogonTimer {
    fn new() -> Self {
        let now = Instant::now();
        Self { alone_since: Some(now), deadline: now + NEGOTIATE_DEADLINE }
    }

    const fn is_running(&self) -> bool {
        self.alone_since.is_some()
    }

    /// Starts or stops the timer. True when the deadline has changed.
    fn look(&mut self, has_session: bool) -> bool {
        if has_session {
            self.alone_since = None;
            return false;
        }
        if self.alone_since.is_some() {
            return false;
        }
        let now = Instant::now();
        self.alone_since = Some(now);
        self.deadline = now + AUTHENTICATE_DEADLINE;
        true
    }

    /// The deadline has come: the end of the connection, or the next deadline.
    fn expire(&mut self, is_negotiated: bool) -> Result<(), End> {
        if !is_negotiated {
            return Err(End::Doomed(Doom::Told("did not negotiate in time")));
        }
        let now = Instant::now();
        self.deadline = self.alone_since.unwrap_or(now) + AUTHENTICATE_DEADLINE;
        if now >= self.deadline {
            return Err(End::Doomed(Doom::Told("did not authenticate in time")));
        }
        Ok(())
    }
}

/// The messages that a connection has not delivered, and other channels may.
struct Undelivered {
    breaks: Vec<Parcel>,
    farewells: Vec<Farewell>,
}

impl Connection {
    /// Brings the connection's buffers into the ledger.
    fn tally(&self, received: usize, in_flight: usize) {
        // Requests that wait for other clients have a charge of their own, so they are not counted
        // here.
        let busy = in_flight.saturating_sub(self.waiting.borrow().len());
        let requests = busy.saturating_mul(self.incoming.request_bytes.get());
        let lined_up = self.incoming.arrivals.memory();
        let frames =
            received.saturating_add(lined_up).saturating_add(self.incoming.served_bytes.get());
        let frames = frames.saturating_add(self.registered_bytes());
        let replies = self.outgoing.replies.memory();
        self.tabs.set(frames.saturating_add(requests), replies);
    }

    /// Returns the requests for which there is memory besides what is under way here. Of a holder that
    /// has much, large ones leave the last quarter to others. Requests that wait for others are charged
    /// already.
    fn room(&self, fullness: Fullness, in_flight: usize) -> Room {
        let busy = in_flight.saturating_sub(self.waiting.borrow().len());
        let is_idle = || self.outgoing.queue().is_empty() && !self.is_elsewhere() && busy == 0;
        match fullness {
            Fullness::Ample => Room::All,
            Fullness::Scarce | Fullness::Dire => match self.tabs.room(is_idle()) {
                Room::Small if !self.incoming.takes_small(in_flight) => Room::None,
                room => room,
            },
            Fullness::Full => match is_idle() {
                true if !self.tabs.is_large() => Room::All,
                true if !self.info.server.ledger.is_overdrawn() => Room::Small,
                _ => Room::None,
            },
        }
    }

    /// Returns the frames for which there is memory. A frame that has begun is received to its end. What
    /// the loop has counted before it waits holds for the first read.
    fn may_receive(&self, held: usize, in_flight: usize, is_inside: bool) -> Allowed {
        if self.incoming.is_held_back() {
            self.rouse();
            // Nothing behind the frame that has begun.
            return if is_inside { Allowed::UpTo(SMALL_FRAME_BYTES) } else { Allowed::Nothing };
        }
        if self.incoming.is_counted.take() {
            return Allowed::All;
        }
        self.tally(held, in_flight);
        let fullness = self.info.server.ledger.relieve();
        let room = self.room(fullness, in_flight);
        if room != Room::All {
            self.rouse();
        }
        match room {
            Room::All => Allowed::All,
            Room::None if !is_inside => Allowed::Nothing,
            Room::Small | Room::None => Allowed::UpTo(SMALL_FRAME_BYTES),
        }
    }

    /// Waits while limits of rate hold so much back that nothing is read, or until the client ends what it sends:
    /// that ends the connection, as if it had been read.
    async fn go_on(&self, stream: &Stream) {
        let mut ended = pin!(stream.ended());
        let has_ended = poll_fn(|cx| {
            if !self.incoming.is_held_back() {
                return Poll::Ready(false);
            }
            self.incoming.held_back.wake_by(cx.waker());
            ended.as_mut().poll(cx).map(|()| true)
        });
        if has_ended.await {
            self.incoming.end_behind(Ok(None));
        }
    }

    /// Does what another core, or a request here, wants of the connection.
    fn heed(&self, notice: Notice, stream: &Stream) {
        match notice {
            Notice::SessionClosed(id) => self.members.remove_channel(id),
            Notice::Farewell(farewell) => self.bid_farewell(farewell, stream),
            Notice::GiveUpWaiting => {
                if self.waiting.borrow().len() > 0 {
                    audited::limit(&self.info.server, self.info.peer, GAVE_UP_WAITING);
                }
                self.waiting.borrow().give_up();
            }
            Notice::Disconnect(why) => self.disconnect(Doom::Limit(why)),
            Notice::ShareLeft => {
                self.tell_all(stream);
                self.disconnect(ANOTHER_SERVES);
            }
            // If the client has logged on since the notice was sent, its connection is not evicted.
            Notice::Evicted if !self.members.is_authenticated() => {
                self.disconnect(Doom::Limit(EVICTED));
            }
            Notice::Evicted => {}
            Notice::EndIfUnused if self.members.channel_count() == 0 => self.disconnect(Doom::Idle),
            Notice::EndIfUnused => {}
            Notice::Break(parcel) => {
                if let Attempt::Failed(parcel) = self.send_break(*parcel, stream) {
                    deliver(&self.info.server, *parcel);
                }
            }
        }
    }

    /// The next notice. Pending for ever once the connection takes no more.
    fn next_notice(&self) -> impl Future<Output = Notice> {
        // `poll_fn` is used because an async fn would store `self` twice.
        poll_fn(|cx| self.notices.poll_next(cx))
    }

    /// The next notice that has come already.
    fn try_next_notice(&self) -> Option<Notice> {
        self.notices.try_next()
    }

    /// The break notifications and the news of ended sessions that this connection has not delivered.
    /// It takes no further notices from here on.
    fn take_undelivered(&self) -> Undelivered {
        self.notices.close();
        let queued = self.outgoing.breaks.take().into_iter().filter_map(|sent| sent.parcel);
        let mut undelivered = Undelivered { breaks: queued.collect(), farewells: Vec::new() };
        while let Some(notice) = self.try_next_notice() {
            match notice {
                Notice::Break(parcel) => undelivered.breaks.push(*parcel),
                Notice::Farewell(farewell) => undelivered.farewells.push(*farewell),
                _ => {}
            }
        }
        undelivered
    }

    /// Gives back what the connection held: its channels, and with the last
    /// channel of a session the session.
    fn wind_up(&self) {
        self.info.leave();
        self.doom.set(Some(self.doom.get().unwrap_or(Doom::Rule("ended"))));
        self.ended.notify_waiters();
        self.attention.forget();
        self.incoming.arrivals.forget_checked();
        let under_way = self.members.authentications.take().sessions();
        let channels = self.members.take_channels();
        let others =
            |id| self.info.server.session(id).is_some_and(|s| s.has_channel_besides(self.info.id));
        self.waiting.borrow().cancel_all(others);
        let Undelivered { breaks, farewells } = self.take_undelivered();
        let mut steps = Steps::default();
        let mut may_close = CLOSED_ON_CORE;
        for channel in channels {
            let unfinished = channel.session.security().is_none();
            let is_last = channel.session.remove_channel(self.info.id);
            if is_last && self.stops.get() {
                self.prepare_farewell(&channel);
            }
            if is_last || (unfinished && under_way.contains(&channel.session.id)) {
                steps.take(|| self.info.server.end_session(&channel.session, &mut may_close));
            }
        }
        farewells.into_iter().for_each(|farewell| Box::new(farewell).deliver());
        // The channels are removed first, so that undelivered breaks are not sent over them again.
        steps.take(|| deliver_all(&self.info.server, breaks));
        steps.end();
    }

    fn log_end(&self, end: &Result<(), End>) {
        let peer = self.info.peer;
        match end {
            Ok(()) => tracing::debug!(target: "frevo::connection", %peer, "closed by the client"),
            Err(End::Receive(ReceiveError::Io(error))) | Err(End::Send(error)) => {
                tracing::debug!(target: "frevo::connection", %peer, %error, "connection lost");
            }
            Err(End::Receive(error)) => self.info.tell(|left_out| {
                tracing::warn!(target: "frevo::connection", %peer, %error, left_out, "disconnected");
            }),
            Err(End::Doomed(why @ Doom::Idle)) => {
                tracing::info!(target: "frevo::connection", %peer, %why, "closed");
            }
            Err(End::Doomed(why @ (Doom::Told(_) | Doom::Late(_)))) => {
                tracing::debug!(target: "frevo::connection", %peer, %why, "disconnected");
            }
            Err(End::Doomed(why)) => self.info.tell(|left_out| {
                tracing::warn!(target: "frevo::connection", %peer, %why, left_out, "disconnected");
            }),
        }
        let reason = match end {
            Err(End::Receive(error)) if !matches!(error, ReceiveError::Io(_)) => error.to_string(),
            Err(End::Doomed(Doom::Limit(why))) => {
                return audited::limit(&self.info.server, peer, why);
            }
            Err(End::Doomed(Doom::Late(_))) => return,
            Err(End::Doomed(why)) => why.to_string(),
            _ => return,
        };
        self.info.server.audit.emit_limited(peer.ip(), || {
            Event::new(audit::Kind::Violation).peer(peer).with("reason", reason)
        });
    }
}
