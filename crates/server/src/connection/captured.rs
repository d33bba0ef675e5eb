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

/// The tap of a connection, with the number of the capture that it belongs to.
#[derive(Default)]
pub(super) struct Tapped(Cell<Option<Box<(u64, Tap)>>>);

impl Connection {
    /// Gives a frame to the capture, if there is one for it. Returns true if the responses belong there, too.
    #[inline]
    pub(super) fn capture_received(&self, opened: &Opened) -> bool {
        self.info.server.captures.is_on() && self.capture_frame(opened)
    }

    #[cold]
    fn capture_frame(&self, opened: &Opened) -> bool {
        let Some(running) = self.info.server.captures.running() else { return false };
        let Ok(header) = Header::parse(&opened.frame) else { return false };
        let channel = match &opened.sealed {
            Some(channel) => Some(Rc::clone(channel)),
            None => self.members.channel(header.session_id),
        };
        let session = channel.as_ref().map(|channel| &*channel.session);
        let is_wanted = running.wants(self.info.peer.ip(), session, |share| {
            is_of_share(share, session, &header, &opened.frame)
        });
        if is_wanted {
            self.tap(&running, |tap| tap.received(&opened.frame));
        }
        is_wanted
    }

    /// Gives the responses to a frame of the capture, before they are protected.
    #[cold]
    pub(super) fn capture_sent(&self, frame: &[u8]) {
        if let Some(running) = self.info.server.captures.running() {
            self.tap(&running, |tap| tap.sent(&[frame]));
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
            self.tap(&running, |tap| tap.sent(&[frame]));
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
