//! A disk with a volatile cache: a power cut takes writes that were not flushed.

use std::collections::VecDeque;
use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::random::Random;

/// Unflushed bytes that the cache holds; beyond them the oldest writes reach the medium.
const CACHE_BYTES: usize = 64 << 20;

/// How long a power cut waits for cached writes.
const OCCASION: Duration = Duration::from_millis(500);

/// The disk's behaviour when it is told to flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushes {
    /// FLUSH and FUA are honoured.
    Honoured,
    /// They are answered, and the cache keeps what it has. A judge that does not notice is blind.
    Ignored,
}

/// The number of a period with power. Requests of an earlier one do nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period(u64);

/// The disk has been cut off from power since the request's connection was made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dead;

/// A disk in memory.
#[derive(Debug)]
pub(crate) struct Disk {
    flushes: Flushes,
    /// Bytes that are written together or not at all.
    atom: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    period: Period,
    /// The content that is read.
    seen: Vec<u8>,
    /// The content of the medium.
    medium: Vec<u8>,
    /// Writes that have not reached the medium, oldest first.
    cache: VecDeque<Write>,
    cached_bytes: usize,
    /// The power goes when so many writes are cached.
    cut_at: Option<usize>,
}

#[derive(Debug)]
struct Write {
    at: usize,
    data: Vec<u8>,
    /// It was written with FUA, and survives each power cut.
    is_stable: bool,
}

/// The fate of cached writes at a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// All of them are lost.
    Lost,
    /// The medium has the oldest ones, up to some write that may be torn.
    InOrder,
    /// The medium has one of so many, from anywhere; some are torn.
    Scattered { one_in: u64 },
    /// All of them have reached the medium.
    Kept,
}

/// The outcome of a power cut, for the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) lost: usize,
    pub(crate) torn: usize,
    pub(crate) kept: usize,
}

impl Disk {
    /// Makes a disk of zeros. A write may be torn between two atoms.
    pub(crate) fn new(bytes: usize, atom: usize, flushes: Flushes) -> Self {
        let state = State {
            period: Period(0),
            seen: vec![0; bytes],
            medium: vec![0; bytes],
            cache: VecDeque::new(),
            cached_bytes: 0,
            cut_at: None,
        };
        Self { flushes, atom, state: Mutex::new(state) }
    }

    pub(crate) fn len(&self) -> usize {
        self.state.lock().seen.len()
    }

    pub(crate) fn period(&self) -> Period {
        self.state.lock().period
    }

    /// Fills `into` from the range, which must lie on the disk.
    pub(crate) fn read(&self, period: Period, at: usize, into: &mut [u8]) -> Result<(), Dead> {
        let state = self.state.lock();
        state.alive(period)?;
        into.copy_from_slice(&state.seen[at..at + into.len()]);
        Ok(())
    }

    /// Writes a range, which must lie on the disk. With `fua` it is stable when this returns.
    pub(crate) fn write(
        &self,
        period: Period,
        at: usize,
        data: Vec<u8>,
        fua: bool,
    ) -> Result<(), Dead> {
        let mut state = self.state.lock();
        state.alive(period)?;
        state.seen[at..at + data.len()].copy_from_slice(&data);
        state.cached_bytes += data.len();
        let is_stable = fua && self.flushes == Flushes::Honoured;
        state.cache.push_back(Write { at, data, is_stable });
        while state.cached_bytes > CACHE_BYTES {
            state.evict_oldest();
        }
        if state.cut_at.is_some_and(|writes| state.cache.len() >= writes) {
            state.power_off();
            return Err(Dead);
        }
        Ok(())
    }

    /// Puts all writes on the medium that were answered before.
    pub(crate) fn flush(&self, period: Period) -> Result<(), Dead> {
        let mut state = self.state.lock();
        state.alive(period)?;
        if self.flushes == Flushes::Honoured {
            while !state.cache.is_empty() {
                state.evict_oldest();
            }
        }
        Ok(())
    }

    /// Cuts the power, and gives it back. Waits a little for a moment at which the disk has
    /// something to lose: a server that flushes all the time leaves few.
    pub(crate) fn cut(&self, random: &mut Random) -> Cut {
        let before = self.period();
        self.state.lock().cut_at = Some(1 + random.below(12) as usize);
        let until = Instant::now() + OCCASION;
        while self.period() == before && Instant::now() < until {
            sleep(Duration::from_millis(1));
        }
        let fate = match random.below(8) {
            0 => Fate::Kept,
            1 | 2 => Fate::Lost,
            3 | 4 => Fate::InOrder,
            other => Fate::Scattered { one_in: [2, 3, 8][other as usize - 5] },
        };
        self.cut_with(fate, random)
    }

    fn cut_with(&self, fate: Fate, random: &mut Random) -> Cut {
        let mut state = self.state.lock();
        state.power_off();
        let cache = std::mem::take(&mut state.cache);
        state.cached_bytes = 0;
        let end = random.below(cache.len() as u64 + 1) as usize;
        let mut cut = Cut::default();
        for (number, write) in cache.iter().enumerate() {
            let survives = match fate {
                _ if write.is_stable => Survival::Whole,
                Fate::Lost => Survival::None,
                Fate::Kept => Survival::Whole,
                Fate::InOrder if number < end => Survival::Whole,
                Fate::InOrder if number == end => Survival::Torn,
                Fate::InOrder => Survival::None,
                Fate::Scattered { .. } if random.one_in(8) => Survival::Torn,
                Fate::Scattered { one_in } if random.one_in(one_in) => Survival::Whole,
                Fate::Scattered { .. } => Survival::None,
            };
            match survives {
                Survival::Whole => {
                    state.medium[write.range()].copy_from_slice(&write.data);
                    cut.kept += 1;
                }
                Survival::Torn => {
                    state.tear(write, self.atom, random);
                    cut.torn += 1;
                }
                Survival::None => cut.lost += 1,
            }
        }
        let State { seen, medium, .. } = &mut *state;
        for write in &cache {
            seen[write.range()].copy_from_slice(&medium[write.range()]);
        }
        cut
    }
}

enum Survival {
    None,
    Torn,
    Whole,
}

impl Write {
    fn range(&self) -> Range<usize> {
        self.at..self.at + self.data.len()
    }
}

impl State {
    fn alive(&self, period: Period) -> Result<(), Dead> {
        if self.period == period { Ok(()) } else { Err(Dead) }
    }

    fn power_off(&mut self) {
        self.period.0 += 1;
        self.cut_at = None;
    }

    fn evict_oldest(&mut self) {
        let Some(write) = self.cache.pop_front() else { return };
        self.cached_bytes -= write.data.len();
        self.medium[write.range()].copy_from_slice(&write.data);
    }

    /// Writes a random half of the atoms.
    fn tear(&mut self, write: &Write, atom: usize, random: &mut Random) {
        let mut at = write.at;
        while at < write.range().end {
            let next = ((at / atom + 1) * atom).min(write.range().end);
            if random.one_in(2) {
                self.medium[at..next].copy_from_slice(&write.data[at - write.at..next - write.at]);
            }
            at = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATOM: usize = 512;

    fn disk(flushes: Flushes) -> Disk {
        Disk::new(64 * ATOM, ATOM, flushes)
    }

    fn put(disk: &Disk, atom: usize, byte: u8, fua: bool) {
        disk.write(disk.period(), atom * ATOM, vec![byte; 2 * ATOM], fua).unwrap();
    }

    /// Returns the first byte of each atom.
    fn content(disk: &Disk) -> Vec<u8> {
        let mut all = vec![0; disk.len()];
        disk.read(disk.period(), 0, &mut all).unwrap();
        all.chunks(ATOM).map(|atom| atom[0]).collect()
    }

    #[test]
    fn flushed_data_survives_and_other_data_may_be_lost() {
        let disk = disk(Flushes::Honoured);
        put(&disk, 0, 1, false);
        disk.flush(disk.period()).unwrap();
        put(&disk, 0, 2, false);
        put(&disk, 4, 3, false);
        assert_eq!(content(&disk)[..6], [2, 2, 0, 0, 3, 3], "all is read");
        let cut = disk.cut_with(Fate::Lost, &mut Random::new(1, 0));
        assert_eq!(cut, Cut { lost: 2, torn: 0, kept: 0 });
        assert_eq!(content(&disk)[..6], [1, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn a_write_with_fua_survives_those_before_and_after_it() {
        let disk = disk(Flushes::Honoured);
        put(&disk, 0, 1, false);
        put(&disk, 0, 2, true);
        put(&disk, 1, 3, false);
        disk.cut_with(Fate::Lost, &mut Random::new(1, 0));
        assert_eq!(content(&disk)[..3], [2, 2, 0]);
        // The older write of the cache is lost or kept, but must not overwrite the newer write with
        // FUA.
        put(&disk, 0, 4, false);
        put(&disk, 0, 5, true);
        disk.cut_with(Fate::Kept, &mut Random::new(1, 0));
        assert_eq!(content(&disk)[..2], [5, 5]);
    }

    #[test]
    fn a_torn_write_is_whole_atoms_of_it() {
        let (mut torn, mut seen) = (0, std::collections::BTreeSet::new());
        for seed in 0..512 {
            let disk = disk(Flushes::Honoured);
            put(&disk, 0, 1, false);
            torn += disk.cut_with(Fate::Scattered { one_in: 3 }, &mut Random::new(seed, 0)).torn;
            seen.insert(content(&disk)[..3].to_vec());
            let mut all = vec![0; disk.len()];
            disk.read(disk.period(), 0, &mut all).unwrap();
            assert!(all.chunks(ATOM).all(|atom| atom.iter().all(|byte| *byte == atom[0])));
        }
        assert!(torn > 0);
        assert!(seen.contains(&vec![1, 0, 0]) && seen.contains(&vec![0, 1, 0]), "{seen:?}");
    }

    #[test]
    fn a_disk_that_ignores_flushes_loses_what_it_promised() {
        let disk = disk(Flushes::Ignored);
        put(&disk, 0, 1, true);
        put(&disk, 4, 1, false);
        disk.flush(disk.period()).unwrap();
        disk.cut_with(Fate::Lost, &mut Random::new(1, 0));
        assert!(content(&disk).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn requests_from_before_the_cut_do_nothing() {
        let disk = disk(Flushes::Honoured);
        let before = disk.period();
        disk.cut(&mut Random::new(1, 0));
        assert_eq!(disk.write(before, 0, vec![1; ATOM], true), Err(Dead));
        assert_eq!(disk.flush(before), Err(Dead));
        assert_eq!(disk.read(before, 0, &mut [0; ATOM]), Err(Dead));
        assert!(content(&disk).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn the_power_fails_while_writes_are_cached() {
        let disk = disk(Flushes::Honoured);
        let period = disk.period();
        let cut = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                while disk.write(period, 0, vec![1; ATOM], false).is_ok() {
                    sleep(Duration::from_millis(1));
                }
            });
            let cut = disk.cut(&mut Random::new(3, 0));
            writer.join().unwrap();
            cut
        });
        assert!(cut.lost + cut.torn + cut.kept > 0, "{cut:?}");
    }

    #[test]
    fn the_cache_is_bounded() {
        let disk = Disk::new(CACHE_BYTES * 2, ATOM, Flushes::Honoured);
        for _ in 0..3 {
            disk.write(disk.period(), 0, vec![7; CACHE_BYTES / 2 + ATOM], false).unwrap();
        }
        assert!(disk.state.lock().cached_bytes <= CACHE_BYTES);
        assert_eq!(disk.state.lock().cache.len(), 1);
    }
}
