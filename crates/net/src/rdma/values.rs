//! Values of RDMA that a build without it names, too.

/// Memory of a peer, as its descriptor names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteBuffer {
    /// Address of the first byte.
    pub address: u64,
    /// The peer's key.
    pub key: u32,
    /// Length in bytes.
    pub length: u32,
}

/// The peer's use of a lent buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lending {
    /// It reads the bytes of the buffer.
    PeerReads,
    /// It writes into the spare room of the buffer, so many bytes.
    PeerWrites(usize),
}

/// The kind of an RDMA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// InfiniBand or RoCE.
    InfiniBand,
    /// iWARP, whose ports are those of TCP.
    Iwarp,
}

impl Provider {
    /// Returns the port of SMB Direct over such a device: MS-SMBD 2.1. The usual port is TCP's over
    /// iWARP, so that SMB Direct has another one there.
    #[must_use]
    pub const fn port(self) -> u16 {
        match self {
            Self::InfiniBand => 445,
            Self::Iwarp => 5445,
        }
    }
}

/// Returns the bytes that this process may pin in memory (`ulimit -l`); None for no limit.
#[must_use]
pub fn lockable_bytes() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current
}

/// First byte of a prefix behind which four bytes are a key of the peer, which the frame
/// invalidates. Only a send queue writes it; it is never received.
pub(crate) const PREFIX_INVALIDATES: u8 = 1;
