//! A tree connect: MS-SMB2 3.2.1.4.

use frevo_wire::command::tree_connect::{ShareCapabilities, ShareType};
use frevo_wire::dtyp::AccessMask;

/// A share in one session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    /// The session's number: see [`Live::generation`](super::Live).
    pub(crate) generation: u64,
    /// The number of the tree connect in the session.
    pub(crate) tree_id: u32,
    /// Requests for it are encrypted.
    pub(crate) seal: bool,
    pub(crate) capabilities: ShareCapabilities,
    pub(crate) kind: ShareType,
    pub(crate) maximal_access: AccessMask,
    /// TreeConnect.CompressData: the server wants data compressed.
    pub(crate) compress: bool,
    /// It is part of a DFS namespace.
    pub(crate) is_dfs: bool,
}

impl Bound {
    /// The rights that no user has in a read-only share.
    pub(crate) const WRITES: AccessMask =
        AccessMask(AccessMask::WRITE_DATA.0 | AccessMask::APPEND_DATA.0);

    /// True when the server said that the user may not change data in the share.
    pub(crate) const fn is_read_only(&self) -> bool {
        // An empty mask means that the server does not report the rights, so the share counts as
        // writable.
        !self.maximal_access.is_empty() && !self.maximal_access.intersects(Self::WRITES)
    }
}
