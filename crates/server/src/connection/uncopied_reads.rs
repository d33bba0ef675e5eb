//! READs of a client on this host: does it have little in flight at a time, or much?
//!
//! A reply that goes from file to socket takes the server half of the processor time, but leaves the
//! copy out of the page cache to the client. With little in flight the client is served at least as
//! fast so. With much in flight both work at once, and the client, which then has more to do, is the
//! slower one (docs/adr/0003).

use std::cell::Cell;

use crate::base::limits::{UNCOPIED_READ_BYTES_MAX, UNCOPIED_TOGETHER_BYTES_MAX};

/// The READs of a connection that come together.
#[derive(Debug, Default)]
pub(super) struct UncopiedReads {
    /// True once READs came together that ask for more than the limit. That stays: a client that is
    /// slower than the server is seen with one request at a time, however many it has in flight.
    is_large: Cell<bool>,
}

impl UncopiedReads {
    /// See [`Connection::is_read_without_copy`](super::Connection::is_read_without_copy). `waiting` are
    /// the bytes of replies that have not left.
    pub(super) fn is_small(&self, waiting: usize, bytes: u32) -> bool {
        let together = waiting.saturating_add(bytes as usize);
        if waiting > 0 && together > UNCOPIED_TOGETHER_BYTES_MAX {
            self.is_large.set(true);
        }
        !self.is_large.get() && bytes <= UNCOPIED_READ_BYTES_MAX
    }
}
