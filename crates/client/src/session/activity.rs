//! Activity of a session, for the tasks that look after its channels.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// The requests of a session, as the tasks that look after its channels see them: while there are
/// none, the tasks sleep.
#[derive(Default)]
pub(super) struct Activity {
    /// Wakes the task that opens channels.
    pub(super) for_fill: Signal,
    /// Wakes the task that ends dead channels.
    pub(super) for_watch: Signal,
}

impl Activity {
    /// Notes that a request is sent.
    pub(super) fn note(&self) {
        self.for_fill.set();
        self.for_watch.set();
    }
}

/// True from a request until a task has seen it.
#[derive(Default)]
pub(super) struct Signal {
    is_set: AtomicBool,
    changed: Notify,
}

impl Signal {
    /// Notes that a request is sent.
    pub(super) fn set(&self) {
        if !self.is_set.load(Ordering::Relaxed) && !self.is_set.swap(true, Ordering::AcqRel) {
            self.changed.notify_one();
        }
    }

    /// Waits until a request was sent since the last call.
    pub(super) async fn take(&self) {
        while !self.is_set.swap(false, Ordering::AcqRel) {
            self.changed.notified().await;
        }
    }
}
