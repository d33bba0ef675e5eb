//! SMB 3.1.1 on the wire: bytes to values and back. Pure.
//!
//! One file per command holds its request and its response, each with `parse`
//! and `encode`, used by server and client alike, so that the two cannot
//! disagree. Whatever a peer can send is an open enumeration: unknown values
//! survive and print as hexadecimal. Nothing here can panic or allocate more
//! than its input explains.
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

pub mod codec;
pub mod dtyp;
pub mod fscc;
pub mod header;
pub mod status;

pub use codec::{Malformed, Parsed};
pub use header::{Command, Header, HeaderFlags, Route};
pub use status::Status;
