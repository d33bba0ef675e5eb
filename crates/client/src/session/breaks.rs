//! Oplock and lease breaks: MS-SMB2 3.2.5.19.
//!
//! The holder of a lease is told of a break first. The acknowledgment is sent when it has given
//! its cache up.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use frevo_proto::protection::receive_policy::is_notification_trusted;
use frevo_wire::Command;
use frevo_wire::command::oplock_break::{
    self, LeaseBreak, LeaseBreakFlags, LeaseKey, LeaseState as WireState, Notification,
};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};

use super::bound::Bound;
use super::lease::Lease;
use super::{Failure, Inner};
use crate::Status;
use crate::connection::{Call, Unasked};
use crate::limits::{BREAKS_AT_ONCE, BREAKS_WAITING};
use crate::types::LeaseState;

/// The work before a break is acknowledged.
pub type Yield = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A cache under a lease.
pub trait LeaseHolder: Send + Sync {
    /// Reduces the cache to `to`. The future sends unsent writes and drops cached reads; the
    /// break is acknowledged afterwards, if the server asked for that. Also called for a lease
    /// that was lost with the session or granted again.
    fn broken(&self, to: LeaseState) -> Yield;
}

/// Leases of a session, by key.
#[derive(Default)]
pub(crate) struct Leases(Mutex<HashMap<LeaseKey, Weak<Lease>>>);

impl Leases {
    /// Registers `lease` for breaks.
    pub(crate) fn enter(&self, lease: &Arc<Lease>) {
        self.0.lock().insert(lease.key, Arc::downgrade(lease));
    }

    /// Removes a lease that was dropped.
    pub(crate) fn leave(&self, key: LeaseKey) {
        self.0.lock().remove(&key);
    }

    fn find(&self, key: LeaseKey) -> Option<Arc<Lease>> {
        self.0.lock().get(&key).and_then(Weak::upgrade)
    }
}

/// Answers notifications of the server until the session ends.
pub(super) async fn answer(session: Weak<Inner>, mut heard: mpsc::Receiver<Unasked>) {
    let waiting = Arc::new(Semaphore::new(BREAKS_WAITING));
    let places = Arc::new(Semaphore::new(BREAKS_AT_ONCE));
    while let Some(unasked) = heard.recv().await {
        let (is_sealed, notification) = match unasked {
            Unasked::Notification { is_sealed, notification } => (is_sealed, notification),
            Unasked::SessionClosed { connection, message } => {
                if let Some(session) = session.upgrade() {
                    session.on_session_closed(connection, message);
                }
                continue;
            }
            Unasked::Marker(caller) => {
                let _ = caller.send(());
                continue;
            }
        };
        let Ok(waits) = Arc::clone(&waiting).acquire_owned().await else { return };
        let Some(session) = session.upgrade() else { return };
        let must_seal = session.current().is_some_and(|live| live.security.seal);
        if !is_notification_trusted(is_sealed, must_seal) {
            tracing::warn!("a break of an encrypted session came unencrypted and is ignored");
            continue;
        }
        match notification {
            Notification::Lease(lease) => {
                // MS-SMB2 3.2.5.19.2: a break of an unknown lease is not acknowledged. Its last
                // Open is closed already, and the CLOSE ends the break.
                let Some(holder) = session.leases.find(lease.lease_key) else { continue };
                // The lease state is reduced before the caches are given up, so that no operation
                // uses the old rights from here on.
                let (yields, bound) = holder.broken(&lease);
                // Giving up a cache may take long, so a task does it and acknowledges the break.
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
            // This client never requests oplocks, so a break of one concerns no Open and is
            // ignored.
            Notification::Oplock(_) => {}
        }
    }
}

/// Acknowledges a break, MS-SMB2 3.2.4.22 and 2.2.24.2, on another channel if one is lost. A
/// session that is gone needs no acknowledgment. Returns false if the server did not accept
/// it: the server then takes the whole lease without notice (MS-SMB2 3.3.6.5).
async fn acknowledge(
    session: &Inner,
    bound: Bound,
    lease_key: LeaseKey,
    lease_state: WireState,
) -> bool {
    let mut again = false;
    loop {
        let Some(live) = session.current_of(bound.generation) else { return true };
        let Some(channel) = live.channel() else { continue };
        let ack = oplock_break::Request::Lease(LeaseBreak { lease_key, lease_state });
        let mut call = Call::new(Command::OPLOCK_BREAK, |w| ack.encode(w));
        call.tree_id = bound.tree_id;
        match live.call(&channel, call, bound.seal).await {
            Err(Failure::Unsent) => {}
            Err(Failure::Gone) => again = true,
            // The server refused this acknowledgment. If it is a repetition, the first one has
            // ended the break, which is success.
            Ok(message) => return again || message.status() == Status::SUCCESS,
            Err(Failure::Final(_)) => return false,
        }
    }
}
