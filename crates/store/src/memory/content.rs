//! The bytes of a file, in pages. Copies share their equal pages.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::limits::MEMORY_PAGE_BYTES as PAGE;
use crate::vfs::{Fault, VfsResult};

type Page = Arc<[u8; PAGE]>;

/// A file's content. A page that is absent is all zeros.
#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    pages: BTreeMap<u64, Page>,
    /// Bytes to the end of the file. Bytes of pages behind it are zero.
    end: u64,
    /// Pages counted for this file, used or not.
    reserved: u64,
}

/// Pages that a file takes over from another, by their numbers in both.
#[derive(Debug, Clone, Copy)]
pub(super) struct SharedPages {
    /// The first page in the source.
    pub(super) from: u64,
    /// The first page in the target.
    pub(super) to: u64,
    pub(super) count: u64,
}

/// Returns the number of pages of a file of `bytes`.
const fn pages_of(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE as u64)
}

/// Returns the page of `offset`, and the offset in that page.
fn locate(offset: u64) -> (u64, usize) {
    let page = offset.checked_div(PAGE as u64).unwrap_or(0);
    let at = offset.checked_rem(PAGE as u64).unwrap_or(0);
    (page, usize::try_from(at).unwrap_or(0))
}

impl Content {
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of pages that the file takes of the volume.
    pub(super) fn held(&self) -> u64 {
        self.reserved.max(self.pages.len() as u64)
    }

    /// Fills `into` from `offset` on and returns the number of bytes, fewer at the end of the file.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let left = usize::try_from(self.end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = into.len().min(left);
        let Some(mut rest) = into.get_mut(..count) else { return 0 };
        let mut offset = offset;
        while !rest.is_empty() {
            let (number, at) = locate(offset);
            let len = PAGE.saturating_sub(at).min(rest.len());
            let (chunk, after) = rest.split_at_mut(len);
            let page = self.pages.get(&number).and_then(|page| page.get(at..)?.get(..len));
            match page {
                Some(bytes) => chunk.copy_from_slice(bytes),
                None => chunk.fill(0),
            }
            offset = offset.saturating_add(len as u64);
            rest = after;
        }
        count
    }

    /// Writes `data` at `offset`, taking at most `room` more pages. The part that fits is written
    /// even when the rest does not fit, as on a disk.
    pub(super) fn write(&mut self, offset: u64, data: &[u8], room: u64) -> VfsResult<()> {
        let (mut offset, mut rest, mut room) = (offset, data, room);
        while !rest.is_empty() {
            let (number, at) = locate(offset);
            let paid = self.reserved > self.pages.len() as u64;
            if !self.pages.contains_key(&number) && !paid {
                room = room.checked_sub(1).ok_or(Fault::DiskFull)?;
            }
            let len = PAGE.saturating_sub(at).min(rest.len());
            let (chunk, after) = rest.split_at_checked(len).unwrap_or((rest, &[]));
            let page = self.pages.entry(number).or_insert_with(|| Arc::new([0; PAGE]));
            if let Some(room) = Arc::make_mut(page).get_mut(at..).and_then(|p| p.get_mut(..len)) {
                room.copy_from_slice(chunk);
            }
            offset = offset.saturating_add(len as u64);
            self.end = self.end.max(offset);
            rest = after;
        }
        Ok(())
    }

    /// Sets the end of the file. Pages behind a lower end are freed.
    pub(super) fn set_end(&mut self, end: u64) {
        if end < self.end {
            let _ = self.pages.split_off(&pages_of(end));
            let (number, at) = locate(end);
            if let Some(page) = self.pages.get_mut(&number)
                && let Some(tail) = Arc::make_mut(page).get_mut(at..)
            {
                tail.fill(0);
            }
            self.reserved = self.reserved.min(pages_of(end));
        }
        self.end = end;
    }

    /// Reserves the pages of a file of `bytes`, at most `room` more.
    pub(super) fn reserve(&mut self, bytes: u64, room: u64) -> VfsResult<()> {
        let wanted = pages_of(bytes);
        if wanted.saturating_sub(self.held()) > room {
            return Err(Fault::DiskFull);
        }
        self.reserved = self.reserved.max(wanted);
        Ok(())
    }

    /// Shares pages of `source`, taking at most `room` more pages. A shared page counts for each of its files, so that a write to it always
    /// has room.
    pub(super) fn share(&mut self, source: &Self, pages: SharedPages, room: u64) -> VfsResult<()> {
        let SharedPages { from, to, count } = pages;
        let range = from..from.saturating_add(count);
        let replaced = self.pages.range(to..to.saturating_add(count)).count() as u64;
        let come = source.pages.range(range.clone()).count() as u64;
        let left = (self.pages.len() as u64).saturating_sub(replaced).saturating_add(come);
        if left.max(self.reserved).saturating_sub(self.held()) > room {
            return Err(Fault::DiskFull);
        }
        self.remove(to, count);
        for (number, page) in source.pages.range(range) {
            let number = number.saturating_sub(from).saturating_add(to);
            self.pages.insert(number, Arc::clone(page));
        }
        Ok(())
    }

    fn remove(&mut self, first: u64, count: u64) {
        let mut behind = self.pages.split_off(&first);
        let mut rest = behind.split_off(&first.saturating_add(count));
        self.pages.append(&mut rest);
    }

    /// Makes a range read as zeros and frees its whole pages.
    pub(super) fn zero(&mut self, first: u64, length: u64) {
        let beyond = first.saturating_add(length).min(self.end);
        if first >= beyond {
            return;
        }
        // If the range ends with the file, its last page has no other data and can be freed as a
        // whole.
        let whole = if beyond == self.end { pages_of(beyond) } else { locate(beyond).0 };
        let (from, to) = (pages_of(first), whole);
        if from < to {
            self.remove(from, to.saturating_sub(from));
        }
        let (last, _) = locate(beyond.saturating_sub(1));
        for number in [locate(first).0, last] {
            let start = number.saturating_mul(PAGE as u64);
            let (_, at) = locate(first.max(start));
            let len =
                beyond.min(start.saturating_add(PAGE as u64)).saturating_sub(first.max(start));
            let len = usize::try_from(len).unwrap_or(0);
            let page = self.pages.get_mut(&number).map(Arc::make_mut);
            let part = page.and_then(|page| page.get_mut(at..)).and_then(|p| p.get_mut(..len));
            if let Some(part) = part {
                part.fill(0);
            }
        }
    }

    /// Returns up to `limit` ranges with pages, cut to `first..beyond`, and whether there are more.
    pub(super) fn allocated(
        &self,
        first: u64,
        beyond: u64,
        limit: usize,
    ) -> (Vec<(u64, u64)>, bool) {
        let beyond = beyond.min(self.end);
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        if first >= beyond {
            return (ranges, false);
        }
        for number in self.pages.range(locate(first).0..pages_of(beyond)).map(|(n, _)| *n) {
            let start = number.saturating_mul(PAGE as u64);
            let end = start.saturating_add(PAGE as u64).min(beyond);
            if let Some((_, last)) = ranges.last_mut().filter(|(_, last)| *last == start) {
                *last = end;
            } else if ranges.len() == limit {
                return (ranges, true);
            } else {
                ranges.push((start.max(first), end));
            }
        }
        (ranges, false)
    }

    /// Takes over the pages and the end of `newer` for which `survives` returns true.
    pub(super) fn mix(&mut self, newer: &Self, survives: &mut dyn FnMut() -> bool) {
        for (number, page) in &newer.pages {
            let same = self.pages.get(number).is_some_and(|old| Arc::ptr_eq(old, page));
            if !same && survives() {
                self.pages.insert(*number, Arc::clone(page));
            }
        }
        let end = if self.end != newer.end && survives() { newer.end } else { self.end };
        // `set_end` removes the pages between the new end and the old one. So the end is first set
        // to the largest value and then to the new value.
        self.end = u64::MAX;
        self.set_end(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    fn whole(content: &Content) -> Vec<u8> {
        let mut bytes = vec![0xEE; usize::try_from(content.end()).unwrap() + 10];
        let count = content.read(0, &mut bytes);
        bytes.truncate(count);
        bytes
    }

    #[test]
    fn a_full_disk_takes_the_part_that_fits() {
        let mut content = Content::default();
        assert_eq!(content.write(0, &[1; 3 * PAGE], 2), Err(Fault::DiskFull));
        assert_eq!(whole(&content), [1; 2 * PAGE]);
        assert_eq!(content.write(10, &[2; PAGE], 0), Ok(()));
        assert_eq!(content.held(), 2);
        assert_eq!(content.reserve(4 * PAGE as u64, 1), Err(Fault::DiskFull));
        assert_eq!(content.reserve(4 * PAGE as u64, 2), Ok(()));
        assert_eq!(content.write(2 * PAGE as u64, &[3; 2 * PAGE], 0), Ok(()));
        assert_eq!(content.held(), 4);
        content.set_end(1);
        assert_eq!(content.held(), 1);
    }

    proptest! {
        #[test]
        fn pages_are_a_vector(steps in prop::collection::vec((0..3 * PAGE, 0..2 * PAGE, any::<u8>(), any::<bool>()), 1..20)) {
            let mut content = Content::default();
            let mut model = Vec::new();
            for (at, len, byte, cut) in steps {
                if cut {
                    content.set_end(at as u64);
                    model.resize(at, 0);
                } else if len > 0 {
                    content.write(at as u64, &vec![byte; len], u64::MAX).unwrap();
                    model.resize(model.len().max(at + len), 0);
                    model[at..at + len].fill(byte);
                }
                prop_assert_eq!(&whole(&content), &model);
            }
        }

        #[test]
        fn zeros_are_a_vector_too(steps in prop::collection::vec((0..3 * PAGE, 1..2 * PAGE), 1..8)) {
            let mut content = Content::default();
            content.write(0, &[7; 3 * PAGE + 5], u64::MAX).unwrap();
            let mut model = vec![7; 3 * PAGE + 5];
            for (at, len) in steps {
                content.zero(at as u64, len as u64);
                let end = (at + len).min(model.len());
                model[at..end].fill(0);
                prop_assert_eq!(&whole(&content), &model);
                let (ranges, more) = content.allocated(0, u64::MAX, usize::MAX);
                prop_assert!(!more);
                for (at, byte) in model.iter().enumerate() {
                    let is_allocated = ranges.iter().any(|(a, b)| (*a..*b).contains(&(at as u64)));
                    prop_assert!(is_allocated || *byte == 0);
                }
            }
        }

        #[test]
        fn a_mix_keeps_what_both_have(common in 0..PAGE * 3, seed in any::<u64>()) {
            let mut old = Content::default();
            old.write(0, &[7; 3 * PAGE], u64::MAX).unwrap();
            let mut new = old.clone();
            new.write(common as u64, &[9; 100], u64::MAX).unwrap();
            let mut bits = seed;
            old.mix(&new, &mut || { bits = bits.rotate_left(1); bits & 1 == 1 });
            let mixed = whole(&old);
            prop_assert!(mixed.len() >= 3 * PAGE);
            prop_assert!(mixed[..common].iter().all(|b| *b == 7));
            prop_assert!(mixed[(common + 100).min(3 * PAGE)..3 * PAGE].iter().all(|b| *b == 7));
        }
    }
}
