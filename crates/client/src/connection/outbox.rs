//! Frames to be sent, from any task.
//!
//! With several threads a task sends its frames itself, together with frames that other tasks
//! queued meanwhile: no task has to be woken. When the socket is full, the connection's
//! writer goes on.
//!
//! With one thread the writer sends small frames, after all tasks that could run have run:
//! their frames leave in one piece, which wakes the server once.
//!
//! A frame without a waiting caller leaves with the next frame, or after a moment: the server and this
//! client are woken once for both.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};

use frevo_net::buffer::Buf;
use frevo_net::transport::Stream;
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::limits::UNHURRIED_FOR;

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
    /// Wakes the task that sends frames without waiting callers, once for several.
    unhurried: Notify,
    /// True while that task looks for such frames.
    is_looked_for: AtomicBool,
    /// True if such a frame was queued since the task looked last.
    was_unhurried: AtomicBool,
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

    /// Queues `frame`, to be sent with the next one, or after a moment.
    ///
    /// # Errors
    /// Fails if the connection has ended.
    pub(super) fn push_unhurried(&self, frame: Buf, stream: &Stream) -> io::Result<()> {
        if self.gathers {
            return self.push(frame, stream);
        }
        let count = {
            let mut waiting = self.waiting.lock();
            waiting.push_back(frame);
            waiting.len()
        };
        if count >= BATCH {
            return self.drain(stream);
        }
        self.was_unhurried.store(true, Ordering::Release);
        if !self.is_looked_for.swap(true, Ordering::AcqRel) {
            self.unhurried.notify_one();
        }
        Ok(())
    }

    /// Sends as much as the socket takes.
    ///
    /// # Errors
    /// Fails if the connection has ended.
    pub(super) fn drain(&self, stream: &Stream) -> io::Result<()> {
        // If another task holds the lock, it checks the queue again after it has released the lock,
        // so no frame is left behind.
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

    /// Goes on after the socket was full, and sends frames without waiting callers, until the
    /// connection ends.
    pub(super) async fn run(&self, stream: &Stream) -> io::Result<()> {
        tokio::select! {
            biased;
            ended = self.go_on(stream) => ended,
            ended = self.send_unhurried(stream) => ended,
        }
    }

    /// Looks once in a while for frames without waiting callers, as long as there are some: a task that
    /// looks need not be woken for each of them.
    async fn send_unhurried(&self, stream: &Stream) -> io::Result<()> {
        loop {
            self.unhurried.notified().await;
            while self.is_looked_for.load(Ordering::Acquire) {
                sleep(UNHURRIED_FOR).await;
                // The flag is cleared before the queue is read, so a frame that is queued after
                // this sets it again.
                if !self.was_unhurried.swap(false, Ordering::AcqRel) {
                    self.is_looked_for.store(false, Ordering::Release);
                }
                self.drain(stream)?;
            }
        }
    }

    async fn go_on(&self, stream: &Stream) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;
    use std::sync::Arc;
    use std::time::Duration;

    use frevo_net::memory;
    use tokio::time::timeout;

    use super::*;

    fn frame(bytes: &[u8]) -> Buf {
        let mut frame = Buf::with_headroom(0, bytes.len());
        frame.extend_from_slice(bytes);
        frame
    }

    fn ends() -> (Stream, Stream) {
        let (ours, theirs) = memory::pair(1 << 20, ["127.0.0.1:445".parse().unwrap(); 2]);
        (Stream::Memory(ours), Stream::Memory(theirs))
    }

    /// Returns what has arrived; waits for the first byte.
    async fn arrived(stream: &Stream) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        loop {
            timeout(Duration::from_secs(20), stream.readable()).await.unwrap().unwrap();
            match stream.try_read_vectored(&mut [IoSliceMut::new(&mut bytes)]) {
                Ok(count) => {
                    bytes.truncate(count);
                    return bytes;
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }

    fn has_arrived(stream: &Stream) -> bool {
        stream.try_read_vectored(&mut [IoSliceMut::new(&mut [0; 16])]).is_ok()
    }

    #[test]
    fn a_frame_that_nobody_waits_for_leaves_with_the_next_one() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (ours, theirs) = ends();
            // The task `send_unhurried` does not run in this test, so waiting does not send the two
            // frames.
            let outbox = Outbox::new();
            outbox.push_unhurried(frame(b"close "), &ours).unwrap();
            outbox.push_unhurried(frame(b"both "), &ours).unwrap();
            sleep(3 * UNHURRIED_FOR).await;
            assert!(!has_arrived(&theirs));
            outbox.push(frame(b"and create"), &ours).unwrap();
            assert_eq!(arrived(&theirs).await, b"close both and create");
            // At most BATCH unhurried frames wait; the next frame sends them all.
            for _ in 0..BATCH {
                assert!(!has_arrived(&theirs));
                outbox.push_unhurried(frame(b"x"), &ours).unwrap();
            }
            assert_eq!(arrived(&theirs).await, [b'x'; BATCH]);
        });
    }

    #[test]
    fn a_frame_that_nobody_waits_for_leaves_soon() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (ours, theirs) = ends();
            let (outbox, ours) = (Arc::new(Outbox::new()), Arc::new(ours));
            let (running, stream) = (Arc::clone(&outbox), Arc::clone(&ours));
            let task = tokio::spawn(async move { running.run(&stream).await });
            for pause in [0, 1, 5, 2, 0, 10, 1, 0] {
                sleep(Duration::from_millis(pause)).await;
                outbox.push_unhurried(frame(b"close"), &ours).unwrap();
                assert_eq!(arrived(&theirs).await, b"close");
            }
            // The task `send_unhurried` clears the flag when it stops waiting for frames.
            while outbox.is_looked_for.load(Ordering::Acquire) {
                sleep(UNHURRIED_FOR).await;
            }
            task.abort();
        });
    }

    #[test]
    fn one_thread_sends_all_frames_after_its_tasks_have_run() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (ours, theirs) = ends();
            let (outbox, ours) = (Arc::new(Outbox::new()), Arc::new(ours));
            let (running, stream) = (Arc::clone(&outbox), Arc::clone(&ours));
            let task = tokio::spawn(async move { running.run(&stream).await });
            outbox.push_unhurried(frame(b"close "), &ours).unwrap();
            outbox.push(frame(b"create"), &ours).unwrap();
            assert!(!has_arrived(&theirs));
            assert_eq!(arrived(&theirs).await, b"close create");
            task.abort();
        });
    }
}
