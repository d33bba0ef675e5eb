//! One transport connection, from the client's side: MS-SMB2 3.2.1.2.
//!
//! The task that makes a request also signs or encrypts and sends it, so that several tasks
//! do so on several cores. One task reads, and hands each answer to the task that waits for
//! it. Where encryption is slow, other cores help (`crypto_offload`).

mod call;
mod captured;
mod claim;
mod compressing;
mod credits;
mod crypto_offload;
mod expanding;
mod expansions;
mod liveness;
mod loan;
mod message;
mod negotiate;
mod outbox;
mod path;
mod rdma;
mod reader;
#[cfg(test)]
mod receiving;
mod waiters;

pub(crate) use call::{
    Call, Compressible, Gone, Guard, Movable, PAYLOAD_HEADROOM, Patience, Payload,
};
use call::{OutgoingFrame, framed};
pub(crate) use claim::Claim;
pub(crate) use liveness::Vigilance;
use liveness::keep_watch;
pub(crate) use loan::Proof;
pub(crate) use message::{Message, Unasked};
use negotiate::Agreed;
pub(crate) use negotiate::{CAPABILITIES, Offer, security_mode};

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use frevo_capture::live::Tap;
use frevo_crypto::OpeningKey;
use frevo_net::buffer::Buf;
use frevo_net::transport::Stream;
use frevo_proto::credit::credit_charge_needed;
use frevo_proto::frame::PREFIX_LEN;
use frevo_proto::limits::BYTES_PER_CREDIT;
use frevo_proto::preauth::ConnectionPreauth;
use frevo_proto::protection::transform::HEADROOM;
use frevo_proto::protection::{Pace, Protection, Site, ToCompress, Work};
use frevo_proto::window::Taken;
use frevo_wire::command::echo::Request as Echo;
use frevo_wire::header::HEADER_LEN;
use frevo_wire::{Command, Header, HeaderFlags, Route};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep};

use crate::dial::ServerName;
use crate::error::Cause;
use crate::limits::{ANSWERED_LOOK, CREDITS_MIN, ECHOES_FOR_CREDITS};
use crate::options::Options;
use credits::{Credits, NoCredits};
use crypto_offload::{hand_over, measured};
use expansions::Expansions;
use outbox::Outbox;
use waiters::Waiters;

/// Counts of what a connection has carried.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    pub(crate) requests: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
}

/// A transport connection: MS-SMB2 3.2.1.2.
pub(crate) struct Connection {
    stream: Stream,
    /// Number of the connection in this process.
    pub(crate) number: u64,
    pub(crate) carried: Carried,
    outbox: Outbox,
    credits: Credits,
    waiters: Waiters,
    agreed: OnceLock<Agreed>,
    preauth: Mutex<ConnectionPreauth>,
    opening: RwLock<Option<(u64, Arc<OpeningKey>)>>,
    sealing_pace: Pace,
    opening_pace: Pace,
    expansions: Expansions,
    /// True once an answer may be compressed.
    asks_compressed: AtomicBool,
    gone: AtomicBool,
    end: Notify,
    why: OnceLock<Cause>,
    heard: Mutex<Instant>,
    /// [`Vigilance`]: how soon the loss of the server is noticed.
    vigilance: AtomicU8,
    unasked: mpsc::Sender<Unasked>,
    /// Number of the next data that the channel's key signs outside of a message.
    signed_data: AtomicU64,
    /// Payload from which data moves by RDMA, bytes.
    rdma_from: u32,
    /// The place at which its messages are given to a capture.
    tap: Option<Tap>,
}

impl Connection {
    /// Opens a connection over `stream` and negotiates with the server of that name.
    pub(crate) async fn open(
        stream: Stream,
        options: &Options,
        offer: Offer,
        server: &ServerName,
        unasked: mpsc::Sender<Unasked>,
    ) -> Result<Claim, Cause> {
        let connection = Self::over(stream, options.credits, unasked);
        let tap = connection.tap_for(options, server);
        let connection = Self { rdma_from: options.rdma_from, tap, ..connection };
        let connection = Arc::new(connection);
        tokio::spawn(Arc::clone(&connection).carry());
        tokio::spawn(keep_watch(Arc::downgrade(&connection)));
        let claim = Claim::new(connection);
        claim.negotiate(options, offer, &server.host).await?;
        Ok(claim)
    }

    /// Makes a connection over `stream`, which no task reads yet.
    fn over(stream: Stream, credits: u16, unasked: mpsc::Sender<Unasked>) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            stream,
            number: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            carried: Carried::default(),
            outbox: Outbox::new(),
            credits: Credits::new(credits.max(CREDITS_MIN)),
            waiters: Waiters::default(),
            agreed: OnceLock::new(),
            preauth: Mutex::new(ConnectionPreauth::new()),
            opening: RwLock::new(None),
            sealing_pace: Pace::fast(),
            opening_pace: Pace::fast(),
            expansions: Expansions::default(),
            asks_compressed: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            end: Notify::new(),
            why: OnceLock::new(),
            heard: Mutex::new(Instant::now()),
            vigilance: AtomicU8::new(Vigilance::Usual as u8),
            unasked,
            signed_data: AtomicU64::new(0),
            rdma_from: crate::limits::RDMA_FROM,
            tap: None,
        }
    }

    /// Reads and writes until the connection ends.
    async fn carry(self: Arc<Self>) {
        let why = tokio::select! {
            biased;
            why = self.read() => why,
            error = self.outbox.run(&self.stream) => error.err().map(Cause::from),
            () = self.end.notified() => None,
        };
        self.fail(why.unwrap_or_else(|| io::Error::from(io::ErrorKind::ConnectionAborted).into()));
    }

    /// Returns the results of NEGOTIATE.
    pub(crate) fn agreed(&self) -> &Agreed {
        static NOTHING: Agreed = Agreed::NOTHING;
        self.agreed.get().unwrap_or(&NOTHING)
    }

    /// Returns the pre-authentication hash that a logon on this connection begins with.
    pub(crate) fn preauth(&self) -> ConnectionPreauth {
        *self.preauth.lock()
    }

    /// Sets the key that decrypts messages of `session_id`.
    pub(crate) fn open_with(&self, session_id: u64, key: Arc<OpeningKey>) {
        *self.opening.write() = Some((session_id, key));
    }

    /// Notices the loss of the server sooner from now on. It is never noticed later again.
    pub(crate) fn be_vigilant(&self, vigilance: Vigilance) {
        self.vigilance.fetch_max(vigilance as u8, Ordering::AcqRel);
    }

    fn vigilance(&self) -> Vigilance {
        match self.vigilance.load(Ordering::Acquire) {
            0 => Vigilance::Usual,
            1 => Vigilance::Node,
            _ => Vigilance::Target,
        }
    }

    /// Returns true after the end.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Returns the cause of the end.
    pub(crate) fn why(&self) -> Option<&Cause> {
        self.why.get()
    }

    /// Waits for the answers to all requests that wait for no other client. Returns at once if
    /// there are none, or the connection has ended.
    pub(crate) async fn answered(&self) {
        while !self.is_gone() && self.waiters.expects_soon() {
            sleep(ANSWERED_LOOK).await;
        }
    }

    /// Returns a measure of the bytes under way: the credits that the requests cost.
    pub(crate) fn load(&self) -> usize {
        self.waiters.credits()
    }

    /// Returns the largest payload, bytes, that half of the credits pay for.
    pub(crate) fn affordable(&self) -> u32 {
        let credits = u32::try_from(self.credits.total() / 2).unwrap_or(u32::MAX).max(1);
        credits.saturating_mul(BYTES_PER_CREDIT)
    }

    /// Ends the connection after sending the frames that wait.
    pub(crate) fn close(&self) {
        let _ = self.outbox.drain(&self.stream);
        self.fail(io::Error::from(io::ErrorKind::ConnectionAborted).into());
    }

    /// Ends the connection with a cause; every waiting request fails.
    pub(crate) fn fail(&self, why: Cause) {
        let _ = self.why.set(why);
        if !self.gone.swap(true, Ordering::AcqRel) {
            self.stream.abort();
            self.credits.close();
            self.waiters.close();
            self.end.notify_one();
        }
    }

    /// Sends a request. The second value is the message as it was sent, for the
    /// pre-authentication hash; it is empty if the message was encrypted.
    pub(crate) async fn send(
        &self,
        call: Call<'_>,
        guard: Guard<'_>,
    ) -> Result<(Sent, Vec<u8>), Gone> {
        let taken = self.number(&call).await?;
        self.send_as(taken, call, guard)
    }

    /// Waits for the MessageId and the credits of a request, without sending anything.
    pub(crate) async fn number(&self, call: &Call<'_>) -> Result<Taken, Gone> {
        self.take(self.charge(call)).await
    }

    /// [Sends](Self::send) a request that has its [MessageId](Self::number).
    pub(crate) fn send_as(
        &self,
        taken: Taken,
        call: Call<'_>,
        guard: Guard<'_>,
    ) -> Result<(Sent, Vec<u8>), Gone> {
        let keep = call.command == Command::SESSION_SETUP || call.command == Command::NEGOTIATE;
        let (is_unhurried, session_id) = (call.is_unhurried, call.session_id);
        let id = taken.message_id;
        let Entered { message, reply, to_compress } = self.enter(call, taken)?;
        self.capture_sent(&message);
        let len = message.len();
        let is_compressed = to_compress.is_some();
        let work = guard.begin(message, session_id, to_compress)?;
        let is_sealed = guard.protection() == Protection::Sealed;
        let done = match is_sealed && !is_compressed {
            true => measured(&self.sealing_pace, len, || work.run()),
            false => work.run(),
        };
        let frame = framed(done)?;
        let kept = match frame.get(PREFIX_LEN..).filter(|_| keep && !is_sealed) {
            Some(message) => message.to_vec(),
            None => Vec::new(),
        };
        self.queue(frame, is_unhurried)?;
        Ok((Sent { id, reply }, kept))
    }

    /// Returns true if a message of `bytes` should be [encrypted on another
    /// core](Self::send_beside). Tasks of a runtime with several threads do it themselves.
    pub(crate) fn is_sealed_beside(&self, bytes: usize) -> bool {
        self.sealing_pace.site_on_own(bytes) == Site::Elsewhere && crypto_offload::is_alone()
    }

    /// Sends a request that another core compresses or encrypts. This is carried through even if the
    /// caller gives up: the MessageId is used up.
    pub(crate) fn send_beside(
        self: &Arc<Self>,
        taken: Taken,
        call: Call<'_>,
        guard: Guard<'_>,
    ) -> Result<Sent, Gone> {
        let (id, session_id) = (taken.message_id, call.session_id);
        let Entered { message, reply, to_compress } = self.enter(call, taken)?;
        self.capture_sent(&message);
        let len = message.len();
        // The nonce is taken on this thread, so that nonces keep their order whichever core seals
        // the message.
        let is_compressed = to_compress.is_some();
        let begun = guard.begin(message, session_id, to_compress);
        let Ok(work) = begun.map(OutgoingFrame::shared) else {
            self.close();
            return Err(Gone);
        };
        let connection = Arc::clone(self);
        hand_over(move || {
            let done = match is_compressed {
                false => measured(&connection.sealing_pace, len, || work.run()),
                true => work.run(),
            };
            if framed(done).and_then(|frame| connection.put(frame)).is_err() {
                connection.close();
            }
        });
        Ok(Sent { id, reply })
    }

    /// Makes one compound of related requests, with their MessageIds. The caller must
    /// [send](Self::put) it at once. The answers come one by one.
    pub(crate) async fn begin_chain(
        &self,
        calls: Vec<Call<'_>>,
        guard: Guard<'_>,
    ) -> Result<(Buf, Vec<Sent>), Gone> {
        let mut chain = Buf::with_headroom(HEADROOM, 0);
        let session_id = calls.first().map_or(0, |first| first.session_id);
        let mut sent = Vec::with_capacity(calls.len());
        let last = calls.len().saturating_sub(1);
        let charges: Vec<u16> = calls.iter().map(|call| self.charge(call)).collect();
        let all = self.take_all(&charges).await?;
        // There is no await from here until all requests are sent, so the MessageIds of the
        // compound stay together.
        for (at, (call, taken)) in calls.into_iter().zip(all).enumerate() {
            let id = taken.message_id;
            let Entered { mut message, reply, .. } = self.enter(call, taken)?;
            if at != last {
                message.resize(message.len().next_multiple_of(8), 0);
                let next = u32::try_from(message.len()).map_err(|_| Gone)?;
                if let Some(field) = message.get_mut(20..24) {
                    field.copy_from_slice(&next.to_le_bytes());
                }
            }
            chain.extend_from_slice(&message);
            sent.push(Sent { id, reply });
        }
        self.capture_sent(&chain);
        Ok((framed(guard.begin(chain, session_id, None)?.run())?, sent))
    }

    /// Sends a frame. It may have been sent even if this fails.
    pub(crate) fn put(&self, frame: Buf) -> Result<(), Gone> {
        self.queue(frame, false)
    }

    /// [Sends](Self::put) a frame, or holds it back for a moment if it `is_unhurried`.
    fn queue(&self, frame: Buf, is_unhurried: bool) -> Result<(), Gone> {
        let bytes = u64::try_from(frame.len()).unwrap_or(u64::MAX);
        self.carried.sent.fetch_add(bytes, Ordering::Relaxed);
        let queued = match is_unhurried {
            true => self.outbox.push_unhurried(frame, &self.stream),
            false => self.outbox.push(frame, &self.stream),
        };
        queued.map_err(|error| {
            self.fail(error.into());
            Gone
        })
    }

    /// Sends the frames that were held back.
    pub(crate) fn hurry(&self) {
        if let Err(error) = self.outbox.drain(&self.stream) {
            self.fail(error.into());
        }
    }

    fn charge(&self, call: &Call<'_>) -> u16 {
        if self.agreed().terms.is_multi_credit { credit_charge_needed(call.cost) } else { 1 }
    }

    async fn take(&self, charge: u16) -> Result<Taken, Gone> {
        for _ in 0..ECHOES_FOR_CREDITS {
            match self.credits.take(charge).await {
                Ok(taken) => return Ok(taken),
                Err(why) => self.ask_for_credits(why).await?,
            }
        }
        Err(self.starved())
    }

    async fn take_all(&self, charges: &[u16]) -> Result<Vec<Taken>, Gone> {
        for _ in 0..ECHOES_FOR_CREDITS {
            match self.credits.take_all(charges).await {
                Ok(taken) => return Ok(taken),
                Err(why) => self.ask_for_credits(why).await?,
            }
        }
        Err(self.starved())
    }

    /// Sends an ECHO, which asks for further credits.
    async fn ask_for_credits(&self, why: NoCredits) -> Result<(), Gone> {
        match (why, self.credits.total()) {
            (NoCredits::Closed, _) => Err(Gone),
            // An ECHO could bring more credits, but there is no credit to send it.
            (NoCredits::TooFew, 0) => Err(self.starved()),
            (NoCredits::TooFew, _) => match self.echo().await {
                // Other requests took the new credits, but their answers will bring more, so the
                // caller tries again.
                Err(Gone) if !self.is_gone() => Ok(()),
                asked => asked,
            },
        }
    }

    fn starved(&self) -> Gone {
        self.fail(Cause::Protocol("it grants fewer credits than a request costs"));
        Gone
    }

    /// Sends an ECHO, MS-SMB2 3.2.4.17, and waits for the answer.
    pub(crate) async fn echo(&self) -> Result<(), Gone> {
        let Ok(Some(taken)) = self.credits.try_take(1) else { return Err(Gone) };
        let call = Call::new(Command::ECHO, |w| Echo.encode(w));
        let id = taken.message_id;
        let Entered { message, reply, .. } = self.enter(call, taken)?;
        self.capture_sent(&message);
        self.put(Guard::None.protect(message, 0)?)?;
        Sent { id, reply }.await.map(|_| ())
    }

    /// Gives a request its MessageId and its header, and registers the waiting caller.
    fn enter(&self, call: Call<'_>, taken: Taken) -> Result<Entered, Gone> {
        self.carried.requests.fetch_add(1, Ordering::Relaxed);
        let header = Header {
            credit_charge: if self.agreed().terms.is_multi_credit { taken.charge } else { 0 },
            status: frevo_wire::Status(u32::from(call.channel_sequence)),
            command: call.command,
            credits: taken.credit_request,
            flags: call.flags,
            next_command: 0,
            message_id: taken.message_id,
            route: Route::Sync { process_id: 0xFEFF, tree_id: call.tree_id },
            session_id: call.session_id,
            signature: [0; 16],
        };
        let mut head = call.message;
        if let Some(place) = head.get_mut(..HEADER_LEN) {
            place.copy_from_slice(&header.to_bytes());
        }
        let to_compress = self.to_compress(call.compressible, &mut head);
        let message = match call.payload {
            Payload::Placed(mut buf) => {
                buf.push_front(&head);
                buf
            }
            Payload::None | Payload::Copied(_) => {
                let payload: &[u8] = match &call.payload {
                    Payload::Copied(bytes) => bytes,
                    _ => &[],
                };
                let mut buf = Buf::with_headroom(HEADROOM, head.len() + payload.len());
                buf.extend_from_slice(&head);
                buf.extend_from_slice(payload);
                buf
            }
        };
        let reply = self.waiters.enter(taken, call.waits, call.loan).ok_or(Gone)?;
        Ok(Entered { message, reply, to_compress })
    }

    /// Returns a receiver that is told of the first interim response to request `id`, or of its
    /// answer. `None` if the interim response came already.
    pub(crate) fn put_off(&self, id: u64) -> Option<oneshot::Receiver<()>> {
        self.waiters.put_off(id)
    }

    /// Sends a CANCEL of the request `id`, if it is under way: MS-SMB2 3.2.4.24. A request
    /// without an interim response is answered soon, unless it `waits`.
    pub(crate) fn cancel(&self, id: u64, waits: bool, session_id: u64, guard: Guard<'_>) {
        let (flags, route) = match self.waiters.async_id(id) {
            None => return,
            Some(0) if !waits => return,
            Some(0) => (HeaderFlags::EMPTY, Route::Sync { process_id: 0xFEFF, tree_id: 0 }),
            Some(async_id) => (HeaderFlags::ASYNC_COMMAND, Route::Async { async_id }),
        };
        let header = Header {
            credit_charge: 0,
            status: frevo_wire::Status::SUCCESS,
            command: Command::CANCEL,
            credits: 0,
            flags,
            next_command: 0,
            message_id: id,
            route,
            session_id,
            signature: [0; 16],
        };
        let mut message = Buf::with_headroom(HEADROOM, HEADER_LEN + 4);
        message.extend_from_slice(&header.to_bytes());
        message.extend_from_slice(&[4, 0, 0, 0]);
        self.capture_sent(&message);
        if let Ok(frame) = guard.protect(message, session_id) {
            let _ = self.put(frame);
        }
    }
}

/// A request with its MessageId, whose caller waits.
struct Entered {
    message: Buf,
    reply: oneshot::Receiver<Message>,
    to_compress: Option<ToCompress<Buf>>,
}

/// A request that was sent. Dropping it does not cancel the request.
pub(crate) struct Sent {
    /// MessageId of the request.
    pub(crate) id: u64,
    reply: oneshot::Receiver<Message>,
}

impl Future for Sent {
    type Output = Result<Message, Gone>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        std::pin::Pin::new(&mut self.reply).poll(cx).map_err(|_| Gone)
    }
}
