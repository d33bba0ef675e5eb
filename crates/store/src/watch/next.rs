//! Requests that wait for changes.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use super::{Reported, Wakers, Watch, wake};

/// A waiting request. Dropping it passes its turn to the request behind it.
#[derive(Debug)]
#[must_use = "a request waits only while it is polled"]
pub struct Next<'a> {
    watch: &'a Watch,
    ticket: u64,
}

impl<'a> Next<'a> {
    pub(super) fn new(watch: &'a Watch) -> Self {
        let mut wakers = Wakers::new();
        let ticket = watch.directory.log.lock().arrive(watch.id, &mut wakers);
        wake(wakers);
        Self { watch, ticket }
    }
}

impl Future for Next<'_> {
    type Output = Reported;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reported> {
        let (id, ticket) = (self.watch.id, self.ticket);
        let mut wakers = Wakers::new();
        let mut log = self.watch.directory.log.lock();
        let reported = if log.is_deleted(id) {
            Some(Reported::Deleted)
        } else {
            log.tell(id, &mut wakers);
            log.poll(id, ticket, cx.waker())
        };
        // The woken request wakes a few others, and each of those a few more, so that no request
        // has to wake thousands.
        log.hand_out(&mut wakers);
        drop(log);
        wake(wakers);
        reported.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Next<'_> {
    fn drop(&mut self) {
        let mut wakers = Wakers::new();
        let mut log = self.watch.directory.log.lock();
        log.leave(self.watch.id, self.ticket, &mut wakers);
        log.hand_out(&mut wakers);
        drop(log);
        wake(wakers);
    }
}
