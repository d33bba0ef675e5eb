//! Numbers of operations on names: MS-SMB2 has none, see
//! [`frevo_wire::command::ioctl::operation`].

use frevo_wire::command::ioctl::operation::OperationId;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::limits::OPERATIONS;

/// The slots of a session: each has one operation at a time.
#[derive(Debug)]
pub(crate) struct Operations {
    room: Semaphore,
    state: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    /// Free slots with their last sequence.
    slots: Vec<OperationId>,
    /// Number of slots that were ever used.
    used: u32,
}

impl Default for Operations {
    fn default() -> Self {
        Self { room: Semaphore::new(OPERATIONS), state: Mutex::default() }
    }
}

/// A slot that is in use. Dropping it frees the slot.
pub(crate) struct Taken<'a> {
    owner: &'a Operations,
    pub(crate) id: OperationId,
    _room: SemaphorePermit<'a>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.owner.state.lock().slots.push(self.id);
    }
}

impl Operations {
    /// Takes a slot; waits while all are in use. `None` is never returned: nothing closes the room.
    pub(crate) async fn take(&self) -> Option<Taken<'_>> {
        let room = self.room.acquire().await.ok()?;
        Some(self.taken(room))
    }

    fn taken<'a>(&'a self, room: SemaphorePermit<'a>) -> Taken<'a> {
        let mut state = self.state.lock();
        let id = state.slots.pop().unwrap_or_else(|| {
            state.used += 1;
            OperationId { slot: state.used - 1, sequence: 0 }
        });
        drop(state);
        Taken { owner: self, id, _room: room }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slot_has_one_operation_at_a_time_and_counts_on() {
        let operations = Operations::default();
        let mut first = operations.take().await.unwrap();
        first.id.sequence += 1;
        let second = operations.take().await.unwrap();
        assert_ne!(first.id.slot, second.id.slot);
        let before = first.id;
        drop(first);
        assert_eq!(operations.take().await.unwrap().id, before);
    }
}
