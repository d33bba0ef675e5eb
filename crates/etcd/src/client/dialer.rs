//! The way by which a client gets its connections.

use alloc::boxed::Box;
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use std::io;

use tokio::net::TcpStream;

use super::options::Endpoint;

/// A connection that is being made.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send + 'a>>;

/// Makes the TCP connections of a client. TLS is the client's own: a dialer sees sealed bytes at most.
///
/// A process that is confined connects to nobody. There the dialer asks another process, which knows
/// the endpoints by their places.
pub trait Dialer: Send + Sync + fmt::Debug {
    /// Connects with `endpoint`, which has the place `at` in
    /// [`Options::endpoints`](super::Options::endpoints). A client that waits no longer drops the future.
    fn dial<'a>(&'a self, at: usize, endpoint: &'a Endpoint) -> Dialing<'a>;
}

/// Connects from this process.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainDialer;

impl Dialer for PlainDialer {
    fn dial<'a>(&'a self, _: usize, endpoint: &'a Endpoint) -> Dialing<'a> {
        Box::pin(async move { TcpStream::connect(endpoint.authority()).await })
    }
}
