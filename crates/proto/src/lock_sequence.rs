//! Open.LockSequenceArray: recognises LOCK requests that a client repeats because their channel was
//! lost, MS-SMB2 3.3.5.14.

use alloc::boxed::Box;

use frevo_wire::command::lock::LockSequence;

use crate::limits::LOCK_SEQUENCES;

/// The LockSequenceNumbers of requests, by their LockSequenceIndex. Takes no memory before the first
/// one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockSequences {
    entries: Option<Box<[Entry; LOCK_SEQUENCES]>>,
}

/// The last request with an index: its number in the low four bits, and flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Entry(u8);

impl Entry {
    const NUMBER: u8 = 0x0F;
    /// A request has come.
    const SEEN: u8 = 0x10;
    /// The request was executed.
    const CARRIED_OUT: u8 = 0x20;
    /// A repetition of it was answered with success: it stays executed.
    const PROMISED: u8 = 0x40;
    /// It is being executed.
    const RUNNING: u8 = 0x80;

    const fn new(number: u8, flags: u8) -> Self {
        Self((number & Self::NUMBER) | Self::SEEN | flags)
    }

    const fn has(self, flags: u8) -> bool {
        self.0 & flags == flags
    }

    const fn number(self) -> u8 {
        self.0 & Self::NUMBER
    }

    /// The number of an executed request.
    const fn executed(self) -> Option<u8> {
        if self.has(Self::CARRIED_OUT) { Some(self.number()) } else { None }
    }

    /// True if it has seen `number`, or one that follows `number`: a client has one request with an
    /// index under way, and counts up.
    const fn has_passed(self, number: u8) -> bool {
        let ahead = self.number().wrapping_sub(number) & Self::NUMBER;
        self.has(Self::SEEN) && ahead <= Self::NUMBER / 2 + 1
    }
}

impl LockSequences {
    /// Makes the array of a new Open.
    pub const fn new() -> Self {
        Self { entries: None }
    }

    /// True if this request was executed before; nothing is forgotten.
    pub fn has(&self, sequence: LockSequence) -> bool {
        let entry = self.entries.as_ref().zip(place(sequence));
        let entry = entry.and_then(|(all, at)| all.get(at));
        entry.is_some_and(|entry| entry.executed() == Some(sequence.number()))
    }

    /// True if this request, or a later one with its index, has come before. One of a lost channel
    /// is then a late copy.
    pub fn has_passed(&self, sequence: LockSequence) -> bool {
        let entry = self.entries.as_ref().zip(place(sequence));
        let entry = entry.and_then(|(all, at)| all.get(at));
        entry.is_some_and(|entry| entry.has_passed(sequence.number()))
    }

    /// Records that a request is being executed. Its index forgets the earlier one. False if an
    /// attempt at this request is being executed already.
    pub fn begin(&mut self, sequence: LockSequence) -> bool {
        let entry = self.entry(sequence);
        if entry.is_some_and(|entry| entry.has(Entry::RUNNING)) {
            return false;
        }
        if !self.has(sequence) {
            self.put(sequence, Entry::RUNNING);
        }
        true
    }

    /// Records that the attempt that [`Self::begin`] began has ended, executed or not.
    pub fn end(&mut self, sequence: LockSequence) {
        if let Some(entry) = self.entry(sequence) {
            self.put(sequence, entry.0 & !Entry::RUNNING);
        }
    }

    /// Records that a request was executed.
    pub fn carried_out(&mut self, sequence: LockSequence) {
        self.put(sequence, Entry::CARRIED_OUT | self.running(sequence));
    }

    /// Records that a repetition of a request is answered with success. False if it is not executed
    /// any more.
    pub fn promise(&mut self, sequence: LockSequence) -> bool {
        let has = self.has(sequence);
        if has {
            let running = self.running(sequence);
            self.put(sequence, Entry::CARRIED_OUT | Entry::PROMISED | running);
        }
        has
    }

    /// Records that a request is undone: when it is repeated it will be executed. False if that must
    /// not be: a repetition was answered with success.
    pub fn undone(&mut self, sequence: LockSequence) -> bool {
        if place(sequence).is_none() || self.entries.is_none() {
            return true;
        }
        // A request whose repetition was answered with success must not be undone. Its entry is
        // then PROMISED, or a later number of the client has replaced it.
        let is_executed = |entry: &Entry| entry.executed().is_some() && !entry.has(Entry::PROMISED);
        if !self.entry(sequence).as_ref().is_some_and(is_executed) {
            return false;
        }
        self.put(sequence, self.running(sequence));
        true
    }

    /// Returns the numbers of executed requests by index less one, for the record of a persistent
    /// Open.
    pub fn numbers(&self) -> [Option<u8>; LOCK_SEQUENCES] {
        let none = [None; LOCK_SEQUENCES];
        self.entries.as_ref().map_or(none, |entries| entries.map(Entry::executed))
    }

    /// Makes the array from the result of [`Self::numbers`].
    pub fn from_numbers(numbers: [Option<u8>; LOCK_SEQUENCES]) -> Self {
        let is_empty = numbers.iter().all(Option::is_none);
        let entry = |number: Option<u8>| {
            number.map_or_else(Entry::default, |number| Entry::new(number, Entry::CARRIED_OUT))
        };
        Self { entries: if is_empty { None } else { Some(Box::new(numbers.map(entry))) } }
    }

    /// The entry of this request; None if its index has another one, or none.
    fn entry(&self, sequence: LockSequence) -> Option<Entry> {
        let entry = self.entries.as_ref().zip(place(sequence));
        let entry = entry.and_then(|(all, at)| all.get(at)).copied();
        entry.filter(|entry| entry.has(Entry::SEEN) && entry.number() == sequence.number())
    }

    /// The flag of an attempt that is being executed.
    fn running(&self, sequence: LockSequence) -> u8 {
        self.entry(sequence).map_or(0, |entry| entry.0 & Entry::RUNNING)
    }

    fn put(&mut self, sequence: LockSequence, flags: u8) {
        let Some(at) = place(sequence) else { return };
        let entry = Entry::new(sequence.number(), flags);
        let entries = self.entries.get_or_insert_with(|| Box::new([Entry(0); LOCK_SEQUENCES]));
        if let Some(place) = entries.get_mut(at) {
            *place = entry;
        }
    }
}

/// Returns the position of an index from 1 to the number of entries; None for any other.
fn place(sequence: LockSequence) -> Option<usize> {
    let place = usize::try_from(sequence.index()).ok()?.checked_sub(1)?;
    (place < LOCK_SEQUENCES).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn the_same_number_under_the_same_index_is_a_replay() {
        let mut sequences = LockSequences::new();
        for index in [1, 63, 64] {
            let (first, second) = (LockSequence::new(1, index), LockSequence::new(2, index));
            assert!(!sequences.has(first));
            sequences.begin(first);
            assert!(!sequences.has(first));
            sequences.carried_out(first);
            sequences.begin(first);
            assert!(sequences.has(first), "as often as it comes");
            sequences.begin(second);
            assert!(!sequences.has(first), "that made it forget");
        }
    }

    #[test]
    fn one_attempt_is_executed_at_a_time() {
        let mut sequences = LockSequences::new();
        let (first, second) = (LockSequence::new(1, 1), LockSequence::new(2, 1));
        assert!(sequences.begin(first) && !sequences.begin(first));
        sequences.carried_out(first);
        assert!(sequences.undone(first));
        assert!(!sequences.begin(first), "the attempt that undid it has not ended");
        sequences.end(first);
        assert!(sequences.begin(first));
        assert!(sequences.begin(second), "the client has given the first one up");
        sequences.end(first);
        assert!(!sequences.begin(second), "the end of another");
        sequences.carried_out(second);
        sequences.end(second);
        assert!(sequences.has(second));
    }

    #[test]
    fn a_late_copy_is_one_whose_number_was_passed() {
        let mut sequences = LockSequences::new();
        let number = |number| LockSequence::new(number, 1);
        assert!(!sequences.has_passed(number(0)));
        sequences.begin(number(2));
        let passed = |sequences: &LockSequences| -> Vec<u8> {
            (0..16).filter(|n| sequences.has_passed(number(*n))).collect()
        };
        assert_eq!(passed(&sequences), [0, 1, 2, 10, 11, 12, 13, 14, 15]);
        sequences.carried_out(number(2));
        assert!(sequences.undone(number(2)));
        assert!(sequences.has_passed(number(2)) && !sequences.has_passed(number(3)));
        assert!(!sequences.has_passed(LockSequence::new(2, 2)), "of another index");
    }

    #[test]
    fn what_a_repetition_was_promised_stays() {
        let mut sequences = LockSequences::new();
        let (first, second) = (LockSequence::new(1, 1), LockSequence::new(2, 1));
        assert!(!sequences.promise(first));
        sequences.carried_out(first);
        assert!(sequences.promise(first));
        assert!(!sequences.undone(first));
        assert!(sequences.has(first));
        // The client uses the second number, so it has the answer to the first request. Undoing the
        // first one has no effect any more.
        sequences.begin(second);
        assert!(!sequences.undone(first));
        sequences.carried_out(second);
        assert!(!sequences.undone(first) && sequences.has(second));
        assert!(sequences.undone(second));
        assert!(!sequences.has(second) && !sequences.promise(second));
    }

    #[test]
    fn numbers_can_be_kept() {
        let mut sequences = LockSequences::new();
        assert_eq!(LockSequences::from_numbers(sequences.numbers()), sequences);
        sequences.carried_out(LockSequence::new(3, 1));
        sequences.carried_out(LockSequence::new(15, 64));
        assert_eq!(LockSequences::from_numbers(sequences.numbers()), sequences);
    }

    #[test]
    fn other_indices_mean_nothing() {
        let mut sequences = LockSequences::new();
        for index in [0, 65, 0x0FFF_FFFF] {
            sequences.begin(LockSequence::new(1, index));
            sequences.carried_out(LockSequence::new(1, index));
            assert!(!sequences.has(LockSequence::new(1, index)));
            assert!(sequences.undone(LockSequence::new(1, index)));
        }
        assert_eq!(sequences, LockSequences::new());
    }
}
