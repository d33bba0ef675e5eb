//! Who may hold a connection before authenticating: a count for each address
//! and one for all, so that one flood cannot shut others out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use frevo_net::buffer::budget::{self, Fullness};
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
    /// Counts a new connection from `address`; none when there are too many, or no
    /// memory is left for one more.
    pub fn enter(&self, address: IpAddr) -> Option<Ticket> {
        if budget::fullness() == Fullness::Full {
            return None;
        }
        let address = address.to_canonical();
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
    fn all_addresses_together_are_bounded() {
        let admission = Admission::default();
        let tickets: Vec<_> =
            (0..UNAUTHENTICATED as u32).map(|i| admission.enter(address(i)).unwrap()).collect();
        assert!(admission.enter(address(1 << 20)).is_none());
        drop(tickets);
        assert!(admission.enter(address(1 << 20)).is_some());
    }
}
