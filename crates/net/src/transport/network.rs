//! Listening and connecting in memory.

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::{Detached, Stream, Transport};
use crate::limits::LISTEN_BACKLOG;

/// The future of a connection that a [`Network`] makes.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send + 'a>>;

/// A network of a test or a simulator, which makes connections for
/// [`Dialer::Memory`](super::Dialer::Memory).
pub trait Network: Send + Sync + fmt::Debug {
    /// Connects to a port of `host`.
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a>;

    /// Returns the transport that the connections are of.
    fn transport(&self) -> Transport {
        Transport::Memory
    }
}

/// A listener in memory.
pub struct MemoryListener(Mutex<mpsc::Receiver<Detached>>);

/// The way to a listener in memory.
#[derive(Clone)]
pub struct Door(mpsc::Sender<Detached>);

impl MemoryListener {
    /// Makes a listener, and the way to it.
    #[must_use]
    pub fn new() -> (Self, Door) {
        let backlog = usize::try_from(LISTEN_BACKLOG).unwrap_or(1);
        let (door, listener) = mpsc::channel(backlog);
        (Self(Mutex::new(listener)), Door(door))
    }

    /// Accepts the next connection. Dropping the future loses none. Once all ways to it are gone,
    /// nothing comes any more.
    ///
    /// # Errors
    /// A connection that has no address has ended.
    pub async fn accept(&self) -> io::Result<(Detached, SocketAddr)> {
        let Some(stream) = poll_fn(|cx| self.0.lock().poll_recv(cx)).await else {
            return pending().await;
        };
        let peer = stream.peer_addr()?;
        Ok((stream, peer))
    }
}

impl Door {
    /// Gives the listener a connection to accept.
    ///
    /// # Errors
    /// `ConnectionRefused` if the listener is gone, or as many connections as
    /// [`LISTEN_BACKLOG`] wait already.
    pub fn send(&self, stream: Detached) -> io::Result<()> {
        self.0.try_send(stream).map_err(|_| io::ErrorKind::ConnectionRefused.into())
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Door").finish()
    }
}
