//! Memory that is lent to the peer for one request, by a client: MS-SMBD 3.1.4.3, 3.1.4.4.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::endpoint::Endpoint;
use super::link::{LentKey, RemoteBuffer};
use super::region::Access;
use crate::buffer::Buf;

/// The peer's use of a lent buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lending {
    /// It reads the bytes of the buffer.
    PeerReads,
    /// It writes into the spare room of the buffer, so many bytes.
    PeerWrites(usize),
}

/// A buffer that the peer may use until this is dropped, or the connection ends.
#[must_use = "dropping it ends the peer's use"]
pub struct Loan {
    endpoint: Arc<Endpoint>,
    /// None once it was taken back: another loan may have the number then.
    key: Option<LentKey>,
    remote: RemoteBuffer,
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Loan").field(&self.remote).finish()
    }
}

impl Endpoint {
    /// Lets the peer use a buffer for one request.
    ///
    /// # Errors
    /// The connection has ended, there was no room in the memory that may be registered, or
    /// `ulimit -l` is too small.
    pub async fn lend(self: &Arc<Self>, buf: Buf, lending: Lending) -> io::Result<Loan> {
        let (access, len) = match lending {
            Lending::PeerReads => (Access::PeerReads, buf.len()),
            Lending::PeerWrites(len) => (Access::PeerWrites(len), len),
        };
        let counted = self.reserve(len).await?;
        let lent = self.look(|state| state.link.lend(buf, access, counted));
        let (key, remote) = lent.ok_or(io::ErrorKind::NotConnected)??;
        Ok(Loan { endpoint: Arc::clone(self), key: Some(key), remote })
    }
}

impl Loan {
    /// Returns the buffer as the peer is told of it.
    pub const fn remote(&self) -> RemoteBuffer {
        self.remote
    }

    /// Ends the peer's use and returns the buffer. None if the connection is gone.
    pub fn take_back(mut self) -> Option<Buf> {
        self.end()
    }

    fn end(&mut self) -> Option<Buf> {
        let key = self.key.take()?;
        self.endpoint.look(|state| state.link.take_back(key)).flatten()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        drop(self.end());
    }
}
