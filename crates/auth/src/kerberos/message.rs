//! Messages of the AP exchange: RFC 4120 sections 5.3, 5.5 and 5.9.

use super::asn1::{
    EncryptedData, Fields, Typed, VERSION, application, field, flags, flags_field, int32,
    microseconds, number, octets, octets_field, only, principal, principal_field, realm, text,
    text_field, time, time_field, uint32,
};
use super::{Fault, Key, KeyUsage, Principal, TicketFlags};
use crate::der::{self, Elements};
use crate::limits::{MAX_AUTHORIZATION_DATA, MAX_PRINCIPAL_LEN, MAX_TOKEN_LEN};
use alloc::vec::Vec;
use frevo_wire::bit_set;
use frevo_wire::codec::{Malformed, Parsed};
use zeroize::Zeroizing;

const AP_REQ: u8 = 14;
const AP_REP: u8 = 15;
const KRB_ERROR: u8 = 30;

bit_set! {
    /// APOptions, RFC 4120 section 5.5.1.
    ApOptions(u32) {
        /// The ticket is encrypted in the session key of the service's own ticket.
        USE_SESSION_KEY = 0x4000_0000,
        /// The client wants an AP-REP.
        MUTUAL_REQUIRED = 0x2000_0000,
    }
}

frevo_wire::open_enum! {
    /// error-code of a KRB-ERROR, RFC 4120 section 7.5.9.
    ErrorCode(i32) {
        /// KDC_ERR_C_PRINCIPAL_UNKNOWN
        CLIENT_UNKNOWN = 6,
        /// KDC_ERR_S_PRINCIPAL_UNKNOWN
        SERVER_UNKNOWN = 7,
        /// KDC_ERR_NEVER_VALID
        NEVER_VALID = 11,
        /// KDC_ERR_POLICY
        POLICY = 12,
        /// KDC_ERR_BADOPTION
        BAD_OPTION = 13,
        /// KDC_ERR_ETYPE_NOSUPP
        NO_ENCRYPTION_TYPE = 14,
        /// KDC_ERR_TRTYPE_NOSUPP
        TRANSITED_TYPE = 17,
        /// KDC_ERR_CLIENT_REVOKED
        CLIENT_REVOKED = 18,
        /// KDC_ERR_SERVICE_REVOKED
        SERVICE_REVOKED = 19,
        /// KDC_ERR_TGT_REVOKED
        TICKET_REVOKED = 20,
        /// KDC_ERR_KEY_EXPIRED
        KEY_EXPIRED = 23,
        /// KDC_ERR_PREAUTH_FAILED
        PREAUTH_FAILED = 24,
        /// KDC_ERR_PREAUTH_REQUIRED
        PREAUTH_REQUIRED = 25,
        /// KDC_ERR_SERVER_NOMATCH
        SERVER_NO_MATCH = 26,
        /// KDC_ERR_MUST_USE_USER2USER
        MUST_USE_USER_TO_USER = 27,
        /// KDC_ERR_PATH_NOT_ACCEPTED
        PATH_NOT_ACCEPTED = 28,
        /// KDC_ERR_SVC_UNAVAILABLE
        SERVICE_UNAVAILABLE = 29,
        /// KRB_AP_ERR_BAD_INTEGRITY
        BAD_INTEGRITY = 31,
        /// KRB_AP_ERR_TKT_EXPIRED
        TICKET_EXPIRED = 32,
        /// KRB_AP_ERR_TKT_NYV
        TICKET_NOT_YET_VALID = 33,
        /// KRB_AP_ERR_REPEAT
        REPEAT = 34,
        /// KRB_AP_ERR_NOT_US
        NOT_US = 35,
        /// KRB_AP_ERR_BADMATCH
        BAD_MATCH = 36,
        /// KRB_AP_ERR_SKEW
        SKEW = 37,
        /// KRB_AP_ERR_MODIFIED
        MODIFIED = 41,
        /// KRB_AP_ERR_BADKEYVER
        BAD_KEY_VERSION = 44,
        /// KRB_AP_ERR_NOKEY
        NO_KEY = 45,
        /// KRB_AP_ERR_INAPP_CKSUM
        INAPPROPRIATE_CHECKSUM = 50,
        /// KRB_ERR_GENERIC
        GENERIC = 60,
        /// KDC_ERR_WRONG_REALM
        WRONG_REALM = 68,
    }
}

/// A moment of a client's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    /// Seconds since 1970.
    pub(super) seconds: i64,
    /// Microseconds, less than a million.
    pub(super) microseconds: u32,
}

/// Ticket, of which only the service can read the rest.
#[derive(Debug, Clone)]
pub(super) struct Ticket<'a> {
    /// The service that the client asked for. Nothing proves it.
    pub(super) server: Principal,
    /// The part that is encrypted with the service's key.
    pub(super) sealed: EncryptedData<'a>,
}

impl<'a> Ticket<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        const WHAT: &str = "Ticket";
        let mut fields = Fields::application(bytes, 1, WHAT)?;
        fields.constant(0, VERSION, "Ticket version")?;
        let realm = realm(fields.required(1, WHAT)?, "Ticket realm")?;
        let server = principal(fields.required(2, WHAT)?, realm, "Ticket name")?;
        let sealed = EncryptedData::parse(fields.required(3, WHAT)?, "Ticket data")?;
        fields.end(WHAT)?;
        Ok(Self { server, sealed })
    }
}

/// KRB_AP_REQ.
#[derive(Debug, Clone)]
pub(super) struct ApReq<'a> {
    pub(super) options: ApOptions,
    pub(super) ticket: Ticket<'a>,
    pub(super) authenticator: EncryptedData<'a>,
}

impl<'a> ApReq<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        const WHAT: &str = "AP-REQ";
        if bytes.len() > MAX_TOKEN_LEN {
            return Err(Malformed::new(WHAT));
        }
        let mut fields = Fields::application(bytes, AP_REQ, WHAT)?;
        fields.constant(0, VERSION, "AP-REQ version")?;
        fields.constant(1, i64::from(AP_REQ), "AP-REQ type")?;
        let options = ApOptions(flags(fields.required(2, WHAT)?, "AP-REQ options")?);
        let ticket = Ticket::parse(fields.required(3, WHAT)?)?;
        let authenticator = EncryptedData::parse(fields.required(4, WHAT)?, "AP-REQ data")?;
        fields.end(WHAT)?;
        Ok(Self { options, ticket, authenticator })
    }

    /// Encodes an AP-REQ with an encoded Ticket.
    pub(super) fn encode(
        options: ApOptions,
        ticket: &[u8],
        authenticator: &EncryptedData<'_>,
    ) -> Vec<u8> {
        application(
            AP_REQ,
            &[
                &number(0, VERSION),
                &number(1, i64::from(AP_REQ)),
                &flags_field(2, options.0),
                &field(3, ticket),
                &field(4, &authenticator.encode()),
            ],
        )
    }
}

/// EncTicketPart, RFC 4120 section 5.3.
pub(super) struct EncTicketPart<'a> {
    pub(super) flags: TicketFlags,
    /// The key that client and service share.
    pub(super) key: Typed<'a>,
    pub(super) client: Principal,
    /// True if the ticket passed realms that its KDC lists.
    pub(super) has_transited: bool,
    /// Seconds since 1970, as all times here.
    pub(super) auth_time: i64,
    pub(super) start_time: Option<i64>,
    pub(super) end_time: i64,
    pub(super) authorization_data: Option<&'a [u8]>,
}

impl<'a> EncTicketPart<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        const WHAT: &str = "EncTicketPart";
        let mut fields = Fields::application(bytes, 3, WHAT)?;
        let flags = TicketFlags(flags(fields.required(0, WHAT)?, "ticket flags")?);
        let key = Typed::parse(fields.required(1, WHAT)?, "session key")?;
        let realm = realm(fields.required(2, WHAT)?, "crealm")?;
        let client = principal(fields.required(3, WHAT)?, realm, "cname")?;
        let transited = Typed::parse(fields.required(4, WHAT)?, "transited")?;
        let auth_time = time(fields.required(5, WHAT)?, "authtime")?;
        let start_time = fields.optional(6, WHAT)?.map(|t| time(t, "starttime")).transpose()?;
        let end_time = time(fields.required(7, WHAT)?, "endtime")?;
        fields.optional(8, WHAT)?.map(|t| time(t, "renew-till")).transpose()?;
        // Deviation: RFC 4120 section 3.2.3 compares caddr with the client's address. The server
        // ignores caddr, because KDCs no longer send addresses (NAT changes them) and clients may
        // ask for a ticket without any.
        fields.optional(9, "caddr")?;
        let authorization_data = fields.optional(10, "authorization-data")?;
        fields.end(WHAT)?;
        let has_transited = !transited.bytes.is_empty();
        Ok(Self {
            flags,
            key,
            client,
            has_transited,
            auth_time,
            start_time,
            end_time,
            authorization_data,
        })
    }
}

/// Authenticator, RFC 4120 section 5.5.1.
pub(super) struct Authenticator<'a> {
    pub(super) client: Principal,
    pub(super) checksum: Option<Typed<'a>>,
    pub(super) time: Moment,
    pub(super) subkey: Option<Typed<'a>>,
    pub(super) sequence: Option<u32>,
    pub(super) authorization_data: Option<&'a [u8]>,
}

impl<'a> Authenticator<'a> {
    const NUMBER: u8 = 2;

    pub(super) fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        const WHAT: &str = "Authenticator";
        let mut fields = Fields::application(bytes, Self::NUMBER, WHAT)?;
        fields.constant(0, VERSION, "Authenticator version")?;
        let realm = realm(fields.required(1, WHAT)?, "Authenticator crealm")?;
        let client = principal(fields.required(2, WHAT)?, realm, "Authenticator cname")?;
        let checksum = fields.optional(3, WHAT)?.map(|c| Typed::parse(c, "cksum")).transpose()?;
        let microseconds = microseconds(fields.required(4, WHAT)?, "cusec")?;
        let seconds = time(fields.required(5, WHAT)?, "ctime")?;
        let subkey = fields.optional(6, WHAT)?.map(|k| Typed::parse(k, "subkey")).transpose()?;
        let sequence = fields.optional(7, WHAT)?.map(|n| uint32(n, "seq-number")).transpose()?;
        let authorization_data = fields.optional(8, "authorization-data")?;
        fields.end(WHAT)?;
        let time = Moment { seconds, microseconds };
        Ok(Self { client, checksum, time, subkey, sequence, authorization_data })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let optional = |field: Option<Vec<u8>>| field.unwrap_or_default();
        application(
            Self::NUMBER,
            &[
                &number(0, VERSION),
                &text_field(1, &self.client.realm),
                &principal_field(2, &self.client),
                &optional(self.checksum.map(|checksum| field(3, &checksum.encode()))),
                &number(4, i64::from(self.time.microseconds)),
                &time_field(5, self.time.seconds),
                &optional(self.subkey.map(|key| field(6, &key.encode()))),
                &optional(self.sequence.map(|sequence| number(7, i64::from(sequence)))),
                &optional(self.authorization_data.map(|data| field(8, data))),
            ],
        )
    }
}

/// KRB_AP_REP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ApRep<'a>(pub(super) EncryptedData<'a>);

impl<'a> ApRep<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        const WHAT: &str = "AP-REP";
        let mut fields = Fields::application(bytes, AP_REP, WHAT)?;
        fields.constant(0, VERSION, "AP-REP version")?;
        fields.constant(1, i64::from(AP_REP), "AP-REP type")?;
        let sealed = EncryptedData::parse(fields.required(2, WHAT)?, "AP-REP data")?;
        fields.end(WHAT)?;
        Ok(Self(sealed))
    }

    /// Decrypts the EncAPRepPart. Fails for another key, or another type of key.
    pub(super) fn open(&self, session_key: &Key) -> Result<Zeroizing<Vec<u8>>, Fault> {
        let Self(sealed) = self;
        session_key
            .decrypt(KeyUsage::AP_REP, sealed.cipher)
            .filter(|_| sealed.etype == session_key.etype().number())
            .ok_or(Fault::WrongProof)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let sealed = field(2, &self.0.encode());
        application(AP_REP, &[&number(0, VERSION), &number(1, i64::from(AP_REP)), &sealed])
    }
}

/// EncAPRepPart, RFC 4120 section 5.5.2.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct EncApRepPart<'a> {
    pub(super) time: Moment,
    pub(super) subkey: Option<Typed<'a>>,
    pub(super) sequence: Option<u32>,
}

impl<'a> EncApRepPart<'a> {
    const NUMBER: u8 = 27;

    pub(super) fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        const WHAT: &str = "EncAPRepPart";
        let mut fields = Fields::application(bytes, Self::NUMBER, WHAT)?;
        let seconds = time(fields.required(0, WHAT)?, "ctime")?;
        let microseconds = microseconds(fields.required(1, WHAT)?, "cusec")?;
        let subkey = fields.optional(2, WHAT)?.map(|k| Typed::parse(k, "subkey")).transpose()?;
        let sequence = fields.optional(3, WHAT)?.map(|n| uint32(n, "seq-number")).transpose()?;
        fields.end(WHAT)?;
        Ok(Self { time: Moment { seconds, microseconds }, subkey, sequence })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        application(
            Self::NUMBER,
            &[
                &time_field(0, self.time.seconds),
                &number(1, i64::from(self.time.microseconds)),
                &self.subkey.map(|key| field(2, &key.encode())).unwrap_or_default(),
                &self.sequence.map(|n| number(3, i64::from(n))).unwrap_or_default(),
            ],
        )
    }
}

/// KRB-ERROR, RFC 4120 section 5.9.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KrbError<'a> {
    pub(super) code: ErrorCode,
    /// The sender's clock.
    pub(super) time: Moment,
    /// The client's realm, where a KDC refers to it.
    pub(super) client_realm: Option<&'a str>,
    /// The service that the client asked for.
    pub(super) server: Principal,
    /// e-data.
    pub(super) data: Option<&'a [u8]>,
}

impl<'a> KrbError<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        const WHAT: &str = "KRB-ERROR";
        let mut fields = Fields::application(bytes, KRB_ERROR, WHAT)?;
        fields.constant(0, VERSION, "KRB-ERROR version")?;
        fields.constant(1, i64::from(KRB_ERROR), "KRB-ERROR type")?;
        fields.optional(2, "KRB-ERROR ctime")?;
        fields.optional(3, "KRB-ERROR cusec")?;
        let seconds = time(fields.required(4, WHAT)?, "stime")?;
        let microseconds = microseconds(fields.required(5, WHAT)?, "susec")?;
        let code = ErrorCode(int32(fields.required(6, WHAT)?, "error-code")?);
        let client_realm = fields.optional(7, WHAT)?.map(|realm| text(realm, "KRB-ERROR crealm"));
        let client_realm = client_realm.transpose()?.filter(|realm| !realm.is_empty());
        if client_realm.is_some_and(|realm| realm.len() > MAX_PRINCIPAL_LEN) {
            return Err(Malformed::new("KRB-ERROR crealm"));
        }
        fields.optional(8, "KRB-ERROR cname")?;
        let realm = realm(fields.required(9, WHAT)?, "KRB-ERROR realm")?;
        let server = principal(fields.required(10, WHAT)?, realm, "KRB-ERROR sname")?;
        fields.optional(11, "KRB-ERROR e-text")?;
        let data = fields.optional(12, WHAT)?.map(|data| octets(data, "e-data")).transpose()?;
        fields.end(WHAT)?;
        let time = Moment { seconds, microseconds };
        Ok(Self { code, time, client_realm, server, data })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        application(
            KRB_ERROR,
            &[
                &number(0, VERSION),
                &number(1, i64::from(KRB_ERROR)),
                &time_field(4, self.time.seconds),
                &number(5, i64::from(self.time.microseconds)),
                &number(6, i64::from(self.code.0)),
                &self.client_realm.map(|realm| text_field(7, realm)).unwrap_or_default(),
                &text_field(9, &self.server.realm),
                &principal_field(10, &self.server),
                &self.data.map(|data| octets_field(12, data)).unwrap_or_default(),
            ],
        )
    }
}

/// Reads AuthorizationData, RFC 4120 section 5.2.6: pairs of ad-type and ad-data.
pub(super) fn authorization_data(bytes: &[u8]) -> Parsed<Vec<(i32, &[u8])>> {
    const WHAT: &str = "AuthorizationData";
    let mut list = Elements::strict(only(bytes, der::SEQUENCE, WHAT)?);
    let mut elements = Vec::new();
    while !list.is_empty() {
        if elements.len() == MAX_AUTHORIZATION_DATA {
            return Err(Malformed::new(WHAT));
        }
        let mut fields = Fields::contents(list.expect(der::SEQUENCE, WHAT)?);
        let kind = int32(fields.required(0, WHAT)?, "ad-type")?;
        let data = octets(fields.required(1, WHAT)?, "ad-data")?;
        fields.end(WHAT)?;
        elements.push((kind, data));
    }
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorization_data_has_so_many_elements() {
        let element = super::super::asn1::sequence(&[&number(0, -7), &octets_field(1, b"x")]);
        for (count, fits) in [
            (0, true),
            (MAX_AUTHORIZATION_DATA - 1, true),
            (MAX_AUTHORIZATION_DATA, true),
            (MAX_AUTHORIZATION_DATA + 1, false),
        ] {
            let data = super::super::asn1::sequence(&alloc::vec![&*element; count]);
            let read = authorization_data(&data);
            assert_eq!(read.is_ok(), fits, "{count}");
            if let Ok(read) = read {
                assert_eq!(read, alloc::vec![(-7, &b"x"[..]); count]);
            }
        }
    }

    #[test]
    fn an_error_comes_back() {
        let error = KrbError {
            code: ErrorCode::SKEW,
            time: Moment { seconds: 1_700_000_000, microseconds: 999_999 },
            client_realm: Some("OTHER.TEST"),
            server: Principal::service("cifs", "files", "FREVO.TEST"),
            data: Some(b"data"),
        };
        let bytes = error.encode();
        assert_eq!(KrbError::parse(&bytes).unwrap(), error);
        for cut in 0..bytes.len() {
            assert!(KrbError::parse(&bytes[..cut]).is_err(), "{cut}");
        }
    }
}
