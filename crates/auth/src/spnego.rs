//! SPNEGO tokens (RFC 4178 4.2 and MS-SPNG 2.2.1): a list of mechanisms around the tokens of one of
//! them.

use crate::der::{self, Elements, context};
use crate::limits::{MAX_MECH_COUNT, MAX_MECH_LIST_LEN, MAX_TOKEN_LEN};
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed};

/// An object identifier: the contents octets of its encoding.
pub type Oid = &'static [u8];

/// 1.3.6.1.5.5.2, SPNEGO itself.
pub const SPNEGO: Oid = &[0x2b, 6, 1, 5, 5, 2];
/// 1.3.6.1.4.1.311.2.2.10, NTLM.
pub const NTLM: Oid = &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 10];
/// 1.2.840.113554.1.2.2, Kerberos 5.
pub const KERBEROS: Oid = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2];
/// 1.2.840.48018.1.2.2, the spelling of Kerberos 5 in Windows 2000 (MS-SPNG 3.1.5.2).
pub const MS_KERBEROS: Oid = &[0x2a, 0x86, 0x48, 0x82, 0xf7, 0x12, 1, 2, 2];

/// The value of hintName, MS-SPNG 3.2.5.2.
const HINT_NAME: &[u8] = b"not_defined_in_RFC4178@please_ignore";

frevo_wire::open_enum! {
    /// negState, RFC 4178 4.2.2.
    NegState(u8) {
        /// The sender has finished.
        ACCEPT_COMPLETED = 0,
        /// A further token is needed.
        ACCEPT_INCOMPLETE = 1,
        /// The sender refuses.
        REJECT = 2,
        /// A further token is needed, and mechListMIC must be exchanged.
        REQUEST_MIC = 3,
    }
}

/// MechTypeList, kept as its encoding, because mechListMIC covers these bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MechList {
    encoded: Vec<u8>,
}

impl MechList {
    /// Encodes a list of mechanisms.
    pub fn of(mechanisms: &[Oid]) -> Self {
        let mut list = Vec::with_capacity(16);
        for oid in mechanisms {
            der::put(&mut list, der::OID, oid);
        }
        Self { encoded: der::element(der::SEQUENCE, &list) }
    }

    fn parse(encoded: &[u8]) -> Parsed<Self> {
        const WHAT: &str = "MechTypeList";
        if encoded.len() > MAX_MECH_LIST_LEN {
            return Err(Malformed::new(WHAT));
        }
        let mut list = Elements::new(der::only(encoded, der::SEQUENCE, WHAT)?);
        let mut count = 0usize;
        while !list.is_empty() {
            list.expect(der::OID, WHAT)?;
            count = count.saturating_add(1);
        }
        if count == 0 || count > MAX_MECH_COUNT {
            return Err(Malformed::new(WHAT));
        }
        Ok(Self { encoded: encoded.to_vec() })
    }

    /// Returns the DER encoding of the list.
    pub fn as_bytes(&self) -> &[u8] {
        &self.encoded
    }

    /// Returns the index of `oid` in the list, from 0; 0 is the sender's preference.
    pub fn position(&self, oid: Oid) -> Option<usize> {
        let mut list =
            Elements::new(&self.encoded).expect(der::SEQUENCE, "").map(Elements::new).ok()?;
        let mut position = 0usize;
        while let Ok(value) = list.expect(der::OID, "") {
            if value == oid {
                return Some(position);
            }
            position = position.saturating_add(1);
        }
        None
    }
}

/// NegTokenInit, or from a server NegTokenInit2.
#[derive(Debug, Clone)]
pub struct NegTokenInit<'a> {
    /// mechTypes.
    pub mechanisms: MechList,
    /// mechToken: the first token of the first mechanism.
    pub token: Option<&'a [u8]>,
    /// mechListMIC.
    pub mic: Option<&'a [u8]>,
}

impl<'a> NegTokenInit<'a> {
    /// Parses the token, with the GSS-API frame of RFC 2743 3.1 around it.
    pub fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        const WHAT: &str = "NegTokenInit";
        if bytes.len() > MAX_TOKEN_LEN {
            return Err(Malformed::new("token: too long"));
        }
        let mut frame = Elements::new(der::only(bytes, der::APPLICATION_0, "GSS-API token")?);
        if frame.expect(der::OID, "GSS-API token")? != SPNEGO {
            return Err(Malformed::new("GSS-API token: not SPNEGO"));
        }
        let choice = frame.expect(context(0), WHAT)?;
        frame.end(WHAT)?;
        let mut fields = Elements::new(der::only(choice, der::SEQUENCE, WHAT)?);
        let mechanisms = MechList::parse(fields.expect(context(0), "mechTypes")?)?;
        fields.optional(context(1), "reqFlags")?;
        let token = octets(fields.optional(context(2), "mechToken")?, "mechToken")?;
        // Field [3] is mechListMIC (RFC 4178) or negHints (MS-SPNG 2.2.1). negHints is a SEQUENCE,
        // and then mechListMIC is field [4].
        let third = fields.optional(context(3), WHAT)?;
        let mic = match third {
            Some(value) if value.first() == Some(&der::SEQUENCE) => {
                octets(fields.optional(context(4), "mechListMIC")?, "mechListMIC")?
            }
            third => octets(third, "mechListMIC")?,
        };
        fields.end(WHAT)?;
        Ok(Self { mechanisms, token, mic })
    }

    /// Encodes the client's token.
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        der::put(&mut fields, context(0), self.mechanisms.as_bytes());
        if let Some(token) = self.token {
            der::put(&mut fields, context(2), &der::element(der::OCTET_STRING, token));
        }
        if let Some(mic) = self.mic {
            der::put(&mut fields, context(3), &der::element(der::OCTET_STRING, mic));
        }
        framed(&fields)
    }
}

/// Returns the server's NegTokenInit2 for the NEGOTIATE response (MS-SPNG 3.2.5.2).
pub fn server_hint(mechanisms: &MechList) -> Vec<u8> {
    let mut fields = Vec::new();
    der::put(&mut fields, context(0), mechanisms.as_bytes());
    let name = der::element(context(0), &der::element(der::GENERAL_STRING, HINT_NAME));
    der::put(&mut fields, context(3), &der::element(der::SEQUENCE, &name));
    framed(&fields)
}

/// NegTokenResp, from either side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NegTokenResp<'a> {
    /// negState.
    pub state: Option<NegState>,
    /// supportedMech, as contents octets.
    pub mechanism: Option<&'a [u8]>,
    /// responseToken.
    pub token: Option<&'a [u8]>,
    /// mechListMIC.
    pub mic: Option<&'a [u8]>,
}

impl<'a> NegTokenResp<'a> {
    /// Parses the token.
    pub fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        const WHAT: &str = "NegTokenResp";
        if bytes.len() > MAX_TOKEN_LEN {
            return Err(Malformed::new("token: too long"));
        }
        let choice = der::only(bytes, context(1), WHAT)?;
        let mut fields = Elements::new(der::only(choice, der::SEQUENCE, WHAT)?);
        let state = match fields.optional(context(0), "negState")? {
            None => None,
            Some(value) => match der::only(value, der::ENUMERATED, "negState")? {
                &[state] => Some(NegState(state)),
                _ => return Err(Malformed::new("negState")),
            },
        };
        let mechanism = match fields.optional(context(1), "supportedMech")? {
            None => None,
            Some(value) => Some(der::only(value, der::OID, "supportedMech")?),
        };
        let token = octets(fields.optional(context(2), "responseToken")?, "responseToken")?;
        let mic = octets(fields.optional(context(3), "mechListMIC")?, "mechListMIC")?;
        fields.end(WHAT)?;
        Ok(Self { state, mechanism, token, mic })
    }

    /// Encodes the token.
    pub fn encode(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        if let Some(state) = self.state {
            der::put(&mut fields, context(0), &der::element(der::ENUMERATED, &[state.0]));
        }
        if let Some(oid) = self.mechanism {
            der::put(&mut fields, context(1), &der::element(der::OID, oid));
        }
        if let Some(token) = self.token {
            der::put(&mut fields, context(2), &der::element(der::OCTET_STRING, token));
        }
        if let Some(mic) = self.mic {
            der::put(&mut fields, context(3), &der::element(der::OCTET_STRING, mic));
        }
        der::element(context(1), &der::element(der::SEQUENCE, &fields))
    }
}

fn octets<'a>(value: Option<&'a [u8]>, what: &'static str) -> Parsed<Option<&'a [u8]>> {
    value.map(|value| der::only(value, der::OCTET_STRING, what)).transpose()
}

fn framed(fields: &[u8]) -> Vec<u8> {
    let mut token = der::element(der::OID, SPNEGO);
    der::put(&mut token, context(0), &der::element(der::SEQUENCE, fields));
    der::element(der::APPLICATION_0, &token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{vec, vec::Vec};

    #[test]
    fn the_server_hint_byte_for_byte() {
        let mut expected = vec![
            0x60, 0x48, 0x06, 0x06, 0x2b, 6, 1, 5, 5, 2, 0xa0, 0x3e, 0x30, 0x3c, 0xa0, 0x0e, 0x30,
            0x0c, 0x06, 0x0a, 0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 10, 0xa3, 0x2a, 0x30, 0x28, 0xa0,
            0x26, 0x1b, 0x24,
        ];
        expected.extend(HINT_NAME);
        let hint = server_hint(&MechList::of(&[NTLM]));
        assert_eq!(hint, expected);
        let read = NegTokenInit::parse(&hint).unwrap();
        assert_eq!(read.mechanisms.position(NTLM), Some(0));
        assert!(read.token.is_none() && read.mic.is_none());
    }

    #[test]
    fn the_example_of_ms_spng_4() {
        // The list offers NEGOEX and NTLM, as Windows does. The mechToken has 0xfe bytes of zero.
        let mut bytes = vec![
            0x60, 0x82, 0x01, 0x5d, 0x06, 0x06, 0x2b, 6, 1, 5, 5, 2, 0xa0, 0x82, 0x01, 0x51, 0x30,
            0x82, 0x01, 0x4d, 0xa0, 0x1a, 0x30, 0x18, 0x06, 0x0a, 0x2b, 6, 1, 4, 1, 0x82, 0x37, 2,
            2, 0x1e, 0x06, 0x0a, 0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 0x0a, 0xa2, 0x82, 0x01, 0x01,
            0x04, 0x81, 0xfe,
        ];
        bytes.extend([0; 0xfe]);
        bytes.extend([0xa3, 0x2a, 0x30, 0x28, 0xa0, 0x26, 0x1b, 0x24]);
        bytes.extend(HINT_NAME);
        let read = NegTokenInit::parse(&bytes).unwrap();
        assert_eq!(read.mechanisms.position(NTLM), Some(1));
        assert_eq!(read.mechanisms.position(KERBEROS), None);
        assert_eq!(read.token.unwrap().len(), 0xfe);
        assert!(read.mic.is_none());
    }

    #[test]
    fn init_and_resp_come_back() {
        let init = NegTokenInit {
            mechanisms: MechList::of(&[MS_KERBEROS, KERBEROS, NTLM]),
            token: Some(b"token"),
            mic: Some(b"mic"),
        };
        let bytes = init.encode();
        let read = NegTokenInit::parse(&bytes).unwrap();
        assert_eq!(read.mechanisms, init.mechanisms);
        assert_eq!((read.token, read.mic), (init.token, init.mic));
        for state in [None, Some(NegState::REQUEST_MIC)] {
            for mechanism in [None, Some(NTLM)] {
                for token in [None, Some(&b"t"[..])] {
                    for mic in [None, Some(&b"m"[..])] {
                        let resp = NegTokenResp { state, mechanism, token, mic };
                        assert_eq!(NegTokenResp::parse(&resp.encode()).unwrap(), resp);
                    }
                }
            }
        }
    }

    #[test]
    fn cut_anywhere_is_malformed() {
        let init = NegTokenInit { mechanisms: MechList::of(&[NTLM]), token: Some(b"t"), mic: None };
        let resp = NegTokenResp {
            state: Some(NegState::ACCEPT_INCOMPLETE),
            mechanism: Some(NTLM),
            token: Some(b"t"),
            mic: Some(b"m"),
        };
        let (init, resp) = (init.encode(), resp.encode());
        for cut in 0..init.len() {
            assert!(NegTokenInit::parse(&init[..cut]).is_err(), "init cut at {cut}");
        }
        for cut in 0..resp.len() {
            assert!(NegTokenResp::parse(&resp[..cut]).is_err(), "resp cut at {cut}");
        }
    }

    #[test]
    fn the_list_of_mechanisms_is_bounded_and_not_empty() {
        let of = |n: usize| -> Vec<u8> {
            let mechanisms = MechList::of(&vec![NTLM; n]);
            NegTokenInit { mechanisms, token: None, mic: None }.encode()
        };
        for (n, taken) in [
            (0, false),
            (1, true),
            (MAX_MECH_COUNT - 1, true),
            (MAX_MECH_COUNT, true),
            (MAX_MECH_COUNT + 1, false),
        ] {
            assert_eq!(NegTokenInit::parse(&of(n)).is_ok(), taken, "{n}");
        }
    }

    #[test]
    fn the_length_of_the_list_is_bounded() {
        for (length, taken) in [
            (MAX_MECH_LIST_LEN - 1, true),
            (MAX_MECH_LIST_LEN, true),
            (MAX_MECH_LIST_LEN + 1, false),
        ] {
            // The list is eight bytes longer than the identifier, because it adds two tags, each
            // with a length field of three bytes.
            let mechanisms = MechList::of(&[vec![0x2b; length - 8].leak()]);
            assert_eq!(mechanisms.as_bytes().len(), length);
            let init = NegTokenInit { mechanisms, token: None, mic: None }.encode();
            assert_eq!(NegTokenInit::parse(&init).is_ok(), taken, "{length}");
        }
    }

    #[test]
    fn another_gss_mechanism_and_fields_out_of_order_are_malformed() {
        let mut krb5 = der::element(der::OID, KERBEROS);
        krb5.extend(b"\x01\x00ap-req");
        assert!(NegTokenInit::parse(&der::element(der::APPLICATION_0, &krb5)).is_err());
        let swapped = [
            der::element(context(2), &der::element(der::OCTET_STRING, b"t")),
            der::element(context(0), &der::element(der::ENUMERATED, &[1])),
        ]
        .concat();
        let resp = der::element(context(1), &der::element(der::SEQUENCE, &swapped));
        assert!(NegTokenResp::parse(&resp).is_err());
    }
}
