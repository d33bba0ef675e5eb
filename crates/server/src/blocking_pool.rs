//! Threads for work that may keep its caller waiting: a server or a process answers for the
//! file system (NFS, FUSE), or the work is long.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Builder;
use std::time::Duration;

use frevo_net::cores;
use frevo_net::file_io::{self, RoadChoice};
use frevo_wire::Status;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

use crate::impersonation;
use crate::limits::{
    BLOCKING_CLOSES, BLOCKING_REQUESTS, BLOCKING_REQUESTS_PER_USER, BLOCKING_THREAD_IDLE,
    BLOCKING_THREADS,
};
use crate::places::{HeldPlace, Places, permit};
use crate::{panics, watchdog};

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
        Self { threads: Arc::default(), requests, closes, carried_out: AtomicU64::new(0) }
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
        self.threads.give(Box::new(move || watchdog::for_client(client, job)))
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
            let is_idle = {
                let waiting = self.threads.waiting.lock();
                waiting.jobs.is_empty() && waiting.idle == waiting.threads
            };
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
        self.threads.waiting.lock().is_over = true;
        self.threads.turn.notify_all();
    }
}

impl fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingPool").field("places", &self.requests.free()).finish()
    }
}

/// The work of a thread.
type Job = Box<dyn FnOnce() + Send>;

/// Threads that are made when there is work for them and end when there is none.
#[derive(Default)]
struct Threads {
    waiting: Mutex<Waiting>,
    turn: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    is_over: bool,
}

impl Threads {
    /// Work for the next thread that is free. It fails where there is no thread
    /// and none can be made.
    fn give(self: &Arc<Self>, job: Job) -> Result<(), Status> {
        let mut waiting = self.waiting.lock();
        if waiting.jobs.len() < waiting.idle || waiting.threads >= BLOCKING_THREADS {
            waiting.jobs.push_back(job);
            self.turn.notify_one();
            return Ok(());
        }
        let threads = Arc::clone(self);
        let made = Builder::new().name(String::from("blocking")).spawn(move || threads.work());
        match made {
            Ok(_) => waiting.threads += 1,
            Err(error) if waiting.threads == 0 => {
                tracing::error!(target: "frevo::blocking_pool", %error, "cannot start a thread");
                return Err(Status::INSUFFICIENT_RESOURCES);
            }
            Err(_) => {}
        }
        waiting.jobs.push_back(job);
        self.turn.notify_one();
        Ok(())
    }

    /// Runs calls until none has come for a while.
    fn work(&self) {
        // It may have been made by a core that is bound to a processor, and acted as a user.
        cores::unbind();
        impersonation::begin_thread();
        IS_BLOCKING_THREAD.set(true);
        file_io::stay_on_this_thread();
        file_io::choose_roads(RoadChoice { ring: false, ..RoadChoice::default() });
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(job) = waiting.jobs.pop_front() {
                MutexGuard::unlocked(&mut waiting, || {
                    // A handler that panics hurts no other.
                    let _ = panics::contained(job);
                });
                continue;
            }
            if waiting.is_over {
                break;
            }
            waiting.idle += 1;
            let timed_out = self.turn.wait_for(&mut waiting, BLOCKING_THREAD_IDLE).timed_out();
            waiting.idle -= 1;
            if timed_out && waiting.jobs.is_empty() {
                break;
            }
        }
        waiting.threads -= 1;
    }
}

/// True on a thread of a blocking pool.
pub(crate) fn is_here() -> bool {
    IS_BLOCKING_THREAD.get()
}
