//! The locks and atomics of `under_way`, as loom models them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use loom::sync::Mutex;
pub use loom::sync::atomic::{AtomicUsize, Ordering};

/// As tokio's, as far as it is used.
#[derive(Debug)]
pub struct Notify(Mutex<(u64, Vec<Waker>)>);

impl Default for Notify {
    fn default() -> Self {
        Self(Mutex::new((0, Vec::new())))
    }
}

impl Notify {
    pub fn notified(&self) -> Notified<'_> {
        Notified { notify: self, since: None }
    }

    pub fn notify_waiters(&self) {
        let wakers = {
            let mut state = self.0.lock().unwrap();
            state.0 += 1;
            std::mem::take(&mut state.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[derive(Debug)]
pub struct Notified<'a> {
    notify: &'a Notify,
    since: Option<u64>,
}

impl Notified<'_> {
    pub fn enable(mut self: Pin<&mut Self>) {
        let now = self.notify.0.lock().unwrap().0;
        self.since.get_or_insert(now);
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let notify = self.notify;
        let mut state = notify.0.lock().unwrap();
        let since = *self.since.get_or_insert(state.0);
        if state.0 > since {
            return Poll::Ready(());
        }
        state.1.push(cx.waker().clone());
        Poll::Pending
    }
}
