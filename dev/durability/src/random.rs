//! Random numbers from a seed. A seed repeats the choices of every task, but not the order in which
//! the tasks run.

/// A SplitMix64 generator.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Returns the generator of one task of the run `seed`.
    pub(crate) const fn new(seed: u64, task: u64) -> Self {
        Self(mix(seed).wrapping_add(mix(task.wrapping_add(1))))
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Returns a number below `end`, which is not zero.
    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) const fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

pub(crate) const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
