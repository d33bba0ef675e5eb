//! Oplock and lease breaks: who is told, how long is waited. MS-SMB2 3.3.4.6,
//! 3.3.4.7, 3.3.6.1 and 3.3.6.5. What is broken and when decides
//! `frevo_store::lease`.

pub(crate) mod client;
pub(crate) mod delivery;
pub(crate) mod host;
pub(crate) mod parcel;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use frevo_store::lease::queue::Queued;
use frevo_store::lease::{Actor, Break, Cause, Granted, Owner};
use frevo_store::{FileCell, OpenId};
use frevo_wire::Status;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};

pub use self::client::client_id;
use self::parcel::Parcel;
use crate::base::limits::{BREAK_TIMEOUT, BREAKS_PASSED_ON};
use crate::objects::cancellation::Cancellation;
use crate::objects::open::FileOpen;
use crate::objects::server::ServerState;

impl FileOpen {
    /// The caching that its client may do now: Open.OplockLevel, Open.OplockState, Open.Lease.
    pub fn held(&self) -> Granted {
        self.cell.lock().held(self.id)
    }
}

/// An action on a file that others may cache.
#[derive(Debug)]
pub(crate) struct Contender {
    /// The file.
    pub cell: Arc<FileCell>,
    /// The Open that acts. It need not be one of the file's.
    pub id: OpenId,
    /// The action.
    pub cause: Cause,
}

impl Contender {
    /// Sends the breaks that the action needs. Returns the wait for them if there is one.
    fn begin(self, server: &Arc<ServerState>) -> Option<Waiting> {
        let (actor, contention) = {
            let mut state = self.cell.lock();
            if state.oplocks.is_empty() {
                return None;
            }
            (state.actor(self.id), state.contend(self.id, self.cause))
        };
        let queues = &server.files.queues;
        let queued = contention.waits().then(|| queues.enter(self.cell.key(), contention.awaited));
        server.announce_breaks(&self.cell, contention.breaks);
        queued.map(|queued| Waiting { contender: self, actor, queued })
    }
}

/// An action that waits until holders have given up what it takes.
#[derive(Debug)]
struct Waiting {
    contender: Contender,
    actor: Actor,
    queued: Queued,
}

impl Waiting {
    /// Waits. What was granted meanwhile is broken too.
    async fn ends(
        mut self,
        server: &Arc<ServerState>,
        cancellation: &Cancellation,
    ) -> Result<(), Status> {
        loop {
            settled(cancellation, &self.contender.cell, self.actor).await?;
            // `_queued` keeps the place in the queue until the contender has begun its next wait.
            let Self { contender, queued: _queued, .. } = self;
            match contender.begin(server) {
                Some(again) => self = again,
                None => return Ok(()),
            }
        }
    }
}

/// Breaks what others cache of a file and the action is about to invalidate, and waits where
/// MS-FSA 2.1.4.12 waits. CANCELLED when the client gives up.
pub(crate) async fn contend(
    server: &Arc<ServerState>,
    cancellation: &Cancellation,
    contender: Contender,
) -> Result<(), Status> {
    match contender.begin(server) {
        None => Ok(()),
        // The future is boxed, because its state is large and few requests wait for other clients.
        Some(waiting) => Box::pin(waiting.ends(server, cancellation)).await,
    }
}

/// Does the same for an action on several files: all breaks are sent before one of them is waited
/// for, so that the slowest holder decides how long it takes, and not their number. `goes_on` is
/// asked after each of them: false ends the wait.
pub(crate) async fn contend_for_all(
    server: &Arc<ServerState>,
    cancellation: &Cancellation,
    contenders: Vec<Contender>,
    goes_on: impl Fn(&FileCell) -> bool,
) -> Result<(), Status> {
    let mut all = FuturesUnordered::new();
    for (sent, contender) in (1_usize..).zip(contenders) {
        if let Some(waiting) = contender.begin(server) {
            let cell = Arc::clone(&waiting.contender.cell);
            all.push(async move { waiting.ends(server, cancellation).await.map(|()| cell) });
        }
        if sent.is_multiple_of(BREAKS_PASSED_ON) {
            tokio::task::yield_now().await;
        }
    }
    while let Some(ended) = all.next().await {
        if !goes_on(&*ended?) {
            break;
        }
    }
    Ok(())
}

/// Waits until nobody is giving back anything. Then it is to be asked again. Whoever has not given
/// back anything when the request has waited for [`BREAK_TIMEOUT`] altogether loses it.
pub(crate) async fn settled(
    cancellation: &Cancellation,
    cell: &FileCell,
    actor: Actor,
) -> Result<(), Status> {
    let settled = changed(cell, |cell| !cell.lock().oplocks.would_wait(actor));
    tokio::select! {
        biased;
        () = settled => Ok(()),
        () = cancellation.told() => Err(Status::CANCELLED),
        () = sleep_until(cancellation.patience_ends()) => {
            tell_of_expiry(&cell.lock().oplocks.expire_for(actor));
            Ok(())
        }
    }
}

/// Logs that breaks were not acknowledged: one line, however many holders a file has.
fn tell_of_expiry(owners: &[Owner]) {
    let Some((owner, others)) = owners.split_first() else { return };
    tracing::info!(target: "frevo::lease", ?owner, others = others.len(),
        "a client did not acknowledge a break in time");
}

impl ServerState {
    /// Notifies clients of breaks. The time that they have to acknowledge begins now. The file must not
    /// be locked.
    pub fn announce_breaks(self: &Arc<Self>, cell: &Arc<FileCell>, breaks: Vec<Break>) {
        if breaks.iter().any(|broken| broken.number.is_some()) {
            let end = self.began.elapsed() + BREAK_TIMEOUT;
            if cell.lock().oplocks.tell_until(end) {
                let ending = end_overdue(Arc::clone(cell), self.began);
                tokio::spawn(Arc::clone(&self.watchdog).task("break timer", ending));
            }
        }
        let parcels = breaks.into_iter().map(|broken| Parcel::new(cell, broken));
        delivery::deliver_all(self, parcels.collect());
    }
}

/// MS-SMB2 3.3.6.1, 3.3.6.5: what is not acknowledged in time is acknowledged for the client. One
/// task does this for all breaks of a file, and ends with the last of them: a change of one of them
/// must not wake a task for each of the others.
async fn end_overdue(cell: Arc<FileCell>, began: Instant) {
    loop {
        let overdue = cell.lock().oplocks.expire_by(began.elapsed());
        tell_of_expiry(&overdue.owners);
        let Some(next) = overdue.next else { return };
        tokio::select! {
            biased;
            () = none_is_left(&cell) => {}
            () = sleep_until(began + next) => {}
        }
    }
}

/// Waits until all breaks of a file have ended.
async fn none_is_left(cell: &FileCell) {
    poll_fn(|cx| {
        let has_none = cell.lock().oplocks.has_no_break(cx.waker());
        if has_none { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// A place among those who wait for a file's oplocks, given up when dropped.
struct Waiter<'a> {
    cell: &'a FileCell,
    waker: Option<Waker>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if let Some(waker) = &self.waker {
            self.cell.lock().oplocks.cease(waker);
        }
    }
}

/// Waits until `done`, which is asked at each change of the file's oplocks.
async fn changed(cell: &FileCell, done: impl Fn(&FileCell) -> bool) {
    let mut waiter = Waiter { cell, waker: None };
    poll_fn(|cx| {
        // The waker is registered under the lock and before the check, so that no change in between
        // is missed.
        let mut state = cell.lock();
        if let Some(old) = waiter.waker.replace(cx.waker().clone()) {
            state.oplocks.cease(&old);
        }
        state.oplocks.wait(cx.waker());
        drop(state);
        if done(cell) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
