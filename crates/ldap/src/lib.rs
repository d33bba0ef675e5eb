//! Accounts of an LDAP directory: the part of LDAP that finds an account and its groups.
//!
//! [`message`] has the requests and the answers of RFC 4511, [`filter`] the filters of RFC 4515, and
//! [`person`] what an entry of the schemas of Samba and of RFC 2307 says about an account. A directory is
//! trusted with the passwords of its accounts, but not with its bytes: each length, depth and number of an
//! answer has a limit.
//!
//! Without its features this crate does no I/O. The feature `client` adds the client of a real directory.
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
#[cfg(any(feature = "client", test))]
extern crate std;

#[cfg(feature = "client")]
pub mod client;
pub mod filter;
pub mod limits;
pub mod message;
pub mod person;
