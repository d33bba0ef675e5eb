//! The bound of registered memory, and its fair division.
//!
//! Registered memory is pinned, so that the whole process has a bounded amount. A [`Holder`] gets
//! at most half of it, and no holder gets the last quarter, but those that have little: whoever
//! registers much waits for itself, and not the others. A transfer that finds no room waits for
//! it, since other transfers end soon.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::values::lockable_bytes;
use crate::limits::{RDMA_REGISTERED_BYTES_MAX, RDMA_ROOM_TIMEOUT};

static PROCESS: LazyLock<Arc<Bound>> = LazyLock::new(|| Bound::new(RDMA_REGISTERED_BYTES_MAX));

/// Returns the bound of all devices' memory in this process.
pub(super) fn of_process() -> Arc<Bound> {
    Arc::clone(&PROCESS)
}

/// Returns the bytes that are registered now.
#[must_use]
pub fn registered_bytes() -> usize {
    PROCESS.used()
}

/// Sets the bytes that may be registered at a time. An eighth of what this process may pin
/// (`ulimit -l`) is left for the device's own queues.
pub fn set_registered_max(bytes: usize) {
    let lockable = lockable_bytes().and_then(|bytes| usize::try_from(bytes).ok());
    let lockable = lockable.map_or(usize::MAX, |bytes| bytes - bytes / 8);
    PROCESS.max.store(bytes.min(lockable).min(RDMA_REGISTERED_BYTES_MAX), Ordering::SeqCst);
}

/// The registered memory of one account, or of the clients of one network that have not logged on.
#[derive(Debug, Default)]
pub struct Holder(AtomicUsize);

impl Holder {
    /// Returns the bytes that it has registered now.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// An amount of memory that may be registered.
pub(super) struct Bound {
    used: Mutex<usize>,
    max: AtomicUsize,
    /// Number of those who wait for room.
    waiting: AtomicUsize,
    freed: Notify,
}

impl Bound {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            used: Mutex::new(0),
            max: AtomicUsize::new(max),
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
        })
    }

    /// Bytes that are registered now.
    pub(super) fn used(&self) -> usize {
        *self.used.lock()
    }

    /// Takes room for `bytes` at once; None if there is none for the holder.
    pub(super) fn take(self: &Arc<Self>, holder: &Arc<Holder>, bytes: usize) -> Option<Counted> {
        let max = self.max.load(Ordering::SeqCst);
        let mut used = self.used.lock();
        let own = holder.bytes().checked_add(bytes)?;
        let all = used.checked_add(bytes)?;
        if !is_fair(own, all, max) {
            return None;
        }
        *used = all;
        holder.0.fetch_add(bytes, Ordering::SeqCst);
        drop(used);
        Some(Counted { bound: Arc::clone(self), holder: Arc::clone(holder), bytes })
    }

    /// True while so little is registered that registrations may be kept which nobody uses at
    /// present.
    pub(super) fn is_ample(&self) -> bool {
        let is_waited_for = self.waiting.load(Ordering::SeqCst) > 0;
        !is_waited_for && self.used() <= self.max.load(Ordering::SeqCst) / 4
    }

    async fn take_when_there_is_room<T>(&self, mut take: impl FnMut() -> Option<T>) -> T {
        let _waiting = Waiting::new(&self.waiting);
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(taken) = take() {
                return taken;
            }
            freed.await;
        }
    }
}

/// True if a holder may have `own` bytes while all together have `all`, of at most `max`.
const fn is_fair(own: usize, all: usize, max: usize) -> bool {
    let is_ample = all <= max - max / 4 && own <= max / 2;
    let is_small = own <= max / 32;
    is_ample || (is_small && all <= max)
}

/// Counts itself among those who wait.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Bytes counted as registered until it is dropped.
pub(super) struct Counted {
    bound: Arc<Bound>,
    holder: Arc<Holder>,
    bytes: usize,
}

impl Counted {
    /// Counts the bytes for another holder from now on.
    pub(super) fn move_to(&mut self, holder: &Arc<Holder>) {
        let _used = self.bound.used.lock();
        holder.0.fetch_add(self.bytes, Ordering::SeqCst);
        let old = std::mem::replace(&mut self.holder, Arc::clone(holder));
        old.0.fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut used = self.bound.used.lock();
        *used = used.saturating_sub(self.bytes);
        self.holder.0.fetch_sub(self.bytes, Ordering::SeqCst);
        drop(used);
        if self.bound.waiting.load(Ordering::SeqCst) > 0 {
            self.bound.freed.notify_waiters();
        }
    }
}

/// Takes room for `bytes` at once.
///
/// # Errors
/// There is no room for the holder.
pub(super) fn take(holder: &Arc<Holder>, bytes: usize) -> io::Result<Counted> {
    PROCESS.take(holder, bytes).ok_or(io::ErrorKind::OutOfMemory.into())
}

/// Calls `take` until it succeeds: at once, and whenever memory was freed.
///
/// # Errors
/// There was no room for a long time, or there never is for so many bytes.
pub(super) async fn wait<T>(
    bound: &Bound,
    bytes: usize,
    take: impl FnMut() -> Option<T>,
) -> io::Result<T> {
    if bytes > bound.max.load(Ordering::SeqCst) / 2 {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let taken = bound.take_when_there_is_room(take);
    timeout(RDMA_ROOM_TIMEOUT, taken).await.map_err(|_| io::ErrorKind::OutOfMemory.into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn registered_memory_is_bounded() {
        let bound = Bound::new(3200);
        let [one, two, three] = [(); 3].map(|()| Arc::new(Holder::default()));
        // One connection may use half of the limit (1600), and connections that use much may use
        // three quarters together.
        let first = bound.take(&one, 1600).unwrap();
        assert!(bound.take(&one, 1).is_none());
        let second = bound.take(&two, 800).unwrap();
        assert!(bound.take(&two, 1).is_none());
        // A third connection still gets a small amount: at most 100.
        assert!(bound.take(&three, 101).is_none());
        let third = bound.take(&three, 100).unwrap();
        let others: Vec<_> =
            (0..7).map(|_| bound.take(&Arc::new(Holder::default()), 100).unwrap()).collect();
        assert!(bound.take(&Arc::new(Holder::default()), 1).is_none(), "all is taken");
        assert_eq!(*bound.used.lock(), 3200);
        drop((first, second, third, others));
        assert_eq!(*bound.used.lock(), 0);
        assert_eq!((one.bytes(), two.bytes(), three.bytes()), (0, 0, 0));
    }

    #[test]
    fn registered_memory_moves_to_the_account_that_logs_on() {
        let bound = Bound::new(3200);
        let [network, account] = [(); 2].map(|()| Arc::new(Holder::default()));
        let mut counted = bound.take(&network, 100).unwrap();
        counted.move_to(&account);
        assert_eq!((network.bytes(), account.bytes()), (0, 100));
        drop(counted);
        assert_eq!((account.bytes(), *bound.used.lock()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn one_account_waits_for_its_own_memory_and_others_do_not() {
        let bound = Bound::new(3200);
        let [one, two] = [(); 2].map(|()| Arc::new(Holder::default()));
        let wait = |holder: &Arc<Holder>, bytes| {
            let holder = Arc::clone(holder);
            let bound = Arc::clone(&bound);
            async move {
                let taken = bound.take_when_there_is_room(|| bound.take(&holder, bytes));
                timeout(Duration::from_secs(1), taken).await
            }
        };
        let first = wait(&one, 1600).await.unwrap();
        assert!(wait(&one, 1).await.is_err());
        // The first account uses half of the limit, but the second account need not wait for it.
        let second = wait(&two, 800).await.unwrap();
        let waiting = tokio::spawn(wait(&one, 200));
        tokio::task::yield_now().await;
        assert_eq!(bound.waiting.load(Ordering::SeqCst), 1);
        drop(first);
        let third = waiting.await.unwrap().unwrap();
        assert_eq!((one.bytes(), bound.waiting.load(Ordering::SeqCst)), (200, 0));
        drop((second, third));
    }
}
