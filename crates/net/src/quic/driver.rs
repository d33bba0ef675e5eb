//! The tasks that move the packets of a connection, so kept that its end can poll them once more.
//!
//! A connection that ends with its process, or with its core, has no task any more that would tell
//! the peer. So its owner polls the task itself: the last packets leave at once.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use parking_lot::Mutex;
use quinn::udp::{RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncTimer, AsyncUdpSocket, UdpPoller};
use tokio::io::Interest;
use tokio::runtime::Handle;
use tokio::time::Sleep;

use super::allowance::Allowance;
use super::queue::{Membership, Queues, Waking};
use crate::limits::{QUIC_DATAGRAM_BYTES, QUIC_TRAINS_AT_ONCE};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

thread_local! {
    /// The tasks that [`caught`] collects.
    static CAUGHT: RefCell<Option<Vec<Driver>>> = const { RefCell::new(None) };
    /// True while a task is polled for the last time, perhaps without a runtime.
    static IS_LAST: Cell<bool> = const { Cell::new(false) };
    /// True while a task is polled that sends datagrams one by one.
    static IS_NARROW: Cell<bool> = const { Cell::new(false) };
}

/// Runs the tasks of QUIC on the runtime of the thread that makes them.
#[derive(Debug, Default)]
pub(super) struct Drivers {
    /// The queues of the connections of a listener.
    pub(super) queues: Option<Arc<Queues>>,
}

/// A task that moves packets.
#[derive(Clone)]
pub(super) struct Driver(Arc<Driven>);

struct Driven {
    work: Mutex<Work>,
    /// The waker of the task's runtime.
    waking: Arc<Waking>,
}

/// A task, with what goes when the task has ended.
#[derive(Default)]
struct Work {
    /// None once it has ended.
    task: Option<Task>,
    place: Option<Membership>,
    /// True until the client takes large answers: quinn keeps a buffer for all datagrams that are sent together.
    is_narrow: bool,
    /// Kept because the connection has its memory until then.
    allowance: Option<Arc<dyn Allowance>>,
}

impl Work {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self { task, place, is_narrow, .. } = self;
        let Some(running) = task else { return Poll::Ready(()) };
        let before = place.as_ref().map(Membership::before);
        IS_NARROW.set(*is_narrow);
        let polled = running.as_mut().poll(cx);
        IS_NARROW.set(false);
        if polled.is_ready() {
            *self = Self::default();
            return Poll::Ready(());
        }
        if let (Some(place), Some(before)) = (place, before) {
            place.after(&before);
        }
        Poll::Pending
    }
}

/// Calls `make`, and returns the tasks that it began as well.
pub(super) fn caught<T>(make: impl FnOnce() -> T) -> (T, Vec<Driver>) {
    /// Restores what an outer call collects, also after a panic.
    struct Outer(Option<Vec<Driver>>);

    impl Drop for Outer {
        fn drop(&mut self) {
            CAUGHT.set(self.0.take());
        }
    }

    let outer = Outer(CAUGHT.replace(Some(Vec::new())));
    let made = make();
    let caught = CAUGHT.take().unwrap_or_default();
    drop(outer);
    (made, caught)
}

/// Says that the task of this thread is polled for the last time, while it lives.
struct Last(bool);

impl Last {
    fn begun() -> Self {
        Self(IS_LAST.replace(true))
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        IS_LAST.set(self.0);
    }
}

impl Driver {
    async fn run(self) {
        let Driven { work, waking } = &*self.0;
        poll_fn(|cx| {
            waking.set(cx.waker());
            work.lock().poll(cx)
        })
        .await;
    }

    /// Counts the datagrams of the connection and its memory until the task has ended.
    pub(super) fn keep(
        &self,
        queues: &Arc<Queues>,
        peer: SocketAddr,
        allowance: Option<Arc<dyn Allowance>>,
    ) {
        let mut work = self.0.work.lock();
        if work.task.is_some() {
            work.place = Some(queues.enter(peer, Arc::clone(&self.0.waking)));
            (work.allowance, work.is_narrow) = (allowance, true);
        }
    }

    /// Lets as many bytes wait for the task as fit to a receive window.
    pub(super) fn widen(&self, window: usize) {
        if let Some(place) = &self.0.work.lock().place {
            place.widen(window);
        }
    }

    /// Sends datagrams together from now on.
    pub(super) fn send_together(&self) {
        self.0.work.lock().is_narrow = false;
    }

    /// Polls the task once on this thread, whether or not its runtime still exists.
    pub(super) fn poll_once(&self) {
        let Some(mut work) = self.0.work.try_lock() else { return };
        let last = Last::begun();
        let polled = work.poll(&mut Context::from_waker(Waker::noop()));
        drop((last, work));
        // The poll above has registered no waker, so the task has to be polled by its runtime again.
        if polled.is_pending() {
            self.0.waking.wake();
        }
    }
}

impl quinn::Runtime for Drivers {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        let is_within = Handle::try_current().is_ok();
        Box::pin(Timer(is_within.then(|| Box::pin(tokio::time::sleep_until(at.into())))))
    }

    fn spawn(&self, task: Task) {
        let work = Mutex::new(Work { task: Some(task), ..Work::default() });
        let driver = Driver(Arc::new(Driven { work, waking: Arc::default() }));
        CAUGHT.with_borrow_mut(|caught| caught.iter_mut().for_each(|it| it.push(driver.clone())));
        // With tokio's budget a poll ends after 128 datagrams, and others would wait that count as taken out. What may
        // wait bounds a poll as well.
        tokio::spawn(tokio::task::coop::unconstrained(driver.run()));
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let state = UdpSocketState::new((&socket).into())?;
        let io = tokio::net::UdpSocket::from_std(socket)?;
        let (trains, queues) = (Mutex::new(Trains::new()), self.queues.clone());
        Ok(Arc::new(Socket { io, state, trains, queues }))
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

/// A timer that rests while its task is polled for the last time.
#[derive(Debug)]
struct Timer(Option<Pin<Box<Sleep>>>);

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, at: Instant) {
        if let Some(sleep) = &mut self.0 {
            sleep.as_mut().reset(at.into());
        }
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Some(sleep) if !IS_LAST.get() => Future::poll(sleep.as_mut(), cx),
            _ => Poll::Pending,
        }
    }
}

/// A UDP socket that sends without its runtime when a task is polled for the last time.
#[derive(Debug)]
struct Socket {
    io: tokio::net::UdpSocket,
    state: UdpSocketState,
    trains: Mutex<Trains>,
    queues: Option<Arc<Queues>>,
}

/// Calls that receive trains, of which nothing is handed on, before others of the runtime have their turn.
const RECEIVES_AT_ONCE: usize = 32;

/// Bytes of the largest train of datagrams.
const TRAIN_BYTES: usize = 64 << 10;

/// Datagrams that the kernel has given together, in trains of one sender each.
///
/// Each is handed on in a buffer of its own: in a common one, a datagram that waits for others would keep
/// the whole train in memory.
struct Trains {
    bytes: Box<[u8]>,
    received: [RecvMeta; QUIC_TRAINS_AT_ONCE],
    count: usize,
    /// The number of the train that comes next.
    next: usize,
    /// Bytes of it that were handed on.
    handed: usize,
}

impl Trains {
    fn new() -> Self {
        let bytes = vec![0; TRAIN_BYTES * QUIC_TRAINS_AT_ONCE].into_boxed_slice();
        let received = [RecvMeta::default(); QUIC_TRAINS_AT_ONCE];
        Self { bytes, received, count: 0, next: 0, handed: 0 }
    }

    fn receive(&mut self, socket: &Socket) -> io::Result<()> {
        let mut rooms = self.bytes.chunks_exact_mut(TRAIN_BYTES);
        let mut rooms: [IoSliceMut<'_>; QUIC_TRAINS_AT_ONCE] =
            std::array::from_fn(|_| IoSliceMut::new(rooms.next().unwrap_or_default()));
        self.count = socket.state.recv((&socket.io).into(), &mut rooms, &mut self.received)?;
        (self.next, self.handed) = (0, 0);
        Ok(())
    }

    /// Puts one datagram into each buffer, and returns how many there were. Trains for which `queues` have
    /// no room are lost.
    fn hand_on(
        &mut self,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
        queues: Option<&Queues>,
    ) -> usize {
        let mut count = 0;
        while let (Some(buffer), Some(meta)) = (buffers.get_mut(count), metas.get_mut(count)) {
            let Some(train) = self.received.get(..self.count).and_then(|all| all.get(self.next))
            else {
                break;
            };
            let datagrams = train.len.div_ceil(train.stride.max(1));
            let bytes = train.len + datagrams * QUIC_DATAGRAM_BYTES;
            if self.handed == 0 && queues.is_some_and(|it| !it.admits(train.addr, bytes)) {
                self.next += 1;
                continue;
            }
            let len = train.stride.max(1).min(train.len - self.handed);
            let start = self.next * TRAIN_BYTES + self.handed;
            self.handed += len;
            let datagram = self.bytes.get(start..start + len);
            // One that is larger than all that this end has announced is dropped.
            if let (Some(room), Some(datagram)) = (buffer.get_mut(..len), datagram)
                && len > 0
            {
                room.copy_from_slice(datagram);
                *meta = *train;
                (meta.len, meta.stride) = (len, len);
                count += 1;
            }
            if self.handed >= train.len {
                (self.next, self.handed) = (self.next + 1, 0);
            }
        }
        count
    }
}

impl fmt::Debug for Trains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trains").field("count", &self.count).finish_non_exhaustive()
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(Poller { socket: self, waiting: None })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let send = || self.state.send((&self.io).into(), transmit);
        if IS_LAST.get() { lossy(send()) } else { self.io.try_io(Interest::WRITABLE, send) }
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        received: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut trains = self.trains.lock();
        for _ in 0..RECEIVES_AT_ONCE {
            let count = trains.hand_on(buffers, received, self.queues.as_deref());
            if count > 0 {
                return Poll::Ready(Ok(count));
            }
            match self.io.poll_recv_ready(cx) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => return Poll::Pending,
            }
            // Without datagrams the socket is waited for again.
            drop(self.io.try_io(Interest::READABLE, || trains.receive(self)));
        }
        // All of them were dropped. Others of this runtime have their turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        if IS_NARROW.get() { 1 } else { self.state.max_gso_segments() }
    }

    fn max_receive_segments(&self) -> usize {
        1
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

/// Takes a packet for which a socket has no room for a lost one: a task that is polled for the last time
/// cannot wait for room, and would try without end.
fn lossy(sent: io::Result<()>) -> io::Result<()> {
    match sent {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        sent => sent,
    }
}

type Writable = Pin<Box<dyn Future<Output = io::Result<()>> + Send + Sync>>;

/// Waits until a socket takes datagrams.
struct Poller {
    socket: Arc<Socket>,
    waiting: Option<Writable>,
}

impl UdpPoller for Poller {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if IS_LAST.get() {
            return Poll::Ready(Ok(()));
        }
        let Self { socket, waiting } = &mut *self;
        let writable = waiting.get_or_insert_with(|| {
            let socket = Arc::clone(socket);
            Box::pin(async move { socket.io.writable().await })
        });
        let polled = writable.as_mut().poll(cx);
        if polled.is_ready() {
            *waiting = None;
        }
        polled
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Poller").finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::QUIC_QUEUED_BYTES_NEW;

    /// A task that is polled for the last time sends to a full socket once, not for ever.
    #[test]
    fn a_last_packet_is_lost_at_a_full_socket() {
        assert!(lossy(Err(io::ErrorKind::WouldBlock.into())).is_ok());
        assert!(lossy(Err(io::ErrorKind::PermissionDenied.into())).is_err());
    }

    /// Many small datagrams take more memory than their bytes.
    #[test]
    fn small_datagrams_count_with_their_memory() {
        const STRIDE: usize = 25;
        const LEN: usize = 40 * STRIDE;
        let queues = Arc::new(Queues::default());
        let addr = SocketAddr::from(([192, 0, 2, 1], 4_000));
        let _member = queues.enter(addr, Arc::default());
        let mut trains = Trains::new();
        let mut is_taken = || {
            trains.received[0] = RecvMeta { addr, len: LEN, stride: STRIDE, ..RecvMeta::default() };
            (trains.count, trains.next, trains.handed) = (1, 0, 0);
            let mut room = [0; STRIDE];
            let (buffers, metas) = (&mut [IoSliceMut::new(&mut room)], &mut [RecvMeta::default()]);
            trains.hand_on(buffers, metas, Some(&queues)) == 1
        };
        let taken = (0..1_000).filter(|_| is_taken()).count();
        assert_eq!(taken, QUIC_QUEUED_BYTES_NEW / (LEN + 40 * QUIC_DATAGRAM_BYTES));
    }

    #[test]
    fn a_panic_leaves_no_last_poll_behind() {
        let panicking = || {
            let _last = Last::begun();
            let (_, _) = caught(|| panic!("on purpose, in a test"));
        };
        assert!(std::panic::catch_unwind(panicking).is_err());
        assert!(!IS_LAST.get());
        assert!(CAUGHT.with_borrow(Option::is_none));
    }
}
