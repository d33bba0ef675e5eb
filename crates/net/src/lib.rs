//! What Frevo asks of the kernel: transports, pooled buffers, the roads file
//! data takes, socket facts and the core threads everything runs on.
//!
//! This crate knows of the protocol above it only that a frame on a stream is
//! preceded by four bytes: a zero and a 24-bit big-endian length
//! (MS-SMB2 2.1). Together with `frevo-posix` it holds nearly all the
//! `unsafe` there is.
//!
//! Everything here is made for one `current_thread` runtime per core: buffer
//! pools, the receive scratch, pipes and the io_uring are thread-local, and a
//! connection is served by the thread it was dealt to. What moves between
//! cores says so by being `Send`: [`Buf`], [`FrameReader`],
//! [`transport::Detached`], [`CoreHandle`].
#![deny(unsafe_op_in_unsafe_fn)]
// What a `for` or `match` is about lives to its end, a lock's guard too.
#![warn(clippy::significant_drop_in_scrutinee)]

#[cfg(not(target_os = "linux"))]
compile_error!("frevo-net speaks to Linux only");

pub mod buffer;
pub mod cores;
pub mod file_io;
pub mod frame_reader;
pub mod limits;
pub mod memory;
pub mod send_queue;
pub mod socket;
pub mod transport;
pub mod watchdog;

pub use buffer::Buf;
pub use cores::{CoreHandle, Cores};
pub use frame_reader::FrameReader;
pub use send_queue::{OutFrame, Segment, SendQueue};
pub use transport::Stream;
