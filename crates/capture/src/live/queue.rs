//! The queue between connections and the writer.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::cut::Kept;
use crate::limits::{QUEUED_OVERHEAD, TAKEN_BYTES};
use crate::pcapng::Direction;
use crate::recorder::Origin;

/// Time after which the writer looks at the queue if nobody wakes it. To wake it for each frame would cost
/// more than the frame.
const LOOK: Duration = Duration::from_millis(20);

/// An event of a connection.
pub(super) enum Event {
    /// A frame.
    Frame { origin: Arc<Origin>, time_ns: u64, direction: Direction, kept: Kept },
    /// The connection has ended.
    Closed { origin: Arc<Origin>, time_ns: u64 },
}

/// Room for an event.
pub(super) struct Reserved(());

/// The queue.
pub(super) struct Queue {
    is_on: AtomicBool,
    most: usize,
    /// Bytes of the events that wait, and of those that are being put there.
    bytes: AtomicUsize,
    /// Frames that were left out since the last one that was not.
    dropped: AtomicU64,
    waiting: Mutex<Waiting>,
    ready: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// Events, with the number of frames that were left out before each.
    events: VecDeque<(Event, u64)>,
    waker: Option<Waker>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Queue {
    pub(super) fn new(most: usize) -> Self {
        Self {
            is_on: AtomicBool::new(true),
            most,
            bytes: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            waiting: Mutex::default(),
            ready: Condvar::new(),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Returns true if no event comes any more but those that are being put there.
    pub(super) fn is_ended(&self) -> bool {
        !self.is_on() && self.bytes.load(Ordering::Acquire) == 0
    }

    pub(super) fn end(&self) {
        self.is_on.store(false, Ordering::Relaxed);
        self.wake();
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Reserves room for a frame of `len` bytes. Without room the frame is counted as left out.
    pub(super) fn reserve(&self, len: usize) -> Option<Reserved> {
        let cost = len.saturating_add(QUEUED_OVERHEAD);
        let before = self.bytes.fetch_add(cost, Ordering::AcqRel);
        if before.saturating_add(cost) > self.most {
            self.bytes.fetch_sub(cost, Ordering::AcqRel);
            if len > 0 {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
            return None;
        }
        if before < TAKEN_BYTES && before.saturating_add(cost) >= TAKEN_BYTES {
            self.wake();
        }
        Some(Reserved(()))
    }

    /// Puts an event into its place.
    pub(super) fn push(&self, _reserved: Reserved, event: Event) {
        let is_frame = matches!(event, Event::Frame { .. });
        let mut waiting = self.waiting.lock();
        let dropped = if is_frame { self.dropped.swap(0, Ordering::Relaxed) } else { 0 };
        waiting.events.push_back((event, dropped));
    }

    /// Takes the first event, whose room is [freed](Self::free) later.
    pub(super) fn take(&self) -> Option<(Event, u64)> {
        self.waiting.lock().events.pop_front()
    }

    /// Drops the events that wait, with their memory.
    pub(super) fn clear(&self) {
        let waiting = std::mem::take(&mut self.waiting.lock().events);
        drop(waiting);
    }

    /// Frees the room of a frame of `len` bytes.
    pub(super) fn free(&self, len: usize) {
        self.bytes.fetch_sub(len.saturating_add(QUEUED_OVERHEAD), Ordering::AcqRel);
    }

    /// Takes the number of frames that were left out after the last one that was not.
    pub(super) fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    /// Waits until much waits, or a moment has passed.
    pub(super) fn wait(&self) {
        let mut waiting = self.waiting.lock();
        if self.is_on() && self.bytes() < TAKEN_BYTES {
            self.ready.wait_for(&mut waiting, LOOK);
        }
    }

    /// Has `waker` called once much waits.
    pub(super) fn wake_by(&self, waker: &Waker) {
        self.waiting.lock().waker = Some(waker.clone());
    }

    fn wake(&self) {
        let waker = self.waiting.lock().waker.take();
        self.ready.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
