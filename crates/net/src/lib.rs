//! Access to the kernel: transports, pooled buffers, file I/O, facts about sockets, and the core
//! threads on which everything runs.
//!
//! Of the protocol above, this crate knows only that four bytes precede a frame: a zero and a
//! 24-bit big-endian length (MS-SMB2 2.1). Unsafe code is here, in `frevo-posix` and in
//! `frevo-aes-lanes` only.
//!
//! Everything here is made for one `current_thread` runtime for each core: buffer pools, the
//! receive scratch, pipes and the io_uring are thread-local, and one thread serves a connection.
//! Types that move between cores are `Send`: [`Buf`], [`FrameReader`], [`transport::Detached`],
//! [`CoreHandle`].
#![deny(unsafe_op_in_unsafe_fn)]
// Clippy warns of a temporary value in the head of a `for` or `match`, such as the guard of a lock,
// because it exists until the end of the block.
#![warn(clippy::significant_drop_in_scrutinee)]

#[cfg(not(target_os = "linux"))]
compile_error!("frevo-net speaks to Linux only");

pub mod accounts;
pub mod awake;
pub mod buffer;
pub mod cores;
pub mod file_io;
pub mod frame_reader;
pub mod ip_network;
pub mod limits;
mod lingering;
pub mod memory;
pub mod permits;
pub mod quic;
// A build without RDMA has a module with the same names, whose functions cannot connect.
#[cfg_attr(not(feature = "rdma"), path = "rdma/absent.rs")]
pub mod rdma;
pub mod send_queue;
pub mod socket;
pub mod transport;
pub mod turns;
pub mod watchdog;

pub use buffer::Buf;
pub use cores::{CoreHandle, Cores};
pub use frame_reader::FrameReader;
pub use ip_network::IpNetwork;
pub use send_queue::{OutFrame, Segment, SendQueue};
pub use transport::Stream;
