//! The frames of a connection in a capture: as they are before protection, and after it was taken off.

use frevo_capture::live::Tap;
use frevo_capture::packet::Ends;

use super::Connection;
use crate::dial::ServerName;
use crate::options::Options;

impl Connection {
    /// Makes the tap of a connection to that server, if its messages are captured.
    pub(super) fn tap_for(&self, options: &Options, server: &ServerName) -> Option<Tap> {
        let capture = options.capture.as_ref()?;
        let (client, address) = (self.stream.local_addr().ok()?, self.stream.peer_addr().ok()?);
        let transport = self.stream.transport().facts().name;
        let comment = format!("to {} over {transport}", server.host);
        Some(capture.tap(Ends { client, server: address }, false, comment))
    }

    /// Gives a frame to the capture before it is protected.
    pub(super) fn capture_sent(&self, frame: &[u8]) {
        if let Some(tap) = &self.tap {
            tap.sent(frame, 0);
        }
    }

    /// Gives a received frame to the capture after its protection was taken off.
    pub(super) fn capture_received(&self, frame: &[u8]) {
        if let Some(tap) = &self.tap {
            tap.received(frame);
        }
    }
}
