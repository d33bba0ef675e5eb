//! The windows of an idle connection of QUIC.
//!
//! A client may send as many bytes as its window has, and QUIC takes no window back. While nothing is under
//! way none of these bytes are in memory, so an idle connection is charged for no more than a new one. It is
//! charged for all again before it goes on. If there is no memory then, it ends, and its client connects anew.

use frevo_net::frame_reader::FrameReader;
use frevo_net::transport::Stream;

use super::Connection;
use crate::objects::refusal::Doom;

/// The end of a connection that cannot be charged for its windows again.
const NO_MEMORY: Doom = Doom::Limit("was idle, and no memory was left for its windows");

impl Connection {
    /// Keeps the charge for the windows of a connection over `stream`.
    pub(super) fn keep_window(mut self, stream: &Stream) -> Self {
        let allowance = stream.quic().and_then(|quic| quic.allowance());
        self.info.backlog.keep_window(allowance.clone());
        self.window = allowance.and_then(|allowance| allowance.into_any().downcast().ok());
        self
    }

    /// True if a connection without requests (`is_quiet`) is to rest after a while. One that rests is charged
    /// again when it is quiet no longer.
    pub(super) fn is_to_rest(&self, is_quiet: bool, reader: &FrameReader) -> bool {
        let Some(window) = &self.window else { return false };
        let is_quiet = is_quiet
            && self.outgoing.queue().is_empty()
            && !self.is_elsewhere()
            && !reader.has_more()
            && !reader.is_inside_frame();
        if !is_quiet {
            self.rouse();
        }
        is_quiet && !self.rests.get() && window.is_wide()
    }

    /// Has an idle connection rest, if its client has all that was sent.
    pub(super) fn rest(&self, stream: &Stream) {
        let has_all = stream.quic().is_some_and(|quic| quic.unacknowledged_bytes() == 0);
        if let Some(window) = self.window.as_ref().filter(|_| has_all) {
            self.rests.set(window.rest());
        }
    }

    /// Ends the rest of a connection, or the connection if there is no memory.
    pub(super) fn rouse(&self) {
        let has_memory = || self.window.as_ref().is_none_or(|window| window.rouse());
        if self.rests.take() && !has_memory() {
            self.disconnect(NO_MEMORY);
        }
    }
}
