//! Receiving: MS-SMB2 3.2.5.1.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_crypto::Sender;
use frevo_net::buffer::Buf;
use frevo_net::frame_reader::{Enough, FrameReader, ReceiveError};
use frevo_proto::Disconnect;
use frevo_proto::frame::Stage;
use frevo_proto::limits::{CHECKED_TOGETHER, CHECKED_TOGETHER_BYTES_MAX};
use frevo_proto::protection::{
    self, Check, Form, Incoming, Opened, Received, Site, Verdict, Work, is_batched,
};
use frevo_wire::command::oplock_break::Notification;
use frevo_wire::command::server_to_client_notification as server_to_client;
use frevo_wire::compound::Compound;
use frevo_wire::{Command, Header, HeaderFlags, Route};
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use super::crypto_offload::{hand_over, measured};
use super::expanding::Looked;
use super::{Connection, Message, Unasked};
use crate::Status;
use crate::error::Cause;
use crate::limits::{HAND_OVER_BYTES, INTERIMS, SESSION_CLOSED_BYTES};

/// The keys of lent memory that frames have invalidated, in the order of the frames; empty for none.
pub(super) type Invalidated = Vec<Option<u32>>;

/// The cause of a frame that no key opens.
const NOT_OPENED: Cause = Cause::Security(
    "the server sent an answer that the session's key does not decrypt; it may be forged",
);

/// The place where a frame is decrypted.
pub(super) enum Begun {
    /// Decrypted by the task that reads.
    Here,
    /// Being decrypted on another core.
    Elsewhere,
}

impl Connection {
    /// Reads until the end. Returns the cause if the peer did not end in order.
    pub(super) async fn read(self: &Arc<Self>) -> Option<Cause> {
        let mut reader = FrameReader::new(0);
        let mut number = 0;
        loop {
            reader.set_limit(self.frame_limit());
            let frame = match reader.next(&self.stream).await {
                Ok(Some(frame)) => frame,
                Ok(None) => return None,
                Err(ReceiveError::NotAFrame { .. }) => return Some(self.is_not_smb()),
                Err(ReceiveError::TooLong { .. }) => {
                    return Some(Cause::Protocol("it sent a frame longer than any answer"));
                }
                Err(error) => return Some(std::io::Error::from(error).into()),
            };
            *self.heard.lock() = Instant::now();
            let behind = self.gather(&frame, &mut reader);
            let len = frame.len() + behind.iter().map(|frame| frame.len()).sum::<usize>();
            let bytes = u64::try_from(len).unwrap_or(u64::MAX);
            self.carried.received.fetch_add(bytes, Ordering::Relaxed);
            let keys = self.invalidated_with(number, 1 + behind.len());
            number += 1 + u64::try_from(behind.len()).unwrap_or(0);
            match self.begin(frame, behind, keys) {
                Err(why) => return Some(why),
                Ok(Begun::Here) if len >= HAND_OVER_BYTES => tokio::task::yield_now().await,
                Ok(Begun::Here | Begun::Elsewhere) => {}
            }
        }
    }

    /// Returns the frames behind `first` that have arrived, if all of them together are decrypted
    /// faster than one by one.
    pub(super) fn gather(&self, first: &[u8], reader: &mut FrameReader) -> Vec<Buf> {
        let gains = is_batched(first.len())
            && matches!(Form::of(first), Form::Sealed(_))
            && self.opening.read().as_ref().is_some_and(|(_, key)| key.gains_by_batches());
        if !gains {
            return Vec::new();
        }
        let bytes = CHECKED_TOGETHER_BYTES_MAX.saturating_sub(first.len());
        reader.gather(&self.stream, Enough { frames: CHECKED_TOGETHER - 1, bytes }, |_, _| true);
        std::iter::from_fn(|| reader.try_next()).take(CHECKED_TOGETHER - 1).collect()
    }

    /// Decrypts a frame, and those behind it that came together with it, and hands their messages
    /// out, or has another core do so. They have invalidated these keys of lent memory.
    pub(super) fn begin(
        self: &Arc<Self>,
        frame: Buf,
        behind: Vec<Buf>,
        keys: Invalidated,
    ) -> Result<Begun, Cause> {
        let Form::Sealed(_) = Form::of(&frame) else {
            return self
                .on_frame(frame, None, keys.first().copied().flatten())
                .map(|()| Begun::Here);
        };
        let site = self.opening_pace.site_on_own(frame.len());
        if site == Site::Here && behind.is_empty() {
            return self
                .on_frame(frame, None, keys.first().copied().flatten())
                .map(|()| Begun::Here);
        }
        let Some((session_id, key)) = self.opening.read().clone() else { return Err(NOT_OPENED) };
        let check = Check::Seal { key, session_id };
        let frames = std::iter::once(frame).chain(behind);
        let work: Incoming<Buf> = Incoming::new(frames, check, Sender::Server);
        if site == Site::Here {
            return self.check(work, keys).map(|()| Begun::Here);
        }
        let connection = Arc::clone(self);
        hand_over(move || {
            if let Err(why) = connection.check(work, keys) {
                connection.fail(why);
            }
        });
        Ok(Begun::Elsewhere)
    }

    /// Decrypts frames together, and handles them in their order.
    fn check(self: &Arc<Self>, work: Incoming<Buf>, keys: Invalidated) -> Result<(), Cause> {
        let received = measured(&self.opening_pace, work.bytes(), || work.run());
        let mut keys = keys.into_iter();
        received.into_iter().try_for_each(|Received { frame, verdict }| {
            self.on_frame(frame, verdict, keys.next().flatten())
        })
    }

    fn frame_limit(&self) -> u32 {
        let stage = match self.agreed.get() {
            None => Stage::New,
            Some(agreed) => Stage::Authenticated { max_payload: agreed.terms.max_payload() },
        };
        u32::try_from(stage.frame_limit()).unwrap_or(u32::MAX)
    }

    fn is_not_smb(&self) -> Cause {
        match self.agreed.get() {
            None => Cause::NotSmb,
            Some(_) => Cause::Protocol("it sent data that is not SMB"),
        }
    }

    /// Expands a frame if it is compressed, opens it, and hands its messages out.
    fn on_frame(
        self: &Arc<Self>,
        frame: Buf,
        verdict: Option<Verdict>,
        invalidated: Option<u32>,
    ) -> Result<(), Cause> {
        match self.look(Received { frame, verdict })? {
            Looked::Plain(received) => self.on_expanded(received, invalidated),
            Looked::Compressed(work) => self.expand(work, invalidated),
        }
    }

    /// Opens a frame that is not compressed any more, splits it, and hands its messages out.
    pub(super) fn on_expanded(
        &self,
        received: Received<Buf>,
        invalidated: Option<u32>,
    ) -> Result<(), Cause> {
        let Received { mut frame, verdict } = received;
        let opened = match (Form::of(&frame), verdict) {
            (Form::Sealed(_), None) => {
                let len = frame.len();
                measured(&self.opening_pace, len, || self.open_frame(&mut frame, None))
            }
            _ => self.open_frame(&mut frame, verdict),
        };
        let opened = opened.map_err(|why| match why {
            Disconnect::Compressed if self.agreed.get().is_none() => Cause::NotSmb,
            Disconnect::Compressed => Cause::Protocol("it sent a compressed message"),
            _ => NOT_OPENED,
        })?;
        frame.truncate(opened.message.end);
        frame.advance(opened.message.start);
        self.capture_received(&frame);
        let sealed = opened.sealed_for;
        let first = match Header::parse(&frame) {
            Ok(first) => first,
            Err(_) if self.agreed.get().is_none() => return Err(Cause::NotSmb),
            Err(malformed) => return Err(malformed.into()),
        };
        if first.next_command == 0 {
            self.check_invalidated(invalidated, &[first])?;
            return self.on_message(frame, first, sealed);
        }
        let (mut parts, mut headers) = (Vec::new(), Vec::new());
        for part in Compound::new(&frame) {
            let (_, part) = part?;
            parts.push(Buf::copy_of(part));
            headers.push(Header::parse(part)?);
        }
        self.check_invalidated(invalidated, &headers)?;
        let mut parts = parts.into_iter().zip(headers);
        parts.try_for_each(|(part, header)| self.on_message(part, header, sealed))
    }

    fn open_frame(&self, frame: &mut Buf, verdict: Option<Verdict>) -> Result<Opened, Disconnect> {
        let key = |id| {
            let opening = self.opening.read().clone();
            opening.filter(|(of, _)| *of == id).map(|(_, key)| key)
        };
        protection::open(frame, verdict, Sender::Server, key)
    }

    /// Fails unless the key that came with a frame is that of memory which was lent for a request
    /// that the frame answers.
    fn check_invalidated(&self, key: Option<u32>, headers: &[Header]) -> Result<(), Cause> {
        let Some(key) = key else { return Ok(()) };
        let is_lent =
            |header: &Header| !is_interim(header) && self.waiters.has_lent(header.message_id, key);
        if headers.iter().any(is_lent) {
            return Ok(());
        }
        Err(Cause::Protocol("it invalidated memory that it had for another request"))
    }

    fn on_message(&self, buf: Buf, header: Header, sealed: Option<u64>) -> Result<(), Cause> {
        if !header.is_response() {
            return Err(Cause::Protocol("it sent a request"));
        }
        // MS-SMB2 3.2.5.20, 4.11.1: a notification that is signed has a MessageId of its own.
        if header.command == Command::SERVER_TO_CLIENT_NOTIFICATION {
            return self.on_notification(Message { buf, header, sealed, loan: None });
        }
        if header.message_id == u64::MAX {
            return self.on_unasked(&buf, &header, sealed.is_some());
        }
        let id = header.message_id;
        if is_interim(&header) {
            let Route::Async { async_id } = header.route else { return Ok(()) };
            // Another core may have processed the final response before this interim response. Then
            // no waiter is found.
            let count = self.waiters.interim(id, async_id, |taken| {
                self.credits.answered(taken, header.credits, false);
            });
            return if count > INTERIMS {
                Err(Cause::Protocol("it sent more than 16 interim responses to one request"))
            } else {
                Ok(())
            };
        }
        let Some(mut waiter) = self.waiters.take(id) else {
            return Err(Cause::Protocol("it sent an answer without a request"));
        };
        self.credits.answered(&mut waiter.taken, header.credits, true);
        // The send fails if the caller has given up the request, which is no error.
        let loan = waiter.loan;
        #[cfg(feature = "plant")]
        let loan = super::loan::kept(loan, header.command);
        let _ = waiter.reply.send(Message { buf, header, sealed, loan });
        Ok(())
    }

    fn on_unasked(&self, message: &[u8], header: &Header, is_sealed: bool) -> Result<(), Cause> {
        // A transport that encrypts in place of SMB proves the message as well.
        let is_sealed = is_sealed || self.agreed().accepts_transport_security;
        if header.command != Command::OPLOCK_BREAK {
            // A notification of an unknown type is ignored, because it needs no answer.
            return Ok(());
        }
        let notification = Notification::parse(message)?;
        self.pass_on(Unasked::Notification { is_sealed, notification })
    }

    /// Passes the news of the end of a session on. Other notifications are ignored, because they need no
    /// answer; so are all that this connection did not negotiate.
    fn on_notification(&self, mut message: Message) -> Result<(), Cause> {
        if !self.agreed().supports_notifications() {
            return Ok(());
        }
        let kind = server_to_client::Notification::parse(message.bytes())?.notification_type;
        if kind != server_to_client::NotificationType::SESSION_CLOSED {
            return Ok(());
        }
        if message.buf.len() > SESSION_CLOSED_BYTES {
            return Err(Cause::Protocol("it sent a notification longer than any"));
        }
        // It waits without the buffer of its frame.
        message.buf = Buf::copy_of(&message.buf);
        self.pass_on(Unasked::SessionClosed { connection: self.number, message })
    }

    fn pass_on(&self, unasked: Unasked) -> Result<(), Cause> {
        match self.unasked.try_send(unasked) {
            Err(TrySendError::Full(_)) => {
                Err(Cause::Protocol("it sent more than 1,024 notifications at once"))
            }
            // The session has ended, so the client has nothing that a notification could concern.
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
        }
    }
}

/// Returns true for an interim response, MS-SMB2 3.2.5.1.5: the final one is still to come.
fn is_interim(header: &Header) -> bool {
    Status::from(header.status) == Status::PENDING
        && header.flags.contains(HeaderFlags::ASYNC_COMMAND)
}
