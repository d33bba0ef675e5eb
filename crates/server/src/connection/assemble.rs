//! From outcomes to bytes on their way: MS-SMB2 3.3.4.1 to 3.3.4.4.

use std::rc::Rc;
use std::sync::Arc;

use frevo_net::buffer::Buf;
use frevo_net::buffer::HEADROOM;
use frevo_net::buffer::budget::Fullness;
use frevo_net::send_queue::{OutFrame, Segment};
use frevo_proto::Dialect;
use frevo_proto::limits::FRAME_MAX;
use frevo_proto::protection::send_policy::{self, Answer as Reply, Signer as KeyOwner};
use frevo_proto::protection::{Protection, Thrift, ToCompress};
use frevo_wire::codec::Writer;
use frevo_wire::error_response::ErrorId;
use frevo_wire::header::HEADER_LEN;
use frevo_wire::transform::TRANSFORM_HEADER_LEN;
use frevo_wire::{Command, Header, HeaderFlags, Route, Status};
use smallvec::SmallVec;

use super::Connection;
use super::captured::InCapture;
use super::receive::Element;
use crate::base::limits::{HELD_REPLY_BYTES, REPLY_OVERHEAD};
use crate::command;
use crate::command::request::Request;
use crate::command::response::{Payload, Response};
use crate::objects::activity::Spent;
use crate::objects::channel::Channel;
use crate::objects::data::MemoryWait;
use crate::objects::refusal::{ANOTHER_SERVES, Doom, Outcome, Refusal};
use crate::protection::{Part, ReplyGuard, Signer};

/// The result of one message.
pub(super) struct Answer {
    /// The result of the handler.
    pub(super) outcome: Outcome,
    /// The AsyncId of the interim response, if there was one.
    pub(super) async_id: Option<u64>,
    /// The channel that signs or seals.
    pub(super) channel: Option<Rc<Channel>>,
    /// The time that the request took.
    pub(super) spent: Spent,
    /// Bytes of the request.
    pub(super) received: usize,
}

impl Answer {
    /// The answer to a message whose handler did not run.
    pub(super) fn refused(refusal: Refusal, channel: Option<Rc<Channel>>) -> Self {
        let (outcome, spent) = (Err(refusal), Spent::default());
        Self { outcome, async_id: None, channel, spent, received: 0 }
    }
}

/// The responses to one frame, becoming one frame.
pub(super) struct Assembly {
    bytes: Vec<u8>,
    parts: SmallVec<[Part; 4]>,
    payload: Option<Payload>,
    /// The payload is to be compressed if it is the only one; its file gets the result.
    compressed: Option<Arc<Thrift>>,
    /// The client's key that the first response invalidates.
    invalidates: Option<u32>,
    /// The channel whose key sealed the request, and seals all replies to it.
    request_seal: Option<Rc<Channel>>,
    /// The channel whose key seals what is here.
    seal: Option<Rc<Channel>>,
    /// SESSION_SETUP and NEGOTIATE: their bytes enter the pre-authentication hash.
    hashed: Option<(Command, u64, Status)>,
    /// True if one of several messages is of a clustered share.
    pub(super) is_limited: bool,
    /// The part of the responses that goes into a capture, as the request has.
    pub(super) in_capture: InCapture,
}

impl Assembly {
    /// For a request that `sealed` opened, if it was sealed.
    pub(super) fn new(sealed: Option<Rc<Channel>>) -> Self {
        Self {
            bytes: Vec::new(),
            parts: SmallVec::new(),
            payload: None,
            compressed: None,
            invalidates: None,
            seal: sealed.clone(),
            request_seal: sealed,
            hashed: None,
            is_limited: false,
            in_capture: InCapture::Nothing,
        }
    }

    /// True while nothing waits here to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Has the message invalidate the client's key that its first response names, MS-SMBD 3.1.4.2.
    pub(super) fn note_key(&mut self, response: &Response) {
        if self.is_empty() {
            self.invalidates = response.invalidates();
        }
    }

    /// Bytes that the next response's body may have: MS-SMB2 3.3.4.1.3 bounds
    /// the whole, here by the largest payload and what stands around it.
    pub(super) fn room(&self, connection: &Connection) -> usize {
        let max = connection.info.negotiated().map_or(65_536, |n| n.terms.max_payload() as usize);
        let max = connection.payload_max(max);
        max.saturating_add(REPLY_OVERHEAD).saturating_sub(self.held() + HEADER_LEN)
    }

    /// The way in which the next request waits for memory. What is here is sent before the last one of a
    /// compound waits.
    pub(super) fn memory_wait(&self, is_last: bool) -> MemoryWait {
        match self.held() {
            _ if is_last => MemoryWait::Dropped,
            HELD_REPLY_BYTES.. => MemoryWait::Briefly,
            _ => MemoryWait::Told,
        }
    }

    /// Bytes of the responses that are here.
    fn held(&self) -> usize {
        self.bytes.len() + self.payload.as_ref().map_or(0, Payload::len)
    }

    /// The channel whose key sealed the request.
    pub(super) fn request_seal(&self) -> Option<&Channel> {
        self.request_seal.as_deref()
    }

    /// Sends what is there; what comes next starts a frame of its own.
    pub(super) fn flush(&mut self, connection: &Connection) {
        let in_capture = self.in_capture;
        let rest = Self { in_capture, ..Self::new(self.request_seal.clone()) };
        std::mem::replace(self, rest).send(connection);
    }

    /// Adds the response to the message of `element`; its header is `request` with what it has inherited.
    pub(super) fn push(
        &mut self,
        connection: &Connection,
        request: &Header,
        element: &Element,
        related: bool,
        answer: Answer,
        mut out: Response,
    ) {
        let (charge, row) = (element.charge, element.row);
        let Answer { outcome, async_id, channel, spent, received } = answer;
        // The handler of the first SESSION_SETUP has made the channel, so it is looked up.
        let id = out.session_id().unwrap_or(request.session_id);
        let channel = channel.or_else(|| connection.members.channel(id));
        let outcome = match outcome {
            // Another channel has ended the session meanwhile, so this success cannot be signed and
            // becomes an error.
            Ok(Status::SUCCESS)
                if request.command == Command::SESSION_SETUP && channel.is_none() =>
            {
                Err(Status::USER_SESSION_DELETED.into())
            }
            outcome => outcome,
        };
        let status = finish_body(connection, outcome, &mut out);
        let mut header = response_header(connection, request, charge, status, async_id);
        if related {
            header.flags |= HeaderFlags::RELATED_OPERATIONS;
        }
        name_made(&mut header, request, &out);
        let counted = channel.clone();
        let rule = self.rule(connection, request, status, channel.as_ref(), &out);
        let seal = match rule.is_sealed() {
            true => self.request_seal.clone().or_else(|| channel.clone()),
            false => None,
        };
        let id = |seal: &Option<Rc<Channel>>| seal.as_ref().map(|channel| channel.session.id);
        if !self.parts.is_empty() && id(&seal) != id(&self.seal) {
            // This response belongs to another session than the queued ones. Those are sent first,
            // because clients reject an encrypted frame with several sessions.
            self.flush(connection);
        }
        self.seal = seal;
        let signer = match rule.signer() {
            None => None,
            Some(KeyOwner::Channel) => channel.map(Signer::Channel),
            Some(KeyOwner::Session) => out.binding().map(|s| Signer::Session(Arc::clone(s))),
        };
        if rule.has_signed_flag() {
            header.flags |= HeaderFlags::SIGNED;
        }
        if row.is_hashed {
            self.hashed = Some((request.command, header.session_id, status));
        }
        self.compressed = out.take_compressed().filter(|_| self.parts.is_empty());
        let (mut body, payload) = out.into_parts();
        if let Some(room) = body.first_chunk_mut() {
            *room = header.to_bytes();
        }
        if let Some(channel) = counted {
            let sent = body.len() + payload.as_ref().map_or(0, Payload::len);
            let now = frevo_net::watchdog::mark();
            channel.registered.count(row.counted, status, &spent, received, sent, now);
        }
        self.append(connection, body, payload, signer);
    }

    /// The facts that decide on the protection of a response.
    fn rule(
        &self,
        connection: &Connection,
        request: &Header,
        status: Status,
        channel: Option<&Rc<Channel>>,
        out: &Response,
    ) -> send_policy::Response {
        let request_protection = if self.request_seal.is_some() {
            Protection::Sealed
        } else if request.flags.contains(HeaderFlags::SIGNED) {
            Protection::Signed
        } else {
            Protection::None
        };
        let security = channel.and_then(|channel| channel.session.security());
        send_policy::Response {
            answer: Reply::Final(request.command, status),
            request: request_protection,
            is_smb3: connection.info.is_smb3(),
            session_seals: security.is_some_and(|s| s.encrypt_data),
            session_signs: security.is_some_and(|s| s.signing_required),
            has_channel_key: channel.is_some_and(|channel| channel.signing_key().is_some()),
            is_binding: out.binding().is_some(),
            is_unsigned: out.is_unsigned(),
            transport_seals: connection.info.accepts_transport_security(),
        }
    }

    fn append(
        &mut self,
        connection: &Connection,
        body: Vec<u8>,
        payload: Option<Payload>,
        signer: Option<Signer>,
    ) {
        if self.parts.is_empty() {
            self.parts.push(Part { start: 0, signer });
            let old = std::mem::replace(&mut self.bytes, body);
            connection.outgoing.give_bytes(old);
            self.payload = payload;
            return;
        }
        self.inline_payload();
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let start = self.bytes.len();
        if let Some(last) = self.parts.last() {
            let next = u32::try_from(start - last.start).unwrap_or(0);
            Writer::from(&mut self.bytes, last.start).patch_u32(20, next);
        }
        self.parts.push(Part { start, signer });
        self.bytes.extend_from_slice(&body);
        connection.outgoing.give_bytes(body);
        self.payload = payload;
        self.inline_payload();
        if self.payload.is_none() {
            // Each response of a compound is padded to eight bytes, even the last one, as on
            // Windows.
            self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        }
    }

    /// In a compound, data is copied behind its response: it is small there.
    fn inline_payload(&mut self) {
        if let Some(Payload::Buf(buf)) = self.payload.take() {
            self.bytes.extend_from_slice(&buf);
        }
    }

    /// Signs or seals, and queues. Nothing to send is nothing sent.
    pub(super) fn send(self, connection: &Connection) {
        let (invalidates, in_capture) = (self.invalidates, self.in_capture);
        let Self { bytes, parts, payload, seal, hashed, compressed, .. } = self;
        if parts.is_empty() {
            return;
        }
        let head = bytes.len();
        let to_compress = connection.info.compression().zip(compressed).map(|both| {
            let (compression, thrift) = both;
            let room: fn(usize) -> Buf = |bytes| Buf::zeroed(0, bytes);
            ToCompress { compression, head, room, thrift: Some(thrift) }
        });
        let (frame, tail) = match payload {
            Some(Payload::Buf(mut buf)) => {
                buf.push_front(&bytes);
                (buf, None)
            }
            other => {
                let mut buf = Buf::with_headroom(HEADROOM, bytes.len());
                buf.extend_from_slice(&bytes);
                (buf, other)
            }
        };
        connection.outgoing.give_bytes(bytes);
        let tail_len = tail.as_ref().map_or(0, Payload::len);
        let length = frame.len() + tail_len;
        if length > FRAME_MAX - TRANSFORM_HEADER_LEN {
            connection.disconnect(Doom::Rule("the response is longer than a frame"));
            return;
        }
        if in_capture != InCapture::Nothing {
            connection.capture_sent(&frame, tail_len);
        }
        let is_whole = tail.is_none() && hashed.is_none();
        let finish = move |frame: Buf| OutFrame::new(frame).invalidating(invalidates);
        let guard = match seal.as_deref() {
            None => ReplyGuard::Signed(&parts),
            Some(channel) => ReplyGuard::Sealed(channel),
        };
        let protected = connection.protect(frame, to_compress, guard, is_whole, finish);
        let Some(frame) = protected else { return };
        if let Some((command, session_id, status)) = hashed {
            hash_response(connection, command, session_id, status, &frame);
        }
        let frame = match tail {
            Some(Payload::File { file, offset, length }) => {
                OutFrame::with_tail(frame, Segment::File { file, offset, len: length as usize })
            }
            _ => OutFrame::new(frame),
        };
        let frame = frame.invalidating(invalidates);
        connection.enqueue(frame);
    }
}

fn hash_response(
    connection: &Connection,
    command: Command,
    session_id: u64,
    status: Status,
    frame: &[u8],
) {
    if connection.info.dialect() != Dialect::SMB_3_1_1 {
        return;
    }
    if command == Command::NEGOTIATE {
        connection.preauth.borrow_mut().on_negotiate(&[frame]);
    } else if let Some(authentication) =
        connection.members.authentications.borrow_mut().get_mut(session_id)
    {
        authentication.on_response(status, frame);
    }
}

const fn process_id(header: &Header) -> u32 {
    match header.route {
        Route::Sync { process_id, .. } => process_id,
        Route::Async { .. } => 0,
    }
}

/// Puts the session or the tree connect that was made into a response's header.
fn name_made(header: &mut Header, request: &Header, out: &Response) {
    if let Some(tree_id) = out.tree_id() {
        header.route = Route::Sync { process_id: process_id(request), tree_id };
    }
    if let Some(session_id) = out.session_id() {
        header.session_id = session_id;
    }
}

/// MS-SMB2 3.3.4.3: like the request's header, but for what is said here.
fn response_header(
    connection: &Connection,
    request: &Header,
    charge: u16,
    status: Status,
    async_id: Option<u64>,
) -> Header {
    let mut flags = HeaderFlags::SERVER_TO_REDIR;
    flags |= request.flags & (HeaderFlags::PRIORITY_MASK | HeaderFlags::REPLAY_OPERATION);
    let mut header =
        Header { status, flags, next_command: 0, signature: [0; 16], credits: 0, ..*request };
    if let Some(async_id) = async_id {
        // The interim response has already granted the credits of this request, so the final
        // response grants none.
        header.flags |= HeaderFlags::ASYNC_COMMAND;
        header.route = Route::Async { async_id };
    } else {
        // As on Windows, only the last response of a logon grants more credits than its request was
        // charged.
        let is_logon = request.command == Command::SESSION_SETUP && status != Status::SUCCESS;
        let asked = if is_logon { request.credits.min(charge) } else { request.credits };
        let wanted = affordable(asked, charge, connection.info.server.ledger.fullness());
        let wanted = connection.incoming.sparing(wanted, charge);
        header.credits = connection.incoming.window.borrow_mut().grant(wanted, charge);
        connection.note_credits();
    }
    header
}

/// The credits of those asked for that the process's memory has room for: each
/// stands for a buffer of 64 KiB. A client always keeps one.
fn affordable(requested: u16, charge: u16, fullness: Fullness) -> u16 {
    match fullness {
        Fullness::Ample => requested,
        Fullness::Scarce => requested.min(charge),
        Fullness::Dire => requested.min(charge / 2),
        Fullness::Full => 0,
    }
}

/// Replaces what a failed handler wrote by an error response, MS-SMB2 2.2.2.
fn finish_body(connection: &Connection, outcome: Outcome, out: &mut Response) -> Status {
    let mut id = ErrorId::DEFAULT;
    let (status, data) = match outcome {
        Ok(status) => return status,
        Err(Refusal::Status(status)) => (status, Vec::new()),
        Err(Refusal::Data(status, data)) => (status, data),
        Err(Refusal::Redirect(data)) => {
            id = ErrorId::SHARE_REDIRECT;
            (Status::BAD_NETWORK_NAME, data)
        }
        Err(Refusal::Disconnect(_)) => (Status::INTERNAL_ERROR, Vec::new()),
    };
    out.clear_body();
    error_body(&mut out.writer(), id, &data, connection.info.dialect());
    status
}

/// The body of an error response. In 3.1.1 error data is one error context.
fn error_body(w: &mut Writer<'_>, id: ErrorId, data: &[u8], dialect: Dialect) {
    let wrapped = dialect == Dialect::SMB_3_1_1 && !data.is_empty();
    let length = u32::try_from(data.len()).unwrap_or(0);
    w.u16(9).u8(u8::from(wrapped)).u8(0);
    if wrapped {
        // MS-SMB2 2.2.2.1: an error context consists of ErrorDataLength, ErrorId and the data.
        w.u32(length.saturating_add(8)).u32(length).u32(id.0).bytes(data);
    } else if data.is_empty() {
        w.u32(0).u8(0);
    } else {
        w.u32(length).bytes(data);
    }
}

/// MS-SMB2 3.3.4.2: tells the client that its request will be answered later.
/// Not signed; sealed when the request was.
pub(super) fn send_interim(
    connection: &Connection,
    rq: &Request<'_>,
    async_id: u64,
    assembly: &Assembly,
) {
    let seal = assembly.request_seal();
    if rq.tree.as_ref().is_some_and(|tree| !tree.is_served()) {
        return connection.disconnect(ANOTHER_SERVES);
    }
    let charge = connection.charge(&rq.header);
    let mut header = response_header(connection, &rq.header, charge, Status::PENDING, None);
    header.flags |= HeaderFlags::ASYNC_COMMAND;
    header.route = Route::Async { async_id };
    let mut bytes = header.to_bytes().to_vec();
    error_body(&mut Writer::from(&mut bytes, 0), ErrorId::DEFAULT, &[], connection.info.dialect());
    let mut frame = Buf::with_headroom(HEADROOM, bytes.len());
    frame.extend_from_slice(&bytes);
    let rule = send_policy::Response {
        answer: Reply::Interim,
        request: if seal.is_some() { Protection::Sealed } else { Protection::None },
        is_smb3: connection.info.is_smb3(),
        session_seals: false,
        session_signs: false,
        has_channel_key: false,
        is_binding: false,
        is_unsigned: false,
        transport_seals: connection.info.accepts_transport_security(),
    };
    let guard = match seal.filter(|_| rule.is_sealed()) {
        None => ReplyGuard::None,
        Some(channel) => ReplyGuard::Sealed(channel),
    };
    if assembly.in_capture != InCapture::Nothing {
        connection.capture_sent(&frame, 0);
    }
    let frame = match connection.protect_now(frame, guard) {
        Ok(frame) => frame,
        Err(why) => return connection.disconnect(why),
    };
    connection.enqueue(OutFrame::new(frame));
    // The request still runs, so the event loop is woken to send its interim response.
    connection.attention.call();
}

impl Connection {
    /// Answers SMB1's NEGOTIATE, which took the first sequence number.
    pub(crate) fn send_alone(&self, request: &Header, out: Response) {
        let taken = self.incoming.window.borrow_mut().take(request.message_id, 1);
        if let Err(why) = taken {
            self.disconnect(why.into());
            return;
        }
        let mut assembly = Assembly::new(None);
        let answer = Answer {
            outcome: Ok(Status::SUCCESS),
            async_id: None,
            channel: None,
            spent: Spent::default(),
            received: 0,
        };
        let element =
            Element { range: 0..0, header: *request, row: &command::NEGOTIATE, charge: 1 };
        assembly.push(self, request, &element, false, answer, out);
        assembly.send(self);
    }
}
