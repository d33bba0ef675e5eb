//! The cancellation of a request: MS-SMB2 3.3.5.16.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use tokio::time::Instant as Deadline;

use crate::base::limits::BREAK_TIMEOUT;

/// CANCEL, for requests that wait in one place only.
#[derive(Debug, Default)]
pub(crate) struct Cancellation {
    told: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// The time since which somebody waits for others within the request.
    since: Cell<Option<Instant>>,
    /// The end of all its waits for others to give back what they cache.
    patience_ends: Cell<Option<Deadline>>,
}

impl Cancellation {
    /// The client has cancelled, or is gone.
    pub(crate) fn tell(&self) {
        self.told.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Resolves when somebody waits for others within the request: it will take
    /// as long as they like.
    pub(crate) async fn awaited(&self) {
        poll_fn(|_| if self.is_awaited() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// True once somebody waits for others within the request.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waker.borrow().is_some()
    }

    /// The time from the first wait for others within the request until now.
    pub(crate) fn waited(&self) -> Duration {
        self.since.get().map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Returns the time at which the request waits no longer for others to give back what they cache,
    /// however many they are: it begins with the first of these waits.
    pub(crate) fn patience_ends(&self) -> Deadline {
        let ends = self.patience_ends.get().unwrap_or_else(|| Deadline::now() + BREAK_TIMEOUT);
        self.patience_ends.set(Some(ends));
        ends
    }

    /// Returns the outcome of `work`, or None when the client cancels before. The time does not
    /// count as a wait for other clients.
    pub(crate) async fn unless_told<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let done = tokio::select! {
            biased;
            done = work => Some(done),
            () = self.told() => None,
        };
        self.since.set(None);
        self.waker.take();
        done
    }

    /// Waits until it does.
    pub(crate) async fn told(&self) {
        poll_fn(|cx| {
            if self.told.get() {
                return Poll::Ready(());
            }
            if self.since.get().is_none() {
                self.since.set(Some(Instant::now()));
            }
            self.waker.replace(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place in a blocking pool is no other client.
    #[tokio::test]
    async fn a_wait_for_a_thread_is_no_wait_for_others() {
        let cancellation = Cancellation::default();
        // Waits until the clock has advanced, even if the clock is coarse.
        let later = || async {
            let since = Instant::now();
            while since.elapsed().is_zero() {
                tokio::task::yield_now().await;
            }
        };
        assert_eq!(cancellation.unless_told(later()).await, Some(()));
        assert_eq!(cancellation.waited(), Duration::ZERO);
        tokio::select! {
            biased;
            () = cancellation.told() => panic!("nobody has told"),
            () = later() => {}
        }
        assert!(!cancellation.waited().is_zero());
        cancellation.tell();
        assert_eq!(cancellation.unless_told(std::future::pending::<()>()).await, None);
    }
    /// The end of a wait that could be cancelled is no wait any more: nobody is told of one.
    #[tokio::test]
    async fn work_that_ends_is_no_longer_awaited() {
        let cancellation = Cancellation::default();
        let work = async {
            tokio::task::yield_now().await;
            assert!(cancellation.is_awaited());
        };
        assert_eq!(cancellation.unless_told(work).await, Some(()));
        assert!(!cancellation.is_awaited());
    }
}
