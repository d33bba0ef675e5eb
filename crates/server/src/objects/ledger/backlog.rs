//! The memory of one connection, as other connections and threads may see it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use frevo_net::quic::Allowance;
use tokio::sync::Semaphore;

/// The bytes of one connection, and the line of its replies that wait for memory. A client that takes no
/// answers has its part, so that the account's other clients need not wait for it.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Bytes of requests and replies.
    all: AtomicUsize,
    /// Bytes of replies that the client has not taken.
    replies: AtomicUsize,
    /// Bytes of replies that are being built.
    built: AtomicUsize,
    /// Compressed requests that wait for the memory that they expand to.
    expanding: AtomicUsize,
    /// True once the connection ends.
    is_over: AtomicBool,
    /// The permit of the first reply in line, made when one waits for the first time.
    first: OnceLock<Box<Semaphore>>,
    /// The charge for the windows of a connection of QUIC.
    window: OnceLock<Arc<dyn Allowance>>,
}

impl Backlog {
    /// Bytes of requests and replies.
    pub(super) fn all(&self) -> usize {
        self.all.load(Ordering::Relaxed)
    }

    /// Keeps the charge for the windows, if the connection has one.
    pub(crate) fn keep_window(&self, window: Option<Arc<dyn Allowance>>) {
        if let Some(window) = window {
            let _ = self.window.set(window);
        }
    }

    /// The charge for the windows, if the connection has one.
    pub(super) fn window(&self) -> Option<Arc<dyn Allowance>> {
        self.window.get().cloned()
    }

    /// Counts the connection's bytes as freed: it is about to end.
    pub(super) fn forget(&self) {
        self.all.store(0, Ordering::Relaxed);
    }

    /// Sets the bytes that the connection has now.
    pub(super) fn set(&self, frames: usize, replies: usize) {
        self.all.store(frames.saturating_add(replies), Ordering::Relaxed);
        self.replies.store(replies, Ordering::Relaxed);
    }

    /// Counts a reply that is to be built, unless the connection would have more than `most` bytes. One
    /// reply may be built in any case.
    pub(super) fn try_count(self: &Arc<Self>, bytes: usize, most: usize) -> Option<Counted> {
        // The reply is counted first, so that several threads together do not count too much.
        let built = self.built.fetch_add(bytes, Ordering::Relaxed);
        let counted = Counted { backlog: Arc::clone(self), bytes };
        let others = built.saturating_add(self.replies.load(Ordering::Relaxed));
        (others == 0 || others.saturating_add(bytes) <= most).then_some(counted)
    }

    /// True while a compressed request waits for memory: nothing behind it is read.
    pub(crate) fn has_compressed(&self) -> bool {
        self.expanding.load(Ordering::Relaxed) > 0
    }

    /// Counts a compressed request that waits for memory, until the result is dropped.
    pub(super) fn await_expansion(&self) -> Awaiting<'_> {
        self.expanding.fetch_add(1, Ordering::Relaxed);
        Awaiting(&self.expanding)
    }

    /// Ends the waits of compressed requests for memory: the connection ends.
    pub(crate) fn end_waits(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// True once the connection ends.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// True while a reply waits for memory.
    pub(super) fn has_line(&self) -> bool {
        self.first.get().is_some_and(|first| first.available_permits() == 0)
    }

    /// The permit of the first reply in line.
    pub(super) fn first(&self) -> &Semaphore {
        self.first.get_or_init(|| Box::new(Semaphore::new(1)))
    }
}

/// The count of a reply that is to be built, until this is dropped.
#[derive(Debug)]
pub(super) struct Counted {
    backlog: Arc<Backlog>,
    pub(super) bytes: usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.backlog.built.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A compressed request that waits for memory.
pub(super) struct Awaiting<'a>(&'a AtomicUsize);

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
