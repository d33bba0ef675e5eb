//! Memory that is lent to the peer for one request, by a client: MS-SMBD 3.1.4.3, 3.1.4.4.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::endpoint::Endpoint;
use super::lent::{Back, LentKey};
use super::region::Access;
use super::values::{Lending, RemoteBuffer};
use crate::buffer::Buf;

/// A buffer that the peer may use until it invalidates the key, or this is dropped, or the
/// connection ends.
#[must_use = "dropping it ends the peer's use"]
pub struct Loan {
    endpoint: Arc<Endpoint>,
    /// None once it was taken back: another loan may have the number then.
    key: Option<LentKey>,
    remote: RemoteBuffer,
    is_window: bool,
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
        self.lend_as(buf, lending, false).await
    }

    /// Lets the peer use a buffer for one request, and invalidate its key with the answer if the
    /// device can let it: [`Loan::is_window`] tells.
    ///
    /// # Errors
    /// As [`Self::lend`].
    pub async fn lend_window(self: &Arc<Self>, buf: Buf, lending: Lending) -> io::Result<Loan> {
        self.lend_as(buf, lending, true).await
    }

    async fn lend_as(self: &Arc<Self>, buf: Buf, lend: Lending, window: bool) -> io::Result<Loan> {
        let (access, len) = match lend {
            Lending::PeerReads => (Access::PeerReads, buf.len()),
            Lending::PeerWrites(len) => (Access::PeerWrites(len), len),
        };
        // A window covers the registration of the whole block, so all of its capacity counts.
        let bytes = if window { buf.capacity() } else { len };
        let mut buf = Some(buf);
        let lent = self.room(bytes, |state| state.link.lend(&mut buf, access, window));
        let (key, remote, is_window) = lent.await??;
        Ok(Loan { endpoint: Arc::clone(self), key: Some(key), remote, is_window })
    }

    /// Returns the key of this side that the peer has invalidated with a frame, MS-SMBD 3.1.5.8.
    /// The first frame of the connection is 0. Each is asked for once, in their order.
    pub fn invalidated_with(&self, frame: u64) -> Option<u32> {
        self.look(|state| state.invalidated_with(frame)).flatten()
    }
}

impl Loan {
    /// Returns the buffer as the peer is told of it.
    pub const fn remote(&self) -> RemoteBuffer {
        self.remote
    }

    /// True if the peer can invalidate the key. A key of another kind it cannot: its attempt would
    /// end the connection.
    pub const fn is_window(&self) -> bool {
        self.is_window
    }

    /// Ends the peer's use, if it has not done so, and returns the buffer. None if the connection
    /// is gone.
    pub async fn take_back(mut self) -> Option<Buf> {
        let key = self.key?;
        let endpoint = Arc::clone(&self.endpoint);
        let back = endpoint.wait(|state| match state.link.take_back(key) {
            Back::NotYet => {
                // The request that binds the window may still be queued. `ring` gives all queued
                // requests to the device.
                state.ring();
                None
            }
            back => Some(back),
        });
        let back = back.await.ok()?;
        self.key = None;
        match back {
            Back::Buf(buf) => Some(buf),
            Back::NotYet | Back::Gone => None,
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.endpoint.look(|state| {
                state.link.abandon(key);
                state.ring();
            });
        }
    }
}
