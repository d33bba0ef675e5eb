//! Who may hold a connection before authenticating: a count for each address
//! and one for all, so that one flood cannot shut others out. Of IPv6 a network of 64
//! bits counts as one address: whoever has one has them all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::limits::{UNAUTHENTICATED, UNAUTHENTICATED_PER_ADDRESS};

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Unauthenticated connections.
#[derive(Debug, Default, Clone)]
pub struct Admission(Arc<Mutex<Counts>>);

/// One unauthenticated connection; dropped when it authenticates or ends.
#[derive(Debug)]
pub struct Ticket {
    counts: Arc<Mutex<Counts>>,
    address: IpAddr,
}

impl Admission {
    /// Counts a new connection from `address`; none when there are too many.
    pub fn enter(&self, address: IpAddr) -> Option<Ticket> {
        let address = network(address);
        let mut counts = self.0.lock();
        let here = counts.by_address.get(&address).copied().unwrap_or(0);
        if counts.all >= UNAUTHENTICATED || here >= UNAUTHENTICATED_PER_ADDRESS {
            return None;
        }
        counts.all += 1;
        counts.by_address.insert(address, here + 1);
        Some(Ticket { counts: Arc::clone(&self.0), address })
    }
}

/// The network that one host may have all addresses of.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        counts.all = counts.all.saturating_sub(1);
        if let Some(here) = counts.by_address.get_mut(&self.address) {
            *here = here.saturating_sub(1);
            if *here == 0 {
                counts.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u32) -> IpAddr {
        IpAddr::V4(std::net::Ipv4Addr::from_bits(0xC000_0200 + last))
    }

    #[test]
    fn one_address_gets_its_share_and_no_more() {
        let admission = Admission::default();
        let mut tickets: Vec<_> = (0..UNAUTHENTICATED_PER_ADDRESS)
            .map(|_| admission.enter(address(1)).unwrap())
            .collect();
        assert!(admission.enter(address(1)).is_none());
        assert!(admission.enter(address(2)).is_some());
        tickets.pop();
        assert!(admission.enter(address(1)).is_some());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let admission = Admission::default();
        let within = |network: u128, host: u64| {
            IpAddr::V6(Ipv6Addr::from_bits(0x2001_0DB8 << 96 | network << 64 | u128::from(host)))
        };
        let tickets: Vec<_> = (0..UNAUTHENTICATED_PER_ADDRESS as u64)
            .map(|host| admission.enter(within(1, host << 32 | host)).unwrap())
            .collect();
        assert!(admission.enter(within(1, u64::MAX)).is_none());
        assert!(admission.enter(within(2, 0)).is_some());
        // Not so what only looks like it.
        let mapped = |last: u32| IpAddr::V6(std::net::Ipv4Addr::from_bits(last).to_ipv6_mapped());
        let _mapped: Vec<_> = (0..=UNAUTHENTICATED_PER_ADDRESS as u32)
            .map(|n| admission.enter(mapped(n)).unwrap())
            .collect();
        drop(tickets);
        assert!(admission.enter(within(1, u64::MAX)).is_some());
    }

    #[test]
    fn all_addresses_together_are_bounded() {
        let admission = Admission::default();
        let tickets: Vec<_> =
            (0..UNAUTHENTICATED as u32).map(|i| admission.enter(address(i)).unwrap()).collect();
        assert!(admission.enter(address(1 << 20)).is_none());
        drop(tickets);
        assert!(admission.enter(address(1 << 20)).is_some());
    }
}
