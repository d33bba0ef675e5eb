//! Servers: their names, and the ways to reach them.

use std::fmt;
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::str::FromStr;

use frevo_net::transport::{Dialer, Stream, Transport};

use crate::limits::ADDRESSES_MAX;
use crate::url::ParseUrlError;

/// A server: a host, and perhaps a port.
///
/// Its text form is `host`, `host:port`, `[address]` or `[address]:port`. Servers are equal if their
/// hosts are, whose names have no case, and their ports.
#[derive(Debug, Clone)]
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

impl PartialEq for ServerName {
    fn eq(&self, other: &Self) -> bool {
        // RFC 4343 2: names are compared without case; so are the digits of an IPv6 address.
        self.host.eq_ignore_ascii_case(&other.host) && self.port == other.port
    }
}

impl Eq for ServerName {}

impl Hash for ServerName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.host.bytes().for_each(|byte| state.write_u8(byte.to_ascii_lowercase()));
        // No byte of a name is 0xFF, so that it ends the name.
        state.write_u8(0xFF);
        self.port.hash(state);
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

/// Addresses at which a server is looked for, in place of those that its name resolves to: the nodes
/// of a cluster, for example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddresses {
    /// The name of the server.
    pub host: String,
    /// Its addresses, in the order in which they are tried; the first 64 count. One without a port has
    /// that of the server.
    pub addresses: Vec<ServerName>,
}

/// The future of the addresses of a server.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<ServerName>>> + Send + 'a>>;

/// The future of a connection being made.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send + 'a>>;

/// The future of a connection over the preferred transport.
pub type Preferring<'a> = Pin<Box<dyn Future<Output = Option<Preferred>> + Send + 'a>>;

/// A connection over the preferred transport, and the server that it reaches.
pub struct Preferred {
    /// The server, one of those that were asked for.
    pub server: ServerName,
    /// The connection.
    pub stream: Stream,
}

/// Makes connections: a dialer of one transport, those of several, or a test that stands between.
pub trait Dial: Send + Sync + fmt::Debug {
    /// Makes a connection to `server`.
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a>;

    /// Returns the addresses of `server`, each as a server to dial, in the order in which they are
    /// tried. By default its name is the only one.
    fn addresses<'a>(&'a self, server: &'a ServerName) -> Resolving<'a> {
        Box::pin(std::future::ready(Ok(vec![server.clone()])))
    }

    /// Makes a connection over the preferred transport to the first one of several servers that it
    /// reaches, before another transport is tried at any of them. None if it reaches none in time; by
    /// default there is one transport, and [`Self::dial`] makes all connections.
    fn prefer<'a>(&'a self, servers: &'a [ServerName]) -> Preferring<'a> {
        let _ = servers;
        Box::pin(std::future::ready(None))
    }

    /// Makes a connection for a further channel of a session whose channels are over `transport`.
    /// By default there is one transport.
    fn dial_further<'a>(&'a self, server: &'a ServerName, transport: Transport) -> Dialing<'a> {
        let _ = transport;
        self.dial(server)
    }

    /// Makes a connection over TCP for remote procedure calls, beside the session. By default there is
    /// none: the error is Unsupported.
    fn dial_rpc(&self, address: SocketAddr) -> Dialing<'_> {
        let _ = address;
        Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into())))
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

    fn addresses<'a>(&'a self, server: &'a ServerName) -> Resolving<'a> {
        Box::pin(async move {
            if server.host.parse::<IpAddr>().is_ok() {
                return Ok(vec![server.clone()]);
            }
            Ok(named(server, Self::addresses(self, &server.host).await?))
        })
    }

    fn dial_rpc(&self, address: SocketAddr) -> Dialing<'_> {
        Box::pin(async move {
            match self {
                // A host with a device for RDMA has TCP, too.
                Self::Tcp | Self::Rdma => {
                    Self::dial(&Self::Tcp, &address.ip().to_string(), Some(address.port())).await
                }
                Self::Quic(_) | Self::Memory(_) => Err(io::ErrorKind::Unsupported.into()),
            }
        })
    }

    fn knows_addresses(&self) -> bool {
        Self::knows_addresses(self)
    }
}

/// Returns the addresses that a name was resolved to, as servers; the name itself if there are none.
fn named(server: &ServerName, found: Vec<SocketAddr>) -> Vec<ServerName> {
    let mut all: Vec<ServerName> = Vec::new();
    for address in found.into_iter().take(ADDRESSES_MAX) {
        let host = match address {
            SocketAddr::V6(address) if address.scope_id() != 0 => {
                format!("{}%{}", address.ip(), address.scope_id())
            }
            address => address.ip().to_string(),
        };
        let one = ServerName { host, port: server.port };
        if !all.contains(&one) {
            all.push(one);
        }
    }
    if all.is_empty() { vec![server.clone()] } else { all }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hosts_have_no_case() {
        let named = |host: &str, port| ServerName { host: host.into(), port };
        let servers: std::collections::HashSet<_> = [
            named("Files.Example", None),
            named("fILES.eXAMPLE", None),
            named("files.example", Some(445)),
            named("2001:DB8::1", None),
            named("2001:db8::1", None),
            named("files.example2", None),
        ]
        .into();
        assert_eq!(servers.len(), 4, "{servers:?}");
        assert!(servers.contains(&ServerName::new("FILES.EXAMPLE")));
    }

    #[test]
    fn the_addresses_of_a_name_are_servers() {
        let server = ServerName::new("cluster").at_port(4450);
        let at = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let found = named(&server, at(&["192.0.2.1:445", "[2001:db8::1]:445", "192.0.2.1:445"]));
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.0.2.1:4450", "[2001:db8::1]:4450"]);
        // An address of a link means nothing without the number of the link.
        let linked =
            SocketAddr::V6(std::net::SocketAddrV6::new("fe80::1".parse().unwrap(), 445, 0, 7));
        let found = named(&server, vec![linked, "192.0.2.1:445".parse().unwrap()]);
        assert_eq!(found[0].host, "fe80::1%7");
        let found = named(&server, at(&["192.0.2.1:445"]));
        assert_eq!(found, [ServerName::new("192.0.2.1").at_port(4450)]);
        assert_eq!(named(&server, Vec::new()), std::slice::from_ref(&server));
    }

    #[test]
    fn of_a_thousand_addresses_the_first_64_count() {
        let all =
            (0..1_000u32).map(|at| SocketAddr::new(IpAddr::V4((0x0a00_0000 + at).into()), 445));
        assert_eq!(named(&ServerName::new("many"), all.collect()).len(), ADDRESSES_MAX);
    }
}
