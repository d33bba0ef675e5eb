//! Tree connects: MS-SMB2 3.3.1.9.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frevo_wire::dtyp::AccessMask;

use crate::share::Share;

/// One use of a share by a session. Immutable but for its end.
#[derive(Debug)]
pub struct TreeConnect {
    /// TreeConnect.TreeId
    pub id: u32,
    /// TreeConnect.Share
    pub share: Arc<Share>,
    /// TreeConnect.MaximalAccess
    pub maximal_access: AccessMask,
    disconnected: AtomicBool,
}

impl TreeConnect {
    /// A new use of `share`.
    pub const fn new(id: u32, share: Arc<Share>, maximal_access: AccessMask) -> Self {
        Self { id, share, maximal_access, disconnected: AtomicBool::new(false) }
    }

    /// Marks the end. True for the one caller that ended it: of two
    /// parallel disconnects exactly one succeeds.
    pub fn disconnect(&self) -> bool {
        !self.disconnected.swap(true, Ordering::AcqRel)
    }

    /// Whether it has ended.
    pub fn is_disconnected(&self) -> bool {
        self.disconnected.load(Ordering::Acquire)
    }
}
