//! Mounts an SMB share as a folder of this machine: [`frevo_client`] carries out the kernel's FUSE
//! requests.
//!
//! The kernel caches no reads (`FOPEN_DIRECT_IO`), only mapped pages. The cache is in this crate,
//! next to the leases that decide what may be cached and for how long.
#![forbid(unsafe_code)]
// The server is not trusted, so no input of it may make this crate panic.
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
pub use volume::STATUS_ATTRIBUTE;
