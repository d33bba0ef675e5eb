//! Messages received from the server.

use frevo_crypto::{Sender, SigningKey};
use frevo_net::buffer::Buf;
use frevo_proto::protection::Protection;
use frevo_wire::command::oplock_break::Notification;
use frevo_wire::{Header, HeaderFlags};
use tokio::sync::oneshot;

use super::loan::Loan;

/// A received message.
pub(crate) struct Message {
    pub(super) buf: Buf,
    pub(crate) header: Header,
    /// The session whose key has decrypted it; `None` for a message in the clear.
    pub(crate) sealed: Option<u64>,
    /// The memory that was lent to the server for the request. Its use ends with the message.
    pub(super) loan: Option<Loan>,
}

impl Message {
    /// Returns the memory that was lent to the server for the request.
    pub(crate) fn take_loan(&mut self) -> Option<Loan> {
        self.loan.take()
    }

    /// Returns the message from its header to its end.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buf
    }

    /// Returns the status in the header.
    pub(crate) fn status(&self) -> crate::Status {
        self.header.status.into()
    }

    /// Returns the protection that the message has in the session `session_id`.
    pub(crate) fn protection(&self, session_id: u64) -> Protection {
        if self.sealed == Some(session_id) {
            return Protection::Sealed;
        }
        match self.header.flags.contains(HeaderFlags::SIGNED) {
            true => Protection::Signed,
            false => Protection::None,
        }
    }

    /// Returns true if the signature was made with `key`.
    pub(crate) fn is_signed_with(&mut self, key: &SigningKey) -> bool {
        frevo_proto::protection::signature::verify(&mut self.buf, key, Sender::Server)
    }

    /// Returns the bytes at `range` without copying them.
    pub(crate) fn into_range(mut self, range: std::ops::Range<usize>) -> Buf {
        let end = range.end.min(self.buf.len());
        self.buf.truncate(end);
        self.buf.advance(range.start.min(end));
        self.buf
    }
}

/// A message for the task that answers notifications.
pub(crate) enum Unasked {
    /// A notification of the server.
    Notification {
        /// True if it came encrypted.
        is_sealed: bool,
        /// Content of the notification.
        notification: Notification,
    },
    /// The news that the server has ended a session. It is not verified yet.
    SessionClosed {
        /// Number of the connection that it came over.
        connection: u64,
        /// The notification.
        message: Message,
    },
    /// A caller that waits until all notifications before this message count.
    Marker(oneshot::Sender<()>),
}
