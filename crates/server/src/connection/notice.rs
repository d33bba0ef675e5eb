//! Notices from other cores to the core that owns a connection.

use tokio::sync::mpsc::UnboundedSender;

use crate::lease::parcel::Parcel;

/// Sends notices to the core that owns a connection.
pub type ConnectionHandle = UnboundedSender<Notice>;

/// A message to the core that owns a connection.
#[derive(Debug)]
pub enum Notice {
    /// A session of this connection has ended elsewhere.
    SessionClosed(u64),
    /// Refuse the requests that wait for others: memory is full.
    GiveUpWaiting,
    /// Ends the connection for this reason.
    Disconnect(&'static str),
    /// End the connection if no session has authenticated on it: newcomers need its place.
    Evicted,
    /// End the connection if it has no session.
    EndIfUnused,
    /// Notify the client of a break. Boxed: every connection holds room for 32 notices, and
    /// few ever get one.
    Break(Box<Parcel>),
}
