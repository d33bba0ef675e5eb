//! The witness: another node of a cluster tells this client at once when the node that it uses is gone,
//! or when it is to move. MS-SWN 3.2, MS-SMB2 3.2.5.5.
//!
//! One task for each session with a share of a cluster asks the node in use for the interfaces of the
//! cluster, registers at one of them that is another node, and waits for notifications. A server without
//! a witness costs a few attempts, of which nobody hears. Nothing that a witness tells makes a session
//! less safe: a notification only ends a connection, and an address that it tells is logged on to as any
//! other of the server.

mod patience;
mod registration;
mod told;
mod watcher;

use std::net::IpAddr;
use std::time::Duration;

pub(crate) use patience::Recent;
pub(crate) use told::Verdict;
pub(crate) use watcher::Watcher;

use crate::rpc_over_tcp::Demand;

/// A node with the session that is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeInUse {
    /// The number of the logon.
    pub(crate) generation: u64,
    /// The address of the connection.
    pub(crate) ip: IpAddr,
    /// The share whose moves are told; `None` for a share that is at all nodes.
    pub(crate) share: Option<String>,
    /// The protection of calls to a witness.
    pub(crate) demand: Demand,
}

/// A session that is watched.
pub(crate) trait Watched: Send + Sync {
    /// Does what a witness tells. Returns false if the session stays: it is at another place, or other
    /// shares of it are not told of.
    fn heed(&self, place: &NodeInUse, verdict: &Verdict) -> bool;

    /// Returns false for an address that the user has ruled out: nobody logs on there.
    fn may_be_at(&self, ip: IpAddr) -> bool;
}

/// The witness of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WitnessInfo {
    /// The address of the node that watches; `None` while the session is not registered.
    pub address: Option<IpAddr>,
    /// Count of notifications that have been heeded.
    pub heeded: u64,
    /// The last one of them, and the time since then.
    pub last: Option<WitnessNews>,
}

/// A notification of a witness that has been heeded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WitnessNews {
    /// The node that has told it.
    pub by: IpAddr,
    /// The address that the session was to leave.
    pub left: IpAddr,
    /// The addresses that it was to move to; none if the node was gone.
    pub to: Vec<IpAddr>,
    /// Time since the notification.
    pub ago: Duration,
}
