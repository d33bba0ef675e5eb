//! Threads that are made when there is work for them and end when there is none.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::thread::Builder;

use frevo_net::{buffer, cores};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::base::limits::{BLOCKING_THREAD_IDLE, BLOCKING_THREAD_TRIM};
use crate::base::panics;

/// The work of a thread.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// See the module's text.
pub(crate) struct Threads {
    name: &'static str,
    /// Threads at a time.
    most: usize,
    /// A function that each thread calls first.
    begin: fn(),
    waiting: Mutex<Waiting>,
    turn: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    is_over: bool,
    /// The last thread could not be made.
    is_refused: bool,
}

impl Threads {
    /// At most `most` threads called `name`, none of which is made yet.
    pub(crate) fn new(name: &'static str, most: usize, begin: fn()) -> Self {
        Self { name, most, begin, waiting: Mutex::default(), turn: Condvar::new() }
    }

    /// Work for the next thread that is free.
    ///
    /// # Errors
    /// The job, where there is no thread and none can be made.
    pub(crate) fn give(self: &Arc<Self>, job: Job) -> Result<(), Job> {
        let mut waiting = self.waiting.lock();
        if waiting.jobs.len() < waiting.idle || waiting.threads >= self.most {
            waiting.jobs.push_back(job);
            self.turn.notify_one();
            return Ok(());
        }
        let threads = Arc::clone(self);
        let made = Builder::new().name(self.name.to_owned()).spawn(move || threads.work());
        match made {
            Ok(_) => {
                waiting.threads += 1;
                waiting.is_refused = false;
            }
            Err(error) => {
                // Logs the failure once, because thousands of jobs a second may fail for the same
                // reason.
                if !mem::replace(&mut waiting.is_refused, true) {
                    tracing::error!(
                        target: "frevo::threads",
                        pool = self.name, running = waiting.threads, %error,
                        "cannot start a thread: raise the limit (TasksMax, pids.max, ulimit -u)"
                    );
                }
                if waiting.threads == 0 {
                    return Err(job);
                }
            }
        }
        waiting.jobs.push_back(job);
        self.turn.notify_one();
        Ok(())
    }

    /// True while nothing is under way.
    pub(crate) fn are_idle(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.jobs.is_empty() && waiting.idle == waiting.threads
    }

    /// Has all threads end once the jobs that were given are done.
    pub(crate) fn end(&self) {
        self.waiting.lock().is_over = true;
        self.turn.notify_all();
    }

    /// Runs calls until none has come for a while.
    fn work(&self) {
        // A new thread is bound to the core of its creator. `unbind` lets it run on all cores.
        cores::unbind();
        (self.begin)();
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(job) = waiting.jobs.pop_front() {
                MutexGuard::unlocked(&mut waiting, || {
                    // The panic of a job is caught, so that the thread can run further jobs.
                    let _ = panics::contained(job);
                });
                continue;
            }
            if waiting.is_over {
                break;
            }
            waiting.idle += 1;
            let mut timed_out = self.turn.wait_for(&mut waiting, BLOCKING_THREAD_TRIM).timed_out();
            if timed_out && waiting.jobs.is_empty() {
                MutexGuard::unlocked(&mut waiting, buffer::trim_pool);
                timed_out = waiting.jobs.is_empty()
                    && !waiting.is_over
                    && self.turn.wait_for(&mut waiting, BLOCKING_THREAD_IDLE).timed_out();
            }
            waiting.idle -= 1;
            if timed_out && waiting.jobs.is_empty() {
                break;
            }
        }
        waiting.threads -= 1;
    }
}
