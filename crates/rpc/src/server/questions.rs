//! Steps of a pipe that wait for the server: who may be slowed down, or must wait for a disk. No
//! further PDU is taken until the server has answered.

use super::{Call, Endpoint};
use crate::FaultStatus;
use crate::pdu::{Header, PduFlags, RejectReason, Request};
use crate::samr::PasswordChange;
use crate::security::{PipeLogon, SEALED_OVERHEAD, Security, Verifier};
use crate::server::Services;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use frevo_wire::Status;
use frevo_wire::ndr::NdrWriter;

/// A step that waits for the server's answer.
#[derive(Debug)]
pub enum Question {
    /// May this client use the pipe? [`Endpoint::answer_logon`] takes the answer.
    Logon(PipeLogon),
    /// Has the password been changed? [`Endpoint::answer_change`] takes the answer.
    Change(PasswordChange),
}

/// The state of a question.
#[derive(Debug, Default)]
pub(super) enum Asked {
    #[default]
    Nothing,
    Logon,
    Change(Call),
}

impl Endpoint {
    /// Returns the step that waits for the server, once.
    pub fn question(&mut self) -> Option<Question> {
        self.question.take()
    }

    /// True if the caller has authenticated on the pipe, and its stub data is sealed.
    pub fn is_sealed(&self) -> bool {
        self.security.as_ref().is_some_and(Security::is_sealed)
    }

    /// Takes the answer to [`Question::Logon`].
    pub fn answer_logon(&mut self, is_accepted: bool) {
        if matches!(self.asked, Asked::Logon) {
            self.asked = Asked::Nothing;
            if let Some(security) = &mut self.security {
                security.judge(is_accepted);
            }
        }
    }

    /// Takes the answer to [`Question::Change`].
    pub fn answer_change(&mut self, status: Status) {
        if let Asked::Change(call) = core::mem::take(&mut self.asked) {
            let mut w = NdrWriter::new();
            w.u32(status.0);
            self.respond(&call, &w.into_stub());
        }
    }

    /// True while the server has not answered.
    pub(super) const fn is_asking(&self) -> bool {
        !matches!(self.asked, Asked::Nothing)
    }

    pub(super) fn ask_change(&mut self, call: &Call) {
        match PasswordChange::parse(call.opnum, &call.stub) {
            Ok(change) => {
                self.question = Some(Question::Change(change));
                let (id, context_id, opnum) = (call.id, call.context_id, call.opnum);
                self.asked = Asked::Change(Call { id, context_id, opnum, stub: Vec::new() });
            }
            Err(_) => self.fault_and_close(FaultStatus::NDR, call),
        }
    }

    /// Begins the authentication that a bind asks for. Returns the body without its verifier, and
    /// the answer to the token.
    pub(super) fn begin_security<'a>(
        &mut self,
        header: Header,
        body: &'a [u8],
        services: &dyn Services,
    ) -> Result<(&'a [u8], Vec<u8>), RejectReason> {
        const REFUSED: RejectReason = RejectReason::AUTHENTICATION_TYPE_NOT_RECOGNIZED;
        let verifier = Verifier::parse(header, body).map_err(|_| REFUSED)?;
        let ends = services.security(self.pipe).ok_or(REFUSED)?;
        let (security, token) = Security::begin(ends, &verifier).ok_or(REFUSED)?;
        self.security = Some(security);
        Ok((verifier.body, token))
    }

    /// auth3: the last token, which has no answer (MS-RPCE 2.2.2.5).
    pub(super) fn on_auth3(&mut self, header: Header, body: &[u8]) {
        let logon = match (Verifier::parse(header, body), &mut self.security) {
            (Ok(verifier), Some(security)) => security.authenticate(&verifier),
            _ => None,
        };
        match logon {
            Some(logon) => {
                self.question = Some(Question::Logon(logon));
                self.asked = Asked::Logon;
            }
            None => self.break_off(header.call_id, 0),
        }
    }

    /// Returns the PDU of a request in the clear. None when it is not sealed as it must be.
    pub(super) fn clear_request<'a>(
        &mut self,
        header: Header,
        pdu: &'a [u8],
    ) -> Option<Cow<'a, [u8]>> {
        let Some(security) = &mut self.security else { return Some(Cow::Borrowed(pdu)) };
        let object = if header.flags.contains(PduFlags::OBJECT_UUID) { 16 } else { 0 };
        let plain = Request::OVERHEAD.saturating_add(object);
        security.unseal(header, pdu, plain).map(Cow::Owned)
    }

    /// Bytes that sealing adds to a fragment.
    pub(super) const fn sealed_overhead(&self) -> usize {
        if self.security.is_some() { SEALED_OVERHEAD } else { 0 }
    }

    /// Sends a fragment of a response, sealed if requests are.
    pub(super) fn send_response(&mut self, pdu: Vec<u8>) {
        let sealed = match &mut self.security {
            None => Some(pdu),
            Some(security) => security.seal(pdu, crate::pdu::Response::OVERHEAD),
        };
        match sealed {
            Some(pdu) => self.send(pdu),
            None => self.close(),
        }
    }
}
