//! Passwords, MICs and what else a client proves.

use super::*;
use crate::smbpasswd::RulesChange;
use frevo_wire::Status;

#[test]
fn wrong_password_unknown_user_and_disabled_account() {
    let spn = || target("cifs/files");
    assert_eq!(refused(initiator_as("ann", "wrong", spn()), acceptor()), Reason::WrongPassword);
    assert_eq!(refused(initiator_as("bob", "wrong", spn()), acceptor()), Reason::UnknownUser);
    let disabled = Reason::Rule(AccountFault::Disabled);
    assert_eq!(refused(initiator_as("gone", "correct horse", spn()), acceptor()), disabled);
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

/// The rules for an account are told to who has proved its password and everything else, and to nobody
/// else. `NOW` is a Wednesday, 21:20 UTC.
#[test]
fn the_rules_for_an_account_are_told_last() {
    const NOW_UNIX: u64 = 1_705_526_400;
    let end = |end| RulesChange { expires: Some(Some(end)), ..RulesChange::default() };
    let hours = |words: &str| RulesChange {
        hours: Some(Some(words.parse().unwrap())),
        ..RulesChange::default()
    };
    let from = |name: &str| RulesChange {
        workstations: Some(vec![name.to_string()]),
        ..RulesChange::default()
    };
    let must = RulesChange { must_change: Some(true), ..RulesChange::default() };
    let status = |rules: &RulesChange, password: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut accounts = accounts();
        accounts.set_rules("ann", rules).unwrap();
        let (mut server, message) = authenticate_with(password, change);
        match server.step(&message, NOW, &accounts) {
            Ok(_) => Status::SUCCESS,
            Err(refusal) => {
                assert!(refusal.reason.is_of_proof(), "{}", refusal.reason);
                refusal.status()
            }
        }
    };
    for (rules, expected) in [
        (end(NOW_UNIX), Status::ACCOUNT_EXPIRED),
        (end(NOW_UNIX + 1), Status::SUCCESS),
        (must, Status::PASSWORD_MUST_CHANGE),
        (hours("wed 08:00-21:00 UTC"), Status::INVALID_LOGON_HOURS),
        (hours("wed 21:00-22:00 UTC"), Status::SUCCESS),
        (from("DESKTOP"), Status::INVALID_WORKSTATION),
        (from("laptop"), Status::SUCCESS),
    ] {
        assert_eq!(status(&rules, "correct horse", &|_| ()), expected);
        assert_eq!(status(&rules, "wrong", &|_| ()), Status::LOGON_FAILURE);
        // A message whose MIC is wrong is refused for that, though the password is right.
        let forged = |message: &mut Vec<u8>| message[72] ^= 1;
        assert_eq!(status(&rules, "correct horse", &forged), Status::LOGON_FAILURE);
    }
}
