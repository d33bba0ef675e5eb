//! RDMA in a build without it: there is no connection and no listener.
//!
//! Servers and clients have the same code in both builds. Here no value of a connection can exist, so
//! that the compiler leaves out all that needs one.

mod values;

use std::convert::Infallible;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

pub(crate) use values::PREFIX_INVALIDATES;
pub use values::{Lending, Provider, RemoteBuffer, lockable_bytes};

use crate::buffer::Buf;

/// True for a build with RDMA.
pub const IS_BUILT: bool = false;

/// A connection of SMB Direct.
pub struct Endpoint(Infallible);

/// A connection without a runtime.
pub struct Detached(Infallible);

/// A listener.
pub struct Listener(Infallible);

/// A buffer that the peer may use.
pub struct Loan(Infallible);

/// The registered memory of one account: none.
#[derive(Debug, Default)]
pub struct Holder;

/// The reason why there is no RDMA: the build.
#[derive(Debug)]
pub struct Unavailable;

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this program was built without it (feature rdma)")
    }
}

impl std::error::Error for Unavailable {}

impl From<Unavailable> for io::Error {
    fn from(why: Unavailable) -> Self {
        Self::new(io::ErrorKind::Unsupported, why)
    }
}

/// Finds out whether RDMA can be used here at all.
///
/// # Errors
/// Always.
pub const fn is_here() -> Result<(), Unavailable> {
    Err(Unavailable)
}

/// Connects to a peer over RDMA.
///
/// # Errors
/// Always.
pub async fn connect(_: SocketAddr) -> io::Result<Endpoint> {
    Err(Unavailable.into())
}

/// Returns the kind of the device that leads to a peer.
///
/// # Errors
/// Always.
pub async fn provider_towards(_: SocketAddr) -> io::Result<Provider> {
    Err(Unavailable.into())
}

/// Returns the kind of the device that has an address: None, for there is no device.
pub const fn provider_of(_: IpAddr) -> Option<Provider> {
    None
}

/// Returns the bytes that are registered now.
#[must_use]
pub const fn registered_bytes() -> usize {
    0
}

/// Sets the bytes that may be registered at a time.
pub const fn set_registered_max(_: usize) {}

impl Holder {
    /// Returns the bytes that it has registered now.
    pub const fn bytes(&self) -> usize {
        0
    }
}

impl Listener {
    /// Listens on addresses.
    ///
    /// # Errors
    /// Always.
    pub fn bind(_: &[SocketAddr]) -> Result<Self, (Option<SocketAddr>, io::Error)> {
        Err((None, Unavailable.into()))
    }

    /// Returns the addresses that it listens on.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        match self.0 {}
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn accept(&self) -> io::Result<(Detached, SocketAddr)> {
        match self.0 {}
    }
}

impl Detached {
    /// Returns the peer's address.
    ///
    /// # Errors
    /// If it has none.
    pub const fn peer_addr(&self) -> io::Result<SocketAddr> {
        match self.0 {}
    }

    /// Binds the connection to the present runtime.
    ///
    /// # Errors
    /// The device has too little of something.
    pub const fn attach(self) -> io::Result<Endpoint> {
        match self.0 {}
    }
}

/// The stream of frames.
impl Endpoint {
    /// Returns the peer's address.
    pub const fn peer_addr(&self) -> SocketAddr {
        match self.0 {}
    }

    /// Returns the address of this side.
    pub const fn local_addr(&self) -> SocketAddr {
        match self.0 {}
    }

    /// Waits until both sides have negotiated SMB Direct.
    ///
    /// # Errors
    /// The connection has ended before.
    pub async fn established(&self) -> io::Result<()> {
        match self.0 {}
    }

    /// Waits until bytes or the end can be read.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn readable(&self) -> io::Result<()> {
        match self.0 {}
    }

    /// Waits until the connection has ended.
    pub async fn ended(&self) {
        match self.0 {}
    }

    /// Waits until bytes can be written.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn writable(&self) -> io::Result<()> {
        match self.0 {}
    }

    /// Reads the available bytes.
    ///
    /// # Errors
    /// `WouldBlock` if there are none, or the connection's failure.
    pub const fn try_read_vectored(&self, _: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self.0 {}
    }

    /// Writes as many bytes as there are credits for.
    ///
    /// # Errors
    /// `WouldBlock` if it takes none, or the connection's failure.
    pub const fn try_write_vectored(&self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.0 {}
    }

    /// Ends the connection at once.
    pub const fn abort(&self) {
        match self.0 {}
    }

    /// Takes the connection out of this runtime.
    ///
    /// # Errors
    /// If the connection is used at this moment.
    pub const fn detach(self) -> io::Result<Detached> {
        match self.0 {}
    }

    /// Looks at the device for all tasks of the connection.
    pub async fn drive(&self) -> Infallible {
        self.0
    }

    /// Gives the device what was posted; true if there was something.
    pub const fn ring(&self) -> bool {
        match self.0 {}
    }
}

/// Data that moves by RDMA.
impl Endpoint {
    /// Bytes of the longest message that the peer takes.
    pub const fn message_max(&self) -> u32 {
        match self.0 {}
    }

    /// Bytes that one request may move by RDMA.
    pub const fn transfer_max(&self) -> u32 {
        match self.0 {}
    }

    /// Bytes of registered memory.
    pub const fn held_bytes(&self) -> usize {
        match self.0 {}
    }

    /// Counts all registered memory for a holder from now on.
    pub const fn belong_to(&self, _: &Arc<Holder>) {
        match self.0 {}
    }

    /// Lets the peer have as many credits as it asks for.
    pub const fn trust(&self) {
        match self.0 {}
    }

    /// Writes a buffer to the peer's buffers.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn write_to_peer(&self, _: Buf, _: &[RemoteBuffer]) -> io::Result<()> {
        match self.0 {}
    }

    /// Reads bytes from the peer's buffers.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn read_from_peer(&self, _: usize, _: &[RemoteBuffer]) -> io::Result<Buf> {
        match self.0 {}
    }

    /// Lets the peer use a buffer for one request.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn lend(self: &Arc<Self>, _: Buf, _: Lending) -> io::Result<Loan> {
        match self.0 {}
    }

    /// Lets the peer use a buffer for one request, and invalidate its key.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn lend_window(self: &Arc<Self>, _: Buf, _: Lending) -> io::Result<Loan> {
        match self.0 {}
    }

    /// Returns the key of this side that the peer has invalidated with a frame.
    pub const fn invalidated_with(&self, _: u64) -> Option<u32> {
        match self.0 {}
    }
}

impl Loan {
    /// Returns the buffer as the peer is told of it.
    pub const fn remote(&self) -> RemoteBuffer {
        match self.0 {}
    }

    /// True if the peer can invalidate the key.
    pub const fn is_window(&self) -> bool {
        match self.0 {}
    }

    /// Ends the peer's use, and returns the buffer.
    pub async fn take_back(self) -> Option<Buf> {
        match self.0 {}
    }
}
