//! The part of a connection that the engine knows.

use std::path::Path;

use anyhow::Result;
use hdrhistogram::Histogram;

use super::requests::Payload;

/// One connection of a row.
pub(super) trait Load {
    /// Prepares a round.
    fn reset(&mut self, payload: &Payload) -> Result<()>;

    /// Receives and sends until the socket has and takes nothing more.
    fn turn(&mut self, turn: &mut Turn<'_>) -> Result<()>;

    /// True if no reply is awaited.
    fn is_idle(&self) -> bool;

    /// Replies, or entries of a listing, since the round was prepared.
    fn done(&self) -> u64;

    /// Checks what a round has read and written.
    fn verify(&mut self, dir: &Path, payload: &Payload) -> Result<()>;
}

/// The things that a turn of a connection needs besides itself.
pub(super) struct Turn<'a> {
    pub(super) payload: &'a Payload,
    /// Room for data that nobody looks at.
    pub(super) void: &'a mut [u8],
    /// True if the kernel copies that data to the client, as other clients have it do; otherwise it
    /// counts, and copies nothing.
    pub(super) is_copied: bool,
    pub(super) latency: &'a mut Histogram<u64>,
    /// True once no further request may begin.
    pub(super) is_over: bool,
}
