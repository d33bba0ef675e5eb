//! Protocol parts that both roles of SMB 3.x use: framing, transforms, compounds, sequence window,
//! credits, the pre-authentication chain, signatures and replay.
//!
//! MS-SMB2 3.1 and the corresponding parts of 3.2 and 3.3. Everything here is a value that its
//! Connection, Session or Open owns and that answers at once; there is no clock and no I/O. A
//! violation by a peer is returned as a [`Disconnect`] or as the status for the answer.
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

pub mod compound;
pub mod credit;
mod disconnect;
pub mod frame;
pub mod limits;
pub mod lock_sequence;
mod negotiated;
pub mod preauth;
pub mod protection;
pub mod rdma_transform;
pub mod replay;
pub mod smbd;
pub mod window;

pub use disconnect::Disconnect;
pub use frevo_crypto::Sender;
pub use negotiated::{Dialect, Negotiated};
