//! Large replies that are signed together.
//!
//! AES-CMAC is a chain: each block waits for the one before it. Eight messages that are signed
//! together take little longer than one. Where several requests have come at once, their replies
//! wait for each other: at most [`SIGNED_TOGETHER`], and only while the requests that have come are
//! begun. Replies leave in their original order.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use frevo_crypto::{Sender, SigningAlgorithm, SigningKey};
use frevo_net::buffer::Buf;
use frevo_net::send_queue::OutFrame;

use super::{Channel, Connection};
use crate::limits::{SIGNED_TOGETHER, SIGNED_TOGETHER_BYTES_MAX, SIGNED_TOGETHER_BYTES_MIN};

/// Replies to be signed with one channel's key.
#[derive(Default)]
pub(super) struct SigningBatch {
    /// True while further requests of the same read are being begun.
    is_gathering: Cell<bool>,
    replies: RefCell<Vec<(Buf, Rc<Channel>)>>,
}

impl Connection {
    /// Until [`Self::settle`] large replies wait for each other.
    pub(super) fn gather(&self) {
        self.together.is_gathering.set(true);
    }

    /// Signs and queues what waits.
    pub(super) fn settle(&self) {
        self.together.is_gathering.set(false);
        self.sign_gathered();
    }

    /// Queues a frame that is ready, behind those that wait.
    pub(super) fn enqueue(&self, frame: OutFrame) {
        self.sign_gathered();
        self.queue.push(frame);
    }

    /// True for a reply of `len` bytes, to be signed by `channel`, that is better signed
    /// together with others.
    pub(super) fn gathers(&self, channel: &Channel, len: usize) -> bool {
        let gains = |key: &SigningKey| key.algorithm() == SigningAlgorithm::AesCmac;
        self.together.is_gathering.get()
            && len >= SIGNED_TOGETHER_BYTES_MIN
            && channel.signing_key().is_some_and(gains)
    }

    /// Has a reply, which is one message, signed with `channel`'s key and queued together with
    /// others.
    pub(super) fn sign_later(&self, reply: Buf, channel: Rc<Channel>) {
        let is_other = |(_, first): &(Buf, Rc<Channel>)| !Rc::ptr_eq(first, &channel);
        if self.together.replies.borrow().first().is_some_and(is_other) {
            self.sign_gathered();
        }
        let (count, bytes) = {
            let mut replies = self.together.replies.borrow_mut();
            replies.push((reply, channel));
            (replies.len(), replies.iter().map(|(reply, _)| reply.len()).sum::<usize>())
        };
        if count >= SIGNED_TOGETHER || bytes >= SIGNED_TOGETHER_BYTES_MAX {
            self.sign_gathered();
        }
    }

    fn sign_gathered(&self) {
        let mut replies = self.together.replies.take();
        let Some(channel) = replies.first().map(|(_, channel)| Rc::clone(channel)) else { return };
        if let Some(key) = channel.signing_key() {
            let mut messages: Vec<&mut [u8]> =
                replies.iter_mut().map(|(reply, _)| &mut **reply).collect();
            let signed = frevo_proto::signature::sign_all(&mut messages, key, Sender::Server);
            debug_assert!(signed.is_ok(), "a response has a header");
        }
        for (reply, _) in replies {
            self.queue.push(OutFrame::new(reply));
        }
    }
}
