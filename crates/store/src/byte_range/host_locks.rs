//! The locks of one Open as the host knows locks: without overlaps, each byte is free, shared or
//! exclusive.

use alloc::vec::Vec;

use super::{ByteRanges, Range};
use crate::open_id::OpenId;
use crate::vfs::HostLock;

impl ByteRanges {
    /// Returns the pieces of `range` with the strongest lock that `owner` has on each, in order.
    /// Adjacent pieces with one mode are merged. The result is empty for a range of length zero.
    /// Takes time for every lock of the Open.
    pub fn shown(&self, owner: OpenId, range: Range) -> Vec<HostLock> {
        if range.length == 0 {
            return Vec::new();
        }
        let (first, last) = (range.offset, range.last());
        let mut own = self.of(owner);
        own.retain(|(lock, _)| lock.length != 0 && lock.offset <= last && lock.last() >= first);
        // The strongest lock over a byte can change only where a lock begins, or after the end of a
        // lock. The pieces are made at these places.
        let mut starts: Vec<u64> = core::iter::once(first)
            .chain(own.iter().map(|(lock, _)| lock.offset))
            .chain(own.iter().filter_map(|(lock, _)| lock.last().checked_add(1)))
            .filter(|start| (first..=last).contains(start))
            .collect();
        starts.sort_unstable();
        starts.dedup();
        let ends = starts.iter().skip(1).map(|next| next.saturating_sub(1));
        let ends: Vec<u64> = ends.chain([last]).collect();
        let mut pieces: Vec<HostLock> = Vec::new();
        for (first, last) in starts.into_iter().zip(ends) {
            let over = own.iter().filter(|(l, _)| l.offset <= first && l.last() >= last);
            // In the order of `Mode`, Exclusive is less than Shared, so the minimum is the stronger
            // lock.
            let mode = over.map(|(_, mode)| *mode).min();
            match pieces.last_mut() {
                Some(before) if before.mode == mode => before.last = last,
                _ => pieces.push(HostLock { first, last, mode }),
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::super::Mode;
    use super::*;

    const ME: OpenId = OpenId(1);

    fn range(offset: u64, length: u64) -> Range {
        Range { offset, length }
    }

    fn shown(ranges: &ByteRanges, offset: u64, length: u64) -> Vec<(u64, u64, Option<Mode>)> {
        let pieces = ranges.shown(ME, range(offset, length));
        pieces.into_iter().map(|p| (p.first, p.last, p.mode)).collect()
    }

    #[test]
    fn the_strongest_lock_of_each_byte() {
        let (shared, exclusive) = (Some(Mode::Shared), Some(Mode::Exclusive));
        let mut ranges = ByteRanges::EMPTY;
        assert_eq!(shown(&ranges, 0, 10), [(0, 9, None)]);
        ranges.lock(ME, range(10, 10), Mode::Exclusive).unwrap();
        ranges.lock(ME, range(5, 20), Mode::Shared).unwrap();
        ranges.lock(ME, range(12, 0), Mode::Shared).unwrap();
        ranges.lock(OpenId(2), range(50, 10), Mode::Shared).unwrap();
        let all = [(0, 4, None), (5, 9, shared), (10, 19, exclusive), (20, 24, shared)];
        assert_eq!(shown(&ranges, 0, 25), all);
        assert_eq!(shown(&ranges, 12, 2), [(12, 13, exclusive)]);
        assert_eq!(shown(&ranges, 40, 40), [(40, 79, None)], "other Opens show their own locks");
        assert_eq!(shown(&ranges, 12, 0), []);
        ranges.unlock(ME, range(10, 10)).unwrap();
        assert_eq!(shown(&ranges, 10, 10), [(10, 19, shared)]);
        let all = range(0, u64::MAX);
        ranges.lock(ME, range(u64::MAX, 1), Mode::Exclusive).unwrap();
        assert_eq!(ranges.shown(ME, all).len(), 3);
        let end = (u64::MAX, u64::MAX, exclusive);
        assert_eq!(shown(&ranges, u64::MAX - 1, 2).last(), Some(&end));
    }
}
