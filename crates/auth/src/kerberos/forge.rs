//! A KDC without a database: tickets and PACs for tests, fuzzing and measurements. Whoever has the
//! key of a service can make them.

use super::asn1::{
    EncryptedData, Typed, VERSION, application, field, flags_field, number, octets_field,
    principal_field, sequence, text_field, time_field,
};
use super::{EncryptionType, Key, KeyUsage, Principal, ServiceKey, ServiceTicket, TicketFlags};
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::Writer;
use frevo_wire::dtyp::{FileTime, Sid};
use frevo_wire::ndr::NdrWriter;

/// The contents of a ticket. The fields may be changed before [`Self::issue`].
#[derive(Debug, Clone)]
pub struct Forge {
    /// The service and its key.
    pub service: ServiceKey,
    /// The version of the key that the ticket names.
    pub kvno: Option<u32>,
    /// The user that the ticket is for.
    pub client: Principal,
    /// The key that client and service share.
    pub session_key: Key,
    /// The flags that the ticket has.
    pub flags: TicketFlags,
    /// The realms that the ticket passed through, as a KDC writes them.
    pub transited: Vec<u8>,
    /// The time of the client's logon.
    pub auth_time: FileTime,
    /// The time from which the ticket is valid.
    pub start_time: FileTime,
    /// The time until which it is valid.
    pub end_time: FileTime,
    /// The PAC; None for a ticket without one.
    pub pac: Option<PacForge>,
}

/// The contents of a PAC.
#[derive(Debug, Clone)]
pub struct PacForge {
    /// The name in the client information.
    pub name: String,
    /// The controller's facts about the user.
    pub logon: Option<LogonForge>,
    /// The user principal name and the DNS name of the domain.
    pub upn: Option<[String; 2]>,
    /// The type of the server's signature; None for the one of the key.
    pub signature_type: Option<i32>,
}

/// The contents of KERB_VALIDATION_INFO.
#[derive(Debug, Clone)]
pub struct LogonForge {
    /// EffectiveName
    pub user: String,
    /// LogonDomainName
    pub domain: String,
    /// LogonDomainId
    pub domain_sid: Sid,
    /// UserId
    pub rid: u32,
    /// PrimaryGroupId
    pub primary_group: u32,
    /// GroupIds
    pub groups: Vec<u32>,
    /// ExtraSids
    pub extra: Vec<Sid>,
    /// ResourceGroupDomainSid and ResourceGroupIds
    pub resource: Option<(Sid, Vec<u32>)>,
    /// UserFlags
    pub flags: u32,
    /// UserAccountControl
    pub control: u32,
    /// KickOffTime
    pub kick_off: FileTime,
}

impl Forge {
    /// Makes a ticket of `ann` for `cifs/files` of `FREVO.TEST`, valid for an hour from `now`, with
    /// keys of `etype` that everybody knows.
    pub fn new(etype: EncryptionType, now: FileTime) -> Self {
        let key = |byte| known_key(etype, byte);
        let (seconds, _) = now.to_unix();
        let after = |offset: i64| FileTime::from_unix(seconds.saturating_add(offset), 0);
        Self {
            service: ServiceKey {
                principal: Principal::service("cifs", "files", "FREVO.TEST"),
                kvno: 3,
                key: key(1),
            },
            kvno: Some(3),
            client: Principal::user("ann", "FREVO.TEST"),
            session_key: key(2),
            flags: TicketFlags::PRE_AUTHENT,
            transited: Vec::new(),
            auth_time: after(-60),
            start_time: after(-30),
            end_time: after(3_600),
            pac: None,
        }
    }

    /// Adds a PAC of a domain controller.
    #[must_use]
    pub fn with_pac(mut self) -> Self {
        self.pac = Some(PacForge::of(&self.client));
        self
    }

    /// Makes the ticket, with the PAC if there is one.
    pub fn issue(&self) -> ServiceTicket {
        let data = self.pac.as_ref().map(|pac| {
            let pac = pac.encode(&self.service.key, self.auth_time);
            authorization_data(1, &authorization_data(128, &pac))
        });
        self.issue_with(data.as_deref())
    }

    /// Makes the ticket with other authorization data.
    pub fn issue_with(&self, authorization_data: Option<&[u8]>) -> ServiceTicket {
        let seconds = |time: FileTime| time.to_unix().0;
        let key = &self.session_key;
        let key = Typed { number: key.etype().number(), bytes: key.expose() };
        let transited = Typed { number: 1, bytes: &self.transited };
        let part = application(
            3,
            &[
                &flags_field(0, self.flags.0),
                &field(1, &key.encode()),
                &text_field(2, &self.client.realm),
                &principal_field(3, &self.client),
                &field(4, &transited.encode()),
                &time_field(5, seconds(self.auth_time)),
                &time_field(6, seconds(self.start_time)),
                &time_field(7, seconds(self.end_time)),
                &authorization_data.map(|data| field(10, data)).unwrap_or_default(),
            ],
        );
        let service = &self.service;
        let cipher = service.key.encrypt(KeyUsage::TICKET, &[5; 16], &part);
        let etype = service.key.etype().number();
        let sealed = EncryptedData { etype, kvno: self.kvno, cipher: &cipher };
        let ticket = application(
            1,
            &[
                &number(0, VERSION),
                &text_field(1, &service.principal.realm),
                &principal_field(2, &service.principal),
                &field(3, &sealed.encode()),
            ],
        );
        ServiceTicket {
            client: self.client.clone(),
            server: service.principal.clone(),
            session_key: self.session_key.clone(),
            ticket,
            flags: self.flags,
            auth_time: self.auth_time,
            start_time: self.start_time,
            end_time: self.end_time,
            renew_till: FileTime::ZERO,
        }
    }
}

impl PacForge {
    /// Makes the PAC of a user with two groups of each kind.
    pub fn of(client: &Principal) -> Self {
        let name = client.components.join("/");
        let domain_sid = Sid::new(5, &[21, 1, 2, 3]).unwrap_or(Sid::BUILTIN);
        let other_sid = Sid::new(5, &[21, 9, 8, 7]).unwrap_or(Sid::BUILTIN);
        let extra = [600, 601].into_iter().filter_map(|rid| other_sid.with_rid(rid)).collect();
        let logon = LogonForge {
            user: name.clone(),
            domain: "FREVO".into(),
            domain_sid,
            rid: 1_105,
            primary_group: 513,
            groups: [513, 1_200].into(),
            extra,
            resource: Some((domain_sid, [1_300, 1_301].into())),
            flags: 0x220,
            control: 0x10,
            kick_off: FileTime(i64::MAX.cast_unsigned()),
        };
        let upn = [alloc::format!("{name}@frevo.test"), "FREVO.TEST".into()];
        Self { name, logon: Some(logon), upn: Some(upn), signature_type: None }
    }

    /// Encodes the PAC, signed by the key of its service.
    pub fn encode(&self, key: &Key, auth_time: FileTime) -> Vec<u8> {
        let kind = self.signature_type.unwrap_or(key.etype().checksum_type());
        let length = key.etype().checksum_len();
        let signature = |kind: i32, length: usize| {
            let mut bytes = kind.to_le_bytes().to_vec();
            bytes.resize(length.saturating_add(4), 0);
            bytes
        };
        let mut info = auth_time.0.to_le_bytes().to_vec();
        let name: Vec<u8> = self.name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        info.extend(u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes());
        info.extend(name);
        let mut buffers: Vec<(u32, Vec<u8>)> = Vec::new();
        buffers.extend(self.logon.as_ref().map(|logon| (1, logon.encode())));
        buffers.push((10, info));
        buffers.extend(self.upn.as_ref().map(|names| (12, upn_dns_info(names))));
        buffers.push((6, signature(kind, length)));
        buffers.push((7, signature(16, 12)));
        let mut pac = Vec::new();
        let mut w = Writer::new(&mut pac);
        w.u32(u32::try_from(buffers.len()).unwrap_or_default()).u32(0);
        let mut offset = buffers.len().saturating_mul(16).saturating_add(8);
        let mut place = 0;
        for (kind, bytes) in &buffers {
            if *kind == 6 {
                place = offset.saturating_add(4);
            }
            w.u32(*kind).u32(u32::try_from(bytes.len()).unwrap_or_default());
            w.u64(u64::try_from(offset).unwrap_or_default());
            offset = offset.saturating_add(bytes.len()).next_multiple_of(8);
        }
        for (_, bytes) in &buffers {
            w.bytes(bytes).align(8);
        }
        let signature = key.checksum(KeyUsage::PAC, &pac);
        let signed = pac.get_mut(place..).unwrap_or_default();
        signed.iter_mut().zip(&signature).for_each(|(to, from)| *to = *from);
        pac
    }
}

impl LogonForge {
    fn encode(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.pointer(true);
        let time = |w: &mut NdrWriter, time: FileTime| {
            w.fixed(&time.0.to_le_bytes());
        };
        let never = FileTime(i64::MAX.cast_unsigned());
        for value in [FileTime(1), never, self.kick_off, FileTime(2), FileTime(2), never] {
            time(&mut w, value);
        }
        let texts = [&*self.user, "", "", "", "", ""];
        texts.iter().for_each(|text| {
            w.unicode_head(text, 0);
        });
        w.u16(5).u16(0).u32(self.rid).u32(self.primary_group);
        w.u32(count(self.groups.len())).pointer(true).u32(self.flags).fixed(&[0; 16]);
        w.unicode_head("DC", 1).unicode_head(&self.domain, 1).pointer(true).fixed(&[0; 8]);
        w.u32(self.control).fixed(&[0; 28]);
        w.u32(count(self.extra.len())).pointer(!self.extra.is_empty());
        let (resource_sid, resource_groups) = match &self.resource {
            Some((sid, groups)) => (Some(sid), &**groups),
            None => (None, &[][..]),
        };
        w.pointer(resource_sid.is_some());
        w.u32(count(resource_groups.len())).pointer(resource_sid.is_some());
        texts.iter().for_each(|text| {
            w.unicode(text, 0);
        });
        put_groups(&mut w, &self.groups);
        w.unicode("DC", 1).unicode(&self.domain, 1).sid(&self.domain_sid);
        if !self.extra.is_empty() {
            w.u32(count(self.extra.len()));
            for _ in &self.extra {
                w.pointer(true).u32(7);
            }
            self.extra.iter().for_each(|sid| {
                w.sid(sid);
            });
        }
        if let Some(sid) = resource_sid {
            w.sid(sid);
            put_groups(&mut w, resource_groups);
        }
        w.align(8);
        let stub = w.into_stub();
        let length = count(stub.len()).to_le_bytes();
        [&[1, 0x10, 8, 0, 0xcc, 0xcc, 0xcc, 0xcc][..], &length, &[0; 4], &stub].concat()
    }
}

/// Returns a key whose bytes are all `byte`.
pub fn known_key(etype: EncryptionType, byte: u8) -> Key {
    Key::filled(etype, byte)
}

/// Signs a PAC again, whatever it contains. None if it is too malformed to have a place for
/// signatures.
pub fn sign_pac(pac: &[u8], key: &Key) -> Option<Vec<u8>> {
    super::pac::Pac::parse(pac).ok()?.signed(key).ok()
}

/// Encodes AuthorizationData with one element.
pub fn authorization_data(kind: i32, data: &[u8]) -> Vec<u8> {
    let element = sequence(&[&number(0, i64::from(kind)), &octets_field(1, data)]);
    sequence(&[&element])
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn put_groups(w: &mut NdrWriter, rids: &[u32]) {
    w.u32(count(rids.len()));
    for rid in rids {
        w.u32(*rid).u32(7);
    }
}

/// Encodes UPN_DNS_INFO without its extension.
fn upn_dns_info([upn, dns]: &[String; 2]) -> Vec<u8> {
    let utf16 =
        |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
    let (upn, dns) = (utf16(upn), utf16(dns));
    let short = |length: usize| u16::try_from(length).unwrap_or(u16::MAX);
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    let second = upn.len().saturating_add(16);
    w.u16(short(upn.len())).u16(16).u16(short(dns.len())).u16(short(second));
    w.u32(0).u32(0).bytes(&upn).bytes(&dns);
    bytes
}
