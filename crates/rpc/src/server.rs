//! The server's end of a pipe that RPC is spoken on: bytes that the client
//! wrote in, messages that it reads out. Nothing here waits or does I/O.

mod questions;

pub use questions::Question;

use self::questions::Asked;
use super::handles::Handles;
use super::limits::{
    MAX_CONTEXTS, MAX_FRAG, MAX_REQUEST_STUB, MAX_RESPONSE_STUB, MAX_UNREAD, MIN_FRAG,
    SECURITY_BYTES,
};
use super::pdu::{
    Bind, BindAck, BindFault, ContextElement, ContextResult, ContextResultCode, Header, PduFlags,
    PduKind, REASON_ABSTRACT_SYNTAX, REASON_TRANSFER_SYNTAXES, RejectReason, Request, Response,
    encode_bind_nak, encode_fault,
};
use super::samr::PasswordChange;
use super::security::{PipeSecurity, Security};
use super::srvsvc::{ConnectionInfo, FileInfo, ServerInfo, SessionInfo, ShareInfo, ShareSettings};
use super::{Account, Attempt, Domain, FaultStatus, SyntaxId, WinError, calls};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use frevo_wire::codec::Reader;
use frevo_wire::dtyp::{FileTime, Sid};
use frevo_wire::fscc::eq_ignore_case;

/// The data of the services, supplied by the server for one caller.
pub trait Services {
    /// The shares that the caller may know of, in an order that stays.
    fn shares(&self) -> Vec<ShareInfo>;
    /// Returns facts about the server.
    fn server(&self) -> ServerInfo;
    /// True if the caller may also read paths, counts and descriptors.
    fn is_administrator(&self) -> bool;
    /// Returns the present time.
    fn now(&self) -> FileTime;
    /// Milliseconds since the server started.
    fn uptime_ms(&self) -> u64;
    /// Sixteen bytes that nobody can guess, for a context handle.
    fn random(&self) -> [u8; 16];
    /// The machine as the domain of its accounts.
    fn machine(&self) -> Domain;
    /// The caller; none when it has no account.
    fn caller(&self) -> Option<Account>;
    /// Returns the account with this SID.
    fn find_sid(&self, sid: &Sid) -> Option<Account>;
    /// Returns the account called `name`, `domain\name` or `name@domain`.
    fn find_name(&self, name: &str) -> Option<Account>;
    /// True if the caller may list accounts and members of groups.
    fn may_list_accounts(&self) -> bool;
    /// True if all users may list accounts, false if only administrators may.
    fn users_list_accounts(&self) -> bool;
    /// The users, groups and aliases of a domain.
    fn accounts_in(&self, domain: &Sid) -> Vec<Account>;
    /// Returns the members of a group or an alias.
    fn members(&self, group: &Sid) -> Vec<Sid>;
    /// The aliases that any of `sids` is in.
    fn memberships(&self, sids: &[Sid]) -> Vec<Sid>;
    /// True if the user may log on.
    fn is_enabled(&self, user: &Sid) -> bool;
    /// The server's end of an authentication on a pipe; None where there is none.
    fn security(&self, pipe: Pipe) -> Option<Box<dyn PipeSecurity>> {
        let _ = pipe;
        None
    }
    /// True if the caller may see and end what others use: a member of Administrators.
    fn may_manage(&self) -> bool {
        false
    }
    /// Receives the attempt of a caller that may not manage the server, for the audit log.
    fn refused(&self, _attempt: Attempt<'_>) {}
    /// Returns all sessions of the server.
    fn sessions(&self) -> Vec<SessionInfo> {
        Vec::new()
    }
    /// Returns all files that are open.
    fn files(&self) -> Vec<FileInfo> {
        Vec::new()
    }
    /// All uses of shares.
    fn connections(&self) -> Vec<ConnectionInfo> {
        Vec::new()
    }
    /// Closes the open file of this number.
    ///
    /// # Errors
    /// FILE_ID_NOT_FOUND where there is none, BUSY when it cannot be closed now.
    fn close_file(&self, _id: u32) -> Result<(), WinError> {
        Err(WinError::FILE_ID_NOT_FOUND)
    }
    /// Ends the sessions of a client, of a user, or of both.
    ///
    /// # Errors
    /// CLIENT_NAME_NOT_FOUND where there are none, BUSY when they cannot be ended now.
    fn end_sessions(&self, _client: Option<&str>, _user: Option<&str>) -> Result<(), WinError> {
        Err(WinError::CLIENT_NAME_NOT_FOUND)
    }
    /// Adds a share.
    ///
    /// # Errors
    /// DUPLICATE_SHARE, UNKNOWN_DEV_DIR, INVALID_NAME; ACCESS_DENIED where the server does not
    /// permit it.
    fn add_share(&self, _share: &ShareInfo) -> Result<(), WinError> {
        Err(WinError::ACCESS_DENIED)
    }
    /// Changes settings of a share.
    ///
    /// # Errors
    /// NET_NAME_NOT_FOUND; ACCESS_DENIED where the server does not permit it.
    fn set_share(&self, _name: &str, _settings: &ShareSettings) -> Result<(), WinError> {
        Err(WinError::ACCESS_DENIED)
    }
    /// Removes a share; its files stay.
    ///
    /// # Errors
    /// NET_NAME_NOT_FOUND; ACCESS_DENIED where the server does not permit it.
    fn remove_share(&self, _name: &str) -> Result<(), WinError> {
        Err(WinError::ACCESS_DENIED)
    }
}

/// The existing pipes. Any other name fails: a client's name is never used to look anything up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pipe {
    /// `srvsvc`
    Srvsvc,
    /// `wkssvc`
    Wkssvc,
    /// `lsarpc`
    Lsarpc,
    /// `samr`
    Samr,
}

impl Pipe {
    /// All pipes that exist.
    pub const ALL: [Self; 4] = [Self::Srvsvc, Self::Wkssvc, Self::Lsarpc, Self::Samr];

    /// The pipe of this name, as a CREATE on IPC$ gives it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pipe| eq_ignore_case(pipe.name(), name))
    }

    /// Returns the name of the pipe.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Srvsvc => "srvsvc",
            Self::Wkssvc => "wkssvc",
            Self::Lsarpc => "lsarpc",
            Self::Samr => "samr",
        }
    }

    /// The interface that is spoken on it.
    pub const fn interface(self) -> SyntaxId {
        match self {
            Self::Srvsvc => SyntaxId::SRVSVC,
            Self::Wkssvc => SyntaxId::WKSSVC,
            Self::Lsarpc => SyntaxId::LSARPC,
            Self::Samr => SyntaxId::SAMR,
        }
    }

    const fn secondary_address(self) -> &'static [u8] {
        match self {
            Self::Srvsvc => br"\PIPE\srvsvc",
            Self::Wkssvc => br"\PIPE\wkssvc",
            // The answer of Windows: the process of its authority owns this pipe.
            Self::Lsarpc | Self::Samr => br"\PIPE\lsass",
        }
    }
}

/// Why a pipe takes no more bytes.
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

/// A request of which fragments have come.
#[derive(Debug)]
struct Call {
    id: u32,
    context_id: u16,
    opnum: u16,
    stub: Vec<u8>,
}

/// An end of a pipe, one per Open.
#[derive(Debug)]
pub struct Endpoint {
    pipe: Pipe,
    assoc_group_id: u32,
    /// The longest fragment that the client takes, once it has bound.
    max_xmit_frag: Option<u16>,
    contexts: Vec<u16>,
    handles: Handles,
    /// The authentication on the pipe, if the client has begun one.
    security: Option<Security>,
    asked: Asked,
    question: Option<Question>,
    /// The PDU that is coming in.
    input: Vec<u8>,
    call: Option<Call>,
    /// Messages that wait to be read, and how much of the first one has been.
    output: VecDeque<Vec<u8>>,
    read_of_first: usize,
    unread: usize,
    closed: bool,
}

impl Endpoint {
    /// A pipe just opened. `assoc_group_id` names the association group that
    /// a client gets when it asks for a new one; it is not zero.
    pub const fn new(pipe: Pipe, assoc_group_id: u32) -> Self {
        Self {
            pipe,
            assoc_group_id,
            max_xmit_frag: None,
            contexts: Vec::new(),
            handles: Handles::new(),
            security: None,
            asked: Asked::Nothing,
            question: None,
            input: Vec::new(),
            call: None,
            output: VecDeque::new(),
            read_of_first: 0,
            unread: 0,
            closed: false,
        }
    }

    /// Handles bytes that a client wrote: parts of PDUs, or several of them. The answer can be read
    /// when this returns. A violation of the protocol gets a fault and closes the pipe.
    pub fn write(&mut self, bytes: &[u8], services: &dyn Services) -> Result<(), PipeError> {
        if self.closed {
            return Err(PipeError::Disconnected);
        }
        let mut rest = bytes;
        while !rest.is_empty() && !self.closed {
            if self.unread >= MAX_UNREAD {
                return Err(PipeError::Unread);
            }
            rest = self.take(rest, services);
        }
        Ok(())
    }

    /// True if `bytes` reach beyond the PDU that they begin or continue.
    pub fn has_several(&self, bytes: &[u8]) -> bool {
        let whole = || self.input.iter().chain(bytes);
        let mut length = whole().skip(Header::FRAG_LENGTH_AT).copied();
        let (Some(low), Some(high)) = (length.next(), length.next()) else { return false };
        let length = usize::from(u16::from_le_bytes([low, high])).max(Header::SIZE);
        self.input.len().saturating_add(bytes.len()) > length
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

    /// Returns the bytes that it holds: unread answers, and the parts of an incomplete request.
    pub fn bytes(&self) -> usize {
        let stub = self.call.as_ref().map_or(0, |call| call.stub.capacity());
        let places = self.output.capacity().saturating_mul(size_of::<Vec<u8>>());
        let security = if self.security.is_some() { SECURITY_BYTES } else { 0 };
        let parts =
            [self.unread, self.read_of_first, places, self.input.capacity(), stub, security];
        parts.into_iter().fold(0, usize::saturating_add)
    }

    /// Closes the pipe and drops unread answers.
    pub fn give_up(&mut self) {
        self.close();
        self.output = VecDeque::new();
        (self.unread, self.read_of_first) = (0, 0);
    }

    /// True if the pipe is closed for writing; answers can still be read.
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Takes bytes up to the end of the present PDU, and handles it when it is complete. Returns
    /// the remaining bytes.
    fn take<'a>(&mut self, bytes: &'a [u8], services: &dyn Services) -> &'a [u8] {
        let bytes = self.fill(bytes, Header::SIZE);
        if self.input.len() < Header::SIZE {
            return bytes;
        }
        let header = match Header::read(&mut Reader::new(&self.input)) {
            // The length is believed only up to our limit, which bind_ack told.
            Ok(header) if header.frag_length <= MAX_FRAG => header,
            _ => {
                self.break_off(0, 0);
                return &[];
            }
        };
        let bytes = self.fill(bytes, usize::from(header.frag_length));
        if self.input.len() == usize::from(header.frag_length) {
            let pdu = core::mem::take(&mut self.input);
            self.on_pdu(header, &pdu, services);
        }
        bytes
    }

    fn fill<'a>(&mut self, bytes: &'a [u8], until: usize) -> &'a [u8] {
        let wanted = until.saturating_sub(self.input.len()).min(bytes.len());
        let (taken, rest) = bytes.split_at_checked(wanted).unwrap_or((bytes, &[]));
        self.input.extend_from_slice(taken);
        rest
    }

    fn on_pdu(&mut self, header: Header, pdu: &[u8], services: &dyn Services) {
        let body = pdu.get(Header::SIZE..).unwrap_or(&[]);
        match header.kind {
            // Nothing follows before the server has answered.
            _ if self.is_asking() => self.break_off(header.call_id, 0),
            PduKind::BIND => self.on_bind(header, body, services),
            PduKind::AUTH3 if self.security.is_some() => self.on_auth3(header, body),
            PduKind::ALTER_CONTEXT if self.max_xmit_frag.is_some() => {
                self.on_alter_context(header, body)
            }
            PduKind::REQUEST if self.max_xmit_frag.is_some() => {
                self.on_request(header, pdu, services)
            }
            // Answers are there at once: there is nothing to cancel.
            PduKind::CO_CANCEL => {}
            PduKind::ORPHANED => {
                self.call = self.call.take().filter(|call| call.id != header.call_id)
            }
            _ => self.break_off(header.call_id, 0),
        }
    }

    fn on_bind(&mut self, header: Header, body: &[u8], services: &dyn Services) {
        let is_out_of_turn = self.max_xmit_frag.is_some();
        let begun = if is_out_of_turn || !header.flags.contains(PduFlags::WHOLE) {
            Err(RejectReason::PROTOCOL_VERSION_NOT_SPECIFIED)
        } else if header.auth_length != 0 {
            self.begin_security(header, body, services)
        } else {
            Ok((body, Vec::new()))
        };
        let bound = begun.and_then(|(body, token)| match Bind::parse(body) {
            Ok(bind) if bind.max_recv_frag.min(bind.max_xmit_frag) >= MIN_FRAG => Ok((bind, token)),
            Err(BindFault::TooMany) => Err(RejectReason::LOCAL_LIMIT_EXCEEDED),
            Ok(_) | Err(BindFault::Malformed) => Err(RejectReason::PROTOCOL_VERSION_NOT_SPECIFIED),
        });
        let reason = match bound {
            Ok((bind, token)) => {
                self.max_xmit_frag = Some(bind.max_recv_frag.min(MAX_FRAG));
                return self.accept(&bind, PduKind::BIND_ACK, header.call_id, &token);
            }
            Err(reason) => reason,
        };
        self.send(encode_bind_nak(reason, header.call_id));
        // A client that asked for an unsupported authentication may try without.
        self.closed = reason != RejectReason::AUTHENTICATION_TYPE_NOT_RECOGNIZED;
    }

    fn on_alter_context(&mut self, header: Header, body: &[u8]) {
        match Bind::parse(body) {
            Ok(bind) if header.flags.contains(PduFlags::WHOLE) && header.auth_length == 0 => {
                self.accept(&bind, PduKind::ALTER_CONTEXT_RESP, header.call_id, &[]);
            }
            _ => self.break_off(header.call_id, 0),
        }
    }

    /// MS-RPCE 3.3.1.5.6: answers each proposed context in its place.
    fn accept(&mut self, bind: &Bind, kind: PduKind, call_id: u32, token: &[u8]) {
        if bind.assoc_group_id != 0 {
            self.assoc_group_id = bind.assoc_group_id;
        }
        let results = bind.contexts.iter().map(|context| self.negotiate(context)).collect();
        let is_bind = kind == PduKind::BIND_ACK;
        let ack = BindAck {
            max_xmit_frag: self.max_xmit_frag.unwrap_or(MIN_FRAG),
            max_recv_frag: bind.max_xmit_frag.min(MAX_FRAG),
            assoc_group_id: self.assoc_group_id,
            secondary_address: if is_bind { self.pipe.secondary_address() } else { b"" },
            results,
        };
        let pdu = ack.encode(kind, call_id);
        match &self.security {
            Some(security) if is_bind => self.send(security.with_token(pdu, token)),
            _ => self.send(pdu),
        }
    }

    fn negotiate(&mut self, context: &ContextElement) -> ContextResult {
        let reject = |reason| ContextResult {
            code: ContextResultCode::PROVIDER_REJECTION,
            reason,
            transfer: SyntaxId::ZERO,
        };
        if let [only] = context.transfer.as_slice()
            && let Some(features) = only.bind_time_features()
        {
            // Of the features we have one: an orphaned PDU does no harm.
            let reason = u16::from(features & KEEP_CONNECTION_ON_ORPHAN);
            let code = ContextResultCode::NEGOTIATE_ACK;
            return ContextResult { code, reason, transfer: SyntaxId::ZERO };
        }
        if context.interface != self.pipe.interface() {
            return reject(REASON_ABSTRACT_SYNTAX);
        }
        if !context.transfer.contains(&SyntaxId::NDR) {
            return reject(REASON_TRANSFER_SYNTAXES);
        }
        if !self.contexts.contains(&context.id) {
            if self.contexts.len() >= MAX_CONTEXTS {
                return reject(0);
            }
            self.contexts.push(context.id);
        }
        ContextResult { code: ContextResultCode::ACCEPTANCE, reason: 0, transfer: SyntaxId::NDR }
    }

    fn on_request(&mut self, header: Header, pdu: &[u8], services: &dyn Services) {
        if header.auth_length != 0 && self.security.is_none() {
            return self.break_off(header.call_id, 0);
        }
        let Some(pdu) = self.clear_request(header, pdu) else {
            self.send(encode_fault(FaultStatus::ACCESS_DENIED, 0, header.call_id));
            return self.close();
        };
        let body = pdu.get(Header::SIZE..).unwrap_or(&[]);
        let Ok(request) = Request::parse(body, header.flags) else {
            return self.break_off(header.call_id, 0);
        };
        let is_first = header.flags.contains(PduFlags::FIRST_FRAG);
        let mut call = match self.call.take() {
            None if is_first => Call {
                id: header.call_id,
                context_id: request.context_id,
                opnum: request.opnum,
                stub: Vec::new(),
            },
            Some(call) if !is_first && call.id == header.call_id => call,
            // A second first fragment, or one of a call that has not begun.
            _ => return self.break_off(header.call_id, request.context_id),
        };
        if call.stub.len().saturating_add(request.stub.len()) > MAX_REQUEST_STUB {
            // MS-RPCE 3.3.3.5.4
            return self.fault_and_close(FaultStatus::ACCESS_DENIED, &call);
        }
        call.stub.extend_from_slice(request.stub);
        if header.flags.contains(PduFlags::LAST_FRAG) {
            let is_bound = self.contexts.contains(&call.context_id);
            if self.pipe == Pipe::Samr && PasswordChange::is_opnum(call.opnum) && is_bound {
                return self.ask_change(&call);
            }
            self.execute(&call, services);
        } else {
            self.call = Some(call);
        }
    }

    fn execute(&mut self, call: &Call, services: &dyn Services) {
        let result = if self.contexts.contains(&call.context_id) {
            match self.pipe {
                Pipe::Srvsvc => calls::srvsvc(call.opnum, &call.stub, services),
                Pipe::Wkssvc => calls::wkssvc(call.opnum, &call.stub, services),
                Pipe::Lsarpc => calls::lsarpc(call.opnum, &call.stub, &mut self.handles, services),
                Pipe::Samr => calls::samr(call.opnum, &call.stub, &mut self.handles, services),
            }
        } else {
            Err(FaultStatus::UNK_IF)
        };
        match result {
            Ok(stub) if stub.len() <= MAX_RESPONSE_STUB => self.respond(call, &stub),
            Ok(_) => self.fault(FaultStatus::OUT_ARGS_TOO_BIG, call),
            Err(FaultStatus::NDR) => self.fault_and_close(FaultStatus::NDR, call),
            Err(status) => self.fault(status, call),
        }
    }

    /// Sends stub data in as many fragments as the client's limit asks for.
    fn respond(&mut self, call: &Call, stub: &[u8]) {
        let frag = usize::from(self.max_xmit_frag.unwrap_or(MIN_FRAG));
        // Fragments but the last keep their stub data a multiple of eight.
        let overhead = Response::OVERHEAD.saturating_add(self.sealed_overhead());
        let room = frag.saturating_sub(overhead) & !7;
        let mut flags = PduFlags::FIRST_FRAG;
        let mut rest = stub;
        loop {
            let (part, after) = rest.split_at_checked(room).unwrap_or((rest, &[]));
            if after.is_empty() {
                flags |= PduFlags::LAST_FRAG;
            }
            let alloc_hint = u32::try_from(rest.len()).unwrap_or(0);
            let response = Response { alloc_hint, context_id: call.context_id, stub: part };
            self.send_response(response.encode(flags, call.id));
            if after.is_empty() {
                return;
            }
            rest = after;
            flags = PduFlags::EMPTY;
        }
    }

    fn fault(&mut self, status: FaultStatus, call: &Call) {
        self.send(encode_fault(status, call.context_id, call.id));
    }

    fn fault_and_close(&mut self, status: FaultStatus, call: &Call) {
        self.fault(status, call);
        self.close();
    }

    /// MS-RPCE 3.3.3.5.7
    fn break_off(&mut self, call_id: u32, context_id: u16) {
        self.send(encode_fault(FaultStatus::PROTO_ERROR, context_id, call_id));
        self.close();
    }

    fn close(&mut self) {
        self.closed = true;
        self.call = None;
        self.input = Vec::new();
    }

    fn send(&mut self, pdu: Vec<u8>) {
        self.unread = self.unread.saturating_add(pdu.len());
        self.output.push_back(pdu);
    }
}

/// KeepConnectionOnOrphanSupported, MS-RPCE 2.2.2.14.
const KEEP_CONNECTION_ON_ORPHAN: u8 = 0x02;
