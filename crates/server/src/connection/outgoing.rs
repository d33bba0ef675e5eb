//! Outgoing frames: the send queue, replies that other threads protect, and break notifications.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use frevo_net::buffer::Buf;
use frevo_net::send_queue::{OutFrame, SendLimits, SendQueue};
use frevo_proto::frame::PREFIX_LEN;
use frevo_proto::protection::Batch;

use super::row::{Row, Sizes};
use super::sent_break::Sent;
use super::stalls::Stalled;
use super::uncopied_reads::UncopiedReads;

/// Replies that are protected together.
#[derive(Default)]
pub(crate) struct ReplyBatch {
    /// True while further requests of the same read are being begun.
    pub(crate) is_gathering: Cell<bool>,
    pub(crate) replies: RefCell<Batch<Buf>>,
}

/// Replies and notifications of a connection on their way to its client.
pub(crate) struct Outgoing {
    /// Frames that are sent in this order.
    pub(crate) queue: SendQueue,
    /// Replies in their order, whose first is being protected elsewhere.
    pub(crate) leaving: RefCell<Row<OutFrame>>,
    /// Replies that are protected together.
    pub(crate) together: ReplyBatch,
    /// Break notifications on their way.
    pub(super) breaks: RefCell<Vec<Sent>>,
    uncopied_reads: UncopiedReads,
    spare_bytes: RefCell<Vec<Vec<u8>>>,
    /// Replies wait for the client or the network.
    unsent: Stalled,
}

impl Outgoing {
    /// Nothing is to be sent yet.
    pub(super) fn new() -> Self {
        Self {
            queue: SendQueue::new(SendLimits::default()),
            leaving: RefCell::default(),
            together: ReplyBatch::default(),
            breaks: RefCell::default(),
            uncopied_reads: UncopiedReads::default(),
            spare_bytes: RefCell::default(),
            unsent: Stalled::default(),
        }
    }

    /// Notes whether the client has not taken all replies. Returns the time of a stall that ended.
    pub(super) fn note_unsent(&self) -> Option<Duration> {
        self.unsent.note(!self.queue.is_empty())
    }

    /// Queues a frame that is protected, behind those that other threads protect.
    pub(crate) fn put(&self, frame: OutFrame) {
        let mut leaving = self.leaving.borrow_mut();
        if leaving.is_empty() {
            self.queue.push(frame);
        } else {
            let sizes = Sizes { memory: frame.memory(), wire: frame.len() + PREFIX_LEN };
            leaving.push(frame, sizes);
        }
    }

    /// Bytes that wait to be sent, prefixes included.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.queue.queued_bytes() + self.leaving.borrow().sizes().wire
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
        self.uncopied_reads.is_small(self.queue.queued_bytes(), bytes)
    }
}
