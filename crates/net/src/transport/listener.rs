//! Listeners of all transports.

use std::io;
use std::net::{IpAddr, SocketAddr};

use super::{Detached, InterfaceKind, MemoryListener, Transport};
use crate::socket::Reach;
use crate::{quic, rdma, socket};

/// A listener, watched by the runtime in which it was made.
pub enum Listener {
    /// A TCP socket.
    Tcp(socket::Listener),
    /// RDMA devices.
    Rdma(rdma::Listener),
    /// A UDP socket of QUIC.
    Quic(quic::Listener),
    /// A listener in memory.
    Memory(MemoryListener),
}

impl Listener {
    /// Returns the transport of its connections.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        match self {
            Self::Tcp(_) => Transport::Tcp,
            Self::Rdma(_) => Transport::Rdma,
            Self::Quic(_) => Transport::Quic,
            Self::Memory(_) => Transport::Memory,
        }
    }

    /// Accepts the next connection, for any core. Dropping the future loses none.
    ///
    /// # Errors
    /// The system lacks something: wait a little and continue.
    pub async fn accept(&self) -> io::Result<(Detached, SocketAddr)> {
        match self {
            Self::Tcp(listener) => listener.accept().await,
            Self::Rdma(listener) => {
                let (detached, peer) = listener.accept().await?;
                Ok((Detached::Rdma(Box::new(detached)), peer))
            }
            Self::Quic(listener) => {
                let detached = Box::pin(listener.accept()).await;
                let peer = detached.peer_addr();
                Ok((Detached::Quic(Box::new(detached)), peer))
            }
            Self::Memory(listener) => listener.accept().await,
        }
    }

    /// Returns the addresses of the host on which it answers; none for one in memory.
    ///
    /// # Errors
    /// If the system cannot tell.
    pub fn reach(&self) -> io::Result<Vec<Reach>> {
        match self {
            Self::Tcp(listener) => Ok(vec![listener.reach()?]),
            // A listener on an unspecified address accepts on all RDMA devices, but not each
            // address of the host has one. So only the specified addresses are returned.
            Self::Rdma(listener) => {
                let addresses = listener.addresses().into_iter().map(|address| address.ip());
                Ok(addresses.filter(|address| !address.is_unspecified()).map(Reach::of).collect())
            }
            Self::Quic(listener) => Ok(vec![Reach::of(listener.local_addr().ip())]),
            Self::Memory(_) => Ok(Vec::new()),
        }
    }
}

/// The addresses of a listener, as FSCTL_QUERY_NETWORK_INTERFACE_INFO tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listening {
    /// The way in which they are told.
    pub interface: InterfaceKind,
    /// The addresses. None if the system cannot tell, so that each address is possible.
    pub reach: Option<Vec<Reach>>,
}

impl Listening {
    /// Returns the addresses of a listener.
    #[must_use]
    pub fn of(listener: &Listener) -> Self {
        let interface = listener.transport().facts().interface;
        Self { interface, reach: listener.reach().ok() }
    }

    /// True if a connection to `address` arrives at the listener.
    #[must_use]
    pub fn includes(&self, address: IpAddr) -> bool {
        let is_included = |reach: &Vec<Reach>| reach.iter().any(|reach| reach.includes(address));
        self.reach.as_ref().is_none_or(is_included)
    }
}

impl From<socket::Listener> for Listener {
    fn from(listener: socket::Listener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<rdma::Listener> for Listener {
    fn from(listener: rdma::Listener) -> Self {
        Self::Rdma(listener)
    }
}

impl From<quic::Listener> for Listener {
    fn from(listener: quic::Listener) -> Self {
        Self::Quic(listener)
    }
}

impl From<MemoryListener> for Listener {
    fn from(listener: MemoryListener) -> Self {
        Self::Memory(listener)
    }
}
