//! Users of a domain, whose proofs are passed on.

use super::*;
use crate::kerberos::{LogonInfo, UserAccountControl};
use crate::ntlm::crypt;
use crate::{DomainLogon, DomainQuestion};
use alloc::string::String;
use frevo_wire::dtyp::Sid;

fn client(user: &str, domain: &str) -> Initiator {
    let credentials = Credentials {
        user: user.into(),
        domain: domain.into(),
        secret: Secret::Password(Zeroizing::new("domain password".into())),
    };
    let entropy =
        Entropy { client_challenge: *b"clientch", session_key: Zeroizing::new([0x77; 16]) };
    Initiator::new(credentials, target("cifs/files.example.org"), entropy)
}

fn server() -> Acceptor {
    acceptor_with(AcceptorConfig { passed_on: vec!["FREVO".into(), "a.test".into()], ..config() })
}

/// The answer of a controller at which the user has this password.
fn answer_of(question: &DomainQuestion, password: &str) -> Result<DomainLogon, Reason> {
    let hash = NtHash::from_password(password);
    let key = crypt::response_key(&hash, &question.user, &question.domain);
    let (proof, temp) = question.nt_response.split_at(16);
    if crypt::proof(&key, &question.challenge, temp) != proof {
        return Err(Reason::DomainRefused(String::from("NT_STATUS_WRONG_PASSWORD")));
    }
    let domain_sid: Sid = "S-1-5-21-1-2-3".parse().unwrap();
    let user = LogonInfo {
        user_name: "Ann".into(),
        full_name: String::new(),
        logon_server: String::new(),
        domain: "FREVO".into(),
        domain_sid,
        user: domain_sid.with_rid(1_105).unwrap(),
        primary_group: domain_sid.with_rid(513).unwrap(),
        groups: vec![domain_sid.with_rid(513).unwrap()],
        upn: None,
        dns_domain: None,
        user_account_control: UserAccountControl::NORMAL,
        kick_off: None,
    };
    let base = crypt::session_base_key(&key, proof.try_into().unwrap());
    Ok(DomainLogon { session_key: Zeroizing::new(base.to_vec()), user: Arc::new(user) })
}

/// Runs an exchange in which `judge` is the controller.
fn with_domain(
    client: &mut Initiator,
    server: &mut Acceptor,
    judge: impl Fn(&DomainQuestion) -> Result<DomainLogon, Reason>,
) -> Result<(Done, crate::SessionKey), Refusal> {
    let first = client.initial_token(&Acceptor::initial_token(false, true), NOW).unwrap();
    let AcceptorStep::Continue(challenge) = server.step(&first, NOW, &accounts())? else {
        panic!()
    };
    let InitiatorStep::Continue(last) = client.step(&challenge, NOW).unwrap() else { panic!() };
    let AcceptorStep::Ask(question) = server.step(&last, NOW, &accounts())? else { panic!() };
    assert_eq!(question.challenge, SERVER_CHALLENGE);
    let AcceptorStep::Done(done) = server.answer(judge(&question))? else { panic!() };
    let InitiatorStep::Done(key) = client.step(&done.token, NOW).unwrap() else { panic!() };
    Ok((done, key))
}

#[test]
fn the_key_of_the_domain_is_that_of_the_client() {
    for (user, domain) in
        [("ann", "frevo"), ("ANN", "A.test"), ("ann@a.test", ""), ("ann@suffix.test", "")]
    {
        let right = |question: &DomainQuestion| answer_of(question, "domain password");
        let (done, key) = with_domain(&mut client(user, domain), &mut server(), right).unwrap();
        assert_eq!((&*done.identity.user, key), ("Ann", done.session_key), "{user} {domain}");
        assert!(done.has_mic);
        assert_eq!(done.identity.by_domain.unwrap().domain, "FREVO");
        assert!(done.identity.kerberos.is_none());
    }
}

#[test]
fn refusals_of_the_domain_count_and_its_silence_does_not() {
    let wrong = |question: &DomainQuestion| answer_of(question, "another password");
    let refusal = with_domain(&mut client("ann", "frevo"), &mut server(), wrong).unwrap_err();
    assert_eq!((&*refusal.user, &*refusal.account), ("ann", "frevo\\ann"));
    assert!(matches!(refusal.reason, Reason::DomainRefused(_)), "{refusal}");
    let refusal =
        with_domain(&mut client("ann@suffix.test", ""), &mut server(), wrong).unwrap_err();
    assert_eq!((&*refusal.user, &*refusal.account), ("ann@suffix.test", "FREVO\\ann"));
    let silent = |_: &DomainQuestion| Err(Reason::DomainSilent(String::from("x")));
    let refusal = with_domain(&mut client("ann@a.test", ""), &mut server(), silent).unwrap_err();
    assert_eq!((&*refusal.user, &*refusal.account), ("ann@a.test", ""));
    // The controller returns another session key than the client has, because an attacker changed
    // the exchange or the controller's answer.
    let other = |question: &DomainQuestion| {
        let session_key = Zeroizing::new(vec![1; 16]);
        answer_of(question, "domain password").map(|logon| DomainLogon { session_key, ..logon })
    };
    let refusal = with_domain(&mut client("ann", "frevo"), &mut server(), other).unwrap_err();
    assert_eq!(refusal.reason, Reason::WrongMic);
    let short = |question: &DomainQuestion| {
        let session_key = Zeroizing::new(vec![1; 8]);
        answer_of(question, "domain password").map(|logon| DomainLogon { session_key, ..logon })
    };
    let refusal = with_domain(&mut client("ann", "frevo"), &mut server(), short).unwrap_err();
    assert!(matches!(refusal.reason, Reason::DomainRefused(_)), "{refusal}");
    assert_eq!(&*refusal.account, "frevo\\ann");
}

#[test]
fn an_account_of_the_same_name_is_another_user() {
    let (done, _) = run(&mut initiator(), &mut server(), unchanged).unwrap();
    assert!(done.identity.by_domain.is_none());
    // The client logs on with the password of the local account "ann", but for this domain the
    // server asks the controller, which refuses it.
    let mut client = client("ann", "frevo");
    let mut server = server();
    let first = client.initial_token(&Acceptor::initial_token(false, true), NOW).unwrap();
    let AcceptorStep::Continue(challenge) = server.step(&first, NOW, &accounts()).unwrap() else {
        panic!()
    };
    let InitiatorStep::Continue(last) = client.step(&challenge, NOW).unwrap() else { panic!() };
    assert!(matches!(server.step(&last, NOW, &accounts()), Ok(AcceptorStep::Ask(_))));
    // While the domain's answer is pending, the server refuses any token. Afterwards it refuses the
    // domain's answer, too.
    assert_eq!(server.step(&last, NOW, &accounts()).unwrap_err().reason, Reason::OutOfTurn);
    let late = server.answer(Err(Reason::WrongPassword));
    assert_eq!(late.unwrap_err().reason, Reason::OutOfTurn);
}

/// A controller is asked about well-formed messages only: how long it takes, and what it counts, would
/// tell a right password from a wrong one in a message that is refused in any case.
#[test]
fn a_controller_is_not_asked_about_a_malformed_message() {
    let asked = |change: fn(&mut Vec<u8>)| {
        let mut server = server();
        let mut client = client("ann", "frevo");
        let first = client.initial_token(&Acceptor::initial_token(false, true), NOW).unwrap();
        let AcceptorStep::Continue(challenge) = server.step(&first, NOW, &accounts()).unwrap()
        else {
            panic!()
        };
        let InitiatorStep::Continue(last) = client.step(&challenge, NOW).unwrap() else { panic!() };
        let resp = NegTokenResp::parse(&last).unwrap();
        let mut message = resp.token.unwrap().to_vec();
        change(&mut message);
        let last = NegTokenResp { token: Some(&message), ..resp }.encode();
        server.step(&last, NOW, &accounts())
    };
    assert!(matches!(asked(|_| ()), Ok(AcceptorStep::Ask(_))));
    // The length of EncryptedRandomSessionKey becomes 5, but a key has 16 bytes.
    let refusal = asked(|message| message[52..56].copy_from_slice(&[5, 0, 5, 0])).unwrap_err();
    assert_eq!(refusal.reason, Reason::Malformed("EncryptedRandomSessionKey"));
    // The length of the NT response is six bytes too short, so the response ends within its AV
    // pairs.
    let refusal = asked(|message| {
        let len = u16::from_le_bytes([message[20], message[21]]) - 6;
        message[20..22].copy_from_slice(&len.to_le_bytes());
    });
    assert!(refusal.unwrap_err().is_malformed());
}
