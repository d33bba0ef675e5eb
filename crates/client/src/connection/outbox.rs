//! Frames on their way out, from any task.
//!
//! Where tasks run on several threads, whoever has something to send sends it himself, and
//! what others queued meanwhile with it: no task has to be woken for that. Only when the
//! socket takes no more does the connection's writer go on.
//!
//! On one thread the writer sends what is small, after all tasks that could run have run:
//! what they had to say leaves in one piece, which wakes the server once.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use frevo_net::buffer::Buf;
use frevo_net::transport::Stream;
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;

/// Segments handed to one system call.
const BATCH: usize = 32;

/// Frames this long are sent at once, while they are in the cache.
const AT_ONCE_FROM: usize = 16 << 10;

/// See the module's text.
#[derive(Default)]
pub(super) struct Outbox {
    waiting: Mutex<VecDeque<Buf>>,
    /// Held by the one who is writing.
    writing: Mutex<()>,
    /// There is something for the writer.
    left: Notify,
    gathers: bool,
}

impl Outbox {
    /// One whose small frames wait for each other, if all tasks are on this thread.
    pub(super) fn new() -> Self {
        let gathers = Handle::try_current()
            .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::CurrentThread);
        Self { gathers, ..Self::default() }
    }

    /// Sends `frame`, prefix and all, after those before it.
    ///
    /// # Errors
    /// When the connection has ended.
    pub(super) fn push(&self, frame: Buf, stream: &Stream) -> io::Result<()> {
        let waits = self.gathers && frame.len() < AT_ONCE_FROM;
        self.waiting.lock().push_back(frame);
        if waits {
            self.left.notify_one();
            return Ok(());
        }
        self.drain(stream)
    }

    /// Sends all that the socket takes.
    ///
    /// # Errors
    /// When the connection has ended.
    pub(super) fn drain(&self, stream: &Stream) -> io::Result<()> {
        // Whoever writes looks again after letting go: nothing is left behind.
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

    /// Writes until nothing is left or the socket is full.
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

    /// Goes on whenever the socket was full. Ends with the connection.
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
