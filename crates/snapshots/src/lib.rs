//! Snapshots that a server keeps of its shares: when one is due, and which of them stay.
//!
//! A [`Schedule`] says how many snapshots are kept for hours, days, weeks and months.
//! [`Schedule::is_due`] and [`Schedule::surplus`] judge by the list of the snapshots that exist and by the
//! clock alone. Nothing else is remembered, so a restart changes nothing, and a clock that jumps neither
//! has two snapshots made in one period nor has old ones removed for their age.
//!
//! [`Request`] and [`Answer`] are the messages between a server and the process that makes snapshots.
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
#[cfg(test)]
extern crate std;

pub mod limits;
mod message;
mod period;
mod schedule;
mod second;

pub use message::{Act, Answer, Done, Request};
pub use period::Period;
pub use schedule::{Schedule, ScheduleFault};
pub use second::{FOLDER, PATTERN, Second};
