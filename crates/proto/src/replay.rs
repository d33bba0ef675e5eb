//! ChannelSequence: refuses stale requests of a lost channel, MS-SMB2 3.3.5.2.10.

use frevo_wire::{Command, Status};

/// Open.ChannelSequence, with the number of running requests under the present and under earlier
/// values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChannelSequence {
    current: u16,
    /// Open.OutstandingRequestCount.
    outstanding: u64,
    /// Open.OutstandingPreRequestCount.
    outstanding_before: u64,
}

/// The relation of `new` to `old`, in 16-bit arithmetic that wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// Equal: no channel was lost in between.
    Same,
    /// The client has lost a channel since `old`.
    Newer,
    /// The request was sent before the client lost a channel, and was overtaken.
    Older,
}

impl Age {
    /// Compares two values of ChannelSequence.
    pub const fn of(new: u16, old: u16) -> Self {
        match new.wrapping_sub(old) {
            0 => Self::Same,
            1..=0x7FFF => Self::Newer,
            _ => Self::Older,
        }
    }
}

/// A counted request, which [`ChannelSequence::finish`] takes back when its final response is sent.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a counted request has to be finished"]
pub struct Counted {
    /// The value under which it was counted; None if it was not counted.
    sequence: Option<u16>,
}

impl ChannelSequence {
    /// Makes the state of a new Open with the value in its CREATE.
    pub const fn new(current: u16) -> Self {
        Self { current, outstanding: 0, outstanding_before: 0 }
    }

    /// Judges a request on this Open, for dialects of the 3.x family and commands with a FileId.
    ///
    /// A stale request fails with FILE_NOT_AVAILABLE if it changes anything (WRITE, SET_INFO,
    /// IOCTL) and runs uncounted otherwise.
    pub fn start(
        &mut self,
        command: Command,
        sequence: u16,
        is_replay: bool,
    ) -> Result<Counted, Status> {
        let is_counted = match (Age::of(sequence, self.current), is_replay) {
            (Age::Older, _) => false,
            (Age::Same, false) => self.count(),
            // A replay may begin only if no first attempt of an earlier request is still running.
            (Age::Same, true) => self.outstanding_before == 0 && self.count(),
            (Age::Newer, is_replay) => {
                self.outstanding_before = self.outstanding_before.saturating_add(self.outstanding);
                self.outstanding = 0;
                self.current = sequence;
                (!is_replay || self.outstanding_before == 0) && self.count()
            }
        };
        let modifies = matches!(command, Command::WRITE | Command::SET_INFO | Command::IOCTL);
        if !is_counted && modifies {
            return Err(Status::FILE_NOT_AVAILABLE);
        }
        Ok(Counted { sequence: is_counted.then_some(sequence) })
    }

    /// Records the answer to a request, MS-SMB2 3.3.4.1.
    #[allow(clippy::needless_pass_by_value)] // finished once
    pub fn finish(&mut self, counted: Counted) {
        // MS-SMB2 subtracts one for each response, even if its request was not counted. Here only
        // counted requests are subtracted, so the counter never becomes too small.
        let count = match counted.sequence {
            None => return,
            Some(sequence) if sequence == self.current => &mut self.outstanding,
            Some(_) => &mut self.outstanding_before,
        };
        *count = count.saturating_sub(1);
    }

    /// Records a reconnect by a request with this value, from which its client continues. Requests
    /// of the lost connection may still run: a replay has to wait for them.
    pub const fn reconnect(&mut self, current: u16) {
        if current == self.current {
            return;
        }
        self.outstanding_before = self.outstanding_before.saturating_add(self.outstanding);
        self.outstanding = 0;
        self.current = current;
    }

    /// Returns Open.ChannelSequence.
    pub const fn current(&self) -> u16 {
        self.current
    }

    fn count(&mut self) -> bool {
        self.outstanding = self.outstanding.saturating_add(1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const STALE: Result<Counted, Status> = Err(Status::FILE_NOT_AVAILABLE);

    #[test]
    fn ages_wrap() {
        assert_eq!(Age::of(5, 5), Age::Same);
        assert_eq!(Age::of(6, 5), Age::Newer);
        assert_eq!(Age::of(4, 5), Age::Older);
        assert_eq!(Age::of(0, 0xFFFF), Age::Newer);
        assert_eq!(Age::of(0x7FFF - 1, 0), Age::Newer);
        assert_eq!(Age::of(0x7FFF, 0), Age::Newer);
        assert_eq!(Age::of(0x8000, 0), Age::Older);
    }

    #[test]
    fn old_writes_are_stale_and_old_reads_run() {
        let mut open = ChannelSequence::new(3);
        let write = open.start(Command::WRITE, 3, false).unwrap();
        let newer = open.start(Command::WRITE, 4, false).unwrap();
        for command in [Command::WRITE, Command::SET_INFO, Command::IOCTL] {
            assert_eq!(open.start(command, 3, false), STALE);
            assert_eq!(open.start(command, 3, true), STALE);
        }
        let read = open.start(Command::READ, 3, false).unwrap();
        open.finish(read);
        assert_eq!((open.outstanding, open.outstanding_before), (1, 1));
        open.finish(write);
        open.finish(newer);
        assert_eq!(open, ChannelSequence::new(4));
    }

    #[test]
    fn a_replay_waits_for_what_ran_before() {
        let mut open = ChannelSequence::new(0);
        let first = open.start(Command::WRITE, 0, false).unwrap();
        // The channel was lost, so the client repeats a request with the next channel sequence. It
        // is refused because the first attempt still runs.
        assert_eq!(open.start(Command::WRITE, 1, true), STALE);
        assert_eq!(open.start(Command::WRITE, 1, true), STALE);
        // New requests may run although the first attempt has not ended; a replay must wait for it.
        let other = open.start(Command::WRITE, 1, false).unwrap();
        open.finish(first);
        let replay = open.start(Command::WRITE, 1, true).unwrap();
        open.finish(replay);
        open.finish(other);
        assert_eq!(open, ChannelSequence::new(1));
    }

    #[test]
    fn after_a_reconnect_the_new_value_counts_and_a_replay_waits() {
        let mut open = ChannelSequence::new(7);
        let lost = open.start(Command::WRITE, 7, false).unwrap();
        open.reconnect(2);
        assert_eq!(open.start(Command::WRITE, 2, true), STALE);
        let other = open.start(Command::WRITE, 2, false).unwrap();
        open.finish(other);
        open.finish(lost);
        let replay = open.start(Command::WRITE, 2, true).unwrap();
        open.finish(replay);
        assert_eq!(open, ChannelSequence::new(2));
        // A reconnect with the same channel sequence resets nothing, so requests from before the
        // reconnect still count.
        let lost = open.start(Command::WRITE, 2, false).unwrap();
        open.reconnect(2);
        let own = open.start(Command::WRITE, 2, false).unwrap();
        open.finish(lost);
        open.finish(own);
        assert_eq!(open, ChannelSequence::new(2));
    }

    #[test]
    fn a_replay_with_nothing_outstanding_runs_at_once() {
        let mut open = ChannelSequence::new(0);
        let replay = open.start(Command::WRITE, 1, true).unwrap();
        assert_eq!((open.outstanding, open.outstanding_before), (1, 0));
        open.finish(replay);
    }

    proptest! {
        /// Tests that nothing is outstanding when every request was answered, and that no write
        /// with the newest value is stale.
        #[test]
        fn counts_balance(
            steps in proptest::collection::vec((0..3_u16, any::<bool>(), any::<bool>()), 0..100),
        ) {
            let mut open = ChannelSequence::new(0);
            let mut running: Vec<Counted> = Vec::new();
            let mut sequence = 0_u16;
            for (advance, is_replay, finish_one) in steps {
                sequence = sequence.wrapping_add(advance);
                if let Ok(counted) = open.start(Command::WRITE, sequence, is_replay) {
                    running.push(counted);
                }
                if finish_one && !running.is_empty() {
                    open.finish(running.swap_remove(0));
                }
                let outstanding = open.outstanding + open.outstanding_before;
                prop_assert_eq!(outstanding, running.len() as u64);
            }
            running.into_iter().for_each(|counted| open.finish(counted));
            prop_assert_eq!(open, ChannelSequence::new(sequence));
            prop_assert!(open.start(Command::WRITE, sequence, true).is_ok());
        }
    }
}
