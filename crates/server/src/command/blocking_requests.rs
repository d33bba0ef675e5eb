//! Requests on threads of a blocking pool.
//!
//! A local file system's metadata is at hand, and handlers ask for it on their core. The
//! requests to a share with a [`BlockingPool`] run to their end on its threads instead, each
//! on one, where they may wait for calls and locks; the core goes on, announces them like
//! every slow request, and sends their answers. Requests to other shares that are long work
//! run in the server's own pool. Data of regular files has a road off the core anyway
//! (`frevo_net::file_io`) and stays on it.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use frevo_net::buffer::Buf;
use frevo_net::file_io;
use frevo_wire::Status;
use frevo_wire::dtyp::AccessMask;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use crate::base::host::short_patience;
use crate::base::limits::{CLOSED_ON_CORE, LARGE_REQUEST_BYTES};
use crate::base::pools::blocking_pool::{BlockingPool, Turns};
use crate::base::pools::closer;
use crate::base::rates::Pace;
use crate::command::handled::handled;
use crate::command::request::Request;
use crate::command::response::Response;
use crate::command::{self, Handler, OffCore, Row, again, braking, paced};
use crate::objects::cancellation::Cancellation;
use crate::objects::connection_info::ConnectionInfo;
use crate::objects::data::MemoryWait;
use crate::objects::ledger::{Built, Charge, Kind};
use crate::objects::open::{Open, OpenTarget};
use crate::objects::refusal::{Doom, Outcome, Refusal};
use crate::objects::session::Session;
use crate::objects::tree_connect::TreeConnect;
use crate::shares::share::{Share, Target};

/// Runs a handler on a thread of `pool`, and waits for it. Dropped before it began it does
/// not run; once begun it is carried out.
async fn run(
    pool: &BlockingPool,
    rq: &Request<'_>,
    row: &'static Row,
    out: &mut Response,
) -> Outcome {
    let built = match row.off_core {
        OffCore::Reads => command::read::memory(rq).await?,
        _ => None,
    };
    let (permit, turns) = if row.off_core.closes() {
        (pool.closing_permit().await, Turns::not_needed())
    } else {
        let identity = rq.session()?.identity().ok_or(Status::USER_SESSION_DELETED)?;
        // A CANCEL may end the request while it waits for the pool, because its handler has not yet
        // changed anything.
        let entry = async {
            let permit = pool.permit(&identity.user).await?;
            Ok::<_, Status>((permit, pool.turns(&identity.user).await?))
        };
        rq.cancellation.unless_told(entry).await.ok_or(Status::CANCELLED)??
    };
    let moved = Moved::of(rq, row.handler, built)?;
    let signals = Arc::new(Signals::default());
    let told = Arc::clone(&signals);
    let (answer, mut answered) = oneshot::channel();
    // The handler runs on a blocking thread, but tasks that it spawns, for instance timers, run on
    // its core's runtime.
    let core = Handle::current();
    pool.run(move || {
        let _permit = permit;
        // The send fails if the request was dropped meanwhile, and then its answer is not needed.
        drop(answer.send(core.block_on(turns.carry_out(moved.handle(&told)))));
    })?;
    let ended = tokio::select! {
        biased;
        ended = &mut answered => ended,
        () = passed_on(rq, &signals) => answered.await,
    };
    // The sender was dropped without an answer, so the handler panicked. The connection ends, as
    // after a panic on the core thread.
    let bug = Doom::Rule("a bug in the server; see the log");
    let (outcome, response) = ended.map_err(|_| Refusal::Disconnect(bug))?;
    *out = response;
    outcome
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

/// Runs the handler of a request, on the core or on a thread of a blocking pool; once more where files
/// that were being closed were in its way.
pub(crate) async fn dispatch(rq: &Request<'_>, row: &'static Row, out: &mut Response) -> Outcome {
    // The future is boxed, so that requests without limits of rate need no memory for its state.
    let paid = match rq.server().rates.are_on() {
        true => Box::pin(paced::admit(rq, row)).await?,
        false => None,
    };
    if let Some(braked) = braking::slowed(rq, row) {
        Box::pin(paced::slow_down(rq, braked)).await?;
    }
    let outcome = attempt(rq, row, out, row.repeats).await;
    if let Some(paid) = paid {
        paid.settle(rq, out, &outcome);
    }
    outcome
}

/// Makes one attempt at a request, and another one if it `repeats`.
pub(super) async fn attempt(
    rq: &Request<'_>,
    row: &'static Row,
    out: &mut Response,
    repeats: bool,
) -> Outcome {
    if row.off_core == OffCore::Never {
        return pin!(command::dispatch(rq, row.handler, out)).await;
    }
    if row.off_core == OffCore::Connects {
        return match command::tree_connect::pool(rq).filter(|_| !file_io::stays()) {
            Some(pool) => Box::pin(run(&pool, rq, row, out)).await,
            None => command::dispatch(rq, row.handler, out).await,
        };
    }
    let before = closer::ended();
    let pool = pool_of(rq, row);
    let on_core = match pool {
        Some(_) => None,
        None => pin!(on_core(rq, row, out)).await,
    };
    let outcome = match on_core {
        Some(outcome) => outcome,
        // A handler that would block the core thread for long returned None before changing
        // anything, so it is run again on a blocking thread. The future is boxed, so that requests
        // that run on the core thread need no memory for its state.
        None => Box::pin(run(pool.unwrap_or(&rq.server().blocking_pool), rq, row, out)).await,
    };
    match outcome {
        Err(Refusal::Status(status))
            if repeats && !out.has_changed() && again::may_pass(rq, status) =>
        {
            again::again(rq, row, out, status, before).await
        }
        outcome => outcome,
    }
}

/// Runs the handler on the core. None where the file system gave up on an operation that
/// takes long, a search through a directory of a million names for instance.
async fn on_core(rq: &Request<'_>, row: &'static Row, out: &mut Response) -> Option<Outcome> {
    if !row.restarts || file_io::stays() {
        return Some(pin!(command::dispatch(rq, row.handler, out)).await);
    }
    let mut gave_up = false;
    let outcome = {
        let mut handler = pin!(command::dispatch(rq, row.handler, out));
        poll_fn(|cx| {
            let (polled, has) = short_patience(|| handler.as_mut().poll(cx));
            gave_up |= has;
            polled
        })
        .await
    };
    if gave_up && outcome.is_err() {
        start_over(rq, out);
        return None;
    }
    Some(outcome)
}

/// Prepares a request that has failed, and changed nothing, for another run of its handler.
pub(super) fn start_over(rq: &Request<'_>, out: &mut Response) {
    if let (Some(id), Ok(session)) = (out.operation(), rq.session()) {
        session.operations.take_back(id);
    }
    *out = Response::reusing(Vec::new());
}

/// The blocking pool that a request has to go to.
fn pool_of<'a>(rq: &'a Request<'_>, row: &'static Row) -> Option<&'a BlockingPool> {
    if row.off_core == OffCore::Ends && ends_many(rq) {
        return Some(&rq.server().blocking_pool);
    }
    let share = &rq.tree.as_ref()?.share;
    let Some(pool) = share.pool() else {
        let is_long = is_long(rq, row, share) || closes_long(rq, row);
        return is_long.then_some(&rq.server().blocking_pool);
    };
    goes_to_pool(row.off_core, rq.open.as_deref(), share.disk_may_wait()).then_some(pool)
}

/// True for a large WRITE that goes to a thread of its share: its message goes there without a copy.
pub(crate) fn moves_whole(
    row: &'static Row,
    tree: Option<&TreeConnect>,
    open: Option<&Open>,
    bytes: usize,
) -> bool {
    row.off_core == OffCore::Writes
        && bytes > LARGE_REQUEST_BYTES
        && tree.is_some_and(|TreeConnect { share, .. }| {
            goes_to_pool(row.off_core, open, share.disk_may_wait()) && share.pool().is_some()
        })
}

/// True if a request for a share with a pool is for a thread. While the disk may be slow, data is moved there
/// too, also from and to the page cache: the kernel writes the file's times, for which it may wait for the disk.
fn goes_to_pool(off_core: OffCore, open: Option<&Open>, may_wait: bool) -> bool {
    match off_core {
        OffCore::Never | OffCore::Connects => false,
        OffCore::Reads => may_wait || open.is_some_and(asks_to_read),
        OffCore::Writes => may_wait || open.is_some_and(asks_to_write),
        OffCore::Asks | OffCore::Closes | OffCore::Ends => true,
    }
}

/// True for a session with many Opens or locks, which are closed beside the core.
fn ends_many(rq: &Request<'_>) -> bool {
    rq.session.as_ref().is_some_and(|session| session.work_to_end() > CLOSED_ON_CORE)
        && !file_io::stays()
}

/// True for the CLOSE of an Open with many locks, which are released beside the core.
fn closes_long(rq: &Request<'_>, row: &'static Row) -> bool {
    let is_much = |open: &Arc<Open>| open.work_to_close() > CLOSED_ON_CORE;
    row.off_core == OffCore::Closes && rq.open.as_ref().is_some_and(is_much) && !file_io::stays()
}

/// True for a request whose length shows that it is much work: thousands of extended
/// attributes, or of entries in an access list.
fn is_long(rq: &Request<'_>, row: &'static Row, share: &Share) -> bool {
    rq.message.len() > row.long_from_bytes
        && !file_io::stays()
        && matches!(share.target, Target::Disk(_))
}

/// True where reading asks the file system for more than the data: without a descriptor,
/// as in streams, its own calls move the data.
fn asks_to_read(open: &Open) -> bool {
    matches!(&open.target, OpenTarget::File(file) if file.fd.is_none())
}

/// Like [`asks_to_read`]. Writing also asks where the end of the file is, for an Open that
/// may only append, and for the times that an Open keeps.
fn asks_to_write(open: &Open) -> bool {
    let OpenTarget::File(file) = &open.target else { return false };
    let appends = !open.granted_access.contains(AccessMask::WRITE_DATA);
    file.fd.is_none() || appends || file.times.has_any()
}

/// A request on its way to another thread.
struct Moved {
    handler: Handler,
    connection: Arc<ConnectionInfo>,
    header: frevo_wire::Header,
    message: Arc<Buf>,
    /// The charge of a message that was copied.
    copied: Option<Charge>,
    session: Option<Arc<Session>>,
    tree: Option<Arc<TreeConnect>>,
    open: Option<Arc<Open>>,
    encrypted: bool,
    compressible: bool,
    fetched: Option<Buf>,
    room: usize,
    memory_wait: MemoryWait,
    /// The memory of its reply.
    built: Option<Built>,
}

impl Moved {
    /// Takes a request along, with the memory of its reply.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES where there is no memory for the copy of a large message.
    fn of(rq: &Request<'_>, handler: Handler, built: Option<Built>) -> Result<Self, Status> {
        let copied = match rq.session.as_ref().filter(|_| rq.whole.is_none()) {
            Some(session) if rq.message.len() > LARGE_REQUEST_BYTES => {
                Some(session.holder().charge(Kind::Frame, rq.message.len())?)
            }
            _ => None,
        };
        Ok(Self {
            handler,
            connection: Arc::clone(rq.connection),
            header: rq.header,
            message: rq.whole.map_or_else(|| Arc::new(Buf::copy_of(rq.message)), Arc::clone),
            copied,
            session: rq.session.clone(),
            tree: rq.tree.clone(),
            open: rq.open.clone(),
            encrypted: rq.encrypted,
            compressible: rq.compressible,
            fetched: rq.fetched.take(),
            room: rq.room,
            memory_wait: rq.memory_wait,
            built,
        })
    }

    /// Carries it out, here.
    async fn handle(self, signals: &Signals) -> (Outcome, Response) {
        let _copied = self.copied;
        let rq = Request {
            connection: &self.connection,
            owner: None,
            header: self.header,
            message: &self.message,
            whole: None,
            session: self.session,
            tree: self.tree,
            open: self.open,
            encrypted: self.encrypted,
            fetched: std::cell::Cell::new(self.fetched),
            // With `alone`, a READ could answer with a file descriptor, which only the connection's
            // own core can send. On this thread the data must be copied, so `alone` is false.
            alone: false,
            compressible: self.compressible,
            shown: None,
            room: self.room,
            memory_wait: self.memory_wait,
            cancellation: Cancellation::default(),
            busy: std::cell::Cell::default(),
            pace: Pace::default(),
        };
        let mut out = Response::reusing(Vec::new());
        out.set_built(self.built);
        let outcome = tokio::select! {
            biased;
            outcome = served(&rq, self.handler, &mut out) => outcome,
            () = cancelled(&rq, signals) => Err(Status::INTERNAL_ERROR.into()),
        };
        if outcome.is_err() {
            out.set_built(None);
        }
        if let Some(open) = &rq.open
            && open.is_closed()
        {
            open.start_writeback();
        }
        (outcome, out)
    }
}

/// Runs the handler, unless another server has got the share while the request waited for a thread.
async fn served(rq: &Request<'_>, handler: Handler, out: &mut Response) -> Outcome {
    rq.still_served()?;
    // The time of its calls tells if the file system is still slow.
    handled(rq, pin!(command::dispatch(rq, handler, out))).await
}

/// Tells the handler when its client has cancelled. Never ends.
async fn cancelled(rq: &Request<'_>, signals: &Signals) {
    rq.cancellation.awaited().await;
    signals.waits.notify_one();
    signals.cancelled.notified().await;
    rq.cancellation.tell();
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_a_slow_disk_is_moved_by_threads() {
        for off_core in [OffCore::Reads, OffCore::Writes] {
            assert!(goes_to_pool(off_core, None, true) && !goes_to_pool(off_core, None, false));
        }
        assert!(goes_to_pool(OffCore::Asks, None, false));
        assert!(!goes_to_pool(OffCore::Never, None, true));
    }
}
