//! The compression of SMB: bytes in, bytes out. No I/O.
//!
//! MS-SMB2 2.2.3.1.3 names five algorithms: LZ77 ([`lz77`]), LZ77+Huffman ([`huffman`]) and LZNT1
//! ([`lznt1`]) of MS-XCA, [`pattern`] for one byte that is repeated, and LZ4 ([`lz4`]).
//!
//! A compressor writes into the bytes that the caller gives it and ends as soon as they are full: the
//! caller says by their number what compression must save. An expander fills exactly the bytes that it
//! gets, whose number the peer has said and the caller has checked; anything that does not fit is
//! [`Malformed`]. Nothing is allocated for what a peer says.
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

mod bits;
mod codes;
mod cursor;
pub mod huffman;
pub mod lz4;
pub mod lz77;
pub mod lznt1;
mod matches;
pub mod pattern;
pub mod sample;

use core::fmt;

/// Compressed bytes that no compressor writes, or that are not those of as many bytes as were asked
/// for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the compressed data is malformed")
    }
}

impl core::error::Error for Malformed {}
