//! The limit on cached pages of all files of a mount.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::file::FileCache;
use super::pages::{Evicted, Pages};
use crate::limits::{EVICTED_QUEUE_MAX, PAGE_BYTES};

/// Counts the pages of all files, and evicts the oldest ones.
#[derive(Debug)]
pub(crate) struct CacheBudget {
    /// Most bytes of cached pages.
    limit: usize,
    pages: AtomicUsize,
    unsent: AtomicU64,
    /// Written bytes that never reached the server.
    lost: AtomicU64,
    /// Pages in the order of their arrival; some are evicted already.
    order: Mutex<VecDeque<(Weak<FileCache>, u64)>>,
}

/// The counted sizes of one file's cache.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count {
    pages: usize,
    unsent: u64,
}

impl Count {
    pub(super) fn of(pages: &Pages) -> Self {
        Self { pages: pages.count(), unsent: pages.unsent() }
    }
}

impl CacheBudget {
    /// Returns a budget of `limit` bytes.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            pages: AtomicUsize::new(0),
            unsent: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            order: Mutex::default(),
        })
    }

    /// Returns the bytes of all files that are not on the server yet.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent.load(Ordering::Acquire)
    }

    /// Returns the written bytes of all files that never reached the server.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Acquire)
    }

    pub(super) fn lose(&self, bytes: u64) {
        self.lost.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Returns the bytes of cached pages.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.load(Ordering::Acquire).saturating_mul(PAGE_BYTES)
    }

    /// Replaces the counted sizes of a file. The sums wrap only in between.
    pub(super) fn count(&self, before: Count, now: Count) {
        self.pages.fetch_add(now.pages.wrapping_sub(before.pages), Ordering::AcqRel);
        self.unsent.fetch_add(now.unsent.wrapping_sub(before.unsent), Ordering::AcqRel);
    }

    /// Adds new pages, and evicts the oldest ones if there are too many.
    pub(super) fn came(&self, content: &Arc<FileCache>, new: &[u64]) {
        if new.is_empty() {
            return;
        }
        let notes = {
            let mut order = self.order.lock();
            order.extend(new.iter().map(|page| (Arc::downgrade(content), *page)));
            order.len()
        };
        self.make_room(notes);
        self.sweep();
    }

    /// Visits at most `most` pages; unsent pages stay.
    fn make_room(&self, most: usize) {
        for _ in 0..most {
            if self.bytes() <= self.limit {
                return;
            }
            let Some((of, page)) = self.order.lock().pop_front() else { return };
            let Some(content) = of.upgrade() else { continue };
            if content.evict(page) == Evicted::Unsent {
                self.order.lock().push_back((of, page));
            }
        }
    }

    /// Removes the entries of evicted pages, once they outnumber the others.
    fn sweep(&self) {
        let most = 2 * self.pages.load(Ordering::Acquire) + EVICTED_QUEUE_MAX;
        let notes = {
            let mut order = self.order.lock();
            if order.len() <= most {
                return;
            }
            std::mem::take(&mut *order)
        };
        let mut seen = HashSet::new();
        let is_first = |(of, page): &(Weak<FileCache>, u64)| {
            let is_kept = of.upgrade().is_some_and(|content| content.is_kept(*page));
            is_kept && seen.insert((of.as_ptr().addr(), *page))
        };
        let mut notes: VecDeque<_> = notes.into_iter().filter(is_first).collect();
        let mut order = self.order.lock();
        notes.append(&mut order);
        *order = notes;
    }

    /// Returns the number of entries.
    #[cfg(test)]
    pub(crate) fn notes(&self) -> usize {
        self.order.lock().len()
    }
}
