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
pub mod command;
pub mod compound;
pub mod compression;
pub mod create_context;
pub mod dtyp;
pub mod error_response;
pub mod file_id;
pub mod fscc;
pub mod header;
pub mod limits;
pub mod ndr;
pub mod negotiate_context;
pub mod rdma_transform;
pub mod smbd;
pub mod status;
pub mod transform;
pub mod utf16;

pub use codec::{Malformed, Parsed};
pub use file_id::FileId;
pub use header::{Command, Header, HeaderFlags, Route};
pub use status::Status;
pub use utf16::Utf16;
