//! Opens that outlive their connection: durable, resilient and persistent ones.
//! MS-SMB2 3.3.1.10, 3.3.5.9.6, .7, .10, .12, .13, 3.3.5.15.9, 3.3.6.2, 3.3.6.4,
//! 3.3.7.1.
//!
//! [`Durables`] is that part of the GlobalOpenTable that is ever looked through:
//! Opens that can be reconnected, replayed or found by their application. Other
//! Opens are never in it and cost nothing. Whether an Open is attached to a
//! session, waits for its client or has been given up is said by its entry
//! alone, under one lock: of a reconnect and a scavenger one finds it.

mod by_file;
mod caching;
pub(crate) mod disk;
pub(crate) mod handover;
pub(crate) mod owning;
mod reconnect;
pub(crate) mod record;
pub(crate) mod scavenger;
mod store_backlog;
mod survival;
mod table;

pub(crate) use caching::Caching;
pub(crate) use reconnect::{AskedLease, Reconnect, Version};
pub(crate) use survival::{AppInstance, Asked, Survival};
use table::Broken;
pub(crate) use table::{Creating, Durables, Hold, Replay};

use std::sync::Arc;

use frevo_store::lease::{Break, Granted, LeaseState, OplockLevel};

use crate::objects::open::Open;
use crate::objects::server::ServerState;

/// MS-SMB2 3.3.4.6, 3.3.4.7: a break whose client has no connection. A durable
/// Open cannot be taken up without what is broken, so it is closed at once; a
/// resilient one loses what it cached and stays. True when a persistent one has
/// it: its client has the usual time to come back and give it up.
pub(crate) fn on_break(server: &Arc<ServerState>, broken: &Break) -> bool {
    let mut is_kept = false;
    for (_, route) in &broken.routes {
        match server.durables.on_break(route.persistent) {
            Broken::Closed(open) => server.close_here(&open),
            Broken::Kept => is_kept = true,
            Broken::Stays => {}
        }
    }
    is_kept
}

impl Caching {
    /// True when byte ranges of `open` are locked while its lease lets other clients open the file.
    ///
    /// Windows: such an Open is not kept for a client that is away, although MS-SMB2 3.3.7.1 names
    /// only handle caching. Opening the file breaks no lease of that kind, so nothing would free the
    /// ranges for the others.
    pub fn locks_for_others(open: &Open) -> bool {
        let Ok(file) = open.file() else { return false };
        let state = file.cell.lock();
        matches!(state.held(file.id), Granted::Lease { state: caches, .. }
            if !caches.contains(LeaseState::WRITE))
            && state.ranges.held_by(file.id) > 0
    }

    /// The caching of `open` now.
    pub fn of(open: &Open) -> Self {
        let Ok(file) = open.file() else { return Self::Nothing };
        let state = file.cell.lock();
        match state.held(file.id) {
            Granted::Nothing => Self::Nothing,
            Granted::Oplock(level) => {
                let is_held = state.oplocks.is_oplock_breaking(file.id).is_none();
                Self::Oplock { is_batch: is_held && level == OplockLevel::BATCH }
            }
            Granted::Lease { state: caches, is_breaking, v2 } => Self::Lease {
                key: state.lease_of(file.id).map(|owner| owner.key).unwrap_or_default(),
                version: if v2.is_some() { 2 } else { 1 },
                handle: !is_breaking && caches.contains(LeaseState::HANDLE),
                deletes: state.deletion_of(file.id) != (false, false),
            },
        }
    }
}
