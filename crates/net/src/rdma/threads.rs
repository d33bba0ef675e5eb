//! Threads whose credentials never change.
//!
//! The kernel takes a write(2) to an RDMA device, or to its connection manager, only from a thread
//! that has the very credentials with which the device was opened (`ib_safe_file_access`). A thread
//! that has acted as a user of the host is refused for ever, also when it has equal credentials
//! again: they are not the same ones. So the calls that write are made here: those of librdmacm, and
//! for such a thread the doorbell of soft devices ([`Link::ring`](super::link::Link::ring)). All
//! other threads may act as whomever they like: libibverbs makes its calls by ioctl(2), for which
//! the kernel does not look at credentials (rdma-core 22, Linux 5.0), and a card learns of requests
//! by memory that it shares with the program.
//!
//! Threads share the credentials of the thread that started them: these threads start each other.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::limits::RDMA_CALLS_AT_ONCE;

static THREADS: Threads = Threads {
    waiting: Mutex::new(Waiting { jobs: VecDeque::new(), idle: 0, threads: 0 }),
    turn: Condvar::new(),
};

thread_local! {
    static IS_HERE: Cell<bool> = const { Cell::new(false) };
}

/// Starts the first of the threads, unless it runs, with the present credentials of this thread.
///
/// # Errors
/// The system makes no thread.
pub(super) fn start() -> io::Result<()> {
    let mut waiting = THREADS.waiting.lock();
    if waiting.threads == 0 {
        start_another()?;
        waiting.threads = 1;
    }
    Ok(())
}

/// Makes a call on one of the threads, which [`start`] has started, and waits for its result.
///
/// # Safety
/// The call may be made on another thread: nothing that it uses or returns is bound to this one.
///
/// # Panics
/// If the call does.
pub(super) unsafe fn call<T>(call: impl FnOnce() -> T) -> T {
    if IS_HERE.get() {
        return call();
    }
    let mut result = None;
    let job: Box<dyn FnOnce() + '_> = Box::new(|| {
        result = Some(catch_unwind(AssertUnwindSafe(call)));
    });
    let done = Arc::new(Done { is_done: AtomicBool::new(false), waits: std::thread::current() });
    // SAFETY: the job is run and dropped before it counts as done, and this function does not
    // return earlier, not even by a panic, so everything that the job borrows still exists. The
    // caller guarantees that the job may run on another thread.
    let job = unsafe { std::mem::transmute::<Box<dyn FnOnce() + '_>, Call>(job) };
    THREADS.give(Job { call: job, done: Arc::clone(&done) });
    done.wait();
    match result {
        Some(Ok(result)) => result,
        Some(Err(panic)) => resume_unwind(panic),
        // Neither a result nor a panic was returned, so the job was not run. So the process cannot
        // continue.
        None => std::process::abort(),
    }
}

type Call = Box<dyn FnOnce() + 'static>;

struct Job {
    call: Call,
    done: Arc<Done>,
}

// SAFETY: the caller of `call` guarantees that its job may run on another thread.
unsafe impl Send for Job {}

impl Job {
    fn run(self) {
        (self.call)();
        self.done.tell();
    }
}

/// The end of a job.
struct Done {
    is_done: AtomicBool,
    waits: Thread,
}

impl Done {
    fn tell(&self) {
        self.is_done.store(true, Ordering::Release);
        self.waits.unpark();
    }

    fn wait(&self) {
        while !self.is_done.load(Ordering::Acquire) {
            std::thread::park();
        }
    }
}

struct Threads {
    waiting: Mutex<Waiting>,
    turn: Condvar,
}

struct Waiting {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
}

impl Threads {
    fn give(&self, job: Job) {
        self.waiting.lock().jobs.push_back(job);
        self.turn.notify_one();
    }

    /// Runs jobs for ever. A thread that leaves none idle starts another one before its job: some
    /// calls wait for a device.
    fn work(&self) {
        IS_HERE.set(true);
        let mut waiting = self.waiting.lock();
        loop {
            let Some(job) = waiting.jobs.pop_front() else {
                waiting.idle += 1;
                self.turn.wait(&mut waiting);
                waiting.idle -= 1;
                continue;
            };
            let starts = waiting.idle == 0 && waiting.threads < RDMA_CALLS_AT_ONCE;
            waiting.threads += usize::from(starts);
            let has_started = MutexGuard::unlocked(&mut waiting, || {
                let has_started = starts && start_another().is_ok();
                job.run();
                has_started
            });
            waiting.threads -= usize::from(starts && !has_started);
        }
    }
}

fn start_another() -> io::Result<()> {
    // `rdma resource show qp` shows this name for queue pairs that the thread creates.
    std::thread::Builder::new().name(String::from("frevo-rdma")).spawn(|| THREADS.work()).map(drop)
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a test that is skipped says so")]
mod tests {
    use std::sync::Barrier;

    use super::*;

    fn call_here<T>(call: impl FnOnce() -> T) -> T {
        start().unwrap();
        // SAFETY: these calls use nothing that is bound to a thread.
        unsafe { super::call(call) }
    }

    /// Of the tests whose calls need all threads at a time: two of them would wait for each other.
    static ALL_THREADS: Mutex<()> = Mutex::new(());

    fn name() -> Option<String> {
        std::thread::current().name().map(str::to_owned)
    }

    #[test]
    fn a_call_is_made_on_another_thread_and_borrows_from_this_one() {
        let mut borrowed = vec![1];
        let outcome = call_here(|| {
            borrowed.push(2);
            // A call made from within another call runs on the same thread.
            (name(), call_here(name))
        });
        let there = Some(String::from("frevo-rdma"));
        assert_eq!((outcome, borrowed), ((there.clone(), there), vec![1, 2]));
    }

    #[test]
    fn a_panic_is_the_callers_and_ends_no_thread() {
        for _ in 0..2 * RDMA_CALLS_AT_ONCE {
            let panicked = catch_unwind(|| call_here(|| -> i32 { panic!("this fails") }));
            assert!(panicked.is_err());
        }
        assert_eq!(call_here(|| 7), 7);
    }

    #[test]
    fn so_many_calls_are_made_at_once_and_further_ones_wait() {
        let _all_threads = ALL_THREADS.lock();
        let all = Arc::new(Barrier::new(RDMA_CALLS_AT_ONCE));
        let callers = (0..3 * RDMA_CALLS_AT_ONCE).map(|number| {
            let all = Arc::clone(&all);
            std::thread::spawn(move || {
                call_here(|| {
                    all.wait();
                    number
                })
            })
        });
        let callers: Vec<_> = callers.collect();
        for (number, caller) in callers.into_iter().enumerate() {
            assert_eq!(caller.join().unwrap(), number);
        }
        assert!(THREADS.waiting.lock().threads <= RDMA_CALLS_AT_ONCE);
    }

    /// The kernel's own measure is whether two threads share their credentials. Ids tell of it here:
    /// a thread that has taken another user's leaves these threads, and those they start, alone.
    #[test]
    fn threads_do_not_take_the_credentials_of_callers() {
        fn user() -> u32 {
            rustix::process::geteuid().as_raw()
        }
        if user() != 0 {
            println!("skipped: only root can take the credentials of another user");
            return;
        }
        let _all_threads = ALL_THREADS.lock();
        assert_eq!(call_here(user), 0);
        let caller = std::thread::spawn(|| {
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(None, nobody, None).unwrap();
            assert_eq!(user(), 65_534);
            let all = Arc::new(Barrier::new(RDMA_CALLS_AT_ONCE));
            let callers = (0..RDMA_CALLS_AT_ONCE).map(|_| {
                let all = Arc::clone(&all);
                std::thread::spawn(move || {
                    call_here(|| {
                        all.wait();
                        user()
                    })
                })
            });
            let callers: Vec<_> = callers.collect();
            callers.into_iter().map(|caller| caller.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(caller.join().unwrap(), vec![0; RDMA_CALLS_AT_ONCE]);
    }
}
