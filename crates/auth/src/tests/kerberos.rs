//! Kerberos: both roles with each other, and everything that must be refused.

mod altered;
mod dce;
mod refused;

use super::{AcceptorStep, InitiatorStep, NOW, SERVER_CHALLENGE, accounts, config};
use crate::kerberos::forge::{Forge, PacForge};
use crate::kerberos::{
    AcceptorEntropy, EncryptionType, Fault, InitiatorEntropy, PacPolicy, Policy, Replay,
    ReplayTable, Replays, Service, ServiceKey, ServiceKeys, ServiceTicket,
};
use crate::spnego::{KERBEROS, MS_KERBEROS, MechList, NTLM, NegState, NegTokenInit, NegTokenResp};
use crate::{
    Acceptor, AcceptorConfig, Credentials, Done, Entropy, Initiator, Mechanism, Reason, Refusal,
    Secret, SessionKey, Target, Zeroizing,
};
use alloc::{string::ToString, sync::Arc, vec, vec::Vec};
use frevo_wire::dtyp::{FileTime, Sid};
use std::sync::Mutex;

const SECOND: u64 = 10_000_000;

#[derive(Debug, Default)]
struct Memory(Mutex<ReplayTable>);

impl Replays for Memory {
    fn record(&self, replay: Replay, now: i64) -> Result<(), Fault> {
        self.0.lock().unwrap().record(replay, now)
    }
}

/// Returns a ticket for the service of [`service`].
fn forge() -> Forge {
    Forge::new(EncryptionType::Aes256Sha1, FileTime(NOW))
}

/// Returns the rules of a realm without domain controllers.
fn realm() -> Policy {
    Policy { pac: PacPolicy::Checked, ..Policy::default() }
}

fn service_with(keys: Vec<ServiceKey>, policy: Policy) -> Service {
    let keys = Arc::new(ServiceKeys::new(keys).unwrap());
    Service { keys, policy, replays: Arc::new(Memory::default()) }
}

/// Returns the service of a forge, which allows all encryption types.
fn service_of(forge: &Forge) -> Service {
    let etypes = EncryptionType::ALL.to_vec();
    service_with(vec![forge.service.clone()], Policy { etypes, ..realm() })
}

fn service() -> Service {
    service_of(&forge())
}

fn acceptor(service: Service) -> Acceptor {
    let entropy = AcceptorEntropy { subkey: [7; 32], confounder: [8; 16], sequence: [0xff; 4] };
    Acceptor::new(Arc::new(config()), SERVER_CHALLENGE).with_kerberos(Arc::new(service), entropy)
}

fn initiator(ticket: ServiceTicket) -> Initiator {
    let entropy =
        InitiatorEntropy { subkey: [3; 32], confounders: [[4; 16], [5; 16]], sequence: [1; 4] };
    Initiator::with_ticket(Arc::new(ticket), Target::default(), entropy)
}

fn or_ntlm(initiator: Initiator) -> Initiator {
    let credentials = Credentials {
        user: "ann".into(),
        domain: "".into(),
        secret: Secret::Password(Zeroizing::new("correct horse".into())),
    };
    let entropy = Entropy { client_challenge: [1; 8], session_key: Zeroizing::new([0x77; 16]) };
    initiator.or_ntlm(credentials, entropy)
}

/// Runs an exchange to its end. The client's clock is at `client_now`. Returns refusals after which
/// the client tried again, too.
fn run_at(
    client: &mut Initiator,
    server: &mut Acceptor,
    client_now: u64,
    mut seen: impl FnMut(usize, Vec<u8>) -> Vec<u8>,
) -> Result<(Done, SessionKey, Vec<Reason>), Refusal> {
    let mut token = client.initial_token(&[], client_now)?;
    let mut retried = Vec::new();
    for turn in 0..6 {
        let answer = match server.step(&seen(turn, token), NOW, &accounts())? {
            AcceptorStep::Continue(answer) => answer,
            AcceptorStep::Retry(answer, refusal) => {
                retried.push(refusal.reason);
                answer
            }
            AcceptorStep::Ask(_) => panic!("no domain here"),
            AcceptorStep::Done(done) => match client.step(&done.token, client_now)? {
                InitiatorStep::Done(key) => return Ok((done, key, retried)),
                InitiatorStep::Continue(_) => panic!("the client wants more"),
            },
        };
        match client.step(&answer, client_now)? {
            InitiatorStep::Continue(next) => token = next,
            InitiatorStep::Done(_) => panic!("the client is done before the server"),
        }
    }
    panic!("no end");
}

fn run(client: &mut Initiator, server: &mut Acceptor) -> Result<(Done, SessionKey), Refusal> {
    let (done, key, retried) = run_at(client, server, NOW, |_, token| token)?;
    assert!(retried.is_empty(), "{retried:?}");
    Ok((done, key))
}

#[test]
fn a_ticket_logs_on_with_every_encryption_type() {
    for etype in EncryptionType::ALL {
        let forge = Forge::new(etype, FileTime(NOW));
        let mut client = initiator(forge.issue());
        let (done, key) = run(&mut client, &mut acceptor(service_of(&forge))).unwrap();
        assert_eq!(key, done.session_key, "{etype}");
        assert_eq!(key.len(), etype.key_len());
        assert_eq!(client.mechanism(), Some(Mechanism::Kerberos));
        // MS-KILE 3.1.1.2: the session key is the server's subkey (bytes of 7), but with RC4 the
        // client's subkey (3).
        let byte = if etype == EncryptionType::Rc4Hmac { 3 } else { 7 };
        assert_eq!(*key, vec![byte; etype.key_len()], "{etype}");
        let identity = done.identity.clone();
        assert_eq!((&*identity.user, &*identity.domain), ("ann", "FREVO.TEST"));
        assert_eq!(identity.mechanism(), Mechanism::Kerberos);
        let user = identity.kerberos.unwrap();
        assert_eq!(user.principal.to_string(), "ann@FREVO.TEST");
        assert_eq!(user.expires, forge.end_time);
        assert!(user.pac.is_none() && done.sealing().is_none());
    }
}

#[test]
fn the_first_answer_names_the_mechanism_as_the_client_spelled_it() {
    for first in [MS_KERBEROS, KERBEROS] {
        let mut client = initiator(forge().issue());
        let init = client.initial_token(&[], NOW).unwrap();
        let init = NegTokenInit::parse(&init).unwrap();
        let init = NegTokenInit { mechanisms: MechList::of(&[first, NTLM]), ..init }.encode();
        let Ok(AcceptorStep::Done(done)) = acceptor(service()).step(&init, NOW, &accounts()) else {
            panic!("not done")
        };
        let answer = NegTokenResp::parse(&done.token).unwrap();
        assert_eq!(answer.state, Some(NegState::ACCEPT_COMPLETED));
        assert_eq!((answer.mechanism, answer.mic), (Some(first), None));
    }
}

#[test]
fn kerberos_without_spnego() {
    let mut client = initiator(forge().issue());
    let init = client.initial_token(&[], NOW).unwrap();
    let bare = NegTokenInit::parse(&init).unwrap().token.unwrap().to_vec();
    let mut server = acceptor(service());
    let Ok(AcceptorStep::Done(done)) = server.step(&bare, NOW, &accounts()) else { panic!("?") };
    assert_eq!(&*done.identity.user, "ann");
    // The server answered a bare AP-REQ with a bare AP-REP. This client expects it inside of
    // SPNEGO.
    let wrapped = NegTokenResp {
        state: Some(NegState::ACCEPT_COMPLETED),
        token: Some(&done.token),
        ..NegTokenResp::default()
    };
    let Ok(InitiatorStep::Done(key)) = client.step(&wrapped.encode(), NOW) else { panic!("?") };
    assert_eq!(key, done.session_key);
}

#[test]
fn a_second_choice_is_proved_by_both_ends() {
    let offered = &[&[0x2b, 1][..], KERBEROS, NTLM];
    let mut client = initiator(forge().issue()).offering(offered);
    let (done, key) = run(&mut client, &mut acceptor(service())).unwrap();
    assert!(done.has_mic);
    assert_eq!(key, done.session_key);

    // An attacker removes the first mechanism from the list, which the client's MIC reveals.
    let mut client = initiator(forge().issue()).offering(offered);
    let refusal = run_at(&mut client, &mut acceptor(service()), NOW, |turn, token| {
        if turn > 0 {
            return token;
        }
        let mechanisms = MechList::of(&[&[0x2b, 2][..], KERBEROS, NTLM]);
        NegTokenInit { mechanisms, ..NegTokenInit::parse(&token).unwrap() }.encode()
    });
    assert_eq!(refusal.unwrap_err().reason, Reason::WrongMechListMic);

    // The server's MIC is missing or wrong, so the client refuses its last answer.
    for (change, reason) in
        [(None, Reason::MissingMechListMic), (Some(&b"another MIC"[..]), Reason::WrongMechListMic)]
    {
        let mut client = initiator(forge().issue()).offering(offered);
        let refusal = run_at(&mut client, &mut acceptor(service()), NOW, |turn, token| {
            let read = NegTokenResp::parse(&token);
            match read {
                Ok(read) if turn == 2 => NegTokenResp { mic: change, ..read }.encode(),
                _ => token,
            }
        });
        assert_eq!(refusal.unwrap_err().reason, reason);
    }
}

#[test]
fn the_client_insists_on_the_mic_of_a_second_choice() {
    let mut client = initiator(forge().issue()).offering(&[&[0x2b, 1], KERBEROS]);
    let mut server = acceptor(service());
    let first = client.initial_token(&[], NOW).unwrap();
    let Ok(AcceptorStep::Continue(chosen)) = server.step(&first, NOW, &accounts()) else {
        panic!("?")
    };
    let Ok(InitiatorStep::Continue(request)) = client.step(&chosen, NOW) else { panic!("?") };
    let Ok(AcceptorStep::Continue(proof)) = server.step(&request, NOW, &accounts()) else {
        panic!("?")
    };
    let read = NegTokenResp::parse(&proof).unwrap();
    assert!(read.mic.is_some());
    let state = Some(NegState::ACCEPT_COMPLETED);
    let stripped = NegTokenResp { state, mic: None, ..read }.encode();
    assert_eq!(client.step(&stripped, NOW).unwrap_err().reason, Reason::MissingMechListMic);
}

#[test]
fn a_server_without_kerberos_gets_ntlm_where_the_user_allows_it() {
    let ntlm_only = || Acceptor::new(Arc::new(config()), SERVER_CHALLENGE);
    let mut client = or_ntlm(initiator(forge().issue()));
    let (done, key) = run(&mut client, &mut ntlm_only()).unwrap();
    assert_eq!(client.mechanism(), Some(Mechanism::Ntlm));
    assert_eq!((key, done.identity.kerberos), (done.session_key, None));
    assert!(NegTokenResp::parse(&done.token).unwrap().mic.is_some());

    let refusal = run(&mut initiator(forge().issue()), &mut ntlm_only()).unwrap_err();
    assert_eq!(refusal.reason, Reason::NoCommonMechanism);
    // The server's hint offers only NTLM: a client without NTLM refuses, and a client with both
    // mechanisms goes on.
    let hint = Acceptor::initial_token(false, true);
    let mut client = initiator(forge().issue());
    assert_eq!(client.initial_token(&hint, NOW).unwrap_err().reason, Reason::NoCommonMechanism);
    let mut client = or_ntlm(initiator(forge().issue()));
    let first = client.initial_token(&hint, NOW).unwrap();
    assert_eq!(NegTokenInit::parse(&first).unwrap().mechanisms, MechList::of(&[NTLM]));

    // An attacker cannot switch the client to NTLM: the forged answer has no valid MIC.
    let mut client = or_ntlm(initiator(forge().issue()));
    client.initial_token(&[], NOW).unwrap();
    let switch = NegTokenResp {
        state: Some(NegState::REQUEST_MIC),
        mechanism: Some(NTLM),
        ..NegTokenResp::default()
    };
    assert!(matches!(client.step(&switch.encode(), NOW), Ok(InitiatorStep::Continue(_))));
    // A client that did not offer NTLM refuses the switch at once.
    let mut client = initiator(forge().issue());
    client.initial_token(&[], NOW).unwrap();
    let refusal = client.step(&switch.encode(), NOW).unwrap_err();
    assert_eq!(refusal.reason, Reason::NoCommonMechanism);
}

#[test]
fn a_server_offers_what_it_accepts() {
    let offered = |kerberos, ntlm| {
        let hint = Acceptor::initial_token(kerberos, ntlm);
        NegTokenInit::parse(&hint).unwrap().mechanisms
    };
    assert_eq!(offered(true, true), MechList::of(&[MS_KERBEROS, KERBEROS, NTLM]));
    assert_eq!(offered(true, false), MechList::of(&[MS_KERBEROS, KERBEROS]));
    assert_eq!(offered(false, true), MechList::of(&[NTLM]));
}

#[test]
fn a_server_without_ntlm_refuses_it_bare_and_in_spnego() {
    let config = Arc::new(AcceptorConfig { ntlm: false, ..config() });
    let mut client = super::initiator();
    let init = client.initial_token(&[], NOW).unwrap();
    let bare = NegTokenInit::parse(&init).unwrap().token.unwrap().to_vec();
    for token in [init, bare] {
        let mut server = Acceptor::new(Arc::clone(&config), SERVER_CHALLENGE);
        let refusal = server.step(&token, NOW, &accounts()).unwrap_err();
        assert_eq!(refusal.reason, Reason::NtlmOff);
    }
}

#[test]
fn the_pac_identifies_the_user() {
    let forge = forge().with_pac();
    let service = Service { policy: Policy::default(), ..service() };
    let (done, _) = run(&mut initiator(forge.issue()), &mut acceptor(service)).unwrap();
    assert_eq!((&*done.identity.user, &*done.identity.domain), ("ann", "FREVO"));
    let pac = done.identity.kerberos.unwrap().pac.clone().unwrap();
    let sid = |text: &str| text.parse::<Sid>().unwrap();
    assert_eq!(pac.user, sid("S-1-5-21-1-2-3-1105"));
    assert_eq!(pac.primary_group, sid("S-1-5-21-1-2-3-513"));
    assert_eq!(pac.domain_sid, sid("S-1-5-21-1-2-3"));
    let groups = [
        "S-1-5-21-1-2-3-513",
        "S-1-5-21-1-2-3-1200",
        "S-1-5-21-1-2-3-1300",
        "S-1-5-21-1-2-3-1301",
        "S-1-5-21-9-8-7-600",
        "S-1-5-21-9-8-7-601",
    ];
    assert_eq!(pac.groups, groups.map(sid));
    assert_eq!(pac.upn.as_deref(), Some("ann@frevo.test"));
    assert_eq!(pac.dns_domain.as_deref(), Some("FREVO.TEST"));
    assert_eq!((&*pac.logon_server, pac.kick_off), ("DC", None));
}

#[test]
fn a_controller_gives_no_sids_of_this_machine() {
    let mut forge = forge().with_pac();
    let mut logon = PacForge::of(&forge.client).logon.unwrap();
    let sids = [
        "S-1-1-0",
        "S-1-3-0",
        "S-1-5-7",
        "S-1-5-18",
        "S-1-5-32-544",
        "S-1-22-1-0",
        "S-1-22-2-0",
        "S-1-5-21-1-2-3",
        "S-1-5-21-1-2-3-4-5",
        "S-1-18-1",
        "S-1-5-21-4-4-4-4",
    ];
    logon.extra = sids.iter().map(|text| text.parse().unwrap()).collect();
    logon.resource = Some((Sid::BUILTIN, vec![544]));
    logon.groups = Vec::new();
    forge.pac.as_mut().unwrap().logon = Some(logon);
    let (done, _) = run(&mut initiator(forge.issue()), &mut acceptor(service())).unwrap();
    let pac = done.identity.kerberos.unwrap().pac.clone().unwrap();
    let groups: Vec<_> = pac.groups.iter().map(ToString::to_string).collect();
    assert_eq!(groups, ["S-1-5-21-4-4-4-4", "S-1-18-1"]);
}

#[test]
fn the_session_ends_with_the_ticket_or_when_the_controller_says() {
    let mut forge = forge().with_pac();
    let logon = forge.pac.as_mut().unwrap().logon.as_mut().unwrap();
    logon.kick_off = FileTime(NOW + 60 * SECOND);
    let end = |forge: &Forge| {
        let (done, _) = run(&mut initiator(forge.issue()), &mut acceptor(service())).unwrap();
        done.identity.kerberos.unwrap().expires
    };
    assert_eq!(end(&forge), FileTime(NOW + 60 * SECOND));
    forge.pac.as_mut().unwrap().logon.as_mut().unwrap().kick_off = FileTime(0);
    assert_eq!(end(&forge), forge.end_time);
    // The ticket has expired 100 seconds ago. With the allowed clock difference of 300 seconds it
    // is still valid for 200.
    forge.end_time = FileTime(NOW - 100 * SECOND);
    assert_eq!(end(&forge), FileTime(NOW + 200 * SECOND));
}

#[test]
fn a_client_whose_clock_is_wrong_learns_the_time_and_tries_again() {
    for client_now in [NOW - 360 * SECOND, NOW + 360 * SECOND] {
        let mut client = initiator(forge().issue());
        let (done, key, retried) =
            run_at(&mut client, &mut acceptor(service()), client_now, |_, token| token).unwrap();
        assert_eq!(key, done.session_key);
        let ahead = (client_now as i64 - NOW as i64) / SECOND as i64;
        assert_eq!(retried, [Reason::Kerberos(Fault::Skew(ahead))]);
    }
    // A client without clock correction is refused twice, because it sends the same wrong time
    // again.
    let old = |time| initiator(forge().issue()).initial_token(&[], time).unwrap();
    let old_request = |time| {
        let token = old(time);
        let token = NegTokenInit::parse(&token).unwrap().token;
        NegTokenResp { token, ..NegTokenResp::default() }.encode()
    };
    let mut server = acceptor(service());
    let first = server.step(&old(NOW - 301 * SECOND), NOW, &accounts());
    let Ok(AcceptorStep::Retry(_, refusal)) = first else { panic!("{first:?}") };
    assert_eq!(
        refusal.to_string(),
        "the client's clock is 301 seconds behind this server's; set both by NTP"
    );
    let again = server.step(&old_request(NOW - 302 * SECOND), NOW, &accounts()).unwrap_err();
    assert_eq!(again.reason, Reason::Kerberos(Fault::Skew(-302)));
    let third = server.step(&old_request(NOW), NOW, &accounts()).unwrap_err();
    assert_eq!(third.reason, Reason::OutOfTurn);
    for seconds in [299, 300] {
        for now in [NOW - seconds * SECOND, NOW + seconds * SECOND] {
            let first = acceptor(service()).step(&old(now), NOW, &accounts());
            assert!(matches!(first, Ok(AcceptorStep::Done(_))), "{seconds}");
        }
    }
}

#[test]
fn a_server_that_cannot_read_the_ticket_proves_nothing() {
    let mut client = initiator(forge().issue());
    let first = client.initial_token(&[], NOW).unwrap();
    let Ok(AcceptorStep::Done(done)) = acceptor(service()).step(&first, NOW, &accounts()) else {
        panic!("?")
    };
    // An AP-REP of another exchange and one with a changed byte are refused.
    let mut other = initiator(forge().issue());
    other.initial_token(&[], NOW + SECOND).unwrap();
    let refusal = other.step(&done.token, NOW).unwrap_err();
    assert_eq!(refusal.reason, Reason::Kerberos(Fault::WrongProof));
    for byte in 0..done.token.len() {
        let mut client = initiator(forge().issue());
        client.initial_token(&[], NOW).unwrap();
        let mut changed = done.token.clone();
        changed[byte] ^= 1;
        // supportedMech has two valid values, but no change of one byte turns one into the other.
        // So each changed byte must lead to a refusal.
        if let Ok(InitiatorStep::Done(key)) = client.step(&changed, NOW) {
            panic!("byte {byte} of {} does not matter: {}", done.token.len(), key.len());
        }
    }
    // The server accepts without sending an AP-REP, so its proof is missing.
    let mut client = initiator(forge().issue());
    client.initial_token(&[], NOW).unwrap();
    let state = Some(NegState::ACCEPT_COMPLETED);
    let empty = NegTokenResp { state, ..NegTokenResp::default() }.encode();
    assert!(client.step(&empty, NOW).unwrap_err().is_malformed());
}
