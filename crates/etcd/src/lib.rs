//! etcd, version 3: keys with values, revisions, leases, transactions and watches, as values.
//!
//! The words are those of etcd's own interface (`etcdserverpb` and `mvccpb`). This crate does no I/O
//! of its own: a cluster's machine and the simulator's model of etcd stand on the same values.
#![no_std]
#![forbid(unsafe_code)]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects
)]

extern crate alloc;

pub mod engine;
pub mod types;
