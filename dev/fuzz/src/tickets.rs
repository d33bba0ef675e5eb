//! Kerberos tickets, PACs and the answers to them, both roles.

use std::sync::{Arc, Mutex};

use frevo_auth::initiator::{self, Initiator};
use frevo_auth::kerberos::forge::{Forge, authorization_data, sign_pac};
use frevo_auth::kerberos::{
    AcceptorEntropy, EncryptionType, Fault, InitiatorEntropy, PacPolicy, Policy, Replay,
    ReplayTable, Replays, Service, ServiceKeys, ServiceTicket,
};
use frevo_auth::spnego::{KERBEROS, MechList, NegTokenInit, NegTokenResp};
use frevo_auth::{Acceptor, AcceptorConfig, AccountFile, Done, Step, Target};
use frevo_wire::dtyp::FileTime;

const NOW: u64 = 133_500_000_000_000_000;

#[derive(Debug, Default)]
struct Memory(Mutex<ReplayTable>);

impl Replays for Memory {
    fn record(&self, replay: Replay, now: i64) -> Result<(), Fault> {
        self.0.lock().unwrap().record(replay, now)
    }
}

fn forge() -> Forge {
    Forge::new(EncryptionType::Aes128Sha1, FileTime(NOW)).with_pac()
}

fn acceptor() -> Acceptor {
    let keys = Arc::new(ServiceKeys::new(vec![forge().service]).unwrap());
    let replays = Arc::new(Memory::default());
    // A ticket without a PAC has a user without SIDs, so this policy checks a PAC only if the
    // ticket has one.
    let policy = Policy { pac: PacPolicy::Checked, ..Policy::default() };
    let service = Service { keys, policy, replays };
    let entropy = AcceptorEntropy { subkey: [7; 32], confounder: [8; 16], sequence: [9; 4] };
    let config = Arc::new(AcceptorConfig::standalone("frevo"));
    Acceptor::new(config, [9; 8]).with_kerberos(Arc::new(service), entropy)
}

fn client(ticket: ServiceTicket) -> Initiator {
    let entropy = InitiatorEntropy { subkey: [3; 32], confounders: [[4; 16]; 2], sequence: [1; 4] };
    Initiator::with_ticket(Arc::new(ticket), Target::default(), entropy)
}

fn accepted(token: &[u8]) -> Option<Done> {
    match acceptor().step(token, NOW, &AccountFile::default()) {
        Ok(Step::Done(done)) => Some(done),
        _ => None,
    }
}

/// Takes places and bytes from the input, and changes `bytes` there.
fn damaged(bytes: &[u8], data: &[u8]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    for change in data.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]])) % changed.len().max(1);
        if let Some(byte) = changed.get_mut(place) {
            *byte ^= change[2];
        }
    }
    changed
}

/// By the first byte: a token as it is, a good one with damage, a PAC with damage, a PAC with damage
/// under a right signature, or the server's answer with damage.
pub fn tickets(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let forge = forge();
    let good = client(forge.issue()).initial_token(&[], NOW).unwrap();
    let original = accepted(&good).unwrap();
    let pac = forge.pac.as_ref().unwrap().encode(&forge.service.key, forge.auth_time);
    let with_pac = |pac: &[u8]| {
        let data = authorization_data(1, &authorization_data(128, pac));
        accepted(&client(forge.issue_with(Some(&data))).initial_token(&[], NOW).unwrap())
    };
    let same = |done: Option<Done>| {
        if let Some(done) = done {
            assert_eq!(done.identity, original.identity);
            assert_eq!(done.session_key, original.session_key);
        }
    };
    match kind % 5 {
        0 => {
            let mechanisms = MechList::of(&[KERBEROS]);
            let wrapped = NegTokenInit { mechanisms, token: Some(data), mic: None }.encode();
            assert!(accepted(data).is_none() && accepted(&wrapped).is_none());
        }
        1 => same(accepted(&damaged(&good, data))),
        2 => same(with_pac(&damaged(&pac, data))),
        3 => {
            if let Some(pac) = sign_pac(&damaged(&pac, data), &forge.service.key) {
                let _ = with_pac(&pac);
            }
        }
        _ => {
            let mut client = client(forge.issue());
            client.initial_token(&[], NOW).unwrap();
            let answer = damaged(&original.token, data);
            if let Ok(initiator::Step::Done(key)) = client.step(&answer, NOW) {
                assert_eq!(key, original.session_key);
            }
            let mut client = self::client(forge.issue());
            client.initial_token(&[], NOW).unwrap();
            let raw = NegTokenResp { token: Some(data), ..NegTokenResp::default() }.encode();
            assert!(!matches!(client.step(&raw, NOW), Ok(initiator::Step::Done(_))));
        }
    }
}
