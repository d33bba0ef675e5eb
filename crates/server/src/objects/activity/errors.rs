//! Requests that were answered with an error, counted by status.

use std::array;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use frevo_wire::Status;

use crate::base::limits::STATUSES_COUNTED;

/// Counts of a server by status. The server chooses the statuses, so that they are few; those
/// beyond [`STATUSES_COUNTED`] share one count. Errors are rare, and all cores add here.
#[derive(Debug)]
pub(crate) struct Errors {
    /// Filled from the front. A slot without a status has [`Status::SUCCESS`], which is none.
    slots: [(AtomicU32, AtomicU64); STATUSES_COUNTED],
    others: AtomicU64,
}

impl Default for Errors {
    fn default() -> Self {
        let slot = |_| (AtomicU32::new(Status::SUCCESS.0), AtomicU64::new(0));
        Self { slots: array::from_fn(slot), others: AtomicU64::new(0) }
    }
}

impl Errors {
    /// Counts a request that was answered with `status`.
    pub(crate) fn count(&self, status: Status) {
        for (of, count) in &self.slots {
            let mut now = of.load(Ordering::Relaxed);
            if now == Status::SUCCESS.0 {
                // Another core may have used the free slot first, maybe for the same status.
                let free = Status::SUCCESS.0;
                let taken =
                    of.compare_exchange(free, status.0, Ordering::Relaxed, Ordering::Relaxed);
                now = taken.err().unwrap_or(status.0);
            }
            if now == status.0 {
                count.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        self.others.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts that are not zero, the largest first; None stands for all other statuses.
    pub(crate) fn counts(&self) -> Vec<(Option<Status>, u64)> {
        let slots = self.slots.iter().map(|(of, count)| {
            (Some(Status(of.load(Ordering::Relaxed))), count.load(Ordering::Relaxed))
        });
        let others = (None, self.others.load(Ordering::Relaxed));
        let mut counts: Vec<_> =
            slots.chain([others]).filter(|(_, requests)| *requests > 0).collect();
        counts.sort_by_key(|(status, requests)| (std::cmp::Reverse(*requests), *status));
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_status_and_beyond_the_limit_together() {
        let errors = Errors::default();
        assert!(errors.counts().is_empty());
        for _ in 0..3 {
            errors.count(Status::ACCESS_DENIED);
        }
        errors.count(Status::OBJECT_NAME_NOT_FOUND);
        let counts = errors.counts();
        assert_eq!(counts[0], (Some(Status::ACCESS_DENIED), 3));
        assert_eq!(counts[1], (Some(Status::OBJECT_NAME_NOT_FOUND), 1));
        let further = u32::try_from(STATUSES_COUNTED).unwrap();
        for number in 0..further {
            errors.count(Status(0xc0ff_0000 + number));
        }
        let counts = errors.counts();
        // Two slots are already taken, so two of the further statuses have no slot and are counted
        // together.
        assert_eq!(counts.len(), STATUSES_COUNTED + 1);
        assert_eq!(counts.iter().find(|(status, _)| status.is_none()), Some(&(None, 2)));
        let all: u64 = counts.iter().map(|(_, count)| count).sum();
        assert_eq!(all, 4 + u64::from(further));
    }

    #[test]
    fn threads_that_count_the_same_status_share_a_slot() {
        let errors = Errors::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| errors.count(Status::ACCESS_DENIED)));
            }
        });
        assert_eq!(errors.counts(), [(Some(Status::ACCESS_DENIED), 4000)]);
    }
}
