//! READs of a client on this host: does it have one in flight at a time, or several?
//!
//! A reply that goes from file to socket takes the server half of the processor time, but leaves the
//! copy out of the page cache to the client. With one request in flight client and server take turns,
//! and their times add up: the client is served faster so. With several in flight both work at once,
//! and the client, which then has more to do, is the slower one (docs/adr/0003).

use std::cell::Cell;

use crate::limits::LONE_READ_BYTES_MAX;

/// The company of requests on a connection.
#[derive(Debug, Default)]
pub(super) struct Company {
    /// True while the request that is being begun has others beside it.
    is_here: Cell<bool>,
    /// True once a READ that asked [`Self::is_lone_read`] had company. That stays: a client that
    /// is slower than the server is seen with one request at a time, however many it has in flight.
    of_reads: Cell<bool>,
}

impl Company {
    /// Notes before a request is begun whether another has come, or a reply has not left.
    pub(super) fn note(&self, is_here: bool) {
        self.is_here.set(is_here);
    }

    /// See [`Connection::is_lone_read`](super::Connection::is_lone_read).
    pub(super) fn is_lone_read(&self, bytes: u32) -> bool {
        self.of_reads.set(self.of_reads.get() || self.is_here.get());
        !self.of_reads.get() && bytes <= LONE_READ_BYTES_MAX
    }
}
