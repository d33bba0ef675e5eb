//! The server's end of an association: bytes that the client wrote in, messages that it reads out.
//! Nothing here waits or does I/O.
//!
//! The carrier, a pipe or a TCP connection, passes bytes to [`Endpoint::write`]. When it returns
//! bytes that it did not take, [`Endpoint::token`] has a token that the carrier judges before it
//! writes them again. Messages come out of [`Endpoint::read`].

mod authentication;
mod binding;
mod calls;
mod requests;
mod token;

pub use token::{Token, Verdict};

use crate::FaultStatus;
use crate::interface::{Answer, Calls, Carrier, Interface};
use crate::limits::{MAX_FRAG, MAX_TOKEN_PDU, MAX_UNREAD, SECURITY_BYTES};
use crate::pdu::{Header, PduKind, encode_fault};
use crate::security::{AuthLevel, Security};
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use calls::{PartialCall, Waiting};
use frevo_wire::codec::Reader;
use token::Judged;

/// Why an endpoint takes no more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PipeError {
    /// The client broke the protocol and was told: STATUS_PIPE_DISCONNECTED.
    Disconnected,
    /// The client does not read its answers: STATUS_PIPE_BUSY.
    Unread,
}

/// The result of one READ of a pipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipeRead {
    /// The bytes, all of one message.
    pub data: Vec<u8>,
    /// Bytes of the message that are left: when there are any, the answer is
    /// STATUS_BUFFER_OVERFLOW.
    pub remaining: usize,
}

/// The carrier's terms for an association.
#[derive(Debug)]
pub struct Terms {
    /// The interfaces that can be bound.
    pub interfaces: Vec<&'static Interface>,
    /// sec_addr of bind_ack: the name of a pipe, or the number of a port.
    pub secondary_address: String,
    /// The association group of a client that asks for a new one; not zero.
    pub assoc_group_id: u32,
    /// The carrier, by which an interface demands its level.
    pub carrier: Carrier,
    /// The least level at which the carrier has a call answered, whatever the interface demands.
    pub least_level: AuthLevel,
    /// True if clients may authenticate over RPC.
    pub authenticates: bool,
    /// True if they may authenticate with Kerberos without SPNEGO: the carrier has keys for tickets.
    pub takes_kerberos: bool,
}

impl Terms {
    /// The terms of a pipe, on which one interface is spoken.
    pub fn of_pipe(interface: &'static Interface, assoc_group_id: u32) -> Self {
        Self {
            interfaces: alloc::vec![interface],
            secondary_address: String::from(interface.secondary_address),
            assoc_group_id,
            carrier: Carrier::Pipe,
            least_level: AuthLevel::NONE,
            authenticates: true,
            takes_kerberos: false,
        }
    }

    /// These terms, with further interfaces that are spoken on the pipe.
    #[must_use]
    pub fn and(mut self, further: impl IntoIterator<Item = &'static Interface>) -> Self {
        self.interfaces.extend(further);
        self
    }

    /// These terms, with Kerberos without SPNEGO if the carrier has keys for tickets.
    #[must_use]
    pub const fn with_kerberos(mut self, takes_kerberos: bool) -> Self {
        self.takes_kerberos = takes_kerberos;
        self
    }

    /// The terms of a port of TCP, on which the interfaces are spoken that are for TCP.
    pub fn of_port(interfaces: Vec<&'static Interface>, port: u16, assoc_group_id: u32) -> Self {
        Self {
            interfaces,
            secondary_address: alloc::format!("{port}"),
            assoc_group_id,
            carrier: Carrier::Tcp,
            least_level: AuthLevel::NONE,
            authenticates: true,
            takes_kerberos: false,
        }
    }
}

/// The server's end of one association.
#[derive(Debug)]
pub struct Endpoint {
    terms: Terms,
    /// The longest fragment that the client takes, once it has bound.
    max_xmit_frag: Option<u16>,
    /// The accepted presentation contexts, by their numbers.
    contexts: Vec<(u16, &'static Interface)>,
    /// The authentication of the client, if it has begun one.
    security: Option<Security>,
    /// The PDU whose token the carrier judges.
    judged: Option<Judged>,
    token: Option<Token>,
    /// The PDU that is coming in.
    input: Vec<u8>,
    call: Option<PartialCall>,
    /// The calls whose answers come later.
    pending: Vec<Waiting>,
    /// Messages that wait to be read, and how much of the first one has been.
    output: VecDeque<Vec<u8>>,
    read_of_first: usize,
    unread: usize,
    closed: bool,
}

impl Endpoint {
    /// Makes the end of an association that has just begun.
    pub const fn new(terms: Terms) -> Self {
        Self {
            terms,
            max_xmit_frag: None,
            contexts: Vec::new(),
            security: None,
            judged: None,
            token: None,
            input: Vec::new(),
            call: None,
            pending: Vec::new(),
            output: VecDeque::new(),
            read_of_first: 0,
            unread: 0,
            closed: false,
        }
    }

    /// Handles bytes that a client wrote: parts of PDUs, or several of them. The answers can be
    /// read when this returns. Returns the bytes behind a PDU whose token the carrier has to judge
    /// first; else all are taken. A violation of the protocol gets a fault and closes the endpoint.
    ///
    /// # Errors
    /// Disconnected after the endpoint was closed; Unread while too much waits to be read.
    pub fn write<'a>(
        &mut self,
        bytes: &'a [u8],
        calls: &mut dyn Calls,
    ) -> Result<&'a [u8], PipeError> {
        if self.closed {
            return Err(PipeError::Disconnected);
        }
        let mut rest = bytes;
        while !rest.is_empty() && !self.closed && self.judged.is_none() {
            if self.unread >= MAX_UNREAD {
                return Err(PipeError::Unread);
            }
            rest = self.take(rest, calls);
        }
        Ok(if self.closed { &[] } else { rest })
    }

    /// True if `bytes` reach beyond the PDU that they begin or continue.
    pub fn has_several(&self, bytes: &[u8]) -> bool {
        self.until_next(bytes) < bytes.len()
    }

    /// Returns how many of `bytes` belong to the PDU that they begin or continue.
    pub fn until_next(&self, bytes: &[u8]) -> usize {
        let whole = self.input.iter().chain(bytes);
        let mut length = whole.skip(Header::FRAG_LENGTH_AT).copied();
        let (Some(low), Some(high)) = (length.next(), length.next()) else { return bytes.len() };
        let length = usize::from(u16::from_le_bytes([low, high])).max(Header::SIZE);
        length.saturating_sub(self.input.len()).min(bytes.len())
    }

    /// Takes the next message, or `max_len` bytes of it. `None` when there is
    /// nothing to read: then the READ waits, or fails if the pipe is closed.
    pub fn read(&mut self, max_len: usize) -> Option<PipeRead> {
        let message = self.output.front()?;
        let left = message.get(self.read_of_first..).unwrap_or(&[]);
        let data = left.get(..max_len).unwrap_or(left).to_vec();
        let remaining = left.len().saturating_sub(data.len());
        self.unread = self.unread.saturating_sub(data.len());
        if remaining == 0 {
            self.output.pop_front();
            self.read_of_first = 0;
        } else {
            self.read_of_first = self.read_of_first.saturating_add(data.len());
        }
        Some(PipeRead { data, remaining })
    }

    /// Bytes waiting to be read, for FSCTL_PIPE_PEEK and FilePipeLocalInformation.
    pub const fn unread(&self) -> usize {
        self.unread
    }

    /// Messages waiting to be read.
    pub fn unread_messages(&self) -> usize {
        self.output.len()
    }

    /// Returns the unread part of the first answer without removing it.
    pub fn peek(&self) -> &[u8] {
        let first = self.output.front().and_then(|message| message.get(self.read_of_first..));
        first.unwrap_or(&[])
    }

    /// Bytes of the first message that are waiting to be read.
    pub fn first_message_len(&self) -> usize {
        self.peek().len()
    }

    /// Returns the bytes that it holds: unread answers, the parts of an incomplete request, and the
    /// calls that wait for their answers.
    pub fn bytes(&self) -> usize {
        let stub = self.call.as_ref().map_or(0, PartialCall::bytes);
        let places = self.output.capacity().saturating_mul(size_of::<Vec<u8>>());
        let security = if self.security.is_some() { SECURITY_BYTES } else { 0 };
        let token = self.token.as_ref().map_or(0, |token| token.token.capacity());
        let pending = self.pending.capacity().saturating_mul(size_of::<Waiting>());
        let held = [self.input.capacity(), self.unread, self.read_of_first, places];
        let parts = held.into_iter().chain([stub, security, token, pending]);
        parts.fold(0, usize::saturating_add)
    }

    /// Closes the endpoint and drops unread answers.
    pub fn give_up(&mut self) {
        self.close();
        self.output = VecDeque::new();
        (self.unread, self.read_of_first) = (0, 0);
    }

    /// Closes the endpoint of a client that makes the server keep too much, and tells it so.
    pub fn run_out(&mut self) {
        let call = self.call.as_ref().map(|call| call.id);
        let id = call.or_else(|| self.pending().last()).unwrap_or(0);
        self.give_up();
        self.send(encode_fault(FaultStatus::REMOTE_NO_MEMORY, 0, id));
    }

    /// True if a part of a PDU has come, or a part of a call.
    pub const fn is_midway(&self) -> bool {
        !self.input.is_empty() || self.call.is_some()
    }

    /// True if the endpoint is closed for writing; answers can still be read.
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// True once the client has bound.
    pub const fn is_bound(&self) -> bool {
        self.max_xmit_frag.is_some()
    }

    /// Takes bytes up to the end of the present PDU, and handles it when it is complete. Returns
    /// the remaining bytes.
    fn take<'a>(&mut self, bytes: &'a [u8], calls: &mut dyn Calls) -> &'a [u8] {
        let bytes = self.fill(bytes, Header::SIZE);
        if self.input.len() < Header::SIZE {
            return bytes;
        }
        let header = match Header::read(&mut Reader::new(&self.input)) {
            // A longer fragment than the server announced in bind_ack ends the association.
            Ok(header) if header.frag_length <= longest(header.kind) => header,
            _ => {
                self.break_off(0, 0);
                return &[];
            }
        };
        let bytes = self.fill(bytes, usize::from(header.frag_length));
        if self.input.len() == usize::from(header.frag_length) {
            let pdu = core::mem::take(&mut self.input);
            self.on_pdu(header, &pdu, calls);
        }
        bytes
    }

    fn fill<'a>(&mut self, bytes: &'a [u8], until: usize) -> &'a [u8] {
        let wanted = until.saturating_sub(self.input.len()).min(bytes.len());
        let (taken, rest) = bytes.split_at_checked(wanted).unwrap_or((bytes, &[]));
        self.input.extend_from_slice(taken);
        rest
    }

    fn on_pdu(&mut self, header: Header, pdu: &[u8], calls: &mut dyn Calls) {
        let body = pdu.get(Header::SIZE..).unwrap_or(&[]);
        match header.kind {
            PduKind::BIND => self.on_bind(header, body),
            PduKind::AUTH3 if self.security.is_some() => self.on_auth3(header, body),
            PduKind::ALTER_CONTEXT if self.is_bound() => self.on_alter_context(header, body),
            PduKind::REQUEST if self.is_bound() => self.on_request(header, pdu, calls),
            PduKind::CO_CANCEL => self.on_cancel(header.call_id, calls),
            PduKind::ORPHANED => self.on_orphaned(header.call_id, calls),
            _ => self.break_off(header.call_id, 0),
        }
    }

    /// MS-RPCE 3.3.3.5.7
    fn break_off(&mut self, call_id: u32, context_id: u16) {
        self.send(encode_fault(FaultStatus::PROTO_ERROR, context_id, call_id));
        self.close();
    }

    /// Refuses the client as a whole.
    fn deny(&mut self, call_id: u32) {
        self.send(encode_fault(FaultStatus::ACCESS_DENIED, 0, call_id));
        self.close();
    }

    fn close(&mut self) {
        self.closed = true;
        self.call = None;
        self.judged = None;
        self.token = None;
        self.pending = Vec::new();
        self.input = Vec::new();
    }

    fn send(&mut self, pdu: Vec<u8>) {
        self.unread = self.unread.saturating_add(pdu.len());
        self.output.push_back(pdu);
    }

    /// Ends a pending call with its answer. Nothing happens if it was cancelled meanwhile.
    pub fn complete(&mut self, call_id: u32, answer: Answer) {
        let Some(at) = self.pending.iter().position(|waiting| waiting.id == call_id) else {
            return;
        };
        let waiting = self.pending.swap_remove(at);
        self.end(waiting, answer);
    }

    /// Returns the numbers of the calls that wait for their answers.
    pub fn pending(&self) -> impl Iterator<Item = u32> {
        self.pending.iter().map(|waiting| waiting.id)
    }
}

/// Tokens of Kerberos make the PDUs long that carry them; these are not fragmented.
const fn longest(kind: PduKind) -> u16 {
    match kind {
        PduKind::BIND | PduKind::ALTER_CONTEXT | PduKind::AUTH3 => MAX_TOKEN_PDU,
        _ => MAX_FRAG,
    }
}
