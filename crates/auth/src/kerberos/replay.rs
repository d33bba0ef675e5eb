//! The memory of AP-REQs that were accepted: MS-KILE 3.1.1.1.

use super::{Fault, Principal};
use crate::limits::{MAX_REPLAYS, MAX_REPLAYS_PER_CLIENT};
use alloc::collections::BTreeMap;
use core::fmt;
use frevo_crypto::sha256;

/// Most expired entries that a new entry removes. More than one, so that an old table shrinks; few,
/// so that no logon waits for it.
const REMOVED_AT_ONCE: usize = 8;

/// An AP-REQ that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replay {
    /// The last second, since 1970, in which its authenticator is within the clock skew.
    until: i64,
    /// The hash of the encrypted authenticator.
    authenticator: [u8; 16],
    /// The hash of the client's name.
    client: [u8; 16],
}

impl Replay {
    pub(super) fn new(authenticator: &[u8], client: &Principal, until: i64) -> Self {
        let half = |hash: [u8; 32]| hash.first_chunk().copied().unwrap_or_default();
        let client = alloc::format!("{client}");
        Self {
            until,
            authenticator: half(sha256(authenticator)),
            client: half(sha256(client.as_bytes())),
        }
    }
}

/// A memory of AP-REQs that all acceptors of a server share.
pub trait Replays: fmt::Debug + Send + Sync {
    /// Remembers an AP-REQ. `now` are seconds since 1970.
    ///
    /// # Errors
    /// [`Fault::Replayed`] if it is remembered already, another fault if there is no room for it.
    fn record(&self, replay: Replay, now: i64) -> Result<(), Fault>;
}

/// The entries, ordered by the time at which they are forgotten. A lock has to be around it.
#[derive(Debug, Default)]
pub struct ReplayTable {
    entries: BTreeMap<(i64, [u8; 16]), [u8; 16]>,
    clients: BTreeMap<[u8; 16], usize>,
}

impl ReplayTable {
    /// Makes a table without entries.
    pub const fn new() -> Self {
        Self { entries: BTreeMap::new(), clients: BTreeMap::new() }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Remembers an AP-REQ, as [`Replays::record`] does.
    ///
    /// # Errors
    /// Those of [`Replays::record`].
    pub fn record(&mut self, replay: Replay, now: i64) -> Result<(), Fault> {
        self.forget(now);
        let key = (replay.until, replay.authenticator);
        if self.entries.contains_key(&key) {
            return Err(Fault::Replayed);
        }
        if self.entries.len() >= MAX_REPLAYS {
            return Err(Fault::ReplaysFull);
        }
        let count = self.clients.entry(replay.client).or_default();
        if *count >= MAX_REPLAYS_PER_CLIENT {
            return Err(Fault::TooManyLogons);
        }
        *count = count.saturating_add(1);
        self.entries.insert(key, replay.client);
        Ok(())
    }

    fn forget(&mut self, now: i64) {
        for _ in 0..REMOVED_AT_ONCE {
            let Some(first) = self.entries.first_entry().filter(|entry| entry.key().0 < now) else {
                return;
            };
            let client = first.remove();
            if let Some(count) = self.clients.get_mut(&client) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.clients.remove(&client);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64, client: u8, until: i64) -> Replay {
        let mut authenticator = [0; 16];
        authenticator[..8].copy_from_slice(&number.to_le_bytes());
        Replay { until, authenticator, client: [client; 16] }
    }

    #[test]
    fn an_entry_is_known_until_its_time_is_over() {
        let mut table = ReplayTable::new();
        assert_eq!(table.record(entry(1, 1, 100), 50), Ok(()));
        assert_eq!(table.record(entry(1, 1, 100), 50), Err(Fault::Replayed));
        assert_eq!(table.record(entry(1, 1, 100), 100), Err(Fault::Replayed));
        assert_eq!(table.record(entry(2, 1, 200), 101), Ok(()));
        assert_eq!(table.len(), 1);
        // The same bytes at another time are not refused as a replay, because an entry includes the
        // time.
        assert_eq!(table.record(entry(2, 1, 201), 101), Ok(()));
    }

    #[test]
    fn a_table_forgets_faster_than_it_grows() {
        let mut table = ReplayTable::new();
        for number in 0..100 {
            table.record(entry(number, number as u8, 10), 0).unwrap();
        }
        for number in 100..114 {
            table.record(entry(number, 1, 50), 20).unwrap();
        }
        assert_eq!(table.len(), 14);
        assert_eq!(table.clients.len(), 1);
        assert_eq!(table.clients[&[1; 16]], 14);
    }

    #[test]
    fn one_client_and_all_together_are_bounded() {
        let mut table = ReplayTable::new();
        let mut number = 0;
        let mut add = |table: &mut ReplayTable, client| {
            number += 1;
            table.record(entry(number, client, 1_000), 0)
        };
        for _ in 0..MAX_REPLAYS_PER_CLIENT {
            assert_eq!(add(&mut table, 1), Ok(()));
        }
        assert_eq!(add(&mut table, 1), Err(Fault::TooManyLogons));
        let mut client = 1;
        while table.len() < MAX_REPLAYS {
            if table.len().is_multiple_of(MAX_REPLAYS_PER_CLIENT) {
                client += 1;
            }
            assert_eq!(add(&mut table, client), Ok(()));
        }
        assert_eq!(add(&mut table, 100), Err(Fault::ReplaysFull));
        assert_eq!(table.record(entry(0, 100, 3_000), 1_001), Ok(()));
    }

    #[test]
    fn the_hash_covers_authenticator_and_client() {
        let [ann, bob] = ["ann", "bob"].map(|name| Principal::user(name, "R"));
        let one = Replay::new(b"1", &ann, 5);
        assert_eq!(one, Replay::new(b"1", &ann, 5));
        assert_ne!(one.authenticator, Replay::new(b"2", &ann, 5).authenticator);
        assert_ne!(one.client, Replay::new(b"1", &bob, 5).client);
    }
}
