//! Oplock and lease breaks: who is told, how long is waited. MS-SMB2 3.3.4.6,
//! 3.3.4.7, 3.3.6.1 and 3.3.6.5. What is broken and when decides
//! `frevo_store::lease`.

pub mod host;
mod parcel;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use frevo_crypto::sha256;
use frevo_store::lease::{Actor, Break, Cause, Granted, Owner};
use frevo_store::{FileCell, OpenId};
use frevo_wire::Status;
use frevo_wire::dtyp::Guid;
use tokio::time::{Instant, sleep_until};

use crate::durable;
use crate::limits::BREAK_TIMEOUT;
use crate::open::FileOpen;
use crate::request::Request;
use crate::server::ServerState;
use crate::watchdog::Watchdog;

pub use parcel::Parcel;

/// The client that a lease belongs to: a ClientGuid of an account.
///
/// Deviation: MS-SMB2 3.3.1.11 keeps leases by ClientGuid alone. It is no secret and
/// anybody may send it, so that another account with the LeaseKey of a lease would be
/// taken for its holder: what it writes would break nothing, and with the key on another
/// file it would shut the holder out.
pub fn client_id(client_guid: Guid, user: &str) -> Guid {
    let mut bytes = client_guid.0.to_vec();
    bytes.extend_from_slice(user.to_lowercase().as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&sha256(&bytes)[..16]);
    Guid(id)
}

impl FileOpen {
    /// The caching that its client may do now: Open.OplockLevel, Open.OplockState, Open.Lease.
    pub fn held(&self) -> Granted {
        self.cell.lock().held(self.id)
    }
}

/// Breaks what others cache of a file and `cause` is about to invalidate, and
/// waits where MS-FSA 2.1.4.12 waits. CANCELLED when the client gives up.
pub async fn contend(rq: &Request<'_>, file: &FileOpen, cause: Cause) -> Result<(), Status> {
    contend_for(rq, &file.cell, file.id, cause).await
}

/// The same for a file that `id` need not be an Open of.
pub async fn contend_for(
    rq: &Request<'_>,
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
        announce(rq.server(), cell, contention.breaks);
        if !contention.waits {
            return Ok(());
        }
        settled(rq, cell, actor).await?;
    }
}

/// Waits until nobody is giving back anything. Then it is to be asked again.
pub async fn settled(rq: &Request<'_>, cell: &FileCell, actor: Actor) -> Result<(), Status> {
    let settled = changed(cell, |cell| !cell.lock().oplocks.would_wait(actor));
    tokio::select! {
        biased;
        () = settled => Ok(()),
        () = rq.cancellation.told() => Err(Status::CANCELLED),
    }
}

/// Tells clients of breaks. Their time begins now.
pub fn announce(server: &Arc<ServerState>, cell: &Arc<FileCell>, breaks: Vec<Break>) {
    for broken in breaks {
        if let Some(number) = broken.number {
            let deadline = Instant::now() + BREAK_TIMEOUT;
            let expiring = expire(Arc::clone(cell), broken.owner, number, deadline);
            tokio::spawn(Watchdog::task(Arc::clone(server), "break timer", expiring));
        }
        Parcel::new(server, cell, broken).send();
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

/// A break that nobody can be told of: the client has no connection left. What
/// it cached is nothing any more, unless it is kept for its client.
pub fn break_without_owner(server: Option<&Arc<ServerState>>, cell: &FileCell, broken: &Break) {
    if server.is_some_and(|server| durable::on_break(server, broken)) {
        return;
    }
    if let Some(number) = broken.number {
        cell.lock().oplocks.expire(broken.owner, number);
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
        // Listens before it looks, so that a change in between is not missed.
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
