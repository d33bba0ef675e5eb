//! Looking for bytes that came before.

use alloc::boxed::Box;
use alloc::vec;

/// Bytes that are compared at once, and the shortest match that is looked for. One of three bytes, the
/// shortest that the formats have, saves a byte at most and costs the look-up.
pub(crate) const SHORTEST: usize = 4;

/// Look-ups without a match after which the search goes on in larger steps, by one byte more each.
const PATIENCE: u32 = 64;

/// The last position of each group of bytes, by its hash.
#[derive(Debug)]
pub(crate) struct Positions<const BITS: u32> {
    /// The position and one; zero for none.
    last: Box<[u32]>,
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
    /// The end of the bytes to compress.
    pub(crate) end: usize,
    /// The largest distance.
    pub(crate) distance: usize,
}

impl<const BITS: u32> Positions<BITS> {
    pub(crate) fn new() -> Self {
        let count = 1usize.checked_shl(BITS).unwrap_or(1);
        Self { last: vec![0; count].into_boxed_slice(), misses: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.last.fill(0);
        self.misses = 0;
    }

    /// Sets the last position of `group`, and returns the one before.
    fn replace(&mut self, group: u32, at: usize) -> Option<usize> {
        let hash = group.wrapping_mul(0x9E37_79B1).wrapping_shr(32u32.wrapping_sub(BITS));
        let last = self.last.get_mut(hash as usize)?;
        let before = core::mem::replace(last, (at as u32).wrapping_add(1));
        before.checked_sub(1).map(|before| before as usize)
    }

    /// Returns the next match of `bytes` at `at` or behind it.
    #[inline]
    pub(crate) fn next(&mut self, bytes: &[u8], mut at: usize, reach: Reach) -> Option<Match> {
        while let Some(group) = group_at(bytes, at)
            && at.saturating_add(SHORTEST) <= reach.end
        {
            let before = self.replace(group, at);
            if let Some(before) = before
                && before >= reach.begin
                && let distance = at.wrapping_sub(before)
                && distance <= reach.distance
                && group_at(bytes, before) == Some(group)
            {
                self.misses = 0;
                let most = reach.end.saturating_sub(at);
                let length = common(bytes, before, at, most);
                return Some(Match { at, distance, length });
            }
            self.misses = self.misses.saturating_add(1);
            at = at.saturating_add(1).saturating_add((self.misses / PATIENCE) as usize);
        }
        None
    }

    /// Notes a position within a match, at which nothing was looked for.
    pub(crate) fn note(&mut self, bytes: &[u8], at: usize) {
        if let Some(group) = group_at(bytes, at) {
            self.replace(group, at);
        }
    }
}

fn group_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the number of bytes at `one` and at `other` that are the same, at most `most`.
fn common(bytes: &[u8], one: usize, other: usize, most: usize) -> usize {
    let (Some(first), Some(second)) = (bytes.get(one..), bytes.get(other..)) else { return 0 };
    let second = second.get(..most).unwrap_or(second);
    let mut count = 0usize;
    let (chunks, _) = second.as_chunks::<8>();
    for (mine, theirs) in first.as_chunks::<8>().0.iter().zip(chunks) {
        let differing = u64::from_le_bytes(*mine) ^ u64::from_le_bytes(*theirs);
        if differing != 0 {
            return count.wrapping_add((differing.trailing_zeros() / 8) as usize);
        }
        count = count.wrapping_add(8);
    }
    let rest = first.iter().zip(second).skip(count);
    count.wrapping_add(rest.take_while(|(mine, theirs)| mine == theirs).count())
}
