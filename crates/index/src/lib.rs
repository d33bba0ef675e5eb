//! An index of the names, sizes and dates of a share's files, and the queries it answers.
//!
//! A [`Query`] is a tree of conditions. Clients that search by Spotlight, `frevo find --index` and the page say the
//! same conditions in their own words.
//!
//! All of it is values: no I/O, no clock.
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

mod query;

pub use query::{Bounds, Kind, Match, Query, Text};
