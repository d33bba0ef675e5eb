//! A connection: one stream of bytes in each direction.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use quinn_proto::VarInt;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::access::Decision;
use super::allowance::Allowance;
use super::failure::Failure;
use super::link::Link;
use super::windows::Windows;
use crate::limits::{
    QUIC_FAREWELL, QUIC_RECEIVE_WINDOW, QUIC_SEND_WINDOW, QUIC_WINDOW_MIN, QUIC_WINDOW_SCARCE,
    QUIC_WRITE_BYTES, RECEIVE_SCRATCH_BYTES,
};
use crate::lingering::linger;

/// A connection of SMB over QUIC. One task may wait for reading and one for writing at a time.
pub struct Connection {
    state: Mutex<State>,
    peer: SocketAddr,
    local: SocketAddr,
    link: Arc<Link>,
    /// The count of its memory. Its link has it too, and one of both is the last to go.
    allowance: Option<Arc<dyn Allowance>>,
}

/// A handshake, after which there is a stream.
pub(super) type Opening = Pin<Box<dyn Future<Output = Result<Open, Failure>> + Send>>;

enum State {
    Opening {
        handshake: Opening,
        /// The task that waits for it.
        waiting: Option<Waker>,
    },
    Open(Box<Open>),
    Failed(Failure),
}

/// The stream of a connection.
pub(super) struct Open {
    /// Bytes that were received by waiting for them.
    received: Bytes,
    has_ended: bool,
    decision: Option<Decision>,
    windows: Windows,
    /// Bytes that were written.
    written: u64,
    /// The acknowledgments that had come when bytes were written last.
    acks: u64,
    /// The bytes of `written` that the peer has acknowledged, as far as it is known.
    acknowledged: u64,
}

impl Open {
    pub(super) fn new(decision: Option<Decision>, windows: Windows) -> Self {
        let (received, has_ended) = (Bytes::new(), false);
        let (written, acks, acknowledged) = (0, 0, 0);
        Self { received, has_ended, decision, windows, written, acks, acknowledged }
    }

    /// Returns the bytes that were written and not acknowledged. QUIC does not tell which they are: an
    /// acknowledgment that comes after the last of them counts for all. So it shows that the path and the
    /// peer still live.
    fn unacknowledged(&mut self, link: &Link) -> u64 {
        let acks = link.acks();
        if acks > self.acks {
            self.acknowledged = self.written;
        }
        self.acks = acks;
        self.written - self.acknowledged
    }

    /// Uses windows if `allowance` has their bytes.
    fn resize(
        &mut self,
        windows: Windows,
        link: &Link,
        allowance: Option<&Arc<dyn Allowance>>,
    ) -> bool {
        if !allowance.is_none_or(|allowance| allowance.resize(windows.bytes())) {
            return false;
        }
        if windows.receive > self.windows.receive {
            link.set_receive_window(windows.receive);
        }
        if windows.send > self.windows.send {
            link.set_send_window(windows.send);
        }
        self.windows = windows;
        true
    }

    /// Waits until there is something to read, or the end.
    fn poll_receive(&mut self, link: &Link, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if !self.received.is_empty() || self.has_ended {
            return Poll::Ready(Ok(()));
        }
        match link.poll_chunk(cx, RECEIVE_SCRATCH_BYTES) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(Some(bytes))) => self.received = bytes,
            Poll::Ready(Ok(None)) => self.has_ended = true,
            Poll::Ready(Err(failure)) => {
                if !failure.is_end() {
                    return Poll::Ready(Err(failure));
                }
                self.has_ended = true;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads into one slice; 0 if there is nothing now.
    fn read(&mut self, link: &Link, slice: &mut [u8]) -> Result<usize, Failure> {
        if !self.received.is_empty() {
            let count = slice.len().min(self.received.len());
            let (head, _) = slice.split_at_mut(count);
            self.received.copy_to_slice(head);
            return Ok(count);
        }
        match link.read(slice) {
            Poll::Pending => Ok(0),
            Poll::Ready(Ok(count)) => {
                self.has_ended |= count.is_none();
                Ok(count.unwrap_or(0))
            }
            Poll::Ready(Err(failure)) => {
                self.has_ended |= failure.is_end();
                if failure.is_end() { Ok(0) } else { Err(failure) }
            }
        }
    }

    /// Counts bytes that were written; 0 if nothing was taken.
    fn write(
        &mut self,
        link: &Link,
        written: Poll<Result<usize, Failure>>,
    ) -> Result<usize, Failure> {
        let Poll::Ready(written) = written else { return Ok(0) };
        let count = written?;
        // Earlier bytes may be acknowledged by now, and these are not.
        self.unacknowledged(link);
        self.written += count as u64;
        Ok(count)
    }
}

impl Connection {
    pub(super) fn new(
        opening: Opening,
        peer: SocketAddr,
        local: SocketAddr,
        link: Arc<Link>,
    ) -> Self {
        let state = State::Opening { handshake: opening, waiting: None };
        Self { state: Mutex::new(state), peer, local, link, allowance: None }
    }

    /// Counts its memory in `allowance`.
    pub(super) fn counted_in(mut self, allowance: Option<Arc<dyn Allowance>>) -> Self {
        self.allowance = allowance;
        self
    }

    /// Returns the peer's address.
    #[must_use]
    pub const fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the address of this end.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the decision on the client's certificate. None for a client without one, and before
    /// the handshake is over.
    #[must_use]
    pub fn decision(&self) -> Option<Decision> {
        match &*self.state.lock() {
            State::Open(open) => open.decision.clone(),
            State::Opening { .. } | State::Failed(_) => None,
        }
    }

    /// Returns the estimated time of a round trip; zero before the handshake is over.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        match &*self.state.lock() {
            State::Open(_) => self.link.round_trip(),
            State::Opening { .. } | State::Failed(_) => Duration::ZERO,
        }
    }

    /// Returns the bytes of the longest datagram that is known to arrive.
    #[must_use]
    pub fn datagram_bytes(&self) -> usize {
        self.link.datagram_bytes()
    }

    /// Returns the bytes that were written and that the peer has not acknowledged, about. An
    /// acknowledgment that comes after a write counts for all of it.
    #[must_use]
    pub fn unacknowledged_bytes(&self) -> usize {
        let bytes = match &mut *self.state.lock() {
            State::Open(open) => open.unacknowledged(&self.link),
            State::Opening { .. } | State::Failed(_) => 0,
        };
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Lets the peer have as much under way as a path of its round trip takes, up to `most`, or less where there is no
    /// memory for that. True with all of it.
    pub fn widen_receiving(&self, most: usize) -> bool {
        let State::Open(open) = &mut *self.state.lock() else { return false };
        let wanted = Windows::of_path(self.link.round_trip()).min(QUIC_RECEIVE_WINDOW).min(most);
        if wanted <= open.windows.receive {
            return true;
        }
        let had = open.windows;
        let all = [wanted, wanted.min(QUIC_WINDOW_MIN), wanted.min(QUIC_WINDOW_SCARCE)];
        let mut larger = all.into_iter().filter(|&receive| receive > had.receive);
        let given = larger.find(|&receive| {
            open.resize(Windows { receive, ..had }, &self.link, self.allowance.as_ref())
        });
        if let Some(given) = given {
            self.link.widen_inbox(given);
        }
        given == Some(wanted)
    }

    /// Keeps as many bytes until they are acknowledged as a path of its round trip takes, up to `most`. False
    /// without memory for that, or if it does so already.
    pub fn widen_sending(&self, most: usize) -> bool {
        let State::Open(open) = &mut *self.state.lock() else { return false };
        let wanted = Windows::of_path(self.link.round_trip()).min(QUIC_SEND_WINDOW).min(most);
        let windows = Windows { send: wanted, ..open.windows };
        wanted > open.windows.send && open.resize(windows, &self.link, self.allowance.as_ref())
    }

    /// Returns the count of its memory.
    #[must_use]
    pub fn allowance(&self) -> Option<Arc<dyn Allowance>> {
        self.allowance.clone()
    }

    /// Polls the handshake, and then the stream.
    fn poll_state(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Open, &mut Context<'_>) -> Poll<Result<(), Failure>>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.state.lock();
        if let State::Opening { handshake, waiting } = &mut *state {
            let Poll::Ready(opened) = handshake.as_mut().poll(cx) else {
                *waiting = Some(cx.waker().clone());
                return Poll::Pending;
            };
            *state = match opened {
                Ok(open) => State::Open(Box::new(open)),
                Err(failure) => {
                    self.link.close(CLOSED);
                    State::Failed(failure)
                }
            };
        }
        match &mut *state {
            State::Open(open) => poll(open, cx).map_err(|failure| failure.to_io()),
            State::Failed(failure) => Poll::Ready(Err(failure.to_io())),
            State::Opening { .. } => Poll::Pending,
        }
    }

    /// Waits until bytes or the end can be read.
    ///
    /// # Errors
    /// The connection's failure.
    pub async fn readable(&self) -> io::Result<()> {
        let wait = |open: &mut Open, cx: &mut Context<'_>| open.poll_receive(&self.link, cx);
        poll_fn(|cx| self.poll_state(cx, wait)).await
    }

    /// Waits until bytes can be written.
    ///
    /// # Errors
    /// The connection's failure.
    pub async fn writable(&self) -> io::Result<()> {
        let wait = |_: &mut Open, cx: &mut Context<'_>| self.link.poll_writable(cx);
        poll_fn(|cx| self.poll_state(cx, wait)).await
    }

    /// Waits until the handshake is over.
    ///
    /// # Errors
    /// The handshake's failure.
    pub(super) async fn opened(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_state(cx, |_, _| Poll::Ready(Ok(())))).await
    }

    /// True once the peer has ended the connection, or its stream where that is known.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        match &*self.state.lock() {
            State::Opening { .. } => false,
            State::Open(open) => open.has_ended || self.link.is_closed(),
            State::Failed(_) => true,
        }
    }

    /// Waits until the whole connection has ended; the end of the peer's stream alone is told by reading.
    /// For ever before the handshake is over: reading tells its failure.
    pub async fn ended(&self) {
        self.end().await;
    }

    /// Returns a future that ends when [`Self::ended`] does, and does not need this connection.
    pub fn end(&self) -> impl Future<Output = ()> + Send + use<> {
        let link = match &*self.state.lock() {
            State::Open(_) => Some(Arc::clone(&self.link)),
            State::Opening { .. } | State::Failed(_) => None,
        };
        async move {
            match link {
                Some(link) => link.closed().await,
                None => std::future::pending().await,
            }
        }
    }

    /// Reads the available bytes into `slices`; `Ok(0)` is the end.
    ///
    /// # Errors
    /// `WouldBlock` if there are none, or the connection's failure.
    pub fn try_read_vectored(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut state = self.state.lock();
        let open = match &mut *state {
            State::Open(open) => open,
            State::Opening { .. } => return Err(io::ErrorKind::WouldBlock.into()),
            State::Failed(failure) => return Err(failure.to_io()),
        };
        let mut total = 0;
        for slice in slices {
            let mut rest = &mut **slice;
            while !rest.is_empty() {
                match open.read(&self.link, rest) {
                    Ok(0) if total > 0 || open.has_ended => return Ok(total),
                    Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
                    Ok(count) => {
                        total += count;
                        rest = rest.split_at_mut(count).1;
                    }
                    Err(_) if total > 0 => return Ok(total),
                    Err(failure) => return Err(failure.to_io()),
                }
            }
        }
        Ok(total)
    }

    /// Writes as many bytes of `slices` as there is room for.
    ///
    /// # Errors
    /// `WouldBlock` if there is none, or the connection's failure.
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut total = 0;
        // Each piece is copied. The system would have to give the memory of long ones anew each time.
        for piece in slices.iter().flat_map(|slice| slice.chunks(QUIC_WRITE_BYTES)) {
            let count = match self.write_by(|| self.link.write(piece)) {
                Ok(count) => count,
                Err(_) if total > 0 => break,
                Err(error) => return Err(error),
            };
            total += count;
            if count < piece.len() {
                break;
            }
        }
        Ok(total)
    }

    /// Writes the beginning of `chunks`, as many bytes as there is room for. They are kept until the peer has
    /// them, and what follows is left in `chunks`.
    ///
    /// # Errors
    /// Like [`Self::try_write_vectored`].
    pub fn try_write_chunks(&self, chunks: &mut [Bytes]) -> io::Result<usize> {
        self.write_by(|| self.link.write_chunks(chunks))
    }

    fn write_by(&self, write: impl FnOnce() -> Poll<Result<usize, Failure>>) -> io::Result<usize> {
        match &mut *self.state.lock() {
            State::Open(open) => match open.write(&self.link, write()) {
                Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
                Ok(count) => Ok(count),
                Err(failure) => Err(failure.to_io()),
            },
            State::Opening { .. } => Err(io::ErrorKind::WouldBlock.into()),
            State::Failed(failure) => Err(failure.to_io()),
        }
    }

    /// Ends the writing direction: the peer reads what was written, and then the end.
    pub fn shutdown_write(&self) {
        if let State::Open(_) = &*self.state.lock() {
            self.link.finish();
        }
    }

    /// Ends both directions at once, and tells the peer.
    pub fn abort(&self) {
        let mut waiter = None;
        let mut state = self.state.lock();
        if let State::Opening { waiting, .. } = &mut *state {
            waiter = waiting.take();
            let why = String::from("the connection was ended");
            *state = State::Failed(Failure::Local(io::ErrorKind::NotConnected, why));
        }
        drop(state);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
        self.link.close(CLOSED);
        self.link.transmit_last();
    }
}

/// The code of a connection that ends in the ordinary way.
const CLOSED: VarInt = VarInt::from_u32(0);

impl Drop for Connection {
    fn drop(&mut self) {
        let was_open = matches!(self.state.get_mut(), State::Open(_));
        let allowance = self.allowance.take();
        let farewell = Farewell { link: Arc::clone(&self.link), _allowance: allowance };
        if !was_open || self.link.is_closed() {
            return;
        }
        self.link.finish();
        // The last bytes have to arrive before the connection ends. A process that ends does not wait for
        // that.
        if let Ok(runtime) = Handle::try_current() {
            // The stop of a core waits for it, within its grace.
            let linger = linger();
            runtime.spawn(async move {
                if timeout(QUIC_FAREWELL, farewell.link.finished()).await.is_err() {
                    // Nothing is kept of what the peer does not take.
                    farewell.link.reset(CLOSED);
                }
                drop(farewell);
                drop(linger);
            });
        }
    }
}

/// Tells the peer that the connection has ended, when it is dropped.
struct Farewell {
    link: Arc<Link>,
    _allowance: Option<Arc<dyn Allowance>>,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        // The last bytes leave before the end.
        self.link.transmit_last();
        self.link.close(CLOSED);
        self.link.transmit_last();
    }
}
