//! An index of the names, sizes and dates of a share's files, and the queries it answers.
//!
//! A [`Query`] is a tree of conditions. Clients that search by Spotlight, `frevo find --index` and the page say the
//! same conditions in their own words.
//!
//! An [`Index`] has a [`Slot`] for each file and folder. Its owner puts in what it finds in the share, and what
//! changes there. A [`Search`] is carried out some entries at a time. Nothing here knows who may see a file.
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

mod chunk;
mod entry;
mod fold;
mod index;
pub mod limits;
mod needle;
mod query;
mod search;
#[cfg(test)]
mod tests;
mod unicode;

pub use entry::{Facts, Slot};
pub use index::{Index, Refused, Room};
pub use query::{Bounds, Kind, Match, Query, Text};
pub use search::{BadQuery, Cursor, Search};
