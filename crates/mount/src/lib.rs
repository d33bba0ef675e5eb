//! An SMB share as a folder of this machine: the kernel's FUSE requests, carried
//! out by [`frevo_client`].
//!
//! The kernel keeps nothing of what it reads (`FOPEN_DIRECT_IO`), but what it maps:
//! what may be kept, and for how long, is known here, where the leases are.
#![forbid(unsafe_code)]
// The server may be anybody's.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

mod bridge;
mod cache;
mod errno;
pub mod limits;
mod mounted;
pub mod names;
mod node;
mod poll_inline;
mod settings;
mod volume;

pub use mounted::{MountError, Mounted, Unmount, check_folder, mount};
pub use settings::Settings;
