//! Random numbers from a seed.

use std::time::Duration;

/// A SplitMix64 generator.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Returns the stream of `seed` for `purpose`. Streams of different purposes are independent:
    /// more draws from one do not change another.
    pub const fn new(seed: u64, purpose: u64) -> Self {
        let mut dice = Self(seed ^ purpose.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        dice.next();
        dice
    }

    /// Returns the next random number, 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, which is not 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns true with a probability of `percent`.
    pub const fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of `from`, which is not empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap_or(0)]
    }

    /// Returns a duration between `from` and `to` microseconds.
    pub const fn micros(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(from + self.below(to - from + 1))
    }

    /// Returns a duration between `from` and `to` milliseconds.
    pub const fn millis(&mut self, from: u64, to: u64) -> Duration {
        self.micros(from * 1_000, to * 1_000)
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}
