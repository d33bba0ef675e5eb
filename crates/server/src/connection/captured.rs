//! The frames of a connection in the capture of its server: after decryption and expansion, and before
//! signatures, compression and encryption.

use std::cell::Cell;
use std::rc::Rc;

use frevo_capture::live::Tap;
use frevo_capture::packet::Ends;
use frevo_wire::command::tree_connect;
use frevo_wire::{Command, Header};

use super::Connection;
use super::receive::Opened;
use crate::objects::captures::{Running, ShareName};
use crate::objects::session::Session;

/// The part of the responses to a frame that goes into a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InCapture {
    /// None: there is no capture for them.
    Nothing,
    /// Data that would go from file to socket is left out.
    Heads,
    /// Data, too: it has to come into memory.
    All,
}

/// The tap of a connection, with the number of the capture that it belongs to.
#[derive(Default)]
pub(super) struct Tapped(Cell<Option<Box<(u64, Tap)>>>);

impl Connection {
    /// Gives a frame to the capture, if there is one for it. Returns the part that the capture takes of the responses.
    #[inline]
    pub(super) fn capture_received(&self, opened: &Opened) -> InCapture {
        let is_on = self.info.server.captures.is_on();
        let taken = is_on.then(|| self.capture_frame(opened)).flatten();
        taken.unwrap_or(InCapture::Nothing)
    }

    #[cold]
    fn capture_frame(&self, opened: &Opened) -> Option<InCapture> {
        let running = self.info.server.captures.running()?;
        let header = Header::parse(&opened.frame).ok()?;
        let channel = match &opened.sealed {
            Some(channel) => Some(Rc::clone(channel)),
            None => self.members.channel(header.session_id),
        };
        let session = channel.as_ref().map(|channel| &*channel.session);
        let is_wanted = running.wants(self.info.peer.ip(), session, |share| {
            is_of_share(share, session, &header, &opened.frame)
        });
        if !is_wanted {
            return None;
        }
        self.tap(&running, |tap| tap.received(&opened.frame));
        let is_brief = running.capture.data().is_brief();
        Some(if is_brief { InCapture::Heads } else { InCapture::All })
    }

    /// Gives the responses to a frame of the capture, before they are protected. `tail` bytes of data follow them that
    /// are not in memory.
    #[cold]
    pub(super) fn capture_sent(&self, frame: &[u8], tail: usize) {
        if let Some(running) = self.info.server.captures.running() {
            self.tap(&running, |tap| tap.sent(frame, tail));
        }
    }

    /// Gives a message that no request asked for to the capture, if there is one for it.
    #[inline]
    pub(super) fn capture_unasked(
        &self,
        frame: &[u8],
        session: &Session,
        is_of_share: impl FnOnce(&ShareName<'_>) -> bool,
    ) {
        let Some(running) = self.info.server.captures.running() else { return };
        if running.wants(self.info.peer.ip(), Some(session), is_of_share) {
            self.tap(&running, |tap| tap.sent(frame, 0));
        }
    }

    /// Gives something to the tap of the connection in this capture.
    fn tap(&self, running: &Running, give: impl FnOnce(&Tap)) {
        let known = self.tapped.0.take().filter(|tapped| tapped.0 == running.number);
        let tapped = known.unwrap_or_else(|| {
            let ends = Ends { client: self.info.peer, server: self.info.local };
            let transport = self.info.transport.facts().name;
            let comment = format!("over {transport}, in the server's log number {}", self.info.id);
            Box::new((running.number, running.capture.tap(ends, true, comment)))
        });
        give(&tapped.1);
        self.tapped.0.set(Some(tapped));
    }
}

/// True for a message to a share, and for the TREE_CONNECT that leads there.
fn is_of_share(
    share: &ShareName<'_>,
    session: Option<&Session>,
    header: &Header,
    message: &[u8],
) -> bool {
    if header.command == Command::TREE_CONNECT {
        let Ok(request) = tree_connect::Request::parse(message) else { return false };
        let path = request.path.to_string_lossy();
        return path.rsplit('\\').next().is_some_and(|name| share.is(name));
    }
    let tree = header.tree_id().and_then(|id| session?.tree(id).ok());
    tree.is_some_and(|tree| share.is(&tree.share.name))
}
