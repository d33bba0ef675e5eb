//! Memory that is lent to the server for one request, where there is RDMA.

use frevo_net::buffer::Buf;
#[cfg(feature = "rdma")]
use {std::io, std::sync::Arc};

use crate::error::Cause;

/// Memory that is lent to the server for one request.
#[cfg(feature = "rdma")]
pub(crate) struct Loan(pub(super) frevo_net::rdma::Loan);

/// There is none in a build without RDMA.
#[cfg(not(feature = "rdma"))]
pub(crate) enum Loan {}

impl Loan {
    /// Takes the memory back: the server can no longer use it.
    #[cfg(feature = "rdma")]
    pub(crate) fn take_back(self) -> Result<Buf, Cause> {
        let lost = || Cause::Transport(Arc::new(io::ErrorKind::ConnectionReset.into()));
        self.0.take_back().ok_or_else(lost)
    }

    #[cfg(not(feature = "rdma"))]
    pub(crate) const fn take_back(self) -> Result<Buf, Cause> {
        match self {}
    }
}
