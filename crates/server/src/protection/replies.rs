//! Replies on their way to the send queue: compressed and protected here, together or by other threads.
//!
//! Where several requests have come at once, their large replies wait for each other, if the
//! algorithm is faster for several ([`Batch`]), and only while the requests that have come are begun.
//! The longest replies are protected by other threads. All replies leave in their original order, and
//! those that are sealed have their nonces when they take their places.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::{Context, Poll};

use frevo_crypto::{SealingKey, Sender, SigningKey};
use frevo_net::buffer::Buf;
use frevo_net::limits::{SEND_QUEUE_BYTES_MAX, SEND_QUEUE_FRAMES_MAX};
use frevo_net::send_queue::{OutFrame, SendLimits, SendQueue};
use frevo_proto::frame::PREFIX_LEN;
use frevo_proto::limits::{CRYPTO_ELSEWHERE_BYTES_MIN, TOGETHER_BYTES_MIN};
use frevo_proto::protection::transform::HEADROOM;
use frevo_proto::protection::{
    Batch, Framed, Outgoing, ProtectError, ToCompress, Work, signed_at_once,
};

use super::circumstances::Company;
use super::row::{Row, Sizes};
use super::signing::{KeyedGuard, ReplyGuard, signatures};
use crate::base::ambient::CryptoPlace;
use crate::base::limits::MAX_IO;
use crate::base::pools::crypto_threads::{CryptoSite, CryptoThreads};
use crate::objects::refusal::Doom;
use crate::objects::server::ServerState;

/// Bytes of a buffer from which a frame that has shrunk gets one of its own.
const FITTED_BYTES_MIN: usize = 16 << 10;

/// The work of another thread has panicked.
pub(super) const LOST: Doom = Doom::Rule("a bug in the server; see the log");

// A frame for which no batch is faster stays on the core, and its time is not measured.
const _: () = assert!(TOGETHER_BYTES_MIN <= CRYPTO_ELSEWHERE_BYTES_MIN);

/// The replies of a connection, in their order.
pub(crate) struct Replies {
    /// Frames that are sent in this order.
    queue: SendQueue,
    /// Replies in their order, whose first is being protected elsewhere.
    leaving: RefCell<Row<OutFrame>>,
    /// True while further requests of the same read are being begun.
    is_gathering: Cell<bool>,
    /// Replies that are protected together.
    together: RefCell<Batch<Buf>>,
}

/// A reply that [`Replies::protect`] has taken.
pub(crate) enum Taken {
    /// It is protected.
    Protected(Buf),
    /// It waits for others, and is queued with them.
    Gathered,
    /// Another thread protects it: the event loop has to look for it.
    Elsewhere,
}

/// A reply before it is protected.
pub(crate) struct Reply {
    /// The message or the compound.
    pub(crate) frame: Buf,
    /// The data that is compressed; None if nothing is.
    pub(crate) to_compress: Option<ToCompress<Buf>>,
}

impl From<Buf> for Reply {
    /// A reply that is not compressed.
    fn from(frame: Buf) -> Self {
        Self { frame, to_compress: None }
    }
}

impl Reply {
    /// Begins its protection.
    fn begin(
        self,
        guard: KeyedGuard<'_>,
    ) -> Result<Outgoing<Buf, &Arc<SigningKey>, &Arc<SealingKey>>, Doom> {
        let Self { mut frame, to_compress } = self;
        frame.grow_front(HEADROOM);
        Outgoing::new(frame, guard, Sender::Server, to_compress).map_err(doom)
    }
}

/// Takes the frame out of its buffer, without its prefix, which the queue writes. One that compression has
/// made much smaller goes into a buffer of its size: the client may take it when it likes.
fn unprefixed(framed: Framed<Buf>) -> Buf {
    let Framed { mut buffer, range } = framed;
    if buffer.len() >= FITTED_BYTES_MIN && range.len() < buffer.len() / 2 {
        return Buf::copy_of(buffer.get(range.start + PREFIX_LEN..range.end).unwrap_or_default());
    }
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

/// True for a frame of `bytes` that is protected here and at once: neither a batch nor another thread
/// is faster.
fn is_short(server: &ServerState, bytes: usize) -> bool {
    bytes < TOGETHER_BYTES_MIN
        && matches!(server.ambient.crypto_place(bytes), CryptoPlace::Measured)
}

/// Protects a frame on this thread.
///
/// # Errors
/// The connection has to end.
pub(crate) fn protect_here(
    server: &ServerState,
    reply: Reply,
    guard: ReplyGuard<'_>,
) -> Result<Buf, Doom> {
    let bytes = reply.frame.len();
    let framed = match guard {
        ReplyGuard::None | ReplyGuard::Signed(_) if is_short(server, bytes) => {
            let parts = if let ReplyGuard::Signed(parts) = guard { parts } else { &[] };
            let Reply { mut frame, to_compress } = reply;
            frame.grow_front(HEADROOM);
            signed_at_once(frame, signatures(parts, bytes), Sender::Server, to_compress)
        }
        guard => server.crypto_threads().run_here(reply.begin(guard.keyed(bytes)?)?),
    };
    framed.map(unprefixed).map_err(doom)
}

impl Replies {
    /// Nothing is to be sent yet.
    pub(crate) fn new() -> Self {
        Self {
            queue: SendQueue::new(SendLimits::default()),
            leaving: RefCell::default(),
            is_gathering: Cell::new(false),
            together: RefCell::default(),
        }
    }

    /// The frames that are ready to be sent.
    pub(crate) const fn queue(&self) -> &SendQueue {
        &self.queue
    }

    /// Until [`Self::settle`] large replies wait for each other.
    pub(crate) fn gather(&self) {
        self.is_gathering.set(true);
    }

    /// Protects the replies that wait, and queues them.
    ///
    /// # Errors
    /// The connection has to end.
    pub(crate) fn settle(&self) -> Result<(), Doom> {
        self.is_gathering.set(false);
        self.protect_gathered()
    }

    /// Queues a frame that is ready, behind those that wait.
    ///
    /// # Errors
    /// The connection has to end. The frame is queued all the same.
    pub(crate) fn enqueue(&self, frame: OutFrame) -> Result<(), Doom> {
        let protected = self.protect_gathered();
        self.put(frame);
        protected
    }

    /// Queues a frame that is protected, behind those that other threads protect.
    fn put(&self, frame: OutFrame) {
        let mut leaving = self.leaving.borrow_mut();
        if leaving.is_empty() {
            self.queue.push(frame);
        } else {
            let sizes = Sizes { memory: frame.memory(), wire: frame.len() + PREFIX_LEN };
            leaving.push(frame, sizes);
        }
    }

    /// Protects a reply of which nothing but its bytes is needed: here, later or elsewhere. `finish`
    /// makes it a frame of the queue.
    ///
    /// # Errors
    /// The connection has to end.
    pub(crate) fn protect(
        &self,
        server: &ServerState,
        company: Company,
        reply: Reply,
        guard: ReplyGuard<'_>,
        finish: impl FnOnce(Buf) -> OutFrame + 'static,
    ) -> Result<Taken, Doom> {
        let bytes = reply.frame.len();
        if is_short(server, bytes) {
            return protect_here(server, reply, guard).map(Taken::Protected);
        }
        let reply = reply.begin(guard.keyed(bytes)?)?;
        if self.is_gathering.get() && reply.gains_by_batches() {
            self.protect_later(reply.shared())?;
            return Ok(Taken::Gathered);
        }
        if let Some(site) = site_elsewhere(server, company, &reply) {
            self.protect_elsewhere(server.crypto_threads(), reply.shared(), site, finish)?;
            return Ok(Taken::Elsewhere);
        }
        let framed = server.crypto_threads().run_here(reply);
        framed.map(|framed| Taken::Protected(unprefixed(framed))).map_err(doom)
    }

    /// Has a reply protected and queued together with others.
    fn protect_later(&self, reply: Outgoing<Buf>) -> Result<(), Doom> {
        if !self.together.borrow().accepts(&reply) {
            self.protect_gathered()?;
        }
        let is_full = self.together.borrow_mut().push(reply);
        if is_full { self.protect_gathered() } else { Ok(()) }
    }

    /// Protects the replies that wait, and queues them.
    fn protect_gathered(&self) -> Result<(), Doom> {
        if self.together.borrow().is_empty() {
            return Ok(());
        }
        let frames = self.together.take().run().map_err(doom)?;
        if frames.len() > 1 {
            tracing::trace!(target: "frevo::connection", replies = frames.len(),
                "protected together");
        }
        for frame in frames {
            self.put(OutFrame::new(unprefixed(frame)));
        }
        Ok(())
    }

    /// Has a reply protected elsewhere, and sent as a frame that `finish` makes behind those that came
    /// before it.
    fn protect_elsewhere(
        &self,
        threads: &Arc<CryptoThreads>,
        reply: Outgoing<Buf>,
        site: CryptoSite,
        finish: impl FnOnce(Buf) -> OutFrame + 'static,
    ) -> Result<(), Doom> {
        self.protect_gathered()?;
        // A message that is compressed gets a buffer of its own, of no more bytes.
        let buffers = if reply.is_compressed() { 2 } else { 1 };
        let memory = reply.buffer().capacity() * buffers;
        let sizes = Sizes { memory, wire: reply.frame_bytes() };
        let done = threads.hand_over(site, reply);
        let work = async move { done.await?.ok().map(|framed| finish(unprefixed(framed))) };
        self.leaving.borrow_mut().push_work(Box::pin(work), sizes);
        Ok(())
    }

    /// Queues the replies whose turn has come. Ready if there were some.
    ///
    /// # Errors
    /// The work on one was lost: the connection has to end.
    pub(crate) fn poll_leaving(&self, cx: &mut Context<'_>) -> Poll<Result<(), Doom>> {
        let mut leaving = self.leaving.borrow_mut();
        let mut polled = Poll::Pending;
        while let Poll::Ready(frame) = leaving.poll_next(cx) {
            match frame {
                Some(frame) => self.queue.push(frame),
                None => polled = Poll::Ready(Err(LOST)),
            }
            if polled.is_pending() {
                polled = Poll::Ready(Ok(()));
            }
        }
        polled
    }

    /// True while a reply waits for another thread.
    pub(crate) fn are_elsewhere(&self) -> bool {
        !self.leaving.borrow().is_empty()
    }

    /// True if no more requests should be accepted for now, because of their replies.
    pub(crate) fn are_full(&self, server: &ServerState) -> bool {
        let leaving = self.leaving.borrow();
        if self.queue.is_full() || leaving.is_empty() {
            return self.queue.is_full();
        }
        let working = leaving.working();
        // Replies on the crypto threads are already limited by number, so up to MAX_IO bytes of
        // each are subtracted.
        let others = working.saturating_mul(MAX_IO as usize);
        let bytes = self.queue.queued_bytes() + leaving.sizes().wire.saturating_sub(others);
        working >= server.crypto_threads().lined_up_max()
            || bytes >= SEND_QUEUE_BYTES_MAX
            || self.queue.queued_frames() + leaving.len() >= SEND_QUEUE_FRAMES_MAX
    }

    /// Drops all replies and takes no further ones: nobody will receive them.
    pub(crate) fn abandon(&self) {
        self.queue.abandon();
        drop(self.together.take());
        drop(self.leaving.take());
    }

    /// Bytes that wait to be sent, prefixes included.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.queue.queued_bytes() + self.leaving.borrow().sizes().wire
    }

    /// Bytes of the buffers of all replies.
    pub(crate) fn memory(&self) -> usize {
        let together: usize = self.together.borrow().buffers().map(Buf::capacity).sum();
        let leaving = self.leaving.borrow().sizes().memory.saturating_add(together);
        self.queue.held_bytes().saturating_add(leaving)
    }
}

/// The place elsewhere for the protection of a reply; None if it stays here.
fn site_elsewhere(server: &ServerState, company: Company, reply: &impl Work) -> Option<CryptoSite> {
    let algorithm = reply.algorithm()?;
    let site = server.crypto_threads().site(
        &*server.ambient,
        reply.bytes(),
        || Some(algorithm),
        || company.is_alone(),
    );
    matches!(site, CryptoSite::Thread | CryptoSite::After(_)).then_some(site)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_has_shrunk_keeps_no_more_than_its_size() {
        let frame = |len: usize, end: usize| {
            let mut buffer = Buf::zeroed(0, len);
            buffer[10..end].fill(7);
            unprefixed(Framed { buffer, range: 10 - PREFIX_LEN..end })
        };
        let shrunk = frame(1 << 20, 160);
        assert_eq!(&shrunk[..], [7; 150]);
        assert!(shrunk.capacity() < FITTED_BYTES_MIN);
        let whole = frame(1 << 20, 1 << 20);
        assert!(whole.len() == (1 << 20) - 10 && whole.iter().all(|byte| *byte == 7));
    }
}
