//! One transport connection, from the client's side: MS-SMB2 3.2.1.2.
//!
//! Requests leave from the task that makes them, sealed or signed there, so
//! that several tasks do so on several cores. One task reads; what it finds
//! goes to the task that asked. Where sealing is slow, other cores help (`beside`).

mod credits;
mod crypto_offload;
mod negotiate;
mod outbox;
mod reader;
#[cfg(test)]
mod receiving;
mod waiters;

use negotiate::Agreed;
pub(crate) use negotiate::{CAPABILITIES, security_mode};

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use frevo_crypto::{OpeningKey, SealingKey, Sender, SigningKey};
use frevo_net::buffer::Buf;
use frevo_net::transport::Stream;
use frevo_proto::credit::credit_charge_needed;
use frevo_proto::preauth::ConnectionPreauth;
use frevo_proto::transform::HEADROOM;
use frevo_proto::window::Taken;
use frevo_proto::{frame::FrameLength, limits::BYTES_PER_CREDIT};
use frevo_wire::codec::Writer;
use frevo_wire::command::echo::Request as Echo;
use frevo_wire::command::oplock_break::Notification;
use frevo_wire::header::HEADER_LEN;
use frevo_wire::{Command, Header, HeaderFlags, Route, Status};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};

use crate::error::Cause;
use crate::limits::{
    ANSWERED_LOOK, CREDITS_MIN, DEAD_AFTER, ECHO_AFTER, ECHO_WAITING, ECHOES_FOR_CREDITS, HELD_UP,
};
use crate::options::Options;
use credits::{Credits, NoCredits};
use crypto_offload::Swiftness;
use outbox::Outbox;
use waiters::Waiters;

/// The longest header and fixed part of a request with a payload, rounded up.
const HEAD_MAX: usize = HEADER_LEN + 64;

/// Headroom that a payload needs to be sent without being copied.
pub(crate) const PAYLOAD_HEADROOM: usize = HEADROOM + HEAD_MAX;

/// The connection has ended; an answer will not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

/// What a request carries behind its fixed part.
pub(crate) enum Payload<'a> {
    /// Nothing, or it is in the body already.
    None,
    /// Bytes to be copied.
    Copied(&'a [u8]),
    /// Bytes that lie behind [`PAYLOAD_HEADROOM`] already.
    Placed(Buf),
}

/// A request before it has a number.
pub(crate) struct Call<'a> {
    pub(crate) command: Command,
    pub(crate) session_id: u64,
    pub(crate) tree_id: u32,
    pub(crate) flags: HeaderFlags,
    /// Signed, whatever the session's messages are otherwise.
    pub(crate) sign: bool,
    /// ChannelSequence, in the place of the status.
    pub(crate) channel_sequence: u16,
    /// Bytes that the request or its answer carries, for the credits.
    pub(crate) cost: u32,
    /// Its answer may wait for what others do, without end.
    pub(crate) waits: bool,
    /// It is cancelled when this ends, and its answer taken still.
    pub(crate) patience: Option<Arc<Patience>>,
    /// The body behind the header; the header's place is in front of it.
    pub(crate) message: Vec<u8>,
    pub(crate) payload: Payload<'a>,
}

/// How long somebody waits for an answer: until it is dropped who does.
#[derive(Debug, Default)]
pub(crate) struct Patience(watch::Sender<bool>);

impl Patience {
    /// Nobody waits any more.
    pub(crate) fn end(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn has_ended(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when nobody waits any more.
    pub(crate) async fn ended(&self) {
        // The sender is `self`.
        let _ = self.0.subscribe().wait_for(|has_ended| *has_ended).await;
    }
}

impl<'a> Call<'a> {
    /// A request whose body `encode` writes.
    pub(crate) fn new(command: Command, encode: impl FnOnce(&mut Writer<'_>)) -> Self {
        let mut message = vec![0; HEADER_LEN];
        encode(&mut Writer::from(&mut message, 0));
        Self {
            command,
            session_id: 0,
            tree_id: 0,
            flags: HeaderFlags::EMPTY,
            sign: false,
            channel_sequence: 0,
            cost: 0,
            waits: false,
            patience: None,
            message,
            payload: Payload::None,
        }
    }

    /// MS-SMB2 3.2.5.5 and 3.3.5.7: what guards the negotiation is signed in any case.
    pub(crate) fn signed(self) -> Self {
        Self { sign: true, ..self }
    }

    /// Bytes behind the header and the fixed part.
    pub(crate) fn payload_len(&self) -> usize {
        match &self.payload {
            Payload::None => 0,
            Payload::Copied(bytes) => bytes.len(),
            Payload::Placed(buf) => buf.len(),
        }
    }

    pub(crate) fn cost(self, cost: u32) -> Self {
        Self { cost, ..self }
    }

    pub(crate) fn payload(self, payload: Payload<'a>) -> Self {
        Self { payload, ..self }
    }
}

/// How a message is protected on its way.
#[derive(Clone, Copy)]
pub(crate) enum Guard<'a> {
    /// Not at all.
    None,
    /// Signed.
    Signed(&'a SigningKey),
    /// Sealed.
    Sealed(&'a SealingKey),
}

/// A message as it came.
pub(crate) struct Message {
    buf: Buf,
    pub(crate) header: Header,
    /// The session that it was sealed for.
    pub(crate) sealed: Option<u64>,
}

impl Message {
    /// From its header to its end.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buf
    }

    /// Whether it bears the signature that `key` makes.
    pub(crate) fn is_signed_with(&mut self, key: &SigningKey) -> bool {
        frevo_proto::signature::verify(&mut self.buf, key, Sender::Server)
    }

    /// The bytes at `range` alone, without copying them.
    pub(crate) fn into_range(mut self, range: std::ops::Range<usize>) -> Buf {
        let end = range.end.min(self.buf.len());
        self.buf.truncate(end);
        self.buf.advance(range.start.min(end));
        self.buf
    }
}

/// What the server says unasked.
pub(crate) struct Unasked {
    /// Whether it came sealed.
    pub(crate) is_sealed: bool,
    /// What it says.
    pub(crate) notification: Notification,
}

/// One connection.
pub(crate) struct Connection {
    stream: Stream,
    outbox: Outbox,
    credits: Credits,
    waiters: Waiters,
    agreed: OnceLock<Agreed>,
    preauth: Mutex<ConnectionPreauth>,
    opening: RwLock<Option<(u64, Arc<OpeningKey>)>>,
    sealing_speed: Swiftness,
    opening_speed: Swiftness,
    gone: AtomicBool,
    end: Notify,
    why: OnceLock<Cause>,
    heard: Mutex<Instant>,
    unasked: mpsc::Sender<Unasked>,
}

impl Connection {
    /// A connection over `stream`, negotiated.
    pub(crate) async fn open(
        stream: Stream,
        options: &Options,
        client_guid: frevo_wire::dtyp::Guid,
        unasked: mpsc::Sender<Unasked>,
    ) -> Result<Claim, Cause> {
        let connection = Arc::new(Self::over(stream, options.credits, unasked));
        tokio::spawn(Arc::clone(&connection).carry());
        tokio::spawn(keep_watch(Arc::downgrade(&connection)));
        let claim = Claim { connection, is_kept: false };
        claim.negotiate(options, client_guid).await?;
        Ok(claim)
    }

    /// One over `stream`, which nobody reads yet.
    fn over(stream: Stream, credits: u16, unasked: mpsc::Sender<Unasked>) -> Self {
        Self {
            stream,
            outbox: Outbox::new(),
            credits: Credits::new(credits.max(CREDITS_MIN)),
            waiters: Waiters::default(),
            agreed: OnceLock::new(),
            preauth: Mutex::new(ConnectionPreauth::new()),
            opening: RwLock::new(None),
            sealing_speed: Swiftness::default(),
            opening_speed: Swiftness::default(),
            gone: AtomicBool::new(false),
            end: Notify::new(),
            why: OnceLock::new(),
            heard: Mutex::new(Instant::now()),
            unasked,
        }
    }

    /// Reads and writes until the end.
    async fn carry(self: Arc<Self>) {
        let why = tokio::select! {
            biased;
            why = self.read() => why,
            error = self.outbox.run(&self.stream) => error.err().map(Cause::from),
            () = self.end.notified() => None,
        };
        self.fail(why.unwrap_or_else(|| io::Error::from(io::ErrorKind::ConnectionAborted).into()));
    }

    /// What NEGOTIATE settled.
    pub(crate) fn agreed(&self) -> &Agreed {
        static NOTHING: Agreed = Agreed::NOTHING;
        self.agreed.get().unwrap_or(&NOTHING)
    }

    /// The chain that a logon on this connection begins with.
    pub(crate) fn preauth(&self) -> ConnectionPreauth {
        *self.preauth.lock()
    }

    /// From now on what is sealed for `session_id` can be opened.
    pub(crate) fn open_with(&self, session_id: u64, key: Arc<OpeningKey>) {
        *self.opening.write() = Some((session_id, key));
    }

    /// Whether it has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Why it has ended.
    pub(crate) fn why(&self) -> Option<&Cause> {
        self.why.get()
    }

    /// Waits for the answers to all requests that the server carries out without waiting for
    /// others. Returns at once when there are none, or when the connection is gone.
    pub(crate) async fn answered(&self) {
        while !self.is_gone() && self.waiters.expects_soon() {
            sleep(ANSWERED_LOOK).await;
        }
    }

    /// Requests under way.
    pub(crate) fn load(&self) -> usize {
        self.waiters.len()
    }

    /// The largest payload, bytes, that its credits pay for with others beside.
    pub(crate) fn affordable(&self) -> u32 {
        let credits = u32::try_from(self.credits.total() / 2).unwrap_or(u32::MAX).max(1);
        credits.saturating_mul(BYTES_PER_CREDIT)
    }

    /// Ends it, after what was said last.
    pub(crate) fn close(&self) {
        let _ = self.outbox.drain(&self.stream);
        self.fail(io::Error::from(io::ErrorKind::ConnectionAborted).into());
    }

    /// Ends it because of `why`: everybody who waits is told.
    pub(crate) fn fail(&self, why: Cause) {
        let _ = self.why.set(why);
        if !self.gone.swap(true, Ordering::AcqRel) {
            self.stream.abort();
            self.credits.close();
            self.waiters.close();
            self.end.notify_one();
        }
    }

    /// Sends a request. The second value is the message as it left, for the
    /// pre-authentication chain; it is empty when it was sealed.
    pub(crate) async fn send(
        &self,
        call: Call<'_>,
        guard: Guard<'_>,
    ) -> Result<(Sent, Vec<u8>), Gone> {
        let taken = self.number(&call).await?;
        self.send_as(taken, call, guard)
    }

    /// Waits for the numbers of a request. Nothing of it is sent before it has them.
    pub(crate) async fn number(&self, call: &Call<'_>) -> Result<Taken, Gone> {
        self.take(self.charge(call)).await
    }

    /// [Sends](Self::send) a request that has its [numbers](Self::number).
    pub(crate) fn send_as(
        &self,
        taken: Taken,
        call: Call<'_>,
        guard: Guard<'_>,
    ) -> Result<(Sent, Vec<u8>), Gone> {
        let keep = call.command == Command::SESSION_SETUP || call.command == Command::NEGOTIATE;
        let id = taken.message_id;
        let (message, reply) = self.enter(call, taken)?;
        let mut kept = Vec::new();
        let see = |message: &[u8]| {
            if keep {
                kept = message.to_vec();
            }
        };
        let frame = match guard {
            Guard::Sealed(_) => {
                self.sealing_speed.measure(message.len(), || protect(message, guard, see))
            }
            _ => protect(message, guard, see),
        };
        self.put(frame?)?;
        Ok((Sent { id, reply }, kept))
    }

    /// Whether a message of so many bytes should be [sealed beside](Self::send_beside):
    /// tasks of several threads do it themselves.
    pub(crate) fn is_sealed_beside(&self, bytes: usize) -> bool {
        self.sealing_speed.is_for_others(bytes) && crypto_offload::is_alone()
    }

    /// Sends a request that another core seals. That is carried through even if nobody
    /// waits any more: its number is taken.
    pub(crate) fn send_beside(
        self: &Arc<Self>,
        taken: Taken,
        call: Call<'_>,
        key: Arc<SealingKey>,
    ) -> Result<Sent, Gone> {
        let id = taken.message_id;
        let (message, reply) = self.enter(call, taken)?;
        let connection = Arc::clone(self);
        crypto_offload::beside(move || {
            let sealed = connection
                .sealing_speed
                .measure(message.len(), || protect(message, Guard::Sealed(&key), |_| {}));
            if sealed.and_then(|frame| connection.put(frame)).is_err() {
                connection.close();
            }
        });
        Ok(Sent { id, reply })
    }

    /// Gives related requests, which are one compound, their numbers. What was made of them
    /// has to be [sent](Self::put) at once; their answers come one by one.
    pub(crate) async fn begin_chain(
        &self,
        calls: Vec<Call<'_>>,
        guard: Guard<'_>,
    ) -> Result<(Buf, Vec<Sent>), Gone> {
        let mut chain = Buf::with_headroom(HEADROOM, 0);
        let mut sent = Vec::with_capacity(calls.len());
        let last = calls.len().saturating_sub(1);
        let charges: Vec<u16> = calls.iter().map(|call| self.charge(call)).collect();
        let all = self.take_all(&charges).await?;
        // From here on nothing is waited for until it has left.
        for (at, (call, taken)) in calls.into_iter().zip(all).enumerate() {
            let id = taken.message_id;
            let (mut message, reply) = self.enter(call, taken)?;
            if at != last {
                message.resize(message.len().next_multiple_of(8), 0);
                let next = u32::try_from(message.len()).map_err(|_| Gone)?;
                if let Some(field) = message.get_mut(20..24) {
                    field.copy_from_slice(&next.to_le_bytes());
                }
            }
            if let Guard::Signed(key) = guard {
                frevo_proto::signature::sign(&mut message, key, Sender::Client)
                    .map_err(|_| Gone)?;
            }
            chain.extend_from_slice(&message);
            sent.push(Sent { id, reply });
        }
        let guard = if let Guard::Signed(_) = guard { Guard::None } else { guard };
        Ok((protect(chain, guard, |_| {})?, sent))
    }

    /// Sends a frame. When that fails it may have left all the same.
    pub(crate) fn put(&self, frame: Buf) -> Result<(), Gone> {
        self.outbox.push(frame, &self.stream).map_err(|error| {
            self.fail(error.into());
            Gone
        })
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

    /// Whatever is sent asks for more.
    async fn ask_for_credits(&self, why: NoCredits) -> Result<(), Gone> {
        match (why, self.credits.total()) {
            (NoCredits::Closed, _) => Err(Gone),
            // Nothing can be sent any more.
            (NoCredits::TooFew, 0) => Err(self.starved()),
            (NoCredits::TooFew, _) => match self.echo().await {
                // Others took the last ones: their answers bring more.
                Err(Gone) if !self.is_gone() => Ok(()),
                asked => asked,
            },
        }
    }

    fn starved(&self) -> Gone {
        self.fail(Cause::Protocol("fewer credits than a request costs"));
        Gone
    }

    /// ECHO, MS-SMB2 3.2.4.17: whether the server is there.
    pub(crate) async fn echo(&self) -> Result<(), Gone> {
        let Ok(Some(taken)) = self.credits.try_take(1) else { return Err(Gone) };
        let call = Call::new(Command::ECHO, |w| Echo.encode(w));
        let id = taken.message_id;
        let (message, reply) = self.enter(call, taken)?;
        self.put(protect(message, Guard::None, |_| {})?)?;
        Sent { id, reply }.await.map(|_| ())
    }

    /// Gives a request its number and its header, and enters who waits for it.
    fn enter(
        &self,
        call: Call<'_>,
        taken: Taken,
    ) -> Result<(Buf, oneshot::Receiver<Message>), Gone> {
        let header = Header {
            credit_charge: if self.agreed().terms.is_multi_credit { taken.charge } else { 0 },
            status: Status(u32::from(call.channel_sequence)),
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
        let reply = self.waiters.enter(taken, call.waits).ok_or(Gone)?;
        Ok((message, reply))
    }

    /// Tells when the request `id` is put off that was not yet, or answered.
    pub(crate) fn put_off(&self, id: u64) -> Option<oneshot::Receiver<()>> {
        self.waiters.put_off(id)
    }

    /// CANCEL of the request `id`, if it is under way: MS-SMB2 3.2.4.24. One that was not
    /// put off is answered soon enough, unless it `waits`.
    pub(crate) fn cancel(&self, id: u64, waits: bool, session_id: u64, guard: Guard<'_>) {
        let (flags, route) = match self.waiters.async_id(id) {
            None => return,
            Some(0) if !waits => return,
            Some(0) => (HeaderFlags::EMPTY, Route::Sync { process_id: 0xFEFF, tree_id: 0 }),
            Some(async_id) => (HeaderFlags::ASYNC_COMMAND, Route::Async { async_id }),
        };
        let header = Header {
            credit_charge: 0,
            status: Status::SUCCESS,
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
        if let Ok(frame) = protect(message, guard, |_| {}) {
            let _ = self.put(frame);
        }
    }
}

/// Signs or seals a message and puts its prefix before it.
fn protect(mut message: Buf, guard: Guard<'_>, see: impl FnOnce(&[u8])) -> Result<Buf, Gone> {
    match guard {
        Guard::Sealed(key) => {
            let session_id = Header::parse(&message).map_err(|_| Gone)?.session_id;
            message.grow_front(HEADROOM);
            frevo_proto::transform::seal_frame(&mut message, key, session_id).map_err(|_| Gone)?;
        }
        Guard::Signed(_) | Guard::None => {
            if let Guard::Signed(key) = guard {
                frevo_proto::signature::sign(&mut message, key, Sender::Client)
                    .map_err(|_| Gone)?;
            }
            see(&message);
            let prefix = FrameLength::prefix(message.len()).ok_or(Gone)?;
            message.push_front(&prefix);
        }
    }
    Ok(message)
}

/// A connection that no channel has yet. Dropping it ends the connection: an
/// attempt that fails, or that nobody waits for any more, leaves nothing behind.
pub(crate) struct Claim {
    connection: Arc<Connection>,
    is_kept: bool,
}

impl Claim {
    /// The connection, which its new owner ends.
    pub(crate) fn keep(mut self) -> Arc<Connection> {
        self.is_kept = true;
        Arc::clone(&self.connection)
    }
}

impl std::ops::Deref for Claim {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_kept {
            self.connection.close();
        }
    }
}

/// A request that has left. Dropping it leaves the request to the server.
pub(crate) struct Sent {
    /// MessageId
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

/// Ends a connection whose server says nothing although answers are due. One
/// that has put off all there is to answer is asked now and then whether it is
/// still there.
async fn keep_watch(connection: Weak<Connection>) {
    let mut echoed = false;
    let mut asked = Instant::now();
    loop {
        let asleep = Instant::now();
        sleep(Duration::from_secs(1)).await;
        let Some(connection) = connection.upgrade() else { return };
        if connection.is_gone() {
            return;
        }
        if asleep.elapsed() >= HELD_UP {
            // What has come meanwhile was not read.
            *connection.heard.lock() = Instant::now();
        }
        if connection.waiters.overdue(Instant::now()) {
            connection.fail(Cause::Protocol("a request that is put off without end"));
            return;
        }
        let silent = connection.heard.lock().elapsed();
        let due = connection.waiters.due();
        if !due || silent < ECHO_AFTER {
            echoed = false;
            if !due {
                *connection.heard.lock() = Instant::now();
                if connection.waiters.len() == 0 {
                    asked = Instant::now();
                } else if asked.elapsed() >= ECHO_WAITING {
                    asked = Instant::now();
                    let connection = Arc::clone(&connection);
                    tokio::spawn(async move { connection.echo().await });
                }
            }
        } else if silent >= DEAD_AFTER {
            connection.fail(io::Error::from(io::ErrorKind::TimedOut).into());
        } else if !echoed {
            echoed = true;
            let connection = Arc::clone(&connection);
            tokio::spawn(async move {
                let _ = connection.echo().await;
            });
        }
    }
}
