//! Threads for work that may keep its caller waiting: a server or a process answers for the
//! file system (NFS, FUSE), or the work is long.
//!
//! Long work uses a processor all the time. It runs in turns, of which accounts get one after
//! the other, so that the cores and other accounts have processors left however much of it one
//! account asks for. An account that is alone has all processors: nobody else has been active for
//! [`ALONE_AFTER`](crate::base::limits::ALONE_AFTER). Work that waits, for a lease for instance, has no
//! turn.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use frevo_net::accounts;
use frevo_net::file_io::{self, RoadChoice};
use frevo_net::permits::{Permit as NetPermit, Permits as NetPermits};
use frevo_wire::Status;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};

use crate::base::host;
use crate::base::limits::{
    BLOCKING_CLOSES, BLOCKING_GRACE_WAITS, BLOCKING_REQUESTS, BLOCKING_REQUESTS_PER_USER,
    BLOCKING_THREADS, LONG_WORK_SPARES, LONG_WORK_USER_PART,
};
use crate::base::pools::permits::{IsAlone, UserPermit, UserPermits};
use crate::base::pools::threads::Threads;
use crate::base::watchdog;

/// The threads of one share, and who may have one.
pub struct BlockingPool {
    threads: Arc<Threads>,
    requests: UserPermits,
    /// Closing has permits of its own: what waits for a lease to be given up must
    /// not keep the CLOSE out that gives it up.
    closes: NetPermits,
    /// Places of requests that wait in the grace of a share.
    grace_waits: Semaphore,
    /// The turns of long work; none where work waits rather than computes.
    turns: Option<Arc<UserPermits>>,
    /// Permits of single long calls; none where work waits rather than computes.
    calls: Option<UserPermits>,
    carried_out: AtomicU64,
}

/// The permit of a request that is being carried out.
pub(crate) enum Permits {
    /// One of its user's permits.
    OfUser { _permit: UserPermit },
    /// One of the permits that are reserved for closing.
    Closing { _permit: NetPermit },
}

/// The permits of a single long call.
pub(crate) struct CallPermits {
    _of_calls: Option<UserPermit>,
    _of_requests: Permits,
}

// The flag is thread-local, because each blocking thread serves only one pool.
thread_local! {
    static IS_BLOCKING_THREAD: Cell<bool> = const { Cell::new(false) };
}

impl Default for BlockingPool {
    fn default() -> Self {
        let requests = UserPermits::new(BLOCKING_REQUESTS, BLOCKING_REQUESTS_PER_USER);
        let closes = NetPermits::new(BLOCKING_CLOSES);
        let threads = Arc::new(Threads::new("blocking", BLOCKING_THREADS, begin_thread));
        let grace_waits = Semaphore::new(BLOCKING_GRACE_WAITS);
        let carried_out = AtomicU64::new(0);
        Self { threads, requests, closes, grace_waits, turns: None, calls: None, carried_out }
    }
}

impl BlockingPool {
    /// A pool for work that uses a processor for long, on a host with so many processors. An account
    /// has all of them while `is_alone` says so.
    pub(crate) fn for_long_work(processors: usize, is_alone: &IsAlone) -> Self {
        let all = processors.saturating_sub(LONG_WORK_SPARES).max(1);
        let of_user = (processors / LONG_WORK_USER_PART).clamp(1, all);
        let beyond = processors.saturating_sub(of_user);
        let permits =
            |all| UserPermits::new(all, of_user).with_beyond(beyond, Arc::clone(is_alone));
        let mut pool = Self::default();
        pool.turns = Some(Arc::new(permits(all)));
        // A call cannot give its turn back while it waits for a disk. So others have permits for
        // calls whatever the number of processors is.
        pool.calls = Some(permits(BLOCKING_REQUESTS));
        pool
    }

    /// Waits for the first turn of work of `user`.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when the pool has ended.
    pub(crate) async fn turns(&self, user: &str) -> Result<Turns, Status> {
        let Some(permits) = &self.turns else { return Ok(Turns(None)) };
        let turn = Some(permits.take(user).await?);
        let (permits, user) = (Arc::clone(permits), user.to_owned());
        Ok(Turns(Some(OfUser { permits, user, turn })))
    }

    /// Waits for a permit for a request of `user`. A user's requests may wait for each other,
    /// for long; other users' must not wait for them.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when the pool has ended.
    pub(crate) async fn permit(&self, user: &str) -> Result<Permits, Status> {
        Ok(Permits::OfUser { _permit: self.requests.take(user).await? })
    }

    /// Waits for the permits of a single long call for `user`, whose calls use no more processors than
    /// its other long work. A call that has begun ends by itself, also when others become active.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when the pool has ended.
    pub(crate) async fn call_permits(&self, user: &str) -> Result<CallPermits, Status> {
        let of_calls = match &self.calls {
            Some(calls) => Some(calls.take(user).await?),
            None => None,
        };
        Ok(CallPermits { _of_calls: of_calls, _of_requests: self.permit(user).await? })
    }

    /// Returns a place for a request that is to wait in the grace of a share, if one is free.
    pub(crate) fn grace_place(&self) -> Option<SemaphorePermit<'_>> {
        self.grace_waits.try_acquire().ok()
    }

    /// Waits for a permit for a request that closes, in turns by account.
    pub(crate) async fn closing_permit(&self) -> Permits {
        Permits::Closing { _permit: self.closes.take().await }
    }

    /// Runs `job` on the next thread that is free, for the client that the calling thread works
    /// for.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES where there is no thread and none can be made.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Status> {
        self.carried_out.fetch_add(1, Ordering::Relaxed);
        let (client, account) = (watchdog::client(), accounts::current());
        let job = move || watchdog::for_client(client, job);
        let job = Box::new(move || accounts::for_account(account, job));
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

/// The turns of one piece of work.
pub(crate) struct Turns(Option<OfUser>);

struct OfUser {
    permits: Arc<UserPermits>,
    user: String,
    /// The present turn.
    turn: Option<UserPermit>,
}

impl Turns {
    /// Turns of work that needs none.
    pub(crate) const fn not_needed() -> Self {
        Self(None)
    }

    /// Carries out `work`, which has a turn while it computes, and none while it waits.
    pub(crate) async fn carry_out<W: Future>(self, work: W) -> W::Output {
        let Some(mut of_user) = self.0 else { return work.await };
        let mut work = pin!(work);
        loop {
            let polled = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
            of_user.turn = None;
            if let Poll::Ready(done) = polled {
                return done;
            }
            woken().await;
            of_user.turn = of_user.permits.take(&of_user.user).await.ok();
        }
    }
}

/// Waits until the task is woken.
async fn woken() {
    let mut is_woken = false;
    poll_fn(|_| if mem::replace(&mut is_woken, true) { Poll::Ready(()) } else { Poll::Pending })
        .await;
}

impl Drop for BlockingPool {
    /// Threads that hang are left behind: nothing waits for them.
    fn drop(&mut self) {
        self.threads.end();
    }
}

impl fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingPool").field("permits", &self.requests.free()).finish()
    }
}

/// Prepares a thread.
fn begin_thread() {
    // `begin_thread` ends the impersonation that a new thread inherits from the core thread that
    // started it.
    host::begin_thread();
    IS_BLOCKING_THREAD.set(true);
    file_io::stay_on_this_thread();
    file_io::choose_roads(RoadChoice { ring: false, ..RoadChoice::default() });
}

/// True on a thread of a blocking pool.
pub(crate) fn is_here() -> bool {
    IS_BLOCKING_THREAD.get()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;

    /// An account that has others beside it.
    fn never() -> IsAlone {
        Arc::new(|_| false)
    }

    /// Tests that an account alone has all processors for its long work and its long calls, and that it
    /// has its part as soon as another one is active, and again all after that one has gone.
    #[tokio::test(start_paused = true)]
    async fn an_account_alone_has_all_processors() {
        for processors in [1, 2, 3, 4, 16] {
            let is_alone = Arc::new(AtomicBool::new(true));
            let told = Arc::clone(&is_alone);
            let is_alone_now: IsAlone = Arc::new(move |_| told.load(Ordering::Relaxed));
            let pool = BlockingPool::for_long_work(processors, &is_alone_now);
            let part = (processors / 2).max(1);
            for (alone, expected) in [(true, processors), (false, part), (true, processors)] {
                is_alone.store(alone, Ordering::Relaxed);
                let (mut turns, mut calls) = (Vec::new(), Vec::new());
                let soon = Duration::from_secs(1);
                while let Ok(turn) = timeout(soon, pool.turns("ann")).await {
                    turns.push(turn.unwrap());
                }
                while let Ok(call) = timeout(soon, pool.call_permits("ann")).await {
                    calls.push(call.unwrap());
                }
                let held = (turns.len(), calls.len());
                assert_eq!(held, (expected, expected), "{processors} processors, alone: {alone}");
            }
        }
    }

    /// Tests that long work of one account beside others never has all processors, at each number of them.
    #[tokio::test(start_paused = true)]
    async fn long_work_of_one_account_leaves_processors() {
        for (processors, of_user, all) in [(1, 1, 1), (2, 1, 1), (3, 1, 2), (4, 2, 3), (16, 8, 15)]
        {
            let pool = BlockingPool::for_long_work(processors, &never());
            let mut held = Vec::new();
            let soon = |user: &'static str| timeout(Duration::from_secs(1), pool.turns(user));
            while let Ok(turns) = soon("ann").await {
                held.push(turns.unwrap());
            }
            assert_eq!(held.len(), of_user, "{processors} processors");
            for user in ["bob", "carol", "dan"] {
                while let Ok(turns) = soon(user).await {
                    held.push(turns.unwrap());
                }
            }
            assert_eq!(held.len(), all, "{processors} processors");
        }
        let held = [
            BlockingPool::default().turns("ann").await,
            BlockingPool::default().turns("ann").await,
        ];
        assert!(held.iter().all(|turns| turns.as_ref().is_ok_and(|turns| turns.0.is_none())));
    }

    /// Tests that calls of one account beside others never have all processors, and that however many there are, others
    /// have permits.
    #[tokio::test(start_paused = true)]
    async fn long_calls_of_one_account_leave_processors() {
        for (processors, of_user) in [(1, 1), (2, 1), (4, 2), (16, 8)] {
            let pool = BlockingPool::for_long_work(processors, &never());
            let mut of_all = Vec::new();
            for user in ["ann", "bob"] {
                let mut held = Vec::new();
                let soon = || timeout(Duration::from_secs(1), pool.call_permits(user));
                while let Ok(permits) = soon().await {
                    held.push(permits.unwrap());
                }
                assert_eq!(held.len(), of_user, "{user} with {processors} processors");
                of_all.extend(held);
            }
        }
    }

    /// Tests that accounts have turns one after the other, however much work one of them has.
    #[tokio::test(start_paused = true)]
    async fn accounts_take_turns() {
        let pool = Arc::new(BlockingPool::for_long_work(2, &never()));
        let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let work = |user: &'static str| {
            let (pool, order) = (Arc::clone(&pool), Arc::clone(&order));
            tokio::spawn(async move {
                let turns = pool.turns(user).await.unwrap();
                sleep(Duration::from_millis(50)).await;
                turns.carry_out(async { order.lock().push(user) }).await;
            })
        };
        let all: Vec<_> = ["ann", "ann", "ann", "ann", "bob", "carol"].map(work).into();
        for one in all {
            one.await.unwrap();
        }
        assert_eq!(*order.lock(), ["ann", "bob", "carol", "ann", "ann", "ann"]);
    }

    /// Tests that work which waits has no turn, and gets one when it goes on.
    #[tokio::test(start_paused = true)]
    async fn work_that_waits_has_no_turn() {
        let pool = Arc::new(BlockingPool::for_long_work(2, &never()));
        let (signal, steps) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let waits = tokio::spawn({
            let (pool, signal, steps) =
                (Arc::clone(&pool), Arc::clone(&signal), Arc::clone(&steps));
            async move {
                let turns = pool.turns("ann").await.unwrap();
                let work = async {
                    for _ in 0..3 {
                        signal.notified().await;
                        steps.fetch_add(1, Ordering::Relaxed);
                    }
                };
                turns.carry_out(work).await;
            }
        });
        let pause = || sleep(Duration::from_millis(10));
        pause().await;
        let other = timeout(Duration::from_secs(1), pool.turns("ann")).await.unwrap().unwrap();
        signal.notify_one();
        pause().await;
        assert_eq!(steps.load(Ordering::Relaxed), 0, "the turn is another's");
        drop(other);
        pause().await;
        assert_eq!(steps.load(Ordering::Relaxed), 1);
        for _ in 0..2 {
            signal.notify_one();
            pause().await;
        }
        waits.await.unwrap();
        assert_eq!(steps.load(Ordering::Relaxed), 3);
    }
}
