//! Frames to be sent, from any task.
//!
//! With several threads a task sends its frames itself, together with frames that other tasks
//! queued meanwhile: no task has to be woken. When the socket is full, the connection's
//! writer goes on.
//!
//! With one thread the writer sends small frames, after all tasks that could run have run:
//! their frames leave in one piece, which wakes the server once.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use frevo_net::buffer::Buf;
use frevo_net::transport::Stream;
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;

/// Most segments of one system call.
const BATCH: usize = 32;

/// Shortest frame, bytes, that is sent at once, while it is in the processor's cache.
const AT_ONCE_FROM: usize = 16 << 10;

/// The queue of frames.
#[derive(Default)]
pub(super) struct Outbox {
    waiting: Mutex<VecDeque<Buf>>,
    /// Held by the task that writes.
    writing: Mutex<()>,
    /// Wakes the task that writes.
    left: Notify,
    gathers: bool,
}

impl Outbox {
    /// Makes an empty queue. Small frames are gathered if all tasks run on this thread.
    pub(super) fn new() -> Self {
        let gathers = Handle::try_current()
            .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::CurrentThread);
        Self { gathers, ..Self::default() }
    }

    /// Sends `frame` with its prefix, after the frames before it.
    ///
    /// # Errors
    /// Fails if the connection has ended.
    pub(super) fn push(&self, frame: Buf, stream: &Stream) -> io::Result<()> {
        let waits = self.gathers && frame.len() < AT_ONCE_FROM;
        self.waiting.lock().push_back(frame);
        if waits {
            self.left.notify_one();
            return Ok(());
        }
        self.drain(stream)
    }

    /// Sends as much as the socket takes.
    ///
    /// # Errors
    /// Fails if the connection has ended.
    pub(super) fn drain(&self, stream: &Stream) -> io::Result<()> {
        // The writing task looks again after it releases the lock: no frame is left behind.
        while !self.waiting.lock().is_empty() {
            let Some(_writing) = self.writing.try_lock() else { return Ok(()) };
            match self.write(stream) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.left.notify_one();
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes until the queue is empty or the socket is full.
    fn write(&self, stream: &Stream) -> io::Result<()> {
        loop {
            let mut batch: Vec<Buf> = {
                let mut waiting = self.waiting.lock();
                let count = waiting.len().min(BATCH);
                waiting.drain(..count).collect()
            };
            if batch.is_empty() {
                return Ok(());
            }
            let slices: Vec<_> = batch.iter().map(|frame| IoSlice::new(frame)).collect();
            let written = stream.try_write_vectored(&slices, false);
            drop(slices);
            let mut left = *written.as_ref().unwrap_or(&0);
            batch.retain_mut(|frame| {
                let taken = left.min(frame.len());
                frame.advance(taken);
                left -= taken;
                !frame.is_empty()
            });
            let mut waiting = self.waiting.lock();
            batch.into_iter().rev().for_each(|frame| waiting.push_front(frame));
            drop(waiting);
            match written {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => drop(other?),
            }
        }
    }

    /// Goes on after the socket was full, until the connection ends.
    pub(super) async fn run(&self, stream: &Stream) -> io::Result<()> {
        loop {
            self.left.notified().await;
            while !self.waiting.lock().is_empty() {
                stream.writable().await?;
                let outcome = {
                    let _writing = self.writing.lock();
                    self.write(stream)
                };
                match outcome {
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                    _ => {}
                }
            }
        }
    }
}
