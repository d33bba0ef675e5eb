//! Connection-oriented PDUs, C706 12.6 as extended by MS-RPCE 2.2.2.

use super::limits::MAX_CONTEXTS;
use super::{FaultStatus, SyntaxId};
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed, Reader, Writer};
use frevo_wire::{bit_set, open_enum};

open_enum! {
    /// PTYPE
    PduKind(u8) {
        /// A call, or part of one.
        REQUEST = 0,
        /// The answer, or part of it.
        RESPONSE = 2,
        /// The call failed.
        FAULT = 3,
        /// Opens an association.
        BIND = 11,
        /// Accepts it, context by context.
        BIND_ACK = 12,
        /// Refuses an association.
        BIND_NAK = 13,
        /// Negotiates more contexts.
        ALTER_CONTEXT = 14,
        /// The answer to that.
        ALTER_CONTEXT_RESP = 15,
        /// The third leg of an authentication.
        AUTH3 = 16,
        /// The server wants the connection closed.
        SHUTDOWN = 17,
        /// The client no longer wants an answer.
        CO_CANCEL = 18,
        /// The client gives up a request half sent.
        ORPHANED = 19,
    }
}

bit_set! {
    /// pfc_flags
    PduFlags(u8) {
        /// PFC_FIRST_FRAG
        FIRST_FRAG = 0x01,
        /// PFC_LAST_FRAG
        LAST_FRAG = 0x02,
        /// PFC_PENDING_CANCEL; in a bind PFC_SUPPORT_HEADER_SIGN.
        PENDING_CANCEL = 0x04,
        /// PFC_CONC_MPX
        CONC_MPX = 0x10,
        /// PFC_DID_NOT_EXECUTE
        DID_NOT_EXECUTE = 0x20,
        /// PFC_MAYBE
        MAYBE = 0x40,
        /// PFC_OBJECT_UUID
        OBJECT_UUID = 0x80,
    }
}

impl PduFlags {
    /// The flags of the only fragment of a call.
    pub const WHOLE: Self = Self(0x03);
}

/// The header that all PDUs begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// PTYPE
    pub kind: PduKind,
    /// pfc_flags
    pub flags: PduFlags,
    /// frag_length: bytes of the PDU with this header.
    pub frag_length: u16,
    /// auth_length: bytes of the authentication token.
    pub auth_length: u16,
    /// call_id
    pub call_id: u32,
}

/// Little-endian integers, ASCII, IEEE floats.
const DREP: [u8; 4] = [0x10, 0, 0, 0];

impl Header {
    /// Bytes of the header.
    pub const SIZE: usize = 16;
    /// The offset of frag_length.
    pub const FRAG_LENGTH_AT: usize = 8;

    /// Takes the header from a reader. Version 5.0 or 5.1, little-endian, and
    /// a length that covers the header at least.
    pub fn read(r: &mut Reader<'_>) -> Parsed<Self> {
        let what = "RPC header";
        let [major, minor] = r.array(what)?;
        let kind = PduKind(r.u8(what)?);
        let flags = PduFlags(r.u8(what)?);
        let drep: [u8; 4] = r.array(what)?;
        let frag_length = r.u16(what)?;
        let auth_length = r.u16(what)?;
        let call_id = r.u32(what)?;
        if major != 5 || minor > 1 {
            return Err(Malformed::new("RPC version"));
        }
        if drep[0] != DREP[0] {
            return Err(Malformed::new("RPC data representation"));
        }
        if usize::from(frag_length) < Self::SIZE {
            return Err(Malformed::new("RPC frag_length"));
        }
        Ok(Self { kind, flags, frag_length, auth_length, call_id })
    }
}

/// Writes a PDU: the header, the body that `body` appends, and the true frag_length. Callers keep
/// bodies below 65,520 bytes; a longer one is a bug and gets a length that no peer accepts.
fn write_pdu(
    kind: PduKind,
    flags: PduFlags,
    call_id: u32,
    body: impl FnOnce(&mut Writer<'_>),
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out);
    w.u8(5).u8(0).u8(kind.0).u8(flags.0).bytes(&DREP).u16(0).u16(0).u32(call_id);
    body(&mut w);
    let length = u16::try_from(w.offset());
    debug_assert!(length.is_ok(), "PDU longer than its length field");
    w.patch_u16(8, length.unwrap_or(0));
    out
}

/// One presentation context that a client proposes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextElement {
    /// p_cont_id
    pub id: u16,
    /// abstract_syntax: the interface.
    pub interface: SyntaxId,
    /// transfer_syntaxes
    pub transfer: Vec<SyntaxId>,
}

/// bind and alter_context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// max_xmit_frag: the longest fragment that the client sends.
    pub max_xmit_frag: u16,
    /// max_recv_frag: the longest that it takes.
    pub max_recv_frag: u16,
    /// assoc_group_id, zero for a new group.
    pub assoc_group_id: u32,
    /// p_context_elem
    pub contexts: Vec<ContextElement>,
}

/// Why a bind could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindFault {
    /// Its bytes do not have the shape of a bind.
    Malformed,
    /// It has more contexts than the limit.
    TooMany,
}

impl From<Malformed> for BindFault {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

impl Bind {
    /// Parses the body of a bind or alter_context.
    pub fn parse(body: &[u8]) -> Result<Self, BindFault> {
        let what = "RPC bind";
        let mut r = Reader::new(body);
        let max_xmit_frag = r.u16(what)?;
        let max_recv_frag = r.u16(what)?;
        let assoc_group_id = r.u32(what)?;
        let count = usize::from(r.u8(what)?);
        r.skip(3, what)?;
        if count > MAX_CONTEXTS {
            return Err(BindFault::TooMany);
        }
        let mut contexts = Vec::with_capacity(count);
        for _ in 0..count {
            let id = r.u16(what)?;
            let transfers = usize::from(r.u8(what)?);
            r.skip(1, what)?;
            let interface = SyntaxId::read(&mut r)?;
            let transfer = (0..transfers).map(|_| SyntaxId::read(&mut r)).collect::<Parsed<_>>()?;
            contexts.push(ContextElement { id, interface, transfer });
        }
        Ok(Self { max_xmit_frag, max_recv_frag, assoc_group_id, contexts })
    }

    /// The PDU, a bind or alter_context. At most 255 contexts of at most 255
    /// transfer syntaxes are written.
    pub fn encode(&self, kind: PduKind, call_id: u32) -> Vec<u8> {
        let count = |len: usize| u8::try_from(len).unwrap_or(u8::MAX);
        write_pdu(kind, PduFlags::WHOLE, call_id, |w| {
            w.u16(self.max_xmit_frag).u16(self.max_recv_frag).u32(self.assoc_group_id);
            w.u8(count(self.contexts.len())).zeros(3);
            for context in self.contexts.iter().take(255) {
                w.u16(context.id).u8(count(context.transfer.len())).u8(0);
                context.interface.encode(w);
                context.transfer.iter().take(255).for_each(|transfer| transfer.encode(w));
            }
        })
    }
}

open_enum! {
    /// p_cont_def_result_t, MS-RPCE 2.2.2.4.
    ContextResultCode(u16) {
        /// acceptance
        ACCEPTANCE = 0,
        /// user_rejection
        USER_REJECTION = 1,
        /// provider_rejection
        PROVIDER_REJECTION = 2,
        /// negotiate_ack: the answer to a bind-time feature negotiation.
        NEGOTIATE_ACK = 3,
    }
}

/// p_provider_reason_t: abstract_syntax_not_supported.
pub const REASON_ABSTRACT_SYNTAX: u16 = 1;
/// p_provider_reason_t: proposed_transfer_syntaxes_not_supported.
pub const REASON_TRANSFER_SYNTAXES: u16 = 2;

/// The result for one proposed context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextResult {
    /// result
    pub code: ContextResultCode,
    /// reason, or the features of a NEGOTIATE_ACK.
    pub reason: u16,
    /// transfer_syntax
    pub transfer: SyntaxId,
}

/// bind_ack and alter_context_resp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindAck<'a> {
    /// max_xmit_frag: the longest fragment that the server sends.
    pub max_xmit_frag: u16,
    /// max_recv_frag: the longest that it takes.
    pub max_recv_frag: u16,
    /// assoc_group_id
    pub assoc_group_id: u32,
    /// sec_addr without its terminator, such as `\PIPE\srvsvc`.
    pub secondary_address: &'a [u8],
    /// p_result_list, in the order of the proposals.
    pub results: Vec<ContextResult>,
}

impl<'a> BindAck<'a> {
    /// Parses the body of a bind_ack or alter_context_resp.
    pub fn parse(body: &'a [u8]) -> Parsed<Self> {
        let what = "RPC bind_ack";
        let mut r = Reader::new(body);
        let max_xmit_frag = r.u16(what)?;
        let max_recv_frag = r.u16(what)?;
        let assoc_group_id = r.u32(what)?;
        let length = usize::from(r.u16(what)?);
        let address = r.take(length, what)?;
        // The list of results is aligned to four bytes. Its position here is without the PDU's
        // header, whose 16 bytes do not change the alignment.
        let padding = r.position().next_multiple_of(4).saturating_sub(r.position());
        r.skip(padding, what)?;
        let count = usize::from(r.u8(what)?);
        r.skip(3, what)?;
        let mut results = Vec::with_capacity(count.min(MAX_CONTEXTS));
        for _ in 0..count {
            let code = ContextResultCode(r.u16(what)?);
            let reason = r.u16(what)?;
            results.push(ContextResult { code, reason, transfer: SyntaxId::read(&mut r)? });
        }
        let secondary_address = address.strip_suffix(&[0]).unwrap_or(address);
        Ok(Self { max_xmit_frag, max_recv_frag, assoc_group_id, secondary_address, results })
    }

    /// The PDU, a bind_ack or alter_context_resp.
    pub fn encode(&self, kind: PduKind, call_id: u32) -> Vec<u8> {
        write_pdu(kind, PduFlags::WHOLE, call_id, |w| {
            w.u16(self.max_xmit_frag).u16(self.max_recv_frag).u32(self.assoc_group_id);
            if self.secondary_address.is_empty() {
                w.u16(0);
            } else {
                let length = self.secondary_address.len().saturating_add(1);
                w.u16(u16::try_from(length).unwrap_or(0)).bytes(self.secondary_address).u8(0);
            }
            w.align(4).u8(u8::try_from(self.results.len()).unwrap_or(u8::MAX)).zeros(3);
            for result in self.results.iter().take(255) {
                w.u16(result.code.0).u16(result.reason);
                result.transfer.encode(w);
            }
        })
    }
}

open_enum! {
    /// Why a bind is refused as a whole, MS-RPCE 2.2.2.5.
    RejectReason(u16) {
        /// REASON_NOT_SPECIFIED
        NOT_SPECIFIED = 0,
        /// LOCAL_LIMIT_EXCEEDED
        LOCAL_LIMIT_EXCEEDED = 2,
        /// PROTOCOL_VERSION_NOT_SPECIFIED: an error in the bind itself.
        PROTOCOL_VERSION_NOT_SPECIFIED = 4,
        /// authentication_type_not_recognized
        AUTHENTICATION_TYPE_NOT_RECOGNIZED = 8,
    }
}

/// Encodes a bind_nak PDU.
pub fn encode_bind_nak(reason: RejectReason, call_id: u32) -> Vec<u8> {
    write_pdu(PduKind::BIND_NAK, PduFlags::WHOLE, call_id, |w| {
        // The list of supported versions has one entry, 5.0.
        w.u16(reason.0).u8(1).u8(5).u8(0);
    })
}

/// The reason in the body of a bind_nak.
pub fn parse_bind_nak(body: &[u8]) -> Parsed<RejectReason> {
    Reader::new(body).u16("RPC bind_nak").map(RejectReason)
}

/// One fragment of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// alloc_hint: the client's claim about the length of all stub data. It is not trusted.
    pub alloc_hint: u32,
    /// p_cont_id
    pub context_id: u16,
    /// opnum
    pub opnum: u16,
    /// Stub data: the arguments or the results of the call.
    pub stub: &'a [u8],
}

impl<'a> Request<'a> {
    /// Bytes of a request before its stub data, without an object.
    pub const OVERHEAD: usize = Header::SIZE + 8;

    /// Parses the body of a request.
    pub fn parse(body: &'a [u8], flags: PduFlags) -> Parsed<Self> {
        let what = "RPC request";
        let mut r = Reader::new(body);
        let alloc_hint = r.u32(what)?;
        let context_id = r.u16(what)?;
        let opnum = r.u16(what)?;
        if flags.contains(PduFlags::OBJECT_UUID) {
            r.skip(16, what)?;
        }
        Ok(Self { alloc_hint, context_id, opnum, stub: r.rest() })
    }

    /// Encodes the PDU with its header.
    pub fn encode(&self, flags: PduFlags, call_id: u32) -> Vec<u8> {
        write_pdu(PduKind::REQUEST, flags, call_id, |w| {
            w.u32(self.alloc_hint).u16(self.context_id).u16(self.opnum).bytes(self.stub);
        })
    }
}

/// One fragment of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response<'a> {
    /// alloc_hint: stub bytes of this fragment and those that follow.
    pub alloc_hint: u32,
    /// p_cont_id
    pub context_id: u16,
    /// Stub data: the arguments or the results of the call.
    pub stub: &'a [u8],
}

impl<'a> Response<'a> {
    /// Bytes of a response before its stub data.
    pub const OVERHEAD: usize = Header::SIZE + 8;

    /// Parses the body of a response.
    pub fn parse(body: &'a [u8]) -> Parsed<Self> {
        let what = "RPC response";
        let mut r = Reader::new(body);
        let alloc_hint = r.u32(what)?;
        let context_id = r.u16(what)?;
        r.skip(2, what)?;
        Ok(Self { alloc_hint, context_id, stub: r.rest() })
    }

    /// Encodes the PDU with its header.
    pub fn encode(&self, flags: PduFlags, call_id: u32) -> Vec<u8> {
        write_pdu(PduKind::RESPONSE, flags, call_id, |w| {
            w.u32(self.alloc_hint).u16(self.context_id).u16(0).bytes(self.stub);
        })
    }
}

/// A fault PDU. It says that the call was not executed, which holds for all
/// faults that this crate sends.
pub fn encode_fault(status: FaultStatus, context_id: u16, call_id: u32) -> Vec<u8> {
    let flags = PduFlags::WHOLE | PduFlags::DID_NOT_EXECUTE;
    write_pdu(PduKind::FAULT, flags, call_id, |w| {
        w.u32(32).u16(context_id).u16(0).u32(status.0).u32(0);
    })
}

/// The status in the body of a fault.
pub fn parse_fault(body: &[u8]) -> Parsed<FaultStatus> {
    let mut r = Reader::new(body);
    r.skip(8, "RPC fault")?;
    r.u32("RPC fault").map(FaultStatus)
}

/// A whole PDU: its header, its body, and the bytes that follow it.
pub type Split<'a> = (Header, &'a [u8], &'a [u8]);

/// Cuts the first PDU off a stream of bytes, if it is whole.
///
/// The header is checked as soon as it is there, so that a lie about the
/// length is found out before anything is kept for it.
pub fn split_first(bytes: &[u8], max_frag: u16) -> Parsed<Option<Split<'_>>> {
    if bytes.len() < Header::SIZE {
        return Ok(None);
    }
    let header = Header::read(&mut Reader::new(bytes))?;
    if header.frag_length > max_frag {
        return Err(Malformed::new("RPC frag_length"));
    }
    let Some((pdu, rest)) = bytes.split_at_checked(usize::from(header.frag_length)) else {
        return Ok(None);
    };
    Ok(Some((header, pdu.get(Header::SIZE..).unwrap_or(&[]), rest)))
}
