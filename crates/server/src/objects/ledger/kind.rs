//! The kinds of objects that clients make the server keep.

use crate::base::limits::{
    ASSOCIATIONS_PER_ADDRESS, ASSOCIATIONS_PER_USER, CONNECTIONS_PER_ADDRESS, CONNECTIONS_PER_USER,
    LOCKS_PER_USER, LOGICAL_FLOWS_PER_USER, OPENS_PER_USER, RATE_BUCKETS_PER_USER,
    RPC_WAITS_PER_USER, SESSIONS_PER_ADDRESS, SESSIONS_PER_USER, TREES_PER_USER,
    WITNESS_REGISTRATIONS_PER_USER,
};

/// The kinds of things that are charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Kind {
    /// A transport connection.
    Connection,
    /// A session, valid or not.
    Session,
    /// A tree connect of a session.
    TreeConnect,
    /// An Open of a file, directory or pipe.
    Open,
    /// A directory's change watch.
    Watch,
    /// A request that waits for others, or an exchange for a session that waits for its client.
    Waiting,
    /// A byte-range lock.
    Lock,
    /// A lease or an oplock.
    Lease,
    /// The names of a directory enumeration under way.
    Listing,
    /// A pipe with the transaction it holds.
    Pipe,
    /// A token of an offloaded copy.
    Offload,
    /// An association of RPC over TCP, with all that it holds.
    Association,
    /// A call of RPC that waits for an event.
    RpcWait,
    /// A registration with the witness of a cluster.
    Registration,
    /// Limits of rate that an account, a session or an address has of its own.
    RateBucket,
    /// A logical flow of MS-SQOS.
    LogicalFlow,
    /// The windows of a QUIC connection.
    Window,
    /// A capture of messages, with its queue.
    Capture,
    /// Request frames that are being received or served.
    Frame,
    /// Replies that the client has not taken.
    Reply,
}

/// The number of kinds.
pub(crate) const KINDS: usize = 20;

/// Objects of each kind that one account, and one client network before logon, may
/// have. They are in the order of [`Kind`].
pub(super) const LIMITS: [(Kind, usize, usize); KINDS] = [
    (Kind::Connection, CONNECTIONS_PER_USER, CONNECTIONS_PER_ADDRESS),
    (Kind::Session, SESSIONS_PER_USER, SESSIONS_PER_ADDRESS),
    (Kind::TreeConnect, TREES_PER_USER, TREES_PER_USER),
    (Kind::Open, OPENS_PER_USER, OPENS_PER_USER),
    (Kind::Watch, usize::MAX, usize::MAX),
    (Kind::Waiting, usize::MAX, usize::MAX),
    (Kind::Lock, LOCKS_PER_USER, LOCKS_PER_USER),
    (Kind::Lease, usize::MAX, usize::MAX),
    (Kind::Listing, usize::MAX, usize::MAX),
    (Kind::Pipe, usize::MAX, usize::MAX),
    (Kind::Offload, usize::MAX, usize::MAX),
    (Kind::Association, ASSOCIATIONS_PER_USER, ASSOCIATIONS_PER_ADDRESS),
    (Kind::RpcWait, RPC_WAITS_PER_USER, 0),
    (Kind::Registration, WITNESS_REGISTRATIONS_PER_USER, 0),
    (Kind::RateBucket, RATE_BUCKETS_PER_USER, RATE_BUCKETS_PER_USER),
    (Kind::LogicalFlow, LOGICAL_FLOWS_PER_USER, LOGICAL_FLOWS_PER_USER),
    (Kind::Window, usize::MAX, usize::MAX),
    (Kind::Capture, 0, usize::MAX),
    (Kind::Frame, usize::MAX, usize::MAX),
    (Kind::Reply, usize::MAX, usize::MAX),
];

impl Kind {
    /// All kinds, in the order of [`LIMITS`].
    pub const ALL: [Self; KINDS] = [
        Self::Connection,
        Self::Session,
        Self::TreeConnect,
        Self::Open,
        Self::Watch,
        Self::Waiting,
        Self::Lock,
        Self::Lease,
        Self::Listing,
        Self::Pipe,
        Self::Offload,
        Self::Association,
        Self::RpcWait,
        Self::Registration,
        Self::RateBucket,
        Self::LogicalFlow,
        Self::Window,
        Self::Capture,
        Self::Frame,
        Self::Reply,
    ];

    /// True for buffers that go as soon as the peer does its part. They are slowed
    /// down, never refused.
    pub const fn is_passing(self) -> bool {
        matches!(self, Self::Frame | Self::Reply)
    }
}
