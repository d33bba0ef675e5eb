//! Memory of replies that are being built. It is charged before the data is read, so that an account
//! whose disk is slow, or whose client takes nothing, cannot fill the memory of others first.
//!
//! Within an account each connection has a part. A reply beyond it waits in the line of its connection,
//! whose first one joins the account's line when the client has taken answers. So the account's other
//! clients do not wait for one that takes none, and connections have memory in turns.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_net::buffer::budget;
use tokio::time::sleep;

use super::backlog::{Backlog, Counted};
use super::{Holder, Kind};
use crate::base::limits::{
    MEMORY_CONNECTION_PART, MEMORY_KEPT_PART, MEMORY_LAST_PART, MEMORY_LOOK, PASSING_BYTES_MIN,
};

/// The requests for which a holder has memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// None.
    None,
    /// Those of up to [`SMALL_FRAME_BYTES`](crate::base::limits::SMALL_FRAME_BYTES), which may free something.
    Small,
    /// All.
    All,
}

/// The memory of one reply, charged to its account until this is dropped: its connection counts the
/// reply from then on.
#[derive(Debug)]
#[must_use = "dropping it ends the charge"]
pub(crate) struct Built {
    holder: Arc<Holder>,
    counted: Counted,
}

impl Drop for Built {
    fn drop(&mut self) {
        self.holder.subtract(Kind::Reply, self.counted.bytes);
        // The first request in line checks again if there is enough memory.
        self.holder.line.changed.notify_one();
    }
}

/// The line of an account's replies that wait for memory.
#[derive(Debug)]
pub(super) struct Line {
    /// The permit of the first one in line, which alone looks for memory.
    first: tokio::sync::Semaphore,
    /// A reply of the account is built.
    changed: tokio::sync::Notify,
}

impl Default for Line {
    fn default() -> Self {
        Self { first: tokio::sync::Semaphore::new(1), changed: tokio::sync::Notify::new() }
    }
}

impl Holder {
    /// Charges a reply of `bytes` that is to be built; None if it has to wait for memory.
    pub(crate) fn try_build(
        self: &Arc<Self>,
        backlog: &Arc<Backlog>,
        bytes: usize,
    ) -> Option<Built> {
        if backlog.has_line() || self.line.first.available_permits() == 0 {
            return None;
        }
        let counted = backlog.try_count(bytes, self.bytes_of_connection())?;
        self.charge_built(counted).ok()
    }

    /// Charges a reply of `bytes` that is to be built, when there is memory for it.
    pub(crate) async fn build(self: &Arc<Self>, backlog: &Arc<Backlog>, bytes: usize) -> Built {
        if let Some(built) = self.try_build(backlog, bytes) {
            return built;
        }
        // The future is boxed, so that requests that do not wait need no memory for its state.
        Box::pin(self.await_memory(backlog, bytes)).await
    }

    async fn await_memory(self: &Arc<Self>, backlog: &Arc<Backlog>, bytes: usize) -> Built {
        // The semaphores are never closed. Even without a permit, the reply would only overtake
        // other replies.
        let _of_connection = backlog.first().acquire().await;
        let mut counted = loop {
            if let Some(counted) = backlog.try_count(bytes, self.bytes_of_connection()) {
                break counted;
            }
            // The client takes answers without a notice.
            sleep(MEMORY_LOOK).await;
        };
        let _first = self.line.first.acquire().await;
        loop {
            counted = match self.charge_built(counted) {
                Ok(built) => return built,
                Err(counted) => counted,
            };
            // Others may free memory without a notice, so a timer makes the reply look again.
            tokio::select! {
                () = self.line.changed.notified() => {}
                () = sleep(MEMORY_LOOK) => {}
            }
        }
    }

    /// Charges a reply that its connection has counted.
    fn charge_built(self: &Arc<Self>, counted: Counted) -> Result<Built, Counted> {
        let bytes = counted.bytes;
        // The charge comes first, so that several cores together do not charge too much.
        self.add(Kind::Reply, bytes);
        if self.takes_kept_memory() {
            self.subtract(Kind::Reply, bytes);
            return Err(counted);
        }
        Ok(Built { holder: Arc::clone(self), counted })
    }

    /// Returns the requests for which there is memory, of a connection that `is_idle` or not.
    pub(super) fn room(&self, is_idle: bool) -> Room {
        let limit = self.limit();
        if !self.takes_kept_memory() {
            Room::All
        } else if is_idle || self.books.used() <= limit - limit / MEMORY_LAST_PART {
            Room::Small
        } else {
            Room::None
        }
    }

    /// True for an account whose requests and replies have more than a quarter of the memory, while no
    /// more than a quarter is left: it is for accounts that have little.
    pub(super) fn takes_kept_memory(&self) -> bool {
        let limit = self.limit();
        let kept = limit / MEMORY_KEPT_PART;
        let own = self.sums.passing.load(Ordering::Relaxed);
        own > kept.max(PASSING_BYTES_MIN) && self.books.used() > limit - kept
    }

    fn limit(&self) -> usize {
        self.books.limit.load(Ordering::Relaxed).min(budget::limit())
    }

    /// Bytes of replies that one connection of the account may have.
    fn bytes_of_connection(&self) -> usize {
        let limit = self.limit();
        let own = self.sums.passing.load(Ordering::Relaxed);
        let is_large = own > limit / MEMORY_KEPT_PART;
        let part = if is_large { 0 } else { limit / MEMORY_CONNECTION_PART };
        part.max(PASSING_BYTES_MIN)
    }
}
