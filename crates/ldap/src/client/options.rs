//! The options of a client.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use std::path::PathBuf;

use frevo_auth::Zeroizing;
use tokio_rustls::TlsConnector;

use crate::filter::Filter;
use crate::person::Names;

/// The options of a client. Secrets are values: this crate reads no file.
#[derive(Clone)]
pub struct Options {
    /// The servers, in the order in which they are asked.
    pub servers: Vec<Server>,
    /// TLS, for servers that use it.
    pub tls: Option<TlsConnector>,
    /// The entry that asks. None asks as nobody.
    pub bind: Option<Bind>,
    /// The entry below which accounts are.
    pub user_base: String,
    /// The filter of an account.
    pub user_filter: Filter,
    /// The entry below which groups are.
    pub group_base: String,
    /// The filter of the groups of an account.
    pub group_filter: Filter,
    /// The names of attributes.
    pub names: Names,
    /// Time to connect with one server, and time for the answer to one question.
    pub timeout: Duration,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("servers", &self.servers).finish_non_exhaustive()
    }
}

/// A simple bind.
#[derive(Clone)]
pub struct Bind {
    /// The name of the entry.
    pub dn: String,
    /// Its password.
    pub password: Zeroizing<Vec<u8>>,
}

/// A server of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its place.
    pub place: ServerPlace,
    /// The use of TLS.
    pub tls: TlsUse,
}

/// The place of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerPlace {
    /// A name or an address, and a port of TCP.
    Tcp {
        /// A name, an IPv4 address, or an IPv6 address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// The use of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsUse {
    /// None: the connection stays on this host, or the administrator has allowed it.
    None,
    /// The extended request StartTLS comes first.
    StartTls,
    /// From the first byte on.
    FromStart,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls == TlsUse::FromStart { "ldaps" } else { "ldap" };
        match &self.place {
            ServerPlace::Tcp { host, port } if host.contains(':') => {
                write!(f, "{scheme}://[{host}]:{port}")
            }
            ServerPlace::Tcp { host, port } => write!(f, "{scheme}://{host}:{port}"),
            ServerPlace::Unix(path) => write!(f, "ldapi:{}", path.display()),
        }
    }
}
