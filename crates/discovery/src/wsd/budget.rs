//! The budget of answers: nobody can have this server flood a network.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::limits::{ANSWER_BYTES_PER_SECOND, ANSWERS_PER_HOST, HOSTS};

/// The answers of the current second.
#[derive(Debug, Default)]
pub(super) struct Budget {
    since: Option<Instant>,
    bytes: u32,
    hosts: HashMap<IpAddr, u32>,
}

impl Budget {
    /// Takes an answer of `bytes` to `peer` out of the budget. False when it is used up.
    pub(super) fn take(&mut self, now: Instant, peer: IpAddr, bytes: usize) -> bool {
        let is_over = |since: Instant| now.duration_since(since) >= Duration::from_secs(1);
        if self.since.is_none_or(is_over) {
            *self = Self { since: Some(now), ..Self::default() };
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if self.bytes.saturating_add(bytes) > ANSWER_BYTES_PER_SECOND {
            return false;
        }
        if self.hosts.len() >= HOSTS && !self.hosts.contains_key(&peer) {
            return false;
        }
        let answers = self.hosts.entry(peer).or_default();
        if *answers >= ANSWERS_PER_HOST {
            return false;
        }
        *answers += 1;
        self.bytes += bytes;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn answers_of_a_second_are_limited() {
        let mut budget = Budget::default();
        let now = Instant::now();
        for _ in 0..ANSWERS_PER_HOST {
            assert!(budget.take(now, host(1), 100));
        }
        assert!(!budget.take(now, host(1), 100), "one host");
        assert!(budget.take(now, host(2), 100), "another");
        let most = ANSWER_BYTES_PER_SECOND as usize;
        assert!(!budget.take(now, host(3), most), "the bytes of all");
        assert!(budget.take(now, host(3), most - 100 * (ANSWERS_PER_HOST as usize + 1)));
        assert!(!budget.take(now, host(4), 1));
        let later = now + Duration::from_secs(1);
        assert!(budget.take(later, host(1), 100) && !budget.take(later, host(1), usize::MAX));
    }

    #[test]
    fn hosts_that_are_counted_are_limited() {
        let mut budget = Budget::default();
        let now = Instant::now();
        for number in 0..HOSTS {
            assert!(budget.take(now, host(u32::try_from(number).unwrap()), 1));
        }
        assert!(!budget.take(now, host(u32::MAX), 1) && budget.take(now, host(0), 1));
    }
}
