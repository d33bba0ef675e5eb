//! The channels of a session for its user: where they lead, and what each has carried.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use frevo_net::transport::Transport;
use frevo_wire::dtyp::Guid;

use super::Session;
use crate::connection::Connection;

/// One connection of a session, and what it has carried.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelInfo {
    /// Number of the connection among all of this process.
    pub number: u64,
    /// Address of the server; `None` if the connection does not know it.
    pub server: Option<IpAddr>,
    /// True for a connection of SMB Direct.
    pub rdma: bool,
    /// True for a connection of SMB over QUIC.
    pub quic: bool,
    /// Requests.
    pub requests: u64,
    /// Bytes sent in requests.
    pub sent: u64,
    /// Bytes received in answers.
    pub received: u64,
}

impl ChannelInfo {
    fn of(connection: &Connection) -> Self {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let carried = &connection.carried;
        Self {
            number: connection.number,
            server: connection.peer(),
            rdma: connection.transport().facts().moves_data,
            quic: connection.transport() == Transport::Quic,
            requests: count(&carried.requests),
            sent: count(&carried.sent),
            received: count(&carried.received),
        }
    }
}

impl Session {
    /// The server's ServerGuid (MS-SMB2 2.2.4), which all its names and addresses share. `None`
    /// while the session is being recovered, and if the server sends none.
    pub(crate) fn server_guid(&self) -> Option<Guid> {
        let guid = self.inner.current()?.channel()?.connection.agreed().server_guid;
        (guid != Guid::default()).then_some(guid)
    }

    /// Returns true if both sessions may be with one server.
    #[doc(hidden)]
    pub fn may_be_of_one_server(&self, other: &Self) -> bool {
        self.server_guid().is_some_and(|guid| other.server_guid() == Some(guid))
    }

    /// Returns the connections in use; none while the session is lost and being recovered.
    pub fn channels(&self) -> Vec<ChannelInfo> {
        let Some(live) = self.inner.current() else { return Vec::new() };
        let channels = live.channels.read();
        let in_use = channels.iter().filter(|channel| !channel.connection.is_gone());
        in_use.map(|channel| ChannelInfo::of(&channel.connection)).collect()
    }
}
