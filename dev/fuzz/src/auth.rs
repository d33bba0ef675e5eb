//! SPNEGO and NTLM, both roles.

use std::sync::Arc;

use frevo_auth::initiator::{self, Initiator};
use frevo_auth::{
    Acceptor, AcceptorConfig, Account, AccountFile, AccountRules, Accounts, Credentials, Entropy,
    NtHash, Reason, Secret, Step, Target, Zeroizing,
};

use crate::chunk;

struct Ann;

impl Accounts for Ann {
    fn account(&self, user: &str, _domain: &str) -> Option<Account> {
        user.eq_ignore_ascii_case("ann").then(|| Account {
            name: "ann".into(),
            nt_hash: NtHash::from_bytes([0x5A; 16]),
            rules: AccountRules::default(),
        })
    }
}

fn initiator_of_ann() -> Initiator {
    let credentials = Credentials {
        user: "ann".into(),
        domain: String::new(),
        secret: Secret::NtHash(NtHash::from_bytes([0x5A; 16])),
    };
    let entropy = Entropy { client_challenge: [1; 8], session_key: Zeroizing::new([2; 16]) };
    Initiator::new(credentials, Target::default(), entropy)
}

/// Tokens for a server, each after its length; the first byte says how the
/// exchange begins and whether the last token is a good one that is damaged.
pub fn acceptor(data: &[u8]) {
    let Some((kind, mut data)) = data.split_first() else { return };
    if *kind == 0xFF {
        let _ = AccountFile::parse(&String::from_utf8_lossy(data));
        return;
    }
    let mut config = AcceptorConfig::standalone("frevo");
    config.require_mic = kind & 1 != 0;
    config.allowed_targets = (kind & 2 != 0).then(|| vec!["files".into()]);
    config.require_target_name = kind & 4 != 0;
    if kind & 16 != 0 {
        config.passed_on = vec!["DOMAIN".into()];
    }
    let mut acceptor = Acceptor::new(Arc::new(config), [9; 8]);
    if kind & 8 == 0 {
        while let Some(token) = chunk(&mut data) {
            match acceptor.step(token, 1 << 56, &Ann) {
                Ok(Step::Continue(_) | Step::Retry(..)) => {}
                Ok(Step::Ask(question)) => {
                    assert!(kind & 16 != 0, "no domain is asked");
                    assert!(question.nt_response.len() <= token.len());
                    assert!(acceptor.answer(Err(Reason::WrongPassword)).is_err());
                    return;
                }
                Ok(Step::Done(_)) => panic!("nobody knows the password"),
                Err(_) => return,
            }
        }
        return;
    }
    // A real client makes the token, and the fuzz input says which of its bytes to change.
    let mut client = initiator_of_ann();
    let mut token = client.initial_token(&[], 1 << 56).unwrap();
    let mut changed = false;
    for _ in 0..2 {
        while let [at, xor, go_on, rest @ ..] = data {
            if *go_on == 0 {
                break;
            }
            let place = token.len() * usize::from(*at) / 256;
            token[place] ^= xor;
            changed |= *xor != 0;
            data = rest;
        }
        data = data.get(3..).unwrap_or(&[]);
        match acceptor.step(&token, 1 << 56, &Ann) {
            Ok(Step::Continue(answer)) => match client.step(&answer, 1 << 56) {
                Ok(initiator::Step::Continue(next)) => token = next,
                _ => return,
            },
            Ok(Step::Retry(..)) => return,
            Ok(Step::Ask(_)) => {
                assert!(changed && kind & 16 != 0, "ann has no domain");
                return;
            }
            Ok(Step::Done(done)) => {
                assert_eq!(done.identity.user, "ann");
                return;
            }
            Err(_) => {
                assert!(changed || kind & 7 != 0, "the right tokens are taken");
                return;
            }
        }
    }
}

/// Tokens for a client, each after its length, as an evil server sends them.
pub fn initiator(data: &[u8]) {
    let mut data = data;
    let mut client = initiator_of_ann();
    let Some(hint) = chunk(&mut data) else { return };
    if client.initial_token(hint, 1 << 56).is_err() {
        return;
    }
    while let Some(token) = chunk(&mut data) {
        if !matches!(client.step(token, 1 << 56), Ok(initiator::Step::Continue(_))) {
            return;
        }
    }
}
