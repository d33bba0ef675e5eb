//! Core threads, each with a `current_thread` runtime. Work that is given to one never leaves its
//! thread.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::LocalSet;
use tokio::task::coop::unconstrained;

use crate::limits::{BLOCKING_THREADS_PER_CORE_MAX, CORES_MAX, POOL_TRIM_INTERVAL};
use crate::lingering::Lingering;
use crate::watchdog::{Histogram, Watched};
use crate::{buffer, turns};

type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;
/// A closure from the sending thread, which makes a future on the core.
type Job = Box<dyn FnOnce() -> LocalFuture + Send>;

/// Parameters of core threads.
#[derive(Clone, Debug)]
pub struct CoresConfig {
    /// Number of threads; 0 means one for each processor that this process may use.
    pub count: usize,
    /// True to bind each thread to a processor of its own.
    pub pin: bool,
    /// A function that each thread calls first, also threads for blocking calls.
    pub begin: fn(),
    /// Name of the threads, followed by `-<index>`.
    pub name: String,
}

impl Default for CoresConfig {
    fn default() -> Self {
        Self { count: 0, pin: false, begin: || {}, name: "core".to_owned() }
    }
}

/// All core threads of a process. Dropping it stops them at once.
pub struct Cores {
    handles: Vec<CoreHandle>,
    threads: Vec<JoinHandle<()>>,
    stopping: watch::Sender<Stop>,
}

/// A request to the core threads to stop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    No,
    /// Tasks should end by themselves within this time.
    Soon(Duration),
}

/// A handle on one core, for any thread.
#[derive(Clone)]
pub struct CoreHandle {
    index: usize,
    jobs: mpsc::UnboundedSender<Job>,
    tasks: Arc<AtomicUsize>,
    polls: Arc<Histogram>,
}

/// Facts about its core for a task.
struct Current {
    handle: CoreHandle,
    stopping: watch::Receiver<Stop>,
    /// Cores of the same [`Cores`] that wait for something to do.
    idle: Arc<AtomicUsize>,
}

/// The processors that this process might use before any thread was bound to one.
static PROCESSORS: OnceLock<Vec<usize>> = OnceLock::new();

thread_local! {
    static CURRENT: RefCell<Option<Rc<Current>>> = const { RefCell::new(None) };
}

/// Returns the core of the calling thread, if it is a core thread.
#[must_use]
pub fn current() -> Option<CoreHandle> {
    CURRENT.with_borrow(|current| current.as_ref().map(|current| current.handle.clone()))
}

/// Returns the number of other cores that wait for something to do; none if the calling thread is
/// not a core's. They may have begun something when it returns.
#[must_use]
pub fn idle() -> Option<usize> {
    CURRENT.with_borrow(|current| Some(current.as_ref()?.idle.load(Ordering::Relaxed)))
}

/// Lets this thread run on all processors that the process may use: a thread is bound like the one
/// that makes it, which may be a core.
pub fn unbind() {
    if let Some(processors) = PROCESSORS.get() {
        bind_to(processors);
    }
}

/// Completes when this core is asked to stop; on any other thread never. Tasks that run for long
/// wait for it beside their work, and then finish.
pub async fn stopping() {
    let current = CURRENT.with_borrow(Clone::clone);
    let Some(current) = current else { return std::future::pending().await };
    let mut waiting = current.stopping.clone();
    // The wait stays registered with the waker of its last poll, so that it is polled again only for
    // another waker, or after a change: event loops poll this with each frame. A budget of polls must
    // not keep it from being registered.
    let mut asked = pin!(unconstrained(stop_asked(&mut waiting)));
    let mut told: Option<Waker> = None;
    // The closure takes its variables: references to them would enlarge each event loop.
    poll_fn(move |cx| {
        let is_told = told.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        if is_told && matches!(current.stopping.has_changed(), Ok(false)) {
            return Poll::Pending;
        }
        told = Some(cx.waker().clone());
        asked.as_mut().poll(cx)
    })
    .await;
}

async fn stop_asked(stopping: &mut watch::Receiver<Stop>) {
    // An error means that `Cores` was dropped, which ends the wait as a stop does.
    drop(stopping.wait_for(|stop| *stop != Stop::No).await);
}

impl Cores {
    /// Starts the threads.
    ///
    /// # Errors
    /// If a thread or its runtime cannot be made, or if `count` is more than [`CORES_MAX`].
    pub fn start(config: &CoresConfig) -> io::Result<Self> {
        let processors = allowed_processors();
        let count = if config.count == 0 { usual_count() } else { config.count };
        if count > CORES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many cores asked for"));
        }
        if config.pin {
            PROCESSORS.get_or_init(|| processors.clone());
        }
        let (stopping, watcher) = watch::channel(Stop::No);
        let idle = Arc::<AtomicUsize>::default();
        let mut cores = Self { handles: Vec::new(), threads: Vec::new(), stopping };
        for index in 0..count.max(1) {
            let processor = config.pin.then(|| processors.get(index % processors.len().max(1)));
            let processor = processor.flatten().copied();
            let name = format!("{}-{index}", config.name);
            let (stopping, idle) = (watcher.clone(), Arc::clone(&idle));
            let (handle, thread) = start_one(index, name, processor, config.begin, stopping, idle)?;
            cores.handles.push(handle);
            cores.threads.push(thread);
        }
        Ok(cores)
    }

    /// The cores, by index.
    #[must_use]
    pub fn handles(&self) -> &[CoreHandle] {
        &self.handles
    }

    /// The core with the fewest tasks.
    ///
    /// # Panics
    /// Never: there is at least one core.
    #[must_use]
    pub fn least_loaded(&self) -> &CoreHandle {
        self.handles.iter().min_by_key(|core| core.tasks()).expect("at least one core")
    }

    /// Asks all tasks to end, waits up to `grace` for them, drops the rest and joins the threads.
    /// It blocks, so it must not run on a core.
    pub fn stop(mut self, grace: Duration) {
        self.stopping.send_replace(Stop::Soon(grace));
        self.join();
    }

    fn join(&mut self) {
        self.handles.clear();
        for thread in self.threads.drain(..) {
            // If a core thread has panicked, it has reported the panic itself, so the error is
            // dropped.
            drop(thread.join());
        }
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        self.stopping.send_if_modified(|stop| {
            let first = *stop == Stop::No;
            if first {
                *stop = Stop::Soon(Duration::ZERO);
            }
            first
        });
        self.join();
    }
}

impl CoreHandle {
    /// Returns the number of the core, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the number of unfinished tasks given to this core by [`Self::spawn`].
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks.load(Ordering::Relaxed)
    }

    /// Returns the durations of the core's polls.
    #[must_use]
    pub fn polls(&self) -> &Arc<Histogram> {
        &self.polls
    }

    /// Runs a future on the core, which `make` returns there. The future need not be `Send`; only
    /// the captures of `make` move. If the core has stopped, `make` is dropped uncalled and the
    /// result is false.
    pub fn spawn<M, F>(&self, make: M) -> bool
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        let load = Load::added(&self.tasks);
        let job: Job = Box::new(move || {
            // `make` is in a box that is freed by the call, so that the task does not keep its
            // captures.
            let make = Box::new(make);
            Box::pin(async move {
                let _load = load;
                make().await;
            })
        });
        self.jobs.send(job).is_ok()
    }

    /// Runs a future on the core like [`Self::spawn`], and returns its result; `None` if the core
    /// stopped or the future panicked.
    pub async fn run<M, F, T>(&self, make: M) -> Option<T>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        self.spawn(move || async move {
            // The send fails if the caller does not wait for the answer any more.
            drop(answer.send(make().await));
        });
        answered.await.ok()
    }
}

/// Counts a task while it lives, also when it panics.
struct Load(Arc<AtomicUsize>);

impl Load {
    fn added(tasks: &Arc<AtomicUsize>) -> Self {
        tasks.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(tasks))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn start_one(
    index: usize,
    name: String,
    processor: Option<usize>,
    begin: fn(),
    stopping: watch::Receiver<Stop>,
    idle: Arc<AtomicUsize>,
) -> io::Result<(CoreHandle, JoinHandle<()>)> {
    let (parked, unparked) = (Arc::clone(&idle), Arc::clone(&idle));
    let runtime = Builder::new_current_thread()
        .enable_all()
        .on_thread_park(move || {
            parked.fetch_add(1, Ordering::Relaxed);
        })
        .on_thread_unpark(move || {
            unparked.fetch_sub(1, Ordering::Relaxed);
        })
        .max_blocking_threads(BLOCKING_THREADS_PER_CORE_MAX)
        .thread_name(format!("{name}-blocking"))
        .on_thread_start(begin)
        .build()?;
    let (jobs, queue) = mpsc::unbounded_channel();
    let polls = Arc::<Histogram>::default();
    let handle = CoreHandle { index, jobs, tasks: Arc::default(), polls: Arc::clone(&polls) };
    let current = handle.clone();
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        begin();
        if let Some(processor) = processor {
            bind_to(&[processor]);
        }
        let stopped = stopping.clone();
        let lingering = Lingering::begin();
        let current = Current { handle: current, stopping: stopped, idle };
        CURRENT.set(Some(Rc::new(current)));
        let local = LocalSet::new();
        local.block_on(&runtime, work(queue, stopping, &polls, &lingering));
        {
            // The remaining tasks are dropped here, while their runtime still exists and is
            // entered, because their values may use it.
            let _within = runtime.enter();
            drop(local);
        }
        runtime.shutdown_background();
        CURRENT.set(None);
    })?;
    Ok((handle, thread))
}

/// Takes jobs until asked to stop, then waits for the tasks within the grace.
async fn work(
    mut queue: mpsc::UnboundedReceiver<Job>,
    mut stopping: watch::Receiver<Stop>,
    polls: &Arc<Histogram>,
    lingering: &Lingering,
) {
    let mut tasks = tokio::task::JoinSet::new();
    let mut trim = tokio::time::interval(POOL_TRIM_INTERVAL);
    loop {
        tokio::select! {
            biased;
            // The runtime polls this future each time after it has checked for events. `poll_give`
            // then lets the waiting tasks run.
            never = poll_fn(|cx| turns::poll_give(cx)) => match never {},
            _ = trim.tick() => buffer::release_unused(),
            job = queue.recv() => match job {
                Some(job) => { tasks.spawn_local(Watched::new(job(), polls)); }
                None => break,
            },
            // If the task has panicked, the panic hook has reported it. Other tasks go on.
            Some(_ended) = tasks.join_next() => {}
            () = stop_asked(&mut stopping) => break,
        }
    }
    queue.close();
    let stop = *stopping.borrow();
    let grace = match stop {
        Stop::Soon(grace) => grace,
        Stop::No => Duration::ZERO,
    };
    let all_ended = async {
        // The queue is closed, but jobs that it had accepted before must still begin.
        while let Some(job) = queue.recv().await {
            tasks.spawn_local(Watched::new(job(), polls));
        }
        while tasks.join_next().await.is_some() {}
        lingering.all_ended().await;
    };
    tokio::select! {
        () = all_ended => {}
        () = tokio::time::sleep(grace) => {}
        never = poll_fn(|cx| turns::poll_give(cx)) => match never {},
    }
}

/// Returns the number of core threads where no other is asked for.
#[must_use]
pub fn usual_count() -> usize {
    allowed_processors().len()
}

/// Returns the processors that this process may use.
fn allowed_processors() -> Vec<usize> {
    let allowed = rustix::thread::sched_getaffinity(None);
    let processors: Vec<usize> = allowed.map_or_else(
        |_| Vec::new(),
        |set| (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
    );
    if processors.is_empty() { vec![0] } else { processors }
}

/// Binds this thread to processors. If that fails, only speed is lost.
fn bind_to(processors: &[usize]) {
    let mut set = rustix::thread::CpuSet::new();
    processors.iter().for_each(|processor| set.set(*processor));
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

#[cfg(test)]
mod tests;
