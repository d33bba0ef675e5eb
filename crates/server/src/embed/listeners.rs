//! The listeners that a server can serve.

use std::io;
use std::os::fd::OwnedFd;

use frevo_net::socket;
use frevo_net::transport::Listener;

/// A listening socket, or several. [`Server::serve`](crate::Server::serve) takes them.
pub trait IntoListeners: sealed::Sealed {
    /// Returns the listeners, watched by the runtime of the caller.
    ///
    /// # Errors
    /// When the runtime cannot watch a socket.
    #[doc(hidden)]
    fn into_listeners(self) -> io::Result<Vec<Listener>>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for frevo_net::transport::Listener {}
    impl Sealed for frevo_net::socket::Listener {}
    impl Sealed for frevo_net::quic::Listener {}
    impl Sealed for std::net::TcpListener {}
    impl Sealed for tokio::net::TcpListener {}
    impl<T: Sealed> Sealed for Vec<T> {}
}

#[doc(hidden)]
impl IntoListeners for Listener {
    fn into_listeners(self) -> io::Result<Vec<Listener>> {
        Ok(vec![self])
    }
}

#[doc(hidden)]
impl IntoListeners for socket::Listener {
    fn into_listeners(self) -> io::Result<Vec<Listener>> {
        Ok(vec![self.into()])
    }
}

#[doc(hidden)]
impl IntoListeners for frevo_net::quic::Listener {
    fn into_listeners(self) -> io::Result<Vec<Listener>> {
        Ok(vec![self.into()])
    }
}

impl IntoListeners for std::net::TcpListener {
    fn into_listeners(self) -> io::Result<Vec<Listener>> {
        socket::Listener::from_owned(OwnedFd::from(self))?.into_listeners()
    }
}

impl IntoListeners for tokio::net::TcpListener {
    fn into_listeners(self) -> io::Result<Vec<Listener>> {
        self.into_std()?.into_listeners()
    }
}

impl<T: IntoListeners> IntoListeners for Vec<T> {
    fn into_listeners(self) -> io::Result<Vec<Listener>> {
        let mut all = Vec::with_capacity(self.len());
        for listeners in self {
            all.extend(listeners.into_listeners()?);
        }
        Ok(all)
    }
}
