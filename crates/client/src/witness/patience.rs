//! The pauses between attempts at a registration, and counts of what a witness makes a client do.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Cause;
use crate::limits::{WITNESS_ATTEMPTS, WITNESS_PAUSE_FIRST, WITNESS_PAUSE_MAX, WITNESS_STEADY};

/// The attempts at one place.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Failures in a row.
    failures: u32,
    /// True after a registration that has lasted: the servers have witnesses.
    was_steady: bool,
}

impl Patience {
    /// Notes that a registration has ended after so long.
    pub(super) fn note_lasted(&mut self, lasted: Duration) {
        if lasted >= WITNESS_STEADY {
            (self.failures, self.was_steady) = (0, true);
        }
    }

    /// Notes a failure, and returns the pause before the next attempt. `None` if there is none: the
    /// servers have no witness, or none that this client reaches.
    pub(super) fn pause(&mut self, why: &Cause) -> Option<Duration> {
        let doubled = WITNESS_PAUSE_FIRST.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        // A refused logon is not repeated, however long the witness was there: it could lock the account.
        let has_attempts = self.was_steady || self.failures < WITNESS_ATTEMPTS;
        (has_attempts && !is_for_good(why)).then_some(doubled.min(WITNESS_PAUSE_MAX))
    }

    /// Begins anew at another place.
    pub(super) const fn begin(&mut self) {
        self.failures = 0;
    }
}

/// Returns true if a further attempt at a host would fail, too: it does not know the interface or the user,
/// proves nothing, or cannot be reached by an address.
pub(super) fn is_for_good(why: &Cause) -> bool {
    match why {
        Cause::Transport(error) => error.kind() == ErrorKind::Unsupported,
        Cause::Security(_) => true,
        _ => is_of_user(why),
    }
}

/// Returns true if an attempt at another host would fail, too, and could lock the account: the user is
/// refused.
pub(super) fn is_of_user(why: &Cause) -> bool {
    match why {
        Cause::Kerberos(error) => !error.may_pass(),
        Cause::Usage(_) | Cause::Logon(_) | Cause::Status(_) => true,
        _ => false,
    }
}

/// The times of the latest events of a kind, of which there may be so many in a time.
#[derive(Debug)]
pub(crate) struct Recent {
    times: VecDeque<Instant>,
    most: usize,
    within: Duration,
}

impl Recent {
    pub(crate) const fn of(most: usize, within: Duration) -> Self {
        Self { times: VecDeque::new(), most, within }
    }

    /// Returns true if there may be another event now.
    pub(crate) fn has_room(&mut self) -> bool {
        while self.times.front().is_some_and(|first| first.elapsed() >= self.within) {
            self.times.pop_front();
        }
        self.times.len() < self.most
    }

    /// Counts an event.
    pub(crate) fn note(&mut self) {
        if self.times.len() >= self.most {
            self.times.pop_front();
        }
        self.times.push_back(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Status;
    use crate::limits::{WITNESS_MOVES, WITNESS_WITHIN};

    fn lost() -> Cause {
        std::io::Error::from(ErrorKind::ConnectionRefused).into()
    }

    #[test]
    fn a_server_without_a_witness_is_asked_a_few_times() {
        let mut patience = Patience::default();
        let pauses: Vec<_> = std::iter::from_fn(|| patience.pause(&lost())).collect();
        assert_eq!(pauses.len() + 1, WITNESS_ATTEMPTS as usize);
        assert_eq!(pauses[0], WITNESS_PAUSE_FIRST);
        assert!(pauses.windows(2).all(|two| two[0] * 2 == two[1] || two[1] == WITNESS_PAUSE_MAX));
        assert_eq!(patience.pause(&lost()), None);
        // A registration that ends at once changes nothing.
        patience.note_lasted(WITNESS_STEADY - Duration::from_millis(1));
        assert_eq!(patience.pause(&lost()), None);
        patience.begin();
        assert_eq!(patience.pause(&lost()), Some(WITNESS_PAUSE_FIRST));
        // A server that does not know the interface is not asked again.
        patience.begin();
        assert_eq!(patience.pause(&std::io::Error::from(ErrorKind::Unsupported).into()), None);
    }

    #[test]
    fn a_witness_that_was_there_is_awaited() {
        let mut patience = Patience::default();
        patience.note_lasted(WITNESS_STEADY);
        for _ in 0..1_000 {
            assert!(patience.pause(&lost()).is_some_and(|pause| pause <= WITNESS_PAUSE_MAX));
        }
        assert_eq!(patience.pause(&lost()), Some(WITNESS_PAUSE_MAX));
        // Not if it refuses the user.
        assert_eq!(patience.pause(&Cause::Status(Status::ACCESS_DENIED)), None);
        assert_eq!(patience.pause(&std::io::Error::from(ErrorKind::Unsupported).into()), None);
        assert_eq!(patience.pause(&Cause::Security("")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn moves_without_end_are_not_made() {
        let mut moves = Recent::of(WITNESS_MOVES, WITNESS_WITHIN);
        for _ in 0..WITNESS_MOVES {
            assert!(moves.has_room());
            moves.note();
        }
        assert!(!moves.has_room());
        tokio::time::advance(WITNESS_WITHIN).await;
        assert!(moves.has_room());
    }
}
