//! The authentication of a client over RPC, MS-RPCE 3.3.1.5.2.1: tokens in bind, alter_context and
//! auth3, which the carrier judges, and the protection of requests and responses after them.

use super::Endpoint;
use super::token::{Judged, Signed, Token, Verdict};
use crate::interface::Carrier;
use crate::pdu::{Header, PduFlags, PduKind, RejectReason, Request, Response};
use crate::security::{AuthLevel, AuthType, Security, Verifier};
use alloc::borrow::Cow;
use alloc::vec::Vec;

impl Endpoint {
    /// Returns the token that the carrier has to judge, once.
    pub const fn token(&mut self) -> Option<Token> {
        self.token.take()
    }

    /// Takes the verdict on a token. Bytes that were not taken before are to be written after it.
    pub fn judge(&mut self, verdict: Verdict) {
        let (Some(judged), Some(security)) = (self.judged.take(), &mut self.security) else {
            return;
        };
        let token = match verdict {
            Verdict::Continue(token) => Some(token),
            Verdict::Done(token, protection) => {
                security.establish(protection.map(|protection| *protection)).then_some(token)
            }
            Verdict::Refused => {
                security.refuse();
                None
            }
        };
        match (judged, token) {
            // MS-RPCE 3.3.1.5.2.1: auth3 has no answer. So a failure is kept, and the client's
            // first request gets the fault.
            (Judged::Auth3, Some(_)) => {
                if !security.is_established() {
                    security.refuse();
                }
            }
            (Judged::Auth3, None) => security.refuse(),
            (Judged::Bind { bind, kind, header }, Some(token)) => {
                self.accept(&bind, kind, header.call_id, Some(Signed { token }));
            }
            (Judged::Bind { kind: PduKind::BIND_ACK, header, .. }, None) => {
                self.refuse_bind(RejectReason::NOT_SPECIFIED, header.call_id);
            }
            (Judged::Bind { header, .. }, None) => self.deny(header.call_id),
        }
    }

    /// True if the carrier offers the authentication that a client asks for.
    pub(super) fn offers(&self, verifier: &Verifier<'_>) -> bool {
        let is_known = match verifier.kind {
            AuthType::NEGOTIATE | AuthType::NTLM => true,
            AuthType::KERBEROS => self.terms.takes_kerberos,
            _ => false,
        };
        // Deviation: authentication levels below integrity do not protect the data, so they are
        // refused. On a pipe SMB protects the data, so that the client may leave it at a logon.
        let is_safe = match verifier.level {
            AuthLevel::INTEGRITY | AuthLevel::PRIVACY => true,
            AuthLevel::CONNECT => self.terms.carrier == Carrier::Pipe,
            _ => false,
        };
        self.terms.authenticates && is_known && is_safe
    }

    /// Begins an authentication. False for one that is not offered.
    pub(super) fn begin_security(
        &mut self,
        header: Header,
        verifier: &Verifier<'_>,
        judged: Judged,
    ) -> bool {
        if !self.offers(verifier) {
            return false;
        }
        // MS-RPCE 2.2.2.3: in bind and alter_context the bit of PENDING_CANCEL means
        // PFC_SUPPORT_HEADER_SIGN.
        let signs_header = header.flags.contains(PduFlags::PENDING_CANCEL);
        self.security = Some(Security::begin(verifier, signs_header));
        self.ask(verifier, true, judged);
        true
    }

    /// Continues the authentication with another token. False if none is expected.
    pub(super) fn continue_security(&mut self, verifier: &Verifier<'_>, judged: Judged) -> bool {
        let is_expected = self.security.as_ref().is_some_and(|security| security.expects(verifier));
        if is_expected {
            self.ask(verifier, false, judged);
        }
        is_expected
    }

    fn ask(&mut self, verifier: &Verifier<'_>, is_first: bool, judged: Judged) {
        let Verifier { kind, level, token, .. } = *verifier;
        self.token = Some(Token { kind, level, is_first, token: token.to_vec() });
        self.judged = Some(judged);
    }

    /// auth3: the last token, which has no answer (MS-RPCE 2.2.2.5).
    pub(super) fn on_auth3(&mut self, header: Header, body: &[u8]) {
        let verifier = Verifier::parse(header, body);
        if !verifier.is_ok_and(|verifier| self.continue_security(&verifier, Judged::Auth3)) {
            self.break_off(header.call_id, 0);
        }
    }

    /// Returns the PDU of a request in the clear. None when it is not protected as it must be.
    pub(super) fn clear_request<'a>(
        &mut self,
        header: Header,
        pdu: &'a [u8],
    ) -> Option<Cow<'a, [u8]>> {
        let Some(security) = &mut self.security else { return Some(Cow::Borrowed(pdu)) };
        let object = if header.flags.contains(PduFlags::OBJECT_UUID) { 16 } else { 0 };
        let plain = Request::OVERHEAD.saturating_add(object);
        security.open(header, pdu, plain).map(Cow::Owned)
    }

    /// Bytes that the protection adds to a fragment.
    pub(super) fn protected_overhead(&self) -> usize {
        self.security.as_ref().map_or(0, Security::overhead)
    }

    /// Sends a fragment of a response, protected as requests are.
    pub(super) fn send_response(&mut self, pdu: Vec<u8>) {
        let protected = match &mut self.security {
            None => Some(pdu),
            Some(security) => security.protect(pdu, Response::OVERHEAD),
        };
        match protected {
            Some(pdu) => self.send(pdu),
            None => self.close(),
        }
    }
}
