//! The results for frames that were verified or unsealed before their turn.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use frevo_net::buffer::Buf;
use frevo_proto::limits::VERIFIED_AHEAD;
use frevo_proto::protection::Verdict;

use crate::base::limits::COMPOUND_ELEMENTS;
use crate::objects::channel::Channel;
use crate::objects::ledger::Expanded;

/// The result for one frame.
pub(crate) struct Checked {
    /// The channel whose key it was checked with.
    pub(crate) channel: Rc<Channel>,
    pub(crate) verdict: Verdict,
}

/// A received frame in its place.
pub(super) struct LinedUp {
    pub(super) frame: Buf,
    /// Its result if it was checked.
    pub(super) checked: Option<Checked>,
    /// The charge of the memory that it was expanded into, until it counts as a frame of its connection.
    pub(super) charged: Option<Expanded>,
}

impl From<Buf> for LinedUp {
    /// A frame that was neither checked nor expanded.
    fn from(frame: Buf) -> Self {
        Self { frame, checked: None, charged: None }
    }
}

// Each message of a frame needs a place in the table of signature verdicts.
const _: () = assert!(COMPOUND_ELEMENTS <= VERIFIED_AHEAD);

impl Checked {
    /// True if the signature of the `at`th message is right. None if `channel`, which its session has
    /// now, is not the one that it was checked for.
    pub(crate) fn signature(&self, at: u8, channel: Option<&Rc<Channel>>) -> Option<bool> {
        let is_same = channel.is_some_and(|channel| Rc::ptr_eq(channel, &self.channel));
        self.verdict.signature(at).filter(|_| is_same)
    }
}

/// The results for the frames that come next; none for a frame that is checked in its turn.
#[derive(Default)]
pub(crate) struct CheckedAhead(RefCell<VecDeque<Option<Checked>>>);

impl CheckedAhead {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Adds results in the order of their frames.
    pub(crate) fn extend(&self, results: impl IntoIterator<Item = Option<Checked>>) {
        self.0.borrow_mut().extend(results);
    }

    /// Takes the result for the frame whose turn has come, if there is one.
    pub(crate) fn take(&self) -> Option<Checked> {
        let mut ahead = self.0.borrow_mut();
        let next = ahead.pop_front();
        if ahead.is_empty() && ahead.capacity() > 0 {
            // The empty queue is replaced by a new one, so that an idle connection keeps no buffer.
            *ahead = VecDeque::new();
        }
        next.flatten()
    }

    /// Forgets all results, with the channels that they hold.
    pub(crate) fn forget(&self) {
        self.0.take();
    }
}
