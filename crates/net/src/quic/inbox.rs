//! Datagrams on their way to the task of their connection.
//!
//! A task whose core is busy takes nothing out, so that a client could fill the memory. What is too much is
//! dropped: a lost packet, which its sender sends again.

use std::collections::VecDeque;
use std::task::Waker;

use parking_lot::Mutex;
use quinn_proto::ConnectionEvent;

use crate::buffer::budget::{self, Fullness};
use crate::limits::{
    QUIC_DATAGRAM_BYTES, QUIC_DATAGRAMS_AT_ONCE, QUIC_QUEUED_BYTES, QUIC_QUEUED_BYTES_NEW,
    QUIC_WINDOW_SCARCE,
};

/// The datagrams that wait for one connection.
#[derive(Debug)]
pub(super) struct Inbox<T = ConnectionEvent>(Mutex<Queue<T>>);

#[derive(Debug)]
struct Queue<T> {
    /// Events, each with its bytes as the budget counts them.
    events: VecDeque<(T, usize)>,
    /// Bytes of memory that wait, as the budget counts them.
    waiting: usize,
    /// Bytes that may wait.
    most: usize,
    /// False for a client, which asks its server for what comes.
    is_bounded: bool,
    /// The task of the connection. None while it is not to be woken.
    task: Option<Waker>,
}

impl<T> Inbox<T> {
    /// Makes one of a server's connection, or of a client's.
    pub(super) fn new(is_bounded: bool) -> Self {
        let events = VecDeque::new();
        let (waiting, most) = (0, QUIC_QUEUED_BYTES_NEW);
        Self(Mutex::new(Queue { events, waiting, most, is_bounded, task: None }))
    }

    /// Puts in a datagram whose buffer has `bytes`, unless too many wait. The task is woken.
    pub(super) fn push(&self, event: T, bytes: usize) {
        self.push_beside(event, bytes, budget::fullness);
    }

    /// Puts in a datagram like [`Self::push`] while the memory has a fill level.
    fn push_beside(&self, event: T, bytes: usize, fullness: fn() -> Fullness) {
        let mut held = self.0.lock();
        let mut counted = 0;
        if held.is_bounded {
            let bytes = bytes + QUIC_DATAGRAM_BYTES;
            let waiting = held.waiting + bytes;
            let is_much = waiting > QUIC_QUEUED_BYTES_NEW && fullness() == Fullness::Full;
            if is_much || waiting > held.most {
                return;
            }
            budget::take(bytes);
            (held.waiting, counted) = (waiting, bytes);
        }
        held.events.push_back((event, counted));
        let task = held.task.take();
        drop(held);
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Takes out as many as one turn handles, and has `task` woken by the next that comes.
    pub(super) fn take(&self, task: &Waker) -> VecDeque<(T, usize)> {
        let mut held = self.0.lock();
        if !held.task.as_ref().is_some_and(|kept| kept.will_wake(task)) {
            held.task = Some(task.clone());
        }
        held.take(QUIC_DATAGRAMS_AT_ONCE)
    }

    /// Takes out all. The task is woken as before.
    pub(super) fn take_aside(&self) -> VecDeque<(T, usize)> {
        self.0.lock().take(usize::MAX)
    }

    /// Has the task of the connection polled.
    pub(super) fn wake(&self) {
        let task = self.0.lock().task.take();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Lets as many bytes wait as fit to a receive window.
    pub(super) fn widen(&self, window: usize) {
        let most = if window > QUIC_WINDOW_SCARCE { QUIC_QUEUED_BYTES } else { window };
        let mut held = self.0.lock();
        held.most = held.most.max(most);
    }
}

impl<T> Queue<T> {
    fn take(&mut self, most: usize) -> VecDeque<(T, usize)> {
        let rest = self.events.split_off(self.events.len().min(most));
        // The memory of the queue goes as well.
        let taken = std::mem::replace(&mut self.events, rest);
        let bytes: usize = taken.iter().map(|(_, bytes)| *bytes).sum();
        budget::give(bytes);
        self.waiting -= bytes;
        taken
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        budget::give(self.0.get_mut().waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 1_200 - QUIC_DATAGRAM_BYTES;

    /// Counts the datagrams that wait after many came.
    fn fill(inbox: &Inbox<()>) -> usize {
        (0..2 * QUIC_QUEUED_BYTES / 1_200).for_each(|_| inbox.push((), LEN));
        taken(inbox)
    }

    /// Counts the datagrams that wait, which are taken out in turns.
    fn taken(inbox: &Inbox<()>) -> usize {
        let turns = std::iter::repeat_with(|| inbox.take(Waker::noop()).len());
        let turns = turns.take_while(|count| *count > 0);
        turns.inspect(|count| assert!(*count <= QUIC_DATAGRAMS_AT_ONCE)).sum()
    }

    #[test]
    fn a_connection_that_takes_nothing_out_has_a_bound() {
        let inbox = Inbox::new(true);
        assert_eq!(fill(&inbox), QUIC_QUEUED_BYTES_NEW / 1_200);
        assert_eq!(fill(&inbox), QUIC_QUEUED_BYTES_NEW / 1_200, "all were taken out");
        inbox.widen(QUIC_WINDOW_SCARCE);
        assert_eq!(fill(&inbox), QUIC_WINDOW_SCARCE / 1_200);
        inbox.widen(2 * QUIC_WINDOW_SCARCE);
        assert_eq!(fill(&inbox), QUIC_QUEUED_BYTES / 1_200);
        inbox.widen(QUIC_WINDOW_SCARCE);
        assert_eq!(fill(&inbox), QUIC_QUEUED_BYTES / 1_200, "it does not become narrow again");
    }

    #[test]
    fn less_waits_while_memory_is_full() {
        let inbox = Inbox::new(true);
        inbox.widen(2 * QUIC_WINDOW_SCARCE);
        (0..1_000).for_each(|_| inbox.push_beside((), LEN, || Fullness::Full));
        assert_eq!(taken(&inbox), QUIC_QUEUED_BYTES_NEW / 1_200);
    }

    #[test]
    fn what_a_client_asked_for_has_no_bound() {
        let inbox = Inbox::new(false);
        assert_eq!(fill(&inbox), 2 * QUIC_QUEUED_BYTES / 1_200);
    }

    /// Many small datagrams take more memory than their bytes.
    #[test]
    fn small_datagrams_count_with_their_memory() {
        let inbox = Inbox::new(true);
        (0..10_000).for_each(|_| inbox.push((), 25));
        assert_eq!(taken(&inbox), QUIC_QUEUED_BYTES_NEW / (25 + QUIC_DATAGRAM_BYTES));
    }
}
