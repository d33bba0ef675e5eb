//! Memory of replies that are being built. It is charged before the data is read, so that an account
//! whose disk is slow, or whose client takes nothing, cannot fill the memory of others first.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_net::buffer::budget;
use tokio::time::sleep;

use super::{Holder, Kind};
use crate::base::limits::{MEMORY_KEPT_PART, MEMORY_LOOK, PASSING_BYTES_MIN};

/// The memory of one reply, charged to its account until this is dropped: its connection counts the
/// reply from then on.
#[derive(Debug)]
#[must_use = "dropping it ends the charge"]
pub struct Built {
    holder: Arc<Holder>,
    bytes: usize,
}

impl Drop for Built {
    fn drop(&mut self) {
        self.holder.subtract(Kind::Reply, self.bytes);
        // The first one in line looks again.
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
    pub fn try_build(self: &Arc<Self>, bytes: usize) -> Option<Built> {
        if self.line.first.available_permits() == 0 {
            return None;
        }
        self.charge_built(bytes)
    }

    /// Charges a reply of `bytes` that is to be built, when there is memory for it.
    pub async fn build(self: &Arc<Self>, bytes: usize) -> Built {
        if let Some(built) = self.try_build(bytes) {
            return built;
        }
        // The future is boxed, so that requests that do not wait need no memory for its state.
        Box::pin(self.await_memory(bytes)).await
    }

    async fn await_memory(self: &Arc<Self>, bytes: usize) -> Built {
        // Nobody closes the semaphore. Without a permit the reply would only overtake others.
        let _first = self.line.first.acquire().await;
        loop {
            if let Some(built) = self.charge_built(bytes) {
                return built;
            }
            // Others may free memory without a notice, so a timer makes the reply look again.
            tokio::select! {
                () = self.line.changed.notified() => {}
                () = sleep(MEMORY_LOOK) => {}
            }
        }
    }

    fn charge_built(self: &Arc<Self>, bytes: usize) -> Option<Built> {
        // The charge comes first, so that several cores together do not charge too much.
        self.add(Kind::Reply, bytes);
        if self.takes_kept_memory() {
            self.subtract(Kind::Reply, bytes);
            return None;
        }
        Some(Built { holder: Arc::clone(self), bytes })
    }

    /// True for an account whose requests and replies have more than a quarter of the memory, while no
    /// more than a quarter is left: it is for accounts that have little.
    pub fn takes_kept_memory(&self) -> bool {
        let limit = self.books.limit.load(Ordering::Relaxed).min(budget::limit());
        let kept = limit / MEMORY_KEPT_PART;
        let own = self.sums.passing.load(Ordering::Relaxed);
        own > kept.max(PASSING_BYTES_MIN) && self.books.used() > limit - kept
    }
}
