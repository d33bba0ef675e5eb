//! RDMA: SMB Direct in user space, over rdma-core.
//!
//! rdma-core is loaded when it is first needed. [`Listener`] accepts connections, [`Endpoint`] is
//! one: to its owner a stream of frames, and a way to move data between buffers and a peer's
//! memory. Each connection has a protection domain of its own, so that no peer's request can reach
//! memory of another's, and no memory is ever open to a peer's requests, but for the length of one
//! RDMA read on an iWARP device.
//!
//! A build without the feature `rdma` has `rdma/absent.rs` in place of this module: the same names,
//! without a connection.
//!
//! A [`Fabric`] makes connections in memory in place of a device's, for tests and the simulator.

#[cfg(test)]
mod attacks;
mod cm;
mod connect;
mod counters;
mod device;
mod driver;
mod endpoint;
mod fabric;
mod ffi;
mod lent;
mod library;
mod link;
mod listener;
mod loan;
mod memory;
mod queue_pair;
mod quota;
mod region;
mod state;
mod threads;
mod values;
mod window;

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub use connect::{connect, provider_towards};
pub use counters::{Counts, counts};
pub use endpoint::{Detached, Endpoint};
pub use fabric::{Fabric, Packet, Wire};
pub use library::Missing;
pub use listener::{Listener, Unavailable, is_here, provider_of};
pub use loan::Loan;
pub use quota::{Holder, registered_bytes, set_registered_max};
pub(crate) use values::PREFIX_INVALIDATES;
pub use values::{Lending, Provider, RemoteBuffer, lockable_bytes};

/// True for a build with RDMA.
pub const IS_BUILT: bool = true;

/// Has this runtime watch a descriptor for events to take.
fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the OwnedFd names one open descriptor until its drop closes it, and the AsyncFd
    // deregisters the descriptor before that.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}
