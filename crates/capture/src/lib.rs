//! Captures of SMB: pcapng files with the messages that a connection carried, as they are inside of
//! signatures and encryption, and those messages in plain words.
//!
//! A [`recorder::Recorder`] makes the blocks of a file: each message becomes segments of a TCP stream that
//! is made again around it, so that Wireshark reads it as it reads SMB from a network.
//! [`cut`] leaves the data of files out, and [`secrets`] overwrites what would let a reader guess a password. [`decode`] reads such files, and those of
//! `tcpdump`, and says each message in one line.
//!
//! Without its features this crate does no I/O. The feature `live` adds the bounded queue between
//! connections and a writer, and the thread that writes a file.
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
#[cfg(any(test, feature = "live"))]
extern crate std;

pub mod cut;
pub mod decode;
pub mod limits;
#[cfg(feature = "live")]
pub mod live;
pub mod packet;
pub mod pcapng;
pub mod recorder;
pub mod secrets;
