//! Namespaces of DFS: one tree of names over the shares of many servers, MS-DFSC.
//!
//! A [`Namespace`] has a root, which clients see as a share, and [`Link`]s at paths below it. Each link has
//! [`Target`]s, shares of this or of other servers. [`Namespace::resolve`] says what stands at a path, and
//! [`Namespaces::referrals`] answers a client that asks for the targets of one.
//!
//! All of it is values: no I/O, no clock. Random numbers are arguments.
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

mod key;
pub mod limits;
mod link;
mod namespace;
mod namespaces;
mod ordering;
mod referral;
mod samba;
mod tree;

pub use link::{BadLink, Link, Ordering, PriorityClass, SiteId, State, Target};
pub use namespace::{Namespace, Root};
pub use namespaces::Namespaces;
pub use ordering::Asker;
pub use samba::{samba_link, samba_targets};
pub use tree::{Resolution, Step};
