//! The server's sequence window: Connection.CommandSequenceWindow.

use crate::Disconnect;
use crate::limits::WINDOW_MAX;
use alloc::boxed::Box;
use frevo_wire::{Command, Header};

/// Bits in a word of the window.
const WORD: u64 = 64;
/// Words of the window.
const WORDS: usize = (WINDOW_MAX / 64) as usize;
/// Mask that gives the position of a number in the window.
const PLACE: u64 = (WINDOW_MAX - 1) as u64;
const _: () = assert!(WINDOW_MAX.is_power_of_two() && WINDOW_MAX >= 64);

/// The sequence numbers that a Connection accepts, and the credits that its client holds.
///
/// The window extends from `low`, the lowest number not received yet, to `end`, the first one not
/// granted yet, and is never wider than its maximum. A number is accepted once. Credits are either
/// unused (`available`) or belong to unanswered requests (`in_flight`). A response returns the
/// credits of its request and grants the requested ones up to the maximum. So a client that keeps
/// asking is never held below the maximum, and one that never asks still has a credit.
#[derive(Debug)]
pub struct CommandSequenceWindow {
    low: u64,
    end: u64,
    /// Bit `n % WINDOW_MAX` is set if number `n` of the window was received. None as long as all have
    /// come in their order, as most clients send them: an idle connection holds little.
    received: Option<Box<[u64; WORDS]>>,
    available: u16,
    in_flight: u16,
    max: u16,
}

impl CommandSequenceWindow {
    /// Makes the window of a new Connection: { 0 }. The client holds at most `max` credits, and no
    /// more than [`WINDOW_MAX`].
    pub fn new(max: u16) -> Self {
        Self {
            low: 0,
            end: 1,
            received: None,
            available: 1,
            in_flight: 0,
            max: max.clamp(1, WINDOW_MAX),
        }
    }

    /// Removes the sequence numbers of a request from the window and returns its charge, for
    /// [`Self::grant`]. CANCEL uses none.
    pub fn admit(&mut self, header: &Header, is_multi_credit: bool) -> Result<u16, Disconnect> {
        if header.command == Command::CANCEL {
            return Ok(0);
        }
        // Without multi-credit support CreditCharge is reserved and ignored.
        let charge = if is_multi_credit { header.credit_charge.max(1) } else { 1 };
        self.take(header.message_id, charge)?;
        Ok(charge)
    }

    /// Removes `charge` numbers from `message_id` on from the window. Fails without a change unless
    /// all are in it and none was received before.
    pub fn take(&mut self, message_id: u64, charge: u16) -> Result<(), Disconnect> {
        let charge = charge.max(1);
        let wrong = Disconnect::SequenceNumber { message_id, charge };
        let past = message_id.checked_add(u64::from(charge)).ok_or(wrong)?;
        if message_id < self.low || past > self.end {
            return Err(wrong);
        }
        if self.received.is_some() && (message_id..past).any(|number| self.is_received(number)) {
            return Err(wrong);
        }
        if message_id == self.low {
            self.low = past;
        } else {
            (message_id..past).for_each(|number| self.mark(number, true));
        }
        self.available = self.available.saturating_sub(charge);
        self.in_flight = self.in_flight.saturating_add(charge);
        while self.low < self.end && self.is_received(self.low) {
            self.mark(self.low, false);
            self.low = self.low.saturating_add(1);
        }
        Ok(())
    }

    /// Answers a request of `charge` (the result of [`Self::admit`]) that asks for `requested`
    /// credits, and returns CreditResponse.
    ///
    /// Called once for each request: with its interim response if there is one (MS-SMB2 3.3.4.1.2),
    /// and the final response then grants nothing.
    pub fn grant(&mut self, requested: u16, charge: u16) -> u16 {
        self.in_flight = self.in_flight.saturating_sub(charge);
        let held = self.available.saturating_add(self.in_flight);
        let width = u16::try_from(self.end.saturating_sub(self.low)).unwrap_or(u16::MAX);
        let room = self.max.saturating_sub(held.max(width));
        // MS-SMB2 3.3.1.2: a client without credits gets at least one, since it could not ask for
        // more.
        let at_least = u16::from(held == 0);
        let granted = requested.min(room).max(at_least);
        // MS-SMB2 3.3.1.1: MessageIds do not wrap. No credit is granted beyond the largest
        // MessageId, after which the connection cannot go on.
        let end = self.end.saturating_add(u64::from(granted));
        let granted = u16::try_from(end.saturating_sub(self.end)).unwrap_or(granted);
        self.end = end;
        self.available = self.available.saturating_add(granted);
        granted
    }

    /// Returns the number of credits that the client may still use.
    pub const fn available(&self) -> u16 {
        self.available
    }

    /// Returns the number of credits of unanswered requests.
    pub const fn in_flight(&self) -> u16 {
        self.in_flight
    }

    fn slot(number: u64) -> (usize, u64) {
        let bit = number & PLACE;
        let word = usize::try_from(bit / WORD).unwrap_or(0);
        (word, 1_u64.wrapping_shl((bit % WORD) as u32))
    }

    fn is_received(&self, number: u64) -> bool {
        let (word, bit) = Self::slot(number);
        let received = self.received.as_ref().and_then(|received| received.get(word));
        received.is_some_and(|word| word & bit != 0)
    }

    fn mark(&mut self, number: u64, received: bool) {
        let (word, bit) = Self::slot(number);
        let words = self.received.get_or_insert_with(|| Box::new([0; WORDS]));
        if let Some(word) = words.get_mut(word) {
            if received { *word |= bit } else { *word &= !bit }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    /// Makes a window that has granted `credits` beyond the first.
    fn with_credits(credits: u16) -> CommandSequenceWindow {
        let mut window = CommandSequenceWindow::new(WINDOW_MAX);
        window.take(0, 1).unwrap();
        assert_eq!(window.grant(credits, 1), credits);
        window
    }

    #[test]
    fn starts_with_zero_only() {
        let mut window = CommandSequenceWindow::new(WINDOW_MAX);
        assert!(window.take(1, 1).is_err());
        assert!(window.take(0, 2).is_err());
        assert_eq!(window.take(0, 1), Ok(()));
        assert!(window.take(0, 1).is_err());
    }

    #[test]
    fn out_of_order_and_never_twice() {
        let mut window = with_credits(4); // { 1, 2, 3, 4 }
        for number in [3, 1, 4] {
            assert_eq!(window.take(number, 1), Ok(()));
            assert!(window.take(number, 1).is_err());
        }
        assert!(window.take(5, 1).is_err());
        assert_eq!(window.take(2, 1), Ok(()));
        assert!(window.take(1, 1).is_err());
    }

    #[test]
    fn numbers_in_their_order_need_no_table() {
        let mut window = with_credits(512);
        for (number, charge) in [(1, 1), (2, 128), (130, 1), (131, 7)] {
            assert_eq!(window.take(number, charge), Ok(()));
            assert!(window.take(number, charge).is_err());
        }
        assert!(window.received.is_none());
        assert_eq!(window.take(139, 1), Ok(()));
        assert!(window.received.is_some() && window.take(138, 2).is_err());
        assert_eq!(window.take(138, 1), Ok(()));
        assert_eq!(window.low, 140);
    }

    #[test]
    fn multi_credit_takes_a_whole_range_or_nothing() {
        let mut window = with_credits(8); // { 1..=8 }
        assert_eq!(window.take(4, 2), Ok(()));
        assert!(window.take(3, 2).is_err()); // 4 is gone
        assert!(window.take(7, 3).is_err()); // 9 is not granted
        assert_eq!(window.take(3, 1), Ok(())); // and 3 was left alone
        assert_eq!(window.take(6, 3), Ok(()));
        assert_eq!(window.available(), 2);
    }

    #[test]
    fn charge_zero_counts_as_one_and_cancel_is_free() {
        let mut window = with_credits(2);
        let mut header = Header::parse(&{
            let mut bytes = [0; 64];
            bytes[..6].copy_from_slice(&[0xFE, b'S', b'M', b'B', 64, 0]);
            bytes
        })
        .unwrap();
        header.command = Command::CANCEL;
        header.message_id = 77;
        assert_eq!(window.admit(&header, true), Ok(0));
        assert_eq!(window.available(), 2);
        header.command = Command::READ;
        header.message_id = 1;
        header.credit_charge = 0;
        assert_eq!(window.admit(&header, true), Ok(1));
        header.message_id = 2;
        header.credit_charge = 50;
        // Without multi-credit support a charge of more than 1 counts as 1.
        assert_eq!(window.admit(&header, false), Ok(1));
        assert_eq!(window.available(), 0);
    }

    #[test]
    fn maximum_is_reached_and_not_passed() {
        for max in [1, 2, 512, WINDOW_MAX - 1, WINDOW_MAX] {
            let mut window = CommandSequenceWindow::new(max);
            window.take(0, 1).unwrap();
            assert_eq!(window.grant(max - 1, 1), (max - 1).max(1));
            let left = max - window.available();
            assert!(left <= 1);
            // A client that asks for more credits than the maximum gets only the maximum.
            let mut window = CommandSequenceWindow::new(max);
            window.take(0, 1).unwrap();
            assert_eq!(window.grant(max.saturating_add(1), 1), max);
            assert_eq!(window.available(), max);
            assert!(window.take(u64::from(max) + 1, 1).is_err());
            assert_eq!(window.take(u64::from(max), 1), Ok(()));
        }
        assert_eq!(CommandSequenceWindow::new(u16::MAX).max, WINDOW_MAX);
    }

    #[test]
    fn never_without_credit() {
        let mut window = CommandSequenceWindow::new(4);
        window.take(0, 1).unwrap();
        assert_eq!(window.grant(0, 1), 1);
        // Two requests ask for no credits. The first response grants none; the last one still
        // grants one, so that the client can go on.
        let mut window = with_credits(2);
        window.take(1, 1).unwrap();
        window.take(2, 1).unwrap();
        assert_eq!(window.grant(0, 1), 0);
        assert_eq!(window.grant(0, 1), 1);
        assert_eq!(window.take(3, 1), Ok(()));
    }

    #[test]
    fn a_number_held_back_stops_the_window_at_its_width() {
        let mut window = with_credits(2); // { 1, 2 }: 1 is never sent.
        let stopped = (2..2 * u64::from(WINDOW_MAX)).find(|number| {
            window.take(*number, 1).unwrap();
            window.grant(1, 1) == 0
        });
        assert_eq!(stopped, Some(u64::from(WINDOW_MAX)));
        // The missing MessageId 1 arrives, so the window moves on and credits can be granted again.
        window.take(1, 1).unwrap();
        assert_eq!(window.grant(10, 1), 10);
    }

    #[test]
    fn the_sequence_does_not_wrap() {
        let mut window = with_credits(1);
        window.low = u64::MAX - 1;
        window.end = u64::MAX;
        assert!(window.take(u64::MAX, 1).is_err());
        assert_eq!(window.take(u64::MAX - 1, 1), Ok(()));
        assert_eq!(window.grant(5, 1), 0);
        assert!(window.take(0, 1).is_err());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Take { at: u16, charge: u16 },
        Grant { requested: u16, which: u8 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let charge = prop_oneof![4 => Just(1_u16), 1 => 0..5_u16, 1 => 0..200_u16];
        let take = (0..40_u16, charge).prop_map(|(at, charge)| Step::Take { at, charge });
        let requested = prop_oneof![0..4_u16, 0..u16::MAX];
        let grant = (requested, any::<u8>())
            .prop_map(|(requested, which)| Step::Grant { requested, which });
        proptest::collection::vec(prop_oneof![3 => take, 2 => grant], 0..200)
    }

    proptest! {
        /// Tests the window against the plain reading of the specification: a set of numbers.
        #[test]
        fn is_the_set_of_the_specification(
            max in prop_oneof![1..20_u16, Just(WINDOW_MAX)],
            steps in steps(),
        ) {
            let mut window = CommandSequenceWindow::new(max);
            let mut valid: BTreeSet<u64> = BTreeSet::from([0]);
            let mut granted_end = 1_u64;
            let mut unanswered: Vec<u16> = Vec::new();
            for step in steps {
                match step {
                    Step::Take { at, charge } => {
                        let first = valid.first().copied().unwrap_or(granted_end);
                        let id = first.saturating_sub(2) + u64::from(at);
                        let charge = charge.max(1);
                        let range = id..id + u64::from(charge);
                        let good = range.clone().all(|number| valid.contains(&number));
                        prop_assert_eq!(window.take(id, charge).is_ok(), good);
                        if good {
                            range.for_each(|number| { valid.remove(&number); });
                            unanswered.push(charge);
                        }
                    }
                    Step::Grant { requested, which } if !unanswered.is_empty() => {
                        let charge = unanswered.remove(usize::from(which) % unanswered.len());
                        let granted = window.grant(requested, charge);
                        prop_assert!(granted <= requested.max(1));
                        valid.extend(granted_end..granted_end + u64::from(granted));
                        granted_end += u64::from(granted);
                        prop_assert!(!(valid.is_empty() && unanswered.is_empty()));
                    }
                    Step::Grant { .. } => {}
                }
                let held = valid.len() + unanswered.iter().copied().map(usize::from).sum::<usize>();
                prop_assert!(held <= usize::from(max));
                prop_assert_eq!(usize::from(window.available()), valid.len());
                let low = valid.first().copied().unwrap_or(granted_end);
                prop_assert!(granted_end - low <= u64::from(max));
            }
        }

        /// Tests that a client which asks for as many credits as it uses never loses one.
        #[test]
        fn does_not_throttle(want in 1..WINDOW_MAX, rounds in 1..50_u64) {
            let mut window = CommandSequenceWindow::new(WINDOW_MAX);
            window.take(0, 1).unwrap();
            prop_assert_eq!(window.grant(want, 1), want);
            for number in 1..=rounds {
                window.take(number, 1).unwrap();
                prop_assert_eq!(window.grant(1, 1), 1);
            }
            prop_assert_eq!(window.available(), want);
        }
    }
}
