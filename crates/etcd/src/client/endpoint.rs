//! The endpoints of a client, and their connections that wait for requests.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use hyper::header::HeaderValue;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::connection::Connection;
use super::dialer::Dialer;
use super::options::{BadOptions, Endpoint, Options};
use super::tls;
use crate::limits::{ENDPOINTS, IDLE_CONNECTIONS};

/// The endpoints, and the one that requests go to first.
pub(super) struct Endpoints {
    each: Vec<Member>,
    preferred: AtomicUsize,
}

/// An endpoint.
pub(super) struct Member {
    /// Its URL, for people.
    pub(super) url: String,
    /// Its place in the options.
    pub(super) at: usize,
    pub(super) endpoint: Endpoint,
    pub(super) dialer: Arc<dyn Dialer>,
    /// The head Host.
    pub(super) host: HeaderValue,
    /// None for HTTP without TLS.
    pub(super) security: Option<Security>,
    idle: Mutex<Vec<Connection>>,
    mark: Mutex<Mark>,
}

/// The proof that an endpoint leads to the etcd of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// It has shown nothing.
    Unknown,
    /// It has shown the value of that etcd.
    Proven,
    /// It was proven, and has not answered since.
    Left,
}

/// The security of an endpoint's connections.
pub(super) struct Security {
    pub(super) connector: TlsConnector,
    pub(super) name: ServerName<'static>,
}

impl Endpoints {
    pub(super) fn new(options: &Options) -> Result<Self, BadOptions> {
        if options.endpoints.is_empty() || options.endpoints.len() > ENDPOINTS {
            let text = alloc::format!("etcd needs 1 to {ENDPOINTS} endpoints.");
            return Err(BadOptions(text));
        }
        let connector = options.tls.as_ref().map(tls::connector).transpose()?;
        let mut each = Vec::new();
        for (at, endpoint) in options.endpoints.iter().enumerate() {
            let security = match (endpoint.is_secure, &options.tls, &connector) {
                (false, ..) => None,
                (true, Some(tls), Some(connector)) => {
                    let name = tls::server_name(tls, endpoint)?;
                    Some(Security { connector: connector.clone(), name })
                }
                (true, ..) => {
                    let text = alloc::format!("{endpoint} needs a certificate of its authority.");
                    return Err(BadOptions(text));
                }
            };
            let host = HeaderValue::from_str(&endpoint.authority())
                .map_err(|_| BadOptions(alloc::format!("{endpoint} is not an endpoint.")))?;
            let url = alloc::format!("{endpoint}");
            let (endpoint, dialer) = (endpoint.clone(), Arc::clone(&options.dialer));
            let idle = Mutex::default();
            let mark = Mutex::new(Mark::Unknown);
            each.push(Member { url, at, endpoint, dialer, host, security, idle, mark });
        }
        Ok(Self { each, preferred: AtomicUsize::new(0) })
    }

    pub(super) fn count(&self) -> usize {
        self.each.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<&Member> {
        self.each.get(at)
    }

    /// The number of the endpoint that answered last.
    pub(super) fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed)
    }

    /// The number of the endpoint after `at`, in a circle.
    pub(super) fn next(&self, at: usize) -> usize {
        let next = at.saturating_add(1);
        if next < self.each.len() { next } else { 0 }
    }

    /// Leaves an endpoint that did not answer: later requests go to the next one.
    pub(super) fn leave(&self, at: usize) {
        let next = self.next(at);
        // Of several requests that fail together, the first changes the endpoint.
        let _ = self.preferred.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
        if let Some(member) = self.each.get(at) {
            member.idle.lock().clear();
            let mut mark = member.mark.lock();
            if *mark == Mark::Proven {
                *mark = Mark::Left;
            }
        }
    }
}

impl Member {
    /// The proof that it leads to the etcd of its client.
    pub(super) fn mark(&self) -> Mark {
        *self.mark.lock()
    }

    pub(super) fn set_mark(&self, mark: Mark) {
        *self.mark.lock() = mark;
    }

    /// Takes a connection that is open, the one that was used last.
    pub(super) fn idle(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        while let Some(connection) = idle.pop() {
            if !connection.is_closed() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection for a later request.
    pub(super) fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_CONNECTIONS && !connection.is_closed() {
            idle.push(connection);
        }
    }
}
