//! Large messages that other threads check and protect.
//!
//! A frame that is verified or unsealed elsewhere keeps its place: it begins when all before it have
//! begun, and those behind it wait for it. So sequence numbers, CANCEL and the end of a session have
//! the effect that they have where each frame is checked in its turn. The result is used in the
//! frame's turn, like that of a batch (`batch_checking.rs`). A reply that is signed or sealed elsewhere
//! keeps its place among the replies, and has its nonce when it takes the place.

use std::cell::OnceCell;
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use frevo_crypto::{OpeningKey, SealingKey, Sender, SigningKey};
use frevo_net::buffer::Buf;
use frevo_net::cores;
use frevo_net::limits::{SEND_QUEUE_BYTES_MAX, SEND_QUEUE_FRAMES_MAX};
use frevo_net::send_queue::OutFrame;
use frevo_proto::frame::PREFIX_LEN;
use frevo_proto::protection::transform::Sealing;
use frevo_proto::protection::{signature, transform};
use frevo_wire::compound::Compound;
use frevo_wire::{Header, HeaderFlags};
use smallvec::SmallVec;
use tokio::time::sleep;

use super::checked::{Checked, Proof};
use super::end_reason::End;
use super::row::{Sizes, Work};
use super::shared_key::SharedKey;
use super::{Channel, Connection};
use crate::base::limits::{COMPOUND_ELEMENTS, MAX_IO};
use crate::base::pools::crypto_threads::{Algorithm, CryptoThreads, Site};
use crate::objects::refusal::Doom;
use crate::objects::session::Session;

/// The work of another thread has panicked.
const LOST: Doom = Doom::Rule("a bug in the server; see the log");

/// A check of a received frame.
pub(super) struct Check {
    channel: Rc<Channel>,
    by: CheckBy,
}

enum CheckBy {
    /// Verifies each message that is signed.
    Signature(SharedKey),
    /// Unseals the frame.
    Seal(Arc<Session>),
}

impl CheckBy {
    fn algorithm(&self) -> Option<Algorithm> {
        match self {
            Self::Signature(key) => Some(Algorithm::Signing(key.key()?.algorithm())),
            Self::Seal(session) => Some(Algorithm::Sealing(opening_key(session)?.cipher())),
        }
    }

    /// Returns the results for the messages, as [`Checked`] has them; None for a malformed frame,
    /// which is left alone.
    fn run(&self, frame: &mut Buf) -> Option<u128> {
        match self {
            Self::Signature(key) => Some(verify_messages(frame, key.key()?)),
            Self::Seal(session) => {
                let opened = transform::decrypt_frames(&mut [frame], opening_key(session)?);
                opened.into_iter().next().flatten().map(u128::from)
            }
        }
    }

    const fn proof(&self) -> Proof {
        match self {
            Self::Signature(_) => Proof::Signature,
            Self::Seal(_) => Proof::Seal,
        }
    }
}

/// The protection of a reply.
pub(super) enum Protection {
    /// Signs these messages.
    Signature(SmallVec<[(Range<usize>, SharedKey); 1]>),
    /// Seals the frame.
    Seal(Arc<Session>, Sealing),
}

impl Protection {
    /// Protects the reply; false if it has no key, or no room for its headers.
    pub(super) fn run(self, frame: &mut Buf) -> bool {
        match self {
            Self::Signature(parts) => parts.into_iter().all(|(range, key)| {
                let (Some(key), Some(message)) = (key.key(), frame.get_mut(range)) else {
                    return false;
                };
                signature::sign(message, key, Sender::Server).is_ok()
            }),
            Self::Seal(session, sealing) => {
                let sealed =
                    sealing_key(&session).is_some_and(|key| sealing.finish(frame, key).is_ok());
                if sealed {
                    // The queue writes the prefix.
                    frame.advance(PREFIX_LEN);
                }
                sealed
            }
        }
    }
}

fn opening_key(session: &Session) -> Option<&OpeningKey> {
    session.security()?.opening_key.as_ref()
}

fn sealing_key(session: &Session) -> Option<&SealingKey> {
    session.security()?.sealing_key.as_ref()
}

/// Verifies the messages of a frame. The bit of each that is signed and right is set.
fn verify_messages(frame: &mut Buf, key: &SigningKey) -> u128 {
    let parts = Compound::new(frame).take(COMPOUND_ELEMENTS).map_while(Result::ok);
    let ranges: SmallVec<[Range<usize>; 4]> =
        parts.map(|(offset, message)| offset..offset + message.len()).collect();
    let verdicts = ranges.into_iter().map(|range| {
        let message = frame.get_mut(range).unwrap_or_default();
        u128::from(signature::verify(message, key, Sender::Client))
    });
    verdicts.enumerate().fold(0, |all, (at, verdict)| all | verdict << at)
}

/// Has `job` done at `place`, which is not on the core.
fn elsewhere<T: Send + 'static>(
    threads: &Arc<CryptoThreads>,
    place: Site,
    job: impl FnOnce() -> T + Send + 'static,
) -> Work<T> {
    if let Site::After(time) = place {
        return Box::pin(async move {
            sleep(time).await;
            Some(job())
        });
    }
    Box::pin(threads.run(job))
}

impl Connection {
    /// Returns true if a frame that has come begins now. If it is better checked elsewhere, or others
    /// wait before it, it is taken and joins the row.
    pub(super) fn begins_now(&self, frame: &mut Buf) -> bool {
        self.line_up(std::mem::take(frame)).map(|kept| *frame = kept).is_some()
    }

    /// Returns the frame if it begins now.
    fn line_up(&self, mut frame: Buf) -> Option<Buf> {
        let server = &self.info.server;
        let threads = server.crypto_threads();
        let len = frame.len();
        let found = OnceCell::new();
        let check = || found.get_or_init(|| self.check_of(&frame)).as_ref();
        let ambient = &*server.ambient;
        let mut place = threads.place(ambient, len, || check()?.by.algorithm(), || self.is_alone());
        let is_first = self.incoming.lined_up.borrow().is_empty();
        if is_first && place == Site::Beside {
            place = Site::Core;
        }
        let sizes = Sizes { memory: frame.capacity(), wire: 0 };
        let is_asked = place != Site::Core && check().is_some();
        let Some(Check { channel, by }) = found.into_inner().flatten().filter(|_| is_asked) else {
            if is_first {
                return Some(frame);
            }
            self.incoming.lined_up.borrow_mut().push((frame, None), sizes);
            return None;
        };
        let proof = by.proof();
        let pacer = Arc::clone(threads);
        let job = move || {
            let results = pacer.measured(len, || by.algorithm(), || by.run(&mut frame));
            (frame, results)
        };
        let lined_up = move |(frame, results): (Buf, Option<u128>)| {
            (frame, results.map(|right| Checked { channel, proof, right }))
        };
        if place == Site::Beside {
            self.incoming.lined_up.borrow_mut().push(lined_up(job()), sizes);
        } else {
            let done = elsewhere(threads, place, job);
            let work = async move { done.await.map(lined_up) };
            self.incoming.lined_up.borrow_mut().push_work(Box::pin(work), sizes);
        }
        None
    }

    /// Queues the replies whose turn has come, and takes the frame whose turn has come; then its result
    /// is used next. Ready if there was a reply or a frame.
    pub(super) fn poll_elsewhere(&self, cx: &mut Context<'_>) -> Poll<Option<Buf>> {
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
    pub(super) fn may_line_up(&self) -> bool {
        let row = self.incoming.lined_up.borrow();
        (row.is_empty() || row.len() < self.info.server.crypto_threads().lined_up_max())
            && !self.incoming.is_ending()
    }

    /// The end of the connection, if it has come: no frame comes, and all that have come have begun.
    pub(super) fn end_now(&self) -> Option<Result<(), End>> {
        if let Some(why) = self.doom.get() {
            return Some(Err(End::Doomed(why)));
        }
        self.incoming.take_end()
    }

    /// The check of a frame that has its result before its turn, if it may have one.
    fn check_of(&self, frame: &[u8]) -> Option<Check> {
        if !self.incoming.ahead.is_empty()
            || !self.info.is_negotiated()
            || !self.members.is_authenticated()
        {
            return None;
        }
        if transform::is_sealed(frame) {
            let session_id = frame.get(44..52)?.try_into().ok()?;
            let channel = self.members.channel(u64::from_le_bytes(session_id))?;
            channel.opening_key()?;
            let by = CheckBy::Seal(Arc::clone(&channel.session));
            return Some(Check { channel, by });
        }
        let header = Header::parse(frame).ok()?;
        let is_signed = header.flags.contains(HeaderFlags::SIGNED) || header.next_command != 0;
        let channel = self.members.channel(header.session_id).filter(|_| is_signed)?;
        channel.signing_key()?;
        let by = CheckBy::Signature(channel.shared_signing_key());
        Some(Check { channel, by })
    }

    /// True if the core has nothing to do but the present message.
    fn is_alone(&self) -> bool {
        let is_shared = || cores::current().is_some_and(|core| core.tasks() > 1);
        !self.incoming.has_company.get() && !self.is_elsewhere() && !is_shared()
    }

    /// The place elsewhere for the protection of a reply of `len` bytes; None if it stays here.
    pub(super) fn site_elsewhere(
        &self,
        len: usize,
        algorithm: impl FnOnce() -> Option<Algorithm>,
    ) -> Option<Site> {
        let server = &self.info.server;
        let threads = server.crypto_threads();
        let site = threads.place(&*server.ambient, len, algorithm, || self.is_alone());
        matches!(site, Site::Thread | Site::After(_)).then_some(site)
    }

    /// Has a reply protected elsewhere, and sent as a frame that `finish` makes behind those that came
    /// before it.
    pub(super) fn protect_elsewhere(
        &self,
        mut frame: Buf,
        protection: Protection,
        place: Site,
        algorithm: Option<Algorithm>,
        finish: impl FnOnce(Buf) -> OutFrame + 'static,
    ) {
        self.protect_gathered();
        // A sealed frame has room for its prefix already.
        let prefix = if matches!(protection, Protection::Seal(..)) { 0 } else { PREFIX_LEN };
        let sizes = Sizes { memory: frame.capacity(), wire: frame.len() + prefix };
        let threads = self.info.server.crypto_threads();
        let pacer = Arc::clone(threads);
        let done = elsewhere(threads, place, move || {
            let len = frame.len();
            let is_done = pacer.measured(len, || algorithm, || protection.run(&mut frame));
            is_done.then_some(frame)
        });
        let work = async move { done.await.flatten().map(finish) };
        self.outgoing.leaving.borrow_mut().push_work(Box::pin(work), sizes);
        // Its request may go on, so that nothing else has the event loop look at it.
        self.attention.notify_one();
    }

    /// Queues the replies whose turn has come. Ready if there were some.
    fn poll_leaving(&self, cx: &mut Context<'_>) -> Poll<()> {
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
    pub(super) fn is_full_of_replies(&self) -> bool {
        let leaving = self.outgoing.leaving.borrow();
        if self.outgoing.queue.is_full() || leaving.is_empty() {
            return self.outgoing.queue.is_full();
        }
        let working = leaving.working();
        // Requests that other threads work on are bounded by their number.
        let others = working.saturating_mul(MAX_IO as usize);
        let bytes =
            self.outgoing.queue.queued_bytes() + leaving.sizes().wire.saturating_sub(others);
        working >= self.info.server.crypto_threads().lined_up_max()
            || bytes >= SEND_QUEUE_BYTES_MAX
            || self.outgoing.queue.queued_frames() + leaving.len() >= SEND_QUEUE_FRAMES_MAX
    }

    /// True while a frame or a reply waits for another thread.
    pub(super) fn is_elsewhere(&self) -> bool {
        !self.outgoing.leaving.borrow().is_empty() || !self.incoming.lined_up.borrow().is_empty()
    }

    /// Waits for what other threads do for the connection, which has ended: until then its memory
    /// counts.
    pub(super) async fn settle_elsewhere(&self) {
        while self.is_elsewhere() {
            poll_fn(|cx| self.poll_elsewhere(cx)).await;
        }
        self.incoming.ahead.forget();
    }
}
