//! A question to a KDC about the keys of one account, RFC 4120 section 3.1: which encryption types
//! and which version the KDC has, and what its clock shows.
//!
//! The question is an AS-REQ for a ticket to the service itself. What comes back is looked at and
//! thrown away: nobody logs on.

use super::asn1::{
    EncryptedData, Fields, VERSION, application, field, flags_field, int32, number, octets,
    octets_field, only, principal_field, sequence, text_field, time_field,
};
use super::message::{KrbError, Ticket};
use super::{EncryptionType, Key, KeyUsage, Principal, ServiceKey};
use crate::der::{self, Elements};
use crate::limits::{MAX_KEY_ANSWER_ITEMS, MAX_KEY_ANSWER_LEN};
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::dtyp::FileTime;

const AS_REQ: u8 = 10;
const AS_REP: u8 = 11;
/// PA-ENC-TIMESTAMP, RFC 4120 section 5.2.7.2.
const ENC_TIMESTAMP: i32 = 2;
/// PA-ETYPE-INFO2, RFC 4120 section 5.2.7.5.
const ETYPE_INFO2: i32 = 19;
/// An hour: long enough for a clock that is wrong, and the ticket is thrown away.
const LIFE_SECONDS: i64 = 3_600;

frevo_wire::open_enum! {
    /// error-code of a KDC's refusal, RFC 4120 section 7.5.9.
    KdcErrorCode(i32) {
        /// KDC_ERR_C_PRINCIPAL_UNKNOWN
        CLIENT_UNKNOWN = 6,
        /// KDC_ERR_S_PRINCIPAL_UNKNOWN
        SERVER_UNKNOWN = 7,
        /// KDC_ERR_ETYPE_NOSUPP
        ETYPE_NOT_SUPPORTED = 14,
        /// KDC_ERR_CLIENT_REVOKED
        CLIENT_REVOKED = 18,
        /// KDC_ERR_KEY_EXPIRED
        KEY_EXPIRED = 23,
        /// KDC_ERR_PREAUTH_FAILED
        PRE_AUTHENTICATION_FAILED = 24,
        /// KDC_ERR_PREAUTH_REQUIRED
        PRE_AUTHENTICATION_REQUIRED = 25,
        /// KRB_AP_ERR_SKEW
        SKEW = 37,
        /// KRB_ERR_RESPONSE_TOO_BIG
        TOO_BIG = 52,
        /// KDC_ERR_WRONG_REALM
        WRONG_REALM = 68,
    }
}

/// The question.
#[derive(Debug, Clone, Copy)]
pub struct KeyQuestion<'a> {
    /// The account whose keys the question is about.
    pub client: &'a Principal,
    /// The service that the ticket is for.
    pub server: &'a Principal,
    /// The types of keys that the answer may have.
    pub etypes: &'a [EncryptionType],
    /// A random number.
    pub nonce: u32,
    /// The time of this machine.
    pub now: FileTime,
}

/// The answer of a KDC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyAnswer {
    /// A refusal.
    Refused {
        /// The reason.
        code: KdcErrorCode,
        /// The time of the KDC's clock.
        time: FileTime,
        /// The numbers of the encryption types of the account's keys that the KDC names.
        etypes: Vec<i32>,
        /// The salt with which the account's keys are made, where the KDC tells it. The keys of AES have
        /// one salt (MS-KILE 3.1.1.2).
        salt: Option<Vec<u8>>,
    },
    /// A ticket.
    Ticket {
        /// The version of the account's key.
        client_kvno: Option<u32>,
        /// The version of the service's key.
        server_kvno: Option<u32>,
        /// The number of the encryption type of the service's key.
        server_etype: i32,
        /// True if one of the given keys opens the ticket.
        is_opened: bool,
        /// True if one of the given keys opens the part for the account: then the KDC has this key of it.
        is_proven: bool,
    },
}

impl KeyQuestion<'_> {
    /// Encodes the question. With a key it proves the key; `confounder` are random bytes then.
    pub fn encode(&self, proof: Option<(&Key, &[u8; 16])>) -> Vec<u8> {
        let (seconds, nanoseconds) = self.now.to_unix();
        let proof = proof.map(|(key, confounder)| {
            let stamp =
                sequence(&[&time_field(0, seconds), &number(1, i64::from(nanoseconds / 1_000))]);
            let cipher = key.encrypt(KeyUsage::AS_REQ_TIMESTAMP, confounder, &stamp);
            let etype = key.etype().number();
            let sealed = EncryptedData { etype, kvno: None, cipher: &cipher }.encode();
            let stamp = sequence(&[&number(1, ENC_TIMESTAMP.into()), &octets_field(2, &sealed)]);
            field(3, &sequence(&[&stamp]))
        });
        let etypes: Vec<Vec<u8>> =
            self.etypes.iter().map(|etype| der::integer_element(etype.number().into())).collect();
        let body = sequence(&[
            &flags_field(0, 0),
            &principal_field(1, self.client),
            &text_field(2, &self.client.realm),
            &principal_field(3, self.server),
            &time_field(5, seconds.saturating_add(LIFE_SECONDS)),
            // Some KDCs read the nonce as a signed number, so only 31 of its 32 random bits are
            // used.
            &number(7, i64::from(self.nonce >> 1)),
            &field(8, &der::element(der::SEQUENCE, &etypes.concat())),
        ]);
        application(
            AS_REQ,
            &[
                &number(1, VERSION),
                &number(2, i64::from(AS_REQ)),
                &proof.unwrap_or_default(),
                &field(4, &body),
            ],
        )
    }
}

impl KeyAnswer {
    /// Reads an answer. `keys` are tried on the ticket.
    ///
    /// # Errors
    /// When it is neither an AS-REP nor a KRB-ERROR.
    pub fn parse(bytes: &[u8], keys: &[ServiceKey]) -> Result<Self, Malformed> {
        if bytes.len() > MAX_KEY_ANSWER_LEN {
            return Err(Malformed::new("KDC's answer: too long"));
        }
        if bytes.first() == Some(&der::application(AS_REP)) {
            return ticket(bytes, keys);
        }
        let error = KrbError::parse(bytes)?;
        let time =
            FileTime::from_unix(error.time.seconds, error.time.microseconds.saturating_mul(1_000));
        // Only some refusals list encryption types in their data. For all others the list is empty.
        let infos = error.data.and_then(|data| infos(data).ok()).unwrap_or_default();
        let salt = infos.iter().find_map(|info| info.salt).map(Vec::from);
        let etypes = infos.iter().map(|info| info.etype).collect();
        Ok(Self::Refused { code: KdcErrorCode(error.code.0), time, etypes, salt })
    }
}

fn ticket(bytes: &[u8], keys: &[ServiceKey]) -> Parsed<KeyAnswer> {
    const WHAT: &str = "AS-REP";
    let mut fields = Fields::application(bytes, AS_REP, WHAT)?;
    fields.constant(0, VERSION, "AS-REP version")?;
    fields.constant(1, i64::from(AS_REP), "AS-REP type")?;
    fields.optional(2, "AS-REP padata")?;
    fields.required(3, "AS-REP crealm")?;
    fields.required(4, "AS-REP cname")?;
    let ticket = Ticket::parse(fields.required(5, WHAT)?)?;
    let sealed = EncryptedData::parse(fields.required(6, WHAT)?, "AS-REP data")?;
    fields.end(WHAT)?;
    let opens = |data: &EncryptedData<'_>, usage| {
        let mut of_type = keys.iter().filter(|key| key.key.etype().number() == data.etype);
        of_type.any(|key| key.key.decrypt(usage, data.cipher).is_some())
    };
    Ok(KeyAnswer::Ticket {
        client_kvno: sealed.kvno,
        server_kvno: ticket.sealed.kvno,
        server_etype: ticket.sealed.etype,
        is_opened: opens(&ticket.sealed, KeyUsage::TICKET),
        is_proven: opens(&sealed, KeyUsage::AS_REP),
    })
}

/// An entry of ETYPE-INFO2, as far as it is looked at.
struct Info<'a> {
    etype: i32,
    salt: Option<&'a [u8]>,
}

/// Reads the entries of ETYPE-INFO2 in METHOD-DATA, RFC 4120 sections 5.2.7 and 5.9.1.
fn infos(data: &[u8]) -> Parsed<Vec<Info<'_>>> {
    const WHAT: &str = "METHOD-DATA";
    let mut found = Vec::new();
    for (kind, value) in list(data, WHAT, |fields| {
        let kind = int32(fields.required(1, WHAT)?, WHAT)?;
        Ok((kind, octets(fields.required(2, WHAT)?, WHAT)?))
    })? {
        if kind == ETYPE_INFO2 {
            found.extend(list(value, "ETYPE-INFO2", |fields| {
                let etype = int32(fields.required(0, "ETYPE-INFO2")?, "ETYPE-INFO2")?;
                let salt = fields.optional(1, "ETYPE-INFO2")?;
                let salt = salt.map(|salt| only(salt, der::GENERAL_STRING, "ETYPE-INFO2 salt"));
                Ok(Info { etype, salt: salt.transpose()? })
            })?);
        }
    }
    Ok(found)
}

/// Reads a SEQUENCE OF SEQUENCE.
fn list<'a, T>(
    bytes: &'a [u8],
    what: &'static str,
    mut item: impl FnMut(&mut Fields<'a>) -> Parsed<T>,
) -> Parsed<Vec<T>> {
    let mut elements = Elements::strict(only(bytes, der::SEQUENCE, what)?);
    let mut items = Vec::new();
    while !elements.is_empty() {
        if items.len() == MAX_KEY_ANSWER_ITEMS {
            return Err(Malformed::new(what));
        }
        items.push(item(&mut Fields::contents(elements.expect(der::SEQUENCE, what)?))?);
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::super::ErrorCode;
    use super::super::message::Moment;
    use super::*;

    fn item(etype: i32) -> Vec<u8> {
        // RC4 has no salt.
        let salt = if etype == 23 { Vec::new() } else { text_field(1, "A.TESThostfiles") };
        sequence(&[&number(0, etype.into()), &salt])
    }

    fn method_data(etypes: &[i32]) -> Vec<u8> {
        let items: Vec<Vec<u8>> = etypes.iter().map(|etype| item(*etype)).collect();
        let info = der::element(der::SEQUENCE, &items.concat());
        sequence(&[
            &sequence(&[&number(1, 2), &octets_field(2, b"")]),
            &sequence(&[&number(1, ETYPE_INFO2.into()), &octets_field(2, &info)]),
        ])
    }

    fn refusal(data: Option<&[u8]>) -> Vec<u8> {
        let time = Moment { seconds: 1_700_000_000, microseconds: 999_999 };
        let server = Principal::ticket_granting("A.TEST", "A.TEST");
        KrbError { code: ErrorCode(25), time, server, client_realm: None, data }.encode()
    }

    #[test]
    fn a_refusal_reports_clock_and_encryption_types() {
        let data = method_data(&[23, 18]);
        let answer = KeyAnswer::parse(&refusal(Some(&data)), &[]).unwrap();
        let KeyAnswer::Refused { code, time, etypes, salt } = answer else { panic!("{answer:?}") };
        assert_eq!(salt.unwrap(), b"A.TESThostfiles");
        assert_eq!(code, KdcErrorCode::PRE_AUTHENTICATION_REQUIRED);
        assert_eq!((time.to_unix(), etypes), ((1_700_000_000, 999_999_000), alloc::vec![23, 18]));
        for data in [None, Some(&b"x"[..]), Some(&[0x30, 0])] {
            let answer = KeyAnswer::parse(&refusal(data), &[]).unwrap();
            assert!(
                matches!(answer, KeyAnswer::Refused { etypes, salt: None, .. } if etypes.is_empty())
            );
        }
    }

    #[test]
    fn a_ticket_is_read_with_its_version_and_opened_by_its_key() {
        let principal = Principal::service("cifs", "box", "A.TEST");
        let key = Key::new(EncryptionType::Aes256Sha1, &[7; 32]).unwrap();
        let cipher = key.encrypt(KeyUsage::TICKET, &[1; 16], b"contents");
        let sealed = EncryptedData { etype: 18, kvno: Some(4), cipher: &cipher };
        let ticket = application(
            1,
            &[
                &number(0, VERSION),
                &text_field(1, "A.TEST"),
                &principal_field(2, &principal),
                &field(3, &sealed.encode()),
            ],
        );
        let own = key.encrypt(KeyUsage::AS_REP, &[2; 16], b"contents");
        let own = EncryptedData { etype: 18, kvno: Some(5), cipher: &own }.encode();
        let answer = application(
            AS_REP,
            &[
                &number(0, VERSION),
                &number(1, AS_REP.into()),
                &text_field(3, "A.TEST"),
                &principal_field(4, &principal),
                &field(5, &ticket),
                &field(6, &own),
            ],
        );
        let with = |key: Key| ServiceKey { principal: principal.clone(), kvno: 4, key };
        let other = Key::new(EncryptionType::Aes256Sha1, &[8; 32]).unwrap();
        for (key, opens) in [(key, true), (other, false)] {
            let read = KeyAnswer::parse(&answer, &[with(key)]).unwrap();
            let expected = KeyAnswer::Ticket {
                client_kvno: Some(5),
                server_kvno: Some(4),
                server_etype: 18,
                is_opened: opens,
                is_proven: opens,
            };
            assert_eq!(read, expected);
        }
        for end in 0..answer.len() {
            assert!(KeyAnswer::parse(&answer[..end], &[]).is_err(), "{end}");
        }
    }

    #[test]
    fn answers_are_bounded() {
        for (count, fits) in [
            (MAX_KEY_ANSWER_ITEMS - 1, true),
            (MAX_KEY_ANSWER_ITEMS, true),
            (MAX_KEY_ANSWER_ITEMS + 1, false),
        ] {
            assert_eq!(infos(&method_data(&alloc::vec![18; count])).is_ok(), fits, "{count}");
        }
        let long = alloc::vec![0; MAX_KEY_ANSWER_LEN + 1];
        assert_eq!(KeyAnswer::parse(&long, &[]).unwrap_err().what, "KDC's answer: too long");
    }
}
