//! Shares that pass from one owner to another, with their persistent Opens (MS-SMB2 3.3.1.10).
//!
//! A server on its own loads all records before it serves anybody ([`restore`]): shares can show the
//! same files, and a handle that waits for its client keeps others out. A share that several servers
//! have in turn is taken while others are served ([`ServerState::start_shares`],
//! [`ServerState::serve_shares`]) and given away ([`ServerState::drain_shares`],
//! [`ServerState::leave_shares`]), or lost ([`ServerState::stop_shares`], [`ServerState::lose_share`]).
//! While the limit of the server's cluster has passed, it is paused ([`ServerState::watch_limit`]).
//!
//! An Open of a share that another server owns is abandoned by its close: nothing is done to its
//! file, and its record is the next owner's.

mod giving;
mod limit;
mod taking;
mod uses;

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use frevo_store::StateStore;
use frevo_store::state::{Loaded, NotARecord, OpenRecord, RecordId, StateFault};
use frevo_wire::fscc::fold_name;
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::record::{Recorded, lost, restore_all};
use super::store_backlog::Holder;
use crate::objects::open::Open;
use crate::objects::server::ServerState;
use crate::shares::life::Life;
use crate::shares::share::Share;

/// A share that could not be taken or given away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotMoved {
    /// The name of the share.
    pub share: String,
    /// The reason.
    pub why: String,
}

impl std::fmt::Display for NotMoved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the share {}: {}", self.share, self.why)
    }
}

impl std::error::Error for NotMoved {}

impl NotMoved {
    fn of(share: &str, why: &impl ToString) -> Self {
        Self { share: share.to_owned(), why: why.to_string() }
    }
}

/// Asks a store for the records of a share.
pub(super) fn load(
    store: &dyn StateStore,
    share: &str,
) -> mpsc::Receiver<Result<Loaded, StateFault>> {
    let (done, loaded) = mpsc::channel();
    // The send fails if the start was given up because another load had failed.
    store.load(share, Box::new(move |result| _ = done.send(result)));
    loaded
}

/// The fault of a store that drops a callback.
pub(super) fn unanswered(_: mpsc::RecvError) -> StateFault {
    StateFault::Failed(String::from("it has not answered"))
}

/// Keeps persistent Opens in `store`, and makes those of an earlier run anew. Each waits for its
/// client as long as it would have after a lost connection. To be called before anybody is served.
///
/// # Errors
/// When the store cannot be read, or a later version has written a record. A record that is damaged or cannot
/// be made an Open again (its file or share has gone) costs that Open alone, and is logged.
pub fn restore(server: &Arc<ServerState>, store: Arc<dyn StateStore>) -> Result<usize, StateFault> {
    server.durables.set_store(store);
    restore_new(server)
}

/// Loads the continuous shares whose records were not loaded yet: all of them at the start, those
/// that a reload has made continuous later.
///
/// # Errors
/// Those of [`restore`].
pub(crate) fn restore_new(server: &Arc<ServerState>) -> Result<usize, StateFault> {
    let Some(store) = server.durables.store() else { return Ok(0) };
    let is_new = |share: &Arc<Share>| share.continuous && share.life.is_without_records();
    let shares: Vec<_> = server.shares().sorted().into_iter().filter(is_new).collect();
    let loading: Vec<_> = shares.iter().map(|share| load(&**store, share.life.share())).collect();
    let (mut records, mut epochs) = (Vec::new(), Vec::new());
    for (share, loading) in shares.iter().zip(loading) {
        let loaded = loading.recv().map_err(unanswered)??;
        epochs.push((share, loaded.ownership.epoch));
        let found = read(server, &share.life, loaded).map_err(|not| not.to_string());
        records.extend(found.map_err(StateFault::Failed)?);
    }
    // No share is owned before all have been read, so a later call loads them again.
    for (share, epoch) in epochs {
        // The state is changed only by the task that starts the share, namely this one, so `own`
        // succeeds.
        let _ = share.life.own(epoch);
    }
    // The Opens of all shares are restored in one step, because caching and locks can be restored
    // only when all Opens exist.
    restore_all(server, records, &|| true).map_err(StateFault::Failed)
}

/// Decodes the records of a share. Those that are damaged are lost.
///
/// # Errors
/// When a later version has written one. All records stay then.
fn read(server: &ServerState, life: &Arc<Life>, loaded: Loaded) -> Result<Vec<Recorded>, NotMoved> {
    let holder = Holder::loaded(life, &loaded.ownership);
    let decode = |(id, bytes): (RecordId, Vec<u8>)| match OpenRecord::from_bytes(&bytes) {
        Err(later @ NotARecord::OfLaterVersion(_)) => Err(NotMoved::of(life.share(), &later)),
        decoded => Ok((id, decoded)),
    };
    let decoded: Vec<_> = loaded.records.into_iter().map(decode).collect::<Result<_, _>>()?;
    let readable = |(id, decoded): (RecordId, Result<OpenRecord, NotARecord>)| match decoded {
        Ok(record) => {
            let time = Duration::from_millis(u64::from(record.timeout_ms));
            let deadline = Instant::now() + time;
            Some(Recorded { id, record, deadline, holder: Some(holder.clone()) })
        }
        Err(error) => {
            lost(server, id, &error.to_string(), Some(&holder));
            None
        }
    };
    Ok(decoded.into_iter().filter_map(readable).collect())
}

/// True for an Open of that share.
fn is_of(open: &Open, life: &Arc<Life>) -> bool {
    Arc::ptr_eq(&open.tree().share.life, life)
}

/// Waits for the turns of a move of these shares. They are taken in the order of the names, so that two
/// moves never wait for each other.
async fn turns(lives: &[Arc<Life>]) -> Vec<MutexGuard<'_, ()>> {
    let mut ordered: Vec<&Arc<Life>> = lives.iter().collect();
    ordered.sort_by_key(|life| Arc::clone(life.share()));
    ordered.dedup_by(|one, other| Arc::ptr_eq(one, other));
    let mut held = Vec::with_capacity(ordered.len());
    for life in ordered {
        held.push(life.moving().lock().await);
    }
    held
}

impl ServerState {
    fn life(&self, name: &str) -> Result<Arc<Life>, NotMoved> {
        let shares = self.shares();
        let share = shares.find(&fold_name(name));
        let share = share.ok_or_else(|| NotMoved::of(name, &"there is no such share"))?;
        Ok(Arc::clone(&share.life))
    }

    fn lives(&self, names: &[&str]) -> Result<Vec<Arc<Life>>, NotMoved> {
        names.iter().map(|name| self.life(name)).collect()
    }
}
