//! Outgoing frames: the send queue, replies that other threads protect, and break notifications.

use std::cell::RefCell;
use std::time::Duration;

use frevo_net::buffer::Buf;
use frevo_net::send_queue::SendQueue;

use super::sent_break::Sent;
use super::stalls::Stalled;
use super::uncopied_reads::UncopiedReads;
use crate::protection::Replies;

/// Replies and notifications of a connection on their way to its client.
pub(crate) struct Outgoing {
    /// Replies in their order, and the frames that are ready to be sent.
    pub(super) replies: Replies,
    /// Break notifications on their way.
    pub(super) breaks: RefCell<Vec<Sent>>,
    /// The news that sessions have ended, which leave behind the last replies.
    pub(super) farewells: RefCell<Vec<Buf>>,
    uncopied_reads: UncopiedReads,
    spare_bytes: RefCell<Vec<Vec<u8>>>,
    /// Replies wait for the client or the network.
    unsent: Stalled,
}

impl Outgoing {
    /// Nothing is to be sent yet.
    pub(super) fn new() -> Self {
        Self {
            replies: Replies::new(),
            breaks: RefCell::default(),
            farewells: RefCell::default(),
            uncopied_reads: UncopiedReads::default(),
            spare_bytes: RefCell::default(),
            unsent: Stalled::default(),
        }
    }

    /// The frames that are ready to be sent.
    pub(super) const fn queue(&self) -> &SendQueue {
        self.replies.queue()
    }

    /// Notes whether the client has not taken all replies. Returns the time of a stall that ended.
    pub(super) fn note_unsent(&self) -> Option<Duration> {
        self.unsent.note(!self.queue().is_empty())
    }

    /// A buffer for a body, used before if there is one.
    pub(super) fn take_bytes(&self) -> Vec<u8> {
        self.spare_bytes.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps a buffer for the next body, unless it is large: an idle connection
    /// holds little.
    pub(super) fn give_bytes(&self, bytes: Vec<u8>) {
        let mut spare = self.spare_bytes.borrow_mut();
        if bytes.capacity() <= 4096 && spare.len() < 2 {
            spare.push(bytes);
        }
    }

    /// True for a READ of `bytes` on a connection whose READs ask for little at a time. To be asked for
    /// READs of a client on this host that could be answered without a copy.
    pub(super) fn is_read_without_copy(&self, bytes: u32) -> bool {
        self.uncopied_reads.is_small(self.queue().queued_bytes(), bytes)
    }
}
