//! An open directory of a share.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A directory that stays open during work on one of its entries.
#[derive(Debug, Clone)]
pub(crate) enum Dir {
    /// The root directory of the share.
    Root(Arc<OwnedFd>),
    /// A directory below the root.
    Sub(Arc<OwnedFd>),
}

impl Dir {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Root(fd) | Self::Sub(fd) => fd.as_fd(),
        }
    }
}
