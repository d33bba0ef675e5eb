//! Numbered operations on names: their outcome is kept until the client has it.
//!
//! MS-SMB2 recognises a repeated CREATE by its Open (3.3.5.9). A compound that makes, renames or
//! removes a name closes its Open, so a client that loses a channel cannot learn whether the
//! compound was carried out. Frevo's client numbers such a compound
//! ([`frevo_wire::command::ioctl::operation`]) and asks for its outcome on another channel. The
//! question closes a number that has not begun: a compound that is still on its way over the lost
//! channel is refused when it arrives.

use frevo_wire::Status;
use frevo_wire::command::ioctl::operation::{OperationId, Outcome, Progress};
use parking_lot::Mutex;
use std::sync::Arc;

use crate::base::limits::OPERATIONS_PER_SESSION;
use crate::objects::refusal;
use crate::objects::session::Session;

/// The operations of a session, by slot.
#[derive(Debug, Default)]
pub struct Operations(Mutex<Vec<Slot>>);

/// The last operation of a slot.
#[derive(Debug, Clone, Copy)]
struct Slot {
    sequence: u64,
    outcome: Outcome,
}

const fn at(progress: Progress, status: Status) -> Outcome {
    Outcome { progress, status }
}

impl Operations {
    /// Begins an operation. DUPLICATE_OBJECTID for one that has begun before, or whose number is
    /// closed.
    pub fn begin(&self, id: OperationId) -> Result<(), Status> {
        self.with(id, |slot| {
            if slot.sequence >= id.sequence && !planted!(OperationTwice) {
                return Err(Status::DUPLICATE_OBJECTID);
            }
            *slot = Slot { sequence: id.sequence, outcome: at(Progress::RUNNING, Status::SUCCESS) };
            Ok(())
        })?
    }

    /// Takes the beginning back: the CREATE has done nothing, and begins again elsewhere.
    pub fn take_back(&self, id: OperationId) {
        self.change(id, |slot| slot.sequence = slot.sequence.saturating_sub(1));
    }

    /// The outcome of an operation. One that has not begun never will.
    pub fn ask(&self, id: OperationId) -> Result<Outcome, Status> {
        self.with(id, |slot| {
            if slot.sequence > id.sequence {
                // The client has begun a later operation, so it has already received the response
                // to this one.
                return at(Progress::BROKEN_OFF, Status::SUCCESS);
            }
            if slot.sequence < id.sequence {
                let outcome = at(Progress::NOT_BEGUN, Status::SUCCESS);
                *slot = Slot { sequence: id.sequence, outcome };
            }
            if planted!(OperationTwice) {
                return at(Progress::NOT_BEGUN, Status::SUCCESS);
            }
            slot.outcome
        })
    }

    fn end(&self, id: OperationId, outcome: Outcome) {
        self.change(id, |slot| slot.outcome = outcome);
    }

    /// Changes the slot of `id` unless it has another operation.
    fn change(&self, id: OperationId, change: impl FnOnce(&mut Slot)) {
        let _ = self.with(id, |slot| {
            if slot.sequence == id.sequence {
                change(slot);
            }
        });
    }

    fn with<T>(&self, id: OperationId, with: impl FnOnce(&mut Slot) -> T) -> Result<T, Status> {
        let index = usize::try_from(id.slot).unwrap_or(usize::MAX);
        if index >= OPERATIONS_PER_SESSION || id.sequence == 0 {
            return Err(Status::INVALID_PARAMETER);
        }
        let mut slots = self.0.lock();
        if slots.len() <= index {
            let outcome = at(Progress::NOT_BEGUN, Status::SUCCESS);
            slots.resize(index + 1, Slot { sequence: 0, outcome });
        }
        slots.get_mut(index).map(with).ok_or(Status::INVALID_PARAMETER)
    }
}

/// An operation whose requests are being carried out. Dropped before its end it broke off.
pub(crate) struct Running {
    session: Arc<Session>,
    id: OperationId,
    outcome: Outcome,
}

impl Running {
    /// An operation of `session` that a CREATE has begun.
    pub(crate) const fn new(session: Arc<Session>, id: OperationId) -> Self {
        Self { session, id, outcome: at(Progress::BROKEN_OFF, Status::SUCCESS) }
    }

    /// Takes in the outcome of a request of the operation: the first error counts.
    pub(crate) fn take(&mut self, outcome: &refusal::Outcome) {
        let status = match outcome {
            Ok(status) => *status,
            Err(refusal) => refusal.status().unwrap_or(Status::INTERNAL_ERROR),
        };
        if self.outcome.status == Status::SUCCESS {
            self.outcome.status = status;
        }
    }

    /// All its requests were carried out.
    pub(crate) fn end(mut self) {
        self.outcome.progress = Progress::DONE;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.session.operations.end(self.id, self.outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn id(sequence: u64) -> OperationId {
        OperationId { slot: 3, sequence }
    }

    #[test]
    fn an_operation_begins_once_and_its_outcome_is_kept() {
        let operations = Operations::default();
        operations.begin(id(1)).unwrap();
        assert_eq!(operations.begin(id(1)), Err(Status::DUPLICATE_OBJECTID));
        assert_eq!(operations.ask(id(1)).unwrap().progress, Progress::RUNNING);
        let done = at(Progress::DONE, Status::OBJECT_NAME_COLLISION);
        operations.end(id(1), done);
        assert_eq!(operations.ask(id(1)), Ok(done));
        operations.begin(id(2)).unwrap();
        // Operation 1 ends after operation 2 has begun. The progress of operation 2 must not change.
        operations.end(id(1), done);
        assert_eq!(operations.ask(id(2)).unwrap().progress, Progress::RUNNING);
        assert_eq!(operations.ask(id(1)).unwrap().progress, Progress::BROKEN_OFF);
    }

    #[test]
    fn a_question_closes_a_number() {
        let operations = Operations::default();
        assert_eq!(operations.ask(id(1)).unwrap().progress, Progress::NOT_BEGUN);
        assert_eq!(operations.begin(id(1)), Err(Status::DUPLICATE_OBJECTID));
        assert_eq!(operations.ask(id(1)).unwrap().progress, Progress::NOT_BEGUN);
        assert_eq!(operations.begin(id(2)), Ok(()));
        operations.take_back(id(2));
        assert_eq!(operations.begin(id(2)), Ok(()));
    }

    #[test]
    fn slots_are_limited() {
        let operations = Operations::default();
        let slot = |slot: usize| OperationId { slot: slot as u32, sequence: 1 };
        assert_eq!(operations.begin(slot(OPERATIONS_PER_SESSION - 1)), Ok(()));
        let refused = Err(Status::INVALID_PARAMETER);
        assert_eq!(operations.begin(slot(OPERATIONS_PER_SESSION)), refused);
        assert_eq!(operations.begin(OperationId { slot: 0, sequence: 0 }), refused);
    }
}
