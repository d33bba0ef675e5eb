//! Each reason for which a ticket is refused, with its line for the log.

use super::*;
use crate::kerberos::forge::{authorization_data, known_key};
use crate::kerberos::{Principal, SealedTicket, TicketFlags};
use crate::limits::{MAX_PAC_SIDS, MAX_SERVICE_KEYS_TRIED};
use alloc::boxed::Box;

const AES: EncryptionType = EncryptionType::Aes256Sha1;

/// Returns the fault of the first token.
fn fault(ticket: ServiceTicket, service: Service) -> Fault {
    let first = initiator(ticket).initial_token(&[], NOW).unwrap();
    match acceptor(service).step(&first, NOW, &accounts()) {
        Ok(AcceptorStep::Retry(_, refusal)) | Err(refusal) => match refusal.reason {
            Reason::Kerberos(fault) => fault,
            other => panic!("{other}"),
        },
        Ok(step) => panic!("{step:?}"),
    }
}

fn key(kvno: u32, byte: u8, etype: EncryptionType) -> ServiceKey {
    ServiceKey { kvno, key: known_key(etype, byte), ..forge().service }
}

/// The part in the clear of a ticket for the server of `forge`.
fn sealed(etype: i32) -> Box<SealedTicket> {
    Box::new(SealedTicket { server: forge().service.principal, etype, kvno: Some(3) })
}

#[test]
fn tickets_that_no_key_opens() {
    let with = |keys| service_with(keys, realm());
    let ticket = || forge().issue();
    let other_type = key(3, 1, EncryptionType::Aes128Sha1);
    let none = Fault::NoKey(sealed(18));
    assert_eq!(fault(ticket(), with(vec![other_type])), none);
    assert_eq!(fault(ticket(), with(vec![])), none);
    let old = Fault::NoKeyVersion { ticket: sealed(18), kvno: 3, newest: 5 };
    assert_eq!(fault(ticket(), with(vec![key(4, 9, AES), key(5, 9, AES)])), old);
    assert_eq!(
        old.to_string(),
        "the ticket for cifs/files@FREVO.TEST is older than the password of this server: it needs \
         key version 3, and the keytab has 5; the client has to get a new ticket (klist purge, \
         kdestroy), or another account has this name (setspn -Q)"
    );
    let new = Fault::NoKeyVersion { ticket: sealed(18), kvno: 3, newest: 2 };
    assert_eq!(fault(ticket(), with(vec![key(2, 9, AES)])), new);
    assert!(new.to_string().contains("the keytab is older than the password of this server"));
    let wrong = Fault::WrongKey(sealed(18));
    assert_eq!(fault(ticket(), with(vec![key(3, 9, AES)])), wrong);
    assert!(wrong.to_string().contains("cifs/files@FREVO.TEST"));
    let said = wrong.ticket().unwrap();
    assert_eq!(said.etype().to_string(), "aes256-cts-hmac-sha1-96");
    let unknown = SealedTicket { etype: 99, ..said.clone() };
    assert_eq!(unknown.etype().to_string(), "99");
    assert_eq!(Fault::Replayed.ticket(), None);
}

#[test]
fn any_key_opens_whatever_version_and_name_the_ticket_has() {
    // MS-KILE 3.4.5: the server tries its older keys as well, so it accepts a ticket with any key
    // version.
    for kvno in [None, Some(1), Some(3), Some(u32::MAX)] {
        let mut forge = forge();
        forge.kvno = kvno;
        forge.service.principal = Principal::service("host", "alias.example.org", "FREVO.TEST");
        let keys = vec![key(5, 9, AES), key(3, 1, AES), key(2, 8, AES)];
        let service = service_with(keys, realm());
        let (done, _) = run(&mut initiator(forge.issue()), &mut acceptor(service)).unwrap();
        assert_eq!(&*done.identity.user, "ann", "{kvno:?}");
    }
}

#[test]
fn so_many_keys_are_tried() {
    for (others, is_found) in [(MAX_SERVICE_KEYS_TRIED - 1, true), (MAX_SERVICE_KEYS_TRIED, false)]
    {
        let mut keys: Vec<_> = (0..others).map(|n| key(100, n as u8 + 10, AES)).collect();
        keys.push(key(3, 1, AES));
        let mut forge = forge();
        // If the server knows the key version that the ticket names, it tries only that key. It
        // does not know version 4, so it tries all keys.
        let service = service_with(keys.clone(), realm());
        assert!(run(&mut initiator(forge.issue()), &mut acceptor(service)).is_ok());
        forge.kvno = Some(4);
        let first = initiator(forge.issue()).initial_token(&[], NOW).unwrap();
        let service = service_with(keys, realm());
        let step = acceptor(service).step(&first, NOW, &accounts());
        assert_eq!(matches!(step, Ok(AcceptorStep::Done(_))), is_found, "{others}");
    }
}

#[test]
fn encryption_types_that_are_not_allowed() {
    let rc4 = Forge::new(EncryptionType::Rc4Hmac, FileTime(NOW));
    let strict = |forge: &Forge| service_with(vec![forge.service.clone()], realm());
    let refused = fault(rc4.issue(), strict(&rc4));
    assert_eq!(refused, Fault::EncryptionType { ticket: sealed(23), number: 23 });
    assert!(
        refused.to_string().contains("uses the encryption type rc4-hmac, which is not allowed")
    );
    // A server that allows only AES refuses the ticket, because it is encrypted with AES, but its
    // session key is RC4.
    let mut forge = forge();
    forge.session_key = known_key(EncryptionType::Rc4Hmac, 2);
    let refused = fault(forge.issue(), strict(&forge));
    assert_eq!(refused, Fault::EncryptionType { ticket: sealed(18), number: 23 });
}

#[test]
fn tickets_out_of_their_time() {
    let at = |seconds: i64| FileTime(NOW.saturating_add_signed(seconds * SECOND as i64));
    let with = |change: fn(&mut Forge, FileTime), seconds| {
        let mut forge = forge();
        change(&mut forge, at(seconds));
        forge.issue()
    };
    let end = |forge: &mut Forge, time| forge.end_time = time;
    let start = |forge: &mut Forge, time| forge.start_time = time;
    assert_eq!(fault(with(end, -301), service()), Fault::Expired(301));
    assert_eq!(
        Fault::Expired(301).to_string(),
        "the ticket expired 301 seconds ago; the client has to get a new one"
    );
    assert_eq!(fault(with(start, 301), service()), Fault::NotYetValid(301));
    for ticket in [with(end, -300), with(start, 300)] {
        assert!(run(&mut initiator(ticket), &mut acceptor(service())).is_ok());
    }
    let mut invalid = forge();
    invalid.flags = TicketFlags::INVALID;
    assert_eq!(fault(invalid.issue(), service()), Fault::NotYetValid(0));
    let mut kicked_off = forge().with_pac();
    kicked_off.pac.as_mut().unwrap().logon.as_mut().unwrap().kick_off = at(-5);
    assert_eq!(fault(kicked_off.issue(), service()), Fault::Expired(5));
}

#[test]
fn an_ap_req_is_accepted_once() {
    let service = service();
    let first = initiator(forge().issue()).initial_token(&[], NOW).unwrap();
    let step = |token: &[u8]| acceptor(service.clone()).step(token, NOW, &accounts());
    assert!(matches!(step(&first), Ok(AcceptorStep::Done(_))));
    let again = step(&first).unwrap_err();
    assert_eq!(again.reason, Reason::Kerberos(Fault::Replayed));
    assert_eq!((&*again.user, &*again.domain), ("ann", "FREVO.TEST"));
    assert_eq!(again.to_string(), "the AP-REQ was used before: the logon is a replay");
    // A second authenticator for the same ticket is accepted, because only a repeated authenticator
    // is a replay.
    let next = initiator(forge().issue()).initial_token(&[], NOW + SECOND).unwrap();
    assert!(matches!(step(&next), Ok(AcceptorStep::Done(_))));
}

#[test]
fn an_authenticator_of_another_client_or_key() {
    let mut ticket = forge().issue();
    ticket.client = Principal::user("bob", "FREVO.TEST");
    assert_eq!(fault(ticket, service()), Fault::OtherClient);
    let mut ticket = forge().issue();
    ticket.client.realm = "OTHER.TEST".into();
    assert_eq!(fault(ticket, service()), Fault::OtherClient);
    for etype in EncryptionType::ALL {
        let mut ticket = forge().issue();
        ticket.session_key = known_key(etype, 9);
        assert_eq!(fault(ticket, service()), Fault::WrongAuthenticator, "{etype}");
    }
}

#[test]
fn pacs_that_are_missing_or_wrong() {
    // The default policy requires a PAC, and this ticket has none.
    let required = || service_with(vec![forge().service], Policy::default());
    assert_eq!(fault(forge().issue(), required()), Fault::MissingPac);
    let changed = |change: &dyn Fn(&mut PacForge)| {
        let mut forge = forge().with_pac();
        change(forge.pac.as_mut().unwrap());
        forge
    };
    // MIT's KDC issues a PAC without logon information, which a server accepts only if its policy
    // requires no PAC.
    let bare = changed(&|pac| (pac.logon, pac.upn) = (None, None));
    assert_eq!(fault(bare.issue(), required()), Fault::MissingPac);
    let (done, _) = run(&mut initiator(bare.issue()), &mut acceptor(service())).unwrap();
    assert_eq!(done.identity.kerberos.unwrap().pac, None);
    let other = changed(&|pac| pac.name = "bob".into());
    assert_eq!(fault(other.issue(), service()), Fault::PacOfAnother);
    for (kind, expected) in [
        (-138, Fault::Malformed("server signature")),
        (15, Fault::PacSignatureType(15)),
        (20, Fault::Malformed("server signature")),
        (1, Fault::PacSignatureType(1)),
    ] {
        let other = changed(&|pac| pac.signature_type = Some(kind));
        assert_eq!(fault(other.issue(), service()), expected, "{kind}");
    }
    let wrapped = |pac: &[u8]| authorization_data(1, &authorization_data(128, pac));
    let pac = forge().with_pac().pac.unwrap();
    let late = wrapped(&pac.encode(&forge().service.key, FileTime(NOW)));
    assert_eq!(fault(forge().issue_with(Some(&late)), service()), Fault::PacOfAnother);
    let foreign = wrapped(&pac.encode(&known_key(AES, 9), forge().auth_time));
    assert_eq!(fault(forge().issue_with(Some(&foreign)), service()), Fault::PacAltered);
    // A server that ignores PACs accepts a ticket with a faulty PAC, but takes no SIDs from it.
    let policy = Policy { pac: PacPolicy::Ignored, ..Policy::default() };
    let ignoring = service_with(vec![forge().service], policy);
    let ticket = forge().issue_with(Some(&foreign));
    let (done, _) = run(&mut initiator(ticket), &mut acceptor(ignoring)).unwrap();
    assert_eq!(done.identity.kerberos.unwrap().pac, None);
}

/// RFC 4120 section 5.2.6: a service that does not understand authorization data refuses it, unless
/// it is marked AD-IF-RELEVANT. MS-KILE 3.1.5.5: not so in a domain.
#[test]
fn authorization_data_that_must_be_understood() {
    let unknown = authorization_data(4_711, b"only on Mondays");
    let optional = authorization_data(1, &unknown);
    let ticket = |data: &[u8]| forge().issue_with(Some(data));
    for policy in [PacPolicy::Checked, PacPolicy::Ignored] {
        let service = || {
            let policy = Policy { pac: policy, ..Policy::default() };
            service_with(vec![forge().service], policy)
        };
        assert_eq!(fault(ticket(&unknown), service()), Fault::MandatoryData(4_711));
        assert!(run(&mut initiator(ticket(&optional)), &mut acceptor(service())).is_ok());
        let broken = fault(ticket(b"\x30\x01"), service());
        assert!(matches!(broken, Fault::Malformed(_)), "{broken}");
    }
    let in_domain = || service_with(vec![forge().service], Policy::default());
    let mut both = forge().with_pac();
    let pac = both.pac.take().unwrap().encode(&both.service.key, both.auth_time);
    let pac = authorization_data(1, &authorization_data(128, &pac));
    // The ticket's authorization data may have an unknown element next to the PAC in one list.
    let list = [&pac[4..], &unknown[2..]].concat();
    let mut data = vec![0x30, 0x82];
    data.extend(u16::try_from(list.len()).unwrap().to_be_bytes());
    data.extend(list);
    assert!(run(&mut initiator(ticket(&data)), &mut acceptor(in_domain())).is_ok());
    assert_eq!(fault(ticket(&data), service()), Fault::MandatoryData(4_711));
}

/// RFC 4178 5: the MIC of a first token that completes the exchange.
#[test]
fn a_mic_in_the_first_token_is_checked() {
    let mut client = initiator(forge().issue());
    let first = client.initial_token(&[], NOW).unwrap();
    let parsed = NegTokenInit::parse(&first).unwrap();
    let garbage = NegTokenInit { mic: Some(b"garbage"), ..parsed.clone() }.encode();
    let refusal = acceptor(service()).step(&garbage, NOW, &accounts()).unwrap_err();
    assert_eq!(refusal.reason, Reason::WrongMechListMic);
    assert!(acceptor(service()).step(&parsed.encode(), NOW, &accounts()).is_ok());
}

#[test]
fn accounts_that_may_not_log_on() {
    let mut forge = forge().with_pac();
    forge.pac.as_mut().unwrap().logon.as_mut().unwrap().control |= 1;
    assert_eq!(fault(forge.issue(), service()), Fault::Disabled);
}

#[test]
fn a_user_has_so_many_groups() {
    for (count, fits) in [(MAX_PAC_SIDS - 1, true), (MAX_PAC_SIDS, true), (MAX_PAC_SIDS + 1, false)]
    {
        let mut forge = forge().with_pac();
        let logon = forge.pac.as_mut().unwrap().logon.as_mut().unwrap();
        logon.groups = (1_000..).take(count).collect();
        (logon.extra, logon.resource, logon.flags) = (Vec::new(), None, 0);
        if fits {
            assert!(run(&mut initiator(forge.issue()), &mut acceptor(service())).is_ok());
        } else {
            assert_eq!(fault(forge.issue(), service()), Fault::TooManyGroups);
        }
    }
    // The groups alone are below MAX_PAC_SIDS, but the limit counts SIDs of all kinds together.
    let mut forge = forge().with_pac();
    let logon = forge.pac.as_mut().unwrap().logon.as_mut().unwrap();
    logon.groups = (2_000..).take(MAX_PAC_SIDS - 3).collect();
    assert_eq!(fault(forge.issue(), service()), Fault::TooManyGroups);
}

#[test]
fn realms_that_the_kdc_did_not_check() {
    let mut forge = forge();
    forge.client.realm = "OTHER.TEST".into();
    forge.transited = b"A.TEST".to_vec();
    assert_eq!(fault(forge.issue(), service()), Fault::Transited);
    forge.flags |= TicketFlags::TRANSITED_POLICY_CHECKED;
    assert!(run(&mut initiator(forge.issue()), &mut acceptor(service())).is_ok());
}

#[test]
fn channel_bindings_are_those_of_the_connection() {
    let log_on = |bound: Option<[u8; 16]>, demanded: Option<[u8; 16]>| {
        let entropy =
            InitiatorEntropy { subkey: [3; 32], confounders: [[4; 16]; 2], sequence: [1; 4] };
        let target = Target { channel_bindings: bound, ..Target::default() };
        let mut client = Initiator::with_ticket(Arc::new(forge().issue()), target, entropy);
        let mut server = acceptor(service());
        if let Some(hash) = demanded {
            server = server.with_channel_bindings(hash);
        }
        run(&mut client, &mut server).map(|_| ()).map_err(|refusal| refusal.reason)
    };
    assert_eq!(log_on(None, None), Ok(()));
    assert_eq!(log_on(Some([1; 16]), None), Ok(()));
    assert_eq!(log_on(Some([1; 16]), Some([1; 16])), Ok(()));
    let refused = Err(Reason::Kerberos(Fault::ChannelBindings));
    assert_eq!(log_on(Some([2; 16]), Some([1; 16])), refused);
    assert_eq!(log_on(None, Some([1; 16])), refused);
}

#[test]
fn a_name_in_a_ticket_forges_no_line() {
    let server = Principal::user("a\nb", "R");
    let ticket = Box::new(SealedTicket { server, etype: 18, kvno: None });
    assert!(!Fault::WrongKey(ticket).to_string().contains('\n'));
}
