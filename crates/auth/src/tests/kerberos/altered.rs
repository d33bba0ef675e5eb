//! Tokens that were changed on their way: a changed token is accepted only if Kerberos does not
//! protect the changed bytes, and then the change has no effect.

use super::*;
use crate::kerberos::forge::authorization_data;
use proptest::prelude::*;

fn first_token() -> Vec<u8> {
    initiator(forge().with_pac().issue()).initial_token(&[], NOW).unwrap()
}

/// Returns the logon of a token, if it is accepted at once.
fn accepted(token: &[u8]) -> Option<Done> {
    match acceptor(service()).step(token, NOW, &accounts()) {
        Ok(AcceptorStep::Done(done)) => Some(done),
        _ => None,
    }
}

/// Every bit that is changed, one at a time. What may change is the list of mechanisms (proved only
/// if the client's first choice was not taken), the options of the AP-REQ, and the name, the realm
/// and the key version that the client asked for: nothing protects them, and nothing depends on
/// them.
#[test]
fn no_changed_bit_makes_another_logon() {
    let token = first_token();
    let original = accepted(&token).unwrap();
    let mut harmless = 0;
    for bit in 0..token.len() * 8 {
        let mut changed = token.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        if let Some(done) = accepted(&changed) {
            assert_eq!(done.identity, original.identity, "bit {bit}");
            assert_eq!(done.session_key, original.session_key, "bit {bit}");
            harmless += 1;
        }
    }
    // The server does not check some names in the token. Of its ten thousand bits, a few hundred
    // belong to them and may be changed without effect.
    assert!((50..600).contains(&harmless), "{harmless} of {}", token.len() * 8);
}

#[test]
fn no_cut_and_no_longer_token_is_accepted() {
    let token = first_token();
    for length in 0..token.len() {
        assert!(accepted(&token[..length]).is_none(), "{length}");
    }
    assert!(accepted(&[&token[..], &[0]].concat()).is_none());
}

/// The PAC is signed with the key of the server, so that nobody else can change it.
#[test]
fn no_changed_bit_of_a_pac_is_accepted() {
    let forge = forge().with_pac();
    let pac = forge.pac.as_ref().unwrap().encode(&forge.service.key, forge.auth_time);
    let is_accepted = |pac: &[u8]| {
        let data = authorization_data(1, &authorization_data(128, pac));
        let ticket = forge.issue_with(Some(&data));
        let first = initiator(ticket).initial_token(&[], NOW).unwrap();
        matches!(acceptor(service()).step(&first, NOW, &accounts()), Ok(AcceptorStep::Done(_)))
    };
    assert!(is_accepted(&pac));
    // The last 12 bytes are the KDC's signature, which only the KDC can check. Any other changed
    // bit must be refused.
    let start = pac.len() - 12;
    for bit in 0..pac.len() * 8 {
        let mut changed = pac.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(is_accepted(&changed), bit / 8 >= start, "bit {bit} of {}", pac.len() * 8);
    }
    for length in 0..pac.len() {
        assert!(!is_accepted(&pac[..length]), "{length}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_changed_token_makes_another_user(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let token = first_token();
        let mut changed = token.clone();
        for (place, byte) in &changes {
            changed[place.index(token.len())] = *byte;
        }
        if let Some(done) = accepted(&changed) {
            let original = accepted(&token).unwrap();
            prop_assert_eq!(done.identity, original.identity);
            prop_assert_eq!(done.session_key, original.session_key);
        }
    }

    #[test]
    fn no_bytes_panic(token in prop::collection::vec(any::<u8>(), 0..512)) {
        let _ = acceptor(service()).step(&token, NOW, &accounts());
        let mut client = initiator(forge().issue());
        client.initial_token(&[], NOW).unwrap();
        prop_assert!(!matches!(client.step(&token, NOW), Ok(InitiatorStep::Done(_))));
    }
}

/// Random numbers from a seed: xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }

    /// Changes bytes, cuts, doubles or removes a piece.
    fn mutate(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut changed = bytes.to_vec();
        for _ in 0..=self.below(3) {
            if changed.is_empty() {
                break;
            }
            let at = self.below(changed.len());
            match self.below(8) {
                0 => changed.truncate(at),
                1 => {
                    let end = at + self.below(changed.len() - at);
                    let piece = changed[at..end].to_vec();
                    changed.splice(at..at, piece);
                }
                2 => {
                    let end = at + self.below(changed.len() - at);
                    changed.drain(at..end);
                }
                3 => changed[at] = [0, 0x7f, 0x80, 0xff][self.below(4)],
                _ => changed[at] ^= 1 << self.below(8),
            }
        }
        changed
    }
}

/// Mutated AP-REQs, PACs and SPNEGO tokens, a third of each. `FREVO_MUTATED_TOKENS` sets how many:
/// `FREVO_MUTATED_TOKENS=10000000 cargo test --release -p frevo-auth --lib mutated_tokens`.
#[test]
fn mutated_tokens_make_no_other_user_and_no_panic() {
    let count = std::env::var("FREVO_MUTATED_TOKENS").ok().and_then(|text| text.parse().ok());
    let count: u64 = count.unwrap_or(9_000);
    let forge = forge().with_pac();
    let token = first_token();
    let original = accepted(&token).unwrap();
    let pac = forge.pac.as_ref().unwrap().encode(&forge.service.key, forge.auth_time);
    let bare = NegTokenInit::parse(&token).unwrap().token.unwrap().to_vec();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut harmless = 0;
    for number in 0..count {
        let changed = match number % 3 {
            0 => random.mutate(&token),
            1 => {
                let pac = random.mutate(&pac);
                let data = authorization_data(1, &authorization_data(128, &pac));
                initiator(forge.issue_with(Some(&data))).initial_token(&[], NOW).unwrap()
            }
            _ => {
                let first = random.mutate(&bare);
                let mechanisms = MechList::of(&[MS_KERBEROS, KERBEROS, NTLM]);
                NegTokenInit { mechanisms, token: Some(&first), mic: None }.encode()
            }
        };
        if let Some(done) = accepted(&changed) {
            assert_eq!(done.identity, original.identity, "{number}");
            assert_eq!(done.session_key, original.session_key, "{number}");
            harmless += 1;
        }
    }
    // `cargo test -- --nocapture` shows the counts.
    #[allow(clippy::print_stdout, reason = "tests")]
    {
        std::println!("{count} mutated tokens, {harmless} of them without an effect");
    }
}
