//! Requests in fragments, and their answers.

use super::Endpoint;
use super::calls::{PartialCall, Waiting};
use crate::FaultStatus;
use crate::interface::{Answer, Call, Calls, Interface, Outcome};
use crate::limits::{MAX_FRAGMENTS, MAX_PENDING, MAX_REQUEST_STUB, MAX_RESPONSE_STUB, MIN_FRAG};
use crate::pdu::{Header, PduFlags, Request, Response, encode_fault};
use crate::security::AuthLevel;
use crate::verification::{self, Bound};
use alloc::vec::Vec;

impl Endpoint {
    pub(super) fn on_request(&mut self, header: Header, pdu: &[u8], calls: &mut dyn Calls) {
        if header.auth_length != 0 && self.security.is_none() {
            return self.break_off(header.call_id, 0);
        }
        let Some(pdu) = self.clear_request(header, pdu) else {
            return self.deny(header.call_id);
        };
        let body = pdu.get(Header::SIZE..).unwrap_or(&[]);
        let Ok(request) = Request::parse(body, header.flags) else {
            return self.break_off(header.call_id, 0);
        };
        let is_first = header.flags.contains(PduFlags::FIRST_FRAG);
        let mut call = match self.call.take() {
            None if is_first && self.pending().all(|id| id != header.call_id) => PartialCall {
                id: header.call_id,
                context_id: request.context_id,
                opnum: request.opnum,
                stub: Vec::new(),
                fragments: 0,
            },
            Some(call) if !is_first && call.id == header.call_id => call,
            // A fragment breaks the protocol if it begins a call that has already begun, or belongs
            // to a call that has not begun or is pending.
            _ => return self.break_off(header.call_id, request.context_id),
        };
        let waiting = Waiting { id: call.id, context_id: call.context_id };
        call.fragments = call.fragments.saturating_add(1);
        let length = call.stub.len().saturating_add(request.stub.len());
        if length > MAX_REQUEST_STUB || call.fragments > MAX_FRAGMENTS {
            // MS-RPCE 3.3.3.5.4: a call with too many bytes or fragments is denied, and the
            // association closed.
            return self.fault_and_close(FaultStatus::ACCESS_DENIED, waiting);
        }
        call.stub.extend_from_slice(request.stub);
        if header.flags.contains(PduFlags::LAST_FRAG) {
            self.execute(&call, calls);
        } else {
            self.call = Some(call);
        }
    }

    /// The level of the client's authentication, once it has ended.
    fn level(&self) -> AuthLevel {
        self.security.as_ref().map_or(AuthLevel::NONE, |security| security.level())
    }

    fn execute(&mut self, call: &PartialCall, calls: &mut dyn Calls) {
        let waiting = Waiting { id: call.id, context_id: call.context_id };
        let found = self.contexts.iter().find(|(id, _)| *id == call.context_id);
        let Some(interface) = found.map(|(_, interface)| *interface) else {
            return self.fault(FaultStatus::UNK_IF, waiting);
        };
        let level = self.level();
        let least = interface.level_on(self.terms.carrier);
        if least.is_none_or(|least| level < least.max(self.terms.least_level)) {
            // MS-RPCE 3.3.1.5.2.2: this interface demands a higher authentication level than the
            // client uses.
            return self.fault(FaultStatus::ACCESS_DENIED, waiting);
        }
        if self.pending.len() >= MAX_PENDING {
            return self.fault(FaultStatus::SERVER_TOO_BUSY, waiting);
        }
        let Some(stub) = self.verified(call, interface) else {
            return self.fault_and_close(FaultStatus::ACCESS_DENIED, waiting);
        };
        let call = Call { id: call.id, interface, opnum: call.opnum, level, stub };
        match calls.begin(&call) {
            Outcome::Ended(answer) => self.end(waiting, answer),
            Outcome::Pending => self.pending.push(waiting),
        }
    }

    /// Returns the stub data without a verification trailer; None if the trailer contradicts the
    /// request. Only a protected trailer proves anything.
    fn verified(&self, call: &PartialCall, interface: &Interface) -> Option<Vec<u8>> {
        let Some(security) = &self.security else { return Some(call.stub.clone()) };
        let bound = Bound {
            interface: interface.syntax,
            call_id: call.id,
            context_id: call.context_id,
            opnum: call.opnum,
            signs_header: security.signs_header(),
        };
        verification::stripped(&call.stub, &bound).map(<[u8]>::to_vec)
    }

    /// Sends the answer of a call that has ended.
    pub(super) fn end(&mut self, waiting: Waiting, answer: Answer) {
        match answer {
            Ok(stub) if stub.len() <= MAX_RESPONSE_STUB => self.respond(waiting, &stub),
            Ok(_) => self.fault(FaultStatus::OUT_ARGS_TOO_BIG, waiting),
            Err(FaultStatus::NDR) => self.fault_and_close(FaultStatus::NDR, waiting),
            Err(status) => self.fault(status, waiting),
        }
    }

    /// Sends stub data in as many fragments as the client's limit asks for.
    fn respond(&mut self, waiting: Waiting, stub: &[u8]) {
        let frag = usize::from(self.max_xmit_frag.unwrap_or(MIN_FRAG));
        // The stub data of each fragment except the last one is a multiple of eight bytes.
        let overhead = Response::OVERHEAD.saturating_add(self.protected_overhead());
        let room = frag.saturating_sub(overhead) & !7;
        let mut flags = PduFlags::FIRST_FRAG;
        let mut rest = stub;
        loop {
            let (part, after) = rest.split_at_checked(room).unwrap_or((rest, &[]));
            if after.is_empty() {
                flags |= PduFlags::LAST_FRAG;
            }
            let alloc_hint = u32::try_from(rest.len()).unwrap_or(0);
            let response = Response { alloc_hint, context_id: waiting.context_id, stub: part };
            self.send_response(response.encode(flags, waiting.id));
            if after.is_empty() || self.closed {
                return;
            }
            rest = after;
            flags = PduFlags::EMPTY;
        }
    }

    pub(super) fn fault(&mut self, status: FaultStatus, waiting: Waiting) {
        self.send(encode_fault(status, waiting.context_id, waiting.id));
    }

    fn fault_and_close(&mut self, status: FaultStatus, waiting: Waiting) {
        self.fault(status, waiting);
        self.close();
    }

    /// co_cancel: the client wants an answer soon, C706 12.6.4.
    pub(super) fn on_cancel(&mut self, call_id: u32, calls: &mut dyn Calls) {
        if let Some(waiting) = self.withdraw(call_id) {
            calls.cancel(call_id);
            self.fault(FaultStatus::CANCEL, waiting);
        }
    }

    /// orphaned: the client wants no answer, and may have sent a part of the request.
    pub(super) fn on_orphaned(&mut self, call_id: u32, calls: &mut dyn Calls) {
        self.call = self.call.take().filter(|call| call.id != call_id);
        if self.withdraw(call_id).is_some() {
            calls.cancel(call_id);
        }
    }

    fn withdraw(&mut self, call_id: u32) -> Option<Waiting> {
        let at = self.pending.iter().position(|waiting| waiting.id == call_id)?;
        Some(self.pending.swap_remove(at))
    }
}
