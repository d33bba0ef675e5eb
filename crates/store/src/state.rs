//! State that outlives the process: the records of persistent Opens (MS-SMB2 3.3.1.10
//! Open.IsPersistent).
//!
//! A [`StateStore`] keeps bytes by share and number without reading them; [`OpenRecord`] is their
//! meaning. An embedded database on this machine is one implementor, [`MemoryState`] another; a
//! cluster's engine can be a third.
//!
//! A share has one owner at a time. [`StateStore::load`] makes the caller the owner, under an
//! [`Epoch`] that is larger than all before it; the store refuses the changes of earlier owners with
//! [`StateFault::Fenced`].

mod ids;
mod later;
mod limit;
mod memory;
mod record;

pub use ids::IdSource;
#[cfg(feature = "later-records")]
pub use later::be_the_next_version;
pub use limit::ServeLimit;
pub use memory::MemoryState;
pub use record::{ActorRecord, LeaseRecord, LockRecord, NotARecord, OpenRecord, RecordForm};

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// The number of a record: Open.DurableFileId.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId(pub u64);

/// The number of an ownership of a share. A later owner has a larger one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The right to change the records of a share, until a later owner loads them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ownership {
    /// The name of the share in lower case.
    pub share: Arc<str>,
    /// The number of the ownership.
    pub epoch: Epoch,
}

/// The reason why the store could not make a change or load a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateFault {
    /// The medium failed; the text is for logs. The client gets INSUFFICIENT_RESOURCES, or an Open
    /// that is not persistent.
    Failed(String),
    /// Somebody else owns the share by now. Nothing that depends on the change may be acknowledged,
    /// and the caller no longer serves the share.
    Fenced,
}

impl fmt::Display for StateFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) => write!(f, "the state store failed: {why}"),
            Self::Fenced => f.write_str("another server owns the share by now"),
        }
    }
}

impl core::error::Error for StateFault {}

/// A callback for the end of a change: it is on stable storage, or failed.
pub type Done = Box<dyn FnOnce(Result<(), StateFault>) + Send>;

/// A share whose records were loaded: the caller owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The right to change the records.
    pub ownership: Ownership,
    /// All records of the share that were put and not removed.
    pub records: Vec<(RecordId, Vec<u8>)>,
}

/// A callback for the end of a load.
pub type LoadDone = Box<dyn FnOnce(Result<Loaded, StateFault>) + Send>;

/// A store that keeps records until they are removed, also when the process ends. Changes take
/// effect in the order of their calls: when one is stable, so are all earlier ones.
///
/// All calls return at once. The callback is called exactly once: from any thread, or by the call
/// itself.
pub trait StateStore: Send + Sync + fmt::Debug {
    /// Makes the caller the owner of `share`, a name in lower case, and returns its records. Changes
    /// under earlier epochs that are not stable yet never become so: they end with
    /// [`StateFault::Fenced`]. Other shares can be loaded and changed meanwhile.
    fn load(&self, share: &str, done: LoadDone);

    /// Stores `record` under `id`, replacing an earlier one.
    fn put(&self, owner: &Ownership, id: RecordId, record: Vec<u8>, done: Done);

    /// Removes the record `id` if it exists.
    fn remove(&self, owner: &Ownership, id: RecordId, done: Done);
}
