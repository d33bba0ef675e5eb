//! Work of a core that goes on after its task has ended, such as the last bytes of a connection.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Lingering>>> = const { RefCell::new(None) };
}

/// The work of one core.
#[derive(Default)]
pub(crate) struct Lingering {
    count: AtomicUsize,
    ended: Notify,
}

impl Lingering {
    /// Counts the work of the calling thread from now on.
    pub(crate) fn begin() -> Arc<Self> {
        let all = Arc::<Self>::default();
        CURRENT.set(Some(Arc::clone(&all)));
        all
    }

    /// Waits until all work has ended. One task may wait.
    pub(crate) async fn all_ended(&self) {
        while self.count.load(Ordering::Relaxed) > 0 {
            self.ended.notified().await;
        }
    }
}

/// Has the stop of a core wait within its grace while it lives.
pub(crate) struct Linger(Arc<Lingering>);

impl Drop for Linger {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.notify_one();
    }
}

/// Returns a value for work of this core that has no task; None if the calling thread is not a core's.
pub(crate) fn linger() -> Option<Linger> {
    let lingering = CURRENT.with_borrow(Clone::clone)?;
    lingering.count.fetch_add(1, Ordering::Relaxed);
    Some(Linger(lingering))
}
