//! Threads for work that may keep its caller waiting: a server or a process answers for the
//! file system (NFS, FUSE), or the work is long.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frevo_net::file_io::{self, RoadChoice};
use frevo_wire::Status;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

use crate::impersonation;
use crate::limits::{
    BLOCKING_CLOSES, BLOCKING_REQUESTS, BLOCKING_REQUESTS_PER_USER, BLOCKING_THREADS,
};
use crate::places::{HeldPlace, Places, permit};
use crate::threads::Threads;
use crate::watchdog;

/// The threads of one share, and who may have one.
pub struct BlockingPool {
    threads: Arc<Threads>,
    requests: Places,
    /// Closing has places of its own: what waits for a lease to be given up must
    /// not keep the CLOSE out that gives it up.
    closes: Arc<Semaphore>,
    carried_out: AtomicU64,
}

/// The permit of a request that is being carried out.
pub(crate) enum Permits {
    /// One of its user's permits.
    OfUser { _place: HeldPlace },
    /// One of the permits that are reserved for closing.
    Closing { _place: OwnedSemaphorePermit },
}

// Of the thread: each of these threads belongs to one pool, which made it.
thread_local! {
    static IS_BLOCKING_THREAD: Cell<bool> = const { Cell::new(false) };
}

impl Default for BlockingPool {
    fn default() -> Self {
        let requests = Places::new(BLOCKING_REQUESTS, BLOCKING_REQUESTS_PER_USER);
        let closes = Arc::new(Semaphore::new(BLOCKING_CLOSES));
        let threads = Arc::new(Threads::new("blocking", BLOCKING_THREADS, begin_thread));
        Self { threads, requests, closes, carried_out: AtomicU64::new(0) }
    }
}

impl BlockingPool {
    /// Waits for a place for a request of `user`. A user's requests may wait for each other,
    /// for long; other users' must not wait for them.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when the pool has ended.
    pub(crate) async fn place(&self, user: &str) -> Result<Permits, Status> {
        Ok(Permits::OfUser { _place: self.requests.take(user).await? })
    }

    /// Waits for a place for a request that closes, of any user.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when the pool has ended.
    pub(crate) async fn closing_place(&self) -> Result<Permits, Status> {
        Ok(Permits::Closing { _place: permit(&self.closes).await? })
    }

    /// Runs `job` on the next thread that is free, for the client that the calling thread works
    /// for.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES where there is no thread and none can be made.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Status> {
        self.carried_out.fetch_add(1, Ordering::Relaxed);
        let client = watchdog::client();
        let job = Box::new(move || watchdog::for_client(client, job));
        self.threads.give(job).map_err(|_| Status::INSUFFICIENT_RESOURCES)
    }

    /// Like [`Self::run`], in the calling core's runtime, which owns the timers that the job
    /// leaves running.
    pub(crate) fn run_for_core(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Status> {
        let here = Handle::try_current().ok();
        self.run(move || {
            let _entered = here.as_ref().map(Handle::enter);
            job();
        })
    }

    /// Requests that were begun here.
    pub fn carried_out(&self) -> u64 {
        self.carried_out.load(Ordering::Relaxed)
    }

    /// Waits until nothing is under way, at most until `deadline`. True when
    /// nothing is.
    pub async fn settled(&self, deadline: Instant) -> bool {
        loop {
            let is_idle = self.threads.are_idle();
            if is_idle || Instant::now() >= deadline {
                return is_idle;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for BlockingPool {
    /// Threads that hang are left behind: nothing waits for them.
    fn drop(&mut self) {
        self.threads.end();
    }
}

impl fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingPool").field("places", &self.requests.free()).finish()
    }
}

/// Prepares a thread.
fn begin_thread() {
    // It may have been made while the core acted as a user.
    impersonation::begin_thread();
    IS_BLOCKING_THREAD.set(true);
    file_io::stay_on_this_thread();
    file_io::choose_roads(RoadChoice { ring: false, ..RoadChoice::default() });
}

/// True on a thread of a blocking pool.
pub(crate) fn is_here() -> bool {
    IS_BLOCKING_THREAD.get()
}
