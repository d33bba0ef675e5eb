//! Log lines about clients: how many a network may cause.
//!
//! A client causes a line whenever it is refused, logs on or connects to a share. Without
//! a limit it could fill the disk and hide what matters.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::base::limits::{
    LINE_INTERVAL, LINE_INTERVAL_PER_NETWORK, LINE_NETWORKS, LINES_AT_ONCE,
    LINES_AT_ONCE_PER_NETWORK,
};

/// Lines for each network and in all. A line that may not be written is counted, and the
/// next one says how many there were.
#[derive(Debug, Default)]
pub struct Lines(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    all: Bucket,
    networks: HashMap<Network, Bucket>,
    left_out: u64,
}

/// 24 bits of an IPv4 address, 48 bits of an IPv6 address.
type Network = (bool, u64);

/// The moment when all lines so far are paid for, one each interval.
#[derive(Debug, Default, Clone, Copy)]
struct Bucket(Option<Instant>);

impl Bucket {
    /// The bucket after one more line; none when there are `most` unpaid lines already.
    fn after(self, now: Instant, interval: Duration, most: u32) -> Option<Self> {
        let paid = self.0.map_or(now, |paid| paid.max(now));
        let unpaid = paid.saturating_duration_since(now);
        (unpaid < interval.saturating_mul(most)).then(|| Self(Some(paid + interval)))
    }
}

impl Lines {
    /// Writes a line about `peer` with `write`, unless there were too many. `write` gets
    /// the number of lines that were left out since the last line, if there were any.
    pub fn tell(&self, peer: IpAddr, write: impl FnOnce(Option<u64>)) {
        if let Some(left_out) = self.admit(peer, Instant::now()) {
            write((left_out != 0).then_some(left_out));
        }
    }

    fn admit(&self, peer: IpAddr, now: Instant) -> Option<u64> {
        let network = network_of(peer);
        let mut state = self.0.lock();
        let State { all, networks, left_out } = &mut *state;
        if networks.len() >= LINE_NETWORKS && !networks.contains_key(&network) {
            networks.retain(|_, bucket| bucket.0.is_some_and(|paid| paid > now));
        }
        let bucket = networks.get(&network).copied().unwrap_or_default();
        let here = bucket.after(now, LINE_INTERVAL_PER_NETWORK, LINES_AT_ONCE_PER_NETWORK);
        let whole = all.after(now, LINE_INTERVAL, LINES_AT_ONCE);
        let is_known = networks.len() < LINE_NETWORKS || networks.contains_key(&network);
        match (here, whole) {
            (Some(here), Some(whole)) if is_known => {
                networks.insert(network, here);
                *all = whole;
                Some(std::mem::take(left_out))
            }
            _ => {
                *left_out = left_out.saturating_add(1);
                None
            }
        }
    }
}

fn network_of(peer: IpAddr) -> Network {
    match peer.to_canonical() {
        IpAddr::V4(v4) => (false, u64::from(v4.to_bits() >> 8)),
        IpAddr::V6(v6) => (true, u64::try_from(v6.to_bits() >> 80).unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn v4(bits: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(bits))
    }

    fn admitted(lines: &Lines, peer: IpAddr, now: Instant, times: u32) -> u32 {
        (0..times).filter(|_| lines.admit(peer, now).is_some()).count().try_into().unwrap()
    }

    #[test]
    fn a_network_has_its_lines_and_others_theirs() {
        let (lines, now) = (Lines::default(), Instant::now());
        for (times, said) in [(LINES_AT_ONCE_PER_NETWORK - 1, None), (1, None), (1, Some(()))] {
            let written = admitted(&lines, v4(0xC000_0201), now, times);
            assert_eq!(written, if said.is_some() { 0 } else { times });
        }
        // This address is in the network of the previous one, whose allowance of lines is used up.
        assert_eq!(lines.admit(v4(0xC000_0299), now), None);
        // Another network has its own allowance. Its first line also reports how many lines were
        // dropped before (2).
        assert_eq!(lines.admit(v4(0xC000_0301), now), Some(2));
        assert_eq!(lines.admit(v4(0xC000_0301), now), Some(0));
        let later = now + LINE_INTERVAL_PER_NETWORK;
        assert_eq!(admitted(&lines, v4(0xC000_0201), later, 2), 1);
        assert_eq!(lines.admit(v4(0xC000_0401), later), Some(1));
    }

    #[test]
    fn ipv6_counts_by_48_bits() {
        let (lines, now) = (Lines::default(), Instant::now());
        let within = |network: u128, rest: u128| {
            IpAddr::V6(Ipv6Addr::from_bits(0x2001_0DB8 << 96 | network << 80 | rest))
        };
        let written =
            (0..200u128).filter(|n| lines.admit(within(1, n << 64 | n), now).is_some()).count();
        assert_eq!(written, LINES_AT_ONCE_PER_NETWORK as usize);
        assert!(lines.admit(within(2, 0), now).is_some());
    }

    #[test]
    fn all_networks_together_have_a_limit() {
        let (lines, now) = (Lines::default(), Instant::now());
        let written = (0..LINES_AT_ONCE + 1).filter(|n| lines.admit(v4(n << 8), now).is_some());
        assert_eq!(written.count(), LINES_AT_ONCE as usize);
        assert_eq!(lines.admit(v4(1 << 31), now + LINE_INTERVAL), Some(1));
    }

    #[test]
    fn no_more_networks_are_remembered_than_there_is_room_for() {
        let (lines, mut now) = (Lines::default(), Instant::now());
        for n in 0..u32::try_from(LINE_NETWORKS).unwrap() + 2 {
            // The lines come LINE_INTERVAL apart, so that the limit for all networks together drops
            // none of them.
            lines.admit(v4(n << 8), now);
            now += LINE_INTERVAL;
        }
        assert!(lines.0.lock().networks.len() <= LINE_NETWORKS);
        assert!(lines.admit(v4(u32::MAX), now).is_some());
    }
}
