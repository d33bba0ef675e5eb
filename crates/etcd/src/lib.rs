//! etcd, version 3: keys with values, revisions, leases, transactions and watches, as values.
//!
//! The words are those of etcd's own interface (`etcdserverpb` and `mvccpb`). A cluster's machine and the
//! simulator's model of etcd stand on the same values, and on the trait [`engine::Engine`].
//! [`json`] is the coding of etcd's gateway, as bytes and values.
//!
//! This crate does no I/O.
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

pub mod engine;
pub mod json;
pub mod limits;
pub mod types;
