//! Notices from other cores to the core that owns a connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::objects::farewell::Farewell;
use crate::objects::lease::parcel::Parcel;

/// A message to the core that owns a connection.
#[derive(Debug)]
pub enum Notice {
    /// A session of this connection has ended elsewhere.
    SessionClosed(u64),
    /// Tell the client that its session has ended.
    Farewell(Box<Farewell>),
    /// Refuse the requests that wait for others: memory is full.
    GiveUpWaiting,
    /// Ends the connection for this reason.
    Disconnect(&'static str),
    /// Ends the connection: a share that it uses is not served here any more, or not now.
    ShareLeft,
    /// End the connection if no session has authenticated on it: newcomers need its place.
    Evicted,
    /// End the connection if it has no session.
    EndIfUnused,
    /// Notify the client of a break.
    Break(Box<Parcel>),
}

/// Sends notices to the core that owns a connection.
#[derive(Debug, Clone)]
pub struct ConnectionHandle(Arc<Mutex<Queue>>);

/// The notices of one connection, in the order in which they were sent.
///
/// Not a channel of tokio, which takes 1.3 KiB before anything is sent: few connections ever get a
/// notice.
#[derive(Debug)]
pub(crate) struct Notices(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Notice>,
    /// The task that waits for a notice.
    waker: Option<Waker>,
    is_closed: bool,
}

impl Queue {
    fn take(&mut self) -> Option<Notice> {
        let notice = self.waiting.pop_front();
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
        notice
    }
}

/// A new connection's notices, and what sends them.
pub(crate) fn notices() -> (ConnectionHandle, Notices) {
    let queue = Arc::new(Mutex::new(Queue::default()));
    (ConnectionHandle(Arc::clone(&queue)), Notices(queue))
}

impl ConnectionHandle {
    /// Sends a notice.
    ///
    /// # Errors
    /// Gives the notice back if the connection takes no more.
    pub fn send(&self, notice: Notice) -> Result<(), Notice> {
        let mut queue = self.0.lock();
        if queue.is_closed {
            return Err(notice);
        }
        queue.waiting.push_back(notice);
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

impl Notices {
    /// Takes the next notice, or has the task woken by the next one. Pending for ever once
    /// [closed](Self::close).
    pub(crate) fn poll_next(&self, cx: &Context<'_>) -> Poll<Notice> {
        let mut queue = self.0.lock();
        if let Some(notice) = queue.take() {
            return Poll::Ready(notice);
        }
        if !queue.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            queue.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Takes the next notice, if one has come already.
    pub(crate) fn try_next(&self) -> Option<Notice> {
        self.0.lock().take()
    }

    /// Refuses further notices. Those that have come stay.
    pub(crate) fn close(&self) {
        self.0.lock().is_closed = true;
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.close();
        // The notices are dropped after the lock is released, because a notice may hold the last
        // reference to an object.
        let left = std::mem::take(&mut self.0.lock().waiting);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use super::*;

    #[test]
    fn notices_come_in_order_and_none_after_the_end() {
        let (handle, notices) = notices();
        handle.send(Notice::SessionClosed(1)).unwrap();
        handle.send(Notice::Evicted).unwrap();
        notices.close();
        assert!(matches!(handle.send(Notice::GiveUpWaiting), Err(Notice::GiveUpWaiting)));
        assert!(matches!(notices.try_next(), Some(Notice::SessionClosed(1))));
        assert!(matches!(notices.try_next(), Some(Notice::Evicted)));
        assert!(notices.try_next().is_none());
        drop(notices);
        assert!(handle.send(Notice::EndIfUnused).is_err());
    }

    #[test]
    fn nothing_is_kept_of_a_connection_that_has_ended() {
        let (handle, notices) = notices();
        handle.send(Notice::Evicted).unwrap();
        drop(notices);
        assert!(handle.0.lock().waiting.is_empty());
    }

    #[tokio::test]
    async fn a_notice_from_another_thread_wakes_the_one_that_waits() {
        let (handle, notices) = notices();
        let sender = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            handle.send(Notice::SessionClosed(7))
        });
        let got =
            tokio::time::timeout(Duration::from_secs(10), poll_fn(|cx| notices.poll_next(cx)));
        assert!(matches!(got.await, Ok(Notice::SessionClosed(7))));
        sender.join().unwrap().unwrap();
    }
}
