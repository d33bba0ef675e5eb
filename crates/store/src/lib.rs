//! Meaning of open files: MS-FSA. No I/O.
//!
//! Opens, share modes, byte ranges and delete-on-close are arbitrated here on in-memory tables,
//! synchronously, and can be tested alone. The operating system is one implementation of the small
//! [`Vfs`] trait, memory is another.
//!
//! Locking: a [`FileTable`] shard, then one [`File`]. No function locks two files at once unless
//! its doc says so, and no lock is held across I/O that may block for long.
#![no_std]
#![forbid(unsafe_code)]
// Clippy warns of a lock's guard, or a similar temporary value, in the head of a `for` or `match`,
// because it exists until the end of the block.
#![warn(clippy::significant_drop_in_scrutinee)]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

extern crate alloc;
// Builds with assertions record which locks each thread holds, and thread-local values need the
// standard library.
#[cfg(any(test, debug_assertions))]
extern crate std;

pub mod byte_range;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod crowd;
pub mod file;
pub mod file_cell;
pub mod file_table;
pub mod lease;
pub mod limits;
pub mod memory;
pub mod name;
pub mod name_locks;
pub mod observe;
pub mod open_id;
pub mod order;
pub mod posix_name;
pub mod security;
pub mod share_mode;
pub mod short_name;
pub mod snapshot;
pub mod state;
pub mod stream;
pub mod surplus;
pub mod vfs;
pub mod watch;

pub use file::{Admission, Admitted, Departure, File, Shape};
pub use file_cell::FileCell;
pub use file_table::{Attempt, FileTable};
pub use name::{FolderId, Link, Name};
pub use observe::{HostBytes, HostChange, HostPlace, HostPlaces, Observation, Observed, Observer};
pub use open_id::OpenId;
pub use share_mode::Sharing;
pub use state::{IdSource, StateStore};
pub use vfs::{Fault, FileKey, Node, Stat, Vfs};
