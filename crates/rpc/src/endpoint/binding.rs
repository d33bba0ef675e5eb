//! bind and alter_context: C706 12.6.4.3 and MS-RPCE 3.3.1.5.6.

use super::Endpoint;
use super::token::{Judged, Signed};
use crate::SyntaxId;
use crate::limits::{MAX_CONTEXTS, MAX_FRAG, MIN_FRAG};
use crate::pdu::{
    Bind, BindAck, BindFault, ContextElement, ContextResult, ContextResultCode, Header, PduFlags,
    PduKind, REASON_ABSTRACT_SYNTAX, REASON_TRANSFER_SYNTAXES, RejectReason, encode_bind_nak,
};
use crate::security::Verifier;

/// KeepConnectionOnOrphanSupported, MS-RPCE 2.2.2.14.
const KEEP_CONNECTION_ON_ORPHAN: u8 = 0x02;

impl Endpoint {
    pub(super) fn on_bind(&mut self, header: Header, body: &[u8]) {
        let begun = self.read_bind(header, body);
        let (bind, verifier) = match begun {
            Ok(begun) => begun,
            Err(reason) => return self.refuse_bind(reason, header.call_id),
        };
        match verifier {
            None => self.accept(&bind, PduKind::BIND_ACK, header.call_id, None),
            Some(verifier) => {
                let judged = Judged::Bind { bind, kind: PduKind::BIND_ACK, header };
                self.begin_security(header, &verifier, judged);
            }
        }
    }

    fn read_bind<'a>(
        &self,
        header: Header,
        body: &'a [u8],
    ) -> Result<(Bind, Option<Verifier<'a>>), RejectReason> {
        if self.is_bound() || self.security.is_some() || !header.flags.contains(PduFlags::WHOLE) {
            return Err(RejectReason::PROTOCOL_VERSION_NOT_SPECIFIED);
        }
        let verifier = match header.auth_length {
            0 => None,
            _ => {
                let verifier = Verifier::parse(header, body).ok();
                let offered = verifier.filter(|verifier| self.offers(verifier));
                Some(offered.ok_or(RejectReason::AUTHENTICATION_TYPE_NOT_RECOGNIZED)?)
            }
        };
        let body = verifier.as_ref().map_or(body, |verifier| verifier.body);
        match Bind::parse(body) {
            Ok(bind) if bind.max_recv_frag.min(bind.max_xmit_frag) >= MIN_FRAG => {
                Ok((bind, verifier))
            }
            Err(BindFault::TooMany) => Err(RejectReason::LOCAL_LIMIT_EXCEEDED),
            Ok(_) | Err(BindFault::Malformed) => Err(RejectReason::PROTOCOL_VERSION_NOT_SPECIFIED),
        }
    }

    pub(super) fn refuse_bind(&mut self, reason: RejectReason, call_id: u32) {
        self.send(encode_bind_nak(reason, call_id));
        // If only the authentication type is unknown, the connection stays, so that the client may
        // bind without authentication.
        if reason != RejectReason::AUTHENTICATION_TYPE_NOT_RECOGNIZED {
            self.close();
        }
    }

    pub(super) fn on_alter_context(&mut self, header: Header, body: &[u8]) {
        if !header.flags.contains(PduFlags::WHOLE) || self.call.is_some() {
            return self.break_off(header.call_id, 0);
        }
        let verifier = match header.auth_length {
            0 => None,
            _ => match Verifier::parse(header, body) {
                Ok(verifier) => Some(verifier),
                Err(_) => return self.deny(header.call_id),
            },
        };
        let Ok(bind) = Bind::parse(verifier.as_ref().map_or(body, |verifier| verifier.body)) else {
            return self.break_off(header.call_id, 0);
        };
        let kind = PduKind::ALTER_CONTEXT_RESP;
        match verifier {
            None => self.accept(&bind, kind, header.call_id, None),
            Some(verifier) => {
                let judged = Judged::Bind { bind, kind, header };
                let is_taken = match self.security {
                    None => self.begin_security(header, &verifier, judged),
                    Some(_) => self.continue_security(&verifier, judged),
                };
                if !is_taken {
                    self.deny(header.call_id);
                }
            }
        }
    }

    /// Answers each proposed context in its place.
    pub(super) fn accept(
        &mut self,
        bind: &Bind,
        kind: PduKind,
        call_id: u32,
        signed: Option<Signed>,
    ) {
        let is_bind = kind == PduKind::BIND_ACK;
        if is_bind {
            self.max_xmit_frag = Some(bind.max_recv_frag.min(MAX_FRAG));
            if bind.assoc_group_id != 0 {
                self.terms.assoc_group_id = bind.assoc_group_id;
            }
        }
        let results = bind.contexts.iter().map(|context| self.negotiate(context)).collect();
        let address = if is_bind { self.terms.secondary_address.as_bytes() } else { b"" };
        let ack = BindAck {
            max_xmit_frag: self.max_xmit_frag.unwrap_or(MIN_FRAG),
            max_recv_frag: bind.max_xmit_frag.min(MAX_FRAG),
            assoc_group_id: self.terms.assoc_group_id,
            secondary_address: address,
            results,
        };
        let pdu = ack.encode(kind, call_id);
        match (signed, &self.security) {
            (Some(signed), Some(security)) => self.send(security.with_token(pdu, &signed.token)),
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
            // The server supports one of the optional features: the connection survives an orphaned
            // PDU.
            let reason = u16::from(features & KEEP_CONNECTION_ON_ORPHAN);
            let code = ContextResultCode::NEGOTIATE_ACK;
            return ContextResult { code, reason, transfer: SyntaxId::ZERO };
        }
        let offered = &self.terms.interfaces;
        let found = offered.iter().copied().find(|offered| offered.syntax == context.interface);
        let Some(interface) = found else { return reject(REASON_ABSTRACT_SYNTAX) };
        if !context.transfer.contains(&SyntaxId::NDR) {
            return reject(REASON_TRANSFER_SYNTAXES);
        }
        match self.contexts.iter().find(|(id, _)| *id == context.id) {
            // A context identifier keeps its interface as long as the association, so the client
            // must not use it for another interface.
            Some((_, known)) if *known != interface => return reject(0),
            Some(_) => {}
            None if self.contexts.len() >= MAX_CONTEXTS => return reject(0),
            None => self.contexts.push((context.id, interface)),
        }
        ContextResult { code: ContextResultCode::ACCEPTANCE, reason: 0, transfer: SyntaxId::NDR }
    }
}
