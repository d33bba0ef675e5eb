//! State that outlives the process: the records of persistent Opens (MS-SMB2 3.3.1.10
//! Open.IsPersistent).
//!
//! A [`StateStore`] keeps bytes by number without reading them; [`OpenRecord`] is their meaning. An
//! embedded database on this machine is one implementor, [`MemoryState`] another; a cluster's
//! engine can be a third.

mod memory;
mod record;

pub use memory::MemoryState;
pub use record::{ActorRecord, LeaseRecord, LockRecord, NotARecord, OpenRecord};

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// The number of a record: Open.DurableFileId.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId(pub u64);

/// A change that the store could not make, described for logs. The client gets
/// INSUFFICIENT_RESOURCES, or an Open that is not persistent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFault(pub alloc::string::String);

impl fmt::Display for StateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the state store failed: {}", self.0)
    }
}

impl core::error::Error for StateFault {}

/// A callback for the end of a change: it is on stable storage, or failed.
pub type Done = Box<dyn FnOnce(Result<(), StateFault>) + Send>;

/// A store that keeps records until they are removed, also when the process ends. Changes take
/// effect in the order of their calls: when one is stable, so are all earlier ones.
pub trait StateStore: Send + Sync + fmt::Debug {
    /// Returns all records that were put and not removed. Called once, before anything else.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn load(&self) -> Result<Vec<(RecordId, Vec<u8>)>, StateFault>;

    /// Stores `record` under `id`, replacing an earlier one. Returns at once; `done` is called
    /// exactly once, from any thread.
    fn put(&self, id: RecordId, record: Vec<u8>, done: Done);

    /// Removes the record `id` if it exists. Returns at once; `done` is called exactly once, from
    /// any thread.
    fn remove(&self, id: RecordId, done: Done);
}
