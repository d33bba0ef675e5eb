//! Wrong tokens, counted by network: who guesses is not judged any more for a while.

use tokio::time::Instant;

use crate::connection_slots::Peer;
use crate::limits::{GUESSING_NETWORKS, WRONG_TOKENS, WRONG_TOKENS_TIME};

/// The networks of wrong tokens, from the one that began first on.
#[derive(Default)]
pub(crate) struct Guesses(Vec<Guessing>);

struct Guessing {
    network: Peer,
    wrong: usize,
    since: Instant,
}

impl Guesses {
    /// True if a token of this network is judged.
    pub(crate) fn may_try(&mut self, network: Peer, now: Instant) -> bool {
        self.0.retain(|one| now.duration_since(one.since) < WRONG_TOKENS_TIME);
        let known = self.0.iter().find(|one| one.network == network);
        known.is_none_or(|one| one.wrong < WRONG_TOKENS)
    }

    /// Counts a wrong token.
    pub(crate) fn note(&mut self, network: Peer, now: Instant) {
        if let Some(known) = self.0.iter_mut().find(|one| one.network == network) {
            known.wrong += 1;
            return;
        }
        if self.0.len() >= GUESSING_NETWORKS {
            self.0.remove(0);
        }
        self.0.push(Guessing { network, wrong: 1, since: now });
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn network(number: usize) -> Peer {
        let number = u16::try_from(number).unwrap();
        Peer::at(IpAddr::from([0x2001, 0xDB8, 0, number, 0, 0, 0, 1]))
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_has_so_many_guesses() {
        let mut guesses = Guesses::default();
        let (guesser, other) = (network(1), network(2));
        for _ in 0..WRONG_TOKENS {
            assert!(guesses.may_try(guesser, Instant::now()));
            guesses.note(guesser, Instant::now());
        }
        assert!(!guesses.may_try(guesser, Instant::now()));
        assert!(guesses.may_try(other, Instant::now()));
        tokio::time::advance(WRONG_TOKENS_TIME).await;
        assert!(guesses.may_try(guesser, Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_networks_are_counted() {
        let mut guesses = Guesses::default();
        for number in 0..=GUESSING_NETWORKS {
            guesses.note(network(number), Instant::now());
        }
        assert_eq!(guesses.0.len(), GUESSING_NETWORKS);
        assert!(guesses.0.iter().all(|one| one.network != network(0)));
    }
}
