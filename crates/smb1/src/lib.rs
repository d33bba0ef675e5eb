//! SMB1 as its client speaks it, to get data out of old devices and files in. MS-CIFS and MS-SMB.
//!
//! Messages are made and parsed here, requests under way are kept in a [`Machine`], and responses to
//! challenges are computed. There is no clock, no I/O and no server. The peer may be hostile: each length
//! and offset is checked, and each limit has a name in [`limits`].
//!
//! SMB1 encrypts nothing, and its signatures are MD5 over data and key. Nothing but an explicit wish of
//! the user leads here.
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

pub mod charset;
mod code_page;
pub mod data;
pub mod find;
pub mod header;
pub mod info;
pub mod limits;
pub mod logon;
mod machine;
pub mod message;
pub mod names;
pub mod negotiate;
pub mod netbios;
pub mod open;
pub mod session;
pub mod shares;
mod signing;
mod status;
pub mod transaction;
pub mod tree;

pub use charset::{Charset, CodePage, Unmappable};
pub use header::{Command, Flags2, Header};
pub use machine::{Answer, Fault, Machine, Received, Sent, Terms};
pub use message::{Request, Response};
pub use signing::Signer;
