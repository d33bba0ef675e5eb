//! The end of a connection.

use std::io;

use frevo_net::frame_reader::ReceiveError;

use crate::objects::refusal::Doom;

/// The reason why a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// The server has ended it.
    Doomed(Doom),
    /// The transport, or a frame that cannot be read.
    Receive(ReceiveError),
    /// The transport, while a reply was sent.
    Send(io::Error),
}
