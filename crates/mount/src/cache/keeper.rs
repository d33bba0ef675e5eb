//! All pages of a mount, which share one limit.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::content::Content;
use super::pages::{Evicted, Pages};
use crate::limits::{PAGE_BYTES, STALE_NOTES};

/// Counts the pages of all files, and makes room.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// Most bytes in pages.
    limit: usize,
    pages: AtomicUsize,
    unsent: AtomicU64,
    /// Bytes that were written and never got to the server.
    lost: AtomicU64,
    /// Notes of pages in the order in which they came; some have gone since.
    order: Mutex<VecDeque<(Weak<Content>, u64)>>,
}

/// What of a file's pages is counted.
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

impl Keeper {
    /// Keeps at most `limit` bytes of what was read.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            pages: AtomicUsize::new(0),
            unsent: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            order: Mutex::default(),
        })
    }

    /// Bytes of all files that are not yet on the server.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent.load(Ordering::Acquire)
    }

    /// Bytes of all files that were written and never got there.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Acquire)
    }

    pub(super) fn lose(&self, bytes: u64) {
        self.lost.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Bytes kept of what was read.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.load(Ordering::Acquire).saturating_mul(PAGE_BYTES)
    }

    /// A file has other pages than before. The sums wrap on the way only.
    pub(super) fn count(&self, before: Count, now: Count) {
        self.pages.fetch_add(now.pages.wrapping_sub(before.pages), Ordering::AcqRel);
        self.unsent.fetch_add(now.unsent.wrapping_sub(before.unsent), Ordering::AcqRel);
    }

    /// Pages that came; the oldest ones go when there are too many.
    pub(super) fn came(&self, content: &Arc<Content>, new: &[u64]) {
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

    /// Looks at no more than `most` pages: those that are not on the server stay.
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

    /// Forgets the notes of pages that have gone, once they are more than the others.
    fn sweep(&self) {
        let most = 2 * self.pages.load(Ordering::Acquire) + STALE_NOTES;
        let notes = {
            let mut order = self.order.lock();
            if order.len() <= most {
                return;
            }
            std::mem::take(&mut *order)
        };
        let mut seen = HashSet::new();
        let is_first = |(of, page): &(Weak<Content>, u64)| {
            let is_kept = of.upgrade().is_some_and(|content| content.is_kept(*page));
            is_kept && seen.insert((of.as_ptr().addr(), *page))
        };
        let mut notes: VecDeque<_> = notes.into_iter().filter(is_first).collect();
        let mut order = self.order.lock();
        notes.append(&mut order);
        *order = notes;
    }

    /// How many notes there are.
    #[cfg(test)]
    pub(crate) fn notes(&self) -> usize {
        self.order.lock().len()
    }
}
