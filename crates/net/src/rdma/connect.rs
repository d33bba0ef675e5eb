//! Connecting to a listener.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::cm::{Channel, Id, Stage};
use super::endpoint::Endpoint;
use super::link::Link;
use super::state::State;
use super::watch;
use crate::limits::RDMA_READS_SERVED;

/// Connects to `peer` over RDMA. The negotiation of SMB Direct follows by itself.
///
/// # Errors
/// There is no RDMA here, no device reaches the peer, or the peer refuses.
pub async fn connect(peer: SocketAddr) -> io::Result<Endpoint> {
    let channel = Channel::open()?;
    let watched = watch(channel.watched()?)?;
    let id = Id::new(&channel)?;
    let reach = async |id: &Id, stage: Stage| loop {
        while channel.next()?.is_some() {}
        match id.fate.stage() {
            Stage::Over => return Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
            now if now >= stage => return Ok(()),
            _ => watched.readable().await?.clear_ready(),
        }
    };
    id.resolve_address(peer)?;
    reach(&id, Stage::AddressResolved).await?;
    id.resolve_route()?;
    reach(&id, Stage::RouteResolved).await?;
    let mut state = State::active(Link::new(id)?)?;
    state.link.id().connect(RDMA_READS_SERVED)?;
    reach(state.link.id(), Stage::Established).await?;
    state.go_on();
    Endpoint::new(state, Some(Arc::clone(&channel)))
}
