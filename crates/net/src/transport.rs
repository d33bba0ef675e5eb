//! A byte stream to a peer: TCP, or memory for tests and the simulator.
//!
//! The calls take `&self`, as a socket's do: one task of a core may read
//! while another writes, without locks or halves.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::memory::MemoryStream;

/// A connected stream, bound to the runtime it was made in.
pub enum Stream {
    /// A TCP connection.
    Tcp(TcpStream),
    /// One end of an in-memory pair, see [`crate::memory::pair`].
    Memory(MemoryStream),
}

/// A stream that no runtime watches, on its way to another core.
pub enum Detached {
    /// A TCP connection, non-blocking.
    Tcp(std::net::TcpStream),
    /// One end of an in-memory pair.
    Memory(MemoryStream),
}

impl Stream {
    /// Connects to `address` over TCP, with `TCP_NODELAY` set.
    ///
    /// # Errors
    /// What the system says of the attempt.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    /// The peer's address.
    ///
    /// # Errors
    /// When the socket is not connected any more.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr(),
            Self::Memory(stream) => Ok(stream.peer_addr()),
        }
    }

    /// The address of this end.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr(),
            Self::Memory(stream) => Ok(stream.local_addr()),
        }
    }

    /// Whether small writes leave at once. A memory stream's always do.
    ///
    /// # Errors
    /// When the socket refuses.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nodelay(nodelay),
            Self::Memory(_) => Ok(()),
        }
    }

    /// The socket beneath, where there is one.
    #[must_use]
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(stream) => Some(stream.as_fd()),
            Self::Memory(_) => None,
        }
    }

    /// Waits until there is something to read, the end included.
    ///
    /// # Errors
    /// When the runtime is shutting down.
    pub async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Memory(stream) => stream.readable().await,
        }
    }

    /// Waits until something can be written.
    ///
    /// # Errors
    /// When the runtime is shutting down.
    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
            Self::Memory(stream) => stream.writable().await,
        }
    }

    /// Reads what is there into `slices`; `Ok(0)` is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there, or the connection's failure.
    pub fn try_read_vectored(&self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let stream = match self {
            Self::Tcp(stream) => stream,
            Self::Memory(stream) => return stream.try_read_vectored(slices),
        };
        let room: usize = slices.iter().map(|slice| slice.len()).sum();
        until_drained(stream, Interest::READABLE, room, || Ok(rustix::io::readv(stream, slices)?))
    }

    /// Writes what the stream takes of `slices`. With `more`, the kernel may
    /// hold back a last packet that is not full, because more follows at once.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is taken, or the connection's failure.
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let stream = match self {
            Self::Tcp(stream) => stream,
            Self::Memory(stream) => return stream.try_write_vectored(slices),
        };
        let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        flags.set(SendFlags::MORE, more);
        let offered: usize = slices.iter().map(|slice| slice.len()).sum();
        until_drained(stream, Interest::WRITABLE, offered, || {
            let mut control = rustix::net::SendAncillaryBuffer::default();
            Ok(rustix::net::sendmsg(stream, slices, &mut control, flags)?)
        })
    }

    /// Runs a non-blocking call that writes to the socket, so that its
    /// would-block is remembered and [`Self::writable`] waits afterwards.
    ///
    /// # Errors
    /// What the call returns; `Unsupported` on a memory stream.
    pub(crate) fn try_write_with<T>(
        &self,
        call: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        match self {
            Self::Tcp(stream) => stream.try_io(Interest::WRITABLE, || call(stream.as_fd())),
            Self::Memory(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Tells the peer that nothing more will be written.
    ///
    /// # Errors
    /// When the connection is gone already.
    pub fn shutdown_write(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => Ok(rustix::net::shutdown(stream, rustix::net::Shutdown::Write)?),
            Self::Memory(stream) => {
                stream.shutdown_write();
                Ok(())
            }
        }
    }

    /// Ends both directions at once: whoever waits on this stream wakes up.
    pub fn abort(&self) {
        match self {
            // A failure means that it has ended already.
            Self::Tcp(stream) => drop(rustix::net::shutdown(stream, rustix::net::Shutdown::Both)),
            Self::Memory(stream) => stream.reset(),
        }
    }

    /// Takes the stream out of this core's runtime, to be attached to
    /// another's. Bytes already received travel in the [`crate::FrameReader`],
    /// bytes not yet sent in the [`crate::SendQueue`].
    ///
    /// # Errors
    /// When the runtime cannot let go of the socket.
    pub fn detach(self) -> io::Result<Detached> {
        match self {
            Self::Tcp(stream) => Ok(Detached::Tcp(stream.into_std()?)),
            Self::Memory(stream) => Ok(Detached::Memory(stream)),
        }
    }
}

/// Makes one non-blocking call that moves up to `asked` bytes. When it moves
/// fewer, the socket is empty (or full): the runtime is told so at once,
/// which saves the call that would only return would-block. Nothing is lost:
/// what arrives later is a new edge, and an end already seen stays seen.
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
    /// Binds the stream to the runtime this is called in.
    ///
    /// # Errors
    /// When the runtime cannot watch the socket.
    pub fn attach(self) -> io::Result<Stream> {
        match self {
            Self::Tcp(stream) => Ok(Stream::Tcp(TcpStream::from_std(stream)?)),
            Self::Memory(stream) => Ok(Stream::Memory(stream)),
        }
    }

    /// The peer's address.
    ///
    /// # Errors
    /// When the socket is not connected any more.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr(),
            Self::Memory(stream) => Ok(stream.peer_addr()),
        }
    }

    /// The socket beneath, where there is one.
    #[must_use]
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(stream) => Some(stream.as_fd()),
            Self::Memory(_) => None,
        }
    }

    /// Ends the connection without attaching it.
    pub fn close(self) {
        if let Self::Tcp(stream) = &self {
            // A failure means that it has ended already.
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
