//! Servers: their names, and the ways to reach them.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::str::FromStr;

use frevo_net::transport::{Dialer, Stream, Transport};

use crate::url::ParseUrlError;

/// A server: a host, and perhaps a port.
///
/// Its text form is `host`, `host:port`, `[address]` or `[address]:port`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerName {
    /// Name or address of the host; an IPv6 address without brackets.
    pub host: String,
    /// The port. None means the usual one of each transport: 445 for TCP, that of the device for SMB
    /// Direct.
    pub port: Option<u16>,
}

impl ServerName {
    /// Returns the server on `host` at the usual port.
    pub fn new(host: impl Into<String>) -> Self {
        Self { host: host.into(), port: None }
    }

    /// Returns the server on the same host at another port.
    #[must_use]
    pub fn at_port(self, port: u16) -> Self {
        Self { port: Some(port), ..self }
    }

    /// Returns the port at which TCP reaches the server.
    #[must_use]
    pub fn tcp_port(&self) -> u16 {
        self.port.unwrap_or(Transport::Tcp.facts().port)
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brackets = self.host.contains(':');
        match (brackets, self.port) {
            (false, None) => f.write_str(&self.host),
            (true, None) => write!(f, "[{}]", self.host),
            (false, Some(port)) => write!(f, "{}:{port}", self.host),
            (true, Some(port)) => write!(f, "[{}]:{port}", self.host),
        }
    }
}

impl FromStr for ServerName {
    type Err = ParseUrlError;

    fn from_str(text: &str) -> Result<Self, ParseUrlError> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (name, after) = rest.split_once(']').ok_or(ParseUrlError::UnclosedBracket)?;
                (name, after.strip_prefix(':'))
            }
            None => match text.rsplit_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            },
        };
        if name.is_empty() || name.contains(['/', '@']) {
            return Err(ParseUrlError::NoServer);
        }
        let port = match port {
            Some(port) => Some(port.parse().map_err(|_| ParseUrlError::Port(port.into()))?),
            None => None,
        };
        Ok(Self { port, ..Self::new(name) })
    }
}

impl From<&str> for ServerName {
    /// Returns the server on this host at the usual port. Use [`FromStr`] for `host:port`.
    fn from(host: &str) -> Self {
        Self::new(host)
    }
}

/// The future of a connection being made.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send + 'a>>;

/// Makes connections: a dialer of one transport, those of several, or a test that stands between.
pub trait Dial: Send + Sync + fmt::Debug {
    /// Makes a connection to `server`.
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a>;

    /// Makes a connection for a further channel of a session whose channels are over `transport`.
    /// By default there is one transport.
    fn dial_further<'a>(&'a self, server: &'a ServerName, transport: Transport) -> Dialing<'a> {
        let _ = transport;
        self.dial(server)
    }

    /// Returns true if addresses that the server tells can be dialled. False by default.
    fn knows_addresses(&self) -> bool {
        false
    }
}

impl Dial for Dialer {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        // `Self::dial` is the method of the type `Dialer`, not this method of the trait, which
        // would call itself.
        Box::pin(Self::dial(self, &server.host, server.port))
    }

    fn knows_addresses(&self) -> bool {
        Self::knows_addresses(self)
    }
}
