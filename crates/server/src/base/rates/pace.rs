//! Requests that wait for limits of rate, as their connection counts them.

use std::cell::{Cell, RefCell};
use std::task::Waker;
use std::time::Duration;

/// The way of one request through the limits.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Time that it has waited.
    pub(crate) held: Cell<Duration>,
    /// True once it has come to the limits.
    pub(crate) is_admitted: Cell<bool>,
    /// True while it waits.
    pub(crate) is_held: Cell<bool>,
    /// True where there is no room to announce its wait: it waits all the same.
    pub(crate) is_unannounced: Cell<bool>,
    /// Data that it has copied on the server.
    pub(crate) moved: Cell<Moved>,
}

/// Bytes that a copy on the server has moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Bytes that were read.
    pub(crate) read: u64,
    /// Bytes that were written.
    pub(crate) written: u64,
}

impl Pace {
    /// Notes data that was copied, or zeros that were written without a source.
    pub(crate) fn note_moved(&self, read: u64, written: u64) {
        let before = self.moved.get();
        self.moved.set(Moved {
            read: before.read.saturating_add(read),
            written: before.written.saturating_add(written),
        });
    }
}

/// The requests of a connection that wait for limits of rate.
#[derive(Debug, Default)]
pub(crate) struct HeldRequests {
    requests: Cell<usize>,
    bytes: Cell<usize>,
    /// The event loop, while it does not read.
    event_loop: RefCell<Option<Waker>>,
}

impl HeldRequests {
    /// The number of requests.
    pub(crate) const fn requests(&self) -> usize {
        self.requests.get()
    }

    /// The bytes of their messages.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Has `waker` woken when fewer wait.
    pub(crate) fn wake_by(&self, waker: &Waker) {
        self.event_loop.replace(Some(waker.clone()));
    }
}

/// A request that waits, counted on its connection.
pub(crate) struct HeldRequest<'a> {
    all: &'a HeldRequests,
    bytes: usize,
}

impl<'a> HeldRequest<'a> {
    /// Counts a request with a message of `bytes`, until it is dropped.
    pub(crate) fn new(all: &'a HeldRequests, bytes: usize) -> Self {
        all.requests.set(all.requests.get().saturating_add(1));
        all.bytes.set(all.bytes.get().saturating_add(bytes));
        Self { all, bytes }
    }
}

impl Drop for HeldRequest<'_> {
    fn drop(&mut self) {
        self.all.requests.set(self.all.requests.get().saturating_sub(1));
        self.all.bytes.set(self.all.bytes.get().saturating_sub(self.bytes));
        self.all.event_loop.take().into_iter().for_each(Waker::wake);
    }
}
