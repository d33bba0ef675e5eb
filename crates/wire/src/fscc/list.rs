//! Lists of entries chained by NextEntryOffset: directory entries, extended
//! attributes, streams, quotas, notifications.

use crate::codec::{Malformed, Parsed, Writer};
use alloc::vec::Vec;

/// The result of appending an entry to a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Pushed {
    /// The entry is in the list.
    Fits,
    /// The entry does not fit; the list is as it was.
    Full,
}

/// Appends entries to a buffer and chains them. Every entry but the last is
/// padded to the alignment; padding after the last one neither exists nor
/// counts against the room, as Windows does it.
#[derive(Debug)]
pub(crate) struct ListWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    max_len: usize,
    align: usize,
    last: Option<usize>,
}

impl<'a> ListWriter<'a> {
    /// A list of at most `max_len` bytes at the end of `out`. `align` is a
    /// power of two.
    pub(crate) fn new(out: &'a mut Vec<u8>, align: usize, max_len: usize) -> Self {
        let start = out.len();
        Self { out, start, max_len, align, last: None }
    }

    /// Bytes of the list so far.
    pub(crate) fn len(&self) -> usize {
        self.out.len().saturating_sub(self.start)
    }

    /// True if the list is empty.
    pub(crate) const fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Makes room for an entry of `size` bytes, chains it, and returns the
    /// buffer for the entry to be appended (NextEntryOffset included, as zero).
    /// `None` when it does not fit.
    pub(crate) fn begin(&mut self, size: usize) -> Option<&mut Vec<u8>> {
        let at = self.len().checked_next_multiple_of(self.align)?;
        if at.checked_add(size)? > self.max_len {
            return None;
        }
        if let Some(last) = self.last {
            self.out.resize(self.start.checked_add(at)?, 0);
            let next = u32::try_from(at.checked_sub(last)?).ok()?;
            let mut w = Writer::from(self.out, self.start);
            w.patch_u32(last, next);
        }
        self.last = Some(at);
        Some(self.out)
    }
}

/// Walks a chained list: each item is the bytes of one entry, from its
/// NextEntryOffset up to the next entry or the end of the list.
#[derive(Debug, Clone)]
pub(crate) struct Entries<'a> {
    rest: Option<&'a [u8]>,
    min_size: usize,
    what: &'static str,
}

impl<'a> Entries<'a> {
    /// Makes a reader. `min_size` is the fixed part of an entry, `what` the name of the list in
    /// errors.
    pub(crate) const fn new(bytes: &'a [u8], min_size: usize, what: &'static str) -> Self {
        let rest = if bytes.is_empty() { None } else { Some(bytes) };
        Self { rest, min_size, what }
    }

    fn step(&mut self, bytes: &'a [u8]) -> Parsed<&'a [u8]> {
        let malformed = Malformed::new(self.what);
        if bytes.len() < self.min_size {
            return Err(malformed);
        }
        let next = bytes.first_chunk().map(|n| u32::from_le_bytes(*n)).ok_or(malformed)?;
        let next = usize::try_from(next).map_err(|_| malformed)?;
        if next == 0 {
            return Ok(bytes);
        }
        // Each entry is at least as long as its fixed part, so that the loop always moves on and
        // ends.
        if next < self.min_size.max(4) {
            return Err(malformed);
        }
        let (entry, rest) = bytes.split_at_checked(next).ok_or(malformed)?;
        self.rest = Some(rest);
        Ok(entry)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Parsed<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.rest.take()?;
        Some(self.step(bytes))
    }
}
