//! A connection: one stream of bytes in each direction.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use quinn::{RecvStream, SendStream, VarInt};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::access::Decision;
use super::allowance::Allowance;
use super::driver::Driver;
use super::failure::Failure;
use super::settings::bytes;
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
    drivers: Vec<Driver>,
    /// The count of its memory. Its task has it too, and one of both is the last to go.
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
    connection: quinn::Connection,
    send: SendStream,
    receive: RecvStream,
    /// Bytes that were received by waiting for them.
    received: Bytes,
    has_ended: bool,
    /// The task that waited for reading last, which calls that do not wait must not put out.
    reader: Option<Waker>,
    /// The task that waited for writing last.
    writer: Option<Waker>,
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
    pub(super) fn new(
        connection: quinn::Connection,
        streams: (SendStream, RecvStream),
        decision: Option<Decision>,
        windows: Windows,
    ) -> Self {
        let (send, receive) = streams;
        let (received, has_ended) = (Bytes::new(), false);
        let (reader, writer) = (None, None);
        let (written, acks, acknowledged) = (0, 0, 0);
        Self {
            connection,
            send,
            receive,
            received,
            has_ended,
            reader,
            writer,
            decision,
            windows,
            written,
            acks,
            acknowledged,
        }
    }

    /// Returns the bytes that were written and not acknowledged. QUIC does not tell which they are: an
    /// acknowledgment that comes after the last of them counts for all. So it shows that the path and the
    /// peer still live.
    fn unacknowledged(&mut self) -> u64 {
        let acks = self.connection.stats().frame_rx.acks;
        if acks > self.acks {
            self.acknowledged = self.written;
        }
        self.acks = acks;
        self.written - self.acknowledged
    }

    /// Uses windows if `allowance` has their bytes.
    fn resize(&mut self, windows: Windows, allowance: Option<&Arc<dyn Allowance>>) -> bool {
        if !allowance.is_none_or(|allowance| allowance.resize(windows.bytes())) {
            return false;
        }
        if windows.receive > self.windows.receive {
            self.connection.set_receive_window(bytes(windows.receive));
        }
        if windows.send > self.windows.send {
            self.connection.set_send_window(windows.send as u64);
        }
        self.windows = windows;
        true
    }

    /// Waits until there is something to read, or the end.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if !self.received.is_empty() || self.has_ended {
            return Poll::Ready(Ok(()));
        }
        let chunk = pin!(self.receive.read_chunk(RECEIVE_SCRATCH_BYTES, true)).poll(cx);
        match chunk {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(Some(chunk))) => self.received = chunk.bytes,
            Poll::Ready(Ok(None)) => self.has_ended = true,
            Poll::Ready(Err(error)) => {
                let failure = Failure::from(error);
                if !failure.is_end() {
                    return Poll::Ready(Err(failure));
                }
                self.has_ended = true;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads into one slice; 0 if there is nothing now.
    fn read(&mut self, slice: &mut [u8]) -> Result<usize, Failure> {
        if !self.received.is_empty() {
            let count = slice.len().min(self.received.len());
            let (head, _) = slice.split_at_mut(count);
            self.received.copy_to_slice(head);
            return Ok(count);
        }
        let waker = self.reader.clone();
        let cx = &mut Context::from_waker(waker.as_ref().unwrap_or(Waker::noop()));
        match self.receive.poll_read(cx, slice) {
            Poll::Pending => Ok(0),
            Poll::Ready(Ok(count)) => {
                self.has_ended |= count == 0 && !slice.is_empty();
                Ok(count)
            }
            Poll::Ready(Err(error)) => {
                let failure = Failure::from(error);
                self.has_ended |= failure.is_end();
                if failure.is_end() { Ok(0) } else { Err(failure) }
            }
        }
    }

    /// Writes a part of one slice; 0 if nothing is taken now.
    fn write(&mut self, slice: &[u8]) -> Result<usize, Failure> {
        let waker = self.writer.clone();
        let cx = &mut Context::from_waker(waker.as_ref().unwrap_or(Waker::noop()));
        let piece = slice.get(..QUIC_WRITE_BYTES).unwrap_or(slice);
        match Pin::new(&mut self.send).poll_write(cx, piece) {
            Poll::Pending => Ok(0),
            Poll::Ready(written) => {
                let count = written?;
                // Earlier bytes may be acknowledged by now, and these are not.
                self.unacknowledged();
                self.written += count as u64;
                Ok(count)
            }
        }
    }
}

impl Connection {
    pub(super) fn new(
        opening: Opening,
        peer: SocketAddr,
        local: SocketAddr,
        drivers: Vec<Driver>,
    ) -> Self {
        let state = State::Opening { handshake: opening, waiting: None };
        Self { state: Mutex::new(state), peer, local, drivers, allowance: None }
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
            State::Open(open) => open.connection.rtt(),
            State::Opening { .. } | State::Failed(_) => Duration::ZERO,
        }
    }

    /// Returns the bytes that were written and that the peer has not acknowledged, about. An
    /// acknowledgment that comes after a write counts for all of it.
    #[must_use]
    pub fn unacknowledged_bytes(&self) -> usize {
        let bytes = match &mut *self.state.lock() {
            State::Open(open) => open.unacknowledged(),
            State::Opening { .. } | State::Failed(_) => 0,
        };
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Lets the peer have as much under way as a path of its round trip takes, up to `most`, or less where there is no
    /// memory for that. True with all of it.
    pub fn widen_receiving(&self, most: usize) -> bool {
        let State::Open(open) = &mut *self.state.lock() else { return false };
        let wanted = Windows::of_path(open.connection.rtt()).min(QUIC_RECEIVE_WINDOW).min(most);
        if wanted <= open.windows.receive {
            return true;
        }
        let had = open.windows;
        let all = [wanted, wanted.min(QUIC_WINDOW_MIN), wanted.min(QUIC_WINDOW_SCARCE)];
        let mut larger = all.into_iter().filter(|&receive| receive > had.receive);
        let given = larger
            .find(|&receive| open.resize(Windows { receive, ..had }, self.allowance.as_ref()));
        if let (Some(driver), Some(given)) = (self.drivers.last(), given) {
            driver.widen(given);
        }
        given == Some(wanted)
    }

    /// Keeps as many bytes until they are acknowledged as a path of its round trip takes, up to `most`. False
    /// without memory for that, or if it does so already.
    pub fn widen_sending(&self, most: usize) -> bool {
        let State::Open(open) = &mut *self.state.lock() else { return false };
        let wanted = Windows::of_path(open.connection.rtt()).min(QUIC_SEND_WINDOW).min(most);
        let windows = Windows { send: wanted, ..open.windows };
        if wanted <= open.windows.send || !open.resize(windows, self.allowance.as_ref()) {
            return false;
        }
        if let Some(driver) = self.drivers.last() {
            driver.send_together();
        }
        true
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
                Err(failure) => State::Failed(failure),
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
        let wait = |open: &mut Open, cx: &mut Context<'_>| {
            open.reader = Some(cx.waker().clone());
            open.poll_receive(cx)
        };
        poll_fn(|cx| self.poll_state(cx, wait)).await
    }

    /// Waits until bytes can be written.
    ///
    /// # Errors
    /// The connection's failure.
    pub async fn writable(&self) -> io::Result<()> {
        let wait = |open: &mut Open, cx: &mut Context<'_>| {
            open.writer = Some(cx.waker().clone());
            // To write nothing waits for room like to write something.
            Pin::new(&mut open.send).poll_write(cx, &[]).map(|written| match written {
                Ok(_) => Ok(()),
                Err(error) => Err(error.into()),
            })
        };
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
            State::Open(open) => open.has_ended || open.connection.close_reason().is_some(),
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
        let connection = match &*self.state.lock() {
            State::Open(open) => Some(open.connection.clone()),
            State::Opening { .. } | State::Failed(_) => None,
        };
        async move {
            match connection {
                Some(connection) => drop(connection.closed().await),
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
                match open.read(rest) {
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
        let mut state = self.state.lock();
        let open = match &mut *state {
            State::Open(open) => open,
            State::Opening { .. } => return Err(io::ErrorKind::WouldBlock.into()),
            State::Failed(failure) => return Err(failure.to_io()),
        };
        let mut total = 0;
        for slice in slices {
            let mut rest = &slice[..];
            while !rest.is_empty() {
                match open.write(rest) {
                    Ok(0) if total > 0 => return Ok(total),
                    Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
                    Ok(count) => {
                        total += count;
                        rest = rest.split_at(count).1;
                    }
                    Err(_) if total > 0 => return Ok(total),
                    Err(failure) => return Err(failure.to_io()),
                }
            }
        }
        Ok(total)
    }

    /// Ends the writing direction: the peer reads what was written, and then the end.
    pub fn shutdown_write(&self) {
        if let State::Open(open) = &mut *self.state.lock() {
            // The error means that the direction has ended already.
            drop(open.send.finish());
        }
    }

    /// Ends both directions at once, and tells the peer.
    pub fn abort(&self) {
        let mut waiter = None;
        let mut state = self.state.lock();
        match &mut *state {
            State::Open(open) => open.connection.close(CLOSED, &[]),
            State::Opening { waiting, .. } => {
                waiter = waiting.take();
                let why = String::from("the connection was ended");
                *state = State::Failed(Failure::Local(io::ErrorKind::NotConnected, why));
            }
            State::Failed(_) => {}
        }
        drop(state);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
        poll_last(&self.drivers);
    }
}

/// Polls the task of a connection, which comes behind that of its socket.
fn poll_last(drivers: &[Driver]) {
    if let Some(driver) = drivers.last() {
        driver.poll_once();
    }
}

/// The code of a connection that ends in the ordinary way.
const CLOSED: VarInt = VarInt::from_u32(0);

impl Drop for Connection {
    fn drop(&mut self) {
        let nothing = || State::Failed(Failure::Stopped);
        let state = std::mem::replace(&mut *self.state.lock(), nothing());
        let drivers = std::mem::take(&mut self.drivers);
        let State::Open(open) = state else {
            drop(state);
            poll_last(&drivers);
            return;
        };
        let Open { connection, mut send, .. } = *open;
        let is_closed = connection.close_reason().is_some();
        // The error means that the direction has ended already.
        drop(send.finish());
        let allowance = self.allowance.take();
        let farewell = Farewell { connection, drivers, _allowance: allowance };
        if is_closed {
            return;
        }
        // The last bytes have to arrive before the connection ends. A process that ends does not wait for
        // that.
        if let Ok(runtime) = Handle::try_current() {
            // The stop of a core waits for it, within its grace.
            let linger = linger();
            runtime.spawn(async move {
                if timeout(QUIC_FAREWELL, send.stopped()).await.is_err() {
                    // Nothing is kept of what the peer does not take.
                    drop(send.reset(CLOSED));
                }
                drop(farewell);
                drop(linger);
            });
        }
    }
}

/// Tells the peer that the connection has ended, when it is dropped.
struct Farewell {
    connection: quinn::Connection,
    drivers: Vec<Driver>,
    _allowance: Option<Arc<dyn Allowance>>,
}

impl Drop for Farewell {
    fn drop(&mut self) {
        // The last bytes leave before the end.
        poll_last(&self.drivers);
        self.connection.close(CLOSED, &[]);
        poll_last(&self.drivers);
    }
}
