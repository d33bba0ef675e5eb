//! Authenticated and sealed RPC, MS-RPCE 2.2.2.11 and 3.3.1.5.2: a token in bind, bind_ack and
//! auth3, then sealed stub data.
//!
//! Some clients change a password only in this way. With NTLM the signature is of the whole PDU
//! before it, sealed in part, whether or not header signing is negotiated.

use super::pdu::Header;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use frevo_wire::codec::{Malformed, Parsed, Reader, Writer};

/// RPC_C_AUTHN_WINNT
const NTLM: u8 = 0x0A;
/// RPC_C_AUTHN_LEVEL_PKT_PRIVACY
const PRIVACY: u8 = 6;
/// Bytes of sec_trailer.
const TRAILER: usize = 8;
/// Bytes of a signature.
const SIGNATURE: usize = 16;
/// Sealed stub data is padded to a multiple of this.
const ALIGNMENT: usize = 16;

/// The outcome of an authentication, before the server has judged it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipeLogon {
    /// The account that the client claims to be.
    pub account: alloc::string::String,
    /// True if the client has proved it.
    pub is_right: bool,
}

/// The server's end of an authentication on a pipe, and the sealing after it.
pub trait PipeSecurity: fmt::Debug + Send + Sync {
    /// Returns the answer to the first token; None ends the exchange.
    fn challenge(&mut self, token: &[u8]) -> Option<Vec<u8>>;
    /// Handles the last token.
    fn authenticate(&mut self, token: &[u8]) -> PipeLogon;
    /// Seals a part of a PDU in place and returns the signature of the PDU; None if the ends have
    /// not agreed on sealing.
    fn seal(&mut self, pdu: &mut [u8], sealed: Range<usize>) -> Option<[u8; 16]>;
    /// Unseals a part of a PDU in place; false if the signature is wrong.
    fn unseal(&mut self, pdu: &mut [u8], sealed: Range<usize>, signature: &[u8]) -> bool;
}

/// sec_trailer and the token of a PDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verifier<'a> {
    /// The body before the padding.
    pub(super) body: &'a [u8],
    /// auth_context_id
    context: u32,
    /// auth_value
    pub(super) token: &'a [u8],
}

/// The parts of a body: its head with the padding, and its verifier.
struct Parts<'a> {
    head: &'a [u8],
    padding: usize,
    context: u32,
    value: &'a [u8],
}

fn parts(header: Header, body: &[u8]) -> Parsed<Parts<'_>> {
    let what = "RPC sec_trailer";
    let value = usize::from(header.auth_length);
    let at = body.len().checked_sub(value.saturating_add(TRAILER)).ok_or(Malformed::new(what))?;
    let (head, rest) = body.split_at_checked(at).ok_or(Malformed::new(what))?;
    let mut r = Reader::new(rest);
    let (kind, level, padding) = (r.u8(what)?, r.u8(what)?, usize::from(r.u8(what)?));
    r.skip(1, what)?;
    let context = r.u32(what)?;
    if (kind, level) != (NTLM, PRIVACY) || padding > head.len() {
        return Err(Malformed::new(what));
    }
    Ok(Parts { head, padding, context, value: r.rest() })
}

impl<'a> Verifier<'a> {
    /// Reads the verifier of a bind or auth3 that asks for NTLM with sealing.
    pub(super) fn parse(header: Header, body: &'a [u8]) -> Parsed<Self> {
        let Parts { head, padding, context, value } = parts(header, body)?;
        let end = head.len().saturating_sub(padding);
        Ok(Self { body: head.get(..end).unwrap_or_default(), context, token: value })
    }
}

/// The security of an association.
#[derive(Debug)]
pub(super) struct Security {
    ends: alloc::boxed::Box<dyn PipeSecurity>,
    context: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The last token has not come.
    Challenged,
    /// The server has not judged the authentication.
    Judged,
    /// Stub data is sealed.
    Sealed,
    Refused,
}

impl Security {
    /// Begins an exchange. Returns it with the answer to the first token.
    pub(super) fn begin(
        mut ends: alloc::boxed::Box<dyn PipeSecurity>,
        verifier: &Verifier<'_>,
    ) -> Option<(Self, Vec<u8>)> {
        let answer = ends.challenge(verifier.token)?;
        let context = verifier.context;
        Some((Self { ends, context, state: State::Challenged }, answer))
    }

    /// Handles the last token. Requests are refused until [`Self::judge`].
    pub(super) fn authenticate(&mut self, verifier: &Verifier<'_>) -> Option<PipeLogon> {
        if self.state != State::Challenged || verifier.context != self.context {
            self.state = State::Refused;
            return None;
        }
        self.state = State::Judged;
        Some(self.ends.authenticate(verifier.token))
    }

    /// Takes the server's verdict on the authentication.
    pub(super) fn judge(&mut self, is_accepted: bool) {
        let is_accepted = is_accepted && self.state == State::Judged;
        self.state = if is_accepted { State::Sealed } else { State::Refused };
    }

    /// True if stub data is sealed, by somebody who has authenticated.
    pub(super) const fn is_sealed(&self) -> bool {
        matches!(self.state, State::Sealed)
    }

    /// Returns the PDU of a request with its stub data, which begins at `plain`, in the clear, and
    /// without its verifier.
    pub(super) fn unseal(&mut self, header: Header, pdu: &[u8], plain: usize) -> Option<Vec<u8>> {
        let Parts { head, padding, context, value } = parts(header, pdu).ok()?;
        if !self.is_sealed() || context != self.context || value.len() != SIGNATURE {
            return None;
        }
        let end = head.len();
        let mut clear = pdu.get(..pdu.len().checked_sub(SIGNATURE)?)?.to_vec();
        let is_right = plain <= end && self.ends.unseal(&mut clear, plain..end, value);
        let end = end.checked_sub(padding).filter(|end| *end >= plain)?;
        clear.truncate(end);
        is_right.then_some(clear)
    }

    /// Seals the stub data of a response, which begins at `plain`.
    pub(super) fn seal(&mut self, mut pdu: Vec<u8>, plain: usize) -> Option<Vec<u8>> {
        let stub = pdu.len().checked_sub(plain)?;
        let padding = stub.next_multiple_of(ALIGNMENT).saturating_sub(stub);
        pdu.resize(pdu.len().saturating_add(padding), 0);
        let end = pdu.len();
        let mut pdu = with_verifier(pdu, padding, self.context, &[0; SIGNATURE]);
        let signed = pdu.len().checked_sub(SIGNATURE)?;
        let (message, signature) = pdu.split_at_mut_checked(signed)?;
        signature.copy_from_slice(&self.ends.seal(message, plain..end)?);
        Some(pdu)
    }

    /// Appends the answer to a token to a bind_ack.
    pub(super) fn with_token(&self, mut pdu: Vec<u8>, token: &[u8]) -> Vec<u8> {
        let padding = pdu.len().next_multiple_of(4).saturating_sub(pdu.len());
        pdu.resize(pdu.len().saturating_add(padding), 0);
        with_verifier(pdu, padding, self.context, token)
    }
}

/// Bytes that a sealed fragment has more than its stub data.
pub(super) const SEALED_OVERHEAD: usize = TRAILER + SIGNATURE + ALIGNMENT;

fn with_verifier(mut pdu: Vec<u8>, padding: usize, context: u32, value: &[u8]) -> Vec<u8> {
    let mut w = Writer::from(&mut pdu, 0);
    w.u8(NTLM).u8(PRIVACY).u8(u8::try_from(padding).unwrap_or(0)).u8(0).u32(context).bytes(value);
    let lengths = [pdu.len(), value.len()].map(|len| u16::try_from(len).unwrap_or(u16::MAX));
    for (field, length) in [8..10, 10..12].into_iter().zip(lengths) {
        if let Some(field) = pdu.get_mut(field) {
            field.copy_from_slice(&length.to_le_bytes());
        }
    }
    pdu
}
