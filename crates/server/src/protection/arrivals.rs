//! Requests that are verified, unsealed or expanded before their turn: together, or by other threads.
//!
//! AES-CMAC and AES-CCM are faster for several messages at once. The results for requests that have
//! come together are computed when the first of them begins, and used when each begins in its turn:
//! all that is checked before a signature is still checked before its result is looked at, and a
//! request that ends a session ends it for those behind it.
//!
//! A frame that another thread checks keeps its place: it begins when all before it have begun, and
//! those behind it wait for it. So sequence numbers, CANCEL and the end of a session have the effect
//! that they have where each frame is checked in its turn.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use frevo_crypto::Sender;
use frevo_net::buffer::Buf;
use frevo_proto::limits::{CHECKED_TOGETHER, CRYPTO_GAINS_BYTES_MIN, TOGETHER_BYTES_MIN};
use frevo_proto::protection::receive_policy::SignatureRule;
use frevo_proto::protection::{Check, Compression, Form, Incoming, Proof, Received, Work};
use frevo_wire::{Command, Header, HeaderFlags};

use super::checked::{Checked, CheckedAhead, LinedUp};
use super::circumstances::{Company, Keyring};
use super::expanding::{self, Looked};
use super::replies::LOST;
use super::row::{Row, Sizes};
use super::signing::check_of;
use crate::base::pools::crypto_threads::CryptoSite;
use crate::objects::channel::Channel;
use crate::objects::refusal::Doom;

/// The check of a received frame, with the channel that has its key.
struct FrameCheck {
    channel: Rc<Channel>,
    check: Check,
}

/// The frames of a connection whose check begins before their turn.
#[derive(Default)]
pub(crate) struct Arrivals {
    /// The results for frames whose turn has not come.
    ahead: CheckedAhead,
    /// The results for the frames that come next, if they were decrypted together before their compression
    /// is looked at.
    opened: CheckedAhead,
    /// Frames in their order, whose first is being checked or expanded elsewhere.
    lined_up: RefCell<Row<Result<LinedUp, Doom>>>,
}

impl Arrivals {
    /// Takes the result for the frame whose turn has come, if there is one.
    pub(crate) fn take_checked(&self) -> Option<Checked> {
        self.ahead.take()
    }

    /// Forgets all results, with the channels that they hold.
    pub(crate) fn forget_checked(&self) {
        self.ahead.forget();
        self.opened.forget();
    }

    /// True if `frame`, which begins now, is better checked together with those behind it.
    pub(crate) fn gains_company(&self, keys: &Keyring<'_>, frame: &[u8]) -> bool {
        frame.len() >= TOGETHER_BYTES_MIN
            && self.ahead.is_empty()
            && batched_proof(keys, frame).is_some_and(|by| !by.opens_first(keys))
    }

    /// True if `frame`, which is the next and may be compressed, is better decrypted together with those
    /// behind it.
    pub(crate) fn opens_with_company(&self, keys: &Keyring<'_>, frame: &[u8]) -> bool {
        keys.info.compression().is_some()
            && frame.len() >= TOGETHER_BYTES_MIN
            && self.opened.is_empty()
            && batched_proof(keys, frame).is_some_and(|by| by.opens_first(keys))
    }

    /// Checks the first of `frames`, and those behind it that have the same key.
    pub(crate) fn check_together<'a>(
        &self,
        keys: &Keyring<'_>,
        frames: impl Iterator<Item = &'a mut Buf>,
    ) {
        let mut batch: Vec<&mut Buf> = Vec::new();
        let mut by: Option<Batched> = None;
        for frame in frames.take(CHECKED_TOGETHER) {
            let Some(next) = batched_proof(keys, frame) else { break };
            let first = by.get_or_insert_with(|| next.clone());
            if !Rc::ptr_eq(&first.channel, &next.channel) || first.proof != next.proof {
                break;
            }
            batch.push(frame);
        }
        let Some(by) = by.filter(|_| batch.len() > 1) else { return };
        let results = if by.opens_first(keys) { &self.opened } else { &self.ahead };
        let Batched { channel, proof } = by;
        let Some(check) = check_of(&channel, proof) else { return };
        tracing::trace!(target: "frevo::connection", frames = batch.len(), "checked together");
        let checked = Incoming::new(batch, check, Sender::Client).run();
        results.extend(checked.into_iter().map(|Received { verdict, .. }| {
            verdict.map(|verdict| Checked { channel: Rc::clone(&channel), verdict })
        }));
    }

    /// Returns true if a frame that has come begins now, expanded if it was compressed. If it is better
    /// checked or expanded elsewhere, or others wait before it, it is taken and joins the row.
    pub(crate) fn begins_now(&self, keys: &Keyring<'_>, company: Company, frame: &mut Buf) -> bool {
        let taken = std::mem::take(frame);
        let kept = match keys.info.compression() {
            None => self.line_up(keys, company, taken),
            Some(compression) => self.expand(keys, company, compression, taken),
        };
        kept.map(|kept| *frame = kept).is_some()
    }

    /// Returns the frame if it begins now, on a connection with `compression`.
    fn expand(
        &self,
        keys: &Keyring<'_>,
        company: Company,
        compression: Compression,
        frame: Buf,
    ) -> Option<Buf> {
        let sizes = Sizes { memory: frame.capacity(), wire: 0 };
        let looked = match self.opened.take() {
            None => expanding::look(keys, company, compression, frame),
            Some(Checked { channel, verdict }) => {
                let received = Received { frame, verdict: Some(verdict) };
                expanding::look_at_opened(keys, company, compression, received, channel)
            }
        };
        match looked {
            Looked::Ready(LinedUp { frame, checked: None, .. }) => {
                return self.line_up(keys, company, frame);
            }
            Looked::Ready(ready) => {
                let mut row = self.lined_up.borrow_mut();
                if row.is_empty() {
                    self.ahead.extend([ready.checked]);
                    return Some(ready.frame);
                }
                // The row counts it from here on.
                let ready = LinedUp { charged: None, ..ready };
                let sizes = Sizes { memory: ready.frame.capacity(), wire: 0 };
                row.push(Ok(ready), sizes);
            }
            Looked::Working(work) => self.lined_up.borrow_mut().push_work(work, sizes),
            Looked::Refused(why) => self.lined_up.borrow_mut().push(Err(why), sizes),
        }
        None
    }

    /// Returns the frame if it begins now.
    fn line_up(&self, keys: &Keyring<'_>, company: Company, frame: Buf) -> Option<Buf> {
        let server = &keys.info.server;
        let threads = server.crypto_threads();
        let found = OnceCell::new();
        let check = || found.get_or_init(|| self.check_of(keys, &frame)).as_ref();
        let algorithm = || Some(check()?.check.algorithm());
        let is_alone = || company.is_alone();
        let mut site = threads.site(&*server.ambient, frame.len(), algorithm, is_alone);
        let is_first = self.lined_up.borrow().is_empty();
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
            self.lined_up.borrow_mut().push(Ok(frame.into()), sizes);
            return None;
        };
        let work = Incoming::new([frame], check, Sender::Client);
        let lined_up = move |Received { frame, verdict }: Received<Buf>| {
            let checked = verdict.map(|verdict| Checked { channel, verdict });
            Ok(LinedUp { frame, checked, charged: None })
        };
        if site == CryptoSite::CoreAtOnce {
            let done = threads.run_here(work).pop();
            if let Some(received) = done {
                self.lined_up.borrow_mut().push(lined_up(received), sizes);
            }
        } else {
            let done = threads.hand_over(site, work);
            let work = async move { done.await?.pop().map(lined_up) };
            self.lined_up.borrow_mut().push_work(Box::pin(work), sizes);
        }
        None
    }

    /// The check of a frame that has its result before its turn, if it may have one.
    fn check_of(&self, keys: &Keyring<'_>, frame: &[u8]) -> Option<FrameCheck> {
        if !self.ahead.is_empty() || !keys.may_check_ahead() {
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
        let channel = keys.channel(session_id)?;
        let check = check_of(&channel, proof)?;
        Some(FrameCheck { channel, check })
    }

    /// Takes the frame whose turn has come; then its result is used next.
    ///
    /// # Errors
    /// The work on it was lost, or it is refused: the connection ends.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Result<Buf, Doom>> {
        let next = ready!(self.lined_up.borrow_mut().poll_next(cx)).ok_or(LOST)?;
        let LinedUp { frame, checked, charged } = next?;
        // From here on it counts as a frame of its connection.
        drop(charged);
        self.ahead.extend(checked.map(Some));
        Poll::Ready(Ok(frame))
    }

    /// True if no frame waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.lined_up.borrow().is_empty()
    }

    /// True while a further frame may join the row of at most `most`.
    pub(crate) fn has_place(&self, most: impl FnOnce() -> usize) -> bool {
        let row = self.lined_up.borrow();
        row.is_empty() || row.len() < most()
    }

    /// Bytes of the frames that wait.
    pub(crate) fn memory(&self) -> usize {
        self.lined_up.borrow().sizes().memory
    }
}

/// The channel whose key a frame is checked with, together with others.
#[derive(Clone)]
struct Batched {
    channel: Rc<Channel>,
    proof: Proof,
}

impl Batched {
    /// True for frames whose compression is looked at when they have come: until then they are sealed.
    fn opens_first(&self, keys: &Keyring<'_>) -> bool {
        self.proof == Proof::Seal && keys.info.compression().is_some()
    }
}

/// Returns the channel whose key `frame` is checked with, if a batch is faster. Left out are the
/// longest messages, which may be checked elsewhere, messages that are not verified by the rule for
/// most commands, and compounds, whose messages have a signature each.
fn batched_proof(keys: &Keyring<'_>, frame: &[u8]) -> Option<Batched> {
    if frame.len() >= CRYPTO_GAINS_BYTES_MIN || !keys.may_check_ahead() {
        return None;
    }
    if let Form::Sealed(session_id) = Form::of(frame) {
        let channel = keys.channel(session_id)?;
        let gains = channel.opening_key()?.gains_by_batches();
        return gains.then_some(Batched { channel, proof: Proof::Seal });
    }
    let header = Header::parse(frame).ok()?;
    let rule = (keys.rule_of)(header.command)?;
    let is_plain = header.flags.contains(HeaderFlags::SIGNED)
        && !header.flags.contains(HeaderFlags::RELATED_OPERATIONS)
        && !header.is_response()
        && header.next_command == 0
        && header.command != Command::CANCEL
        && matches!(rule, SignatureRule::BySession | SignatureRule::Demanded);
    let channel = keys.channel(header.session_id).filter(|_| is_plain)?;
    let gains = channel.signing_key()?.gains_by_batches();
    gains.then_some(Batched { channel, proof: Proof::Signature })
}
