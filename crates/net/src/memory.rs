//! Connections in memory, in place of TCP, for tests and the simulator.
//!
//! Two [`MemoryStream`]s are the ends of a pair of bounded byte pipes. Like sockets they have short
//! reads and writes, would-block, half-close and reset. They may live on different threads.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    capacity: usize,
    /// True keeps the memory of the bytes when they have been read.
    keeps_memory: bool,
    finished: bool,
    reset: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn wake_reader(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }

    /// All bytes have been read. Their memory is freed, because the connection may now be idle for long.
    fn end_burst(&mut self) {
        if self.keeps_memory {
            // The next bytes are put at the beginning again, which is in the processor's cache.
            self.bytes.clear();
        } else {
            self.bytes = VecDeque::new();
        }
    }

    fn wake_writer(&mut self) {
        if let Some(waker) = self.writer.take() {
            waker.wake();
        }
    }
}

type Direction = Arc<Mutex<Pipe>>;

/// One end of a connection in memory. One task may wait for reading and one for writing at a time.
pub struct MemoryStream {
    incoming: Direction,
    outgoing: Direction,
    local: SocketAddr,
    peer: SocketAddr,
    is_secure: bool,
}

/// Makes a connected pair; each direction holds at most `capacity` bytes. `addresses` are those of
/// the first and the second end.
#[must_use]
pub fn pair(capacity: usize, addresses: [SocketAddr; 2]) -> (MemoryStream, MemoryStream) {
    let pipe = || Arc::new(Mutex::new(Pipe { capacity: capacity.max(1), ..Pipe::default() }));
    let (there, back) = (pipe(), pipe());
    let [first, second] = addresses;
    let end = |incoming: &Direction, outgoing: &Direction, local, peer| MemoryStream {
        incoming: Arc::clone(incoming),
        outgoing: Arc::clone(outgoing),
        local,
        peer,
        is_secure: false,
    };
    (end(&back, &there, first, second), end(&there, &back, second, first))
}

impl MemoryStream {
    /// Returns this end as one of a transport that encrypts by itself. Both ends have to be of the
    /// same kind.
    #[must_use]
    pub const fn secure_by_itself(mut self) -> Self {
        self.is_secure = true;
        self
    }

    /// True if this end stands for a transport that encrypts by itself.
    #[must_use]
    pub const fn is_secure_by_itself(&self) -> bool {
        self.is_secure
    }

    /// Keeps the memory of both directions while nothing is in them: for a connection that moves much, and is
    /// one of few.
    pub fn keep_memory(&self) {
        for direction in [&self.incoming, &self.outgoing] {
            direction.lock().keeps_memory = true;
        }
    }

    /// Returns this end's address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns the other end's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the number of bytes that can be read now.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.incoming.lock().bytes.len()
    }

    /// Returns the number of bytes written here that the peer has not read yet.
    #[must_use]
    pub fn unread_by_peer(&self) -> usize {
        self.outgoing.lock().bytes.len()
    }

    /// True once the other end has ended its direction.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let pipe = self.incoming.lock();
        pipe.finished || pipe.reset
    }

    /// Waits until [`Self::has_ended`] is true.
    pub async fn ended(&self) {
        poll_fn(|cx| {
            let mut pipe = self.incoming.lock();
            if pipe.finished || pipe.reset {
                return Poll::Ready(());
            }
            pipe.reader = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Waits until [`Self::try_read_vectored`] would not block.
    ///
    /// # Errors
    /// None: the read returns failures.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_readable(cx)).await;
        Ok(())
    }

    fn poll_readable(&self, cx: &Context<'_>) -> Poll<()> {
        let mut pipe = self.incoming.lock();
        if !pipe.bytes.is_empty() || pipe.finished || pipe.reset {
            return Poll::Ready(());
        }
        pipe.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Waits until [`Self::try_write_vectored`] would not block.
    ///
    /// # Errors
    /// None: the write returns failures.
    pub async fn writable(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_writable(cx)).await;
        Ok(())
    }

    fn poll_writable(&self, cx: &Context<'_>) -> Poll<()> {
        let mut pipe = self.outgoing.lock();
        if pipe.bytes.len() < pipe.capacity || pipe.finished || pipe.reset {
            return Poll::Ready(());
        }
        pipe.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Reads the available bytes; `Ok(0)` is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock`, and `ConnectionReset` after either end's [`Self::reset`].
    pub fn try_read_vectored(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut pipe = self.incoming.lock();
        if pipe.reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if pipe.bytes.is_empty() {
            return if pipe.finished { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let mut total = 0;
        for slice in slices {
            // The bytes of a VecDeque may lie in two slices, and one read takes bytes from one
            // slice only.
            let mut filled = 0;
            while filled < slice.len() && !pipe.bytes.is_empty() {
                filled += pipe.bytes.read(&mut slice[filled..])?;
            }
            total += filled;
        }
        if pipe.bytes.is_empty() {
            pipe.end_burst();
        }
        pipe.wake_writer();
        Ok(total)
    }

    /// Writes as much as there is room for.
    ///
    /// # Errors
    /// `WouldBlock`, `BrokenPipe` if the peer is gone or this end has shut down, `ConnectionReset`
    /// after either end's [`Self::reset`].
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut pipe = self.outgoing.lock();
        if pipe.reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if pipe.finished {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut room = pipe.capacity - pipe.bytes.len();
        let mut total = 0;
        for slice in slices {
            let count = slice.len().min(room);
            pipe.bytes.extend(&slice[..count]);
            room -= count;
            total += count;
        }
        if total == 0 && slices.iter().any(|s| !s.is_empty()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        pipe.wake_reader();
        Ok(total)
    }

    /// Ends the writing direction: the peer reads the remaining bytes and then the end.
    pub fn shutdown_write(&self) {
        let mut pipe = self.outgoing.lock();
        pipe.finished = true;
        pipe.wake_reader();
        pipe.wake_writer();
    }

    /// Breaks both directions at once, like a TCP reset: unread bytes are lost.
    pub fn reset(&self) {
        for direction in [&self.incoming, &self.outgoing] {
            let mut pipe = direction.lock();
            pipe.reset = true;
            pipe.bytes = VecDeque::new();
            pipe.wake_reader();
            pipe.wake_writer();
        }
    }
}

impl Drop for MemoryStream {
    fn drop(&mut self) {
        self.shutdown_write();
        let mut pipe = self.incoming.lock();
        // The reader is gone, so the peer's writes fail from here on.
        pipe.finished = true;
        pipe.wake_writer();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_what_was_read_is_kept_if_that_is_asked_for() {
        for is_kept in [false, true] {
            let addresses = ["127.0.0.1:1", "127.0.0.1:2"].map(|end| end.parse().unwrap());
            let (near, far) = pair(4_096, addresses);
            if is_kept {
                near.keep_memory();
            }
            for round in 0..5_u8 {
                far.try_write_vectored(&[IoSlice::new(&[round; 3_000])]).unwrap();
                let mut bytes = [0; 4_096];
                let count = near.try_read_vectored(&mut [IoSliceMut::new(&mut bytes)]).unwrap();
                assert_eq!(bytes[..count], [round; 3_000]);
                assert_eq!(near.incoming.lock().bytes.capacity() > 0, is_kept);
            }
        }
    }
}
