//! The security of an association: sec_trailer of MS-RPCE 2.2.2.11, and the protection of requests
//! and responses, 3.3.1.5.2.2.

use crate::pdu::{Header, PduFlags};
use alloc::vec::Vec;
use frevo_auth::{Parts, Protection};
use frevo_wire::codec::{Malformed, Parsed, Reader, Writer};
use frevo_wire::open_enum;

open_enum! {
    /// auth_type: a security provider, MS-RPCE 2.2.1.1.7.
    AuthType(u8) {
        /// RPC_C_AUTHN_NONE
        NONE = 0,
        /// RPC_C_AUTHN_GSS_NEGOTIATE: SPNEGO.
        NEGOTIATE = 0x09,
        /// RPC_C_AUTHN_WINNT: NTLM without SPNEGO.
        NTLM = 0x0A,
        /// RPC_C_AUTHN_GSS_KERBEROS: Kerberos without SPNEGO.
        KERBEROS = 0x10,
    }
}

open_enum! {
    /// auth_level: the protection of calls, MS-RPCE 2.2.1.1.8. A higher one has all that a lower one
    /// has.
    AuthLevel(u8) {
        /// RPC_C_AUTHN_LEVEL_NONE
        NONE = 1,
        /// RPC_C_AUTHN_LEVEL_CONNECT
        CONNECT = 2,
        /// RPC_C_AUTHN_LEVEL_CALL
        CALL = 3,
        /// RPC_C_AUTHN_LEVEL_PKT
        PACKET = 4,
        /// RPC_C_AUTHN_LEVEL_PKT_INTEGRITY: signed.
        INTEGRITY = 5,
        /// RPC_C_AUTHN_LEVEL_PKT_PRIVACY: sealed.
        PRIVACY = 6,
    }
}

/// Bytes of sec_trailer.
const TRAILER: usize = 8;
/// auth_context_id of a client, which has one authentication.
const CLIENT_CONTEXT: u32 = 1;
/// The stub data of a protected PDU is padded to a multiple of this.
const ALIGNMENT: usize = 16;

/// sec_trailer and the token of a PDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verifier<'a> {
    /// The body before the padding.
    pub(crate) body: &'a [u8],
    /// auth_type
    pub(crate) kind: AuthType,
    /// auth_level
    pub(crate) level: AuthLevel,
    /// auth_context_id
    context: u32,
    /// auth_value
    pub(crate) token: &'a [u8],
    padding: usize,
}

impl<'a> Verifier<'a> {
    /// Reads the verifier at the end of a body, or of a whole PDU.
    pub(crate) fn parse(header: Header, body: &'a [u8]) -> Parsed<Self> {
        let what = "RPC sec_trailer";
        let value = usize::from(header.auth_length);
        let at =
            body.len().checked_sub(value.saturating_add(TRAILER)).ok_or(Malformed::new(what))?;
        let (head, rest) = body.split_at_checked(at).ok_or(Malformed::new(what))?;
        let mut r = Reader::new(rest);
        let kind = AuthType(r.u8(what)?);
        let level = AuthLevel(r.u8(what)?);
        let padding = usize::from(r.u8(what)?);
        r.skip(1, what)?;
        let context = r.u32(what)?;
        let end = head.len().checked_sub(padding).ok_or(Malformed::new(what))?;
        let body = head.get(..end).unwrap_or_default();
        Ok(Self { body, kind, level, context, token: r.rest(), padding })
    }
}

/// The security of one association.
#[derive(Debug)]
pub(crate) struct Security {
    kind: AuthType,
    level: AuthLevel,
    context: u32,
    /// True if headers and trailers are protected, too: the client supports it.
    signs_header: bool,
    state: State,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one for each association")]
enum State {
    /// The last token has not come.
    Exchanging,
    /// Requests and responses are protected, from the level of integrity on. Below it the ends need not
    /// have agreed on a protection.
    Established(Option<Protection>),
    Refused,
}

impl Security {
    /// Begins an authentication with the client's first token.
    pub(crate) const fn begin(verifier: &Verifier<'_>, signs_header: bool) -> Self {
        Self {
            kind: verifier.kind,
            level: verifier.level,
            context: verifier.context,
            signs_header,
            state: State::Exchanging,
        }
    }

    /// Begins the authentication of this end's client, which demands that headers are protected.
    pub(crate) const fn of_client(kind: AuthType, level: AuthLevel) -> Self {
        Self { kind, level, context: CLIENT_CONTEXT, signs_header: true, state: State::Exchanging }
    }

    /// True if the verifier belongs to the authentication, which has not ended.
    pub(crate) fn expects(&self, verifier: &Verifier<'_>) -> bool {
        matches!(self.state, State::Exchanging) && self.is_own(verifier)
    }

    fn is_own(&self, verifier: &Verifier<'_>) -> bool {
        (verifier.kind, verifier.level, verifier.context) == (self.kind, self.level, self.context)
    }

    /// Ends the authentication. False if the ends have not agreed on the level that the client asks
    /// for (MS-RPCE 3.3.1.5.2.2: this is an error of the provider).
    pub(crate) fn establish(&mut self, protection: Option<Protection>) -> bool {
        let is_enough = match (self.level, &protection) {
            // MS-RPCE 3.3.1.5.2.2: at this level no call is protected.
            (AuthLevel::CONNECT, _) => true,
            (_, None) => false,
            (level, Some(protection)) => level != AuthLevel::PRIVACY || protection.can_seal(),
        };
        let is_due = matches!(self.state, State::Exchanging);
        self.state = match is_enough && is_due {
            true => State::Established(protection),
            false => State::Refused,
        };
        is_enough && is_due
    }

    pub(crate) fn refuse(&mut self) {
        self.state = State::Refused;
    }

    pub(crate) const fn is_established(&self) -> bool {
        matches!(self.state, State::Established(_))
    }

    pub(crate) const fn signs_header(&self) -> bool {
        self.signs_header
    }

    /// The level at which calls are protected; NONE before the end of the authentication.
    pub(crate) const fn level(&self) -> AuthLevel {
        if self.is_established() { self.level } else { AuthLevel::NONE }
    }

    /// The level that the authentication is for, also before its end.
    pub(crate) const fn asked_level(&self) -> AuthLevel {
        self.level
    }

    /// Returns a PDU whose stub data begins at `plain` in the clear and without its verifier. None
    /// if it is not protected as agreed.
    pub(crate) fn open(&mut self, header: Header, pdu: &[u8], plain: usize) -> Option<Vec<u8>> {
        if self.level == AuthLevel::CONNECT && header.auth_length == 0 {
            // MS-RPCE 3.3.1.5.2.2: at this level the calls of an authenticated client are as they are.
            return self.is_established().then(|| pdu.to_vec());
        }
        let verifier = Verifier::parse(header, pdu).ok()?;
        let is_own = self.is_own(&verifier);
        if self.level == AuthLevel::CONNECT {
            let is_whole = self.is_established() && is_own && plain <= verifier.body.len();
            return is_whole.then(|| verifier.body.to_vec());
        }
        let State::Established(Some(protection)) = &mut self.state else { return None };
        let body_end = verifier.body.len().checked_add(verifier.padding)?;
        let is_sealed = self.level == AuthLevel::PRIVACY;
        if !is_own
            || plain > verifier.body.len()
            || verifier.token.len() != protection.token_len(is_sealed)
        {
            return None;
        }
        let mut clear = pdu.get(..body_end.checked_add(TRAILER)?)?.to_vec();
        let parts = Parts { body: plain..body_end, with_surroundings: self.signs_header };
        let is_right = match is_sealed {
            true => protection.unseal(&mut clear, &parts, verifier.token),
            false => protection.verify(&clear, &parts, verifier.token),
        };
        clear.truncate(verifier.body.len());
        is_right.then_some(clear)
    }

    /// Protects a PDU whose stub data begins at `plain`.
    pub(crate) fn protect(&mut self, mut pdu: Vec<u8>, plain: usize) -> Option<Vec<u8>> {
        if self.level == AuthLevel::CONNECT {
            return self.is_established().then_some(pdu);
        }
        let is_sealed = self.level == AuthLevel::PRIVACY;
        let State::Established(Some(protection)) = &mut self.state else { return None };
        let stub = pdu.len().checked_sub(plain)?;
        let padding = stub.next_multiple_of(ALIGNMENT).saturating_sub(stub);
        pdu.resize(pdu.len().saturating_add(padding), 0);
        let parts = Parts { body: plain..pdu.len(), with_surroundings: self.signs_header };
        let trailer = Trailer { kind: self.kind, level: self.level, context: self.context };
        trailer.append(&mut pdu, padding, protection.token_len(is_sealed));
        let token = match is_sealed {
            true => protection.seal(&mut pdu, &parts)?,
            false => protection.sign(&pdu, &parts)?,
        };
        pdu.extend_from_slice(&token);
        Some(pdu)
    }

    /// Appends a token to a bind or alter_context, or to the answer to one.
    pub(crate) fn with_token(&self, mut pdu: Vec<u8>, token: &[u8]) -> Vec<u8> {
        let padding = pdu.len().next_multiple_of(4).saturating_sub(pdu.len());
        pdu.resize(pdu.len().saturating_add(padding), 0);
        if self.signs_header
            && let Some(flags) = pdu.get_mut(3)
        {
            // In a bind and its reply, the bit of PENDING_CANCEL means PFC_SUPPORT_HEADER_SIGN: this
            // end signs headers, too.
            *flags |= PduFlags::PENDING_CANCEL.0;
        }
        let trailer = Trailer { kind: self.kind, level: self.level, context: self.context };
        trailer.append(&mut pdu, padding, token.len());
        pdu.extend_from_slice(token);
        pdu
    }

    /// Bytes that a protected fragment has more than its stub data.
    pub(crate) const fn overhead(&self) -> usize {
        let token = match &self.state {
            State::Established(_) if self.level.0 == AuthLevel::CONNECT.0 => return 0,
            State::Established(Some(protection)) => {
                protection.token_len(self.level.0 == AuthLevel::PRIVACY.0)
            }
            State::Established(None) | State::Exchanging | State::Refused => 0,
        };
        TRAILER.saturating_add(ALIGNMENT).saturating_add(token)
    }
}

/// The constant fields of the sec_trailer of an association.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trailer {
    pub(crate) kind: AuthType,
    pub(crate) level: AuthLevel,
    pub(crate) context: u32,
}

impl Trailer {
    /// Appends sec_trailer, and writes the lengths of a PDU that ends with a token of this length.
    pub(crate) fn append(self, pdu: &mut Vec<u8>, padding: usize, token_len: usize) {
        let mut w = Writer::from(pdu, 0);
        w.u8(self.kind.0).u8(self.level.0).u8(u8::try_from(padding).unwrap_or(0)).u8(0);
        w.u32(self.context);
        let whole = pdu.len().saturating_add(token_len);
        let lengths = [whole, token_len].map(|len| u16::try_from(len).unwrap_or(u16::MAX));
        for (field, length) in [8..10, 10..12].into_iter().zip(lengths) {
            if let Some(field) = pdu.get_mut(field) {
                field.copy_from_slice(&length.to_le_bytes());
            }
        }
    }
}
