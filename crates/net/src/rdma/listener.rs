//! Listening for RDMA connections.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

use super::cm::{Channel, Event, Id};
use super::endpoint::Detached;
use super::library::{Missing, library};
use super::values::Provider;
use super::watch;
use crate::limits::RDMA_LISTEN_AGAIN;

/// The reason why there is no RDMA here.
#[derive(Debug)]
pub enum Unavailable {
    /// rdma-core is not installed.
    Missing(Missing),
    /// The kernel's part is not there, or this process may not use it.
    Kernel(io::Error),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(missing) => missing.fmt(f),
            Self::Kernel(error) => write!(
                f,
                "this host has no RDMA connection manager that this user may use ({error}); load \
                 the kernel module rdma_ucm, and look at /dev/infiniband/rdma_cm"
            ),
        }
    }
}

impl std::error::Error for Unavailable {}

/// Finds out whether RDMA can be used here at all. It starts no thread.
///
/// # Errors
/// rdma-core or the kernel's part of it is missing.
pub fn is_here() -> Result<(), Unavailable> {
    let library = library().map_err(Unavailable::Missing)?;
    Channel::probe(library).map_err(Unavailable::Kernel)
}

fn open() -> Result<Arc<Channel>, Unavailable> {
    library().map_err(Unavailable::Missing)?;
    Channel::open().map_err(Unavailable::Kernel)
}

/// Returns the kind of the device that has `address`; None for an address without one.
pub fn provider_of(address: IpAddr) -> Option<Provider> {
    let channel = open().ok()?;
    let id = Id::new(&channel).ok()?;
    id.bind(SocketAddr::new(address, 0)).ok()?;
    let provider = if id.is_iwarp() { Provider::Iwarp } else { Provider::InfiniBand };
    id.has_device().then_some(provider)
}

/// A listener on some addresses, watched by the runtime in which it was made.
pub struct Listener {
    channel: Arc<Channel>,
    watched: AsyncFd<OwnedFd>,
    places: Mutex<Vec<ListenTarget>>,
}

/// An address to listen on.
struct ListenTarget {
    address: SocketAddr,
    /// None while its device is not there.
    id: Option<Id>,
}

impl Listener {
    /// Listens on `addresses`. An unspecified address means all RDMA devices.
    ///
    /// # Errors
    /// There is no RDMA here, or an address cannot be listened on: it is told with the error.
    pub fn bind(addresses: &[SocketAddr]) -> Result<Self, (Option<SocketAddr>, io::Error)> {
        let channel = open().map_err(|why| match why {
            Unavailable::Kernel(error) => (None, error),
            Unavailable::Missing(why) => (None, io::Error::new(io::ErrorKind::Unsupported, why)),
        })?;
        let watched = channel.watched().and_then(watch).map_err(|error| (None, error))?;
        let mut places = Vec::new();
        for &address in addresses {
            let id = listen(&channel, address).map_err(|error| (Some(address), error))?;
            places.push(ListenTarget { address: id.local_addr().unwrap_or(address), id: Some(id) });
        }
        Ok(Self { channel, watched, places: Mutex::new(places) })
    }

    /// Returns the addresses that it listens on.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.places.lock().iter().map(|place| place.address).collect()
    }

    /// Accepts the next connection, for any core: [`Detached::attach`] allocates what it needs,
    /// and dropping it refuses the connection. Dropping the future loses none.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn accept(&self) -> io::Result<(Detached, SocketAddr)> {
        loop {
            while let Some(event) = self.channel.next()? {
                if let Event::Request(request) = event
                    && let Ok(peer) = request.id.peer_addr()
                {
                    return Ok((Detached::asked(request), peer));
                }
            }
            let is_whole = self.listen_again();
            let again = Instant::now() + RDMA_LISTEN_AGAIN;
            tokio::select! {
                ready = self.watched.readable() => {
                    let mut ready = ready?;
                    ready.clear_ready();
                    // An event of a connection may have arrived before this wait began, so the loop
                    // reads the events again.
                }
                () = sleep_until(again), if !is_whole => {}
            }
        }
    }

    /// Listens again where a device was taken away and has come back. True if nothing is missing.
    fn listen_again(&self) -> bool {
        let mut is_whole = true;
        for place in self.places.lock().iter_mut() {
            if place.id.as_ref().is_none_or(|id| id.fate.is_over()) {
                place.id = None;
                place.id = listen(&self.channel, place.address).ok();
                is_whole &= place.id.is_some();
            }
        }
        is_whole
    }
}

fn listen(channel: &Arc<Channel>, address: SocketAddr) -> io::Result<Id> {
    let id = Id::new(channel)?;
    id.bind(address)?;
    if !address.ip().is_unspecified() && !id.has_device() {
        return Err(io::ErrorKind::AddrNotAvailable.into());
    }
    id.listen()?;
    Ok(id)
}
