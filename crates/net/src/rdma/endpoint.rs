//! One connection of SMB Direct, as a stream of frames.
//!
//! To its owner it is a stream like TCP: four bytes before each frame have its length
//! (MS-SMB2 2.1). They never travel: reading makes them of the fragments' lengths, and writing
//! makes fragments of them. Messages are copied. Data of READ and WRITE moves by RDMA between the
//! peer's memory and a buffer, with [`Endpoint::write_to_peer`] and [`Endpoint::read_from_peer`];
//! little data ([`RDMA_STAGED_BYTES`](crate::limits::RDMA_STAGED_BYTES)) is copied, too.
//!
//! A received message stays in its slot until its bytes are read, and only then a further receive
//! is posted for the peer: who does not read gives no credits.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::cm::{Channel, Event, Fate, Request, Stage};
use super::link::{Link, TransferKey};
use super::queue_pair::QueuePair;
use super::quota::{self, Counted, Holder};
use super::state::{End, State};
use super::values::RemoteBuffer;
use super::watch;
use crate::buffer::{Buf, HEADROOM};
use crate::limits::RDMA_FAREWELL;

/// A connection of SMB Direct, bound to the runtime in which it was made.
pub struct Endpoint {
    /// Tells what its device has done. A connection in memory tells by its fate.
    watched: Option<AsyncFd<OwnedFd>>,
    /// Events of a connection that this side has begun; those of others are the listener's.
    own_events: Option<(AsyncFd<OwnedFd>, Arc<Channel>)>,
    pub(super) fate: Arc<Fate>,
    /// Only one core uses it; a lock, because a client's connection is shared.
    state: Mutex<Option<State>>,
    /// The state has changed, perhaps while another task looked.
    pub(super) changed: Notify,
    peer: SocketAddr,
    local: SocketAddr,
}

/// A connection without a runtime.
pub struct Detached(Kind);

#[expect(clippy::large_enum_variant, reason = "it is on its way, and boxed by its owner")]
enum Kind {
    /// A peer has asked for it: nothing is allocated for it yet.
    Asked(Request),
    Connected(State, Option<Arc<Channel>>),
}

impl Detached {
    pub(super) const fn asked(request: Request) -> Self {
        Self(Kind::Asked(request))
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// If it has none, as a connection that never was.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            Kind::Asked(request) => request.id.peer_addr(),
            Kind::Connected(state, _) => state.link.peer_addr(),
        }
    }

    /// Binds the connection to the present runtime. One that was asked for is accepted.
    ///
    /// # Errors
    /// The device has too little of something, or `ulimit -l` is too small.
    pub fn attach(self) -> io::Result<Endpoint> {
        match self.0 {
            Kind::Asked(request) => Endpoint::accept(request),
            Kind::Connected(state, events) => Endpoint::new(state, events),
        }
    }
}

impl fmt::Debug for Detached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Detached").field(&self.peer_addr().ok()).finish()
    }
}

impl Endpoint {
    fn accept(request: Request) -> io::Result<Self> {
        let Request { id, reads_there, private } = request;
        let state = State::passive(QueuePair::Device(Link::new(id)?))?;
        // MS-SMBD 6.2: the smaller limit of both sides applies. SMB Direct clients issue no RDMA
        // reads, so their side offers at most one.
        let asked = private.map_or(u32::from(reads_there), |[ird, _]| ird);
        let reads = state.link.reads_max().min(u8::try_from(asked).unwrap_or(u8::MAX)).max(1);
        let header = private.map(|[_, ord]| [ord.min(1), u32::from(reads)]);
        state.link.accept(reads, header)?;
        Self::new(state, None)
    }

    pub(super) fn new(state: State, events: Option<Arc<Channel>>) -> io::Result<Self> {
        let fate = Arc::clone(state.link.fate());
        let own_events = match events {
            Some(channel) => Some((watch(channel.watched()?)?, channel)),
            None => None,
        };
        Ok(Self {
            watched: state.link.watched()?.map(watch).transpose()?,
            own_events,
            fate,
            peer: state.link.peer_addr()?,
            local: state.link.local_addr()?,
            state: Mutex::new(Some(state)),
            changed: Notify::new(),
        })
    }

    /// Takes the connection out of this runtime.
    ///
    /// # Errors
    /// If the connection is used at this moment.
    pub fn detach(self) -> io::Result<Detached> {
        let state = self.state.lock().take().ok_or(io::ErrorKind::NotConnected)?;
        let events = self.own_events.as_ref().map(|(_, channel)| Arc::clone(channel));
        Ok(Detached(Kind::Connected(state, events)))
    }

    /// Returns the peer's address.
    pub const fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the address of this side.
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Bytes of registered memory, for messages and transfers.
    pub fn held_bytes(&self) -> usize {
        self.look(|state| state.link.registered_bytes()).unwrap_or(0)
    }

    /// Counts all registered memory for `holder` from now on. A new connection has a holder of its
    /// own.
    pub fn belong_to(&self, holder: &Arc<Holder>) {
        self.look(|state| state.link.belong_to(holder));
    }

    /// Number of transfers, and of lent buffers, that hold memory.
    pub fn transfers(&self) -> usize {
        self.look(|state| state.link.transfers()).unwrap_or(0)
    }

    /// Bytes of the longest message that the peer takes; 0 until it has negotiated.
    pub fn message_max(&self) -> u32 {
        self.look(|state| state.machine.parameters().max_fragmented_send_size).unwrap_or(0)
    }

    /// Bytes that one request may move by RDMA.
    pub fn transfer_max(&self) -> u32 {
        self.look(|state| state.machine.parameters().max_read_write_size).unwrap_or(0)
    }

    /// Waits until both sides have negotiated SMB Direct.
    ///
    /// # Errors
    /// The connection has ended before.
    pub async fn established(&self) -> io::Result<()> {
        self.wait(|state| state.machine.is_established().then_some(())).await
    }

    /// Lets the peer have as many credits as it asks for. Until then it has few, because their
    /// memory is pinned.
    pub fn trust(&self) {
        self.look(State::trust);
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&mut State) -> T) -> Option<T> {
        self.state.lock().as_mut().map(look)
    }

    /// Takes what the device has done, and tells other waiting tasks of it.
    pub(super) fn pump(&self) {
        if self.look(|state| state.pump()).unwrap_or(false) {
            self.changed.notify_waiters();
        }
    }

    /// Waits until `ready` has a result; what is known already needs no look at the device.
    ///
    /// # Errors
    /// The connection has ended before.
    pub(super) async fn wait<T>(
        &self,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> io::Result<T> {
        if let Some(found) = self.look(&mut ready).flatten() {
            return Ok(found);
        }
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(found) = self.look_driven(&mut ready) {
                match found {
                    Some(found) => return found,
                    None => changed.await,
                }
                continue;
            }
            let mut fate = std::pin::pin!(self.fate.changed.notified());
            fate.as_mut().enable();
            self.pump();
            let Some((found, end, until, has_more)) =
                self.look(|state| (ready(state), state.end(), state.deadline(), state.has_more()))
            else {
                return Err(io::ErrorKind::NotConnected.into());
            };
            if let Some(found) = found {
                return Ok(found);
            }
            if let Some(end) = end {
                return Err(end.into());
            }
            if has_more {
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                biased;
                told = self.told() => told?,
                noted = self.own_event() => noted?,
                () = changed => {}
                () = fate => {}
                () = sleep_until(until) => {}
            }
        }
    }

    /// Waits until the device tells that it has done something.
    pub(super) async fn told(&self) -> io::Result<()> {
        let Some(watched) = &self.watched else { return std::future::pending().await };
        let mut guard = watched.readable().await?;
        self.look(State::take_event);
        guard.clear_ready();
        Ok(())
    }

    /// Takes the next event of a connection that this side has begun.
    pub(super) async fn own_event(&self) -> io::Result<()> {
        let Some((watched, channel)) = &self.own_events else {
            return std::future::pending().await;
        };
        let mut guard = watched.readable().await?;
        while let Some(event) = channel.next()? {
            debug_assert!(matches!(event, Event::Noted), "nobody listens on this channel");
        }
        guard.clear_ready();
        Ok(())
    }

    /// Waits until bytes or the end can be read.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn readable(&self) -> io::Result<()> {
        self.until(|state| state.has_arrived()).await
    }

    /// Waits until bytes can be written.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn writable(&self) -> io::Result<()> {
        self.until(|state| state.takes_bytes()).await
    }

    /// Waits until the peer or this side has ended the connection, whether or not bytes can be read.
    pub async fn ended(&self) {
        // A failure of the runtime is one of all calls.
        let _ = self.until(|_| false).await;
    }

    /// Waits until `is_ready`, or the end, which the next call then tells.
    async fn until(&self, is_ready: impl Fn(&State) -> bool) -> io::Result<()> {
        self.wait(|state| (is_ready(state) || state.end().is_some()).then_some(())).await
    }

    /// Reads the available bytes into `slices`; `Ok(0)` is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` if there are none, or the connection's failure.
    pub fn try_read_vectored(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if !self.look(|state| state.has_arrived()).unwrap_or(false) {
            self.pump();
        }
        let count = self.look(|state| state.read(slices)).transpose()?.unwrap_or(0);
        if count > 0 {
            self.changed.notify_waiters();
            return Ok(count);
        }
        match self.look(|state| state.end()).flatten() {
            None if self.state.lock().is_some() => Err(io::ErrorKind::WouldBlock.into()),
            None | Some(End::Closed) => Ok(0),
            Some(end) => Err(end.into()),
        }
    }

    /// Writes as many bytes of `slices` as there are credits for.
    ///
    /// # Errors
    /// `WouldBlock` if it takes none, or the connection's failure.
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.look(|state| state.takes_bytes()).unwrap_or(false) {
            self.pump();
        }
        if let Some(end) = self.look(|state| state.end()).flatten() {
            return Err(match end {
                End::Closed => io::ErrorKind::BrokenPipe.into(),
                end => end.into(),
            });
        }
        let written = self.look(|state| state.write(slices));
        match written.ok_or(io::ErrorKind::NotConnected)?? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    /// Writes all of `buf` to the peer's buffers, in their order, MS-SMBD 3.1.4.5. It returns once
    /// that is queued: whatever is sent afterwards arrives behind the data, and the device gets both
    /// at once.
    ///
    /// # Errors
    /// The connection has ended, there was no room in the memory that may be registered, or the
    /// buffers are too short.
    pub async fn write_to_peer(&self, buf: Buf, remote: &[RemoteBuffer]) -> io::Result<()> {
        let len = buf.len();
        let parts = parts(len, remote)?;
        let counted = self.reserve(len).await?;
        let key = self.look(|state| state.link.begin_write(buf, counted));
        let key = key.ok_or(io::ErrorKind::NotConnected)??;
        // `_posting` ends the transfer when it is dropped, also if this future is dropped before
        // its end.
        let _posting = Posting { endpoint: self, key };
        self.post_all(key, &parts).await
    }

    /// Reads `len` bytes from the peer's buffers, in their order, MS-SMBD 3.1.4.6. The result has
    /// [`HEADROOM`] bytes of headroom.
    ///
    /// # Errors
    /// The connection has ended, there was no room in the memory that may be registered, or the
    /// buffers are too short.
    pub async fn read_from_peer(&self, len: usize, remote: &[RemoteBuffer]) -> io::Result<Buf> {
        let parts = parts(len, remote)?;
        let counted = self.reserve(len).await?;
        let buf = Buf::with_headroom(HEADROOM, len);
        let key = self.look(|state| state.link.begin_read(buf, len, counted));
        let key = key.ok_or(io::ErrorKind::NotConnected)??;
        let _posting = Posting { endpoint: self, key };
        self.post_all(key, &parts).await?;
        self.look(|state| state.link.end_posting(key, false));
        let gone = || Poll::Ready(Some(Err(io::ErrorKind::NotConnected.into())));
        let read = poll_fn(|cx| self.look(|state| state.poll_read(key, cx)).unwrap_or_else(gone));
        match read.await {
            Some(read) => read,
            None => self.wait(|state| state.link.finish(key)).await,
        }
    }

    /// Takes room for a transfer of `bytes`, and waits for it while there is none.
    ///
    /// # Errors
    /// The connection has ended, or there was no room for a long time.
    async fn reserve(&self, bytes: usize) -> io::Result<Counted> {
        self.room(bytes, |state| state.link.reserve(bytes)).await
    }

    /// Waits until `take` has found room for about `bytes`.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub(super) async fn room<T>(
        &self,
        bytes: usize,
        mut take: impl FnMut(&mut State) -> Option<T>,
    ) -> io::Result<T> {
        if let Some(taken) = self.look(&mut take).flatten() {
            return Ok(taken);
        }
        // The future of the wait is boxed, because most requests find room at once and need no
        // memory for its state.
        Box::pin(async {
            let bound = self.look(|state| state.link.bound()).ok_or(io::ErrorKind::NotConnected)?;
            let room = quota::wait(&bound, bytes, || self.look(&mut take).flatten());
            tokio::select! {
                biased;
                room = room => room,
                end = self.wait(|_| None::<T>) => end,
            }
        })
        .await
    }

    async fn post_all(&self, key: TransferKey, parts: &[(usize, RemoteBuffer)]) -> io::Result<()> {
        for (offset, part) in parts {
            self.wait(|state| (state.link.room_for_transfers() > 0).then_some(())).await?;
            let posted = self.look(|state| state.link.post_transfer(key, *offset, *part));
            posted.ok_or(io::ErrorKind::NotConnected)??;
        }
        Ok(())
    }

    /// Ends the connection at once, and tells the peer, whoever keeps the endpoint.
    pub fn abort(&self) {
        // Before the connection is established rdma_disconnect(3) returns success but sends
        // nothing. Destroying the identifier notifies the peer at every stage.
        let is_early = self.fate.stage() < Stage::Established;
        self.look(State::abort);
        let early = self.state.lock().take_if(|state| is_early && state.link.may_block());
        if let Some(mut state) = early {
            state.driven.let_go();
            part(state);
        }
        self.changed.notify_waiters();
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let left = self.state.lock().take();
        left.into_iter().for_each(part);
    }
}

/// Ends what is left of a connection: that waits for the device, and for the last messages to leave.
fn part(state: State) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) if state.link.may_block() => {
            runtime.spawn_blocking(move || state.link.close(RDMA_FAREWELL));
        }
        _ => drop(state),
    }
}

/// A transfer whose memory is freed once its requests are done.
struct Posting<'a> {
    endpoint: &'a Endpoint,
    key: TransferKey,
}

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        // A transfer that has finished is not in the list any more, so forgetting it does nothing.
        self.endpoint.look(|state| {
            state.driven.forget(self.key);
            state.link.end_posting(self.key, true);
        });
    }
}

/// The parts of `len` bytes that go to each of the peer's buffers, with their offsets.
fn parts(len: usize, remote: &[RemoteBuffer]) -> io::Result<Vec<(usize, RemoteBuffer)>> {
    let mut parts = Vec::with_capacity(remote.len());
    let mut offset = 0;
    for buffer in remote {
        let length = u32::try_from(len - offset).unwrap_or(u32::MAX).min(buffer.length);
        if length > 0 {
            parts.push((offset, RemoteBuffer { length, ..*buffer }));
            offset += length as usize;
        }
    }
    if offset < len {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_spread_over_the_buffers_in_order() {
        let buffer = |address, length| RemoteBuffer { address, key: 7, length };
        let all = [buffer(1000, 10), buffer(5000, 0), buffer(2000, 20)];
        let spread = |len| {
            let parts = parts(len, &all).ok()?;
            Some(parts.iter().map(|(at, p)| (*at, p.address, p.length)).collect::<Vec<_>>())
        };
        assert_eq!(spread(0), Some(vec![]));
        assert_eq!(spread(9), Some(vec![(0, 1000, 9)]));
        assert_eq!(spread(10), Some(vec![(0, 1000, 10)]));
        assert_eq!(spread(11), Some(vec![(0, 1000, 10), (10, 2000, 1)]));
        assert_eq!(spread(30), Some(vec![(0, 1000, 10), (10, 2000, 20)]));
        assert_eq!(spread(31), None);
    }
}
