//! Looking for bytes that came before.

use alloc::boxed::Box;
use alloc::vec;

/// Bytes that are compared at once, and the shortest match that is looked for. One of three bytes, the
/// shortest that the formats have, saves a byte at most and costs the look-up.
pub(crate) const SHORTEST: usize = 4;

/// Look-ups without a match after which the search goes on in larger steps, by one byte more each.
const PATIENCE: u32 = 64;

/// The last position of each group of bytes, by its hash, in a table of `N` places, a power of two.
#[derive(Debug)]
pub(crate) struct Positions<const N: usize> {
    /// A place that no group has is that of the first byte: a match there is compared as any other.
    last: Box<[u32; N]>,
    misses: u32,
}

/// Bytes that came before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Match {
    /// The position of the first byte that is repeated.
    pub(crate) at: usize,
    /// The number of bytes between the two places.
    pub(crate) distance: usize,
    /// The number of bytes.
    pub(crate) length: usize,
}

/// The range in which a match is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    /// The first position that may be repeated.
    pub(crate) begin: usize,
    /// The largest distance.
    pub(crate) distance: usize,
}

impl<const N: usize> Positions<N> {
    pub(crate) fn new() -> Self {
        let last: Result<Box<[u32; N]>, _> = vec![0; N].into_boxed_slice().try_into();
        Self { last: last.unwrap_or_else(|_| Box::new([0; N])), misses: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.last.fill(0);
        self.misses = 0;
    }

    /// Sets the last position of `group`, and returns the one before.
    #[inline]
    fn replace(&mut self, group: u64, at: u32) -> u32 {
        let shift = 64u32.wrapping_sub(N.trailing_zeros());
        // By five bytes: matches of four save little, and are found less often so.
        let hash = (group << 24).wrapping_mul(0x9E37_79B1_85EB_CA87).wrapping_shr(shift) as usize;
        match self.last.get_mut(hash & const { N.wrapping_sub(1) }) {
            Some(last) => core::mem::replace(last, at),
            None => 0,
        }
    }

    /// Returns the next match in `bytes`, which end where it has to, at `from` or behind it.
    #[inline]
    pub(crate) fn next(&mut self, bytes: &[u8], from: usize, reach: Reach) -> Option<Match> {
        // The first byte repeats nothing.
        let mut at = (from as u32).max(1);
        let mut misses = self.misses;
        loop {
            let Some(group) = group_at(bytes, at) else {
                self.misses = misses;
                return None;
            };
            let before = self.replace(group, at);
            let distance = at.wrapping_sub(before) as usize;
            // One branch for both questions, since none of them can be foretold.
            let beyond = reach.distance.wrapping_sub(distance).wrapping_shr(32) as u32;
            let differing = group_at(bytes, before).unwrap_or(!group) ^ group;
            if (differing as u32) | beyond == 0 && before as usize >= reach.begin {
                self.misses = 0;
                let (at, before) = (at as usize, before as usize);
                let length = SHORTEST.wrapping_add(common(
                    bytes,
                    before.wrapping_add(SHORTEST),
                    at.wrapping_add(SHORTEST),
                ));
                return Some(Match { at, distance, length });
            }
            misses = misses.wrapping_add(1);
            at = at.wrapping_add(1).wrapping_add(misses / PATIENCE);
        }
    }

    /// Notes a position within a match, at which nothing was looked for.
    #[inline]
    pub(crate) fn note(&mut self, bytes: &[u8], at: usize) {
        let at = at as u32;
        if let Some(group) = group_at(bytes, at) {
            self.replace(group, at);
        }
    }
}

/// Returns eight bytes. Positions have 32 bits: an end behind one needs no check that it does not wrap.
#[inline]
fn group_at(bytes: &[u8], at: u32) -> Option<u64> {
    let at = at as usize;
    let group = bytes.get(at..at.wrapping_add(8))?;
    Some(u64::from_le_bytes(*group.first_chunk()?))
}

/// Returns the number of bytes at `one` and at `other`, which is behind it, that are the same.
#[inline]
fn common(bytes: &[u8], one: usize, other: usize) -> usize {
    let word = |at: usize| bytes.get(at..at.wrapping_add(8)).and_then(|word| word.first_chunk());
    if let (Some(mine), Some(theirs)) = (word(one), word(other)) {
        let differing = u64::from_le_bytes(*mine) ^ u64::from_le_bytes(*theirs);
        if differing != 0 {
            return (differing.trailing_zeros() / 8) as usize;
        }
    }
    common_many(bytes, one, other)
}

#[inline(never)]
fn common_many(bytes: &[u8], one: usize, other: usize) -> usize {
    let (Some(first), Some(second)) = (bytes.get(one..), bytes.get(other..)) else { return 0 };
    let mut count = 0usize;
    for (mine, theirs) in first.as_chunks::<8>().0.iter().zip(second.as_chunks::<8>().0) {
        let differing = u64::from_le_bytes(*mine) ^ u64::from_le_bytes(*theirs);
        if differing != 0 {
            return count.wrapping_add((differing.trailing_zeros() / 8) as usize);
        }
        count = count.wrapping_add(8);
    }
    let rest = first.iter().zip(second).skip(count);
    count.wrapping_add(rest.take_while(|(mine, theirs)| mine == theirs).count())
}
