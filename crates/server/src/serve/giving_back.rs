//! Gives the allocator's free memory back to the system after a burst.

use std::sync::Arc;

use frevo_net::buffer::{self, budget};
use tokio::time::sleep;

use crate::base::limits::{GIVE_BACK_BYTES, GIVE_BACK_LOOK, GIVE_BACK_LOOKS};
use crate::objects::server::ServerState;

/// Gives free memory back from time to time. It may take many milliseconds, so it is done beside the
/// cores.
pub(super) async fn give_back(server: Arc<ServerState>) {
    let mut looks = Looks::default();
    loop {
        sleep(GIVE_BACK_LOOK).await;
        let (ledger, cached) = (server.ledger.bytes(), server.ledger.cached_bytes());
        let used = ledger.saturating_add(cached).max(budget::in_use());
        if looks.is_due(used, buffer::take_released()) {
            let _ = tokio::task::spawn_blocking(buffer::release_free_memory).await;
        }
    }
}

/// The memory in use at earlier looks.
#[derive(Debug, Default)]
struct Looks {
    /// The most since memory was given back.
    most: usize,
    /// The bytes at the last look.
    last: usize,
    /// Further looks after one at which much was free.
    left: u32,
    /// Bytes that pools of buffers have freed since memory was given back. Nobody used them: they were
    /// not in `most` when they were freed.
    released: usize,
}

impl Looks {
    /// Returns true if free memory is to be given back, where `used` bytes are in use and pools have
    /// freed `released` bytes since the last look.
    fn is_due(&mut self, used: usize, released: usize) -> bool {
        self.most = self.most.max(used);
        self.released = self.released.saturating_add(released);
        let is_much = self.most.saturating_sub(used) >= GIVE_BACK_BYTES;
        // After a burst its memory is freed gradually, so the server looks several times.
        let is_rest = self.left > 0 && (used < self.last || self.left == GIVE_BACK_LOOKS);
        self.left = if is_much { GIVE_BACK_LOOKS } else { self.left.saturating_sub(1) };
        self.last = used;
        let is_due = is_much || is_rest || self.released >= GIVE_BACK_BYTES;
        if is_due {
            self.most = used;
            self.released = 0;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUCH: usize = GIVE_BACK_BYTES;

    /// Tests n - 1 and n bytes that are used no more, and the looks that follow.
    #[test]
    fn memory_of_a_burst_is_given_back_as_it_becomes_free() {
        let mut looks = Looks::default();
        assert!(!looks.is_due(3 * MUCH, 0));
        assert!(!looks.is_due(2 * MUCH + 1, 0));
        assert!(looks.is_due(2 * MUCH, 0));
        assert!(looks.is_due(2 * MUCH, 0), "the first look after it");
        assert!(!looks.is_due(2 * MUCH, 0), "nothing became free");
        assert!(looks.is_due(2 * MUCH - 1, 0), "a little became free");
        assert!(!looks.is_due(2 * MUCH - 1, 0));
        assert!(!looks.is_due(2 * MUCH - 2, 0), "the burst is over");
    }

    /// Tests n - 1 and n bytes that pools free long after they were used, in one look and in several.
    #[test]
    fn memory_that_pools_kept_is_given_back_too() {
        let mut looks = Looks::default();
        assert!(!looks.is_due(0, MUCH - 1));
        assert!(looks.is_due(0, 1));
        assert!(!looks.is_due(0, MUCH - 1));
        assert!(!looks.is_due(0, 0));
        assert!(looks.is_due(0, MUCH));
        assert!(!looks.is_due(0, 0));
    }
}
