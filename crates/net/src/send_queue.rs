//! The queue of frames to send on one connection.
//!
//! Frames are pushed whole and leave in order. All frames that are ready leave in one vectored
//! write. A tail that lies in a file goes from the page cache to the socket by `sendfile` or
//! `splice` and never enters user space.
//!
//! A frame's prefix promises its length before its file tail is read. If the file has become
//! shorter meanwhile, zeros replace the missing bytes, as if the file had been cut a moment later.
//!
//! The queue belongs to one core: its calls take `&self` and lock nothing. On the server, handlers
//! push, and the connection's event loop calls [`SendQueue::try_flush`] and [`SendQueue::flush`].
//! On the client, one task for each connection runs [`SendQueue::run`].

use std::cell::{Cell, RefCell};
use std::io;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::limits::{
    SEND_BLOCKED_LOOK, SEND_QUEUE_BYTES_MAX, SEND_QUEUE_FRAMES_MAX, SEND_RATE_MIN,
    SEND_STALL_TIMEOUT, SENDFILE_BYTES_MIN, SPLICE_BYTES_MIN,
};
use crate::transport::Stream;
use crate::watchdog::yield_if_due;
pub use frame::{OutFrame, Segment};
use pending::{FRAME_OVERHEAD_BYTES, Pending, Sent};

mod frame;
mod pending;
mod pipe;

/// The limits of a queue.
#[derive(Clone, Copy, Debug)]
pub struct SendLimits {
    /// Bytes that make the queue full.
    pub bytes: usize,
    /// Frames that make the queue full.
    pub frames: usize,
    /// Time in which the peer must take `rate_min`, or everything that waits.
    pub stall: Duration,
    /// Least rate of the peer, bytes per second.
    pub rate_min: u32,
    /// File tails shorter than this are copied, bytes.
    pub sendfile_from: usize,
    /// File tails of at least this length are spliced, bytes.
    pub splice_from: usize,
}

impl Default for SendLimits {
    fn default() -> Self {
        Self {
            bytes: SEND_QUEUE_BYTES_MAX,
            frames: SEND_QUEUE_FRAMES_MAX,
            stall: SEND_STALL_TIMEOUT,
            rate_min: SEND_RATE_MIN,
            sendfile_from: SENDFILE_BYTES_MIN,
            splice_from: SPLICE_BYTES_MIN,
        }
    }
}

/// A queue of frames. See the module's text.
#[derive(Default)]
pub struct SendQueue {
    inner: RefCell<Pending>,
    limits: SendLimits,
    /// None while nothing waits for the transport.
    pace: Cell<Option<Pace>>,
    pushed: Notify,
}

/// The measure of a peer that keeps a queue waiting. It belongs to the queue and not to a call of
/// [`SendQueue::flush`], because callers drop those whenever the peer sends something.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// The beginning of the period.
    since: Instant,
    /// Bytes that the peer had taken at `since`. None until the queue is blocked for long.
    taken: Option<u64>,
    /// The time of the next look.
    until: Instant,
}

impl SendQueue {
    /// Makes an empty queue.
    #[must_use]
    pub fn new(limits: SendLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Appends a frame. A full queue asks for back-pressure but takes further frames, because the
    /// reply to an accepted request must find room. After [`Self::close`] or a failure the frame is
    /// dropped.
    ///
    /// # Panics
    /// If the frame is longer than a prefix can tell: the negotiated sizes bound replies.
    pub fn push(&self, frame: OutFrame) {
        let mut inner = self.inner.borrow_mut();
        if inner.closed {
            return;
        }
        inner.append(frame);
        drop(inner);
        self.pushed.notify_one();
    }

    /// True if no more requests should be accepted for now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let inner = self.inner.borrow();
        inner.bytes >= self.limits.bytes || inner.frames >= self.limits.frames
    }

    /// True if nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.borrow().waiting.is_empty()
    }

    /// True if it takes no more frames.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.borrow().closed
    }

    /// Returns the number of waiting bytes, prefixes included.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.inner.borrow().bytes
    }

    /// Returns an estimate of the memory of waiting frames: parts of files take none.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let inner = self.inner.borrow();
        inner.memory + inner.frames * FRAME_OVERHEAD_BYTES
    }

    /// Returns the number of waiting frames, including one that is partly sent.
    #[must_use]
    pub fn queued_frames(&self) -> usize {
        self.inner.borrow().frames
    }

    /// Returns the number of bytes given to the transport so far, prefixes included.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.inner.borrow().sent_bytes
    }

    /// Accepts no more frames; [`Self::run`] returns when the queue is empty.
    pub fn close(&self) {
        self.inner.borrow_mut().closed = true;
        self.pushed.notify_one();
    }

    /// Sends as much as the transport takes now, or as one turn has time for. True if nothing is left.
    ///
    /// # Errors
    /// The transport's failure, or that of a file that cannot be read: the stream cannot continue.
    /// The queue is then closed and empty.
    pub fn try_flush(&self, stream: &Stream) -> io::Result<bool> {
        Ok(self.send(stream)? == Sent::All)
    }

    fn send(&self, stream: &Stream) -> io::Result<Sent> {
        let mut inner = self.inner.borrow_mut();
        let outcome = inner.send(stream, &self.limits);
        if outcome.is_err() {
            inner.closed = true;
            inner.clear();
        }
        drop(inner);
        if !matches!(outcome, Ok(Sent::Some)) {
            self.pace.set(None);
        }
        outcome
    }

    /// Sends everything that waits. Dropping the future loses nothing: the next call continues at
    /// the next byte.
    ///
    /// # Errors
    /// The errors of [`Self::try_flush`], and `TimedOut` if the peer takes nothing, or too little,
    /// for too long.
    pub async fn flush(&self, stream: &Stream) -> io::Result<()> {
        loop {
            // A fast peer could keep this loop busy, so other tasks get a turn.
            tokio::task::coop::consume_budget().await;
            yield_if_due().await;
            match self.send(stream)? {
                Sent::All => return Ok(()),
                Sent::Step => continue,
                Sent::Some => {}
            }
            let until = self.watch(stream).inspect_err(|_| self.abandon())?;
            if let Ok(ready) = timeout_at(until, stream.writable()).await {
                ready?;
            }
        }
    }

    /// Watches a peer that does not take waiting bytes; returns the time of the next look.
    fn watch(&self, stream: &Stream) -> io::Result<Instant> {
        let now = Instant::now();
        let Some(pace) = self.pace.get() else {
            let until = now + SEND_BLOCKED_LOOK.min(self.limits.stall / 4);
            self.pace.set(Some(Pace { since: now, taken: None, until }));
            return Ok(until);
        };
        if now < pace.until {
            return Ok(pace.until);
        }
        let taken = self.sent_bytes().saturating_sub(stream.unacknowledged_bytes()? as u64);
        let needed = self.limits.stall.as_millis() as u64 * u64::from(self.limits.rate_min) / 1_000;
        let since = match pace.taken {
            None => pace.since,
            Some(before) if taken.saturating_sub(before) >= needed.max(1) => now,
            Some(_) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the peer reads too slowly"));
            }
        };
        let until = since + self.limits.stall;
        self.pace.set(Some(Pace { since, taken: Some(taken), until }));
        Ok(until)
    }

    /// Sends all pushed frames until the queue is closed and empty.
    ///
    /// # Errors
    /// The errors of [`Self::flush`].
    pub async fn run(&self, stream: &Stream) -> io::Result<()> {
        loop {
            self.flush(stream).await?;
            if self.is_closed() {
                return Ok(());
            }
            self.pushed.notified().await;
        }
    }

    /// Drops the frames that wait, and accepts no more.
    pub fn abandon(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.closed = true;
        inner.clear();
        drop(inner);
    }
}

#[cfg(test)]
mod tests;
