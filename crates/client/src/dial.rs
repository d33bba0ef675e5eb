//! How a server is reached: over TCP, or as a test or a simulator wants it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;

use frevo_net::socket;
use frevo_net::transport::Stream;

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerName {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl ServerName {
    /// The port that servers listen on.
    pub const PORT: u16 = 445;

    /// A server at the usual port.
    pub fn new(host: impl Into<String>) -> Self {
        Self { host: host.into(), port: Self::PORT }
    }

    /// The same at another port.
    #[must_use]
    pub fn at_port(self, port: u16) -> Self {
        Self { port, ..self }
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brackets = self.host.contains(':');
        match (brackets, self.port) {
            (false, Self::PORT) => f.write_str(&self.host),
            (true, Self::PORT) => write!(f, "[{}]", self.host),
            (false, port) => write!(f, "{}:{port}", self.host),
            (true, port) => write!(f, "[{}]:{port}", self.host),
        }
    }
}

/// The future of a connection being made.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send + 'a>>;

/// Makes connections.
pub trait Dial: Send + Sync + fmt::Debug {
    /// Connects to `server`.
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a>;
}

/// TCP, with names resolved by the host.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp;

impl Dial for Tcp {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        Box::pin(async move {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for address in tokio::net::lookup_host((&*server.host, server.port)).await? {
                match socket::connect(address, None).await {
                    Ok(stream) => return Ok(stream),
                    Err(error) => last = error,
                }
            }
            Err(last)
        })
    }
}
