//! etcd, version 3: keys with values, revisions, leases, transactions and watches, as values.
//!
//! The words are those of etcd's own interface (`etcdserverpb` and `mvccpb`). A cluster's machine and the
//! simulator's model of etcd stand on the same values, and on the trait [`engine::Engine`].
//! [`json`] is the coding of etcd's gateway, as bytes and values.
//!
//! Without its features this crate does no I/O. The feature `client` adds the client of a real etcd.
#![no_std]
#![forbid(unsafe_code)]
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
#[cfg(feature = "client")]
extern crate std;

#[cfg(feature = "client")]
pub mod client;
pub mod engine;
pub mod json;
pub mod limits;
pub mod types;
