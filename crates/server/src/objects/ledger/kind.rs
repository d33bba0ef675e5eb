//! The kinds of objects that clients make the server keep.

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
    /// Request frames that are being received or served.
    Frame,
    /// Replies that the client has not taken.
    Reply,
}

/// The number of kinds.
pub const KINDS: usize = 13;

impl Kind {
    /// All kinds, in the order of [`LIMITS`](crate::base::limits::LIMITS).
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
        Self::Frame,
        Self::Reply,
    ];

    /// True for buffers that go as soon as the peer does its part. They are slowed
    /// down, never refused.
    pub const fn is_passing(self) -> bool {
        matches!(self, Self::Frame | Self::Reply)
    }
}
