//! Tests of both roles with each other, and of everything that must be refused.

mod kerberos;
mod passed_on;
mod real_clients;

use crate::acceptor::Step as AcceptorStep;
use crate::initiator::Step as InitiatorStep;
use crate::limits::MAX_TOKEN_LEN;
use crate::ntlm::{AvFlags, AvId, Flags, SIGNATURE, message};
use crate::spnego::{KERBEROS, MS_KERBEROS, MechList, NTLM, NegState, NegTokenInit, NegTokenResp};
use crate::{
    Acceptor, AcceptorConfig, AccountFile, Credentials, Done, Entropy, Initiator, NtHash, Reason,
    Refusal, Secret, Target, Zeroizing, smbpasswd::Entry,
};
use alloc::{string::ToString, sync::Arc, vec, vec::Vec};
use proptest::prelude::*;

pub(crate) const NOW: u64 = 133_500_000_000_000_000;
const SERVER_CHALLENGE: [u8; 8] = *b"\x01\x23\x45\x67\x89\xab\xcd\xef";

fn accounts() -> AccountFile {
    let mut file = AccountFile::default();
    let hash = NtHash::from_password("correct horse");
    file.add(Entry::new("Ann", 1000, hash.clone(), 0)).unwrap();
    let mut gone = Entry::new("gone", 1001, hash, 0);
    gone.set_enabled(false);
    file.add(gone).unwrap();
    file
}

fn config() -> AcceptorConfig {
    AcceptorConfig {
        dns_name: "files.example.org".into(),
        dns_domain: "example.org".into(),
        allowed_targets: Some(vec!["192.0.2.7".into()]),
        ..AcceptorConfig::standalone("files")
    }
}

fn acceptor_with(config: AcceptorConfig) -> Acceptor {
    Acceptor::new(Arc::new(config), SERVER_CHALLENGE)
}

fn acceptor() -> Acceptor {
    acceptor_with(config())
}

fn initiator_as(user: &str, password: &str, target: Target) -> Initiator {
    let credentials = Credentials {
        user: user.into(),
        domain: "WORKGROUP".into(),
        secret: Secret::Password(Zeroizing::new(password.into())),
    };
    let entropy =
        Entropy { client_challenge: *b"clientch", session_key: Zeroizing::new([0x77; 16]) };
    Initiator::new(credentials, target, entropy)
}

fn target(spn: &str) -> Target {
    Target { spn: spn.into(), channel_bindings: None, workstation: "LAPTOP".into() }
}

fn initiator() -> Initiator {
    initiator_as("ann", "correct horse", target("cifs/files.example.org"))
}

/// Runs an exchange to its end; `seen` may change each client token.
fn run(
    client: &mut Initiator,
    server: &mut Acceptor,
    mut seen: impl FnMut(usize, Vec<u8>) -> Vec<u8>,
) -> Result<(Done, crate::SessionKey), Refusal> {
    let accounts = accounts();
    let mut token = client.initial_token(&Acceptor::initial_token(false, true), NOW).unwrap();
    for turn in 0..6 {
        match server.step(&seen(turn, token), NOW, &accounts)? {
            AcceptorStep::Continue(answer) => match client.step(&answer, NOW)? {
                InitiatorStep::Continue(next) => token = next,
                InitiatorStep::Done(_) => panic!("the client is done before the server"),
            },
            AcceptorStep::Done(done) => match client.step(&done.token, NOW)? {
                InitiatorStep::Done(key) => return Ok((done, key)),
                InitiatorStep::Continue(_) => panic!("the client wants more"),
            },
            AcceptorStep::Retry(..) => panic!("no Kerberos here"),
            AcceptorStep::Ask(_) => panic!("no domain here"),
        }
    }
    panic!("no end");
}

fn unchanged(_: usize, token: Vec<u8>) -> Vec<u8> {
    token
}

fn refused(client: Initiator, server: Acceptor) -> Reason {
    let (mut client, mut server) = (client, server);
    run(&mut client, &mut server, unchanged).unwrap_err().reason
}

#[test]
fn both_ends_agree_on_user_and_key() {
    let (done, key) = run(&mut initiator(), &mut acceptor(), unchanged).unwrap();
    assert_eq!(done.identity.user, "Ann");
    assert_eq!(done.identity.domain, "WORKGROUP");
    assert_eq!(done.identity.workstation, "LAPTOP");
    assert_eq!(*done.session_key, [0x77; 16]);
    assert_eq!(key, done.session_key);
    assert!(done.has_mic);
    let last = NegTokenResp::parse(&done.token).unwrap();
    assert_eq!(last.state, Some(NegState::ACCEPT_COMPLETED));
    assert_eq!(last.mic.map(<[u8]>::len), Some(16));
}

#[test]
fn kerberos_first_is_answered_with_request_mic() {
    let mut client = initiator().offering(&[MS_KERBEROS, KERBEROS, NTLM]);
    let mut server = acceptor();
    let first = client.initial_token(&[], NOW).unwrap();
    let AcceptorStep::Continue(answer) = server.step(&first, NOW, &accounts()).unwrap() else {
        panic!("no answer")
    };
    let read = NegTokenResp::parse(&answer).unwrap();
    assert_eq!(read.state, Some(NegState::REQUEST_MIC));
    assert_eq!((read.mechanism, read.token), (Some(NTLM), None));
    let mut client = initiator().offering(&[MS_KERBEROS, KERBEROS, NTLM]);
    let (done, key) = run(&mut client, &mut acceptor(), unchanged).unwrap();
    assert_eq!(key, done.session_key);
    assert!(NegTokenResp::parse(&done.token).unwrap().mic.is_some());
}

#[test]
fn an_optimistic_kerberos_token_is_passed_over() {
    let mut client = initiator().offering(&[KERBEROS, NTLM]);
    let result = run(&mut client, &mut acceptor(), |turn, token| {
        if turn > 0 {
            return token;
        }
        let init = NegTokenInit::parse(&token).unwrap();
        NegTokenInit { token: Some(b"an AP-REQ"), ..init }.encode()
    });
    assert!(result.is_ok());
}

#[test]
fn a_list_that_lost_its_first_choice_on_the_way_is_refused() {
    // The client offers Kerberos and NTLM with a token for NTLM. An attacker removes Kerberos from
    // the list, which the client's mechListMIC reveals.
    let mut client = initiator().offering(&[KERBEROS, NTLM]);
    let reason = run(&mut client, &mut acceptor(), |turn, token| {
        if turn > 0 {
            return token;
        }
        NegTokenInit { mechanisms: MechList::of(&[NTLM]), token: None, mic: None }.encode()
    })
    .unwrap_err()
    .reason;
    assert_eq!(reason, Reason::WrongMechListMic);
}

#[test]
fn mech_list_mic_must_be_there_when_ntlm_was_second() {
    let mut client = initiator().offering(&[KERBEROS, NTLM]);
    let reason = run(&mut client, &mut acceptor(), |turn, token| {
        if turn < 2 {
            return token;
        }
        NegTokenResp { mic: None, ..NegTokenResp::parse(&token).unwrap() }.encode()
    })
    .unwrap_err()
    .reason;
    assert_eq!(reason, Reason::MissingMechListMic);
}

#[test]
fn a_flipped_mech_list_mic_is_refused_by_either_end() {
    let flip = |token: &[u8]| {
        let read = NegTokenResp::parse(token).unwrap();
        let mut mic = read.mic.unwrap().to_vec();
        mic[5] ^= 1;
        NegTokenResp { mic: Some(&mic), ..read }.encode()
    };
    let to_server = run(&mut initiator(), &mut acceptor(), |turn, token| match turn {
        1 => flip(&token),
        _ => token,
    });
    assert_eq!(to_server.unwrap_err().reason, Reason::WrongMechListMic);

    let (mut client, mut server) = (initiator(), acceptor());
    let done = finish(&mut client, &mut server);
    let refusal = client.step(&flip(&done.token), NOW).unwrap_err();
    assert_eq!(refusal.reason, Reason::WrongMechListMic);
}

#[test]
fn the_client_insists_on_the_mic_that_it_is_owed() {
    let mut client = initiator().offering(&[KERBEROS, NTLM]);
    let done = finish(&mut client, &mut acceptor());
    let stripped = NegTokenResp { mic: None, ..NegTokenResp::parse(&done.token).unwrap() };
    let refusal = client.step(&stripped.encode(), NOW).unwrap_err();
    assert_eq!(refusal.reason, Reason::MissingMechListMic);
}

/// Runs until the server has finished, without telling the client.
fn finish(client: &mut Initiator, server: &mut Acceptor) -> Done {
    let mut token = client.initial_token(&[], NOW).unwrap();
    loop {
        match server.step(&token, NOW, &accounts()).unwrap() {
            AcceptorStep::Done(done) => return done,
            AcceptorStep::Continue(answer) => match client.step(&answer, NOW).unwrap() {
                InitiatorStep::Continue(next) => token = next,
                InitiatorStep::Done(_) => panic!("done early"),
            },
            AcceptorStep::Retry(..) => panic!("no Kerberos here"),
            AcceptorStep::Ask(_) => panic!("no domain here"),
        }
    }
}

#[test]
fn a_server_that_rejects_or_wants_more_is_not_a_success() {
    for (state, reason) in
        [(NegState::REJECT, Reason::Rejected), (NegState::ACCEPT_INCOMPLETE, Reason::OutOfTurn)]
    {
        let mut client = initiator();
        finish(&mut client, &mut acceptor());
        let last = NegTokenResp { state: Some(state), ..NegTokenResp::default() };
        assert_eq!(client.step(&last.encode(), NOW).unwrap_err().reason, reason);
    }
    let mut client = initiator();
    finish(&mut client, &mut acceptor());
    assert!(matches!(client.step(&[], NOW), Ok(InitiatorStep::Done(_))));
    assert_eq!(client.step(&[], NOW).unwrap_err().reason, Reason::OutOfTurn);
}

#[test]
fn ntlm_without_spnego() {
    let (challenge, authenticate) = bare_exchange(|_| ());
    assert!(challenge.starts_with(&SIGNATURE));
    let mut server = acceptor();
    server.step(&bare_negotiate(), NOW, &accounts()).unwrap();
    let AcceptorStep::Done(done) = server.step(&authenticate, NOW, &accounts()).unwrap() else {
        panic!("not done")
    };
    assert!(done.token.is_empty());
    assert_eq!(*done.session_key, [0x77; 16]);
}

/// Returns the NEGOTIATE_MESSAGE of this client.
fn bare_negotiate() -> Vec<u8> {
    let token = initiator().initial_token(&[], NOW).unwrap();
    NegTokenInit::parse(&token).unwrap().token.unwrap().to_vec()
}

/// Returns CHALLENGE and AUTHENTICATE of a bare exchange; `change` sees the challenge before the
/// client does.
fn bare_exchange(change: impl FnOnce(&mut Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
    let mut server = acceptor();
    let Ok(AcceptorStep::Continue(mut challenge)) =
        server.step(&bare_negotiate(), NOW, &accounts())
    else {
        panic!("no challenge")
    };
    change(&mut challenge);
    let mut client = initiator();
    client.initial_token(&[], NOW).unwrap();
    let wrapped = NegTokenResp { token: Some(&challenge), ..NegTokenResp::default() }.encode();
    let Ok(InitiatorStep::Continue(token)) = client.step(&wrapped, NOW) else {
        panic!("no answer")
    };
    let authenticate = NegTokenResp::parse(&token).unwrap().token.unwrap().to_vec();
    (challenge, authenticate)
}

fn bare_refusal(server: &mut Acceptor, authenticate: &[u8]) -> Refusal {
    server.step(&bare_negotiate(), NOW, &accounts()).unwrap();
    server.step(authenticate, NOW, &accounts()).unwrap_err()
}

#[test]
fn wrong_password_unknown_user_and_disabled_account() {
    let spn = || target("cifs/files");
    assert_eq!(refused(initiator_as("ann", "wrong", spn()), acceptor()), Reason::WrongPassword);
    assert_eq!(refused(initiator_as("bob", "wrong", spn()), acceptor()), Reason::UnknownUser);
    assert_eq!(refused(initiator_as("gone", "correct horse", spn()), acceptor()), Reason::Disabled);
    // A client without the right password cannot find out whether the account exists.
    assert_eq!(refused(initiator_as("gone", "wrong", spn()), acceptor()), Reason::WrongPassword);
}

#[test]
fn a_refusal_names_the_user_for_the_throttle() {
    let refusal =
        run(&mut initiator_as("bob", "x", target("")), &mut acceptor(), unchanged).unwrap_err();
    assert_eq!((&*refusal.user, &*refusal.domain), ("bob", "WORKGROUP"));
    assert_eq!(&*refusal.account, "bob");
    assert!(!refusal.is_malformed());
    assert_eq!(refusal.to_string(), "there is no such user");
}

#[test]
fn the_hash_of_a_password_logs_on_like_it() {
    let credentials = Credentials {
        user: "ANN".into(),
        domain: "".into(),
        secret: Secret::NtHash(NtHash::from_password("correct horse")),
    };
    let entropy = Entropy { client_challenge: [1; 8], session_key: Zeroizing::new([0x77; 16]) };
    let mut client = Initiator::new(credentials, Target::default(), entropy);
    assert!(run(&mut client, &mut acceptor(), unchanged).is_ok());
}

#[test]
fn an_answer_to_another_challenge_is_worth_nothing() {
    let (_, authenticate) = bare_exchange(|_| ());
    let mut other = Acceptor::new(Arc::new(config()), *b"another!");
    assert_eq!(bare_refusal(&mut other, &authenticate).reason, Reason::WrongPassword);
}

#[test]
fn a_challenge_is_answered_once() {
    let (_, authenticate) = bare_exchange(|_| ());
    let mut server = acceptor();
    let mut wrong = authenticate.clone();
    *wrong.last_mut().unwrap() ^= 1; // the session key; the MIC does not match it
    assert_eq!(bare_refusal(&mut server, &wrong).reason, Reason::WrongMic);
    let again = server.step(&authenticate, NOW, &accounts()).unwrap_err();
    assert_eq!(again.reason, Reason::OutOfTurn);

    let mut server = acceptor();
    server.step(&bare_negotiate(), NOW, &accounts()).unwrap();
    assert!(server.step(&authenticate, NOW, &accounts()).is_ok());
    let again = server.step(&authenticate, NOW, &accounts()).unwrap_err();
    assert_eq!(again.reason, Reason::OutOfTurn);
}

#[test]
fn every_bit_of_the_mic_counts() {
    let (_, authenticate) = bare_exchange(|_| ());
    for bit in 72 * 8..88 * 8 {
        let mut flipped = authenticate.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(bare_refusal(&mut acceptor(), &flipped).reason, Reason::WrongMic, "bit {bit}");
    }
}

#[test]
fn the_mic_covers_negotiate_and_challenge() {
    // An attacker removes a flag from the client's offer (NEGOTIATE_MESSAGE), which the MIC of the
    // last message reveals.
    let (_, authenticate) = bare_exchange(|_| ());
    let mut weakened = bare_negotiate();
    weakened[15] &= !0x20; // NTLMSSP_NEGOTIATE_128
    let mut server = acceptor();
    server.step(&weakened, NOW, &accounts()).unwrap();
    let refusal = server.step(&authenticate, NOW, &accounts()).unwrap_err();
    assert_eq!(refusal.reason, Reason::WrongMic);
    // An attacker removes a flag from the server's choice (CHALLENGE_MESSAGE), which the MIC of the
    // last message reveals.
    let (_, authenticate) = bare_exchange(|challenge| challenge[23] &= !0x20);
    assert_eq!(bare_refusal(&mut acceptor(), &authenticate).reason, Reason::WrongMic);
}

#[test]
fn a_mic_that_is_announced_but_absent_is_refused() {
    let (_, authenticate) = bare_exchange(|_| ());
    let mut zeroed = authenticate;
    message::set_mic(&mut zeroed, &[0; 16]);
    assert_eq!(bare_refusal(&mut acceptor(), &zeroed).reason, Reason::WrongMic);
}

#[test]
fn taking_the_announcement_away_breaks_the_proof() {
    let (_, mut authenticate) = bare_exchange(|_| ());
    let flags = [AvId::FLAGS.0 as u8, 0, 4, 0, AvFlags::MIC.0 as u8, 0, 0, 0];
    let at = authenticate.windows(8).position(|w| w == flags).unwrap();
    authenticate[at + 4] = 0;
    assert_eq!(bare_refusal(&mut acceptor(), &authenticate).reason, Reason::WrongPassword);
}

#[test]
fn a_client_without_mic_passes_unless_it_is_required() {
    // An attacker removes the server's timestamp, which no MIC protects yet. The client then sends
    // no MIC, because in MS-NLMP only a timestamp makes a client send one.
    let strip_timestamp = |challenge: &mut Vec<u8>| {
        let mut pair = vec![AvId::TIMESTAMP.0 as u8, 0, 8, 0];
        pair.extend(NOW.to_le_bytes());
        let at = challenge.windows(12).position(|w| w == pair).unwrap();
        challenge.drain(at..at + 12);
        let length = u16::from_le_bytes([challenge[40], challenge[41]]) - 12;
        challenge[40..42].copy_from_slice(&length.to_le_bytes());
    };
    let (_, authenticate) = bare_exchange(strip_timestamp);
    let mut server = acceptor();
    server.step(&bare_negotiate(), NOW, &accounts()).unwrap();
    let AcceptorStep::Done(done) = server.step(&authenticate, NOW, &accounts()).unwrap() else {
        panic!("not done")
    };
    assert!(!done.has_mic);
    let mut strict = acceptor_with(AcceptorConfig { require_mic: true, ..config() });
    assert_eq!(bare_refusal(&mut strict, &authenticate).reason, Reason::MissingMic);
    // A server that requires a MIC must accept a client that sends one.
    let strict = AcceptorConfig { require_mic: true, ..config() };
    assert!(run(&mut initiator(), &mut acceptor_with(strict), unchanged).is_ok());
}

#[test]
fn the_target_must_be_ours_when_it_is_named() {
    let as_target =
        |spn: &str, config| refused(initiator_as("ann", "correct horse", target(spn)), config);
    for spn in ["cifs/elsewhere", "HTTP/files", "files"] {
        assert_eq!(as_target(spn, acceptor()), Reason::WrongTarget(spn.into()));
    }
    for spn in ["cifs/FILES", "cifs/192.0.2.7", "cifs/files.example.org", ""] {
        let mut client = initiator_as("ann", "correct horse", target(spn));
        assert!(run(&mut client, &mut acceptor(), unchanged).is_ok(), "{spn}");
    }
    let strict = || acceptor_with(AcceptorConfig { require_target_name: true, ..config() });
    assert_eq!(as_target("", strict()), Reason::MissingTarget);
    let off = || acceptor_with(AcceptorConfig { allowed_targets: None, ..config() });
    let mut client = initiator_as("ann", "correct horse", target("cifs/elsewhere"));
    assert!(run(&mut client, &mut off(), unchanged).is_ok());
}

#[test]
fn channel_bindings_must_be_those_of_the_connection() {
    let bound = |hash| Target { channel_bindings: hash, ..target("cifs/files") };
    let client = |hash| initiator_as("ann", "correct horse", bound(hash));
    let server = || acceptor().with_channel_bindings([5; 16]);
    assert!(run(&mut client(Some([5; 16])), &mut server(), unchanged).is_ok());
    assert_eq!(refused(client(Some([6; 16])), server()), Reason::WrongChannelBindings);
    assert_eq!(refused(client(None), server()), Reason::WrongChannelBindings);
    // The server has no channel bindings to compare with, so it accepts any of the client's.
    assert!(run(&mut client(Some([6; 16])), &mut acceptor(), unchanged).is_ok());
}

/// Makes an AUTHENTICATE_MESSAGE by hand.
fn authenticate(user: &str, lm_response: &[u8], nt_response: &[u8]) -> Vec<u8> {
    message::AuthenticateParts {
        flags: Flags::UNICODE | Flags::NTLM,
        lm_response,
        nt_response,
        domain: "",
        user,
        workstation: "",
        session_key: &[],
    }
    .encode()
}

#[test]
fn anonymous_and_version_1_are_refused_by_name() {
    for lm in [&[][..], &[0]] {
        let refusal = bare_refusal(&mut acceptor(), &authenticate("", lm, &[]));
        assert_eq!(refusal.reason, Reason::Anonymous);
        assert_eq!(refusal.status(), frevo_wire::Status::ACCESS_DENIED);
    }
    for (lm, nt) in [(&[1; 24][..], &[2; 24][..]), (&[1; 24], &[]), (&[], &[2; 24])] {
        let refusal = bare_refusal(&mut acceptor(), &authenticate("ann", lm, nt));
        assert_eq!(refusal.reason, Reason::NtlmV1);
    }
    for lm in [&[][..], &[0; 24]] {
        let refusal = bare_refusal(&mut acceptor(), &authenticate("ann", lm, &[]));
        assert_eq!(refusal.reason, Reason::NoResponse);
    }
}

/// Tests that a refusal which no password could change is the same for a right and a wrong password, and
/// names no account for the throttle. One that another password could change names it.
#[test]
fn what_no_password_could_change_is_no_guess() {
    let strict = || acceptor_with(AcceptorConfig { require_target_name: true, ..config() });
    let bound = || acceptor().with_channel_bindings([5; 16]);
    for (spn, server) in [
        ("cifs/elsewhere", &acceptor as &dyn Fn() -> Acceptor),
        ("", &strict),
        ("cifs/files", &bound),
    ] {
        let refusal = |password: &str| {
            let mut client = initiator_as("ann", password, target(spn));
            run(&mut client, &mut server(), unchanged).unwrap_err()
        };
        let right = refusal("correct horse");
        assert_eq!(right, refusal("wrong"));
        assert_eq!((&*right.user, &*right.account), ("ann", ""), "{right}");
    }
    for (lm, nt) in [(&[1; 24][..], &[2; 24][..]), (&[], &[])] {
        let refusal = bare_refusal(&mut acceptor(), &authenticate("ann", lm, nt));
        assert_eq!((&*refusal.user, &*refusal.account), ("ann", ""), "{refusal}");
    }
    for (user, password, account) in [("ann", "wrong", "Ann"), ("bob", "correct horse", "bob")] {
        let mut client = initiator_as(user, password, target("cifs/files"));
        let refusal = run(&mut client, &mut acceptor(), unchanged).unwrap_err();
        assert_eq!(&*refusal.account, account, "{refusal}");
    }
}

/// Tests that an anonymous client, if allowed, has no name, and a key that everybody knows.
#[test]
fn an_anonymous_logon_is_accepted_if_allowed() {
    let mut config = AcceptorConfig::standalone("BOX");
    config.anonymous = true;
    let mut acceptor = Acceptor::new(Arc::new(config), [1; 8]);
    let negotiate = [&b"NTLMSSP\0\x01\0\0\0\x01\x02\0\0"[..], &[0; 16]].concat();
    let accounts = AccountFile::default();
    let first = acceptor.step(&negotiate, 0, &accounts);
    assert!(matches!(first, Ok(crate::Step::Continue(_))), "{first:?}");
    let last = acceptor.step(&authenticate("", &[0], &[]), 0, &accounts);
    let Ok(crate::Step::Done(done)) = last else { panic!("{last:?}") };
    assert_eq!(done.identity.user, "");
    assert_eq!(*done.session_key, [0; 16]);
}

#[test]
fn an_empty_user_with_a_response_is_refused() {
    let mut nt = vec![0; 16];
    nt.extend([1, 1]);
    nt.extend([0; 26]);
    let refusal = bare_refusal(&mut acceptor(), &authenticate("", &[], &nt));
    assert_eq!(refusal.reason, Reason::UnknownUser);
}

#[test]
fn lying_lengths_are_malformed() {
    let (_, good) = bare_exchange(|_| ());
    for field in 0..6 {
        let mut bad = good.clone();
        bad[12 + field * 8] = 0xff;
        bad[13 + field * 8] = 0xff;
        let refusal = bare_refusal(&mut acceptor(), &bad);
        assert!(refusal.is_malformed(), "field {field}: {refusal}");
        assert_eq!(refusal.status(), frevo_wire::Status::INVALID_PARAMETER);
    }
    // An AV_PAIR in the response claims a length that exceeds the list.
    let mut bad = good;
    let pair = [AvId::TIMESTAMP.0 as u8, 0, 8, 0];
    let at = bad.windows(4).position(|w| w == pair).unwrap();
    bad[at + 3] = 0xff;
    assert!(bare_refusal(&mut acceptor(), &bad).is_malformed());
}

#[test]
fn tokens_out_of_turn_are_refused() {
    let (_, authenticate) = bare_exchange(|_| ());
    assert!(acceptor().step(&authenticate, NOW, &accounts()).unwrap_err().is_malformed());
    assert!(acceptor().step(&[], NOW, &accounts()).unwrap_err().is_malformed());
    let mut server = acceptor();
    server.step(&bare_negotiate(), NOW, &accounts()).unwrap();
    assert!(server.step(&bare_negotiate(), NOW, &accounts()).unwrap_err().is_malformed());
    // A client that began with SPNEGO must not continue with bare NTLM.
    let mut server = acceptor();
    let first = initiator().initial_token(&[], NOW).unwrap();
    server.step(&first, NOW, &accounts()).unwrap();
    assert!(server.step(&authenticate, NOW, &accounts()).unwrap_err().is_malformed());
    assert_eq!(initiator().step(&[], NOW).unwrap_err().reason, Reason::OutOfTurn);
    let mut client = initiator();
    client.initial_token(&[], NOW).unwrap();
    assert!(client.initial_token(&[], NOW).is_err());
}

#[test]
fn token_length_is_bounded() {
    let init = NegTokenInit { mechanisms: MechList::of(&[KERBEROS, NTLM]), token: None, mic: None };
    let overhead =
        NegTokenInit { token: Some(&vec![0; 60_000]), ..init.clone() }.encode().len() - 60_000;
    for (length, taken) in
        [(MAX_TOKEN_LEN - 1, true), (MAX_TOKEN_LEN, true), (MAX_TOKEN_LEN + 1, false)]
    {
        let ticket = vec![0; length - overhead];
        let token = NegTokenInit { token: Some(&ticket), ..init.clone() }.encode();
        assert_eq!(token.len(), length);
        assert_eq!(acceptor().step(&token, NOW, &accounts()).is_ok(), taken, "{length}");
    }
}

#[test]
fn a_client_without_ntlm_or_unicode_is_refused() {
    let init = NegTokenInit { mechanisms: MechList::of(&[KERBEROS]), token: None, mic: None };
    let refusal = acceptor().step(&init.encode(), NOW, &accounts()).unwrap_err();
    assert_eq!(refusal.reason, Reason::NoCommonMechanism);
    let negotiate = message::Negotiate { flags: Flags::NTLM }.encode();
    let refusal = acceptor().step(&negotiate, NOW, &accounts()).unwrap_err();
    assert!(matches!(refusal.reason, Reason::TooWeak(_)));
}

/// An NTLMv2 logon whose names are in the client's code page, as old libraries send it.
fn oem_logon(user: &str, domain: &str) -> Result<Done, Refusal> {
    let flags = Flags::OEM | Flags::NTLM | Flags::REQUEST_TARGET;
    let negotiate = message::Negotiate { flags }.encode();
    let mut server = acceptor();
    let AcceptorStep::Continue(challenge) = server.step(&negotiate, NOW, &accounts())? else {
        panic!("no challenge")
    };
    let read = message::Challenge::parse(&challenge).unwrap();
    assert!(read.flags.contains(Flags::OEM) && !read.flags.contains(Flags::UNICODE));
    // The client did not offer Unicode, so the server's target name is in the OEM code page.
    assert_eq!(challenge[56..61], *b"FILES");
    let mut temp = vec![1, 1, 0, 0, 0, 0, 0, 0];
    temp.extend(NOW.to_le_bytes());
    temp.extend(*b"clientch\0\0\0\0");
    temp.extend(read.target_info);
    temp.extend([0; 4]);
    let hash = NtHash::from_password("correct horse");
    let key = crate::ntlm::crypt::response_key(&hash, user, domain);
    let proof = crate::ntlm::crypt::proof(&key, &SERVER_CHALLENGE, &temp);
    let last = message::AuthenticateParts {
        flags,
        lm_response: &[0; 24],
        nt_response: &[&proof[..], &temp].concat(),
        domain,
        user,
        workstation: "LAPTOP",
        session_key: &[],
    };
    match server.step(&last.encode(), NOW, &accounts())? {
        AcceptorStep::Done(done) => Ok(done),
        other => panic!("{other:?}"),
    }
}

/// MS-NLMP 3.2.5.1.1: a client without Unicode gets the flag OEM.
#[test]
fn names_may_be_in_a_code_page() {
    let done = oem_logon("ANN", "WORKGROUP").unwrap();
    assert_eq!((&*done.identity.user, &*done.identity.workstation), ("Ann", "LAPTOP"));
    assert_eq!(oem_logon("bob", "").unwrap_err().reason, Reason::UnknownUser);
    // The message does not name its code page, so the server accepts only ASCII.
    assert!(oem_logon("\u{e4}nn", "").unwrap_err().is_malformed());
}

/// RFC 4178 5: a mechListMIC is checked wherever it comes, and one that no key can have made is
/// wrong.
#[test]
fn a_mic_before_any_key_is_refused() {
    let ntlm = MechList::of(&[NTLM]);
    let negotiate = bare_negotiate();
    for token in [None, Some(&*negotiate)] {
        let first = NegTokenInit { mechanisms: ntlm.clone(), token, mic: Some(b"garbage") };
        let refusal = acceptor().step(&first.encode(), NOW, &accounts()).unwrap_err();
        assert_eq!(refusal.reason, Reason::WrongMechListMic);
    }
    // The MIC belongs to Kerberos, whose token is ignored because the server chose NTLM.
    let mechanisms = MechList::of(&[KERBEROS, NTLM]);
    let first = NegTokenInit { mechanisms, token: Some(b"ticket"), mic: Some(b"its MIC") };
    assert!(acceptor().step(&first.encode(), NOW, &accounts()).is_ok());
}

#[test]
fn the_client_refuses_a_server_that_is_too_weak() {
    for (byte, bit) in [(22, 0x08), (22, 0x80), (20, 0x01)] {
        let (mut challenge, _) = bare_exchange(|_| ());
        challenge[byte] &= !bit;
        let mut client = initiator();
        client.initial_token(&[], NOW).unwrap();
        let token = NegTokenResp { token: Some(&challenge), ..NegTokenResp::default() }.encode();
        assert!(matches!(client.step(&token, NOW).unwrap_err().reason, Reason::TooWeak(_)));
    }
    let hint = crate::spnego::server_hint(&MechList::of(&[KERBEROS]));
    assert_eq!(
        initiator().initial_token(&hint, NOW).unwrap_err().reason,
        Reason::NoCommonMechanism
    );
}

#[test]
fn key_exchange_and_its_absence() {
    let mut offered = bare_negotiate();
    offered[15] &= !0x40; // NTLMSSP_NEGOTIATE_KEY_EXCH
    let mut server = acceptor();
    let Ok(AcceptorStep::Continue(challenge)) = server.step(&offered, NOW, &accounts()) else {
        panic!("no challenge")
    };
    assert!(!message::Challenge::parse(&challenge).unwrap().flags.contains(Flags::KEY_EXCH));
    // With KEY_EXCH the client sends a session key of 16 bytes. One of 15 bytes is malformed.
    let (_, mut short) = bare_exchange(|_| ());
    short[52] = 15;
    assert!(bare_refusal(&mut acceptor(), &short).is_malformed());
}

/// Returns the AUTHENTICATE_MESSAGE of a client with this password, changed by `change`.
fn authenticate_with(password: &str, change: impl FnOnce(&mut Vec<u8>)) -> (Acceptor, Vec<u8>) {
    let mut server = acceptor();
    let Ok(AcceptorStep::Continue(challenge)) = server.step(&bare_negotiate(), NOW, &accounts())
    else {
        panic!("no challenge")
    };
    let mut client = initiator_as("ann", password, target("cifs/files.example.org"));
    client.initial_token(&[], NOW).unwrap();
    let wrapped = NegTokenResp { token: Some(&challenge), ..NegTokenResp::default() }.encode();
    let Ok(InitiatorStep::Continue(token)) = client.step(&wrapped, NOW) else {
        panic!("no answer")
    };
    let mut message = NegTokenResp::parse(&token).unwrap().token.unwrap().to_vec();
    change(&mut message);
    (server, message)
}

/// Tests that a message which is refused for another reason than its password is refused in one way
/// whatever the password is, and names one account. Each message goes to a server for which the
/// password is right, and to one for which it is wrong.
#[test]
fn no_field_reveals_that_a_password_is_right() {
    let other = || {
        let mut file = AccountFile::default();
        file.add(Entry::new("Ann", 1000, NtHash::from_password("another"), 0)).unwrap();
        file
    };
    let judged = |accounts: AccountFile, change: &dyn Fn(&mut Vec<u8>)| {
        let (mut server, message) = authenticate_with("correct horse", change);
        let refusal = server.step(&message, NOW, &accounts).unwrap_err();
        (refusal.status(), refusal.user, refusal.account)
    };
    let compare = |what: &str, change: &dyn Fn(&mut Vec<u8>)| {
        assert_eq!(judged(accounts(), change), judged(other(), change), "{what}");
    };
    let length = authenticate_with("correct horse", |_| ()).1.len();
    for at in 0..length {
        for bits in [1, 0x40, 0xff] {
            compare(&alloc::format!("byte {at} ^ {bits:#x}"), &|message| message[at] ^= bits);
        }
        if at > 0 {
            compare(&alloc::format!("cut at {at}"), &|message| message.truncate(at));
        }
    }
    for keys in (0..=64).filter(|keys| *keys != 16) {
        compare(&alloc::format!("a key of {keys} bytes"), &|message| {
            message[52] = keys;
            message.extend([0; 64]);
        });
    }
}

/// Tests that the name in a malformed message is known all the same, and stands for the account.
#[test]
fn a_malformed_message_names_its_user() {
    let (mut server, message) = authenticate_with("wrong", |message| message[52] = 5);
    let refusal = server.step(&message, NOW, &accounts()).unwrap_err();
    assert!(refusal.is_malformed());
    assert_eq!((&*refusal.user, &*refusal.account), ("ann", ""));
    // The user's name is read even if another field is malformed.
    for field in [12, 20, 28, 44, 52] {
        let (mut server, message) = authenticate_with("wrong", |message| message[field + 7] = 0xff);
        let refusal = server.step(&message, NOW, &accounts()).unwrap_err();
        assert!(refusal.is_malformed(), "{field}");
        assert_eq!((&*refusal.user, &*refusal.account), ("ann", ""), "{field}");
    }
}

#[test]
fn debug_output_holds_no_secret() {
    let client = initiator();
    let text = alloc::format!("{client:?}");
    assert!(!text.contains("correct horse") && !text.contains("119, 119"), "{text}");
    let (done, _) = run(&mut initiator(), &mut acceptor(), unchanged).unwrap();
    assert!(!alloc::format!("{done:?}").contains("119"));
}

/// Passes a token to every state of both roles.
fn feed_everything(token: &[u8]) {
    let accounts = accounts();
    let _ = acceptor().step(token, NOW, &accounts);
    let mut bare = acceptor();
    bare.step(&bare_negotiate(), NOW, &accounts).unwrap();
    if let Ok(AcceptorStep::Done(_)) = bare.step(token, NOW, &accounts) {
        panic!("logged on without a proof");
    }
    for mechanisms in [&[NTLM][..], &[KERBEROS, NTLM]] {
        let mut client = initiator().offering(mechanisms);
        let first = client.initial_token(&[], NOW).unwrap();
        let mut wrapped = acceptor();
        wrapped.step(&first, NOW, &accounts).unwrap();
        let _ = wrapped.step(token, NOW, &accounts);
        let _ = client.step(token, NOW);
    }
    let _ = initiator().initial_token(token, NOW);
    let mut client = initiator();
    finish(&mut client, &mut acceptor());
    let _ = client.step(token, NOW);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_tokens_never_panic(token in prop::collection::vec(any::<u8>(), 0..400)) {
        feed_everything(&token);
    }

    #[test]
    fn arbitrary_bodies_of_ntlm_messages_never_panic(
        kind in 1u8..=3,
        body in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let mut token = SIGNATURE.to_vec();
        token.extend([kind, 0, 0, 0]);
        token.extend(body);
        feed_everything(&token);
        let wrapped = NegTokenResp { token: Some(&token), ..NegTokenResp::default() };
        feed_everything(&wrapped.encode());
    }

    /// Tests that any change of a good AUTHENTICATE_MESSAGE makes the logon fail or leaves it
    /// unchanged: the MIC covers everything that matters.
    #[test]
    fn changed_messages_never_log_another_user_on(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (_, mut token) = bare_exchange(|_| ());
        for (index, xor) in changes {
            let at = index.index(token.len());
            token[at] ^= xor;
        }
        if let Some(cut) = cut {
            token.truncate(cut.index(token.len()));
        }
        let (_, good) = bare_exchange(|_| ());
        let mut server = acceptor();
        server.step(&bare_negotiate(), NOW, &accounts()).unwrap();
        if server.step(&token, NOW, &accounts()).is_ok() {
            // Two changes of one byte may cancel each other. Only then may the token be accepted.
            prop_assert_eq!(token, good);
        }
    }

    #[test]
    fn changed_spnego_never_panics(
        which in 0usize..4,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut client = initiator();
        let mut server = acceptor();
        let mut tokens = vec![client.initial_token(&[], NOW).unwrap()];
        if let Ok(AcceptorStep::Continue(answer)) = server.step(&tokens[0], NOW, &accounts()) {
            if let Ok(InitiatorStep::Continue(next)) = client.step(&answer, NOW) {
                if let Ok(AcceptorStep::Done(done)) = server.step(&next, NOW, &accounts()) {
                    tokens.push(done.token);
                }
                tokens.push(next);
            }
            tokens.push(answer);
        }
        prop_assert_eq!(tokens.len(), 4);
        let mut token = tokens[which].clone();
        for (index, value) in changes {
            let at = index.index(token.len());
            token[at] = value;
        }
        let _ = acceptor().step(&token, NOW, &accounts());
        let mut server = acceptor();
        server.step(&tokens[0], NOW, &accounts()).unwrap();
        let _ = server.step(&token, NOW, &accounts());
        let mut client = initiator();
        client.initial_token(&[], NOW).unwrap();
        let _ = client.step(&token, NOW);
        let _ = initiator().initial_token(&token, NOW);
    }

    #[test]
    fn account_files_never_panic_and_settle(text in "[a-zA-Z0-9:\\[\\] #\\n-]{0,200}") {
        if let Ok(file) = AccountFile::parse(&text) {
            let once = file.to_text();
            let again = AccountFile::parse(&once).unwrap().to_text();
            prop_assert_eq!(&*once, &*again);
        }
    }
}
