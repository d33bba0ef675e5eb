//! A file system in memory that can fail and crash on purpose.
//!
//! It does what the interface says and what the Linux implementor does, without
//! a host: for tests, for a simulator, and as the shortest complete example of
//! an implementor. Time comes in through a closure.
//!
//! # Stable storage
//!
//! What is changed is seen at once and lost by a crash until it is synced:
//!
//! * [`Node::sync`](crate::vfs::Node::sync) makes the content and the metadata
//!   of that one file stable, as they are then.
//! * Changes of directories (creating, removing, renaming, linking) stand in one
//!   journal, in their order. A sync of any node makes all of them stable that
//!   were made before it. A crash loses a suffix of the rest; a change is never
//!   lost by half, and never before a later one.
//! * A file whose entry became stable without a sync of its own is there as it
//!   was created: empty.
//! * A sync that fails makes nothing stable. The next one may.
//!
//! [`MemoryVfs::crash`] keeps the least that this allows and
//! [`MemoryVfs::crash_with`] any choice of what it allows: unsynced content may
//! survive page by page.
//!
//! # Failing
//!
//! [`Faults`] makes chosen calls fail, and sets the capacity.
//!
//! Named streams belong to their file: a sync of any node of it makes them
//! stable, and a crash loses what was done to them since.
//!
//! Names are kept as clients see them; nothing is mapped. Links are objects and
//! never followed. There are no holes to ask for, and no descriptors.

mod content;
mod faults;
mod node;
mod quotas;
mod reparse;
mod stable;
mod streams;
mod tree;
mod vfs;

#[cfg(test)]
mod tests;

pub use faults::{AtCall, Faults, Operation};
pub use vfs::{Clock, MemoryOptions, MemoryVfs};
