//! Slots for objects: who gets none is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the slots that are taken.
#[derive(Debug, Default)]
pub struct Slots(Arc<AtomicUsize>);

/// One slot, which is free again when this is dropped.
#[derive(Debug)]
pub struct Slot(Arc<AtomicUsize>);

impl Slots {
    /// Takes a slot; none when `limit` slots are taken.
    pub fn take(&self, limit: usize) -> Option<Slot> {
        let one_more = |taken: usize| (taken < limit).then_some(taken + 1);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Slot(Arc::clone(&self.0)))
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_slot_is_given_and_the_next_is_not() {
        let slots = Slots::default();
        let mut held: Vec<_> = (0..3).map(|_| slots.take(4).unwrap()).collect();
        held.push(slots.take(4).unwrap());
        assert!(slots.take(4).is_none());
        held.pop();
        assert_eq!(slots.taken(), 3);
        assert!(slots.take(4).is_some());
    }
}
