//! Slows password guessing: failed logons of one account from one network
//! make the answers to the next ones wait, on whatever connections they come.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::{LOGON_DELAY, LOGON_DELAY_MAX, LOGON_FAILURES_REMEMBERED, LOGON_NAME_BYTES};

/// The part of an address that one guesser can be expected to own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Network {
    V4([u8; 3]),
    V6([u8; 8]),
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => {
                let [a, b, c, _] = v4.octets();
                Self::V4([a, b, c])
            }
            IpAddr::V6(v6) => {
                let [a, b, c, d, e, f, g, h, ..] = v6.octets();
                Self::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    /// The answers given out so far are all out by then.
    free_at: Instant,
}

/// How an attempt is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// With what came out, after this time.
    After(Duration),
    /// As a failure after this time, whatever came out: too many answers wait
    /// already, and one more would be one more guess.
    Unheeded(Duration),
}

/// Failed logons by network and account.
#[derive(Debug, Default)]
pub struct LogonThrottle(Mutex<HashMap<(Network, Box<str>), Failures>>);

impl LogonThrottle {
    /// An attempt on `user` from `address` has come out as `success` says.
    /// Attempts made at once are answered one after the other, so that many
    /// sockets gain nothing.
    pub fn attempt(&self, address: IpAddr, user: &str, success: bool) -> Verdict {
        let now = Instant::now();
        let key = (address.into(), remembered(user));
        let mut failures = self.0.lock();
        let known = failures.get(&key).copied();
        let wait = known.map_or(Duration::ZERO, |f| f.free_at.saturating_duration_since(now));
        if wait > LOGON_DELAY_MAX {
            return Verdict::Unheeded(LOGON_DELAY_MAX);
        }
        if success {
            failures.remove(&key);
            return Verdict::After(wait);
        }
        make_room(&mut failures, now);
        let count = known.map_or(1, |f| f.count.saturating_add(1));
        let wait = wait + penalty(count);
        failures.insert(key, Failures { count, free_at: now + wait });
        Verdict::After(wait.min(LOGON_DELAY_MAX))
    }
}

/// The name as it is remembered: as accounts are found by it, and never long.
fn remembered(user: &str) -> Box<str> {
    shortened(user).to_lowercase().into()
}

/// As much of a name that a stranger claims as is worth keeping or logging.
pub fn shortened(user: &str) -> &str {
    let ends = user.char_indices().map(|(at, c)| at.saturating_add(c.len_utf8()));
    let end = ends.take_while(|end| *end <= LOGON_NAME_BYTES).last().unwrap_or(0);
    user.get(..end).unwrap_or("")
}

/// Forgets what is over, and if that is not enough what is over first.
fn make_room(failures: &mut HashMap<(Network, Box<str>), Failures>, now: Instant) {
    if failures.len() < LOGON_FAILURES_REMEMBERED {
        return;
    }
    failures.retain(|_, f| f.free_at > now);
    if failures.len() >= LOGON_FAILURES_REMEMBERED {
        let first = failures.iter().min_by_key(|(_, f)| f.free_at).map(|(key, _)| key.clone());
        first.map(|key| failures.remove(&key));
    }
}

fn penalty(count: u32) -> Duration {
    let doublings = count.saturating_sub(1).min(5);
    LOGON_DELAY.saturating_mul(1 << doublings).min(LOGON_DELAY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const NEIGHBOUR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 77));
    const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1));
    const AT_ONCE: Verdict = Verdict::After(Duration::ZERO);

    #[tokio::test(start_paused = true)]
    async fn failures_make_one_account_from_one_network_wait() {
        let throttle = LogonThrottle::default();
        assert_eq!(throttle.attempt(HERE, "ann", true), AT_ONCE);
        assert_eq!(throttle.attempt(HERE, "ann", false), Verdict::After(LOGON_DELAY));
        assert_eq!(throttle.attempt(ELSEWHERE, "ann", true), AT_ONCE);
        assert_eq!(throttle.attempt(HERE, "bob", true), AT_ONCE);
        // The next one waits for the one before, and longer itself.
        assert_eq!(throttle.attempt(NEIGHBOUR, "ANN", false), Verdict::After(LOGON_DELAY * 3));
        assert_eq!(throttle.attempt(HERE, "ann", true), Verdict::After(LOGON_DELAY * 3));
        assert_eq!(throttle.attempt(HERE, "ann", true), AT_ONCE);
    }

    #[tokio::test(start_paused = true)]
    async fn long_names_are_not_remembered_whole() {
        let throttle = LogonThrottle::default();
        for length in [LOGON_NAME_BYTES - 1, LOGON_NAME_BYTES, LOGON_NAME_BYTES + 1, 60_000] {
            throttle.attempt(HERE, &"\u{e9}".repeat(length), false);
        }
        let failures = throttle.0.lock();
        assert!(failures.keys().all(|(_, user)| user.len() <= LOGON_NAME_BYTES));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_sockets_gains_nothing() {
        let throttle = LogonThrottle::default();
        let heeded = (0..1_000)
            .filter(|_| matches!(throttle.attempt(HERE, "ann", false), Verdict::After(_)))
            .count();
        // 2 + 4 + 8 + 16 + 32 seconds fill the minute.
        assert!(heeded <= 6, "{heeded}");
        let right = throttle.attempt(HERE, "ann", true);
        assert_eq!(right, Verdict::Unheeded(LOGON_DELAY_MAX));
        tokio::time::advance(LOGON_DELAY_MAX * 3).await;
        assert_eq!(throttle.attempt(HERE, "ann", true), AT_ONCE);
    }
}
