//! Calls of a client that are signed or sealed, MS-RPCE 3.3.1.5.2: the tokens of its logon, and the
//! protection of requests and responses after it.

use super::{Client, Cow, MAX_FRAG, Malformed, PduFlags, PduKind, Request, Response, RpcError};
use crate::SyntaxId;
use crate::limits::MAX_TOKEN_PDU;
use crate::pdu::Header;
use crate::security::{AuthLevel, AuthType, Security, Verifier};
use alloc::vec::Vec;
use frevo_auth::Protection;

impl Client {
    /// Makes a client that is not bound yet and logs on by SPNEGO. Its calls are protected at `level`,
    /// INTEGRITY or PRIVACY; at a lower one none can be made.
    pub fn protected(interface: SyntaxId, level: AuthLevel) -> Self {
        let mut client = Self::new(interface);
        client.security = Some(Security::of_client(AuthType::NEGOTIATE, level));
        client
    }

    /// The bind to write, with the first token of the logon.
    pub fn bind_with(&self, token: &[u8]) -> Vec<u8> {
        self.carrying(PduKind::BIND, token)
    }

    /// The PDU to write with a further token of the logon.
    pub fn go_on_with(&mut self, token: &[u8]) -> Vec<u8> {
        // MS-RPCE 3.3.1.5.2.1: of alter_context and auth3 the first one has an answer, in which the
        // server proves that it wants this mechanism.
        self.call_id = self.call_id.wrapping_add(1);
        self.carrying(PduKind::ALTER_CONTEXT, token)
    }

    fn carrying(&self, kind: PduKind, token: &[u8]) -> Vec<u8> {
        let pdu = self.proposal(kind);
        match &self.security {
            None => pdu,
            Some(security) => security.with_token(pdu, token),
        }
    }

    /// Takes the server's token out of the last answer; empty if it had none.
    pub fn token(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.token)
    }

    /// Ends the logon. Calls can be made from then on.
    ///
    /// # Errors
    /// Unprotected, if the ends have not agreed on the protection that the level demands.
    pub fn establish(&mut self, protection: Option<Protection>) -> Result<(), RpcError> {
        let security = self.security.as_mut().ok_or(RpcError::Unprotected)?;
        let is_safe = security.asked_level() >= AuthLevel::INTEGRITY;
        if is_safe && security.establish(protection) { Ok(()) } else { Err(RpcError::Unprotected) }
    }

    /// The longest answer to a bind that is taken. Tokens of Kerberos are long, and these PDUs are not
    /// fragmented.
    pub(super) const fn longest_bind_reply(&self) -> u16 {
        if self.security.is_some() { MAX_TOKEN_PDU } else { MAX_FRAG }
    }

    /// The kind of the answer that is due: the first call is the bind.
    pub(super) const fn expected_bind_reply(&self) -> PduKind {
        if self.call_id == 1 { PduKind::BIND_ACK } else { PduKind::ALTER_CONTEXT_RESP }
    }

    /// Returns a request as it is sent. None before the end of the logon that protects it.
    pub(super) fn as_agreed(&mut self, pdu: Vec<u8>) -> Option<Vec<u8>> {
        match &mut self.security {
            None => Some(pdu),
            Some(security) => security.protect(pdu, Request::OVERHEAD),
        }
    }

    /// Returns the body of a response in the clear.
    pub(super) fn opened<'a>(
        &mut self,
        header: Header,
        pdu: &[u8],
        body: &'a [u8],
    ) -> Result<Cow<'a, [u8]>, RpcError> {
        let Some(security) = &mut self.security else {
            return match header.auth_length {
                0 => Ok(Cow::Borrowed(body)),
                _ => Err(Malformed::new("RPC response fragments").into()),
            };
        };
        let mut clear =
            security.open(header, pdu, Response::OVERHEAD).ok_or(RpcError::Unprotected)?;
        Ok(Cow::Owned(clear.split_off(Header::SIZE.min(clear.len()))))
    }
}

/// Returns the token of an answer to a bind, and its body before the verifier. The last answer of a
/// server may have no token.
///
/// # Errors
/// Unprotected for another authentication, and for a server that does not protect headers: someone on
/// the network could change them.
pub(super) fn token_of<'a>(
    security: &Security,
    header: Header,
    body: &'a [u8],
) -> Result<(Vec<u8>, &'a [u8]), RpcError> {
    // MS-RPCE 2.2.2.3: in a bind_ack the bit of PENDING_CANCEL means PFC_SUPPORT_HEADER_SIGN.
    if header.kind == PduKind::BIND_ACK && !header.flags.contains(PduFlags::PENDING_CANCEL) {
        return Err(RpcError::Unprotected);
    }
    if header.auth_length == 0 {
        return Ok((Vec::new(), body));
    }
    let verifier = Verifier::parse(header, body)?;
    if !security.expects(&verifier) {
        return Err(RpcError::Unprotected);
    }
    Ok((verifier.token.to_vec(), verifier.body))
}
