//! Slots of connections: how many there are, how many of them one peer has, and which connection
//! makes room for a new one.
//!
//! A newcomer always gets a slot, because a peer that holds its slots for long must keep nobody
//! out: the connection that ends for it is of a peer who has shown no right to use the interface,
//! if there is one, of the peer with the most connections, and the oldest of those.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;

use tokio::sync::Notify;

use crate::limits::{CONNECTIONS, CONNECTIONS_PER_PEER};

/// The other end of a connection, as far as connections are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A process of this machine; 0 if the kernel does not tell which.
    Process(i32),
    /// An address, or a /64 of IPv6.
    Network(IpAddr),
}

impl Peer {
    /// The peer at an address.
    pub(crate) fn at(address: IpAddr) -> Self {
        Self::Network(match address.to_canonical() {
            IpAddr::V6(six) => Ipv6Addr::from_bits(six.to_bits() >> 64 << 64).into(),
            four @ IpAddr::V4(_) => four,
        })
    }
}

/// The connections of one socket.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSlots(RefCell<Table>);

#[derive(Debug, Default)]
struct Table {
    /// From the oldest to the newest.
    taken: Vec<Rc<Taken>>,
}

#[derive(Debug)]
struct Taken {
    peer: Peer,
    /// The peer may use the interface: it has shown the token.
    is_known: Cell<bool>,
    lost: Notify,
}

/// The slot of one connection, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct PeerSlot {
    slots: Rc<ConnectionSlots>,
    taken: Rc<Taken>,
}

impl ConnectionSlots {
    /// Gives a slot to a connection of `peer`. Another one loses its slot if there is none.
    pub(crate) fn take(self: &Rc<Self>, peer: Peer) -> PeerSlot {
        let mut table = self.0.borrow_mut();
        let of = |peer| table.taken.iter().filter(|taken| taken.peer == peer).count();
        let is_full_for_peer = of(peer) >= CONNECTIONS_PER_PEER;
        if is_full_for_peer || table.taken.len() >= CONNECTIONS {
            let candidates = table.taken.iter().enumerate();
            let candidates =
                candidates.filter(|(_, taken)| !is_full_for_peer || taken.peer == peer);
            let chosen = candidates
                .min_by_key(|(at, taken)| (taken.is_known.get(), Reverse(of(taken.peer)), *at));
            if let Some(at) = chosen.map(|(at, _)| at) {
                table.taken.remove(at).lost.notify_one();
            }
        }
        let taken = Rc::new(Taken { peer, is_known: Cell::new(false), lost: Notify::new() });
        table.taken.push(Rc::clone(&taken));
        drop(table);
        PeerSlot { slots: Rc::clone(self), taken }
    }
}

impl PeerSlot {
    /// The peer has shown that it may use the interface.
    pub(crate) fn is_of_known_peer(&self) {
        self.taken.is_known.set(true);
    }

    /// Ends when the connection has lost its slot to another one.
    pub(crate) async fn lost(&self) {
        self.taken.lost.notified().await;
    }
}

impl Drop for PeerSlot {
    fn drop(&mut self) {
        self.slots.0.borrow_mut().taken.retain(|taken| !Rc::ptr_eq(taken, &self.taken));
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_lost(slot: &PeerSlot) -> bool {
        let is_over = pin!(slot.lost()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        if is_over {
            // Polling `lost` has consumed the notification, so it is sent again for the next check
            // of this slot.
            slot.taken.lost.notify_one();
        }
        is_over
    }

    fn lost(slots: &[PeerSlot]) -> Vec<usize> {
        let lost = slots.iter().enumerate().filter(|(_, slot)| is_lost(slot));
        lost.map(|(at, _)| at).collect()
    }

    #[test]
    fn a_peer_that_takes_more_loses_its_oldest() {
        let slots = Rc::<ConnectionSlots>::default();
        let mut other = vec![slots.take(Peer::Process(1))];
        let mut held: Vec<_> =
            (0..CONNECTIONS_PER_PEER).map(|_| slots.take(Peer::Process(2))).collect();
        assert!(lost(&held).is_empty());
        held.push(slots.take(Peer::Process(2)));
        held.push(slots.take(Peer::Process(2)));
        assert_eq!(lost(&held), [0, 1]);
        other.push(slots.take(Peer::Process(1)));
        assert!(lost(&other).is_empty());
        drop(held);
        assert_eq!(slots.0.borrow().taken.len(), 2);
    }

    #[test]
    fn the_peer_with_most_makes_room() {
        let slots = Rc::<ConnectionSlots>::default();
        let address = |last| Peer::at(IpAddr::from([192, 0, 2, last]));
        let mut held: Vec<_> = (0..3).map(|_| slots.take(address(1))).collect();
        for at in 3..CONNECTIONS {
            held.push(slots.take(address(u8::try_from(at).unwrap())));
        }
        assert!(lost(&held).is_empty());
        held.push(slots.take(address(200)));
        held.push(slots.take(address(201)));
        assert_eq!(lost(&held), [0, 1], "the oldest of the busiest peer");
        held.push(slots.take(address(202)));
        assert_eq!(lost(&held), [0, 1, 2], "of many peers with one, the oldest");
    }

    /// Strangers with many addresses do not end the connections of those who have the token.
    #[test]
    fn strangers_make_room_first() {
        let slots = Rc::<ConnectionSlots>::default();
        let mut known = Vec::new();
        for _ in 0..CONNECTIONS_PER_PEER {
            known.push(slots.take(Peer::at(IpAddr::from([192, 0, 2, 1]))));
            known[known.len() - 1].is_of_known_peer();
        }
        let stranger = |at: usize| {
            let at = u8::try_from(at).unwrap();
            slots.take(Peer::at(IpAddr::from([
                0x20, 1, 0xD, 0xB8, 0, 0, 0, at, 0, 0, 0, 0, 0, 0, 0, 1,
            ])))
        };
        let strangers: Vec<_> = (0..100).map(stranger).collect();
        assert!(lost(&known).is_empty());
        assert_eq!(lost(&strangers).len(), 100 - (CONNECTIONS - CONNECTIONS_PER_PEER));
    }

    #[test]
    fn a_64_is_one_peer() {
        let at = |text: &str| Peer::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
        assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
    }
}
