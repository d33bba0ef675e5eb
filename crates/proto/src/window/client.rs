//! The client's credits: Connection.SequenceWindow.

use crate::limits::WINDOW_MAX;

/// The credits of a client on one Connection.
///
/// A client uses the lowest number first and numbers are granted in order, so the window is one
/// range from `next` to `end`.
#[derive(Debug)]
pub struct CreditPool {
    next: u64,
    end: u64,
    /// Credits that unanswered requests ask for.
    asked: u32,
    target: u16,
}

/// The sequence numbers of one request, and the credits that it asks for. Kept with the request
/// until it is answered.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a request that is sent has to be accounted for when it is answered"]
pub struct Taken {
    /// MessageId: the first sequence number.
    pub message_id: u64,
    /// CreditCharge: the number of sequence numbers.
    pub charge: u16,
    /// CreditRequest; 0 after an answer has been counted.
    pub credit_request: u16,
}

impl CreditPool {
    /// Makes the window of a new Connection: { 0 }. The pool asks for credits until it holds
    /// `target` (for example the bandwidth-delay product over 64 KiB), at most [`WINDOW_MAX`].
    pub fn new(target: u16) -> Self {
        Self { next: 0, end: 1, asked: 0, target: target.clamp(1, WINDOW_MAX) }
    }

    /// Changes the number of credits that the pool tries to hold.
    pub fn set_target(&mut self, target: u16) {
        self.target = target.clamp(1, WINDOW_MAX);
    }

    /// Returns the number of credits that can be used now.
    pub fn available(&self) -> u64 {
        self.end.saturating_sub(self.next)
    }

    /// Takes the numbers for a request of `charge` (0 counts as 1); None if there are not enough,
    /// and the request has to wait for an answer.
    pub fn take(&mut self, charge: u16) -> Option<Taken> {
        let charge = charge.max(1);
        let message_id = self.next;
        let next = message_id.checked_add(u64::from(charge))?;
        if next > self.end {
            return None;
        }
        self.next = next;
        // MS-SMB2 3.2.4.1.2: once all responses are in, the credits have changed by CreditRequest
        // minus the charge. At least one credit is requested, so that the client never ends up
        // without credits.
        let expected = self.available().saturating_add(u64::from(self.asked));
        let missing = u64::from(self.target).saturating_sub(expected);
        let credit_request = u16::try_from(missing).unwrap_or(self.target).max(1);
        self.asked = self.asked.saturating_add(u32::from(credit_request));
        Some(Taken { message_id, charge, credit_request })
    }

    /// Counts an answer to `taken` that grants `granted` credits. Called for the interim response
    /// and for the final one.
    pub fn on_response(&mut self, taken: &mut Taken, granted: u16) {
        self.forget(taken);
        self.end = self.end.saturating_add(u64::from(granted));
    }

    /// Abandons the answer to `taken`: its numbers are used up, and other requests ask for its
    /// credits again.
    pub fn forget(&mut self, taken: &mut Taken) {
        self.asked = self.asked.saturating_sub(u32::from(taken.credit_request));
        taken.credit_request = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::CommandSequenceWindow;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn grows_as_granted_and_uses_the_lowest_first() {
        let mut pool = CreditPool::new(100);
        let mut first = pool.take(1).unwrap();
        assert_eq!((first.message_id, first.credit_request), (0, 100));
        assert_eq!(pool.take(1), None);
        pool.on_response(&mut first, 3);
        assert_eq!(pool.available(), 3);
        assert_eq!(pool.take(4), None);
        assert_eq!(pool.take(2).unwrap().message_id, 1);
        assert_eq!(pool.take(1).unwrap().message_id, 3);
        assert_eq!(pool.take(1), None);
    }

    #[test]
    fn asks_up_to_its_target_and_not_twice() {
        let mut pool = CreditPool::new(10);
        let mut first = pool.take(1).unwrap();
        assert_eq!(first.credit_request, 10);
        pool.on_response(&mut first, 10);
        // At its target, the pool asks for as many credits as a request uses. After a raise of the
        // target, the next request asks for the missing credits, too.
        assert_eq!(pool.take(1).unwrap().credit_request, 1);
        assert_eq!(pool.take(4).unwrap().credit_request, 4);
        pool.set_target(20);
        assert_eq!(pool.take(1).unwrap().credit_request, 11);
        assert_eq!(pool.take(1).unwrap().credit_request, 1);
        // The pool has more than its target and shrinks, but each request still asks for at least
        // one credit.
        pool.set_target(2);
        assert_eq!(pool.take(1).unwrap().credit_request, 1);
    }

    #[test]
    fn interim_and_final_responses_count_the_request_once() {
        let mut pool = CreditPool::new(5);
        let mut taken = pool.take(1).unwrap();
        pool.on_response(&mut taken, 5);
        assert_eq!(pool.asked, 0);
        pool.on_response(&mut taken, 0);
        assert_eq!((pool.asked, pool.available()), (0, 5));
    }

    #[test]
    fn the_sequence_does_not_wrap() {
        let mut pool = CreditPool::new(5);
        pool.next = u64::MAX - 1;
        pool.end = u64::MAX;
        assert!(pool.take(1).is_some());
        assert_eq!(pool.take(1), None);
    }

    proptest! {
        /// Tests pool and window together: the server accepts every number that the client takes,
        /// in any order of arrival and answer, and the client never runs out.
        #[test]
        fn agrees_with_the_server(
            target in 1..300_u16,
            max in 1..300_u16,
            charges in proptest::collection::vec(1..4_u16, 1..300),
            order in proptest::collection::vec(any::<proptest::sample::Index>(), 300),
        ) {
            let mut pool = CreditPool::new(target);
            let mut window = CommandSequenceWindow::new(max);
            let mut unanswered: VecDeque<Taken> = VecDeque::new();
            let mut order = order.into_iter().cycle();
            for charge in charges {
                let charge = charge.min(target).min(max);
                let mut rounds = 0;
                let taken = loop {
                    rounds += 1;
                    prop_assert!(rounds < 2000, "starved");
                    if let Some(taken) = pool.take(charge) {
                        break taken;
                    }
                    // The credits are too few for the charge, and no request is in flight. As other
                    // clients do, the client then sends a request of one credit, whose response
                    // brings more.
                    let mut answered = if unanswered.is_empty() {
                        let small = pool.take(1).unwrap();
                        window.take(small.message_id, 1).unwrap();
                        small
                    } else {
                        let which = order.next().unwrap().index(unanswered.len());
                        unanswered.remove(which).unwrap()
                    };
                    let granted = window.grant(answered.credit_request, answered.charge);
                    pool.on_response(&mut answered, granted);
                };
                prop_assert_eq!(window.take(taken.message_id, taken.charge), Ok(()));
                unanswered.push_back(taken);
                prop_assert_eq!(u64::from(window.available()), pool.available());
            }
        }
    }
}
