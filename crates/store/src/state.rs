//! State that outlives the process: the records of persistent Opens
//! (MS-SMB2 3.3.1.10 Open.IsPersistent).
//!
//! A [`StateStore`] keeps bytes by number and knows nothing of what they mean;
//! [`OpenRecord`] is what they mean. An embedded database on this machine is
//! one implementor, [`MemoryState`] another; a cluster's engine can be a third.

mod memory;
mod record;

pub use memory::MemoryState;
pub use record::{LeaseRecord, LockRecord, NotARecord, OpenRecord};

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// Names a record: Open.DurableFileId.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId(pub u64);

/// The store did not do it. For people and logs; a client is told
/// INSUFFICIENT_RESOURCES or that its Open is not persistent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFault(pub alloc::string::String);

impl fmt::Display for StateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the state store failed: {}", self.0)
    }
}

impl core::error::Error for StateFault {}

/// What is called when a change is on stable storage, or could not be put there.
pub type Done = Box<dyn FnOnce(Result<(), StateFault>) + Send>;

/// Keeps records for as long as they are wanted, whatever becomes of the
/// process. Changes take effect in the order in which they were asked for: when
/// one is stable, all before it are.
pub trait StateStore: Send + Sync + fmt::Debug {
    /// Everything that was put and not removed. Called once, before anything else.
    ///
    /// # Errors
    /// When it cannot be read.
    fn load(&self) -> Result<Vec<(RecordId, Vec<u8>)>, StateFault>;

    /// Puts `record` in the place of what `id` had. Returns at once; `done` is
    /// called exactly once, from any thread.
    fn put(&self, id: RecordId, record: Vec<u8>, done: Done);

    /// Removes what `id` had, if anything. Returns at once; `done` as above.
    fn remove(&self, id: RecordId, done: Done);
}
