//! The exchanges with KDCs that exist in memory only.

use super::forge::ForgedKdc;
use super::messages::{EtypeInfo, PaData, PaType};
use super::*;
use crate::kerberos::ClientSecret;
use crate::limits::{MAX_KDC_MESSAGE_LEN, MAX_KDC_REFERRALS, MAX_PA_DATA};
use crate::tests::NOW;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use proptest::prelude::*;
use zeroize::Zeroizing;

const AES: [EncryptionType; 2] = [EncryptionType::Aes256Sha1, EncryptionType::Aes128Sha1];

fn entropy(byte: u8) -> KdcEntropy {
    KdcEntropy { nonce: [byte; 4], subkey: [byte; 32], confounder: [byte; 16] }
}

fn kdc(realm: &str) -> ForgedKdc {
    ForgedKdc::new(realm, EncryptionType::Aes256Sha1, FileTime(NOW))
}

fn password(text: &str) -> ClientSecret {
    ClientSecret::Password(Zeroizing::new(text.into()))
}

fn ann() -> Principal {
    Principal::user("ann", "A.TEST")
}

/// Runs an AS exchange; `change` may change replies.
fn log_on(
    kdc: &ForgedKdc,
    client: Principal,
    secret: ClientSecret,
    etypes: &[EncryptionType],
    mut change: impl FnMut(usize, Vec<u8>) -> Vec<u8>,
) -> Result<ServiceTicket, KdcFault> {
    let (mut exchange, mut ask) =
        AsExchange::begin(client, secret, etypes, &entropy(1), FileTime(NOW));
    for turn in 0..9 {
        assert_eq!(ask.realm, kdc.realm);
        let reply = change(turn, kdc.answer(&ask.message));
        match exchange.on_reply(&reply, &entropy(turn as u8 + 2), FileTime(NOW))? {
            KdcStep::Ask(next) => ask = next,
            KdcStep::Done(ticket) => return Ok(*ticket),
        }
    }
    panic!("no end")
}

fn granting(kdc: &ForgedKdc) -> ServiceTicket {
    log_on(kdc, Principal::user("ann", &kdc.realm), password("secret"), &AES, |_, r| r).unwrap()
}

/// Runs a TGS exchange with the KDCs of several realms.
fn ticket_for(
    kdcs: &[ForgedKdc],
    server: Principal,
    now: FileTime,
    mut change: impl FnMut(usize, Vec<u8>) -> Vec<u8>,
) -> Result<ServiceTicket, KdcFault> {
    let granting = granting(&kdcs[0]);
    let (mut exchange, mut ask) =
        TgsExchange::begin(granting, server, &EncryptionType::ALL, &entropy(21), now)?;
    for turn in 0..20 {
        let kdc = kdcs.iter().find(|kdc| kdc.realm == ask.realm).expect("a realm");
        let reply = change(turn, kdc.answer(&ask.message));
        match exchange.on_reply(&reply, &entropy(turn as u8 + 22), now)? {
            KdcStep::Ask(next) => ask = next,
            KdcStep::Done(ticket) => return Ok(*ticket),
        }
    }
    panic!("no end")
}

fn files() -> Principal {
    Principal::service("cifs", "files", "")
}

#[test]
fn a_password_and_a_key_get_a_ticket_with_every_encryption_type() {
    for etype in EncryptionType::ALL {
        let kdc = ForgedKdc::new("A.TEST", etype, FileTime(NOW));
        for wants_proof in [true, false] {
            let kdc = ForgedKdc { wants_proof, ..kdc.clone() };
            let all = &EncryptionType::ALL;
            let ticket = log_on(&kdc, ann(), password("secret"), all, |_, r| r).unwrap();
            assert_eq!(ticket.client, ann());
            assert_eq!(ticket.server, Principal::ticket_granting("A.TEST", "A.TEST"));
            assert_eq!(ticket.session_key.etype(), etype);
            assert_eq!(ticket.end_time.0, NOW + 36_000 * 10_000_000);

            let salt = b"salt of A.TESTann";
            let key = Key::from_password(etype, "secret", salt, None).unwrap();
            let keys = ClientSecret::Keys(vec![key, Key::filled(AES[1], 9)]);
            let found = log_on(&kdc, ann(), keys, &[etype], |_, r| r);
            assert_eq!(found.unwrap().session_key, ticket.session_key);
        }
    }
}

#[test]
fn each_refused_logon_has_its_reason() {
    let kdc = kdc("A.TEST");
    let same = |_, reply| reply;
    let fault = log_on(&kdc, ann(), password("wrong"), &AES, same).unwrap_err();
    assert_eq!(fault, KdcFault::WrongSecret(Box::new(ann())));
    let bob = Principal::user("bob", "A.TEST");
    let fault = log_on(&kdc, bob.clone(), password("secret"), &AES, same).unwrap_err();
    assert_eq!(fault, KdcFault::UnknownClient(Box::new(bob)));
    let fault = log_on(&kdc, ann(), ClientSecret::Keys(vec![]), &AES, same).unwrap_err();
    assert_eq!(fault, KdcFault::NoKey(Box::new(ann())));
    // The KDC chooses RC4, which the client does not allow, so the logon fails with and without
    // pre-authentication.
    let old = ForgedKdc::new("A.TEST", EncryptionType::Rc4Hmac, FileTime(NOW));
    let fault = log_on(&old, ann(), password("secret"), &AES, same).unwrap_err();
    assert_eq!(fault, KdcFault::EncryptionTypes { realm: "A.TEST".into() });
    let open = ForgedKdc { wants_proof: false, ..old };
    let fault = log_on(&open, ann(), password("secret"), &AES, same).unwrap_err();
    assert_eq!(fault, KdcFault::EncryptionTypes { realm: "A.TEST".into() });
    // If the KDC requires no pre-authentication, the client notices a wrong password only when it
    // cannot decrypt the KDC's reply.
    let open = ForgedKdc { wants_proof: false, ..kdc };
    let fault = log_on(&open, ann(), password("wrong"), &AES, same).unwrap_err();
    assert_eq!(fault, KdcFault::WrongSecret(Box::new(ann())));
}

fn error(code: ErrorCode, client_realm: Option<&str>, data: Option<&[u8]>) -> Vec<u8> {
    let time = crate::kerberos::message::Moment {
        seconds: FileTime(NOW).to_unix().0 - 400,
        microseconds: 0,
    };
    let server = Principal::ticket_granting("A.TEST", "A.TEST");
    KrbError { code, time, client_realm, server, data }.encode()
}

#[test]
fn each_error_code_has_its_sentence() {
    let kdc = kdc("A.TEST");
    let mut said = alloc::collections::BTreeSet::new();
    for (code, words) in [
        (6, "knows no user ann@A.TEST"),
        (7, "knows no service krbtgt/A.TEST@A.TEST"),
        (12, "refused the request: POLICY"),
        (14, "no encryption type"),
        (18, "disabled or locked"),
        (23, "kpasswd"),
        (24, "does not accept the password or keytab of ann@A.TEST"),
        (32, "run kinit"),
        (37, "clock is 400 seconds ahead of that of the KDC of A.TEST"),
        (77, "error 77"),
    ] {
        let fault = log_on(&kdc, ann(), password("secret"), &AES, |_, _| {
            error(ErrorCode(code), None, None)
        });
        let text = fault.unwrap_err().to_string();
        assert!(text.contains(words), "{code}: {text}");
        assert!(said.insert(text));
    }
    // The KDC demands pre-authentication by a smart card (type 16) only, which the client does not
    // have.
    let methods = PaData::encode_list(&[PaData { kind: PaType(16), value: b"" }]);
    let fault = log_on(&kdc, ann(), password("secret"), &AES, |_, _| {
        error(ErrorCode::PREAUTH_REQUIRED, None, Some(&methods))
    });
    assert_eq!(fault.unwrap_err(), KdcFault::Preauthentication(Box::new(ann())));
    // A KDC that demands pre-authentication again, although the client has sent it, is refused.
    let fault = log_on(&kdc, ann(), password("secret"), &AES, |turn, reply| match turn {
        0 => reply,
        _ => error(ErrorCode::PREAUTH_REQUIRED, None, Some(&methods)),
    });
    assert_eq!(
        fault.unwrap_err(),
        KdcFault::Refused { realm: "A.TEST".into(), code: ErrorCode::PREAUTH_REQUIRED.0 }
    );
}

#[test]
fn an_alias_is_looked_for_in_other_realms() {
    let alias = Principal::enterprise("ann@example.com", "A.TEST");
    let (mut exchange, mut ask) =
        AsExchange::begin(alias, password("secret"), &AES, &entropy(1), FileTime(NOW));
    for hop in 0..=MAX_KDC_REFERRALS {
        let realm = format!("R{hop}");
        let reply = error(ErrorCode::WRONG_REALM, Some(&realm), None);
        match exchange.on_reply(&reply, &entropy(2), FileTime(NOW)) {
            Ok(KdcStep::Ask(next)) => ask = next,
            Ok(KdcStep::Done(_)) => panic!("a ticket"),
            Err(fault) => {
                assert_eq!(hop, MAX_KDC_REFERRALS);
                assert!(matches!(fault, KdcFault::TooManyReferrals(_)));
            }
        }
    }
    assert_eq!(ask.realm, format!("R{}", MAX_KDC_REFERRALS - 1));
    // The user named a realm, so the client does not follow a KDC that refers it to another realm.
    let fault = log_on(&kdc("A.TEST"), ann(), password("secret"), &AES, |_, _| {
        error(ErrorCode::WRONG_REALM, Some("EVIL.TEST"), None)
    });
    assert_eq!(fault.unwrap_err(), KdcFault::UnknownClient(Box::new(ann())));
}

#[test]
fn a_service_in_the_own_realm() {
    for name in ["files", "FILES"] {
        let mut kdc = kdc("A.TEST");
        kdc.services[0].principal.components[1] = name.into();
        let server = Principal::service("cifs", name, "");
        let ticket = ticket_for(&[kdc.clone()], server, FileTime(NOW), |_, r| r).unwrap();
        assert_eq!(ticket.server, kdc.services[0].principal);
        assert_eq!(ticket.client, ann());
    }
    let other = Principal::service("cifs", "other", "");
    let fault = ticket_for(&[kdc("A.TEST")], other, FileTime(NOW), |_, r| r).unwrap_err();
    assert!(fault.to_string().contains("the KDC of A.TEST knows no service cifs/other"));
}

/// Returns realms each of which trusts the next one; the last one has the service.
fn chain(count: usize) -> Vec<ForgedKdc> {
    let name = |n| if n == 0 { String::from("A.TEST") } else { format!("R{n}.TEST") };
    let mut kdcs: Vec<ForgedKdc> = (0..count).map(|n| kdc(&name(n))).collect();
    for (n, kdc) in kdcs.iter_mut().enumerate().take(count - 1) {
        kdc.services.clear();
        kdc.trusts = vec![("files".into(), name(n + 1))];
    }
    kdcs
}

#[test]
fn referrals_lead_through_a_limited_number_of_realms() {
    for (count, fits) in [
        (2, true),
        (MAX_KDC_REFERRALS, true),
        (MAX_KDC_REFERRALS + 1, true),
        (MAX_KDC_REFERRALS + 2, false),
    ] {
        let kdcs = chain(count);
        let found = ticket_for(&kdcs, files(), FileTime(NOW), |_, r| r);
        assert_eq!(found.is_ok(), fits, "{count}");
        match found {
            Ok(ticket) => assert_eq!(ticket.server.realm, kdcs.last().unwrap().realm),
            Err(fault) => assert!(matches!(fault, KdcFault::TooManyReferrals(_))),
        }
    }
    // The KDC of the last realm refers the client back to the first realm. The client must stop
    // instead of going round for ever.
    let mut kdcs = chain(3);
    kdcs[2].services.clear();
    kdcs[2].trusts = vec![("files".into(), "A.TEST".into())];
    let fault = ticket_for(&kdcs, files(), FileTime(NOW), |_, r| r).unwrap_err();
    assert!(matches!(fault, KdcFault::TooManyReferrals(_)));
}

#[test]
fn a_named_realm_is_asked_for_directly() {
    let mut kdcs = [kdc("A.TEST"), kdc("B.TEST")];
    // The first KDC refers only the service "none" to B.TEST. The client still gets a ticket for
    // "files" in B.TEST, because it asks for this realm directly.
    kdcs[0].trusts = vec![("none".into(), "B.TEST".into())];
    let server = Principal::service("cifs", "files", "B.TEST");
    let ticket = ticket_for(&kdcs, server, FileTime(NOW), |_, r| r).unwrap();
    assert_eq!(ticket.server.realm, "B.TEST");
    let server = Principal::service("cifs", "files", "C.TEST");
    let fault = ticket_for(&kdcs, server, FileTime(NOW), |_, r| r).unwrap_err();
    let (realm, target) = ("A.TEST".into(), "C.TEST".into());
    assert_eq!(fault, KdcFault::NoTrust { realm, target });
}

#[test]
fn clocks_and_ends() {
    let seconds = |count: i64| FileTime(NOW.saturating_add_signed(count * 10_000_000));
    let kdcs = [kdc("A.TEST")];
    let fault = ticket_for(&kdcs, files(), seconds(-360), |_, r| r).unwrap_err();
    assert_eq!(fault, KdcFault::Skew { realm: "A.TEST".into(), seconds: -360 });
    assert!(fault.to_string().contains("360 seconds behind that of the KDC"));
    let fault = ticket_for(&kdcs, files(), seconds(36_000), |_, r| r).unwrap_err();
    assert_eq!(fault, KdcFault::TicketExpired(Box::new(ann())));
    assert!(fault.to_string().contains("run kinit"));
}

/// The nonce, the names and the keys of a reply must be those of the request.
#[test]
fn a_reply_to_another_request_is_refused() {
    let not = KdcFault::NotAuthentic { realm: "A.TEST".into() };
    let kdc = kdc("A.TEST");
    let granting = granting(&kdc);
    let begin = |server: &str, byte| {
        let server = Principal::service("cifs", server, "");
        TgsExchange::begin(granting.clone(), server, &AES, &entropy(byte), FileTime(NOW)).unwrap()
    };
    let (mut exchange, _) = begin("files", 5);
    let (_, other) = begin("files", 6);
    let reply = kdc.answer(&other.message);
    assert_eq!(exchange.on_reply(&reply, &entropy(9), FileTime(NOW)).unwrap_err(), not);
    // After a failed exchange, even the right reply is refused.
    let fault = exchange.on_reply(&reply, &entropy(9), FileTime(NOW)).unwrap_err();
    assert_eq!(fault, KdcFault::OutOfTurn);
    // The KDC's reply has the right nonce and key, but a ticket for another service, so it is
    // refused.
    let mut wide = kdc.clone();
    wide.services.push(kdc.services[0].clone());
    wide.services[1].principal.components[1] = "other".into();
    let (mut exchange, _) = begin("files", 5);
    let (_, other) = begin("other", 5);
    let reply = wide.answer(&other.message);
    assert_eq!(exchange.on_reply(&reply, &entropy(9), FileTime(NOW)).unwrap_err(), not);
}

#[test]
fn lists_of_pre_authentication_data_are_bounded() {
    for (count, fits) in [(0, true), (MAX_PA_DATA, true), (MAX_PA_DATA + 1, false)] {
        let list = vec![PaData { kind: PaType::FX_COOKIE, value: b"x" }; count];
        let bytes = PaData::encode_list(&list);
        assert_eq!(PaData::parse_list(&bytes).is_ok(), fits);
        let info = EtypeInfo { etype: 18, salt: Some(vec![1]), parameters: Some(vec![0; 4]) };
        let list = vec![info; count];
        let bytes = EtypeInfo::encode_list(&list);
        let read = EtypeInfo::parse_list(&bytes);
        assert_eq!(read.is_ok(), fits);
        assert!(read.map_or(true, |read| read == list));
    }
}

#[test]
fn a_long_reply_is_not_read() {
    // An unknown field fills the KDC's message up to the tested length.
    let filled = |fill: usize| {
        let inner = crate::der::element(0xa9, &vec![0; fill]);
        crate::der::element(0x6d, &crate::der::element(0x30, &inner))
    };
    let overhead = filled(MAX_KDC_MESSAGE_LEN).len() - MAX_KDC_MESSAGE_LEN;
    for (length, read) in
        [(MAX_KDC_MESSAGE_LEN, "KDC-REP version"), (MAX_KDC_MESSAGE_LEN + 1, "KDC-REP")]
    {
        let reply = filled(length - overhead);
        assert_eq!(reply.len(), length);
        assert_eq!(messages::Reply::parse(&reply, messages::TGS_REP).unwrap_err().what, read);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// A reply with a changed byte gives the same ticket, or none: only bytes that mean nothing,
    /// such as a hint or the text of the ticket itself, may be changed.
    #[test]
    fn a_changed_byte_makes_no_other_ticket(turn in 0_usize..3, at: prop::sample::Index, byte: u8) {
        let kdc = kdc("A.TEST");
        let change = |reply: Vec<u8>| {
            let mut reply = reply;
            let at = at.index(reply.len());
            reply[at] = byte;
            reply
        };
        let right = granting(&kdc);
        let changed = log_on(&kdc, ann(), password("secret"), &AES, |now, reply| {
            if now == turn { change(reply) } else { reply }
        });
        if let Ok(ticket) = changed {
            prop_assert_eq!((ticket.client, ticket.server), (right.client, right.server));
            prop_assert_eq!(ticket.session_key, right.session_key);
            prop_assert_eq!(ticket.end_time, right.end_time);
        }
        let kdcs = chain(3);
        let right = ticket_for(&kdcs, files(), FileTime(NOW), |_, r| r).unwrap();
        let changed = ticket_for(&kdcs, files(), FileTime(NOW), |now, reply| {
            if now == turn { change(reply) } else { reply }
        });
        if let Ok(ticket) = changed {
            prop_assert_eq!((ticket.client, ticket.server), (right.client, right.server));
            prop_assert_eq!(ticket.session_key, right.session_key);
            prop_assert_eq!(ticket.end_time, right.end_time);
        }
    }

    #[test]
    fn no_bytes_are_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..256), tag in 0x60_u8..0x7f) {
        let tagged = crate::der::element(tag, &crate::der::element(0x30, &bytes));
        for reply in [&bytes, &tagged] {
            let (mut exchange, _) =
                AsExchange::begin(ann(), password("x"), &AES, &entropy(1), FileTime(NOW));
            prop_assert!(exchange.on_reply(reply, &entropy(2), FileTime(NOW)).is_err());
        }
        let _ = PaData::parse_list(&bytes);
        let _ = EtypeInfo::parse_list(&bytes);
        let _ = EncReplyPart::parse(&bytes);
    }
}
