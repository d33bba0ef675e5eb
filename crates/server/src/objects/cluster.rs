//! The server as one of a cluster: its [`Seat`], the Opens that a pause keeps from being closed, and
//! the caller that is told of lost storage.
//!
//! A server on its own has none of this, and is asked one atomic load for it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};

use frevo_proto::Dialect;
use frevo_wire::Status;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::objects::open::{Deletion, Open};
use crate::shares::life::{Change, Life};
use crate::shares::scope::{ClusterNames, Scope};
use crate::shares::seat::Seat;

/// The action when the storage of a share refuses this server.
pub(crate) type StorageLost = Arc<dyn Fn(&str) + Send + Sync>;

/// An Open that a pause has kept from being closed, or from being closed wholly.
#[derive(Debug)]
pub(super) struct LateOpen {
    pub(super) open: Arc<Open>,
    /// The names that the close of the Open has still to delete. None for an Open that is not closed.
    pub(super) deletion: Option<Deletion>,
    /// Its close, once it has been taken out of the list.
    pub(super) change: Option<Change>,
}

impl From<Arc<Open>> for LateOpen {
    fn from(open: Arc<Open>) -> Self {
        Self { open, deletion: None, change: None }
    }
}

/// The server's part in a cluster.
#[derive(Default)]
pub struct Cluster {
    seat: OnceLock<Arc<Seat>>,
    storage_lost: OnceLock<StorageLost>,
    names: OnceLock<ClusterNames>,
    /// MaxClusterDialect of MS-SMB2 3.3.1.5; 0: any dialect.
    max_dialect: AtomicU16,
    /// The last demand, which does not count yet.
    #[cfg(feature = "plant")]
    unread_dialect: AtomicU16,
    /// Opens that were to be closed while their share was paused.
    late: Mutex<Vec<LateOpen>>,
    /// True while somebody looks at the limit.
    pub(super) is_watched: AtomicBool,
    /// True from the moment when the limit was found passed until it was found moved.
    pub(super) is_paused: AtomicBool,
    /// Wakes the one who looks at the limit.
    pub(super) look: Arc<Notify>,
}

impl Cluster {
    /// Makes the server one of a cluster, once: with its seat, the names by which clients see one part of the
    /// shares each, and the action when the storage of a share refuses this server.
    pub(crate) fn begin(
        &self,
        seat: Option<Seat>,
        names: Option<ClusterNames>,
        storage_lost: Option<StorageLost>,
    ) {
        seat.into_iter().for_each(|seat| _ = self.seat.set(Arc::new(seat)));
        names.into_iter().for_each(|names| _ = self.names.set(names));
        storage_lost.into_iter().for_each(|act| _ = self.storage_lost.set(act));
    }

    /// The server's place in a cluster. None for a server on its own.
    pub(crate) fn seat(&self) -> Option<&Arc<Seat>> {
        self.seat.get()
    }

    /// The shares that clients see by this name of the server.
    pub(crate) fn scope(&self, server: &str) -> Scope {
        self.names.get().map_or(Scope::All, |names| names.scope(server))
    }

    /// Sets the largest dialect of clients on clustered shares. None: no limit.
    pub(crate) fn set_max_dialect(&self, max: Option<Dialect>) {
        let max = max.map_or(0, |max| max.0);
        #[cfg(feature = "plant")]
        let max = match planted!(FenceBeforeDemand) {
            true => self.unread_dialect.swap(max, Ordering::AcqRel),
            false => max,
        };
        self.max_dialect.store(max, Ordering::Release);
    }

    /// The largest dialect of clients on clustered shares: MaxClusterDialect of MS-SMB2 3.3.1.5.
    pub(crate) fn max_dialect(&self) -> Option<Dialect> {
        match self.max_dialect.load(Ordering::Acquire) {
            0 => None,
            max => Some(Dialect(max)),
        }
    }

    /// Tells that the storage of `share`, a name in lower case, refuses this server.
    pub(super) fn storage_lost(&self, share: &str) {
        if let Some(act) = self.storage_lost.get() {
            act(share);
        }
    }

    /// True while clustered shares may be served, also for a server on its own.
    pub(crate) fn allows(&self) -> bool {
        self.seat.get().is_none_or(|seat| seat.allows())
    }

    /// Takes a number for a FileId or a session.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when there is none. None for a server on its own, which draws its own.
    pub(super) fn number(&self) -> Option<Result<u64, Status>> {
        let seat = self.seat.get()?;
        Some(seat.ids.take().ok_or(Status::INSUFFICIENT_RESOURCES))
    }

    /// Keeps an Open that is to be closed until its share is served again, or lost.
    pub(super) fn close_later(&self, open: &Arc<Open>) {
        self.keep(LateOpen::from(Arc::clone(open)));
    }

    /// Keeps the rest of a deletion until the share of its Open is served, or lost.
    pub(super) fn delete_later(&self, open: &Arc<Open>, deletion: Deletion) {
        self.keep(LateOpen { deletion: Some(deletion), ..LateOpen::from(Arc::clone(open)) });
    }

    fn keep(&self, late: LateOpen) {
        self.late.lock().push(late);
        self.look.notify_one();
    }

    /// Takes at most `most` Opens out that were to be closed and whose share is not paused any more. Their closes
    /// are under way before the list is without them.
    pub(super) fn late_opens(&self, most: usize) -> Vec<LateOpen> {
        let mut late = self.late.lock();
        if late.is_empty() {
            return Vec::new();
        }
        let is_due = |late: &mut LateOpen| !late.open.tree().share.life.is_paused();
        let begun = |late: LateOpen| {
            let change = Some(late.open.tree().share.life.begin_late_change());
            LateOpen { change, ..late }
        };
        let due = late.extract_if(.., is_due).take(most).map(begun).collect();
        if late.is_empty() {
            *late = Vec::new();
        }
        due
    }

    /// True while an Open of a share waits to be closed.
    pub(super) fn has_late_open_of(&self, life: &Arc<Life>) -> bool {
        let is_of = |late: &LateOpen| Arc::ptr_eq(&late.open.tree().share.life, life);
        self.late.lock().iter().any(is_of)
    }

    /// True while Opens wait to be closed.
    pub(crate) fn has_late_opens(&self) -> bool {
        !self.late.lock().is_empty()
    }

    /// True for the caller that is to look at the limit from now on.
    pub(super) fn begin_watch(&self) -> bool {
        self.seat.get().is_some() && !self.is_watched.swap(true, Ordering::AcqRel)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("seat", &self.seat.get()).finish_non_exhaustive()
    }
}
