//! Requests of a script, and their encoding.

use anyhow::Result;
use frevo_wire::codec::Writer;
use frevo_wire::{Command, Status};

const HEADER_LEN: usize = 64;

/// A request of a script.
pub(super) struct Ask {
    pub(super) command: Command,
    pub(super) body: Vec<u8>,
}

/// The requests of a connection, and its use of the replies.
pub(super) trait Script {
    /// Returns the next frame: one request, or several related ones as a compound.
    fn next(&mut self) -> Vec<Ask>;

    /// Takes a reply; returns what it counts for. `message` begins with its header.
    fn reply(&mut self, command: Command, status: Status, message: &[u8]) -> Result<u64>;
}

/// Returns the request of a body that is encoded by `encode`.
pub(super) fn ask(command: Command, encode: impl FnOnce(&mut Writer<'_>)) -> Ask {
    let mut body = vec![0; HEADER_LEN];
    encode(&mut Writer::from(&mut body, 0));
    body.drain(..HEADER_LEN);
    Ask { command, body }
}
