//! The client's end of RPC, on a pipe or over TCP.
//!
//! Order: write [`Client::bind`] and pass the answer to [`Client::handle_bind_reply`]; then for
//! each call write all fragments of [`Client::call`] and pass the bytes that are read to
//! [`Client::handle_bytes`] until it returns the answer.
//!
//! A client that protects its calls ([`Client::protected`]) writes [`Client::bind_with`] instead, with
//! the first token of its logon, and passes each token of [`Client::token`] to the logon; it writes
//! [`Client::go_on_with`] while the logon has a further token, and calls [`Client::establish`] at the end.

mod secure;

use super::limits::{MAX_FRAG, MAX_RESPONSE_STUB, MIN_FRAG};
use super::pdu::{
    Bind, BindAck, ContextElement, ContextResultCode, PduFlags, PduKind, RejectReason, Request,
    Response, parse_bind_nak, parse_fault, split_first,
};
use super::security::Security;
use super::{FaultStatus, SyntaxId};
use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use frevo_wire::codec::Malformed;

/// Why a bind or a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RpcError {
    /// The server's bytes do not have the shape of an answer.
    Malformed(Malformed),
    /// The server refused to bind.
    Refused(RejectReason),
    /// The server does not have the interface, or not in NDR.
    NotAccepted,
    /// The call failed with a fault.
    Fault(FaultStatus),
    /// The answer is longer than the limit.
    TooLarge,
    /// The server does not protect its answers as this client demands.
    Unprotected,
}

impl From<Malformed> for RpcError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => write!(f, "RPC: {malformed}"),
            Self::Refused(reason) => write!(f, "RPC bind refused: {reason}"),
            Self::NotAccepted => f.write_str("RPC interface not accepted"),
            Self::Fault(status) => write!(f, "RPC fault {status}"),
            Self::TooLarge => f.write_str("RPC answer too long"),
            Self::Unprotected => f.write_str("RPC answer without the agreed protection"),
        }
    }
}

impl core::error::Error for RpcError {}

/// An association with one interface.
#[derive(Debug)]
pub struct Client {
    interface: SyntaxId,
    call_id: u32,
    /// An earlier call whose answer is passed over.
    given_up: Option<u32>,
    /// The longest fragment that the server takes.
    max_xmit_frag: u16,
    input: Vec<u8>,
    stub: Vec<u8>,
    /// None for a client that leaves the protection to its carrier.
    security: Option<Security>,
    /// The server's last token.
    token: Vec<u8>,
}

impl Client {
    /// Makes a client that is not bound yet.
    pub const fn new(interface: SyntaxId) -> Self {
        Self {
            interface,
            call_id: 1,
            given_up: None,
            max_xmit_frag: MIN_FRAG,
            input: Vec::new(),
            stub: Vec::new(),
            security: None,
            token: Vec::new(),
        }
    }

    /// The bind to write.
    pub fn bind(&self) -> Vec<u8> {
        self.proposal(PduKind::BIND)
    }

    /// A bind or alter_context without a token.
    fn proposal(&self, kind: PduKind) -> Vec<u8> {
        let context =
            ContextElement { id: 0, interface: self.interface, transfer: vec![SyntaxId::NDR] };
        let bind = Bind {
            max_xmit_frag: MAX_FRAG,
            max_recv_frag: MAX_FRAG,
            assoc_group_id: 0,
            contexts: vec![context],
        };
        bind.encode(kind, self.call_id)
    }

    /// Takes bytes of the answer to the bind, or to a further token; `true` when it is whole and
    /// good.
    pub fn handle_bind_reply(&mut self, bytes: &[u8]) -> Result<bool, RpcError> {
        self.input.extend_from_slice(bytes);
        let Some((header, body, rest)) = split_first(&self.input, self.longest_bind_reply())?
        else {
            return Ok(false);
        };
        match header.kind {
            kind if kind == self.expected_bind_reply() => {}
            PduKind::BIND_NAK => return Err(RpcError::Refused(parse_bind_nak(body)?)),
            PduKind::FAULT => return Err(RpcError::Fault(parse_fault(body)?)),
            _ => return Err(Malformed::new("RPC bind reply").into()),
        }
        let (token, body) = match &self.security {
            None => (Vec::new(), body),
            Some(security) => secure::token_of(security, header, body)?,
        };
        let ack = BindAck::parse(body)?;
        match ack.results.as_slice() {
            [only]
                if only.code == ContextResultCode::ACCEPTANCE && only.transfer == SyntaxId::NDR => {
            }
            _ => return Err(RpcError::NotAccepted),
        }
        if header.call_id != self.call_id || !rest.is_empty() || ack.max_recv_frag < MIN_FRAG {
            return Err(Malformed::new("RPC bind_ack").into());
        }
        self.max_xmit_frag = ack.max_recv_frag.min(MAX_FRAG);
        self.token = token;
        self.input.clear();
        Ok(true)
    }

    /// Passes over the answer to the call that is under way, which the next call may follow at once.
    pub const fn give_up(&mut self) {
        self.given_up = Some(self.call_id);
    }

    /// The fragments of a call to write, each as a message of its own. There are none if the calls are
    /// to be protected and the logon has not ended.
    pub fn call(&mut self, opnum: u16, stub: &[u8]) -> Vec<Vec<u8>> {
        self.call_id = self.call_id.wrapping_add(1);
        self.stub.clear();
        let overhead = self.security.as_ref().map_or(0, Security::overhead);
        let overhead = Request::OVERHEAD.saturating_add(overhead);
        let room = usize::from(self.max_xmit_frag).saturating_sub(overhead) & !7;
        let mut fragments = Vec::new();
        let mut flags = PduFlags::FIRST_FRAG;
        let mut rest = stub;
        loop {
            let (part, after) = rest.split_at_checked(room).unwrap_or((rest, &[]));
            if after.is_empty() {
                flags |= PduFlags::LAST_FRAG;
            }
            let alloc_hint = u32::try_from(rest.len()).unwrap_or(0);
            let request = Request { alloc_hint, context_id: 0, opnum, stub: part };
            let pdu = request.encode(flags, self.call_id);
            let Some(pdu) = self.as_agreed(pdu) else { return Vec::new() };
            fragments.push(pdu);
            if after.is_empty() {
                return fragments;
            }
            rest = after;
            flags = PduFlags::EMPTY;
        }
    }

    /// Takes bytes of the answer; the stub data when it is whole.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, RpcError> {
        if self.input.len().saturating_add(bytes.len()) > MAX_RESPONSE_STUB {
            return Err(RpcError::TooLarge);
        }
        let mut input = core::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let mut rest = input.as_slice();
        // A server's fragment may have any length that the length field can hold.
        while let Some((header, body, after)) = split_first(rest, u16::MAX)? {
            let pdu = rest.get(..usize::from(header.frag_length)).unwrap_or_default();
            rest = after;
            let is_given_up = self.given_up == Some(header.call_id);
            if header.call_id != self.call_id && !is_given_up {
                return Err(Malformed::new("RPC call_id").into());
            }
            let body = match header.kind {
                PduKind::RESPONSE => self.opened(header, pdu, body)?,
                PduKind::FAULT if is_given_up => continue,
                PduKind::FAULT => return Err(RpcError::Fault(parse_fault(body)?)),
                _ => return Err(Malformed::new("RPC response").into()),
            };
            if is_given_up {
                continue;
            }
            if header.flags.contains(PduFlags::FIRST_FRAG) != self.stub.is_empty() {
                return Err(Malformed::new("RPC response fragments").into());
            }
            let part = Response::parse(&body)?.stub;
            if self.stub.len().saturating_add(part.len()) > MAX_RESPONSE_STUB {
                return Err(RpcError::TooLarge);
            }
            self.stub.extend_from_slice(part);
            if header.flags.contains(PduFlags::LAST_FRAG) {
                return if rest.is_empty() {
                    Ok(Some(core::mem::take(&mut self.stub)))
                } else {
                    Err(Malformed::new("RPC response fragments").into())
                };
            }
            if part.is_empty() {
                // An empty fragment of a response is refused, because afterwards it would look as
                // if none had arrived.
                return Err(Malformed::new("RPC response fragments").into());
            }
        }
        self.input = rest.to_vec();
        Ok(None)
    }
}
