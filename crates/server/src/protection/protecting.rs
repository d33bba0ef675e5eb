//! Replies on their way to the send queue: protected here, together or by other threads.
//!
//! Where several requests have come at once, their large replies wait for each other, if the
//! algorithm is faster for several ([`Batch`]), and only while the requests that have come are begun.
//! The longest replies are protected by other threads. All replies leave in their original order, and
//! those that are sealed have their nonces when they take their places.

use std::sync::Arc;
use std::task::{Context, Poll};

use frevo_crypto::{SealingKey, Sender, SigningKey};
use frevo_net::buffer::Buf;
use frevo_net::cores;
use frevo_net::limits::{SEND_QUEUE_BYTES_MAX, SEND_QUEUE_FRAMES_MAX};
use frevo_net::send_queue::OutFrame;
use frevo_proto::frame::PREFIX_LEN;
use frevo_proto::protection::transform::HEADROOM;
use frevo_proto::protection::{Framed, Outgoing, ProtectError, Work};

use super::ReplyGuard;
use crate::base::limits::MAX_IO;
use crate::base::pools::crypto_threads::CryptoSite;
use crate::connection::Connection;
use crate::connection::row::Sizes;
use crate::objects::refusal::Doom;

/// The work of another thread has panicked.
pub(super) const LOST: Doom = Doom::Rule("a bug in the server; see the log");

/// Begins the protection of a frame.
fn begin<'a>(
    mut frame: Buf,
    guard: ReplyGuard<'a>,
) -> Result<Outgoing<Buf, &'a Arc<SigningKey>, &'a Arc<SealingKey>>, Doom> {
    frame.grow_front(HEADROOM);
    Outgoing::new(frame, guard, Sender::Server, None).map_err(doom)
}

/// Takes the frame out of its buffer, without its prefix, which the queue writes.
fn unprefixed(framed: Framed<Buf>) -> Buf {
    let Framed { mut buffer, range } = framed;
    buffer.truncate(range.end);
    buffer.advance(range.start + PREFIX_LEN);
    buffer
}

fn doom(why: ProtectError) -> Doom {
    match why {
        ProtectError::Exhausted => {
            Doom::Rule("the session's sealing key has reached its limit of messages")
        }
        ProtectError::Length(_) | ProtectError::TooShort => {
            Doom::Rule("a bug in the server: a response that cannot be sent")
        }
    }
}

impl Connection {
    /// Until [`Self::settle`] large replies wait for each other.
    pub(crate) fn gather(&self) {
        self.outgoing.together.is_gathering.set(true);
    }

    /// Protects the replies that wait, and queues them.
    pub(crate) fn settle(&self) {
        self.outgoing.together.is_gathering.set(false);
        self.protect_gathered();
    }

    /// Queues a frame that is ready, behind those that wait.
    pub(crate) fn enqueue(&self, frame: OutFrame) {
        self.protect_gathered();
        self.outgoing.put(frame);
    }

    /// Protects a short frame now.
    pub(crate) fn protect_now(&self, frame: Buf, guard: ReplyGuard<'_>) -> Result<Buf, Doom> {
        let framed = self.info.server.crypto_threads().run_here(begin(frame, guard)?);
        framed.map(unprefixed).map_err(doom)
    }

    /// Protects a reply and returns it; None if it is protected later or elsewhere, or the connection
    /// ends. `is_whole` is true for a reply of which nothing but its bytes is needed; `finish` makes
    /// it a frame of the queue.
    pub(crate) fn protect(
        &self,
        frame: Buf,
        guard: ReplyGuard<'_>,
        is_whole: bool,
        finish: impl FnOnce(Buf) -> OutFrame + 'static,
    ) -> Option<Buf> {
        let protected = begin(frame, guard).and_then(|reply| {
            if is_whole && self.outgoing.together.is_gathering.get() && reply.gains_by_batches() {
                self.protect_later(reply.shared());
                return Ok(None);
            }
            if is_whole && let Some(site) = self.site_elsewhere(&reply) {
                self.protect_elsewhere(reply.shared(), site, finish);
                return Ok(None);
            }
            let framed = self.info.server.crypto_threads().run_here(reply);
            framed.map(|framed| Some(unprefixed(framed))).map_err(doom)
        });
        protected.unwrap_or_else(|why| {
            self.disconnect(why);
            None
        })
    }

    /// The place elsewhere for the protection of a reply; None if it stays here.
    fn site_elsewhere(&self, reply: &impl Work) -> Option<CryptoSite> {
        let algorithm = reply.algorithm()?;
        let server = &self.info.server;
        let site = server.crypto_threads().site(
            &*server.ambient,
            reply.bytes(),
            || Some(algorithm),
            || self.is_alone(),
        );
        matches!(site, CryptoSite::Thread | CryptoSite::After(_)).then_some(site)
    }

    /// True if the core has nothing to do but the present message.
    pub(crate) fn is_alone(&self) -> bool {
        let is_shared = || cores::current().is_some_and(|core| core.tasks() > 1);
        !self.incoming.has_company.get() && !self.is_elsewhere() && !is_shared()
    }

    /// Has a reply protected and queued together with others.
    fn protect_later(&self, reply: Outgoing<Buf>) {
        if !self.outgoing.together.replies.borrow().accepts(&reply) {
            self.protect_gathered();
        }
        let is_full = self.outgoing.together.replies.borrow_mut().push(reply);
        if is_full {
            self.protect_gathered();
        }
    }

    /// Bytes of the replies that wait.
    pub(crate) fn gathered_bytes(&self) -> usize {
        self.outgoing.together.replies.borrow().buffers().map(Buf::capacity).sum()
    }

    /// Protects the replies that wait, and queues them.
    fn protect_gathered(&self) {
        if self.outgoing.together.replies.borrow().is_empty() {
            return;
        }
        match self.outgoing.together.replies.take().run() {
            Ok(frames) => {
                if frames.len() > 1 {
                    tracing::trace!(target: "frevo::connection", replies = frames.len(),
                        "protected together");
                }
                for frame in frames {
                    self.outgoing.put(OutFrame::new(unprefixed(frame)));
                }
            }
            Err(why) => self.disconnect(doom(why)),
        }
    }

    /// Has a reply protected elsewhere, and sent as a frame that `finish` makes behind those that came
    /// before it.
    fn protect_elsewhere(
        &self,
        reply: Outgoing<Buf>,
        site: CryptoSite,
        finish: impl FnOnce(Buf) -> OutFrame + 'static,
    ) {
        self.protect_gathered();
        let sizes = Sizes { memory: reply.buffer().capacity(), wire: reply.frame_bytes() };
        let done = self.info.server.crypto_threads().hand_over(site, reply);
        let work = async move { done.await?.ok().map(|framed| finish(unprefixed(framed))) };
        self.outgoing.leaving.borrow_mut().push_work(Box::pin(work), sizes);
        // The request may still be running, so the event loop is woken to send the reply.
        self.call_event_loop();
    }

    /// Queues the replies whose turn has come. Ready if there were some.
    pub(crate) fn poll_leaving(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut leaving = self.outgoing.leaving.borrow_mut();
        let mut polled = Poll::Pending;
        while let Poll::Ready(frame) = leaving.poll_next(cx) {
            match frame {
                Some(frame) => self.outgoing.queue.push(frame),
                None => self.disconnect(LOST),
            }
            polled = Poll::Ready(());
        }
        polled
    }

    /// True if no more requests should be accepted for now, because of their replies.
    pub(crate) fn is_full_of_replies(&self) -> bool {
        let leaving = self.outgoing.leaving.borrow();
        if self.outgoing.queue.is_full() || leaving.is_empty() {
            return self.outgoing.queue.is_full();
        }
        let working = leaving.working();
        // Replies on the crypto threads are already limited by number, so up to MAX_IO bytes of
        // each are subtracted.
        let others = working.saturating_mul(MAX_IO as usize);
        let bytes =
            self.outgoing.queue.queued_bytes() + leaving.sizes().wire.saturating_sub(others);
        working >= self.info.server.crypto_threads().lined_up_max()
            || bytes >= SEND_QUEUE_BYTES_MAX
            || self.outgoing.queue.queued_frames() + leaving.len() >= SEND_QUEUE_FRAMES_MAX
    }
}
