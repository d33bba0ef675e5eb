//! Oplock and lease breaks: MS-SMB2 3.2.5.19.
//!
//! What is kept under a lease is the business of those who asked for one: they
//! are told first, and the acknowledgment is sent when they have given it up.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use frevo_wire::command::oplock_break::{
    self, LeaseBreak, LeaseBreakFlags, LeaseKey, LeaseState, Notification,
};
use frevo_wire::{Command, Status};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};

use super::lease::Lease;
use super::{Failure, Inner};
use crate::connection::{Call, Unasked};
use crate::limits::{BREAKS_AT_ONCE, BREAKS_WAITING};
use crate::share::Bound;

/// What is done before a break is acknowledged.
pub type Yield = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One who caches what a lease allows.
pub trait LeaseHolder: Send + Sync {
    /// The lease falls to `to`. The future gives up what it allowed (writes what
    /// was kept back, forgets what was read); the server is told afterwards, if it
    /// asked. A lease that was lost with the session, or had to be granted anew,
    /// falls too.
    fn broken(&self, to: LeaseState) -> Yield;
}

/// Leases of a session, by key.
#[derive(Default)]
pub(crate) struct Leases(Mutex<HashMap<LeaseKey, Weak<Lease>>>);

impl Leases {
    /// From now on `lease` is told of its breaks.
    pub(crate) fn enter(&self, lease: &Arc<Lease>) {
        self.0.lock().insert(lease.key, Arc::downgrade(lease));
    }

    /// Nobody holds it any more.
    pub(crate) fn leave(&self, key: LeaseKey) {
        self.0.lock().remove(&key);
    }

    fn find(&self, key: LeaseKey) -> Option<Arc<Lease>> {
        self.0.lock().get(&key).and_then(Weak::upgrade)
    }
}

/// Answers what the server says unasked, until the session is gone.
pub(super) async fn answer(session: Weak<Inner>, mut heard: mpsc::Receiver<Unasked>) {
    let waiting = Arc::new(Semaphore::new(BREAKS_WAITING));
    let places = Arc::new(Semaphore::new(BREAKS_AT_ONCE));
    while let Some(unasked) = heard.recv().await {
        let Ok(waits) = Arc::clone(&waiting).acquire_owned().await else { return };
        let Some(session) = session.upgrade() else { return };
        let must_seal = session.current().is_some_and(|live| live.security.seal);
        if must_seal && !unasked.is_sealed {
            // MS-SMB2 3.2.5.1.1: whoever says it is not the server.
            tracing::warn!("a break of an encrypted session came unencrypted and is ignored");
            continue;
        }
        match unasked.notification {
            Notification::Lease(lease) => {
                // MS-SMB2 3.2.5.19.2: what nobody has needs nothing. The last of its Opens
                // has gone, and its CLOSE, which is sent by then or about to be, answers.
                let Some(holder) = session.leases.find(lease.lease_key) else { continue };
                // At once: what it allowed is not used any more from here on.
                let (yields, bound) = holder.broken(&lease);
                // The rest on its own: giving up one cache may take long.
                let places = Arc::clone(&places);
                tokio::spawn(async move {
                    let _waits = waits;
                    let Ok(_place) = places.acquire().await else { return };
                    if let Some(yields) = yields {
                        yields.await;
                    }
                    if let Some(bound) = bound
                        && lease.flags.contains(LeaseBreakFlags::ACK_REQUIRED)
                    {
                        let state = lease.new_lease_state;
                        if !acknowledge(&session, bound, lease.lease_key, state).await {
                            holder.forfeited();
                        }
                    }
                    drop(holder);
                });
            }
            // This client asks for leases only; a server without them gets no
            // oplock requests either.
            Notification::Oplock(_) => {}
        }
    }
}

/// MS-SMB2 3.2.4.22 and 2.2.24.2. A break of a session that is gone needs none; of one that
/// lost a channel it goes by another. Whether the server knows: one that hears nothing takes
/// all of the lease and says no more of it (MS-SMB2 3.3.6.5).
async fn acknowledge(
    session: &Inner,
    bound: Bound,
    lease_key: LeaseKey,
    lease_state: LeaseState,
) -> bool {
    let mut again = false;
    loop {
        let Some(live) = session.current().filter(|live| live.generation == bound.generation)
        else {
            return true;
        };
        let Some(channel) = live.channel() else { continue };
        let ack = oplock_break::Request::Lease(LeaseBreak { lease_key, lease_state });
        let mut call = Call::new(Command::OPLOCK_BREAK, |w| ack.encode(w));
        call.tree_id = bound.tree_id;
        match live.call(&channel, call, bound.seal).await {
            Err(Failure::Unsent) => {}
            Err(Failure::Gone) => again = true,
            // The second one is told that there is no break.
            Ok(message) => return again || message.header.status == Status::SUCCESS,
            Err(Failure::Final(_)) => return false,
        }
    }
}
