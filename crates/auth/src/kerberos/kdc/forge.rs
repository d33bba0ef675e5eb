//! A KDC without a network, for tests and fuzzing.

use super::super::asn1::{
    EncryptedData, Fields, Typed, VERSION, application, field, int32, number, only, principal,
    principal_field, realm, text_field, time, uint32,
};
use super::super::forge::{Forge, known_key};
use super::super::message::{ApReq, Authenticator, EncTicketPart, ErrorCode, KrbError, Moment};
use super::super::{
    EncryptionType, Key, KeyUsage, Principal, ServiceKey, ServiceTicket, TicketFlags,
};
use super::messages::{
    AS_REP, AS_REQ, EncReplyPart, EtypeInfo, PaData, PaType, TGS_REP, TGS_REQ, find,
};
use crate::der;
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::dtyp::FileTime;

/// A KDC of one realm, with keys that everybody knows.
#[derive(Debug, Clone)]
pub struct ForgedKdc {
    /// The realm.
    pub realm: String,
    /// The encryption type of all keys.
    pub etype: EncryptionType,
    /// Users and their passwords.
    pub users: Vec<(String, String)>,
    /// Services and their keys.
    pub services: Vec<ServiceKey>,
    /// The realms that a service's host may be in: the end of the host's name, and the realm.
    pub trusts: Vec<(String, String)>,
    /// The KDC's clock.
    pub now: FileTime,
    /// Seconds for which tickets are valid.
    pub life: i64,
    /// True if users must prove their key.
    pub wants_proof: bool,
}

/// A request, as far as the KDC looks at it.
struct Request<'a> {
    padata: Vec<PaData<'a>>,
    body: &'a [u8],
    client: Option<Principal>,
    server: Principal,
    nonce: u32,
}

impl<'a> Request<'a> {
    fn parse(bytes: &'a [u8], kind: u8) -> Parsed<Self> {
        const WHAT: &str = "KDC-REQ";
        let mut fields = Fields::application(bytes, kind, WHAT)?;
        fields.constant(1, VERSION, WHAT)?;
        fields.constant(2, i64::from(kind), WHAT)?;
        let padata = fields.optional(3, WHAT)?.map(PaData::parse_list).transpose()?;
        let body = fields.required(4, WHAT)?;
        fields.end(WHAT)?;
        let mut fields = Fields::sequence(body, WHAT)?;
        fields.required(0, WHAT)?;
        let client = fields.optional(1, WHAT)?;
        let of = realm(fields.required(2, WHAT)?, WHAT)?;
        let client = client.map(|client| principal(client, of.clone(), WHAT)).transpose()?;
        let server = principal(fields.required(3, WHAT)?, of, WHAT)?;
        time(fields.required(5, WHAT)?, WHAT)?;
        let nonce = uint32(fields.required(7, WHAT)?, WHAT)?;
        let etypes = only(fields.required(8, WHAT)?, der::SEQUENCE, WHAT)?;
        int32(etypes.get(..3).unwrap_or_default(), WHAT)?;
        fields.end(WHAT)?;
        Ok(Self { padata: padata.unwrap_or_default(), body, client, server, nonce })
    }
}

impl ForgedKdc {
    /// Makes the KDC of `realm`, with the user `ann`, whose password is `secret`, and the service
    /// `cifs/files` with the key of [`Forge::new`].
    pub fn new(realm: &str, etype: EncryptionType, now: FileTime) -> Self {
        let principal = Principal::service("cifs", "files", realm);
        Self {
            realm: realm.into(),
            etype,
            users: [("ann".into(), "secret".into())].into(),
            services: [ServiceKey { principal, kvno: 3, key: known_key(etype, 1) }].into(),
            trusts: Vec::new(),
            now,
            life: 36_000,
            wants_proof: true,
        }
    }

    /// Answers a request; a malformed one with KRB_ERR_GENERIC.
    pub fn answer(&self, request: &[u8]) -> Vec<u8> {
        let answer = match request.first() {
            Some(tag) if *tag == der::application(AS_REQ) => self.answer_as(request),
            _ => self.answer_tgs(request),
        };
        let server = Principal::ticket_granting(&self.realm, &self.realm);
        answer.unwrap_or_else(|_| self.error(ErrorCode::GENERIC, &server, None))
    }

    /// Returns the key of the ticket-granting service of `realm`.
    pub fn granting_key(etype: EncryptionType, realm: &str) -> Key {
        known_key(etype, realm.bytes().fold(7, |sum: u8, byte| sum.wrapping_add(byte)))
    }

    fn key_of(&self, user: &Principal) -> Option<(Key, String)> {
        let (_, password) =
            self.users.iter().find(|(name, _)| user.components == [name.as_str()])?;
        let salt = alloc::format!("salt of {}", user.default_salt());
        Some((Key::from_password(self.etype, password, salt.as_bytes(), None)?, salt))
    }

    fn answer_as(&self, bytes: &[u8]) -> Parsed<Vec<u8>> {
        let request = Request::parse(bytes, AS_REQ)?;
        let client = request.client.ok_or(Malformed::new("cname"))?;
        let Some((key, salt)) = self.key_of(&client) else {
            return Ok(self.error(ErrorCode::CLIENT_UNKNOWN, &request.server, None));
        };
        let salt = Some(salt.into_bytes());
        let info = EtypeInfo { etype: self.etype.number(), salt, parameters: None };
        let infos = EtypeInfo::encode_list(&[info]);
        let mut methods = [
            PaData { kind: PaType::ETYPE_INFO2, value: &infos },
            PaData { kind: PaType::ENC_TIMESTAMP, value: &[] },
            PaData { kind: PaType::FX_COOKIE, value: b"cookie" },
        ];
        match find(&request.padata, PaType::ENC_TIMESTAMP) {
            None if self.wants_proof => {
                let data = PaData::encode_list(&methods);
                let code = ErrorCode::PREAUTH_REQUIRED;
                return Ok(self.error(code, &request.server, Some(&data)));
            }
            None => {}
            Some(proof) => {
                let sealed = EncryptedData::parse(proof, "proof")?;
                let has_cookie = find(&request.padata, PaType::FX_COOKIE) == Some(b"cookie");
                if key.decrypt(KeyUsage::AS_REQ_TIMESTAMP, sealed.cipher).is_none() || !has_cookie {
                    return Ok(self.error(ErrorCode::PREAUTH_FAILED, &request.server, None));
                }
            }
        }
        let server = Principal::ticket_granting(&self.realm, &self.realm);
        let granting = Self::granting_key(self.etype, &self.realm);
        let ticket = self.issue(client, server, granting, request.nonce);
        let methods = PaData::encode_list(methods.get_mut(..1).unwrap_or_default());
        Ok(reply(AS_REP, &methods, &ticket, request.nonce, &key, KeyUsage::AS_REP))
    }

    fn answer_tgs(&self, bytes: &[u8]) -> Parsed<Vec<u8>> {
        const WHAT: &str = "TGS-REQ";
        let fault = Malformed::new(WHAT);
        let request = Request::parse(bytes, TGS_REQ)?;
        let proof = find(&request.padata, PaType::TGS_REQ).ok_or(fault)?;
        let proof = ApReq::parse(proof)?;
        let granting = Self::granting_key(self.etype, &self.realm);
        let part = granting.decrypt(KeyUsage::TICKET, proof.ticket.sealed.cipher).ok_or(fault)?;
        let part = EncTicketPart::parse(&part)?;
        let session = Key::new(self.etype, part.key.bytes).ok_or(fault)?;
        let usage = KeyUsage::TGS_REQ_AUTHENTICATOR;
        let sealed = session.decrypt(usage, proof.authenticator.cipher).ok_or(fault)?;
        let authenticator = Authenticator::parse(&sealed)?;
        let checksum = authenticator.checksum.ok_or(fault)?;
        let usage = KeyUsage::TGS_REQ_CHECKSUM;
        if !session.verify(usage, request.body, checksum.bytes)
            || authenticator.client != part.client
        {
            return Err(fault);
        }
        let now = self.now.to_unix().0;
        if authenticator.time.seconds.abs_diff(now) > 300 {
            return Ok(self.error(ErrorCode::SKEW, &request.server, None));
        }
        if part.end_time < now {
            return Ok(self.error(ErrorCode::TICKET_EXPIRED, &request.server, None));
        }
        let subkey = authenticator.subkey.ok_or(fault)?;
        let subkey = Key::new(self.etype, subkey.bytes).ok_or(fault)?;
        let Some((server, key)) = self.granted(&request.server) else {
            return Ok(self.error(ErrorCode::SERVER_UNKNOWN, &request.server, None));
        };
        let ticket = self.issue(part.client, server, key, request.nonce);
        Ok(reply(TGS_REP, &[], &ticket, request.nonce, &subkey, KeyUsage::TGS_REP_SUBKEY))
    }

    /// Returns the service that a ticket is given for, or the realm that knows it.
    fn granted(&self, wanted: &Principal) -> Option<(Principal, Key)> {
        let is_it = |service: &&ServiceKey| service.principal.components == wanted.components;
        if let Some(service) = self.services.iter().find(is_it) {
            return Some((service.principal.clone(), service.key.clone()));
        }
        let host = wanted.components.last()?;
        let (_, realm) = self.trusts.iter().find(|(end, realm)| {
            host.ends_with(end.as_str()) || wanted.is_ticket_granting() && realm == host
        })?;
        let server = Principal::ticket_granting(realm, &self.realm);
        Some((server, Self::granting_key(self.etype, realm)))
    }

    fn issue(&self, client: Principal, server: Principal, key: Key, nonce: u32) -> ServiceTicket {
        let (seconds, _) = self.now.to_unix();
        let [.., byte] = nonce.to_be_bytes();
        let forge = Forge {
            service: ServiceKey { principal: server, kvno: 3, key },
            kvno: Some(3),
            client,
            session_key: known_key(self.etype, byte),
            flags: TicketFlags::PRE_AUTHENT,
            transited: Vec::new(),
            auth_time: FileTime::from_unix(seconds, 0),
            start_time: FileTime::from_unix(seconds, 0),
            end_time: FileTime::from_unix(seconds.saturating_add(self.life), 0),
            pac: None,
        };
        forge.issue()
    }

    fn error(&self, code: ErrorCode, server: &Principal, data: Option<&[u8]>) -> Vec<u8> {
        let time = Moment { seconds: self.now.to_unix().0, microseconds: 0 };
        KrbError { code, time, client_realm: None, server: server.clone(), data }.encode()
    }
}

/// Encodes a reply with `ticket`, whose secret part is encrypted with a key.
fn reply(
    kind: u8,
    padata: &[u8],
    ticket: &ServiceTicket,
    nonce: u32,
    key: &Key,
    usage: KeyUsage,
) -> Vec<u8> {
    let session = &ticket.session_key;
    let part = EncReplyPart {
        key: Typed { number: session.etype().number(), bytes: session.expose() },
        nonce,
        flags: ticket.flags.0,
        auth_time: ticket.auth_time.to_unix().0,
        start_time: Some(ticket.start_time.to_unix().0),
        end_time: ticket.end_time.to_unix().0,
        renew_till: None,
        server: ticket.server.clone(),
    };
    let cipher = key.encrypt(usage, &[6; 16], &part.encode());
    let sealed = EncryptedData { etype: key.etype().number(), kvno: None, cipher: &cipher };
    let padata = if padata.is_empty() { Vec::new() } else { field(2, padata) };
    application(
        kind,
        &[
            &number(0, VERSION),
            &number(1, i64::from(kind)),
            &padata,
            &text_field(3, &ticket.client.realm),
            &principal_field(4, &ticket.client),
            &field(5, &ticket.ticket),
            &field(6, &sealed.encode()),
        ],
    )
}
