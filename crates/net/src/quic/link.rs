//! A connection of quinn-proto: its task, which moves its packets, and its one stream.
//!
//! Its end may outlive the task: a connection that ends with its process, or with its core, has none any
//! more. So its owner sends the last packets itself.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use quinn_proto::{
    Chunks, ConnectionError, ConnectionHandle, Dir, Event, ReadError, SendStream, StreamEvent,
    StreamId, Transmit, VarInt, WriteError,
};
use tokio::sync::Notify;
use tokio::time::Sleep;

use super::allowance::Allowance;
use super::endpoint::{Shared, now};
use super::failure::Failure;
use super::inbox::Inbox;
use super::socket::Writable;
use crate::limits::{QUIC_DATAGRAMS_AT_ONCE, QUIC_SENT_AT_ONCE, QUIC_TRAIN_BYTES};

/// A connection, to which its task and its owner have access.
pub(super) struct Link {
    state: Mutex<State>,
    inbox: Arc<Inbox>,
    handle: ConnectionHandle,
    end: Arc<Shared>,
    /// Notified of its end.
    closed: Notify,
}

struct State {
    protocol: quinn_proto::Connection,
    /// The stream, once there is one.
    stream: Option<StreamId>,
    is_connected: bool,
    /// The end of the connection. None while it lives.
    lost: Option<ConnectionError>,
    waiting: Waiting,
    /// Packets for which the socket had no room.
    unsent: Option<Box<Unsent>>,
    /// Kept because the connection has its memory until it is dropped.
    allowance: Option<Arc<dyn Allowance>>,
}

/// The tasks that wait, one for each event.
#[derive(Default)]
struct Waiting {
    /// For the handshake, and for the stream.
    opening: Option<Waker>,
    reading: Option<Waker>,
    writing: Option<Waker>,
    /// For the peer to have all that was written.
    finishing: Option<Waker>,
}

impl Waiting {
    fn wake_all(&mut self) {
        let Self { opening, reading, writing, finishing } = self;
        [opening, reading, writing, finishing].into_iter().for_each(wake);
    }
}

fn wake(waiting: &mut Option<Waker>) {
    if let Some(waker) = waiting.take() {
        waker.wake();
    }
}

struct Unsent {
    transmit: Transmit,
    bytes: Vec<u8>,
    /// Ends when there is room.
    writable: Writable,
}

/// The time after which a task looks at its connection that has nothing to wait for.
const REST: Duration = Duration::from_secs(3_600);

thread_local! {
    /// The packets that are sent next: all connections of a core have one buffer.
    static PACKETS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The timer of a task. It rings early rather than being set for each packet.
struct Timer<'a> {
    sleep: Pin<&'a mut Sleep>,
    rings: Option<Instant>,
}

impl Link {
    /// Begins the task of a connection in the present runtime.
    pub(super) fn begin(
        protocol: quinn_proto::Connection,
        handle: ConnectionHandle,
        inbox: Arc<Inbox>,
        end: Arc<Shared>,
    ) -> Arc<Self> {
        let state = State {
            protocol,
            stream: None,
            is_connected: false,
            lost: None,
            waiting: Waiting::default(),
            unsent: None,
            allowance: None,
        };
        let (state, closed) = (Mutex::new(state), Notify::new());
        let link = Arc::new(Self { state, inbox, handle, end, closed });
        let task = Arc::clone(&link).run();
        // With tokio's budget a poll could end in the middle, though timers and sockets have more.
        tokio::spawn(tokio::task::coop::unconstrained(task));
        link
    }

    async fn run(self: Arc<Self>) {
        let sleep = pin!(tokio::time::sleep(REST));
        let mut timer = Timer { sleep, rings: None };
        poll_fn(|cx| self.poll(cx, &mut timer)).await;
    }

    fn poll(&self, cx: &mut Context<'_>, timer: &mut Timer<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        let events = self.inbox.take(cx.waker());
        let mut goes_on = events.len() >= QUIC_DATAGRAMS_AT_ONCE;
        for (event, _) in events {
            state.protocol.handle_event(event);
        }
        goes_on |= self.transmit(&mut state, Some(cx));
        goes_on |= timer.drive(&mut state.protocol, cx);
        goes_on |= self.tell(&mut state);
        if state.protocol.is_drained() {
            return Poll::Ready(());
        }
        if goes_on {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Sends what there is to send. True if there may be more, after the turns of others. Without a task what
    /// finds no room is lost.
    fn transmit(&self, state: &mut State, mut task: Option<&mut Context<'_>>) -> bool {
        let now = now();
        let mut packets = PACKETS.try_with(RefCell::take).unwrap_or_default();
        let mut sent = 0;
        let goes_on = loop {
            if !self.transmit_unsent(state, task.as_deref_mut()) {
                break false;
            }
            if sent >= QUIC_SENT_AT_ONCE {
                break true;
            }
            packets.clear();
            let datagram = usize::from(state.protocol.current_mtu()).max(1);
            let train = (QUIC_TRAIN_BYTES / datagram).clamp(1, self.end.socket().train().max(1));
            let Some(transmit) = state.protocol.poll_transmit(now, train, &mut packets) else {
                break false;
            };
            sent += transmit.size;
            let bytes = packets.get(..transmit.size).unwrap_or_default();
            if self.end.socket().try_send(&transmit, bytes).is_err() && task.is_some() {
                let writable = self.end.socket().writable();
                state.unsent = Some(Box::new(Unsent { transmit, bytes: bytes.to_vec(), writable }));
            }
        };
        // The error means that the thread ends.
        let _ = PACKETS.try_with(|kept| kept.replace(packets));
        goes_on
    }

    /// Sends packets for which there was no room. False if there is none yet.
    fn transmit_unsent(&self, state: &mut State, task: Option<&mut Context<'_>>) -> bool {
        let Some(unsent) = &mut state.unsent else { return true };
        let socket = self.end.socket();
        if let Some(cx) = task {
            loop {
                if unsent.writable.as_mut().poll(cx).is_pending() {
                    return false;
                }
                if socket.try_send(&unsent.transmit, &unsent.bytes).is_ok() {
                    break;
                }
                unsent.writable = socket.writable();
            }
        } else {
            drop(socket.try_send(&unsent.transmit, &unsent.bytes));
        }
        state.unsent = None;
        true
    }

    /// Tells the end of the socket and the owner what has happened. True if there is something to send then.
    fn tell(&self, state: &mut State) -> bool {
        let mut has_more = false;
        while let Some(event) = state.protocol.poll_endpoint_events() {
            if let Some(event) = self.end.tell(self.handle, event) {
                state.protocol.handle_event(event);
                has_more = true;
            }
        }
        while let Some(event) = state.protocol.poll() {
            match event {
                Event::Connected => {
                    state.is_connected = true;
                    wake(&mut state.waiting.opening);
                }
                Event::ConnectionLost { reason } => self.lose(state, reason),
                Event::Stream(StreamEvent::Opened { .. } | StreamEvent::Available { .. }) => {
                    wake(&mut state.waiting.opening);
                }
                Event::Stream(StreamEvent::Readable { .. }) => wake(&mut state.waiting.reading),
                Event::Stream(StreamEvent::Writable { .. }) => wake(&mut state.waiting.writing),
                Event::Stream(StreamEvent::Finished { .. } | StreamEvent::Stopped { .. }) => {
                    wake(&mut state.waiting.finishing);
                    wake(&mut state.waiting.writing);
                }
                _ => {}
            }
        }
        has_more
    }

    fn lose(&self, state: &mut State, reason: ConnectionError) {
        if state.lost.is_none() {
            state.lost = Some(reason);
        }
        state.waiting.wake_all();
        self.closed.notify_waiters();
    }

    /// Sends what there is on this thread, whether or not the runtime of its task still exists.
    pub(super) fn transmit_last(&self) {
        let Some(mut state) = self.state.try_lock() else { return };
        for (event, _) in self.inbox.take_aside() {
            state.protocol.handle_event(event);
        }
        self.transmit(&mut state, None);
        self.tell(&mut state);
        drop(state);
        self.inbox.wake();
    }

    /// Counts the memory of the connection in `allowance` until it is dropped.
    pub(super) fn keep(&self, allowance: Option<Arc<dyn Allowance>>) {
        self.state.lock().allowance = allowance;
    }

    /// Waits until the handshake is over.
    pub(super) async fn connected(&self) -> Result<(), Failure> {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.is_connected {
                return Poll::Ready(Ok(()));
            }
            state.poll_opening(cx)
        })
        .await
    }

    /// Waits for the stream: a client opens it, and a server accepts it.
    pub(super) async fn stream(&self) -> Result<(), Failure> {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            let is_client = state.protocol.side().is_client();
            let mut streams = state.protocol.streams();
            let stream = if is_client { streams.open(Dir::Bi) } else { streams.accept(Dir::Bi) };
            if stream.is_none() {
                return state.poll_opening(cx);
            }
            state.stream = stream;
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// Takes bytes that were received, by `take`, which returns None at the end of the stream. `waiting` is
    /// woken once there are some.
    fn receive<T>(
        &self,
        waiting: Option<&Waker>,
        take: impl FnOnce(&mut Chunks<'_>) -> Result<Option<T>, ReadError>,
    ) -> Poll<Result<Option<T>, Failure>> {
        let mut state = self.state.lock();
        let State { protocol, stream, lost, waiting: tasks, .. } = &mut *state;
        let Some(stream) = *stream else { return Poll::Ready(Err(Failure::Stopped)) };
        let mut stream = protocol.recv_stream(stream);
        // The error means that the end was read before.
        let Ok(mut chunks) = stream.read(true) else { return Poll::Ready(Ok(None)) };
        let taken = take(&mut chunks);
        if chunks.finalize().should_transmit() {
            self.inbox.wake();
        }
        match (taken, lost) {
            (Ok(taken), _) => Poll::Ready(Ok(taken)),
            (Err(ReadError::Reset(_)), _) => Poll::Ready(Err(Failure::Stopped)),
            (Err(ReadError::Blocked), Some(lost)) => Poll::Ready(Err(lost.clone().into())),
            (Err(ReadError::Blocked), None) => {
                if let Some(waker) = waiting {
                    tasks.reading = Some(waker.clone());
                }
                Poll::Pending
            }
        }
    }

    /// Returns the next bytes, `most` of them. None at the end of the stream.
    pub(super) fn poll_chunk(
        &self,
        cx: &mut Context<'_>,
        most: usize,
    ) -> Poll<Result<Option<Bytes>, Failure>> {
        let take = |chunks: &mut Chunks<'_>| Ok(chunks.next(most)?.map(|chunk| chunk.bytes));
        self.receive(Some(cx.waker()), take)
    }

    /// Reads the bytes that are there into `slice`, and returns their count: Pending without any, None at the
    /// end of the stream.
    pub(super) fn read(&self, slice: &mut [u8]) -> Poll<Result<Option<usize>, Failure>> {
        self.receive(None, |chunks| {
            let mut filled = 0;
            while let Some(rest) = slice.get_mut(filled..).filter(|rest| !rest.is_empty()) {
                match chunks.next(rest.len()) {
                    Ok(Some(chunk)) => {
                        rest.split_at_mut(chunk.bytes.len()).0.copy_from_slice(&chunk.bytes);
                        filled += chunk.bytes.len();
                    }
                    Ok(None) if filled == 0 => return Ok(None),
                    Err(error) if filled == 0 => return Err(error),
                    Ok(None) | Err(_) => break,
                }
            }
            Ok(Some(filled))
        })
    }

    /// Waits until bytes can be written.
    pub(super) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        // To write nothing waits for room like to write something.
        self.send(Some(cx.waker()), |stream| stream.write(&[])).map_ok(|_| ())
    }

    /// Writes the beginning of `slice`, and returns its length. Pending if nothing is taken now.
    pub(super) fn write(&self, slice: &[u8]) -> Poll<Result<usize, Failure>> {
        self.send(None, |stream| stream.write(slice))
    }

    /// Writes the beginning of `chunks`, which are kept until the peer has them, and returns its length. Pending
    /// if nothing is taken now.
    pub(super) fn write_chunks(&self, chunks: &mut [Bytes]) -> Poll<Result<usize, Failure>> {
        self.send(None, |stream| Ok(stream.write_chunks(chunks)?.bytes))
    }

    /// Writes by `write`. Pending if nothing is taken now; `waiting` is woken once something is.
    fn send(
        &self,
        waiting: Option<&Waker>,
        write: impl FnOnce(&mut SendStream<'_>) -> Result<usize, WriteError>,
    ) -> Poll<Result<usize, Failure>> {
        let mut state = self.state.lock();
        let State { protocol, stream, lost, waiting: tasks, .. } = &mut *state;
        if let Some(lost) = lost {
            return Poll::Ready(Err(lost.clone().into()));
        }
        let Some(stream) = *stream else { return Poll::Ready(Err(Failure::Stopped)) };
        match write(&mut protocol.send_stream(stream)) {
            Ok(count) => {
                if count > 0 {
                    self.inbox.wake();
                }
                Poll::Ready(Ok(count))
            }
            Err(WriteError::Blocked) => {
                if let Some(waker) = waiting {
                    tasks.writing = Some(waker.clone());
                }
                // The peer is told that more is to come.
                self.inbox.wake();
                Poll::Pending
            }
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => {
                Poll::Ready(Err(Failure::Stopped))
            }
        }
    }

    /// Ends the writing direction.
    pub(super) fn finish(&self) {
        let mut state = self.state.lock();
        if let Some(stream) = state.stream {
            // The error means that the direction has ended already.
            drop(state.protocol.send_stream(stream).finish());
        }
        drop(state);
        self.inbox.wake();
    }

    /// Waits until the peer has all that was written, or wants no more of it.
    pub(super) async fn finished(&self) {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            let Some(stream) = state.stream else { return Poll::Ready(()) };
            let is_open = matches!(state.protocol.send_stream(stream).stopped(), Ok(None));
            if !is_open || state.lost.is_some() {
                return Poll::Ready(());
            }
            state.waiting.finishing = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Drops what the peer does not take.
    pub(super) fn reset(&self, code: VarInt) {
        let mut state = self.state.lock();
        if let Some(stream) = state.stream {
            drop(state.protocol.send_stream(stream).reset(code));
        }
        drop(state);
        self.inbox.wake();
    }

    /// Ends the connection. The peer is told with the next packet.
    pub(super) fn close(&self, code: VarInt) {
        let mut state = self.state.lock();
        state.protocol.close(now(), code, Bytes::new());
        self.lose(&mut state, ConnectionError::LocallyClosed);
        drop(state);
        self.inbox.wake();
    }

    /// True once the connection has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().lost.is_some()
    }

    /// Waits until the connection has ended.
    pub(super) async fn closed(&self) {
        let closed = self.closed.notified();
        if !self.is_closed() {
            closed.await;
        }
    }

    /// Returns the estimated time of a round trip.
    pub(super) fn round_trip(&self) -> Duration {
        self.state.lock().protocol.rtt()
    }

    /// Returns the bytes of the longest datagram that is known to arrive.
    pub(super) fn datagram_bytes(&self) -> usize {
        self.state.lock().protocol.current_mtu().into()
    }

    /// Returns the number of acknowledgments that have come.
    pub(super) fn acks(&self) -> u64 {
        self.state.lock().protocol.stats().frame_rx.acks
    }

    /// Lets the peer have so much under way.
    pub(super) fn set_receive_window(&self, bytes: usize) {
        self.state.lock().protocol.set_receive_window(super::settings::bytes(bytes));
        self.inbox.wake();
    }

    /// Lets so many bytes wait for the task as fit to a receive window.
    pub(super) fn widen_inbox(&self, window: usize) {
        self.inbox.widen(window);
    }

    /// Keeps so many bytes that were sent.
    pub(super) fn set_send_window(&self, bytes: usize) {
        self.state.lock().protocol.set_send_window(bytes as u64);
        self.inbox.wake();
    }
}

impl State {
    /// Waits for the next step of the opening, or fails.
    fn poll_opening(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if let Some(lost) = &self.lost {
            return Poll::Ready(Err(lost.clone().into()));
        }
        self.waiting.opening = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Timer<'_> {
    /// Handles the time that a connection waits for, and sets the timer. True if there may be something to send.
    fn drive(&mut self, protocol: &mut quinn_proto::Connection, cx: &mut Context<'_>) -> bool {
        let Some(at) = protocol.poll_timeout() else { return false };
        let now = now();
        if now >= at {
            protocol.handle_timeout(now);
            return true;
        }
        if self.rings.is_none_or(|rings| rings > at) {
            self.sleep.as_mut().reset(at.into());
            self.rings = Some(at);
        }
        if self.sleep.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.rings = None;
        true
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if !self.state.get_mut().protocol.is_drained() {
            let drained = quinn_proto::EndpointEvent::drained();
            self.end.tell(self.handle, drained);
        }
    }
}
