//! Tests of both roles with each other, and of everything that must be refused.

mod kerberos;
mod passed_on;
mod proofs;
mod real_clients;
mod spnego;
mod tokens;

use crate::acceptor::Step as AcceptorStep;
use crate::initiator::Step as InitiatorStep;
use crate::limits::MAX_TOKEN_LEN;
use crate::ntlm::{AvFlags, AvId, Flags, SIGNATURE, message};
use crate::spnego::{KERBEROS, MS_KERBEROS, MechList, NTLM, NegState, NegTokenInit, NegTokenResp};
use crate::{
    Acceptor, AcceptorConfig, AccountFault, AccountFile, Credentials, Done, Entropy, Initiator,
    NtHash, Reason, Refusal, Secret, Target, Zeroizing, smbpasswd::Entry,
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
