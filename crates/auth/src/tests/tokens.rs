//! Tokens that are refused, or that are made to break the parsers.

use super::*;

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
    old_logon(Flags::OEM | Flags::NTLM | Flags::REQUEST_TARGET, None, user, domain)
}

/// An NTLMv2 logon without signatures. `last` is the flags of the last message, if they are others.
fn old_logon(flags: Flags, last: Option<Flags>, user: &str, domain: &str) -> Result<Done, Refusal> {
    let negotiate = message::Negotiate { flags }.encode();
    let mut server = acceptor();
    let AcceptorStep::Continue(challenge) = server.step(&negotiate, NOW, &accounts())? else {
        panic!("no challenge")
    };
    let read = message::Challenge::parse(&challenge).unwrap();
    if !flags.contains(Flags::UNICODE) {
        assert!(read.flags.contains(Flags::OEM) && !read.flags.contains(Flags::UNICODE));
        // The client did not offer Unicode, so the server's target name is in the OEM code page.
        assert_eq!(challenge[56..61], *b"FILES");
    }
    let mut temp = vec![1, 1, 0, 0, 0, 0, 0, 0];
    temp.extend(NOW.to_le_bytes());
    temp.extend(*b"clientch\0\0\0\0");
    temp.extend(read.target_info);
    temp.extend([0; 4]);
    let hash = NtHash::from_password("correct horse");
    let key = crate::ntlm::crypt::response_key(&hash, user, domain);
    let proof = crate::ntlm::crypt::proof(&key, &SERVER_CHALLENGE, &temp);
    let last = message::AuthenticateParts {
        flags: last.unwrap_or(flags),
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

/// Libraries for JavaScript send names in Unicode, and no flags in the last message.
#[test]
fn names_without_flags_are_unicode() {
    let offered = Flags::UNICODE | Flags::NTLM | Flags::REQUEST_TARGET;
    let done = old_logon(offered, Some(Flags::EMPTY), "ann", "").unwrap();
    assert_eq!(done.identity.user, "Ann");
    assert!(old_logon(offered, Some(Flags::OEM), "ann", "").is_ok(), "a code page");
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
