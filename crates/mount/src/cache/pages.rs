//! The cached data of one file, without I/O: pages that were read, and extents that were written
//! and not yet sent.
//!
//! A write also changes the cached pages, so that a page always has what a reader must see.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;

use super::data::Data;
use crate::limits::{EXTENT_BYTES, LEN_MAX, PAGE_BYTES, SHARED_FROM};

const PAGE: u64 = PAGE_BYTES as u64;

/// Pages that must be fetched before a read can be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Missing {
    /// The number of the first page.
    pub(crate) first: u64,
    /// The number of consecutive pages.
    pub(crate) count: u64,
}

/// The result of evicting a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evicted {
    Gone,
    /// The page is unsent and stays.
    Unsent,
    /// The page was evicted before.
    Absent,
}

/// Unsent bytes: offset and data.
pub(crate) type Extent = (u64, Data);

/// The cached data of a file.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// The version of the lease under which the pages were read; None if nothing is known.
    version: Option<u64>,
    /// The length of the file, with local writes.
    len: u64,
    /// The length on the server: nothing can be fetched after it.
    stored: u64,
    /// Pages by number. A page shorter than PAGE_BYTES ends with zeros.
    clean: BTreeMap<u64, Data>,
    /// Unsent data by offset; the extents do not overlap.
    dirty: BTreeMap<u64, Data>,
    /// The number of bytes in `dirty`.
    waiting: u64,
    /// Extents that are being sent: offsets and lengths.
    sending: Vec<(u64, u64)>,
    /// Ranges that are being written past the cache: offsets and lengths.
    passing: Vec<(u64, u64)>,
    /// Counts changes: a page that was requested at another count may be older than a write.
    changes: u64,
}

/// The effect of a write on pages that are not cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Makes<'a> {
    Nothing,
    /// Caches pages that are written completely; they share the write's bytes if there are any.
    Pages(Option<&'a Bytes>),
}

impl Pages {
    /// Returns true if the pages belong to this version of the lease.
    pub(crate) fn is_of(&self, version: u64) -> bool {
        self.version == Some(version)
    }

    /// Returns true if anything is known of the file.
    pub(crate) const fn is_any(&self) -> bool {
        self.version.is_some()
    }

    /// Starts a new cache for a file of `len` bytes, a length from when the pages had changed
    /// `changes` times: after later changes the file may be longer.
    pub(crate) fn begin(&mut self, version: u64, len: u64, changes: u64) {
        if self.changes != changes {
            return;
        }
        self.drop_clean();
        self.version = Some(version);
        self.stored = len.min(LEN_MAX);
        let written = self.dirty.last_key_value().map(|(at, data)| at + data.len() as u64);
        self.len = self.stored.max(written.unwrap_or(0));
    }

    /// Returns the count of changes.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the number of pages.
    pub(crate) fn count(&self) -> usize {
        self.clean.len()
    }

    /// Returns the number of unsent extents.
    pub(crate) fn extents(&self) -> usize {
        self.dirty.len()
    }

    /// Returns the length of the file.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Returns the length on the server.
    pub(crate) const fn stored(&self) -> u64 {
        self.stored
    }

    /// Returns the count of changes before a fetch of these pages. None if some of their data is
    /// unsent: the server's bytes would be older.
    pub(crate) fn before_fetch(&self, first: u64, count: u64) -> Option<u64> {
        (!self.is_unsent(first * PAGE, count * PAGE)).then_some(self.changes)
    }

    /// Returns the bytes that wait or are being sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.waiting + self.sending.iter().map(|(_, len)| len).sum::<u64>()
    }

    /// Returns true if some of these bytes may not be on the server yet.
    pub(crate) fn is_unsent(&self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        let overlaps = |at: u64, count: u64| at < end && offset < at + count;
        self.is_passed(offset, len)
            || self.sending.iter().any(|(at, count)| overlaps(*at, *count))
            || self
                .dirty
                .range(..end)
                .next_back()
                .is_some_and(|(at, data)| overlaps(*at, data.len() as u64))
    }

    /// Returns at most `len` bytes from `offset` on, up to the end of the file.
    ///
    /// # Errors
    /// The pages that are missing.
    pub(crate) fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Missing> {
        let end = offset.saturating_add(len as u64).min(self.len);
        if offset >= end {
            return Ok(Vec::new());
        }
        let (first, last) = (offset / PAGE, (end - 1) / PAGE);
        if let Some(missing) = (first..=last).find(|page| !self.has(*page)) {
            let after = (missing..=last).take_while(|page| !self.has(*page)).count();
            return Err(Missing { first: missing, count: after as u64 });
        }
        let mut out = Vec::with_capacity((end - offset) as usize);
        for page in first..=last {
            let start = page * PAGE;
            let from = offset.max(start) - start;
            let to = end.min(start + PAGE) - start;
            let bytes = self.clean.get(&page).map(Data::as_slice).unwrap_or_default();
            let there = bytes.get(from as usize..bytes.len().min(to as usize)).unwrap_or_default();
            out.extend_from_slice(there);
            out.resize((start + to - offset) as usize, 0);
        }
        Ok(out)
    }

    /// Returns true if the page is known: it is cached, or lies after the server's end of file and
    /// was never written.
    pub(crate) fn has(&self, page: u64) -> bool {
        self.clean.contains_key(&page)
            || page * PAGE >= self.stored && !self.is_unsent(page * PAGE, PAGE)
    }

    /// Returns at most `count` unknown pages of the file from `first` on.
    pub(crate) fn unknown(&self, first: u64, count: u64) -> Vec<u64> {
        let end = self.stored.div_ceil(PAGE).min(first.saturating_add(count));
        (first..end).filter(|page| !self.has(*page)).collect()
    }

    /// Caches pages read from the server, if nothing was written meanwhile. Returns the numbers of
    /// the new pages.
    pub(crate) fn fetched(
        &mut self,
        version: u64,
        changes: u64,
        first: u64,
        bytes: &[u8],
        count: u64,
    ) -> Option<Vec<u64>> {
        if !self.is_of(version) || self.changes != changes {
            return None;
        }
        let mut new = Vec::new();
        for page in 0..count {
            let from = (page as usize).saturating_mul(PAGE_BYTES).min(bytes.len());
            let to = from.saturating_add(PAGE_BYTES).min(bytes.len());
            let part = bytes.get(from..to).unwrap_or_default();
            if self.clean.insert(first + page, Data::Own(part.to_vec())).is_none() {
                new.push(first + page);
            }
        }
        Some(new)
    }

    /// Caches a write and queues it for sending. Returns the numbers of new pages.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Vec<u64> {
        // A large write is copied only once, because the pages and the WRITE request share the
        // copy.
        let shared = (data.len() >= SHARED_FROM).then(|| Bytes::copy_from_slice(data));
        let new = self.overwrite(offset, data, Makes::Pages(shared.as_ref()));
        self.queue(offset, data, shared);
        new
    }

    /// Returns true if some of these bytes are being written past the cache.
    pub(crate) fn is_passed(&self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len);
        self.passing.iter().any(|(at, count)| *at < end && offset < at + count)
    }

    /// Begins a write past the cache. Until [`Self::passed`] the server's bytes are unknown.
    pub(crate) fn pass(&mut self, offset: u64, len: u64) {
        self.passing.push((offset, len));
    }

    /// Ends a write past the cache. After a failure nothing is known.
    pub(crate) fn passed(&mut self, offset: u64, data: &[u8], is_there: bool) {
        let (len, end) = (data.len() as u64, offset + data.len() as u64);
        if let Some(at) = self.passing.iter().position(|one| *one == (offset, len)) {
            self.passing.swap_remove(at);
        }
        if !is_there {
            return self.forget();
        }
        if self.is_unsent(offset, len) {
            // Two writes are in progress at once, and only the server knows which came last, so the
            // pages of this write are dropped.
            self.changes += 1;
            let pages = (offset / PAGE)..end.div_ceil(PAGE);
            pages.for_each(|page| _ = self.clean.remove(&page));
            self.len = self.len.max(end);
        } else {
            self.overwrite(offset, data, Makes::Nothing);
        }
        self.stored = self.stored.max(end);
    }

    /// Writes bytes into the known pages.
    fn overwrite(&mut self, offset: u64, data: &[u8], makes: Makes<'_>) -> Vec<u64> {
        self.changes += 1;
        let end = offset + data.len() as u64;
        let mut new = Vec::new();
        let mut at = offset;
        while at < end {
            let (page, within) = (at / PAGE, (at % PAGE) as usize);
            let count = (end - at).min(PAGE - within as u64) as usize;
            let from = (at - offset) as usize;
            at += count as u64;
            if let Makes::Pages(Some(shared)) = makes
                && count == PAGE_BYTES
            {
                if self.clean.insert(page, Data::Shared(shared.slice(from..from + count))).is_none()
                {
                    new.push(page);
                }
                continue;
            }
            let part = data.get(from..from + count).unwrap_or_default();
            // A page is cached if the write covers the whole page, or if the rest of the page is
            // known.
            let is_whole = count == PAGE_BYTES || self.has(page);
            if makes != Makes::Nothing && is_whole && !self.clean.contains_key(&page) {
                self.clean.insert(page, Data::Own(Vec::new()));
                new.push(page);
            }
            if let Some(bytes) = self.clean.get_mut(&page) {
                bytes.put(part, within + count);
            }
        }
        self.len = self.len.max(end);
        new
    }

    /// Adds an unsent extent in place of older ones that it overlaps.
    fn queue(&mut self, offset: u64, data: &[u8], shared: Option<Bytes>) {
        self.cut(offset, offset + data.len() as u64);
        self.waiting += data.len() as u64;
        if let Some(shared) = shared {
            self.dirty.insert(offset, Data::Shared(shared));
            return;
        }
        if let Some((at, Data::Own(before))) = self.dirty.range_mut(..offset).next_back()
            && *at + before.len() as u64 == offset
            && before.len() + data.len() <= EXTENT_BYTES
        {
            before.extend_from_slice(data);
            return;
        }
        self.dirty.insert(offset, Data::Own(data.to_vec()));
    }

    /// Removes the range `from..to` from the unsent data.
    fn cut(&mut self, from: u64, to: u64) {
        let touched: Vec<u64> = self
            .dirty
            .range(..to)
            .rev()
            .take_while(|(at, data)| **at + data.len() as u64 > from)
            .map(|(at, _)| *at)
            .collect();
        for at in touched {
            let Some(mut data) = self.dirty.remove(&at) else { continue };
            let end = at + data.len() as u64;
            self.waiting -= end.min(to) - at.max(from);
            if end > to {
                self.dirty.insert(to, data.split_off((to - at) as usize));
            }
            if at < from {
                data.truncate((from - at) as usize);
                self.dirty.insert(at, data);
            }
        }
    }

    /// Takes all unsent data. It counts as unsent until [`Self::sent`].
    pub(crate) fn take(&mut self) -> Vec<Extent> {
        let extents: Vec<Extent> = std::mem::take(&mut self.dirty).into_iter().collect();
        self.waiting = 0;
        self.sending = extents.iter().map(|(at, data)| (*at, data.len() as u64)).collect();
        extents
    }

    /// Records that the taken data is on the server.
    pub(crate) fn sent(&mut self) {
        let end = self.sending.drain(..).map(|(at, len)| at + len).max();
        self.stored = self.stored.max(end.unwrap_or(0));
    }

    /// Records that the taken data will not reach the server: nothing is known.
    pub(crate) fn not_sent(&mut self) {
        self.sending.clear();
        self.forget();
    }

    /// Records a new length of the file on the server.
    pub(crate) fn resized(&mut self, len: u64) {
        self.changes += 1;
        self.cut(len, u64::MAX);
        drop(self.clean.split_off(&len.div_ceil(PAGE)));
        if let Some(last) = self.clean.get_mut(&(len / PAGE)) {
            last.truncate((len % PAGE) as usize);
        }
        (self.len, self.stored) = (len, len);
    }

    fn drop_clean(&mut self) {
        self.changes += 1;
        self.clean.clear();
    }

    /// Discards the clean pages and the length.
    pub(crate) fn forget(&mut self) {
        self.version = None;
        self.drop_clean();
    }

    /// Returns true if the page is cached.
    pub(crate) fn is_kept(&self, page: u64) -> bool {
        self.clean.contains_key(&page)
    }

    /// Evicts one page, unless it is unsent.
    pub(crate) fn evict(&mut self, page: u64) -> Evicted {
        if !self.is_kept(page) {
            return Evicted::Absent;
        }
        if self.is_unsent(page * PAGE, PAGE) {
            return Evicted::Unsent;
        }
        self.clean.remove(&page);
        Evicted::Gone
    }
}
