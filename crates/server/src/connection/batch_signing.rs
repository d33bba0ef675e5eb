//! Large replies that are signed or sealed together.
//!
//! AES-CMAC and AES-CCM are chains: each block waits for the one before it. Eight messages that are
//! signed or sealed together take little longer than one. Where several requests have come at once,
//! their replies wait for each other: at most [`SIGNED_TOGETHER`], and only while the requests that
//! have come are begun. Replies leave in their original order.

use std::rc::Rc;

use frevo_crypto::{SealingKey, Sender, SigningKey};
use frevo_net::buffer::Buf;
use frevo_net::send_queue::OutFrame;

use super::checked::Proof;
use super::outgoing::Reply;
use super::{Channel, Connection};
use crate::base::limits::{
    CRYPTO_GAINS_BYTES_MIN, SIGNED_TOGETHER, SIGNED_TOGETHER_BYTES_MAX, SIGNED_TOGETHER_BYTES_MIN,
};

impl Connection {
    /// Until [`Self::settle`] large replies wait for each other.
    pub(super) fn gather(&self) {
        self.outgoing.together.is_gathering.set(true);
    }

    /// Signs or seals what waits, and queues it.
    pub(super) fn settle(&self) {
        self.outgoing.together.is_gathering.set(false);
        self.protect_gathered();
    }

    /// Queues a frame that is ready, behind those that wait.
    pub(super) fn enqueue(&self, frame: OutFrame) {
        self.protect_gathered();
        self.outgoing.put(frame);
    }

    /// True for a reply of `len` bytes, to be signed or sealed by `channel`, that is better
    /// protected together with others. The longest ones may be protected elsewhere.
    pub(super) fn gathers(&self, channel: &Channel, proof: Proof, len: usize) -> bool {
        let gains = || match proof {
            Proof::Signature => channel.signing_key().is_some_and(SigningKey::gains_by_batches),
            Proof::Seal => channel.sealing_key().is_some_and(SealingKey::gains_by_batches),
        };
        let lengths = SIGNED_TOGETHER_BYTES_MIN..CRYPTO_GAINS_BYTES_MIN;
        self.outgoing.together.is_gathering.get() && lengths.contains(&len) && gains()
    }

    /// Has a reply, which is one message if it is signed, protected with `channel`'s key and queued
    /// together with others.
    pub(super) fn protect_later(&self, frame: Buf, channel: Rc<Channel>, proof: Proof) {
        let is_other =
            |first: &Reply| !Rc::ptr_eq(&first.channel, &channel) || first.proof != proof;
        if self.outgoing.together.replies.borrow().first().is_some_and(is_other) {
            self.protect_gathered();
        }
        let (count, bytes) = {
            let mut replies = self.outgoing.together.replies.borrow_mut();
            replies.push(Reply { frame, channel, proof });
            (replies.len(), replies.iter().map(|reply| reply.frame.len()).sum::<usize>())
        };
        if count >= SIGNED_TOGETHER || bytes >= SIGNED_TOGETHER_BYTES_MAX {
            self.protect_gathered();
        }
    }

    /// Bytes of the replies that wait.
    pub(super) fn gathered_bytes(&self) -> usize {
        self.outgoing.together.replies.borrow().iter().map(|reply| reply.frame.capacity()).sum()
    }

    /// Protects the replies that wait, and queues them.
    pub(super) fn protect_gathered(&self) {
        let mut replies = self.outgoing.together.replies.take();
        let Some(first) = replies.first() else { return };
        let (channel, proof) = (Rc::clone(&first.channel), first.proof);
        let mut frames: Vec<&mut Buf> = replies.iter_mut().map(|reply| &mut reply.frame).collect();
        match proof {
            Proof::Signature => sign(&mut frames, &channel),
            Proof::Seal => {
                if let Err(why) = channel.seal_frames(&mut frames) {
                    self.disconnect(why);
                    return;
                }
            }
        }
        if frames.len() > 1 {
            tracing::trace!(target: "frevo::connection", replies = frames.len(), "protected together");
        }
        for reply in replies {
            self.outgoing.put(OutFrame::new(reply.frame));
        }
    }
}

fn sign(frames: &mut [&mut Buf], channel: &Channel) {
    let Some(key) = channel.signing_key() else { return };
    let mut messages: Vec<&mut [u8]> = frames.iter_mut().map(|frame| &mut ***frame).collect();
    let signed = frevo_proto::protection::signature::sign_all(&mut messages, key, Sender::Server);
    debug_assert!(signed.is_ok(), "a response has a header");
}
