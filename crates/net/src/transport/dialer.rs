//! Connecting over each transport.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::{Network, Stream, Transport};
use crate::limits::RDMA_LOCKED_BYTES_MIN;
use crate::{quic, rdma, socket};

/// Makes connections over one transport.
#[derive(Clone, Debug)]
pub enum Dialer {
    /// TCP.
    Tcp,
    /// The RDMA devices of this host.
    Rdma,
    /// QUIC.
    Quic(quic::Connector),
    /// A network in memory.
    Memory(Arc<dyn Network>),
}

impl Dialer {
    /// Returns the transport of its connections.
    #[must_use]
    pub fn transport(&self) -> Transport {
        match self {
            Self::Tcp => Transport::Tcp,
            Self::Rdma => Transport::Rdma,
            Self::Quic(_) => Transport::Quic,
            Self::Memory(network) => network.transport(),
        }
    }

    /// Returns true if addresses that a server tells can be dialled.
    #[must_use]
    pub const fn knows_addresses(&self) -> bool {
        match self {
            Self::Tcp | Self::Rdma => true,
            // The server proves to be the host that a user names, not an address.
            Self::Quic(_) | Self::Memory(_) => false,
        }
    }

    /// Returns the addresses that this host resolves a name to. None where only [`Self::dial`] finds
    /// the server.
    ///
    /// # Errors
    /// The resolver's error.
    pub async fn addresses(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        let port = self.transport().facts().port;
        match self {
            Self::Tcp | Self::Rdma => Ok(tokio::net::lookup_host((host, port)).await?.collect()),
            Self::Quic(_) | Self::Memory(_) => Ok(Vec::new()),
        }
    }

    /// Connects to a port of `host`, a name or an address; to the usual port of the transport if
    /// `port` is None. The host resolves names of TCP and RDMA.
    ///
    /// # Errors
    /// The error of the last address that was tried.
    pub async fn dial(&self, host: &str, port: Option<u16>) -> io::Result<Stream> {
        let at = port.unwrap_or(self.transport().facts().port);
        match self {
            Self::Tcp => to_any_address(host, at, |address| socket::connect(address, None)).await,
            Self::Rdma => {
                check_rdma()?;
                match port {
                    Some(port) => to_any_address(host, port, connect_rdma).await,
                    None => to_any_address(host, at, connect_rdma_at_usual).await,
                }
            }
            Self::Quic(connector) => dial_quic(connector, host, at, host).await,
            Self::Memory(network) => network.connect(host, at).await,
        }
    }

    /// Connects like [`Self::dial`], for a user who calls the server `name`. Over QUIC it proves to be that.
    ///
    /// # Errors
    /// Like [`Self::dial`].
    pub async fn dial_named(
        &self,
        host: &str,
        port: Option<u16>,
        name: &str,
    ) -> io::Result<Stream> {
        let Self::Quic(connector) = self else { return self.dial(host, port).await };
        dial_quic(connector, host, port.unwrap_or(self.transport().facts().port), name).await
    }
}

/// Connects to the first address of a host and its port that answers.
async fn to_any_address(
    host: &str,
    port: u16,
    connect: impl AsyncFn(SocketAddr) -> io::Result<Stream>,
) -> io::Result<Stream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    for address in tokio::net::lookup_host((host, port)).await? {
        match connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects over QUIC to a host and its port, where a server proves to be `name`.
async fn dial_quic(
    connector: &quic::Connector,
    host: &str,
    port: u16,
    name: &str,
) -> io::Result<Stream> {
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
    let connection = connector.connect_any(&addresses, name).await?;
    Ok(Stream::Quic(Box::new(connection)))
}

/// Checks that this process can use RDMA.
fn check_rdma() -> io::Result<()> {
    rdma::is_here().map_err(|why| io::Error::new(io::ErrorKind::Unsupported, why.to_string()))?;
    if rdma::lockable_bytes().is_some_and(|bytes| bytes < RDMA_LOCKED_BYTES_MIN) {
        let least = RDMA_LOCKED_BYTES_MIN >> 20;
        let text = format!("`ulimit -l` must allow at least {least} MiB of pinned memory");
        return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
    }
    Ok(())
}

/// Connects to the usual port of the device that leads to an address: MS-SMBD 1.9.
async fn connect_rdma_at_usual(mut address: SocketAddr) -> io::Result<Stream> {
    address.set_port(rdma::provider_towards(address).await?.port());
    connect_rdma(address).await
}

/// Connects to an address, and waits until both sides have negotiated SMB Direct.
async fn connect_rdma(address: SocketAddr) -> io::Result<Stream> {
    let endpoint = rdma::connect(address).await?;
    endpoint.established().await?;
    Ok(Stream::Rdma(Arc::new(endpoint)))
}
