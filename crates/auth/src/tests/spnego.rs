//! NTLM inside SPNEGO, and without it.

use super::*;

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
