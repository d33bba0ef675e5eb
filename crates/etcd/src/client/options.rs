//! The options of a client.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use zeroize::Zeroizing;

use super::dialer::{Dialer, PlainDialer};

/// The options of a client. Secrets are values: this crate reads no file.
#[derive(Debug, Clone)]
pub struct Options {
    /// The members to ask, in this order: 1 to [`crate::limits::ENDPOINTS`].
    pub endpoints: Vec<Endpoint>,
    /// The certificates for endpoints that are `https`.
    pub tls: Option<Tls>,
    /// The name and the password, where etcd asks for them.
    pub account: Option<Account>,
    /// The time for one attempt at one endpoint, from connecting to the last byte of the answer. Each
    /// part of a request's whole time is one attempt.
    pub attempt: Duration,
    /// The time for a request with all of its attempts.
    pub whole: Duration,
    /// The time without a word from a watch after which its member is asked for a key, and left if it
    /// does not answer within `attempt`.
    pub quiet: Duration,
    /// Makes the connections.
    pub dialer: Arc<dyn Dialer>,
    /// The key by which all endpoints must prove that they lead to one etcd. None: they are believed.
    pub identity: Option<Identity>,
}

impl Options {
    /// Returns options for these endpoints: 1 s for an attempt, 4 s in all, 2 s of a watch's silence,
    /// connections from this process, endpoints that are believed.
    pub fn new(endpoints: Vec<Endpoint>) -> Self {
        Self {
            endpoints,
            tls: None,
            account: None,
            attempt: Duration::from_secs(1),
            whole: Duration::from_secs(4),
            quiet: Duration::from_secs(2),
            dialer: Arc::new(PlainDialer),
            identity: None,
        }
    }
}

/// The key by which a client tells its etcd from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The key.
    pub key: Vec<u8>,
    /// The value that the key gets where it has none. No other client may write the same one; this client
    /// adds a number.
    pub value: String,
}

/// The address of a member for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// True for `https`.
    pub is_secure: bool,
    /// The name or the address, without the brackets of IPv6.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

impl Endpoint {
    /// Reads `https://HOST:PORT` or `http://HOST:PORT`. The port of etcd is 2379, also where there is
    /// none.
    ///
    /// # Errors
    /// [`BadOptions`] names the text.
    pub fn parse(url: &str) -> Result<Self, BadOptions> {
        let bad = || {
            let text = alloc::format!("`{url}` is not an endpoint; write https://HOST:2379.");
            BadOptions(text)
        };
        let (is_secure, rest) = match url.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err(bad()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = if let Some(rest) = rest.strip_prefix('[') {
            let (host, port) = rest.split_once(']').ok_or_else(bad)?;
            host.parse::<core::net::Ipv6Addr>().map_err(|_| bad())?;
            (host, port)
        } else {
            let at = rest.find(':').unwrap_or(rest.len());
            rest.split_at_checked(at).ok_or_else(bad)?
        };
        let is_name =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':');
        if host.is_empty() || host.len() > 255 || !host.bytes().all(is_name) {
            return Err(bad());
        }
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => 2379,
            None => return Err(bad()),
            Some(port) => port.parse().map_err(|_| bad())?,
        };
        if port == 0 {
            return Err(bad());
        }
        Ok(Self { is_secure, host: host.into(), port })
    }

    /// Returns `HOST:PORT`, as the head Host of HTTP and a dialer want it.
    pub(super) fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            alloc::format!("[{host}]:{port}")
        } else {
            alloc::format!("{host}:{port}")
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http{}://{}", if self.is_secure { "s" } else { "" }, self.authority())
    }
}

/// Certificates and keys of TLS 1.3, as PEM.
///
/// A member that asks for certificates also asks its own gateway for one, which shows the member's:
/// that must be good for servers and for clients. Where etcd has accounts too, its gateway refuses
/// clients whose certificate has a common name.
#[derive(Clone)]
pub struct Tls {
    /// The certificates of the authorities that sign those of the members.
    pub authorities: Vec<u8>,
    /// The certificate of this client with those between it and its authority, where etcd asks for one.
    pub certificate: Option<Vec<u8>>,
    /// The key of `certificate`. It is erased from memory with these options.
    pub key: Option<Zeroizing<Vec<u8>>>,
    /// The name that the members' certificates have. None: the host of the endpoint.
    pub server_name: Option<String>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server_name, .. } = self;
        f.debug_struct("Tls").field("server_name", server_name).finish_non_exhaustive()
    }
}

/// An account of etcd.
#[derive(Clone)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Its password.
    pub password: Zeroizing<String>,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Options that cannot be used, for this reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadOptions(pub String);

impl fmt::Display for BadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for BadOptions {}
