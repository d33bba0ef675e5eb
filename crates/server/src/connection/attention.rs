//! The wake-up of a connection's event loop by the connection itself.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

/// Wakes the event loop. All of a connection is on one core, so that no lock and no list of waiters is
/// needed, as a `Notify` has them: the event loop asks with each frame.
#[derive(Default)]
pub(super) struct Attention {
    is_due: Cell<bool>,
    event_loop: RefCell<Option<Waker>>,
}

impl Attention {
    /// Has the event loop look around. Calls before it does are one.
    pub(super) fn call(&self) {
        self.is_due.set(true);
        self.event_loop.borrow().iter().for_each(Waker::wake_by_ref);
    }

    /// Ready once after calls.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is_due.take() {
            return Poll::Ready(());
        }
        let mut event_loop = self.event_loop.borrow_mut();
        match &mut *event_loop {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Forgets the event loop, which has ended.
    pub(super) fn forget(&self) {
        self.event_loop.take();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn calls_before_a_look_are_one_and_calls_after_it_wake() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let cx = &Context::from_waker(&waker);
        let attention = Attention::default();
        attention.call();
        attention.call();
        assert_eq!(attention.poll(cx), Poll::Ready(()));
        assert_eq!(attention.poll(cx), Poll::Pending);
        assert_eq!(count.0.load(Ordering::Relaxed), 0, "nobody waited yet");
        attention.call();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!(attention.poll(cx), Poll::Ready(()));
        attention.forget();
        attention.call();
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "the event loop has ended");
    }
}
