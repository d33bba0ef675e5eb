//! Captures that are under way: a bounded queue of frames, which connections fill, and a writer.
//!
//! A connection never waits for the writer. A frame for which the queue has no room is left out, and counted
//! in the file.

mod file;
mod queue;

pub use file::{FileWriter, create};

use std::fmt;
use std::string::String;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use std::vec::Vec;

use crate::cut::{CaptureData, Plan};
use crate::limits::TAKEN_BYTES;
use crate::packet::Ends;
use crate::pcapng::Direction;
use crate::recorder::{Message, Origin, Outcome, Recorder, Settings};
use queue::{Event, Queue};

/// A capture, to which connections give their frames.
#[derive(Clone)]
pub struct Capture {
    queue: Arc<Queue>,
    connections: Arc<AtomicU64>,
    data: CaptureData,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}

impl Capture {
    /// Makes a capture whose queue holds so many bytes, and the source of the blocks of its file.
    pub fn new(settings: &Settings, queued_bytes: usize) -> (Self, Source) {
        let queue = Arc::new(Queue::new(queued_bytes));
        let mut blocks = Vec::new();
        let recorder = Recorder::begin(settings, &mut blocks);
        let connections = Arc::default();
        let capture = Self { queue: Arc::clone(&queue), connections, data: settings.data };
        (capture, Source { queue, recorder, blocks, is_ended: false })
    }

    /// Returns true until the file is full, its writer has failed, or the capture was ended.
    pub fn is_on(&self) -> bool {
        self.queue.is_on()
    }

    /// Takes no more frames. The writer writes those that wait, and the end of the file.
    pub fn end(&self) {
        self.queue.end();
    }

    /// Returns the bytes of the frames that wait for the writer.
    pub fn queued_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// Returns the data of files that it keeps.
    pub const fn data(&self) -> CaptureData {
        self.data
    }

    /// Makes the tap of a connection. It is `comment` for people.
    pub fn tap(&self, ends: Ends, is_server: bool, comment: String) -> Tap {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let origin = Arc::new(Origin { connection, ends, is_server, comment });
        Tap { queue: Arc::clone(&self.queue), origin, data: self.data }
    }
}

/// The place at which a connection gives its frames to a capture.
pub struct Tap {
    queue: Arc<Queue>,
    origin: Arc<Origin>,
    data: CaptureData,
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tap").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl Tap {
    /// Gives a frame that was received, without its prefix: decrypted and expanded.
    pub fn received(&self, frame: &[u8]) {
        self.give(Direction::Inbound, frame, 0);
    }

    /// Gives a frame that is sent, without its prefix: before it is signed, compressed and encrypted. `tail` bytes of
    /// data follow it that are not in memory; they are left out.
    pub fn sent(&self, frame: &[u8], tail: usize) {
        self.give(Direction::Outbound, frame, tail);
    }

    /// Returns true while the capture takes frames.
    pub fn is_on(&self) -> bool {
        self.queue.is_on()
    }

    fn give(&self, direction: Direction, frame: &[u8], tail: usize) {
        if !self.queue.is_on() {
            return;
        }
        let plan = Plan::new(frame, tail, self.data);
        let Some(reserved) = self.queue.reserve(plan.len) else { return };
        let kept = plan.copy();
        let origin = Arc::clone(&self.origin);
        self.queue.push(reserved, Event::Frame { origin, time_ns: now(), direction, kept });
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        if let Some(reserved) = self.queue.is_on().then(|| self.queue.reserve(0)).flatten() {
            let origin = Arc::clone(&self.origin);
            self.queue.push(reserved, Event::Closed { origin, time_ns: now() });
        }
    }
}

/// The end of a queue at which the blocks of a file come out.
#[derive(Debug)]
pub struct Source {
    queue: Arc<Queue>,
    recorder: Recorder,
    /// Blocks that were not taken.
    blocks: Vec<u8>,
    is_ended: bool,
}

impl Source {
    /// Puts the next blocks into `out`, in place of what it holds. They are none if no frame waits. Returns
    /// false after the last block of the file.
    pub fn next(&mut self, out: &mut Vec<u8>) -> bool {
        out.clear();
        out.append(&mut self.blocks);
        if self.is_ended {
            return false;
        }
        // The end is looked for first: a frame that is pushed before it is taken with those that wait.
        let may_end = self.queue.is_ended();
        let mut count = 0_usize;
        while out.len() < TAKEN_BYTES {
            let Some((event, dropped_before)) = self.queue.take() else { break };
            count = count.saturating_add(1);
            match event {
                Event::Frame { origin, time_ns, direction, mut kept } => {
                    let message = Message {
                        origin: &origin,
                        time_ns,
                        direction,
                        dropped_before,
                        frame: &mut kept.bytes,
                        cut: kept.cut,
                        zeroed: kept.zeroed,
                    };
                    self.recorder.message(message, out);
                    self.queue.free(kept.bytes.len());
                }
                Event::Closed { origin, time_ns } => {
                    self.recorder.close(&origin, time_ns, out);
                    self.queue.free(0);
                }
            }
        }
        if self.recorder.outcome().is_full {
            self.queue.end();
        }
        if may_end && count == 0 {
            self.is_ended = true;
            self.recorder.end(self.queue.take_dropped(), now(), out);
        }
        true
    }

    /// Waits until much waits in the queue, or a moment has passed.
    pub(crate) fn wait(&self) {
        self.queue.wait();
    }

    /// Has `waker` called once much waits in the queue.
    pub fn wake_by(&self, waker: &std::task::Waker) {
        self.queue.wake_by(waker);
    }

    /// Takes no more frames.
    pub fn end(&self) {
        self.queue.end();
    }

    /// Returns what was written so far.
    pub const fn outcome(&self) -> Outcome {
        self.recorder.outcome()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.queue.end();
        self.queue.clear();
    }
}

/// The time, nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
