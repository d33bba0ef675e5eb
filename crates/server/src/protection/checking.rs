//! Large requests that are verified or unsealed before their turn: together, or by other threads.
//!
//! AES-CMAC and AES-CCM are faster for several messages at once. The results for requests that have
//! come together are computed when the first of them begins, and used when each begins in its turn:
//! all that is checked before a signature is still checked before its result is looked at, and a
//! request that ends a session ends it for those behind it.
//!
//! A frame that another thread checks keeps its place: it begins when all before it have begun, and
//! those behind it wait for it. So sequence numbers, CANCEL and the end of a session have the effect
//! that they have where each frame is checked in its turn.

use std::cell::OnceCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use frevo_crypto::Sender;
use frevo_net::buffer::Buf;
use frevo_proto::limits::{CHECKED_TOGETHER, CRYPTO_GAINS_BYTES_MIN, TOGETHER_BYTES_MIN};
use frevo_proto::protection::receive_policy::SignatureRule;
use frevo_proto::protection::{Check, Form, Incoming, Proof, Received, Work};
use frevo_wire::{Command, Header, HeaderFlags};

use super::checked::Checked;
use super::protecting::LOST;
use crate::base::pools::crypto_threads::CryptoSite;
use crate::command;
use crate::connection::row::Sizes;
use crate::connection::{Channel, Connection};

/// The check of a received frame, with the channel that has its key.
struct FrameCheck {
    channel: Rc<Channel>,
    check: Check,
}

impl Connection {
    /// True if `frame`, which is the next, is better checked together with those behind it.
    pub(crate) fn gains_company(&self, frame: &[u8]) -> bool {
        frame.len() >= TOGETHER_BYTES_MIN
            && self.incoming.ahead.is_empty()
            && self.batched_proof(frame).is_some()
    }

    /// Checks the first of `frames`, and those behind it that have the same key.
    pub(crate) fn check_together<'a>(&self, frames: impl Iterator<Item = &'a mut Buf>) {
        let mut batch: Vec<&mut Buf> = Vec::new();
        let mut by: Option<(Rc<Channel>, Proof)> = None;
        for frame in frames.take(CHECKED_TOGETHER) {
            let Some((channel, proof)) = self.batched_proof(frame) else { break };
            let (first, same) = by.get_or_insert_with(|| (Rc::clone(&channel), proof));
            if !Rc::ptr_eq(first, &channel) || *same != proof {
                break;
            }
            batch.push(frame);
        }
        let Some((channel, proof)) = by.filter(|_| batch.len() > 1) else { return };
        let Some(check) = channel.check(proof) else { return };
        tracing::trace!(target: "frevo::connection", frames = batch.len(), "checked together");
        let results = Incoming::new(batch, check, Sender::Client).run();
        self.incoming.ahead.extend(results.into_iter().map(|Received { verdict, .. }| {
            verdict.map(|verdict| Checked { channel: Rc::clone(&channel), verdict })
        }));
    }

    /// Returns the channel whose key `frame` is checked with, if a batch is faster. Left out are the
    /// longest messages, which may be checked elsewhere, messages that are not verified by the rule for
    /// most commands, and compounds, whose messages have a signature each.
    fn batched_proof(&self, frame: &[u8]) -> Option<(Rc<Channel>, Proof)> {
        if frame.len() >= CRYPTO_GAINS_BYTES_MIN
            || !self.info.is_negotiated()
            || !self.members.is_authenticated()
        {
            return None;
        }
        if let Form::Sealed(session_id) = Form::of(frame) {
            let channel = self.members.channel(session_id)?;
            let gains = channel.opening_key()?.gains_by_batches();
            return gains.then_some((channel, Proof::Seal));
        }
        let header = Header::parse(frame).ok()?;
        let row = command::row(header.command)?;
        let is_plain = header.flags.contains(HeaderFlags::SIGNED)
            && !header.flags.contains(HeaderFlags::RELATED_OPERATIONS)
            && !header.is_response()
            && header.next_command == 0
            && header.command != Command::CANCEL
            && matches!(row.signing, SignatureRule::BySession | SignatureRule::Demanded);
        let channel = self.members.channel(header.session_id).filter(|_| is_plain)?;
        let gains = channel.signing_key()?.gains_by_batches();
        gains.then_some((channel, Proof::Signature))
    }

    /// Returns true if a frame that has come begins now. If it is better checked elsewhere, or others
    /// wait before it, it is taken and joins the row.
    pub(crate) fn begins_now(&self, frame: &mut Buf) -> bool {
        self.line_up(std::mem::take(frame)).map(|kept| *frame = kept).is_some()
    }

    /// Returns the frame if it begins now.
    fn line_up(&self, frame: Buf) -> Option<Buf> {
        let server = &self.info.server;
        let threads = server.crypto_threads();
        let found = OnceCell::new();
        let check = || found.get_or_init(|| self.check_of(&frame)).as_ref();
        let algorithm = || Some(check()?.check.algorithm());
        let mut site = threads.site(&*server.ambient, frame.len(), algorithm, || self.is_alone());
        let is_first = self.incoming.lined_up.borrow().is_empty();
        if is_first && site == CryptoSite::CoreAtOnce {
            site = CryptoSite::Core;
        }
        let sizes = Sizes { memory: frame.capacity(), wire: 0 };
        let is_asked = site != CryptoSite::Core && check().is_some();
        let found = found.into_inner().flatten().filter(|_| is_asked);
        let Some(FrameCheck { channel, check }) = found else {
            if is_first {
                return Some(frame);
            }
            self.incoming.lined_up.borrow_mut().push((frame, None), sizes);
            return None;
        };
        let work = Incoming::new([frame], check, Sender::Client);
        let lined_up = move |Received { frame, verdict }: Received<Buf>| {
            (frame, verdict.map(|verdict| Checked { channel, verdict }))
        };
        if site == CryptoSite::CoreAtOnce {
            let done = threads.run_here(work).pop();
            if let Some(received) = done {
                self.incoming.lined_up.borrow_mut().push(lined_up(received), sizes);
            }
        } else {
            let done = threads.hand_over(site, work);
            let work = async move { done.await?.pop().map(lined_up) };
            self.incoming.lined_up.borrow_mut().push_work(Box::pin(work), sizes);
        }
        None
    }

    /// The check of a frame that has its result before its turn, if it may have one.
    fn check_of(&self, frame: &[u8]) -> Option<FrameCheck> {
        if !self.incoming.ahead.is_empty()
            || !self.info.is_negotiated()
            || !self.members.is_authenticated()
        {
            return None;
        }
        let (session_id, proof) = match Form::of(frame) {
            Form::Sealed(session_id) => (session_id, Proof::Seal),
            _ => {
                let header = Header::parse(frame).ok()?;
                let is_signed = header.flags.contains(HeaderFlags::SIGNED);
                (is_signed || header.next_command != 0).then_some(())?;
                (header.session_id, Proof::Signature)
            }
        };
        let channel = self.members.channel(session_id)?;
        let check = channel.check(proof)?;
        Some(FrameCheck { channel, check })
    }

    /// Queues the replies whose turn has come, and takes the frame whose turn has come; then its result
    /// is used next. Ready if there was a reply or a frame.
    pub(crate) fn poll_elsewhere(&self, cx: &mut Context<'_>) -> Poll<Option<Buf>> {
        if self.poll_leaving(cx).is_ready() {
            return Poll::Ready(None);
        }
        let next = ready!(self.incoming.lined_up.borrow_mut().poll_next(cx));
        if next.is_none() {
            self.disconnect(LOST);
        }
        Poll::Ready(next.map(|(frame, checked)| {
            self.incoming.ahead.extend(checked.map(Some));
            frame
        }))
    }

    /// True while a further frame may join the row.
    pub(crate) fn may_line_up(&self) -> bool {
        let row = self.incoming.lined_up.borrow();
        (row.is_empty() || row.len() < self.info.server.crypto_threads().lined_up_max())
            && !self.incoming.is_ending()
    }

    /// True while a frame or a reply waits for another thread.
    pub(crate) fn is_elsewhere(&self) -> bool {
        !self.outgoing.leaving.borrow().is_empty() || !self.incoming.lined_up.borrow().is_empty()
    }

    /// Waits for what other threads do for the connection, which has ended: until then its memory
    /// counts.
    pub(crate) async fn settle_elsewhere(&self) {
        while self.is_elsewhere() {
            poll_fn(|cx| self.poll_elsewhere(cx)).await;
        }
        self.incoming.ahead.forget();
    }
}
