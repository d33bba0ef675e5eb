//! Connecting to a listener.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use super::cm::{Channel, Fate, Id, Stage};
use super::endpoint::Endpoint;
use super::link::Link;
use super::queue_pair::QueuePair;
use super::state::State;
use super::values::Provider;
use super::watch;
use crate::limits::{RDMA_READS_SERVED, RDMA_RESOLVE_FIRST, RDMA_RESOLVE_TIMEOUT};

/// Connects to `peer` over RDMA. The negotiation of SMB Direct follows by itself.
///
/// # Errors
/// There is no RDMA here, no device reaches the peer, or the peer refuses.
pub async fn connect(peer: SocketAddr) -> io::Result<Endpoint> {
    let (link, begun) = link_towards(peer).await?;
    let mut state = State::active(QueuePair::Device(link))?;
    state.link.connect(RDMA_READS_SERVED)?;
    let fate = Arc::clone(state.link.fate());
    begun.established(&fate).await?;
    state.go_on();
    state.ring();
    Endpoint::new(state, Some(begun.channel))
}

/// Makes a queue pair for a connection to `peer`, which is begun once receives are posted.
pub(super) async fn link_towards(peer: SocketAddr) -> io::Result<(Link, Begun)> {
    let Way { channel, watched, id } = Way::towards(peer).await?;
    id.resolve_route()?;
    let fate = Arc::clone(&id.fate);
    reach(&channel, &watched, &fate, Stage::RouteResolved).await?;
    Ok((Link::new(id)?, Begun { channel, watched }))
}

/// A connection that has found its way.
pub(super) struct Begun {
    channel: Arc<Channel>,
    watched: AsyncFd<OwnedFd>,
}

impl Begun {
    /// Waits until the connection is established.
    pub(super) async fn established(&self, fate: &Fate) -> io::Result<()> {
        reach(&self.channel, &self.watched, fate, Stage::Established).await
    }

    /// Takes the events that have come.
    #[cfg(test)]
    pub(super) fn take_events(&self) {
        while matches!(self.channel.next(), Ok(Some(_))) {}
    }
}

/// Returns the kind of the device that leads to `peer`: it decides on the port.
///
/// # Errors
/// There is no RDMA here, or no device leads there.
pub async fn provider_towards(peer: SocketAddr) -> io::Result<Provider> {
    let way = Way::towards(peer).await?;
    Ok(if way.id.is_iwarp() { Provider::Iwarp } else { Provider::InfiniBand })
}

/// An identifier that has found the device towards a peer.
struct Way {
    channel: Arc<Channel>,
    watched: AsyncFd<OwnedFd>,
    id: Id,
}

impl Way {
    /// Finds the device. The kernel may miss the answer to its ARP request, and looks for it again
    /// only when the time limit of the attempt ends: the first attempts are short.
    async fn towards(peer: SocketAddr) -> io::Result<Self> {
        let begun = Instant::now();
        let mut limit = RDMA_RESOLVE_FIRST;
        loop {
            let tried = Instant::now();
            match Self::resolved(peer, limit).await {
                // Half of the limit counts as a timeout, because the kernel's clock is coarser than
                // the clock used here. So the next attempt gets twice as long.
                Err(_)
                    if tried.elapsed() >= limit / 2 && begun.elapsed() < RDMA_RESOLVE_TIMEOUT =>
                {
                    limit *= 2;
                }
                found => return found,
            }
        }
    }

    /// Makes one attempt.
    async fn resolved(peer: SocketAddr, limit: Duration) -> io::Result<Self> {
        let channel = Channel::open()?;
        let watched = watch(channel.watched()?)?;
        let id = Id::new(&channel)?;
        id.resolve_address(peer, limit)?;
        let fate = Arc::clone(&id.fate);
        reach(&channel, &watched, &fate, Stage::AddressResolved).await?;
        id.note_device();
        Ok(Self { channel, watched, id })
    }
}

/// Takes events until the identifier has reached a stage.
async fn reach(
    channel: &Arc<Channel>,
    watched: &AsyncFd<OwnedFd>,
    fate: &Fate,
    stage: Stage,
) -> io::Result<()> {
    loop {
        while channel.next()?.is_some() {}
        match fate.stage() {
            Stage::Over => return Err(io::ErrorKind::ConnectionRefused.into()),
            now if now >= stage => return Ok(()),
            _ => watched.readable().await?.clear_ready(),
        }
    }
}
