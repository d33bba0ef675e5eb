//! Where requests go whose file system may keep its caller waiting: a server or
//! a process answers for it (NFS, FUSE), and one that does not answer must stall
//! nobody else.
//!
//! A local file system's metadata is at hand, and handlers ask for it on their
//! core. The requests to a share with an [`BlockingPool`] run to their end on threads
//! of its own instead, each on one, where they may wait for calls and locks as
//! they like; the core goes on, announces them as it does all that takes long,
//! and sends what they answer. So do requests to other shares that are long work,
//! in a blocking pool of the server's ([`ServerState::blocking_pool`]). Data of regular files has a road off the core
//! anyway (`frevo_net::file_io`) and stays on it.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Builder;
use std::time::Duration;

use frevo_net::file_io::{self, RoadChoice};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::{Command, Status};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep};

use crate::command;
use crate::connection::{Connection, Origin};
use crate::host::short_patience;
use crate::impersonation;
use crate::limits::{
    BLOCKING_CLOSES, BLOCKING_REQUESTS, BLOCKING_REQUESTS_PER_USER, BLOCKING_THREAD_IDLE,
    BLOCKING_THREADS, CLOSED_ON_CORE, LONG_REQUEST,
};
use crate::open::{Open, OpenTarget};
use crate::panics;
use crate::refusal::{Doom, Outcome, Refusal};
use crate::request::{Cancellation, Request};
use crate::response::Response;
use crate::server::ServerState;
use crate::session::Session;
use crate::share::{Share, Target};

/// The threads of one share, and who may have one.
pub struct BlockingPool {
    threads: Arc<Threads>,
    requests: Arc<Semaphore>,
    /// Closing has places of its own: what waits for a lease to be given up must
    /// not keep the CLOSE out that gives it up.
    closes: Arc<Semaphore>,
    /// What of the places for requests each user may have.
    users: Mutex<HashMap<String, Arc<Semaphore>>>,
    carried_out: AtomicU64,
}

/// A place of one that is carried out, and of its user's places.
struct Permits {
    _of_all: OwnedSemaphorePermit,
    _of_user: Option<OwnedSemaphorePermit>,
}

// Of the thread: each of these threads belongs to one pool, which made it.
thread_local! {
    static IS_BLOCKING_THREAD: Cell<bool> = const { Cell::new(false) };
}

impl Default for BlockingPool {
    fn default() -> Self {
        let places = |count| Arc::new(Semaphore::new(count));
        let (requests, closes) = (places(BLOCKING_REQUESTS), places(BLOCKING_CLOSES));
        let (threads, users) = (Arc::default(), Mutex::default());
        Self { threads, requests, closes, users, carried_out: AtomicU64::new(0) }
    }
}

impl BlockingPool {
    /// Runs a handler on a thread of the blocking pool, and waits for it. Dropped before
    /// it began it does not run; once begun it is carried out.
    async fn run(&self, rq: &Request<'_>, out: &mut Response) -> Outcome {
        let place = match rq.header.command {
            Command::CLOSE | Command::TREE_DISCONNECT | Command::LOGOFF => {
                closing(&self.closes).await?
            }
            // Nothing of it has begun: who cancels it need not wait.
            _ => tokio::select! {
                biased;
                place = self.place(rq) => place?,
                () = rq.cancellation.told() => return Err(Status::CANCELLED.into()),
            },
        };
        self.carried_out.fetch_add(1, Ordering::Relaxed);
        let moved = Moved::of(rq);
        let signals = Arc::new(Signals::default());
        let told = Arc::clone(&signals);
        let (answer, mut answered) = oneshot::channel();
        // What the handler leaves running, timers for instance, is the core's.
        let core = Handle::current();
        self.threads.give(Box::new(move || {
            let _place = place;
            // Nobody waits any more: there is nothing to tell.
            drop(answer.send(core.block_on(moved.handle(&told))));
        }))?;
        let ended = tokio::select! {
            biased;
            ended = &mut answered => ended,
            () = passed_on(rq, &signals) => answered.await,
        };
        // Without an answer the handler panicked: its connection ends, as it does where
        // the core carries a request out.
        let bug = Doom::Rule("a bug in the server; see the log");
        let (outcome, response) = ended.map_err(|_| Refusal::Disconnect(bug))?;
        *out = response;
        outcome
    }

    /// A place for a request, once its user and the share have one left: a user's
    /// requests may wait for each other, for long, and others must not for them.
    async fn place(&self, rq: &Request<'_>) -> Result<Permits, Status> {
        let identity = rq.session()?.identity().ok_or(Status::USER_SESSION_DELETED)?;
        let of_user = permit(&self.places_of(&identity.user)).await?;
        Ok(Permits { _of_all: permit(&self.requests).await?, _of_user: Some(of_user) })
    }

    fn places_of(&self, user: &str) -> Arc<Semaphore> {
        let mut users = self.users.lock();
        if let Some(places) = users.get(user) {
            return Arc::clone(places);
        }
        // Who has nothing under way has all his places again.
        users.retain(|_, places| Arc::strong_count(places) > 1);
        let places = Arc::new(Semaphore::new(BLOCKING_REQUESTS_PER_USER));
        users.insert(user.to_owned(), Arc::clone(&places));
        places
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

    /// Ends a session whose connections are gone, on a thread of the blocking pool. False
    /// where there is none.
    pub fn end_session(&self, server: &Arc<ServerState>, session: &Arc<Session>) -> bool {
        let (theirs, ended) = (Arc::clone(server), Arc::clone(session));
        let here = Handle::try_current().ok();
        self.carried_out.fetch_add(1, Ordering::Relaxed);
        let end = move || {
            let _entered = here.as_ref().map(Handle::enter);
            theirs.close_session(&ended);
        };
        self.threads.give(Box::new(end)).is_ok()
    }

    /// Closes an Open whose client is gone, on a thread of the blocking pool.
    pub fn close(&self, server: &Arc<ServerState>, open: &Arc<Open>) {
        let (theirs, there) = (Arc::clone(server), Arc::clone(open));
        let here = Handle::try_current().ok();
        let given = self.threads.give(Box::new(move || {
            let _entered = here.as_ref().map(Handle::enter);
            there.close(&theirs.files);
            flush(&there);
        }));
        if given.is_err() {
            open.close(&server.files);
        }
    }
}

impl Drop for BlockingPool {
    /// What hangs is left hanging: nobody waits for it.
    fn drop(&mut self) {
        self.threads.waiting.lock().is_over = true;
        self.threads.turn.notify_all();
    }
}

impl fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingPool").field("places", &self.requests.available_permits()).finish()
    }
}

async fn permit(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Status> {
    let permit = Arc::clone(places).acquire_owned().await;
    permit.map_err(|_| Status::INSUFFICIENT_RESOURCES)
}

/// A place for what closes, of whichever user.
async fn closing(closes: &Arc<Semaphore>) -> Result<Permits, Status> {
    Ok(Permits { _of_all: permit(closes).await?, _of_user: None })
}

/// What a thread does.
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
                tracing::error!(target: "frevo::blocking_pool", %error, "no thread can be made");
                return Err(Status::INSUFFICIENT_RESOURCES);
            }
            Err(_) => {}
        }
        waiting.jobs.push_back(job);
        self.turn.notify_one();
        Ok(())
    }

    /// One thread's life.
    fn work(&self) {
        // It may have been made while the core acted as a user.
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

/// Signals between the core and the thread that runs the handler.
#[derive(Default)]
struct Signals {
    /// The handler waits for others, as long as they like.
    waits: Notify,
    /// The client has cancelled.
    cancelled: Notify,
}

/// Lets those know of the handler's waiting who may cancel it, then tells it.
async fn passed_on(rq: &Request<'_>, signals: &Signals) {
    signals.waits.notified().await;
    rq.cancellation.told().await;
    signals.cancelled.notify_one();
    std::future::pending().await
}

/// The handler, on the core or in a blocking pool.
pub(crate) async fn dispatch(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let blocking_pool = match of(rq) {
        Some(blocking_pool) => blocking_pool,
        None => match on_core(rq, out).await {
            Some(outcome) => return outcome,
            // It would have taken long, and has done nothing.
            None => &rq.server().blocking_pool,
        },
    };
    // Boxed, that requests of other shares do not carry its size about.
    Box::pin(blocking_pool.run(rq, out)).await
}

/// The handler on the core; None where the file system gave up on something that
/// takes long, a look through a directory of a million names for instance.
async fn on_core(rq: &Request<'_>, out: &mut Response) -> Option<Outcome> {
    if !can_begin_again(rq) {
        return Some(command::dispatch(rq, out).await);
    }
    let mut gave_up = false;
    let outcome = {
        let mut handler = pin!(command::dispatch(rq, out));
        poll_fn(|cx| {
            let (polled, has) = short_patience(|| handler.as_mut().poll(cx));
            gave_up |= has;
            polled
        })
        .await
    };
    if gave_up && outcome.is_err() {
        *out = Response::reusing(Vec::new());
        return None;
    }
    Some(outcome)
}

/// Whether a request that failed has changed nothing, so that it can be made again.
fn can_begin_again(rq: &Request<'_>) -> bool {
    matches!(
        rq.header.command,
        Command::CREATE | Command::QUERY_DIRECTORY | Command::QUERY_INFO | Command::SET_INFO
    ) && !file_io::stays()
}

/// The blocking pool that a request has to go to.
fn of<'a>(rq: &'a Request<'_>) -> Option<&'a BlockingPool> {
    if closes_many(rq) {
        return Some(&rq.server().blocking_pool);
    }
    let share = &rq.tree.as_ref()?.share;
    let Some(blocking_pool) = share.blocking_pool.as_deref() else {
        return is_long(rq, share).then_some(&rq.server().blocking_pool);
    };
    let goes = match rq.header.command {
        Command::CREATE
        | Command::CLOSE
        | Command::FLUSH
        | Command::QUERY_DIRECTORY
        | Command::QUERY_INFO
        | Command::SET_INFO
        | Command::IOCTL
        | Command::TREE_DISCONNECT => true,
        Command::READ | Command::WRITE => rq.open.as_ref().is_some_and(|open| asks(rq, open)),
        // These wait for others by nature and ask the file system for nothing.
        _ => false,
    };
    goes.then_some(blocking_pool)
}

/// Whether a request ends what holds many Opens.
fn closes_many(rq: &Request<'_>) -> bool {
    matches!(rq.header.command, Command::LOGOFF | Command::TREE_DISCONNECT)
        && rq.session.as_ref().is_some_and(|session| session.open_count() > CLOSED_ON_CORE)
        && !file_io::stays()
}

/// Whether a request says by its length that it is much work: thousands of extended
/// attributes, or of entries in an access list.
fn is_long(rq: &Request<'_>, share: &Share) -> bool {
    matches!(rq.header.command, Command::CREATE | Command::SET_INFO)
        && rq.message.len() > LONG_REQUEST
        && !file_io::stays()
        && matches!(share.target, Target::Disk(_))
}

/// Whether moving data asks the file system for more than the data. Where that has
/// no descriptor, streams for instance, it is moved by the file system's own calls.
fn asks(rq: &Request<'_>, open: &Open) -> bool {
    let OpenTarget::File(file) = &open.target else { return false };
    let writes = rq.header.command == Command::WRITE;
    // Where the end is, and times that an Open keeps.
    let appends = writes && !open.granted_access.contains(AccessMask::WRITE_DATA);
    file.fd.is_none() || appends || writes && file.times.has_any()
}

/// A request on its way to another thread.
struct Moved {
    origin: Origin,
    header: frevo_wire::Header,
    message: Vec<u8>,
    session: Option<Arc<Session>>,
    tree: Option<Arc<crate::tree_connect::TreeConnect>>,
    open: Option<Arc<Open>>,
    encrypted: bool,
    room: usize,
}

impl Moved {
    fn of(rq: &Request<'_>) -> Self {
        Self {
            origin: rq.connection.origin(),
            header: rq.header,
            message: rq.message.to_vec(),
            session: rq.session.clone(),
            tree: rq.tree.clone(),
            open: rq.open.clone(),
            encrypted: rq.encrypted,
            room: rq.room,
        }
    }

    /// Carries it out, here.
    async fn handle(self, signals: &Signals) -> (Outcome, Response) {
        let connection: Rc<Connection> = Connection::stand_in(self.origin);
        let rq = Request {
            connection: &connection,
            header: self.header,
            message: &self.message,
            session: self.session,
            tree: self.tree,
            open: self.open,
            encrypted: self.encrypted,
            // Its payload is copied: the descriptor stays where it is.
            alone: false,
            room: self.room,
            cancellation: Cancellation::default(),
        };
        let mut out = Response::reusing(Vec::new());
        let outcome = tokio::select! {
            biased;
            outcome = command::dispatch(&rq, &mut out) => outcome,
            () = cancelled(&rq, signals) => Err(Status::INTERNAL_ERROR.into()),
        };
        if let Some(open) = &rq.open
            && open.is_closed()
        {
            flush(open);
        }
        (outcome, out)
    }
}

/// Tells the handler when its client has cancelled. Never ends.
async fn cancelled(rq: &Request<'_>, signals: &Signals) {
    rq.cancellation.awaited().await;
    signals.waits.notify_one();
    signals.cancelled.notified().await;
    rq.cancellation.tell();
    std::future::pending().await
}

/// Lets the file system write back what a closed file has, as it does with each
/// close(2): the last owner of the descriptor, on whatever thread, then has
/// nothing left to wait for.
fn flush(open: &Open) {
    if let OpenTarget::File(file) = &open.target
        && let Some(fd) = &file.fd
    {
        drop(fd.try_clone());
    }
}

/// Whether this thread is one of a blocking pool.
pub fn is_here() -> bool {
    IS_BLOCKING_THREAD.get()
}
