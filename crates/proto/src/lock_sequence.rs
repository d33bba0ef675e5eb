//! Open.LockSequenceArray: recognises LOCK requests that a client repeats because their channel was
//! lost, MS-SMB2 3.3.5.14.

use alloc::boxed::Box;

use frevo_wire::command::lock::LockSequence;

use crate::limits::LOCK_SEQUENCES;

/// The LockSequenceNumbers of executed requests, by their LockSequenceIndex. Takes no memory before
/// the first one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockSequences {
    carried_out: Option<Box<[Option<u8>; LOCK_SEQUENCES]>>,
}

impl LockSequences {
    /// Makes the array of a new Open.
    pub const fn new() -> Self {
        Self { carried_out: None }
    }

    /// True if this request was executed before and is answered with success alone. A new number at
    /// an index makes it forget the old one.
    pub fn is_replay(&mut self, sequence: LockSequence) -> bool {
        let Some(entry) = self.entry(sequence) else { return false };
        match entry {
            Some(number) if *number == sequence.number() => true,
            _ => {
                *entry = None;
                false
            }
        }
    }

    /// True if this request was executed before; nothing is forgotten.
    pub fn has(&self, sequence: LockSequence) -> bool {
        let entry = self.carried_out.as_ref().zip(place(sequence));
        entry.and_then(|(all, at)| all.get(at)).is_some_and(|n| *n == Some(sequence.number()))
    }

    /// Records that a request was executed.
    pub fn carried_out(&mut self, sequence: LockSequence) {
        if place(sequence).is_some() {
            self.carried_out.get_or_insert_with(|| Box::new([None; LOCK_SEQUENCES]));
        }
        if let Some(entry) = self.entry(sequence) {
            *entry = Some(sequence.number());
        }
    }

    /// Records that a request was undone: when it is repeated it will be executed.
    pub fn undone(&mut self, sequence: LockSequence) {
        if let Some(entry) = self.entry(sequence) {
            *entry = None;
        }
    }

    /// Returns the numbers by index less one, for the record of a persistent Open.
    pub fn numbers(&self) -> [Option<u8>; LOCK_SEQUENCES] {
        self.carried_out.as_deref().copied().unwrap_or([None; LOCK_SEQUENCES])
    }

    /// Makes the array from the result of [`Self::numbers`].
    pub fn from_numbers(numbers: [Option<u8>; LOCK_SEQUENCES]) -> Self {
        let is_empty = numbers.iter().all(Option::is_none);
        Self { carried_out: if is_empty { None } else { Some(Box::new(numbers)) } }
    }

    fn entry(&mut self, sequence: LockSequence) -> Option<&mut Option<u8>> {
        self.carried_out.as_mut()?.get_mut(place(sequence)?)
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

    #[test]
    fn the_same_number_under_the_same_index_is_a_replay() {
        let mut sequences = LockSequences::new();
        for index in [1, 63, 64] {
            assert!(!sequences.is_replay(LockSequence::new(1, index)));
            sequences.carried_out(LockSequence::new(1, index));
            assert!(sequences.is_replay(LockSequence::new(1, index)));
            assert!(sequences.is_replay(LockSequence::new(1, index)), "as often as it comes");
            assert!(!sequences.is_replay(LockSequence::new(2, index)));
            assert!(!sequences.is_replay(LockSequence::new(1, index)), "that made it forget");
        }
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
            sequences.carried_out(LockSequence::new(1, index));
            assert!(!sequences.is_replay(LockSequence::new(1, index)));
        }
        assert_eq!(sequences, LockSequences::new());
    }
}
