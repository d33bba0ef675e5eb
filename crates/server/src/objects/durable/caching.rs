//! The caching that the survival of an Open depends on.

use frevo_wire::create_context::LeaseKey;

/// The caching of an Open, as far as its survival depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// Nothing: no lease, no oplock.
    Nothing,
    /// Open.OplockLevel is not NONE.
    Oplock {
        /// Open.OplockLevel is SMB2_OPLOCK_LEVEL_BATCH and Open.OplockState Held.
        is_batch: bool,
    },
    /// Open.Lease is not NULL.
    Lease {
        /// Lease.LeaseKey
        key: LeaseKey,
        /// Lease.Version
        version: u8,
        /// Lease.LeaseState contains SMB2_LEASE_HANDLE_CACHING and Open.OplockState
        /// is Held.
        handle: bool,
        /// Lease.FileDeleteOnClose
        deletes: bool,
    },
}

impl Caching {
    /// True when the client may keep the handle by itself, so that a durable Open is kept
    /// (MS-SMB2 3.3.7.1).
    pub const fn keeps_handle(self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Oplock { is_batch } => is_batch,
            Self::Lease { handle, .. } => handle,
        }
    }
}
