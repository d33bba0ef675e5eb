//! UDP sockets: datagrams are sent and received in trains.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use quinn_proto::Transmit;
use quinn_udp::{EcnCodepoint, RecvMeta, UdpSocketState};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep};

use crate::limits::QUIC_TRAINS_AT_ONCE;

/// A socket of QUIC: one of the system, or one of a simulator.
pub(super) trait Socket: fmt::Debug + Send + Sync {
    /// Sends one datagram, or a train of them.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room. What else the system refuses counts as sent: it is lost.
    fn try_send(&self, transmit: &Transmit, bytes: &[u8]) -> io::Result<()>;

    /// Returns a future that ends when there is room again.
    fn writable(&self) -> Writable;

    /// Receives datagrams, a bounded number of them. Ready if there may be more, Pending if the task is woken
    /// once there are.
    fn poll_receive(&self, cx: &mut Context<'_>, each: &mut dyn FnMut(Received)) -> Poll<()>;

    /// Returns its address.
    ///
    /// # Errors
    /// The system's error.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Returns the datagrams that may be sent as one train.
    fn train(&self) -> usize;

    /// True if the system may send a datagram that is too long for the path in several parts.
    fn may_fragment(&self) -> bool;
}

/// Waits until a socket has room.
pub(super) type Writable = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A datagram that has come.
pub(super) struct Received {
    /// Its sender and its receiver, and the mark of a router.
    pub(super) meta: RecvMeta,
    /// Its content.
    pub(super) bytes: BytesMut,
}

/// A socket of the system.
#[derive(Debug)]
pub(super) struct Udp {
    /// Its runtime hears of datagrams alone: of room it would hear after each datagram that is sent.
    io: AsyncFd<UdpSocket>,
    state: UdpSocketState,
    trains: Mutex<Trains>,
}

/// The time in which a socket without room gets some.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// Calls that receive trains before others of the runtime have their turn.
const RECEIVES_AT_ONCE: usize = 16;

/// The time after which others have their turn: packets that begin a connection cost much.
const RECEIVING: Duration = Duration::from_millis(1);

/// Bytes of the largest train of datagrams.
const TRAIN_BYTES: usize = 64 << 10;

/// Bytes above which a datagram has a room for itself.
const LONG: usize = TRAIN_BYTES / 4 * 3;

/// Rooms of long datagrams that a socket uses again: more bytes than are usually under way over the loopback.
const ROOMS_LENT: usize = 16;

/// Trains that the kernel gives with one call, of one sender each.
struct Trains {
    rooms: [BytesMut; QUIC_TRAINS_AT_ONCE],
    received: [RecvMeta; QUIC_TRAINS_AT_ONCE],
    lent: Lent,
}

/// The rooms of long datagrams, the last ones. Memory that was used a moment ago is in the processor's cache.
#[derive(Default)]
struct Lent(VecDeque<BytesMut>);

impl Lent {
    /// Returns a room, if possible one whose datagram has gone.
    fn next(&mut self) -> BytesMut {
        let is_free = self.0.front_mut().is_some_and(|room| room.try_reclaim(TRAIN_BYTES));
        let mut room = if is_free { self.0.pop_front() } else { None }.unwrap_or_default();
        room.resize(TRAIN_BYTES, 0);
        room
    }

    /// Takes what is left of a room.
    fn keep(&mut self, mut room: BytesMut) {
        room.clear();
        if self.0.len() == ROOMS_LENT {
            self.0.pop_front();
        }
        self.0.push_back(room);
    }
}

impl Udp {
    /// Makes it in the present runtime.
    ///
    /// # Errors
    /// The runtime cannot watch the socket, or it lacks options that QUIC needs.
    pub(super) fn new(socket: UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        // SAFETY: the UdpSocket names one open descriptor until its drop closes it, and the AsyncFd
        // deregisters it before.
        let io = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?;
        Ok(Self { io, state, trains: Mutex::new(Trains::new()) })
    }
}

impl Trains {
    fn new() -> Self {
        let rooms = std::array::from_fn(|_| BytesMut::zeroed(TRAIN_BYTES));
        let received = [RecvMeta::default(); QUIC_TRAINS_AT_ONCE];
        Self { rooms, received, lent: Lent::default() }
    }

    /// Receives trains, and gives each datagram to `each`.
    fn receive(&mut self, socket: &Udp, each: &mut dyn FnMut(Received)) -> io::Result<()> {
        let mut rooms = self.rooms.each_mut().map(|room| IoSliceMut::new(room));
        let io = socket.io.get_ref().into();
        let count = socket.state.recv(io, &mut rooms, &mut self.received)?;
        for (room, meta) in self.rooms.iter_mut().zip(&self.received).take(count) {
            hand_on(room, meta, &mut self.lent, each);
        }
        Ok(())
    }
}

/// Gives each datagram of a train a buffer of its own: in a common one, a datagram that waits for others
/// would keep the whole train in memory. A long one has the room itself.
fn hand_on(room: &mut BytesMut, meta: &RecvMeta, lent: &mut Lent, each: &mut dyn FnMut(Received)) {
    let stride = meta.stride.max(1);
    if meta.len <= stride && meta.len > LONG {
        let bytes = room.split_to(meta.len);
        let next = lent.next();
        lent.keep(std::mem::replace(room, next));
        each(Received { meta: *meta, bytes });
        return;
    }
    for datagram in room.get(..meta.len).unwrap_or_default().chunks(stride) {
        each(Received { meta: *meta, bytes: BytesMut::from(datagram) });
    }
}

impl fmt::Debug for Trains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trains").finish_non_exhaustive()
    }
}

impl Socket for Udp {
    fn try_send(&self, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|mark| EcnCodepoint::from_bits(mark as u8)),
            contents: bytes,
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        self.state.send(self.io.get_ref().into(), &transmit)
    }

    fn writable(&self) -> Writable {
        Box::pin(sleep(FULL_PAUSE))
    }

    fn poll_receive(&self, cx: &mut Context<'_>, each: &mut dyn FnMut(Received)) -> Poll<()> {
        let mut trains = self.trains.lock();
        let began = Instant::now();
        for _ in 0..RECEIVES_AT_ONCE {
            match self.io.poll_read_ready(cx) {
                // Without datagrams the socket is waited for again.
                Poll::Ready(Ok(mut ready)) => drop(ready.try_io(|_| trains.receive(self, each))),
                // The error means that the runtime ends.
                Poll::Ready(Err(_)) | Poll::Pending => return Poll::Pending,
            }
            if began.elapsed() >= RECEIVING {
                break;
            }
        }
        Poll::Ready(())
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.get_ref().local_addr()
    }

    fn train(&self) -> usize {
        self.state.max_gso_segments()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Returns the datagrams of a train, with the memory of each.
    fn datagrams(len: usize, stride: usize) -> Vec<(usize, usize)> {
        let mut room = BytesMut::zeroed(TRAIN_BYTES);
        let meta = RecvMeta { len, stride, ..RecvMeta::default() };
        let mut all = Vec::new();
        hand_on(&mut room, &meta, &mut Lent::default(), &mut |it| {
            all.push((it.bytes.len(), it.bytes.capacity()));
        });
        assert_eq!(room.len(), TRAIN_BYTES, "there is a room for the next");
        all
    }

    #[test]
    fn each_datagram_of_a_train_has_memory_of_its_own() {
        assert_eq!(datagrams(3_000, 1_200), [(1_200, 1_200), (1_200, 1_200), (600, 600)]);
        assert_eq!(datagrams(20_000, 20_000), [(20_000, 20_000)]);
        assert_eq!(datagrams(60_000, 60_000), [(60_000, 60_000)], "the room itself");
        assert_eq!(datagrams(0, 0), []);
    }

    /// The memory of a long datagram serves another one, once it has gone.
    #[test]
    fn rooms_are_used_again() {
        let (mut room, mut lent) = (BytesMut::zeroed(TRAIN_BYTES), Lent::default());
        let meta = RecvMeta { len: 60_000, stride: 60_000, ..RecvMeta::default() };
        let mut few = |count| {
            let mut all = Vec::new();
            for _ in 0..count {
                hand_on(&mut room, &meta, &mut lent, &mut |it| all.push(it.bytes));
            }
            assert!(room.len() == TRAIN_BYTES && lent.0.len() <= ROOMS_LENT);
            all.iter().map(|bytes| bytes.as_ptr() as usize).collect::<HashSet<_>>()
        };
        let first = few(4);
        assert_eq!(first.len(), 4, "each datagram has memory of its own");
        let all: HashSet<_> = (0..5).flat_map(|_| few(4)).chain(first).collect();
        assert_eq!(all.len(), 5, "one more is the room for the next");
        assert_eq!(few(2 * ROOMS_LENT).len(), 2 * ROOMS_LENT);
    }
}
