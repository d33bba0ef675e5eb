//! Oplock and lease breaks: who is told, how long is waited. MS-SMB2 3.3.4.6,
//! 3.3.4.7, 3.3.6.1 and 3.3.6.5. What is broken and when decides
//! `frevo_store::lease`.

pub mod client;
pub mod delivery;
pub mod host;
pub mod parcel;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use frevo_store::lease::{Actor, Break, Cause, Granted, Owner};
use frevo_store::{FileCell, OpenId};
use frevo_wire::Status;
use tokio::time::{Instant, sleep_until};

pub use self::client::client_id;
use self::parcel::Parcel;
use crate::base::limits::BREAK_TIMEOUT;
use crate::objects::cancellation::Cancellation;
use crate::objects::open::FileOpen;
use crate::objects::server::ServerState;

impl FileOpen {
    /// The caching that its client may do now: Open.OplockLevel, Open.OplockState, Open.Lease.
    pub fn held(&self) -> Granted {
        self.cell.lock().held(self.id)
    }
}

/// Breaks what others cache of a file and `cause` is about to invalidate, and waits where
/// MS-FSA 2.1.4.12 waits. `id` is who asks, and need not be an Open of the file. CANCELLED when the
/// client gives up.
pub async fn contend(
    server: &Arc<ServerState>,
    cancellation: &Cancellation,
    cell: &Arc<FileCell>,
    id: OpenId,
    cause: Cause,
) -> Result<(), Status> {
    loop {
        let (actor, contention) = {
            let mut state = cell.lock();
            if state.oplocks.is_empty() {
                return Ok(());
            }
            (state.actor(id), state.contend(id, cause))
        };
        server.announce_breaks(cell, contention.breaks);
        if !contention.waits {
            return Ok(());
        }
        // The future is boxed, because few requests wait for other clients and its state is large.
        Box::pin(settled(cancellation, cell, actor)).await?;
    }
}

/// Waits until nobody is giving back anything. Then it is to be asked again.
pub async fn settled(
    cancellation: &Cancellation,
    cell: &FileCell,
    actor: Actor,
) -> Result<(), Status> {
    let settled = changed(cell, |cell| !cell.lock().oplocks.would_wait(actor));
    tokio::select! {
        biased;
        () = settled => Ok(()),
        () = cancellation.told() => Err(Status::CANCELLED),
    }
}

impl ServerState {
    /// Notifies clients of breaks. The time that they have to acknowledge begins now.
    pub fn announce_breaks(self: &Arc<Self>, cell: &Arc<FileCell>, breaks: Vec<Break>) {
        for broken in breaks {
            if let Some(number) = broken.number {
                let deadline = Instant::now() + BREAK_TIMEOUT;
                let expiring = expire(Arc::clone(cell), broken.owner, number, deadline);
                tokio::spawn(Arc::clone(&self.watchdog).task("break timer", expiring));
            }
            delivery::deliver(self, Parcel::new(cell, broken));
        }
    }
}

/// MS-SMB2 3.3.6.1, 3.3.6.5: what is not acknowledged in time is acknowledged
/// for the client.
async fn expire(cell: Arc<FileCell>, owner: Owner, number: u64, deadline: Instant) {
    let over = changed(&cell, |cell| !cell.lock().oplocks.is_breaking(owner, number));
    tokio::select! {
        biased;
        () = over => {}
        () = sleep_until(deadline) => {
            tracing::info!(target: "frevo::lease", ?owner, "a client did not acknowledge a break in time");
            cell.lock().oplocks.expire(owner, number);
        }
    }
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
        // The waker is registered under the lock, before the check, so that no change is missed.
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
