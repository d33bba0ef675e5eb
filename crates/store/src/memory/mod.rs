//! A file system in memory that can fail and crash on purpose.
//!
//! It does what the interface says and behaves like the Linux implementor, without a host: for
//! tests, for a simulator, and as the shortest complete example of an implementor. A closure
//! supplies the time.
//!
//! # Stable storage
//!
//! A change is visible at once, and a crash loses it until it is synced:
//!
//! * [`Node::sync`](crate::vfs::Node::sync) makes the content and the metadata of that one file
//!   stable, as they are then.
//! * Changes of directories (creating, removing, renaming, linking) stand in one journal, in their
//!   order. A sync of any node makes all earlier changes stable. A crash loses a suffix of the
//!   rest; it never loses half a change, nor a change without all later ones.
//! * A file whose entry became stable without a sync of the file itself is empty, as it was
//!   created.
//! * A sync that fails makes nothing stable. The next one may succeed.
//!
//! [`MemoryVfs::crash`] keeps the least that these rules allow and [`MemoryVfs::crash_with`] any
//! choice of it: unsynced content may survive page by page.
//!
//! # Failing
//!
//! [`Faults`] makes chosen calls fail, and sets the capacity. [`MemoryVfs::mount`] is the same file
//! system at another machine, which can be refused (a fence) or stopped within a write.
//!
//! Named streams belong to their file: a sync of any of its nodes makes them stable, and a crash
//! loses their later changes.
//!
//! Names are stored as clients see them; nothing is mapped. Links are objects and are never
//! followed. There are no holes and no descriptors.

mod content;
mod directory;
mod faults;
mod node;
mod options;
mod quotas;
mod reparse;
mod shared;
mod stable;
mod stream_set;
mod streams;
mod tree;
mod vfs;

#[cfg(test)]
mod tests;

pub use faults::{AtCall, BegunWrite, Faults, Operation, Stop};
pub use options::{Clock, MemoryOptions};
pub use vfs::MemoryVfs;
