//! A byte stream to a peer over any transport, its listeners and its dialers.
//!
//! [`Transport`] is a value with facts, by which code above treats a connection.
//!
//! The calls take `&self`, as a socket's do: one task of a core may read while another writes,
//! without locks or halves.

use std::future::Future;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::memory::MemoryStream;
use crate::quic;
use crate::rdma::Endpoint;

mod dialer;
mod facts;
mod listener;
mod network;

pub use dialer::Dialer;
pub use facts::{Facts, InterfaceKind, Transport};
pub use listener::{Listener, Listening};
pub use network::{Connecting, Door, MemoryListener, Network};

/// A connected stream, bound to the runtime in which it was made.
pub enum Stream {
    /// A TCP connection.
    Tcp(TcpStream),
    /// One end of an in-memory pair, see [`crate::memory::pair`].
    Memory(MemoryStream),
    /// A connection of SMB Direct.
    Rdma(Arc<Endpoint>),
    /// A connection of QUIC.
    Quic(Box<quic::Connection>),
}

/// A stream that no runtime watches, on its way to another core.
pub enum Detached {
    /// A TCP connection, non-blocking.
    Tcp(std::net::TcpStream),
    /// One end of an in-memory pair.
    Memory(MemoryStream),
    /// A connection of SMB Direct, perhaps one that was not accepted yet.
    Rdma(Box<crate::rdma::Detached>),
    /// A connection of QUIC that was not accepted yet.
    Quic(Box<quic::Detached>),
}

impl Stream {
    /// Connects to `address` over TCP and sets `TCP_NODELAY`.
    ///
    /// # Errors
    /// The system's error.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// If the socket is no longer connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr(),
            Self::Memory(stream) => Ok(stream.peer_addr()),
            Self::Rdma(endpoint) => Ok(endpoint.peer_addr()),
            Self::Quic(connection) => Ok(connection.peer_addr()),
        }
    }

    /// Returns the address of this end.
    ///
    /// # Errors
    /// If the system cannot tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr(),
            Self::Memory(stream) => Ok(stream.local_addr()),
            Self::Rdma(endpoint) => Ok(endpoint.local_addr()),
            Self::Quic(connection) => Ok(connection.local_addr()),
        }
    }

    /// Sets whether small writes leave at once. A stream in memory always sends at once.
    ///
    /// # Errors
    /// If the socket refuses.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nodelay(nodelay),
            Self::Memory(_) | Self::Rdma(_) | Self::Quic(_) => Ok(()),
        }
    }

    /// Returns the socket; None for a transport without descriptors.
    #[must_use]
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(stream) => Some(stream.as_fd()),
            Self::Memory(_) | Self::Rdma(_) | Self::Quic(_) => None,
        }
    }

    /// Returns the transport of the connection.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        match self {
            Self::Tcp(_) => Transport::Tcp,
            Self::Memory(stream) => memory_transport(stream),
            Self::Rdma(_) => Transport::Rdma,
            Self::Quic(_) => Transport::Quic,
        }
    }

    /// Returns the connection of QUIC.
    #[must_use]
    pub fn quic(&self) -> Option<&quic::Connection> {
        match self {
            Self::Quic(connection) => Some(connection),
            _ => None,
        }
    }

    /// Returns the endpoint of an RDMA connection.
    #[must_use]
    pub const fn rdma(&self) -> Option<&Arc<Endpoint>> {
        match self {
            Self::Rdma(endpoint) => Some(endpoint),
            _ => None,
        }
    }

    /// Gives the device of an RDMA connection what was posted; true if there was something. Other
    /// streams keep nothing back.
    #[must_use]
    pub fn ring(&self) -> bool {
        match self {
            Self::Rdma(endpoint) => endpoint.ring(),
            Self::Tcp(_) | Self::Memory(_) | Self::Quic(_) => false,
        }
    }

    /// Waits until bytes or the end can be read.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Memory(stream) => stream.readable().await,
            // The future is boxed, because connections over TCP need no memory for its state.
            Self::Rdma(endpoint) => Box::pin(endpoint.readable()).await,
            Self::Quic(connection) => Box::pin(connection.readable()).await,
        }
    }

    /// True once the peer has ended its direction or the connection is lost, also while bytes from
    /// before the end are unread. An RDMA connection does not tell it without a wait, and one of QUIC tells
    /// the end of its stream behind unread bytes.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        match self {
            Self::Tcp(stream) => {
                let known = pin!(stream.ready(Interest::READABLE));
                let known = known.poll(&mut Context::from_waker(Waker::noop()));
                matches!(known, Poll::Ready(Ok(ready)) if ready.is_read_closed())
            }
            Self::Memory(stream) => stream.has_ended(),
            Self::Rdma(_) => false,
            Self::Quic(connection) => connection.has_ended(),
        }
    }

    /// Waits until the peer has ended its direction or the connection is lost, whether or not bytes can be read.
    pub async fn ended(&self) {
        match self {
            // Of this interest, the runtime tells urgent data, which it does not ask the system for, and
            // the end. A failure of the runtime is one of all calls.
            Self::Tcp(stream) => drop(stream.ready(Interest::PRIORITY).await),
            Self::Memory(stream) => stream.ended().await,
            Self::Rdma(endpoint) => Box::pin(endpoint.ended()).await,
            Self::Quic(connection) => Box::pin(connection.ended()).await,
        }
    }

    /// Waits until bytes can be written.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
            Self::Memory(stream) => stream.writable().await,
            Self::Rdma(endpoint) => Box::pin(endpoint.writable()).await,
            Self::Quic(connection) => Box::pin(connection.writable()).await,
        }
    }

    /// Reads the available bytes into `slices`; `Ok(0)` is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` if there are none, or the connection's failure.
    pub fn try_read_vectored(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let stream = match self {
            Self::Tcp(stream) => stream,
            Self::Memory(stream) => return stream.try_read_vectored(slices),
            Self::Rdma(endpoint) => return endpoint.try_read_vectored(slices),
            Self::Quic(connection) => return connection.try_read_vectored(slices),
        };
        let room: usize = slices.iter().map(|slice| slice.len()).sum();
        until_drained(stream, Interest::READABLE, room, || Ok(rustix::io::readv(stream, slices)?))
    }

    /// Reads like [`Self::try_read_vectored`], but asks the kernel also where the runtime has not
    /// heard of new bytes yet.
    ///
    /// # Errors
    /// Like [`Self::try_read_vectored`].
    pub fn try_read_anew(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => Ok(rustix::io::readv(stream, slices)?),
            other => other.try_read_vectored(slices),
        }
    }

    /// Writes as many bytes of `slices` as the stream takes. With `more`, the kernel may hold back
    /// a last packet that is not full, because more bytes follow at once.
    ///
    /// # Errors
    /// `WouldBlock` if it takes none, or the connection's failure.
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let stream = match self {
            Self::Tcp(stream) => stream,
            Self::Memory(stream) => return stream.try_write_vectored(slices),
            Self::Rdma(endpoint) => return endpoint.try_write_vectored(slices),
            Self::Quic(connection) => return connection.try_write_vectored(slices),
        };
        // writev(2) is used because a filter of system calls cannot check the address of
        // sendmsg(2). A broken connection is an error and no signal, because the Rust runtime
        // ignores SIGPIPE.
        let offered: usize = slices.iter().map(|slice| slice.len()).sum();
        until_drained(stream, Interest::WRITABLE, offered, || match slices {
            // The single slice is a header, and data from a file follows it: MORE makes the kernel
            // send both together.
            [slice] if more => {
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT | SendFlags::MORE;
                Ok(rustix::net::send(stream, slice, flags)?)
            }
            slices => Ok(rustix::io::writev(stream, slices)?),
        })
    }

    /// True if it keeps what it sends until the peer has it, and takes whole buffers therefore.
    #[must_use]
    pub const fn keeps_chunks(&self) -> bool {
        matches!(self, Self::Quic(_))
    }

    /// Writes the beginning of `chunks`, as many bytes as the stream takes. What follows is left in `chunks`.
    ///
    /// # Errors
    /// Like [`Self::try_write_vectored`].
    pub fn try_write_chunks(&self, chunks: &mut [bytes::Bytes]) -> io::Result<usize> {
        if let Self::Quic(connection) = self {
            return connection.try_write_chunks(chunks);
        }
        let slices: Vec<_> = chunks.iter().map(|chunk| IoSlice::new(chunk)).collect();
        self.try_write_vectored(&slices, false)
    }

    /// Runs a non-blocking call that writes to the socket and remembers its would-block, so that
    /// [`Self::writable`] waits afterwards.
    ///
    /// # Errors
    /// The call's error; `Unsupported` on a stream in memory.
    pub(crate) fn try_write_with<T>(
        &self,
        call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        match self {
            Self::Tcp(stream) => stream.try_io(Interest::WRITABLE, || call(stream.as_fd())),
            Self::Memory(_) | Self::Rdma(_) | Self::Quic(_) => {
                Err(io::ErrorKind::Unsupported.into())
            }
        }
    }

    /// Ends the writing direction.
    ///
    /// # Errors
    /// If the connection is gone already.
    pub fn shutdown_write(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => Ok(rustix::net::shutdown(stream, rustix::net::Shutdown::Write)?),
            Self::Memory(stream) => {
                stream.shutdown_write();
                Ok(())
            }
            // RDMA closes both directions together, after the last messages, because one direction
            // alone cannot be closed.
            Self::Rdma(_) => Ok(()),
            Self::Quic(connection) => {
                connection.shutdown_write();
                Ok(())
            }
        }
    }

    /// Ends both directions at once and wakes waiting tasks.
    pub fn abort(&self) {
        match self {
            // A shutdown fails only if the connection has ended already, so its error is dropped.
            Self::Tcp(stream) => drop(rustix::net::shutdown(stream, rustix::net::Shutdown::Both)),
            Self::Memory(stream) => stream.reset(),
            Self::Rdma(endpoint) => endpoint.abort(),
            Self::Quic(connection) => connection.abort(),
        }
    }

    /// Takes the stream out of this core's runtime, for another core. Received bytes move in the
    /// [`crate::FrameReader`], unsent bytes in the [`crate::SendQueue`].
    ///
    /// # Errors
    /// If the runtime cannot release the socket, or the transport cannot change the core.
    pub fn detach(self) -> io::Result<Detached> {
        match self {
            Self::Tcp(stream) => Ok(Detached::Tcp(stream.into_std()?)),
            Self::Memory(stream) => Ok(Detached::Memory(stream)),
            Self::Rdma(endpoint) => {
                let endpoint =
                    Arc::try_unwrap(endpoint).map_err(|_| io::ErrorKind::ResourceBusy)?;
                Ok(Detached::Rdma(Box::new(endpoint.detach()?)))
            }
            Self::Quic(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Returns the transport that an end of a pair in memory stands for.
const fn memory_transport(stream: &MemoryStream) -> Transport {
    if stream.is_secure_by_itself() { Transport::SecureMemory } else { Transport::Memory }
}

/// Makes one non-blocking call that moves up to `asked` bytes. If it moves fewer, the socket is
/// empty (or full): the runtime is told at once, which saves a call that would only return
/// would-block. Nothing is lost: later bytes are a new edge, once there are as many as
/// [`Stream::set_low_water_mark`] wants, and an end that was seen stays.
fn until_drained(
    stream: &TcpStream,
    interest: Interest,
    asked: usize,
    call: impl FnOnce() -> io::Result<usize>,
) -> io::Result<usize> {
    let mut short = None;
    let outcome = stream.try_io(interest, || {
        let count = call()?;
        if 0 < count && count < asked {
            short = Some(count);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(count)
    });
    short.map_or(outcome, Ok)
}

impl Detached {
    /// Binds the stream to the present runtime.
    ///
    /// # Errors
    /// If the runtime cannot watch the socket.
    pub fn attach(self) -> io::Result<Stream> {
        match self {
            Self::Tcp(stream) => Ok(Stream::Tcp(TcpStream::from_std(stream)?)),
            Self::Memory(stream) => Ok(Stream::Memory(stream)),
            Self::Rdma(detached) => Ok(Stream::Rdma(Arc::new(detached.attach()?))),
            Self::Quic(detached) => Ok(Stream::Quic(Box::new(detached.attach()?))),
        }
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// If the socket is no longer connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr(),
            Self::Memory(stream) => Ok(stream.peer_addr()),
            Self::Rdma(detached) => detached.peer_addr(),
            Self::Quic(detached) => Ok(detached.peer_addr()),
        }
    }

    /// Returns the transport of the connection.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        match self {
            Self::Tcp(_) => Transport::Tcp,
            Self::Memory(stream) => memory_transport(stream),
            Self::Rdma(_) => Transport::Rdma,
            Self::Quic(_) => Transport::Quic,
        }
    }

    /// Returns the socket; None for a transport without descriptors.
    #[must_use]
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(stream) => Some(stream.as_fd()),
            Self::Memory(_) | Self::Rdma(_) | Self::Quic(_) => None,
        }
    }

    /// Returns a connection of QUIC that was not accepted yet.
    #[must_use]
    pub fn quic(&mut self) -> Option<&mut quic::Detached> {
        match self {
            Self::Quic(detached) => Some(detached),
            _ => None,
        }
    }

    /// True if the peer has not proved yet that its address is its own.
    #[must_use]
    pub fn is_unproven(&self) -> bool {
        match self {
            Self::Quic(detached) => !detached.is_proven(),
            Self::Tcp(_) | Self::Memory(_) | Self::Rdma(_) => false,
        }
    }

    /// Has a peer come again that has not proved its address.
    pub fn ask_for_proof(self) {
        if let Self::Quic(detached) = self {
            detached.ask_for_proof();
        }
    }

    /// Ends the connection without attaching it.
    pub fn close(self) {
        if let Self::Tcp(stream) = &self {
            // A shutdown fails only if the connection has ended already, so its error is dropped.
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(stream)
    }
}

impl From<MemoryStream> for Stream {
    fn from(stream: MemoryStream) -> Self {
        Self::Memory(stream)
    }
}

#[cfg(test)]
pub(crate) mod tests;
