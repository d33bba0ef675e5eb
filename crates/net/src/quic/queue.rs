//! Datagrams on their way to the tasks of their connections.
//!
//! quinn puts each datagram into the queue of its connection, which has no limit. A task whose core is busy
//! takes nothing out, so that a client could fill the memory. So the socket counts what it hands on from
//! each peer, and drops what is too much: a lost packet, which its sender sends again. A task takes out
//! all that its queue has whenever it is polled.
//!
//! Datagrams from addresses without a connection are of newcomers, or a client sends them from elsewhere.
//! They may go to any queue, so they are counted together. When there were many, every task is polled
//! once: then all of them were taken out.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

use parking_lot::Mutex;

use crate::buffer::budget::{self, Fullness};
use crate::limits::{
    QUIC_QUEUED_BYTES, QUIC_QUEUED_BYTES_NEW, QUIC_QUEUED_NEWCOMERS_BYTES, QUIC_WINDOW_SCARCE,
};

/// The queues of the connections of one listener.
#[derive(Debug)]
pub(super) struct Queues {
    all: Mutex<All>,
    /// Returns the fill level of the memory.
    fullness: fn() -> Fullness,
    /// The number of the sweep that began last.
    sweep: AtomicU64,
}

#[derive(Debug, Default)]
struct All {
    by_peer: HashMap<SocketAddr, Arc<Queue>>,
    /// The number of the next place.
    next: u64,
    /// Bytes of newcomers that were handed on since the last sweep began.
    since: usize,
    /// Bytes of newcomers that were handed on before it; 0 once it has ended.
    before: usize,
    /// Tasks that were not polled since it began.
    left: usize,
}

/// The datagrams of one peer. It may have several connections.
#[derive(Debug)]
struct Queue {
    /// Bytes that were handed on since the peer is known.
    handed: AtomicU64,
    /// Bytes that may wait.
    most: AtomicUsize,
    seats: Mutex<Seats>,
}

#[derive(Debug, Default)]
struct Seats {
    all: Vec<Seat>,
    /// Bytes that wait, at most, as the budget counts them.
    waiting: usize,
}

/// The task of one connection.
#[derive(Debug)]
struct Seat {
    number: u64,
    /// Bytes of `handed` that the task has seen.
    seen: u64,
    waking: Arc<Waking>,
}

/// The waker of a task.
#[derive(Debug, Default)]
pub(super) struct Waking(Mutex<Option<Waker>>);

impl Waking {
    /// Keeps the waker of the present poll.
    pub(super) fn set(&self, waker: &Waker) {
        let mut kept = self.0.lock();
        if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            *kept = Some(waker.clone());
        }
    }

    /// Has the task polled by its runtime.
    pub(super) fn wake(&self) {
        if let Some(waker) = &*self.0.lock() {
            waker.wake_by_ref();
        }
    }
}

impl Default for Queues {
    fn default() -> Self {
        Self { all: Mutex::default(), fullness: budget::fullness, sweep: AtomicU64::new(0) }
    }
}

impl Queues {
    /// True if a datagram, or several together, of a peer may be handed on. They are counted then.
    pub(super) fn admits(&self, peer: SocketAddr, bytes: usize) -> bool {
        let mut all = self.all.lock();
        match all.by_peer.get(&peer) {
            Some(queue) => queue.admits(bytes, self.fullness),
            None => self.admits_newcomer(&mut all, bytes),
        }
    }

    fn admits_newcomer(&self, all: &mut All, bytes: usize) -> bool {
        if all.before + all.since + bytes > QUIC_QUEUED_NEWCOMERS_BYTES {
            return false;
        }
        all.since += bytes;
        if all.since < QUIC_QUEUED_NEWCOMERS_BYTES / 2 || all.before > 0 {
            return true;
        }
        self.sweep.fetch_add(1, Ordering::Relaxed);
        all.left = 0;
        for queue in all.by_peer.values() {
            let seats = queue.seats.lock();
            all.left += seats.all.len();
            seats.wake();
        }
        let since = std::mem::take(&mut all.since);
        all.before = if all.left > 0 { since } else { 0 };
        true
    }

    /// Counts the datagrams of `peer` for a connection whose task `waking` wakes, until the place is dropped.
    pub(super) fn enter(self: &Arc<Self>, peer: SocketAddr, waking: Arc<Waking>) -> Membership {
        let mut all = self.all.lock();
        let number = all.next;
        all.next += 1;
        let queue = all.by_peer.entry(peer).or_insert_with(|| {
            let (handed, most) = (AtomicU64::new(0), AtomicUsize::new(QUIC_QUEUED_BYTES_NEW));
            Arc::new(Queue { handed, most, seats: Mutex::default() })
        });
        let queue = Arc::clone(queue);
        let seen = queue.handed.load(Ordering::Relaxed);
        queue.seats.lock().all.push(Seat { number, seen, waking });
        let sweep = AtomicU64::new(self.sweep.load(Ordering::Relaxed));
        Membership {
            queues: Arc::clone(self),
            peer,
            queue,
            number,
            seen: AtomicU64::new(seen),
            sweep,
        }
    }
}

impl All {
    /// One task was polled that the sweep waits for.
    fn polled(&mut self) {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.before = 0;
        }
    }
}

impl Queue {
    fn admits(&self, bytes: usize, fullness: fn() -> Fullness) -> bool {
        let mut seats = self.seats.lock();
        let waiting = seats.waiting + bytes;
        let is_much = waiting > QUIC_QUEUED_BYTES_NEW && fullness() == Fullness::Full;
        if is_much || waiting > self.most.load(Ordering::Relaxed) {
            // A connection that rests has not seen what was handed on for others of its peer.
            if seats.all.len() > 1 {
                seats.wake();
            }
            return false;
        }
        self.handed.fetch_add(bytes as u64, Ordering::Relaxed);
        seats.waiting = waiting;
        budget::take(bytes);
        true
    }

    /// Counts anew what waits, after a task was polled or has gone.
    fn settle(&self, seats: &mut Seats) {
        let handed = self.handed.load(Ordering::Relaxed);
        let waiting = seats.all.iter().map(|seat| handed - seat.seen).max().unwrap_or(0);
        let waiting = usize::try_from(waiting).unwrap_or(usize::MAX).min(seats.waiting);
        budget::give(seats.waiting - waiting);
        seats.waiting = waiting;
    }
}

impl Seats {
    fn wake(&self) {
        self.all.iter().for_each(|seat| seat.waking.wake());
    }
}

/// The place of a connection among those whose datagrams are counted.
#[derive(Debug)]
pub(super) struct Membership {
    queues: Arc<Queues>,
    peer: SocketAddr,
    queue: Arc<Queue>,
    number: u64,
    /// Bytes that the task has seen.
    seen: AtomicU64,
    /// The last sweep in which the task was polled.
    sweep: AtomicU64,
}

/// The counts before a poll.
pub(super) struct Before {
    handed: u64,
    sweep: u64,
}

impl Membership {
    /// To be called before the task is polled.
    pub(super) fn before(&self) -> Before {
        let sweep = self.queues.sweep.load(Ordering::Relaxed);
        Before { handed: self.queue.handed.load(Ordering::Relaxed), sweep }
    }

    /// To be called after the task was polled: all that had come before was taken out.
    pub(super) fn after(&self, before: &Before) {
        if self.seen.swap(before.handed, Ordering::Relaxed) != before.handed {
            let mut seats = self.queue.seats.lock();
            if let Some(seat) = seats.all.iter_mut().find(|seat| seat.number == self.number) {
                seat.seen = before.handed;
            }
            self.queue.settle(&mut seats);
        }
        if self.sweep.swap(before.sweep, Ordering::Relaxed) != before.sweep {
            self.queues.all.lock().polled();
        }
    }

    /// Lets as many bytes wait as fit to a receive window.
    pub(super) fn widen(&self, window: usize) {
        let most = if window > QUIC_WINDOW_SCARCE { QUIC_QUEUED_BYTES } else { window };
        self.queue.most.fetch_max(most, Ordering::Relaxed);
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut all = self.queues.all.lock();
        let mut seats = self.queue.seats.lock();
        seats.all.retain(|seat| seat.number != self.number);
        self.queue.settle(&mut seats);
        let is_last = seats.all.is_empty();
        drop(seats);
        if is_last {
            all.by_peer.remove(&self.peer);
        }
        if self.sweep.load(Ordering::Relaxed) != self.queues.sweep.load(Ordering::Relaxed) {
            all.polled();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    const LEN: usize = 1_200;

    fn peer(port: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    /// Queues beside memory of this fill level.
    fn queues(fullness: fn() -> Fullness) -> Arc<Queues> {
        Arc::new(Queues { fullness, ..Queues::default() })
    }

    fn member(queues: &Arc<Queues>, port: u16) -> Membership {
        queues.enter(peer(port), Arc::default())
    }

    /// Counts the datagrams that a peer can have handed on while its task is not polled.
    fn fill(queues: &Queues, port: u16) -> usize {
        (0..).take_while(|_| queues.admits(peer(port), LEN)).count()
    }

    fn poll(member: &Membership) {
        let before = member.before();
        member.after(&before);
    }

    #[test]
    fn a_connection_that_takes_nothing_out_has_a_bound() {
        let queues = queues(|| Fullness::Ample);
        let (one, other) = (member(&queues, 1), member(&queues, 2));
        assert_eq!(fill(&queues, 1), QUIC_QUEUED_BYTES_NEW / LEN);
        assert_eq!(fill(&queues, 2), QUIC_QUEUED_BYTES_NEW / LEN, "each has its own");
        poll(&one);
        assert_eq!(fill(&queues, 1), QUIC_QUEUED_BYTES_NEW / LEN, "a poll takes all out");
        assert!(!queues.admits(peer(2), LEN));
        poll(&one);
        one.widen(QUIC_WINDOW_SCARCE * 2);
        assert_eq!(fill(&queues, 1), QUIC_QUEUED_BYTES / LEN);
        drop((one, other));
        assert!(queues.all.lock().by_peer.is_empty());
    }

    #[test]
    fn less_waits_while_memory_is_full() {
        let queues = queues(|| Fullness::Full);
        let one = member(&queues, 1);
        one.widen(QUIC_WINDOW_SCARCE * 2);
        assert_eq!(fill(&queues, 1), QUIC_QUEUED_BYTES_NEW / LEN);
    }

    /// Datagrams of the time of a poll may have come too late for it.
    #[test]
    fn a_poll_takes_out_what_came_before_it() {
        let queues = queues(|| Fullness::Ample);
        let one = member(&queues, 1);
        let before = one.before();
        let count = fill(&queues, 1);
        one.after(&before);
        assert!(!queues.admits(peer(1), LEN));
        poll(&one);
        assert_eq!(fill(&queues, 1), count);
    }

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Two connections from one address: datagrams may be those of either, and the one that rests is asked.
    #[test]
    fn connections_of_one_address_share_its_bound() {
        let queues = queues(|| Fullness::Ample);
        let woken = Arc::new(Count(AtomicUsize::new(0)));
        let waking = Arc::new(Waking::default());
        waking.set(&Waker::from(Arc::clone(&woken)));
        let (busy, rests) = (member(&queues, 1), queues.enter(peer(1), waking));
        fill(&queues, 1);
        poll(&busy);
        assert!(!queues.admits(peer(1), LEN), "they may be those of the other");
        assert!(woken.0.load(Ordering::Relaxed) > 0);
        poll(&rests);
        assert!(queues.admits(peer(1), LEN));
        drop(rests);
        poll(&busy);
        assert_eq!(fill(&queues, 1), QUIC_QUEUED_BYTES_NEW / LEN);
    }

    /// Datagrams from addresses without a connection are bounded until each task was polled.
    #[test]
    fn newcomers_have_a_bound_together() {
        let queues = queues(|| Fullness::Ample);
        let places: Vec<_> = (1..=3).map(|port| member(&queues, port)).collect();
        let flood = || (0..).take_while(|n| queues.admits(peer(100 + n % 7), LEN)).count();
        assert_eq!(flood(), QUIC_QUEUED_NEWCOMERS_BYTES / LEN);
        let [first, second, third] = &places[..] else { panic!("three") };
        poll(first);
        poll(first);
        poll(second);
        assert_eq!(flood(), 0, "one was not polled");
        poll(third);
        let half = flood();
        assert!(half > 0 && half < QUIC_QUEUED_NEWCOMERS_BYTES / LEN, "{half}");
        poll(first);
        drop(places);
        for _ in 0..4 * QUIC_QUEUED_NEWCOMERS_BYTES / LEN {
            assert!(queues.admits(peer(100), LEN), "none is waited for that has gone");
        }
    }
}
