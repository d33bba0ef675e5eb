//! Messages of the exchanges with a KDC: RFC 4120 sections 5.2.7 and 5.4.

use super::super::asn1::{
    EncryptedData, Fields, Typed, VERSION, application, field, flags, flags_field, int32, number,
    octets, octets_field, only, principal, principal_field, realm, sequence, text_field, time,
    time_field, uint32,
};
use super::super::message::{KrbError, Ticket};
use super::super::{EncryptionType, Principal};
use crate::der::{self, Elements};
use crate::limits::{MAX_KDC_MESSAGE_LEN, MAX_PA_DATA, MAX_TICKET_LEN};
use alloc::vec::Vec;
use frevo_wire::bit_set;
use frevo_wire::codec::{Malformed, Parsed};

pub(super) const AS_REQ: u8 = 10;
pub(super) const AS_REP: u8 = 11;
pub(super) const TGS_REQ: u8 = 12;
pub(super) const TGS_REP: u8 = 13;
const KRB_ERROR: u8 = 30;

frevo_wire::open_enum! {
    /// padata-type, RFC 4120 section 7.5.2 and RFC 6113 section 8.
    PaType(i32) {
        /// PA-TGS-REQ, an AP-REQ with the ticket-granting ticket.
        TGS_REQ = 1,
        /// PA-ENC-TIMESTAMP
        ENC_TIMESTAMP = 2,
        /// PA-ETYPE-INFO2
        ETYPE_INFO2 = 19,
        /// PA-FX-COOKIE, which a client sends back.
        FX_COOKIE = 133,
    }
}

bit_set! {
    /// KDCOptions, RFC 4120 section 5.4.1 and RFC 6806 section 4.
    KdcOptions(u32) {
        /// The KDC may answer with another name or refer to another realm.
        CANONICALIZE = 0x0001_0000,
        /// A renewable ticket is welcome where the wanted life is too long.
        RENEWABLE_OK = 0x0000_0010,
    }
}

/// PA-DATA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PaData<'a> {
    pub(super) kind: PaType,
    pub(super) value: &'a [u8],
}

impl<'a> PaData<'a> {
    /// Reads a SEQUENCE OF PA-DATA, such as METHOD-DATA.
    pub(super) fn parse_list(bytes: &'a [u8]) -> Parsed<Vec<Self>> {
        const WHAT: &str = "PA-DATA";
        let mut elements = Elements::strict(only(bytes, der::SEQUENCE, WHAT)?);
        let mut list = Vec::new();
        while !elements.is_empty() {
            if list.len() == MAX_PA_DATA {
                return Err(Malformed::new(WHAT));
            }
            let mut fields = Fields::contents(elements.expect(der::SEQUENCE, WHAT)?);
            let kind = PaType(int32(fields.required(1, WHAT)?, "padata-type")?);
            let value = octets(fields.required(2, WHAT)?, "padata-value")?;
            fields.end(WHAT)?;
            list.push(Self { kind, value });
        }
        Ok(list)
    }

    pub(super) fn encode_list(list: &[Self]) -> Vec<u8> {
        let encode = |data: &Self| {
            sequence(&[&number(1, i64::from(data.kind.0)), &octets_field(2, data.value)])
        };
        let elements: Vec<Vec<u8>> = list.iter().map(encode).collect();
        der::element(der::SEQUENCE, &elements.concat())
    }
}

/// Returns the value of the first element of a type.
pub(super) fn find<'a>(list: &[PaData<'a>], kind: PaType) -> Option<&'a [u8]> {
    list.iter().find(|data| data.kind == kind).map(|data| data.value)
}

/// ETYPE-INFO2-ENTRY: how a key of the client is made of the password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EtypeInfo {
    /// The assigned number of the encryption type.
    pub(super) etype: i32,
    pub(super) salt: Option<Vec<u8>>,
    /// s2kparams.
    pub(super) parameters: Option<Vec<u8>>,
}

impl EtypeInfo {
    /// Reads ETYPE-INFO2, whose first entry the KDC prefers.
    pub(super) fn parse_list(bytes: &[u8]) -> Parsed<Vec<Self>> {
        const WHAT: &str = "ETYPE-INFO2";
        let mut elements = Elements::strict(only(bytes, der::SEQUENCE, WHAT)?);
        let mut list = Vec::new();
        while !elements.is_empty() {
            if list.len() == MAX_PA_DATA {
                return Err(Malformed::new(WHAT));
            }
            let mut fields = Fields::contents(elements.expect(der::SEQUENCE, WHAT)?);
            let etype = int32(fields.required(0, WHAT)?, "ETYPE-INFO2 etype")?;
            let salt = fields.optional(1, WHAT)?;
            let salt = salt.map(|salt| only(salt, der::GENERAL_STRING, "ETYPE-INFO2 salt"));
            let parameters = fields.optional(2, WHAT)?.map(|data| octets(data, "s2kparams"));
            fields.end(WHAT)?;
            let (salt, parameters) = (salt.transpose()?, parameters.transpose()?);
            let (salt, parameters) = (salt.map(Vec::from), parameters.map(Vec::from));
            list.push(Self { etype, salt, parameters });
        }
        Ok(list)
    }

    /// Encodes ETYPE-INFO2.
    #[cfg(any(test, feature = "forge"))]
    pub(super) fn encode_list(list: &[Self]) -> Vec<u8> {
        let encode = |info: &Self| {
            let salt = info.salt.as_deref().map(|salt| der::element(der::GENERAL_STRING, salt));
            sequence(&[
                &number(0, i64::from(info.etype)),
                &salt.map(|salt| field(1, &salt)).unwrap_or_default(),
                &info.parameters.as_deref().map(|data| octets_field(2, data)).unwrap_or_default(),
            ])
        };
        let elements: Vec<Vec<u8>> = list.iter().map(encode).collect();
        der::element(der::SEQUENCE, &elements.concat())
    }
}

/// KDC-REQ-BODY.
#[derive(Debug, Clone, Copy)]
pub(super) struct Body<'a> {
    pub(super) options: KdcOptions,
    /// cname, only in an AS-REQ.
    pub(super) client: Option<&'a Principal>,
    pub(super) realm: &'a str,
    pub(super) server: &'a Principal,
    /// Seconds since 1970.
    pub(super) till: i64,
    pub(super) nonce: u32,
    pub(super) etypes: &'a [EncryptionType],
}

impl Body<'_> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut etypes = Vec::new();
        for etype in self.etypes {
            etypes.extend(der::integer_element(i64::from(etype.number())));
        }
        sequence(&[
            &flags_field(0, self.options.0),
            &self.client.map(|client| principal_field(1, client)).unwrap_or_default(),
            &text_field(2, self.realm),
            &principal_field(3, self.server),
            &time_field(5, self.till),
            &number(7, i64::from(self.nonce)),
            &field(8, &der::element(der::SEQUENCE, &etypes)),
        ])
    }
}

/// Encodes a KDC-REQ with an encoded body.
pub(super) fn request(kind: u8, padata: &[PaData<'_>], body: &[u8]) -> Vec<u8> {
    let padata =
        if padata.is_empty() { Vec::new() } else { field(3, &PaData::encode_list(padata)) };
    application(kind, &[&number(1, VERSION), &number(2, i64::from(kind)), &padata, &field(4, body)])
}

/// The reply of a KDC.
#[derive(Debug)]
pub(super) enum Reply<'a> {
    /// AS-REP or TGS-REP.
    Ticket(KdcReply<'a>),
    /// KRB-ERROR.
    Error(KrbError<'a>),
}

/// KDC-REP.
#[derive(Debug)]
pub(super) struct KdcReply<'a> {
    pub(super) padata: Vec<PaData<'a>>,
    pub(super) client: Principal,
    /// The encoded Ticket.
    pub(super) ticket: &'a [u8],
    /// The service that the ticket names.
    pub(super) server: Principal,
    pub(super) sealed: EncryptedData<'a>,
}

impl<'a> Reply<'a> {
    /// Reads a KRB-ERROR or the message `kind`.
    pub(super) fn parse(bytes: &'a [u8], kind: u8) -> Parsed<Self> {
        const WHAT: &str = "KDC-REP";
        if bytes.len() > MAX_KDC_MESSAGE_LEN {
            return Err(Malformed::new(WHAT));
        }
        if bytes.first() == Some(&der::application(KRB_ERROR)) {
            return KrbError::parse(bytes).map(Self::Error);
        }
        let mut fields = Fields::application(bytes, kind, WHAT)?;
        fields.constant(0, VERSION, "KDC-REP version")?;
        fields.constant(1, i64::from(kind), "KDC-REP type")?;
        let padata = fields.optional(2, WHAT)?.map(PaData::parse_list).transpose()?;
        let realm = realm(fields.required(3, WHAT)?, "KDC-REP crealm")?;
        let client = principal(fields.required(4, WHAT)?, realm, "KDC-REP cname")?;
        let ticket = fields.required(5, WHAT)?;
        if ticket.len() > MAX_TICKET_LEN {
            return Err(Malformed::new("KDC-REP ticket"));
        }
        let server = Ticket::parse(ticket)?.server;
        let sealed = EncryptedData::parse(fields.required(6, WHAT)?, "KDC-REP data")?;
        fields.end(WHAT)?;
        let padata = padata.unwrap_or_default();
        Ok(Self::Ticket(KdcReply { padata, client, ticket, server, sealed }))
    }
}

/// EncKDCRepPart, RFC 4120 section 5.4.2.
pub(super) struct EncReplyPart<'a> {
    pub(super) key: Typed<'a>,
    pub(super) nonce: u32,
    pub(super) flags: u32,
    /// Seconds since 1970, as all times here.
    pub(super) auth_time: i64,
    pub(super) start_time: Option<i64>,
    pub(super) end_time: i64,
    pub(super) renew_till: Option<i64>,
    pub(super) server: Principal,
}

impl<'a> EncReplyPart<'a> {
    /// The tag of EncTGSRepPart, which some KDCs send in an AS-REP too.
    pub(super) const TGS: u8 = 26;
    const AS: u8 = 25;

    pub(super) fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        const WHAT: &str = "EncKDCRepPart";
        let is_as = bytes.first() == Some(&der::application(Self::AS));
        let tag = if is_as { Self::AS } else { Self::TGS };
        let mut fields = Fields::application(bytes, tag, WHAT)?;
        let key = Typed::parse(fields.required(0, WHAT)?, "KDC reply: key")?;
        fields.required(1, "last-req")?;
        let nonce = uint32(fields.required(2, WHAT)?, "KDC reply: nonce")?;
        fields.optional(3, "key-expiration")?;
        let flags = flags(fields.required(4, WHAT)?, "KDC reply: flags")?;
        let auth_time = time(fields.required(5, WHAT)?, "KDC reply: authtime")?;
        let start_time = fields.optional(6, WHAT)?.map(|t| time(t, "KDC reply: starttime"));
        let end_time = time(fields.required(7, WHAT)?, "KDC reply: endtime")?;
        let renew_till = fields.optional(8, WHAT)?.map(|t| time(t, "KDC reply: renew-till"));
        let realm = realm(fields.required(9, WHAT)?, "KDC reply: srealm")?;
        let server = principal(fields.required(10, WHAT)?, realm, "KDC reply: sname")?;
        fields.optional(11, "caddr")?;
        fields.optional(12, "encrypted-pa-data")?;
        fields.end(WHAT)?;
        let (start_time, renew_till) = (start_time.transpose()?, renew_till.transpose()?);
        Ok(Self { key, nonce, flags, auth_time, start_time, end_time, renew_till, server })
    }

    /// Encodes an EncTGSRepPart.
    #[cfg(any(test, feature = "forge"))]
    pub(super) fn encode(&self) -> Vec<u8> {
        let last = sequence(&[&number(0, 0), &time_field(1, 0)]);
        let time = |n, time: Option<i64>| time.map(|time| time_field(n, time)).unwrap_or_default();
        application(
            Self::TGS,
            &[
                &field(0, &self.key.encode()),
                &field(1, &der::element(der::SEQUENCE, &last)),
                &number(2, i64::from(self.nonce)),
                &flags_field(4, self.flags),
                &time_field(5, self.auth_time),
                &time(6, self.start_time),
                &time_field(7, self.end_time),
                &time(8, self.renew_till),
                &text_field(9, &self.server.realm),
                &principal_field(10, &self.server),
            ],
        )
    }
}
